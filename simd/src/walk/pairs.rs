//! Dense chunks: two fragments for one link of the chain.
//!
//! In a dense chunk each link is a load whose address is the value loaded before, about six cycles that the processor can only wait
//! for. Pointer doubling moves work out of the chain: for *every* byte, as if a one-byte header stood there, the vector
//! unit looks up what stands where that fragment would end, and notes how far the two reach together. That needs no knowledge of where
//! fragments really begin, so it runs ahead of the walk. The walk then hops by notes:
//!
//! ```text
//!   bytes   03 .. .. .. 01 .. 05 .. .. .. .. ..
//!   notes   06       *  08                          * what these say is never asked
//!           at ---------------> next at              one load a pair; the first of the two is read beside it
//! ```
//!
//! Bodies of a pair are shorter than 64 bytes each, or the note is 0 and the walk goes on without notes.

#![cfg_attr(
    not(all(feature = "intrinsics", target_arch = "x86_64")),
    expect(dead_code, reason = "only AVX-512 has the byte permute")
)]

use super::Span;
use super::one::{Place, leap};
use crate::word::Header;

/// The vector unit's part.
pub(crate) trait Pairs {
    /// Whether there is one.
    const EXISTS: bool;
    /// Bytes that one step makes notes for.
    const BLOCK_BYTES: usize;
    /// Bytes that it reads, from the same place.
    const READ_BYTES: usize;

    /// Writes [`Self::BLOCK_BYTES`] notes about the bytes at `source`: the bytes of the two fragments that begin there if both
    /// headers are below 64, else 0.
    ///
    /// # Safety
    /// `source` is readable for [`Self::READ_BYTES`], `notes` writable for [`Self::BLOCK_BYTES`], and the processor has the
    /// instructions.
    unsafe fn note(source: *const u8, notes: *mut u8);

    /// Walks pairs from `place` on, as far as that is worth it.
    ///
    /// # Safety
    /// `place` holds its invariants, a fragment is in front of it, and the processor has the instructions.
    unsafe fn walk(place: Place) -> Place;
}

/// For levels that have no byte permute over enough bytes.
pub(crate) struct NoPairs;

impl Pairs for NoPairs {
    const EXISTS: bool = false;
    const BLOCK_BYTES: usize = 0;
    const READ_BYTES: usize = 0;
    unsafe fn note(_: *const u8, _: *mut u8) {}
    unsafe fn walk(place: Place) -> Place {
        place
    }
}

/// Bytes of a chunk that are noted in one go. Notes of a usual chunk fit at once, and stay in the first-level cache.
const SEGMENT_BYTES: usize = 4096;

/// Aligned to a cache line, so that no block's notes go to two of them.
#[repr(align(64))]
#[expect(dead_code, reason = "read through a pointer")]
struct Notes([u8; SEGMENT_BYTES]);

/// Fragments after which one that is in no pair is forgiven.
const GRACE: usize = 16;

/// What an implementation calls from its `walk`, inside of its `target_feature`.
///
/// # Safety
/// As [`Pairs::walk`], and the processor has what `H` needs.
#[inline(always)]
pub(crate) unsafe fn walk<P: Pairs, H: Header>(mut place: Place) -> Place {
    let mut notes = std::mem::MaybeUninit::<Notes>::uninit();
    let notes = notes.as_mut_ptr().cast::<u8>();
    loop {
        let left = place.end as usize - place.at as usize;
        if left < P::READ_BYTES {
            return place;
        }
        let blocks = ((left - P::READ_BYTES) / P::BLOCK_BYTES + 1).min(SEGMENT_BYTES / P::BLOCK_BYTES);
        // SAFETY: block k reads from at + k * BLOCK, of which the last is at most at + left - READ; the notes have
        // room for SEGMENT / BLOCK blocks.
        let (next, whole) = unsafe { segment::<P, H>(place, blocks, notes) };
        place = next;
        if !whole {
            return place;
        }
    }
}

/// Walks the fragments that begin in the next `blocks` blocks. The second answer is true if it came to their end.
///
/// # Safety
/// `place` holds its invariants, a fragment is in front of it, and `P` may note `blocks` blocks from its bytes to `notes`.
#[inline(always)]
unsafe fn segment<P: Pairs, H: Header>(place: Place, blocks: usize, notes: *mut u8) -> (Place, bool) {
    let begin = place.at;
    let Place { mut at, end, mut out, out_end } = place;
    let noted_end = begin.wrapping_add(blocks * P::BLOCK_BYTES);
    let note_of = |byte: *const u8| notes.wrapping_add(byte as usize - begin as usize);
    let last_pair = out_end.wrapping_sub(2);
    if last_pair < out {
        return (place, false);
    }
    let mut forgiven_from = out;
    // Each round makes the notes of one block and hops over at most 128 bytes, in the mean over less than a block: the notes stay
    // ahead.
    // SAFETY: `blocks` is at least 1.
    unsafe { P::note(begin, notes) };
    let mut noted = begin.wrapping_add(P::BLOCK_BYTES);
    let whole = 'walk: loop {
        // Here at < noted and out <= last_pair.
        if noted < noted_end {
            // SAFETY: one of the `blocks` blocks.
            unsafe { P::note(noted, note_of(noted)) };
            noted = noted.wrapping_add(P::BLOCK_BYTES);
        }
        // SAFETY: at < noted, so the byte is in the chunk and its note is made.
        let (first, both) = unsafe { (u32::from(*at) + 1, u32::from(*note_of(at))) };
        let next = at.wrapping_add(both as usize);
        if both == 0 || next > end {
            // A longer fragment: by itself, unless they are frequent.
            if out < forgiven_from {
                break false;
            }
            // SAFETY: at < noted_end, behind which READ_BYTES may be read; a fragment is in front; there is room.
            let Some((_, next)) = (unsafe { leap_aside::<H>(at, end, out) }) else { break false };
            out = out.wrapping_add(1);
            at = next;
            forgiven_from = out.wrapping_add(GRACE);
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
        while at >= noted {
            if noted == noted_end {
                break 'walk true;
            }
            // SAFETY: one of the `blocks` blocks.
            unsafe { P::note(noted, note_of(noted)) };
            noted = noted.wrapping_add(P::BLOCK_BYTES);
        }
    };
    (Place { at, end, out, out_end }, whole)
}

/// [`leap`], out of the way of the walk over pairs.
///
/// # Safety
/// As [`leap`].
#[cold]
#[inline(always)]
unsafe fn leap_aside<H: Header>(at: *const u8, end: *const u8, out: *mut Span) -> Option<(usize, *const u8)> {
    // SAFETY: the caller's promise.
    unsafe { leap::<H>(at, end, out) }
}
