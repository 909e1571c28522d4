//! aarch64, where every processor has NEON.

pub(crate) mod neon;
