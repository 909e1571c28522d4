//! A copy of a dense chunk that is walked meanwhile: the walk waits for header after header, so the
//! copy takes hardly any time of its own.
//!
//! ```text
//!   there   |h|body|h|body|h|body|h|body|h|body|h|
//!   copy    |h|body|h|body|h|body|h|b              some more with each group of headers
//!                  ^ the walk     ^ copied so far: always the bytes of the next group
//! ```

use std::arch::x86_64::_mm256_zeroupper;

use crate::copy::{LEAST_BYTES, LENGTHS};
use crate::prefetch::{LINE_BYTES, LinesAhead};
use crate::walk::ordinary::{Beside, Paced, walk_beside};

use super::Bmi2;

/// Bytes that are copied at once.
const BLOCK_BYTES: usize = 2 * LINE_BYTES;

/// Blocks that are copied before the walk begins, more than a group has.
const FIRST_BLOCKS: usize = 12;

/// Copies the bytes of a chunk that others may change, each once, and walks the copy as
/// [`crate::walk::walk_ordinary`] does, with the same result; but 0 of a length that
/// [`crate::copy`] has no vectors for. If it is 0, not all may be copied.
///
/// # Safety
/// As many bytes are readable at `from` as the copy has, and do not overlap it; and the processor
/// has the level AVX2.
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2")]
pub(crate) unsafe fn copy_and_walk(
    from: *const u8,
    copy: &mut [u8],
    entries: &mut [u16],
    ahead: LinesAhead,
) -> usize {
    let (to, len) = (copy.as_mut_ptr(), copy.len());
    if !LENGTHS.contains(&len) {
        return 0;
    }
    let ahead = Paced::new(ahead, len);
    let mut copying = Copying { from, to, len, done: 0, blocks: 0, ahead };
    // SAFETY: the copy is initialised and borrowed exclusively; only `copying` writes to it
    // meanwhile, through the same pointer. The processor has the level.
    let visible_bytes = unsafe { walk_beside::<Bmi2>(to, len, entries, true, &mut copying) };
    _mm256_zeroupper();
    if visible_bytes < LEAST_BYTES { 0 } else { visible_bytes }
}

/// `from` is readable and `to` writable for `len` bytes.
struct Copying {
    from: *const u8,
    to: *mut u8,
    len: usize,
    /// Bytes that are copied: whole blocks, or all.
    done: usize,
    /// Blocks to copy with each group of headers.
    blocks: usize,
    ahead: Paced,
}

impl Beside for Copying {
    #[inline(always)]
    fn begin(&mut self, steps: usize) {
        self.ahead.begin(steps);
        // Rounded up, so that the walk hardly ever comes to what is not copied.
        self.blocks = self.len / BLOCK_BYTES / steps.max(1) + 1;
        self.copy_blocks(FIRST_BLOCKS);
    }

    #[inline(always)]
    fn before_step(&mut self, end: usize) {
        self.ahead.before_step(end);
        self.copy_blocks(self.blocks);
        if self.done < end {
            self.copy_to(end);
        }
    }

    #[inline(always)]
    fn finish(&mut self) {
        self.ahead.finish();
        if self.done < self.len {
            self.copy_to(self.len);
        }
    }
}

impl Copying {
    /// Copies so many more blocks, if there are as many.
    #[inline(always)]
    fn copy_blocks(&mut self, blocks: usize) {
        let end = (self.done + blocks * BLOCK_BYTES).min(self.len / BLOCK_BYTES * BLOCK_BYTES);
        if self.done < end {
            // SAFETY: `done` is a whole number of blocks, as it is below `end`, which is inside of
            // both. Another process may change the source, which the compiler does not see.
            unsafe {
                std::arch::asm!(
                    "2:",
                    "vmovdqu ymm0, [{from} + {at}]",
                    "vmovdqu ymm1, [{from} + {at} + 32]",
                    "vmovdqu ymm2, [{from} + {at} + 64]",
                    "vmovdqu ymm3, [{from} + {at} + 96]",
                    "vmovdqu [{to} + {at}], ymm0",
                    "vmovdqu [{to} + {at} + 32], ymm1",
                    "vmovdqu [{to} + {at} + 64], ymm2",
                    "vmovdqu [{to} + {at} + 96], ymm3",
                    "add {at}, {block}",
                    "cmp {at}, {end}",
                    "jb 2b",
                    from = in(reg) self.from,
                    to = in(reg) self.to,
                    at = inout(reg) self.done,
                    end = in(reg) end,
                    block = const BLOCK_BYTES,
                    out("ymm0") _,
                    out("ymm1") _,
                    out("ymm2") _,
                    out("ymm3") _,
                    options(nostack),
                );
            }
        }
    }

    /// Copies up to there, or a little more.
    #[inline(never)]
    fn copy_to(&mut self, end: usize) {
        self.copy_blocks((end - self.done).div_ceil(BLOCK_BYTES));
        if self.done < end {
            // The rest is less than a block.
            let rest = self.len - self.done;
            // SAFETY: the rest of both, vector by vector and then byte by byte. As above.
            unsafe {
                std::arch::asm!(
                    "sub rcx, 16",
                    "jb 3f",
                    "2:",
                    "vmovdqu xmm0, [rsi]",
                    "vmovdqu [rdi], xmm0",
                    "add rsi, 16",
                    "add rdi, 16",
                    "sub rcx, 16",
                    "jae 2b",
                    "3:",
                    "add rcx, 16",
                    "rep movsb",
                    inout("rsi") self.from.add(self.done) => _,
                    inout("rdi") self.to.add(self.done) => _,
                    inout("rcx") rest => _,
                    out("ymm0") _,
                    options(nostack),
                );
            }
            self.done = self.len;
        }
    }
}
