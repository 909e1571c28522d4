//! The vector trait of the kernels that look at bytes: where do varints end, and what are they worth?

use crate::word::{HIGH, LOW};

/// A window of bytes of which one look finds all ends of varints. Places follow from the mask alone, so the values behind
/// them are independent of each other, unlike fragments.
pub(crate) trait Bytes {
    /// Bytes of a window, at most 64.
    const WINDOW_BYTES: usize;

    /// Bit i says that byte i is below 0x80, for the bytes of the window; the bits above are 0.
    ///
    /// # Safety
    /// `at` is readable for a window, and the processor has the instructions.
    unsafe fn stops(at: *const u8) -> u64;

    /// The bits of `word` where `mask` has ones, pushed together towards bit 0. `mask` has whole groups: each byte is 0 or 0x7f, and
    /// no 0x7f is above a 0.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn compact(word: u64, mask: u64) -> u64;
}

/// Eight bytes in a general register.
pub(crate) struct Word;

impl Bytes for Word {
    const WINDOW_BYTES: usize = 8;

    #[inline(always)]
    unsafe fn stops(at: *const u8) -> u64 {
        // SAFETY: the caller's promise.
        let word = unsafe { crate::word::load(at) };
        // The product puts bit 8 * i of the factor to bit 56 + i, and nothing else there.
        ((!word & HIGH) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
    }

    #[inline(always)]
    unsafe fn compact(word: u64, mask: u64) -> u64 {
        let groups = word & mask;
        let pairs = (groups & 0x007f_007f_007f_007f) | ((groups >> 1) & 0x3f80_3f80_3f80_3f80);
        let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs >> 2) & 0x0fff_c000_0fff_c000);
        (fours & 0x0fff_ffff) | ((fours >> 4) & 0x00ff_ffff_f000_0000)
    }
}

/// The groups of the varint that begins with the lowest byte of `word`, all eight if it does not end there.
///
/// # Safety
/// The processor has the instructions of `B`.
#[inline(always)]
pub(crate) unsafe fn low_groups<B: Bytes>(word: u64) -> u64 {
    let stops = !word & HIGH;
    // SAFETY: the caller's promise.
    unsafe { B::compact(word, stops.wrapping_sub(1) & LOW) }
}
