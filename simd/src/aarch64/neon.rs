//! NEON.
//!
//! - `walk`: no vectors. The wide decode of four bytes is as good as it gets without `pext`: `bic`, `sub`, `and`, then two `orr` with a
//!   shifted operand, which is free here; `rbit` and `clz` give the length beside that. NEON has no gather, so many chunks are walked one after
//!   another, but for dense ones: eight chains of one-byte headers side by side. Their places, their ends and a row's address
//!   fit the 31 general registers; the bytes become spans by `ushll` and `add`. Pointer doubling has an instruction, `tbl` over four registers, but it looks up 16 bytes at a time: four blocks of some ten
//!   instructions for each pair of fragments, against the twenty that the pair takes without.
//! - `decode`: four loads, comparisons and masks and four pairwise additions give the ends of 64 bytes, some 20 instructions, where words
//!   take six for each eight.
//! - `fields`: words.
//!
//! Nothing here was timed on a processor: emulation shows that it is right, the counts are counted in the code.

use std::arch::aarch64::*;

use crate::bytes::{Bytes, Word};
use crate::entries::entry_points;
use crate::walk::pairs::NoPairs;
use crate::walk::{self, Job, sprint};
use crate::word::Portable;

entry_points! {
    #[target_feature(enable = "neon")]
    header: Portable, pairs: NoPairs, window: Window
}

/// # Safety
/// The processor has the level.
#[target_feature(enable = "neon")]
pub(crate) unsafe fn walk_many(jobs: &mut [Job<'_>]) {
    // SAFETY: the caller's promise.
    unsafe {
        if walk::walk_others_alone(jobs, walk) > 0 {
            sprint::walk(jobs, walk);
        }
    }
}

/// A window of 64 bytes in four registers.
struct Window;

impl Bytes for Window {
    const WINDOW_BYTES: usize = 64;

    #[inline(always)]
    unsafe fn stops(at: *const u8) -> u64 {
        const WEIGHTS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
        // SAFETY: the caller's window; the processor has NEON.
        unsafe {
            let weights = vld1q_u8(WEIGHTS.as_ptr());
            // A byte below 0x80 is not negative: its weight remains.
            let ends = |quarter: usize| {
                vandq_u8(vcgezq_s8(vreinterpretq_s8_u8(vld1q_u8(at.add(16 * quarter)))), weights)
            };
            // Neighbours are added three times, until each byte holds the eight weights of eight bytes.
            let halves = (vpaddq_u8(ends(0), ends(1)), vpaddq_u8(ends(2), ends(3)));
            let all = vpaddq_u8(halves.0, halves.1);
            vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(all, all)))
        }
    }

    #[inline(always)]
    unsafe fn compact(word: u64, mask: u64) -> u64 {
        // SAFETY: shifts and masks.
        unsafe { Word::compact(word, mask) }
    }
}
