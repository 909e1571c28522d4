//! The walk over one chunk, in four gaits.
//!
//! ```text
//!            a group of one-byte headers              8 headers, mean below 40 bytes,
//!            (3 or 4)                                 and the level has `Pairs`
//!   vault  --------------------------->  amble        amble ------------> pairs
//!          <---------------------------                     <------------
//!            header >= 0x80, the second               pairs do not fit, or the chunk ends
//!            one within 16 fragments
//! ```
//!
//! - `vault`: any usual header from one wide load, without a branch on its length. Lengths that change at random
//!   would cost a mispredicted branch, which is longer than the chain.
//! - `amble`: one-byte headers by a predicted branch. The chain is one load and one addition a fragment, which nothing
//!   that looks at one fragment at a time can beat; bytes further on are asked for ahead of it, a cache line a fragment. (Between longer
//!   fragments there are too many lines: asking for all of them takes more time than it saves.)
//! - `trot`: two-byte headers by a predicted branch, when `vault` has met two groups of them in a row, or the chunk began with one;
//!   on levels whose `vault` is slow one-byte headers between them too, and redundant four-byte ones.
//! - `pairs`: for dense chunks, see [`super::pairs`].
//!
//! What a fragment costs beside the chain decides how far the processor runs ahead of it, into the next chunk: it holds about a
//! hundred operations that wait for the chain. So a fragment has one test. A header that is too long, the drop marker and a
//! body that does not fit all end behind the last place where a header can be read, and so does the last fragment, to which
//! the gaits do not come. And a walk begins with `vault`, whose branches do not wait for the chain.
//!
//! All of them leave what is unusual (the last bytes, whatever ends a walk) to the naive walk, which goes on from that place, and a chunk with
//! more than one header longer than a word to [`super::long`]. So the gaits only ever say yes.

use super::pairs::Pairs;
use super::{DROP_MARKER, Span, Stop, Walk, naive};
use crate::word::{Header, opaque};

/// The rest of a walk: where it stands. Invariants: `at <= end`, both in the chunk; `out <= out_end`, both in the spans.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) at: *const u8,
    pub(crate) end: *const u8,
    pub(crate) out: *mut Span,
    pub(crate) out_end: *mut Span,
}

/// Fragments after which a longer header is forgiven `amble`.
pub(super) const GRACE: usize = 16;

/// Fragments after which the mean size is looked at, and the mean in bytes below which `pairs` is worth it.
const SAMPLE: usize = 8;
const PAIRS_MEAN_BYTES: usize = 40;

/// How far ahead `amble` asks for bytes: a load from the second-level cache takes as long as two fragments, and a fragment has
/// about a cache line.
const AHEAD_BYTES: usize = 384;

/// Same contract as [`super::walk_raw`].
///
/// # Safety
/// As [`super::walk_raw`], and the processor has what `H` and `P` need.
#[inline(always)]
pub(crate) unsafe fn walk<H: Header, P: Pairs>(
    start: *const u8,
    len: usize,
    limit: usize,
    spans: *mut Span,
) -> Walk {
    // SAFETY: the caller's ranges; one past the end of each is still a valid place.
    let mut place =
        unsafe { Place { at: start, end: start.add(len), out: spans, out_end: spans.add(limit) } };
    if len >= H::BEFORE_BYTES + H::WIDE_BYTES && limit > 0 {
        // The first header by itself: from then on there is a byte in front of every header.
        // SAFETY: the bytes are there, and room for a span; the place keeps its invariants.
        unsafe {
            let first = H::first_header(place.at);
            place = match fit::<H>(first, place.at, place.end, place.out) {
                Some((header, next)) => {
                    stride::<H, P>(Place { at: next, out: place.out.add(1), ..place }, header)
                }
                None => H::walk_long(place),
            };
        }
    }
    // SAFETY: the place holds its invariants.
    unsafe { finish(start, spans, place) }
}

/// Walks the rest naively and adds it to what was found before.
///
/// # Safety
/// `place` holds its invariants; `start` and `spans` are where it began.
#[inline(always)]
unsafe fn finish(start: *const u8, spans: *mut Span, place: Place) -> Walk {
    // SAFETY: both pointers of each pair are of the same range, and in order.
    let (fragments, visible_bytes) =
        unsafe { (place.out.offset_from_unsigned(spans), place.at.offset_from_unsigned(start)) };
    if place.out == place.out_end {
        return Walk { fragments, visible_bytes, stop: Stop::Limit };
    }
    // SAFETY: `at..end` is the rest of the caller's bytes, `out..out_end` the rest of its spans, to which nobody
    // else has access.
    let rest = unsafe {
        let bytes = std::slice::from_raw_parts(place.at, place.end.offset_from_unsigned(place.at));
        let spans = std::slice::from_raw_parts_mut(place.out, place.out_end.offset_from_unsigned(place.out));
        naive::walk(bytes, spans.len(), spans)
    };
    Walk {
        fragments: fragments + rest.fragments,
        visible_bytes: visible_bytes + rest.visible_bytes,
        stop: rest.stop,
    }
}

