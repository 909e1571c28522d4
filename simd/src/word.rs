//! The wide decode of one varint: one load, value and length out, no branch.
//!
//! ```text
//!   word   83 80 80 00 xx xx xx xx       lowest byte first
//!   stops  00 00 00 80 80 .. ..          the high bit of each byte that ends a varint
//!   below  7f 7f 7f 7f 00 00 00 00       (stops - 1) without high bits: the groups up to the first stop
//! ```
//!
//! A word holds varints of a few bytes. Longer ones go elsewhere.

use crate::bytes::{Bytes, Word};
use crate::walk::long;
use crate::walk::one::Place;

pub(crate) const HIGH: u64 = 0x8080_8080_8080_8080;
pub(crate) const LOW: u64 = !HIGH;

/// How a fragment's header is decoded.
pub(crate) trait Header {
    /// Bytes that are read in front of the header and mean nothing.
    const BEFORE_BYTES: usize;
    /// Bytes that are read from the header on, and the longest header that is decoded.
    const WIDE_BYTES: usize;
    /// Headers after which a walk looks whether they are alike. Fewer are more often alike by chance, and then the branch is
    /// mispredicted that was chosen for them.
    const CALM: usize;
    /// Whether it is so long a chain that one- and two-byte headers mixed, and four-byte ones, are better told by a branch.
    const SLOW: bool;

    /// The value and the length of the varint at `at`. If it is longer than [`Self::WIDE_BYTES`] the two mean nothing, but one of
    /// them is above the bytes of any chunk: who tests where the body ends need not ask.
    ///
    /// # Safety
    /// The bytes `at - BEFORE_BYTES .. at + WIDE_BYTES` are readable, and the processor has the instructions.
    unsafe fn header(at: *const u8) -> (u64, usize);

    /// The same for a header with nothing readable in front of it.
    ///
    /// # Safety
    /// The bytes `at .. at + BEFORE_BYTES + WIDE_BYTES` are readable, and the processor has the instructions.
    unsafe fn first_header(at: *const u8) -> (u64, usize);

    /// As [`long::walk`](crate::walk::long::walk), on its own so that the registers of the gaits are theirs.
    ///
    /// # Safety
    /// `place` holds its invariants, and the processor has the instructions.
    unsafe fn walk_long(place: Place) -> Place;

    /// Tells the processor that bytes around `at`, which may be anywhere, are about to be read.
    #[inline(always)]
    fn expect(_at: *const u8) {}
}

/// Four bytes, with shifts and masks. Sixteen operations in a chain, load and address included; eight bytes would be three more, and
/// nobody writes more than four.
pub(crate) struct Portable;

impl Header for Portable {
    const BEFORE_BYTES: usize = 0;
    const WIDE_BYTES: usize = 4;
    const CALM: usize = 3;
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

    #[cold]
    #[inline(never)]
    unsafe fn walk_long(place: Place) -> Place {
        // SAFETY: the caller's promise; a word needs no instructions of its own.
        unsafe { long::walk(place, |word, mask| Word::compact(word, mask)) }
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

/// The same number, in a way that the compiler cannot see through.
///
/// It then extends a loaded byte with zeros, as it was told, and adds a constant to the address while the load is under
/// way, instead of testing the sign of a sign extension and adding the constant at the end: two cycles of eight in the walk
/// over one-byte headers.
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
