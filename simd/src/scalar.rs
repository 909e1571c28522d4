//! The portable level: no intrinsics, any processor.
//!
//! One chunk is walked with 64-bit words ([`crate::word::Portable`]); many chunks are walked one after another, since four or eight scalar
//! chains side by side did not beat that (docs/simd.md).

use crate::walk::pairs::NoPairs;
use crate::walk::{Job, Span, Walk, one};
use crate::word::Portable;

/// # Safety
/// As [`crate::walk::walk_raw`].
pub(crate) unsafe fn walk(start: *const u8, len: usize, limit: usize, spans: *mut Span) -> Walk {
    // SAFETY: the caller's promise.
    unsafe { one::walk::<Portable, NoPairs>(start, len, limit, spans) }
}

/// # Safety
/// None: every processor will do.
pub(crate) unsafe fn walk_many(jobs: &mut [Job<'_>]) {
    for job in jobs {
        // SAFETY: every processor has what the portable walk needs.
        unsafe { job.walk_alone(walk) };
    }
}
