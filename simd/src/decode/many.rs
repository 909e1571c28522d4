//! Rows of varints, window by window.
//!
//! ```text
//!   bytes   05 | 96 01 | 07 | ff ff 03 | 80 ..
//!   stops    1    0  1    1    0  0  1    0        one look; then one count-zeros and one load for each varint
//! ```
//!
//! Only the ends matter for the places, and they are known for a whole window at once: the chain from varint to varint is "clear the
//! lowest bit", one cycle. Rows of one, two or four bytes throughout are recognised by their mask and widened without
//! looking at single varints.

use super::{MAX_VARINT_BYTES, Varints, naive};
use crate::bytes::{Bytes, low_groups};
use crate::word::load;

/// Same contract as [`super::varints`].
///
/// # Safety
/// The processor has the instructions of `B`.
#[inline(always)]
pub(crate) unsafe fn varints<B: Bytes>(bytes: &[u8], values: &mut [u64]) -> Varints {
    let (mut at, mut filled) = (0, 0);
    while bytes.len() - at >= B::WINDOW_BYTES + MAX_VARINT_BYTES && filled < values.len() {
        let values = &mut values[filled..];
        // SAFETY: a window and the longest varint behind it are there; the caller's promise.
        let (found, took) = unsafe { window::<B>(bytes.as_ptr().add(at), values) };
        if found == 0 {
            // A varint longer than the window, or malformed.
            let one = naive::varints(&bytes[at..], &mut values[..1]);
            if one.values == 0 {
                return Varints { values: filled, consumed_bytes: at, stop: one.stop };
            }
            filled += 1;
            at += one.consumed_bytes;
        } else {
            filled += found;
            at += took;
        }
    }
    let rest = naive::varints(&bytes[at..], &mut values[filled..]);
    Varints { values: filled + rest.values, consumed_bytes: at + rest.consumed_bytes, stop: rest.stop }
}

/// Decodes varints that end in the window at `at`, as many as there is room for: how many, and their bytes. None if the first one is malformed
/// or ends behind the window.
///
/// # Safety
/// A window and [`MAX_VARINT_BYTES`] bytes are readable; the processor has the instructions of `B`. There is room for a value.
#[inline(always)]
unsafe fn window<B: Bytes>(at: *const u8, values: &mut [u64]) -> (usize, usize) {
    let all = u64::MAX >> (64 - B::WINDOW_BYTES);
    // SAFETY: the caller's promise.
    let stops = unsafe { B::stops(at) };
    // SAFETY: the window's bytes; values are checked for room.
    unsafe {
        if stops == all && values.len() >= B::WINDOW_BYTES {
            return widen::<u8, B>(at, values, u64::from);
        }
        if stops == all & 0xaaaa_aaaa_aaaa_aaaa && values.len() >= B::WINDOW_BYTES / 2 {
            return widen::<u16, B>(at, values, |pair| ((pair & 0x7f) | (pair >> 1 & 0x3f80)).into());
        }
        if stops == all & 0x8888_8888_8888_8888 && values.len() >= B::WINDOW_BYTES / 4 {
            return widen::<u32, B>(at, values, |four| {
                let pairs = (four & 0x007f_007f) | (four >> 1 & 0x3f80_3f80);
                ((pairs & 0x3fff) | (pairs >> 2 & 0x0fff_c000)).into()
            });
        }
    }
    let runs_of_8 = runs_of_8(!stops & all);
    // SAFETY: the caller's promise.
    unsafe {
        if runs_of_8 == 0 {
            singles::<B, false>(at, stops, values)
        } else if runs_of_8 & runs_of_8 >> 2 == 0 {
            singles::<B, true>(at, stops, values)
        } else {
            // Ten bytes with continuation in a row: up to there, one by one.
            let first = (runs_of_8 & runs_of_8 >> 2).trailing_zeros();
            singles::<B, true>(at, stops & ((1 << first) - 1), values)
        }
    }
}

/// The places where eight bytes in a row have the continuation bit.
#[inline(always)]
fn runs_of_8(continued: u64) -> u64 {
    let runs_of_2 = continued & continued >> 1;
    let runs_of_4 = runs_of_2 & runs_of_2 >> 2;
    runs_of_4 & runs_of_4 >> 4
}

/// A window of varints of `size_of::<T>()` bytes each.
///
/// # Safety
/// The window is readable and `values` has room for all of it.
#[inline(always)]
unsafe fn widen<T: Copy, B: Bytes>(
    at: *const u8,
    values: &mut [u64],
    value: impl Fn(T) -> u64,
) -> (usize, usize) {
    let count = B::WINDOW_BYTES / size_of::<T>();
    for (i, place) in values[..count].iter_mut().enumerate() {
        // SAFETY: within the window.
        *place = value(unsafe { at.cast::<T>().add(i).read_unaligned() });
    }
    (count, B::WINDOW_BYTES)
}

/// The varints whose ends `stops` shows, one load each. `LONG` says whether there may be some of nine and ten bytes.
///
/// # Safety
/// As [`window`], and no varint that ends in `stops` is longer than ten bytes, or eight without `LONG`.
#[inline(always)]
unsafe fn singles<B: Bytes, const LONG: bool>(
    at: *const u8,
    mut stops: u64,
    values: &mut [u64],
) -> (usize, usize) {
    let count = (stops.count_ones() as usize).min(values.len());
    let mut begin = 0;
    for place in &mut values[..count] {
        let end = stops.trailing_zeros() as usize + 1;
        stops &= stops.wrapping_sub(1);
        // SAFETY: the varint begins in the window, and ten bytes behind the window are readable.
        let mut value = unsafe { low_groups::<B>(load(at.add(begin))) };
        if LONG {
            // SAFETY: as above.
            let [ninth, tenth] = unsafe { at.add(begin + 8).cast::<[u8; 2]>().read() };
            let length = end - begin;
            let has = |bytes: usize| u64::from(length >= bytes).wrapping_neg();
            value |= (u64::from(ninth & 0x7f) << 56 & has(9)) | (u64::from(tenth & 1) << 63 & has(10));
        }
        *place = value;
        begin = end;
    }
    (count, begin)
}
