//! The walk over one chunk, in three gaits.
//!
//! ```text
//!            header >= 0x80, the second               8 headers, mean below 40 bytes,
//!            one within 16 fragments                  and the level has `Pairs`
//!   amble  --------------------------->  vault        amble ------------> pairs
//!          <---------------------------                     <------------
//!            4 one-byte headers in a row              pairs do not fit, or the chunk ends
//! ```
//!
//! - `amble`: one-byte headers by a predicted branch. The chain is one load and one addition a fragment, which nothing
//!   that looks at one fragment at a time can beat.
//! - `vault`: any usual header from one wide load, without a branch on its length. The chain is twice as long, but
//!   lengths that change at random cost a mispredicted branch otherwise, which is longer than both.
//! - `trot`: two-byte headers by a predicted branch, when `vault` has met eight of them in a row, or the chunk began with five.
//! - `pairs`: for dense chunks, see [`super::pairs`].
//!
//! All of them leave what is unusual (the last bytes, whatever ends a walk, more than a few headers longer than a word) to the
//! naive walk, which goes on from that place. So the gaits only ever say yes.

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

/// One-byte headers in a row after which `vault` is left. Looked at once in so many fragments.
const CALM: usize = 4;

/// Fragments after which a longer header is forgiven `amble`.
const GRACE: usize = 16;

/// Fragments after which the mean size is looked at, and the mean in bytes below which `pairs` is worth it.
const SAMPLE: usize = 8;
pub(crate) const DENSE_MEAN_BYTES: usize = 40;

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
            if let Some((header, next)) = fit::<H>(first, place.at, place.end, place.out) {
                place = stride::<H, P>(Place { at: next, out: place.out.add(1), ..place }, header);
            }
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

/// Walks one fragment without a branch on its header's length. Returns that length and where the next one begins, or
/// `None` if the header is longer than a word or the fragment does not fit.
///
/// # Safety
/// `at <= end - H::WIDE_BYTES`, `at - H::BEFORE_BYTES` is readable, and there is room for a span at `out`.
#[inline(always)]
pub(crate) unsafe fn leap<H: Header>(
    at: *const u8,
    end: *const u8,
    out: *mut Span,
) -> Option<(usize, *const u8)> {
    // SAFETY: the caller's promise.
    unsafe { fit::<H>(H::header(at), at, end, out) }
}

/// What [`leap`] does with a decoded header.
///
/// # Safety
/// `at <= end`, and there is room for a span at `out`.
#[inline(always)]
unsafe fn fit<H: Header>(
    (body, header): (u64, usize),
    at: *const u8,
    end: *const u8,
    out: *mut Span,
) -> Option<(usize, *const u8)> {
    let behind = at.wrapping_add(header);
    // The drop marker never fits, since a chunk has at most that many bytes. Where the first test lets pass, `behind` is at
    // most `end`.
    if header > H::WIDE_BYTES || body > (end as usize).wrapping_sub(behind as usize) as u64 {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { *out = Span::pack(header as u32, (body + header as u64) as u32) };
    Some((header, behind.wrapping_add(body as usize)))
}

/// Walks as far as the gaits can. `headers` is the length of the first header.
///
/// # Safety
/// `place` holds its invariants, and the byte in front of it may be read.
#[inline(always)]
unsafe fn stride<H: Header, P: Pairs>(place: Place, mut headers: usize) -> Place {
    let Place { mut at, end, mut out, out_end } = place;
    if out == out_end || (end as usize - at as usize) < H::WIDE_BYTES {
        return place;
    }
    // SAFETY: WIDE_BYTES are left.
    let last_wide = unsafe { end.sub(H::WIDE_BYTES) };
    // Where the sample of sizes began, and the fragment at which `amble` stops to look at it.
    let mut sampled_from = at;
    let mut pause = if P::EXISTS { out.wrapping_add(SAMPLE).min(out_end) } else { out_end };
    let mut forgiven_from = out.wrapping_add(GRACE);
    let mut last_long = std::ptr::null_mut();
    'walk: loop {
        // Amble. Here, and at the head of each loop below, at <= last_wide and out < out_end.
        loop {
            let behind = at.wrapping_add(opaque(1));
            // SAFETY: at <= last_wide < end.
            let body = opaque(usize::from(unsafe { *at }));
            if body < 0x80 {
                // The place is moved before it is tested: a second copy of it would cost the chain a cycle.
                at = behind.wrapping_add(body);
                if at > end {
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
                let Some((_, next)) = (unsafe { leap::<H>(at, end, out) }) else { break };
                out = out.wrapping_add(1);
                at = next;
            }
            if at > last_wide {
                break 'walk;
            }
            if out == pause {
                if out == out_end {
                    break 'walk;
                }
                pause = out_end;
                if (at as usize - sampled_from as usize) < SAMPLE * DENSE_MEAN_BYTES {
                    // SAFETY: the invariants hold.
                    Place { at, out, .. } = unsafe { P::walk(Place { at, end, out, out_end }) };
                    if out == out_end || at > last_wide {
                        break 'walk;
                    }
                }
            }
        }
        // Vault. All headers together of the last group, and of the one before.
        loop {
            let headers_before = std::mem::take(&mut headers);
            for _ in 0..CALM {
                // SAFETY: at <= last_wide, a fragment is in front of it, out < out_end.
                if let Some((header, next)) = unsafe { leap::<H>(at, end, out) } {
                    headers |= header;
                    out = out.wrapping_add(1);
                    at = next;
                } else {
                    let mut place = Place { at, end, out, out_end };
                    // Two long headers in a row are the rule rather than the exception: the naive walk is faster then.
                    // SAFETY: the invariants hold.
                    if out == last_long || !unsafe { long_step(&mut place) } {
                        break 'walk;
                    }
                    Place { at, out, .. } = place;
                    last_long = out;
                    headers = usize::MAX;
                }
                if out == out_end || at > last_wide {
                    break 'walk;
                }
            }
            if headers == 1 {
                break;
            }
            if headers == 2 && headers_before == 2 {
                // Trot: eight headers of two bytes, or the first five, so more are likely.
                loop {
                    // SAFETY: at <= last_wide, so two bytes are there.
                    let [low, high] = unsafe { at.cast::<[u8; 2]>().read() };
                    if low < 0x80 || high >= 0x80 {
                        break;
                    }
                    let behind = at.wrapping_add(2).wrapping_sub(0x80);
                    let next = behind.wrapping_add(low.into()).wrapping_add(usize::from(high) << 7);
                    if next > end {
                        break 'walk;
                    }
                    // SAFETY: out < out_end. `next` is in the chunk or at its end.
                    unsafe {
                        *out = Span::pack(2, (next as usize - at as usize) as u32);
                        out = out.add(1);
                    }
                    at = next;
                    if out == out_end || at > last_wide {
                        break 'walk;
                    }
                }
            }
        }
        if pause != out_end {
            // `amble` has not yet come to its pause, or has been carried past it: a new sample.
            sampled_from = at;
            pause = out.wrapping_add(SAMPLE).min(out_end);
        }
    }
    Place { at, end, out, out_end }
}
