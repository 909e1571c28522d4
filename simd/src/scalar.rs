//! The portable level: no intrinsics, any processor.
//!
//! One chunk is walked with 64-bit words ([`crate::word::Portable`]); many chunks are walked one after another, since four or eight scalar
//! chains side by side did not beat that (docs/simd.md), but for dense ones: eight chains of one-byte headers, which are some seven
//! instructions a fragment and two for its span ([`crate::walk::sprint`]).

use crate::bytes::Word;
use crate::entries::entry_points;
use crate::walk::pairs::NoPairs;
use crate::walk::{self, Job, sprint};
use crate::word::Portable;

entry_points! {
    header: Portable, pairs: NoPairs, window: Word
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
