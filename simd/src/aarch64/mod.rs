//! aarch64: every processor of it has NEON.

pub(crate) mod neon;
