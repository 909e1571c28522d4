//! Hints to the memory system. They change nothing but time, and any address is fine.

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

/// Lines that will be written soon, which are asked for a few at a time, while the processor waits
/// for something else. Many at once would wait for each other.
#[derive(Clone, Copy, Debug)]
pub struct LinesAhead {
    pub(crate) next: *const u8,
    /// The last byte of the last line.
    last: *const u8,
    lines_a_step: usize,
}

impl LinesAhead {
    /// The lines of a range. If its end lies before its start there is the end's line alone.
    #[inline(always)]
    pub fn new(start: *const u8, end: *const u8) -> LinesAhead {
        // Not behind the last address.
        let last = end.wrapping_sub(usize::from(!end.is_null()));
        LinesAhead { next: start, last, lines_a_step: 1 }
    }

    /// The same lines, to be asked for in so many steps.
    #[inline(always)]
    pub(crate) fn in_steps(self, steps: usize) -> LinesAhead {
        let bytes = (self.last as usize).saturating_sub(self.next as usize);
        // Both are far below 2^32, and a division of 32 bits takes less time.
        let lines_a_step = ((bytes / LINE_BYTES + 1) as u32).div_ceil((steps as u32).max(1));
        LinesAhead { lines_a_step: lines_a_step as usize, ..self }
    }

    /// Asks for the lines of a step, with something `beside` each of them. There are as many in
    /// each step, so that the processor foresees where the loop ends: behind the last line it is
    /// asked for again. One bound for a whole step, in fewer instructions, was slower: the lines
    /// came in a burst.
    #[inline(always)]
    pub(crate) fn step(&mut self, mut beside: impl FnMut()) {
        for _ in 0..self.lines_a_step {
            for_write(self.next.min(self.last));
            self.next = self.next.wrapping_add(LINE_BYTES);
            beside();
        }
    }

    /// How many lines there are, without the last.
    #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
    #[inline(always)]
    pub(crate) fn whole_lines(&self) -> u32 {
        ((self.last as usize).saturating_sub(self.next as usize) / LINE_BYTES) as u32
    }

    /// Gives the hint for each of the next lines, of which there must be as many.
    #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
    #[inline(always)]
    pub(crate) fn take<const LINES: usize>(&mut self, hint: impl Fn(*const u8)) {
        (0..LINES).for_each(|line| hint(self.next.wrapping_add(line * LINE_BYTES)));
        self.next = self.next.wrapping_add(LINES * LINE_BYTES);
    }

    /// Asks for all that are left.
    #[inline(always)]
    pub(crate) fn finish(mut self) {
        while self.next < self.last {
            for_write(self.next);
            self.next = self.next.wrapping_add(LINE_BYTES);
        }
    }
}