/// Walks one fragment with whatever header. False, and nothing changes, if it ends the walk.
///
/// # Safety
/// `place` holds its invariants.
#[cold]
#[inline(never)]
unsafe fn long_step(place: &mut Place) -> bool {
    // SAFETY: `at..end` is readable.
    let bytes = unsafe { std::slice::from_raw_parts(place.at, place.end.offset_from_unsigned(place.at)) };
    let Ok((body, header)) = naive::header(bytes) else { return false };
    if place.out == place.out_end || body == DROP_MARKER || body > (bytes.len() - header) as u64 {
        return false;
    }
    let total = header + body as usize;
    // SAFETY: out < out_end, and the fragment is within the bytes.
    unsafe {
        *place.out = Span::pack(header as u32, total as u32);
        place.out = place.out.add(1);
        place.at = place.at.add(total);
    }
    true
}

/// Whether `next`, which was counted from `at`, is behind `limit`. With 32 bits it may have come around; with 64 it cannot, a body is
/// below 2^57 and so is an address.
#[inline(always)]
fn is_behind(next: *const u8, at: *const u8, limit: *const u8) -> bool {
    next > limit || usize::BITS < 64 && next < at
}

/// Walks one fragment without a branch on its header's length. Returns that length and where the next one begins, or
/// `None` if that is behind `limit`, as it is when the header is longer than a word.
///
/// # Safety
/// `at - H::BEFORE_BYTES .. at + H::WIDE_BYTES` is readable, and there is room for a span at `out`.
#[inline(always)]
pub(crate) unsafe fn leap<H: Header>(
    at: *const u8,
    limit: *const u8,
    out: *mut Span,
) -> Option<(usize, *const u8)> {
    // SAFETY: the caller's promise.
    unsafe { fit::<H>(H::header(at), at, limit, out) }
}

