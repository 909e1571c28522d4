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

/// The line at `at` will be written soon.
#[inline(always)]
pub fn for_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch does not fault. Where the processor lacks the write form it is a no-op.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch does not fault.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}

/// All lines of a range will be read soon, and up to seven behind it.
#[inline(always)]
pub(crate) fn all_for_read(start: *const u8, end: *const u8) {
    const LINES: usize = 8;
    let mut at = start;
    while at < end {
        for line in 0..LINES {
            for_read(at.wrapping_add(line * LINE_BYTES));
        }
        at = at.wrapping_add(LINES * LINE_BYTES);
    }
}
