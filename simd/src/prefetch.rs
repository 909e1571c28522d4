//! Hints to the memory system. They change nothing but time, and any address is fine.

use crate::word::opaque;

/// Bytes of a cache line; where lines are longer, some hints are given twice.
pub const LINE_BYTES: usize = 64;

/// The line at `at` will be read soon.
#[inline(always)]
pub fn for_read(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch does not fault, and every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch does not fault.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}

/// The line at `at` will be written soon, and no other core has it. On x86-64 this is a hint for
/// reading, unless the whole program is compiled for newer processors: such a line arrives
/// exclusively anyway, and the hint's address takes no instruction of its own.
#[inline(always)]
pub fn for_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch does not fault. A processor without the write form ignores it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for_write_shared(at);
}

/// The line at `at`, which another core may have, will be written soon: it is fetched exclusively.
#[inline(always)]
pub fn for_write_shared(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch does not fault. An x86-64 without the write form ignores it.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch does not fault.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}

/// Lines that will be written soon, which are asked for a few at a time while a chunk is walked,
/// and the processor waits for something else. Many at once would wait for each other.
#[derive(Clone, Copy, Debug)]
pub struct LinesAhead {
    pub(crate) next: *const u8,
    end: *const u8,
}

impl LinesAhead {
    /// The lines from an address on, as many as a walked chunk has.
    #[inline(always)]
    pub fn new(start: *const u8) -> LinesAhead {
        LinesAhead { next: start, end: start }
    }

    /// The lines of so many bytes.
    #[inline(always)]
    pub(crate) fn of_bytes(self, bytes: usize) -> LinesAhead {
        LinesAhead { end: self.next.wrapping_add(bytes), ..self }
    }

    /// How many lines to ask for in each of so many steps, at least. Fewer than there are steps are
    /// left over.
    #[inline(always)]
    pub(crate) fn lines_a_step(&self, steps: usize) -> usize {
        let lines = self.end.addr().wrapping_sub(self.next.addr()) / LINE_BYTES;
        // Both are far below 2^32, and a division of 32 bits takes less time.
        (lines as u32 / (steps as u32).max(1)) as usize
    }

    /// Asks for so many lines, if any are left. There are as many in each step of a walk, so that
    /// the processor foresees where the loop ends.
    #[inline(always)]
    pub(crate) fn ask(&mut self, lines: usize) {
        if self.next < self.end {
            self.next = one_by_one(self.next, lines, for_write);
        }
    }

    /// Asks for all that are left, four at a time: no walk waits beside it.
    #[inline(always)]
    pub(crate) fn finish(mut self) {
        const STEP_BYTES: usize = 4 * LINE_BYTES;
        let left_bytes = self.end.addr().saturating_sub(self.next.addr());
        let (step, last) = (opaque(STEP_BYTES), self.next.wrapping_add(left_bytes / STEP_BYTES * STEP_BYTES));
        while self.next != last {
            (0..4).for_each(|line| for_write(self.next.wrapping_add(line * LINE_BYTES)));
            self.next = self.next.wrapping_add(step);
        }
        while self.next < self.end {
            for_write(self.next);
            self.next = self.next.wrapping_add(LINE_BYTES);
        }
    }
}

/// Gives a hint for so many lines from an address on, and returns the next one. The compiler leaves
/// the loop as it is, since it does not know the step: if hints come in bursts of two or eight,
/// more of them are not fetched.
#[inline(always)]
pub(crate) fn one_by_one(mut at: *const u8, lines: usize, hint: impl Fn(*const u8)) -> *const u8 {
    let (step, end) = (opaque(LINE_BYTES), at.wrapping_add(lines * LINE_BYTES));
    while at != end {
        hint(at);
        at = at.wrapping_add(step);
    }
    at
}
