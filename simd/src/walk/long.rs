//! The walk for chunks whose headers are of any length, up to the ten bytes of a varint. Ordinary
//! writers produce none, so the fast loops leave a chunk to it at the second header that is longer
//! than they take.
//!
//! A header of up to eight bytes comes from one word without a branch; longer ones by a branch. The
//! naive walk, byte by byte, is mispredicted at nearly every header of such a chunk.

use super::one::Cursor;
use super::{MAX_HEADER_BYTES, Span};
use crate::word::{HIGH, Header, LOW, load};

/// Walks on while ten bytes are left, fragments are wanted and they fit. The naive walk then says
/// what ended it.
///
/// # Safety
/// `cursor` holds its invariants, and the processor has the instructions of `H`.
#[inline(always)]
pub(crate) unsafe fn walk<H: Header>(cursor: Cursor) -> Cursor {
    let Cursor { mut at, end, mut out, out_end } = cursor;
    while out != out_end {
        let left = end as usize - at as usize;
        if left < MAX_HEADER_BYTES {
            break;
        }
        // SAFETY: ten bytes are left.
        let word = unsafe { load(at) };
        let stops = !word & HIGH;
        // SAFETY: the caller's promise.
        let mut value = unsafe { H::compact(word, stops.wrapping_sub(1) & LOW) };
        let mut header = (stops.trailing_zeros() as usize >> 3) + 1;
        if stops == 0 {
            // SAFETY: as above.
            let (ninth, tenth) = unsafe { (*at.add(8), *at.add(9)) };
            value |= u64::from(ninth & 0x7f) << 56;
            if ninth >= 0x80 {
                if tenth >= 0x80 {
                    break;
                }
                // Of the tenth byte only the lowest bit counts.
                value |= u64::from(tenth) << 63;
                header = MAX_HEADER_BYTES;
            }
        }
        // The drop marker is longer than any chunk.
        if value > (left - header) as u64 {
            break;
        }
        let total = header + value as usize;
        // SAFETY: out != out_end, and the fragment is within the bytes.
        unsafe {
            *out = Span::pack(header as u32, total as u32);
            out = out.add(1);
            at = at.add(total);
        }
    }
    Cursor { at, end, out, out_end }
}
