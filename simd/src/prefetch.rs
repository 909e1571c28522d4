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

/// All lines of a range will be read soon. For a range below 1 KiB some lines before it are
/// prefetched too; none behind it, where another core may be writing.
#[inline(always)]
pub fn all_for_read(start: *const u8, end: *const u8) {
    in_blocks(start, end, for_read);
}

/// All lines of a range will be written soon; the same lines as of [`all_for_read`].
#[inline(always)]
pub fn all_for_write(start: *const u8, end: *const u8) {
    in_blocks(start, end, for_write);
}

/// The last block ends with the range, so that no second loop is needed for the rest. Lines are
/// prefetched twice at most.
#[inline(always)]
fn in_blocks(start: *const u8, end: *const u8, hint: impl Fn(*const u8)) {
    const LINES: usize = 16;
    const BLOCK_BYTES: usize = LINES * LINE_BYTES;
    if start >= end {
        return;
    }
    let block = |at: *const u8| {
        for line in 0..LINES {
            hint(at.wrapping_add(line * LINE_BYTES));
        }
    };
    // Its last hint is for the last byte, in whichever line that is.
    let last = end.wrapping_sub(BLOCK_BYTES - LINE_BYTES + 1);
    let mut at = start;
    while at < last {
        block(at);
        at = at.wrapping_add(BLOCK_BYTES);
    }
    block(last);
}
