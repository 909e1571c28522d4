//! For benchmarks in crates without `unsafe`, and for kernels that lost (`simd/tried`): not part of the interface.

use crate::Kernels;
use crate::fields::{Rules, Scan, Violation, scan as kept};
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

/// [`Span::new`] without its tests.
#[inline(always)]
pub const fn span(header_bytes: usize, total_bytes: usize) -> Span {
    Span::pack(header_bytes as u32, total_bytes as u32)
}

/// What [`Rules`] say.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// The wire types that are allowed for the lowest field numbers, a bit for each; other numbers are for the naive scan.
    pub classes: &'a [u8],
    /// Longer fields are violations.
    pub max_length_bytes: u64,
}

/// The rules as a table.
pub fn table(rules: &Rules) -> Table<'_> {
    Table { classes: &rules.classes[..], max_length_bytes: rules.max_length_bytes }
}

/// A scan of which only the plain fields are new: `plain_fields` says how many whole fields without violation there are at the start of a
/// slice, and how long they are together. The rest is the naive scan's.
///
/// # Errors
/// As [`fields::scan`](crate::fields::scan()).
#[inline(always)]
pub fn scan_slices(
    slices: &[&[u8]],
    rules: &Rules,
    plain_fields: impl Fn(&[u8]) -> (usize, usize),
) -> Result<Scan, Violation> {
    kept::slices(slices, rules, plain_fields)
}
