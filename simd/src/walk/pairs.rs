//! Dense chunks: two fragments for each load of the chain.
//!
//! In a dense chunk the address of each load is the value loaded before, so the processor only
//! waits. Pointer doubling moves work out of that chain: for every byte, as if a one-byte header
//! stood there, the vector unit looks up the header behind that fragment and adds up both lengths.
//! It needs no knowledge of where fragments really begin, so it runs ahead of the walk, which then
//! advances by these sums:
//!
//! ```text
//!   bytes   03 .. .. .. 01 .. 05 .. .. .. .. ..
//!   sums    06       *  08                          * not used: no pair begins here
//!           at ---------------> next at              one load a pair
//! ```
//!
//! Bodies of a pair are shorter than 64 bytes each. Otherwise the sum is 0 and the fragment is
//! walked by itself.

#![cfg_attr(
    not(all(feature = "intrinsics", target_arch = "x86_64")),
    expect(dead_code, reason = "only AVX-512 has the byte permute")
)]

use super::Span;
use super::one::{Cursor, take_any};
use crate::word::Header;

/// The sums of a level with a byte permute.
pub(crate) trait Pairs {
    /// Whether the level has them.
    const EXISTS: bool;
    /// Bytes for which one step computes sums.
    const BLOCK_BYTES: usize;
    /// Bytes that it reads, from the same address.
    const READ_BYTES: usize;

    /// Writes [`Self::BLOCK_BYTES`] sums for the bytes at `source`: the bytes of the two fragments
    /// that begin there if both headers are below 64, else 0.
    ///
    /// # Safety
    /// `source` is readable for [`Self::READ_BYTES`], `sums` writable for [`Self::BLOCK_BYTES`],
    /// and the processor has the instructions.
    unsafe fn sum_pairs(source: *const u8, sums: *mut u8);

    /// Walks pairs from `cursor` on, as far as that is worth it.
    ///
    /// # Safety
    /// `cursor` holds its invariants, a fragment is in front of it, and the processor has the
    /// instructions.
    unsafe fn walk(cursor: Cursor) -> Cursor;
}

/// For levels that have no byte permute over enough bytes.
pub(crate) struct NoPairs;

impl Pairs for NoPairs {
    const EXISTS: bool = false;
    const BLOCK_BYTES: usize = 0;
    const READ_BYTES: usize = 0;
    unsafe fn sum_pairs(_: *const u8, _: *mut u8) {}
    unsafe fn walk(cursor: Cursor) -> Cursor {
        cursor
    }
}

/// Bytes of a chunk whose sums are kept. Those of an ordinary chunk fit, and stay in the
/// first-level cache.
const SEGMENT_BYTES: usize = 4096;

/// Aligned to a cache line, so that no block's sums span two lines.
#[repr(align(64))]
#[expect(dead_code, reason = "read through a pointer")]
struct Sums([u8; SEGMENT_BYTES]);

/// A fragment that is in no pair is walked by itself if the one before it was at least so many
/// fragments ago; else the walk over pairs ends.
const RARE_DISTANCE: usize = 16;

/// The walk, which an implementation calls within its `target_feature`.
///
/// # Safety
/// As [`Pairs::walk`], and the processor has what `H` needs.
#[inline(always)]
pub(crate) unsafe fn walk<P: Pairs, H: Header>(mut cursor: Cursor) -> Cursor {
    let mut sums = std::mem::MaybeUninit::<Sums>::uninit();
    let sums = sums.as_mut_ptr().cast::<u8>();
    loop {
        let left = cursor.end as usize - cursor.at as usize;
        if left < P::READ_BYTES {
            return cursor;
        }
        let blocks = ((left - P::READ_BYTES) / P::BLOCK_BYTES + 1).min(SEGMENT_BYTES / P::BLOCK_BYTES);
        // SAFETY: block k reads from at + k * BLOCK, of which the last is at most at + left - READ;
        // the sums have room for SEGMENT / BLOCK blocks.
        let (next, whole) = unsafe { segment::<P, H>(cursor, blocks, sums) };
        cursor = next;
        if !whole {
            return cursor;
        }
    }
}

/// Walks the fragments that begin in the next `blocks` blocks. The second result is true if it came
/// to their end.
///
/// # Safety
/// `cursor` holds its invariants, a fragment is in front of it, and `P` may sum `blocks`
/// blocks from its bytes to `sums`.
#[inline(always)]
unsafe fn segment<P: Pairs, H: Header>(cursor: Cursor, blocks: usize, sums: *mut u8) -> (Cursor, bool) {
    let begin = cursor.at;
    let Cursor { mut at, end, mut out, out_end } = cursor;
    let sums_end = begin.wrapping_add(blocks * P::BLOCK_BYTES);
    let sum_of = |byte: *const u8| sums.wrapping_add(byte as usize - begin as usize);
    let last_pair = out_end.wrapping_sub(2);
    if last_pair < out {
        return (cursor, false);
    }
    let mut rare_from = out;
    // Each round sums one block and advances by at most 128 bytes, in the mean by less than a
    // block: the sums stay ahead.
    // SAFETY: `blocks` is at least 1.
    unsafe { P::sum_pairs(begin, sums) };
    let mut summed = begin.wrapping_add(P::BLOCK_BYTES);
    let whole = 'walk: loop {
        // Here at < summed and out <= last_pair.
        if summed < sums_end {
            // SAFETY: one of the `blocks` blocks.
            unsafe { P::sum_pairs(summed, sum_of(summed)) };
            summed = summed.wrapping_add(P::BLOCK_BYTES);
        }
        // SAFETY: at < summed, so the byte is in the chunk and its sum is computed.
        let (first, both) = unsafe { (u32::from(*at) + 1, u32::from(*sum_of(at))) };
        let next = at.wrapping_add(both as usize);
        if both == 0 || next > end {
            // A longer fragment: by itself, unless they are frequent.
            if out < rare_from {
                break false;
            }
            // SAFETY: at < sums_end, behind which READ_BYTES may be read; a fragment is in front;
            // there is room.
            let Some((_, next)) = (unsafe { take_any_cold::<H>(at, end, out) }) else { break false };
            out = out.wrapping_add(1);
            at = next;
            rare_from = out.wrapping_add(RARE_DISTANCE);
        } else {
            // SAFETY: out <= last_pair, so there is room for two spans.
            unsafe {
                *out = Span::pack(1, first);
                *out.add(1) = Span::pack(1, both - first);
            }
            out = out.wrapping_add(2);
            at = next;
        }
        if out > last_pair {
            break false;
        }
        while at >= summed {
            if summed == sums_end {
                break 'walk true;
            }
            // SAFETY: one of the `blocks` blocks.
            unsafe { P::sum_pairs(summed, sum_of(summed)) };
            summed = summed.wrapping_add(P::BLOCK_BYTES);
        }
    };
    (Cursor { at, end, out, out_end }, whole)
}

/// [`take_any`], placed outside of the loop over pairs.
///
/// # Safety
/// As [`take_any`].
#[cold]
#[inline(always)]
unsafe fn take_any_cold<H: Header>(
    at: *const u8,
    end: *const u8,
    out: *mut Span,
) -> Option<(usize, *const u8)> {
    // SAFETY: the caller's promise.
    unsafe { take_any::<H>(at, end, out) }
}
