//! For benchmarks in crates without `unsafe`: not part of the interface.

use crate::Kernels;

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