/// What [`leap`] does with a decoded header.
///
/// # Safety
/// There is room for a span at `out`.
#[inline(always)]
unsafe fn fit<H: Header>(
    (body, header): (u64, usize),
    at: *const u8,
    limit: *const u8,
    out: *mut Span,
) -> Option<(usize, *const u8)> {
    // Of the drop marker: no chunk has that many bytes.
    let next = at.wrapping_add(header).wrapping_add(body as usize);
    if is_behind(next, at, limit) {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { *out = Span::pack(header as u32, (next as usize - at as usize) as u32) };
    Some((header, next))
}

/// Walks on while headers have `BYTES` bytes, or one if `OR_ONE`. The second answer is false if the fragment in front does not end
/// before `place.end`.
///
/// # Safety
/// `place` holds its invariants, and four bytes are readable at `place.end`.
#[inline(always)]
unsafe fn trot<const BYTES: usize, const OR_ONE: bool>(place: Place) -> (Place, bool) {
    let Place { mut at, end, mut out, out_end } = place;
    while out != out_end {
        // SAFETY: at <= end, so the bytes are there.
        let bytes = unsafe { at.cast::<[u8; BYTES]>().read() }.map(|byte| opaque(byte.into()));
        let one = OR_ONE && bytes[0] < 0x80;
        let (header, next) = if one {
            (1, at.wrapping_add(1).wrapping_add(bytes[0]))
        } else {
            let (last, more) = bytes.split_last().expect("BYTES is above 0");
            if *last >= 0x80 || more.iter().any(|byte| *byte < 0x80) {
                break;
            }
            // The continuation bits are taken off beforehand: one operation for each byte is left when it comes.
            let continuations: usize = (1..BYTES).map(|i| 1 << (7 * i)).sum();
            let behind = at.wrapping_sub(opaque(continuations - BYTES));
            let next =
                bytes.iter().enumerate().fold(behind, |next, (i, byte)| next.wrapping_add(byte << (7 * i)));
            (BYTES as u32, next)
        };
        if is_behind(next, at, end) {
            return (Place { at, out, ..place }, false);
        }
        // SAFETY: out < out_end.
        unsafe {
            *out = Span::pack(header, (next as usize - at as usize) as u32);
            out = out.add(1);
        }
        at = next;
    }
    (Place { at, out, ..place }, true)
}

/// Walks as far as the gaits can. `headers` is the length of the first header.
///
/// # Safety
/// `place` holds its invariants, and the byte in front of it may be read.
#[inline(always)]
unsafe fn stride<H: Header, P: Pairs>(place: Place, mut headers: usize) -> Place {
    let Place { mut at, end, mut out, out_end } = place;
    if (end as usize - at as usize) < H::WIDE_BYTES {
        return place;
    }
    // SAFETY: WIDE_BYTES are left.
    let last_wide = unsafe { end.sub(H::WIDE_BYTES) };
    // The last fragment may end with the bytes, so the gaits stop in front of it. All others must end where a header can be read.
    let last_out = out_end.wrapping_sub(1);
    let room = |out: *mut Span| last_out as isize - out as isize;
    // Where the sample of sizes began, and the fragment at which `amble` stops to look at it.
    let mut sampled_from = at;
    let mut pause = if P::EXISTS { out.wrapping_add(SAMPLE).min(last_out) } else { last_out };
    let mut met_long = false;
    'walk: loop {
        // Vault. All headers together of the last group, and of the one before. Here, and at the head of each loop below,
        // at <= last_wide.
        loop {
            let headers_before = std::mem::take(&mut headers);
            if room(out) < (H::CALM * size_of::<Span>()) as isize {
                break 'walk;
            }
            for _ in 0..H::CALM {
                // SAFETY: at <= last_wide, a fragment is in front of it, out < out_end.
                if let Some((header, next)) = unsafe { leap::<H>(at, last_wide, out) } {
                    headers |= header;
                    out = out.wrapping_add(1);
                    at = next;
                } else {
                    let mut place = Place { at, end: last_wide, out, out_end };
                    if std::mem::replace(&mut met_long, true) {
                        // SAFETY: the invariants hold.
                        return unsafe { H::walk_long(Place { end, ..place }) };
                    }
                    // SAFETY: the invariants hold.
                    if !unsafe { long_step(&mut place) } {
                        break 'walk;
                    }
                    Place { at, out, .. } = place;
                    headers = usize::MAX;
                }
            }
            if headers == 1 {
                break;
            }
            let lately = headers | headers_before;
            let place = Place { at, end: last_wide, out, out_end: last_out };
            // SAFETY: the invariants hold; WIDE_BYTES, which are at least four, are readable at `last_wide`.
            let (trotted, went) = unsafe {
                match lately {
                    2 | 3 if H::SLOW => trot::<2, true>(place),
                    2 => trot::<2, false>(place),
                    4 if H::SLOW => trot::<4, false>(place),
                    _ => (place, true),
                }
            };
            Place { at, out, .. } = trotted;
            if !went {
                break 'walk;
            }
        }
        if room(out) <= 0 {
            break;
        }
        if pause != last_out && pause <= out {
            // Carried past the pause: a new sample.
            sampled_from = at;
            pause = out.wrapping_add(SAMPLE).min(last_out);
        }
        let mut forgiven_from = out.wrapping_add(GRACE);
        // Amble. Here out < last_out.
        loop {
            H::expect(at.wrapping_add(AHEAD_BYTES));
            let behind = at.wrapping_add(opaque(1));
            // SAFETY: at <= last_wide < end.
            let body = opaque(usize::from(unsafe { *at }));
            if body < 0x80 {
                // The place is moved before it is tested: a second copy of it would cost the chain a cycle.
                at = behind.wrapping_add(body);
                if is_behind(at, at.wrapping_sub(body + 1), last_wide) {
                    at = at.wrapping_sub(body + 1);
                    break 'walk;
                }
                // SAFETY: out < out_end.
                unsafe {
                    *out = Span::pack(1, body as u32 + 1);
                    out = out.add(1);
                }
            } else {
                let forgiven = out >= forgiven_from;
                forgiven_from = out.wrapping_add(GRACE);
                if !forgiven {
                    break;
                }
                // SAFETY: at <= last_wide, a fragment is in front of it, out < out_end.
                let Some((_, next)) = (unsafe { leap::<H>(at, last_wide, out) }) else { break };
                out = out.wrapping_add(1);
                at = next;
            }
            if out == pause {
                if out == last_out {
                    break 'walk;
                }
                pause = last_out;
                if (at as usize - sampled_from as usize) < SAMPLE * PAIRS_MEAN_BYTES {
                    // SAFETY: the invariants hold.
                    Place { at, out, .. } = unsafe { P::walk(Place { at, end, out, out_end }) };
                    if out >= last_out || at > last_wide {
                        break 'walk;
                    }
                }
            }
        }
    }
    // The last ones.
    while out != out_end && at <= last_wide {
        // SAFETY: at <= last_wide, a fragment is in front of it, out < out_end.
        let Some((_, next)) = (unsafe { leap::<H>(at, end, out) }) else { break };
        out = out.wrapping_add(1);
        at = next;
    }
    Place { at, end, out, out_end }
}
