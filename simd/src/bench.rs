//! For benchmarks in crates without `unsafe`: not part of the interface.

use crate::Kernels;
use crate::walk::{MAX_BYTES, Span, Walk};

/// [`Kernels::walk_raw`] on slices that are known to fit.
///
/// # Panics
/// If `limit` is above `spans.len()` or there are more than [`MAX_BYTES`].
#[inline(always)]
pub fn walk_raw(kernels: Kernels, bytes: &[u8], limit: usize, spans: &mut [Span]) -> Walk {
    assert!(limit <= spans.len() && bytes.len() <= MAX_BYTES);
    // SAFETY: the ranges are those of the slices, or shorter.
    unsafe { kernels.walk_raw(bytes.as_ptr(), bytes.len(), limit, spans.as_mut_ptr()) }
}

/// [`Kernels::copy_raw`] between slices.
///
/// # Panics
/// If their lengths differ.
#[inline(always)]
pub fn copy_raw(kernels: Kernels, from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len(), "the lengths of a copy");
    // SAFETY: the ranges of two slices of which one is exclusive.
    unsafe { kernels.copy_raw(from.as_ptr(), to.as_mut_ptr(), to.len()) }
}
