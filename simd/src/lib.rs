//! Kernels on untrusted bytes: fragment walk, protobuf field scan, copy.
//!
//! The crate knows nothing of tracing. Every function takes bytes that an attacker may have
//! written, reads nothing outside of them, and returns values, never panics.
//!
//! | module | question it answers |
//! |---|---|
//! | [`walk`](mod@walk) | where does each `[varint size][body]` fragment of a chunk begin, and why does the walk end? |
//! | [`copy`] | none: it copies the bytes of a chunk |
//! | [`shared`] | the same as [`walk`](mod@walk), of a chunk that is copied while others may change it |
//! | [`fields`] | is this packet, cut into slices, well-formed, and has it reserved fields? |
//!
//! Each function has a naive twin, which is the oracle of the tests and the plain loop of the
//! measurements, a portable version without intrinsics, and versions for AVX2, AVX-512 and NEON
//! where those won. The [`level`] is detected once; the environment can name another.
//! `docs/simd.md` says what each version does and what lost. Without the feature `intrinsics` only
//! the portable versions are built.
#![warn(missing_docs)]

#[cfg(all(feature = "intrinsics", target_arch = "aarch64"))]
mod aarch64;
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
mod x86_64;

#[doc(hidden)]
pub mod bench;
pub mod copy;
mod entries;
pub mod fields;
mod kernels;
pub mod level;
pub mod prefetch;
mod scalar;
pub mod shared;
pub mod walk;
mod word;

pub use kernels::Kernels;
pub use level::Level;
pub use shared::SharedBytes;
pub use walk::{Span, Stop, Walk, walk};
