//! The decode of one varint from one load, without a branch.
//!
//! ```text
//!   word   83 80 80 00 xx xx xx xx       lowest byte first
//!   stops  00 00 00 80 80 .. ..          the high bit of each byte that ends a varint
//!   below  7f 7f 7f 7f 00 00 00 00       (stops - 1) without high bits: the groups up to the first stop
//! ```
//!
//! Longer varints are decoded elsewhere ([`long`]).

use crate::walk::long;
use crate::walk::one::Cursor;

pub(crate) const HIGH: u64 = 0x8080_8080_8080_8080;
pub(crate) const LOW: u64 = !HIGH;

/// How a level decodes varints: a fragment's header, or a length in a packet.
pub(crate) trait Header {
    /// Bytes that are read in front of the header and mean nothing.
    const BEFORE_BYTES: usize;
    /// Bytes that are read from the header on, and the longest header that is decoded.
    const WIDE_BYTES: usize;
    /// Headers in a group. A walk compares the lengths of a group: fewer headers are more often
    /// alike by chance, and then the loop that is chosen for them is mispredicted.
    const GROUP_HEADERS: usize;
    /// Whether the decode is so long a chain that mixed one- and two-byte headers, and four-byte
    /// ones, are better told by a branch.
    const SLOW: bool;

    /// The value and the length of the varint at `at`. If it is longer than [`Self::WIDE_BYTES`]
    /// the two mean nothing, but one of them is larger than any chunk, so the test of where the
    /// body ends fails.
    ///
    /// # Safety
    /// The bytes `at - BEFORE_BYTES .. at + WIDE_BYTES` are readable, and the processor has the
    /// instructions.
    unsafe fn header(at: *const u8) -> (u64, usize);

    /// The same for a header with nothing readable in front of it.
    ///
    /// # Safety
    /// The bytes `at .. at + BEFORE_BYTES + WIDE_BYTES` are readable, and the processor has the
    /// instructions.
    unsafe fn first_header(at: *const u8) -> (u64, usize);

    /// The bits of `word` where `mask` has ones, moved together towards bit 0. Each byte of `mask`
    /// is 0 or 0x7f, and no 0x7f is above a 0.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn compact(word: u64, mask: u64) -> u64;

    /// As [`long::walk`](crate::walk::long::walk). Not inlined, so that it takes no registers from
    /// the fast loops.
    ///
    /// # Safety
    /// `cursor` holds its invariants, and the processor has the instructions.
    unsafe fn walk_long(cursor: Cursor) -> Cursor;

    /// Prefetches the bytes at `at`, which may be any address.
    #[inline(always)]
    fn prefetch(_at: *const u8) {}
}

/// Four bytes, with shifts and masks. Eight bytes would make the chain longer, and writers use four
/// at most.
pub(crate) struct Portable;

impl Header for Portable {
    const BEFORE_BYTES: usize = 0;
    const WIDE_BYTES: usize = 4;
    const GROUP_HEADERS: usize = 3;
    const SLOW: bool = true;

    #[inline(always)]
    unsafe fn header(at: *const u8) -> (u64, usize) {
        // SAFETY: the caller's promise; no alignment is needed.
        let word = u32::from_le(unsafe { at.cast::<u32>().read_unaligned() });
        let stops = !word & HIGH as u32;
        let below = stops.wrapping_sub(1);
        let groups = word & (LOW as u32 | 1 << 31) & below;
        let pairs = (groups & 0x007f_007f) | ((groups >> 1) & 0x3f80_3f80);
        let value = (pairs & 0x3fff) | ((pairs >> 2) & 0x0fff_c000);
        // Bit 31 is left over only where there is no stop.
        (value.into(), (stops.trailing_zeros() as usize >> 3) + 1 + (groups & 1 << 31) as usize)
    }

    #[inline(always)]
    unsafe fn first_header(at: *const u8) -> (u64, usize) {
        // SAFETY: the same bytes.
        unsafe { Self::header(at) }
    }

    #[inline(always)]
    unsafe fn compact(word: u64, mask: u64) -> u64 {
        let groups = word & mask;
        let pairs = (groups & 0x007f_007f_007f_007f) | ((groups >> 1) & 0x3f80_3f80_3f80_3f80);
        let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs >> 2) & 0x0fff_c000_0fff_c000);
        (fours & 0x0fff_ffff) | ((fours >> 4) & 0x00ff_ffff_f000_0000)
    }

    #[cold]
    #[inline(never)]
    unsafe fn walk_long(cursor: Cursor) -> Cursor {
        // SAFETY: the caller's promise.
        unsafe { long::walk::<Self>(cursor) }
    }
}

/// Reads eight bytes, lowest first.
///
/// # Safety
/// `at` must be readable for eight bytes.
#[inline(always)]
pub(crate) unsafe fn load(at: *const u8) -> u64 {
    // SAFETY: the caller's promise; no alignment is needed.
    u64::from_le(unsafe { at.cast::<u64>().read_unaligned() })
}

/// The same number, opaque to the compiler.
///
/// So a loaded byte is extended with zeros, and a constant is added to the address while the load
/// is under way. Left to itself the compiler tests the sign of a sign extension and adds the
/// constant at the end, which makes the chain of the one-byte loop longer.
#[inline(always)]
pub(crate) fn opaque(number: usize) -> usize {
    #[cfg(all(feature = "intrinsics", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let mut number = number;
        // SAFETY: no instruction at all.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
        }
        number
    }
    #[cfg(not(all(
        feature = "intrinsics",
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(miri)
    )))]
    number
}
