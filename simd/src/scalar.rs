//! The portable level: no intrinsics, any processor.
//!
//! One chunk is walked with 64-bit words ([`crate::word::Portable`]); many chunks are walked one after another, since four or eight scalar
//! chains side by side did not beat that (docs/simd.md), but for dense ones: eight chains of one-byte headers, which are some seven
//! instructions a fragment and two for its span ([`crate::walk::sprint`]).

use crate::bytes::Word;
use crate::decode::{self, Field, FieldError, FieldLengths, VarintError, Varints};
use crate::fields::{self, Rules, Scan, Violation};
use crate::walk::pairs::NoPairs;
use crate::walk::{self, Job, Span, Walk, one, small, sprint};
use crate::word::Portable;

/// # Safety
/// As [`crate::walk::walk_raw`].
pub(crate) unsafe fn walk(start: *const u8, len: usize, limit: usize, spans: *mut Span) -> Walk {
    // SAFETY: the caller's promise.
    unsafe { one::walk::<Portable, NoPairs>(start, len, limit, spans) }
}

/// # Safety
/// None: every processor will do.
pub(crate) unsafe fn walk_small(bytes: &[u8], entries: &mut [u16]) -> usize {
    // SAFETY: every processor has what the portable walk needs.
    unsafe { small::walk::<Portable>(bytes, entries) }
}

/// # Safety
/// None: every processor will do.
pub(crate) unsafe fn walk_many(jobs: &mut [Job<'_>]) {
    // SAFETY: the caller's promise.
    unsafe {
        if walk::walk_others_alone(jobs, walk) > 0 {
            sprint::walk(jobs, walk);
        }
    }
}

/// # Safety
/// None: every processor will do.
pub(crate) unsafe fn varint(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    decode::one::varint::<Word>(bytes)
}

/// # Safety
/// None: every processor will do.
pub(crate) unsafe fn varints(bytes: &[u8], values: &mut [u64]) -> Varints {
    // SAFETY: the caller's promise.
    unsafe { decode::many::varints::<Word>(bytes, values) }
}

/// # Safety
/// None: every processor will do.
pub(crate) unsafe fn field(bytes: &[u8]) -> Result<Field, FieldError> {
    decode::one::field::<Word>(bytes)
}

/// # Safety
/// None: every processor will do.
pub(crate) unsafe fn field_lengths(bytes: &[u8], fields: &mut [Field]) -> FieldLengths {
    decode::one::field_lengths::<Word>(bytes, fields)
}

/// # Safety
/// None: every processor will do.
pub(crate) unsafe fn scan(slices: &[&[u8]], rules: &Rules) -> Result<Scan, Violation> {
    // SAFETY: the caller's promise.
    unsafe { fields::scan::scan::<Word>(slices, rules) }
}
