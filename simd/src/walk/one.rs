//! The walk over one chunk, in four loops.
//!
//! ```text
//!           a group of one-byte headers               8 headers, mean below 40 bytes,
//!           (3 or 4)                                  and the level has `Pairs`
//!   any    --------------------------->  one-byte    ------------------------> pairs
//!          <---------------------------              <------------------------
//!           a second longer header                    no pair fits, or the chunk ends
//!           within 16 fragments
//! ```
//!
//! - Any header: decoded from one wide load, without a branch on its length. Lengths that change at
//!   random would cost a mispredicted branch, which takes longer than the decode.
//! - One-byte headers by a predicted branch: one load and one addition a fragment. Bytes further on
//!   are prefetched, a cache line a fragment. (Not in the other loops: between longer fragments
//!   there are too many lines.)
//! - Headers of two bytes by a predicted branch ([`take_alike`]), once two groups of them followed
//!   each other, or the chunk began with one. On levels whose decode is slow this loop takes
//!   one-byte headers too, and another one redundant headers of four bytes.
//! - Dense chunks in pairs, see [`super::pairs`].
//!
//! The chain from header to header decides the time. The processor runs ahead of it into the next
//! chunk until its scheduler is full of operations that wait for the chain, so a fragment has one
//! test only: a header that is too long, the drop marker and a body that does not fit all end
//! behind the last address where a header can begin. The last fragment is left out, since it may
//! end there.
//!
//! The loops take only what is ordinary. What is not (the last bytes, whatever ends a walk) is left
//! to the naive walk, which goes on from there, and a chunk with more than one header longer than a
//! word to [`super::long`].

use super::pairs::Pairs;
use super::{DROP_MARKER, Span, Stop, Walk, naive};
use crate::word::{Header, opaque};

/// Where a walk is, and where it ends.
///
/// Invariants: `at <= end`, both in the chunk; `out <= out_end`, both in the spans.
#[derive(Clone, Copy)]
pub(crate) struct Cursor {
    pub(crate) at: *const u8,
    pub(crate) end: *const u8,
    pub(crate) out: *mut Span,
    pub(crate) out_end: *mut Span,
}

/// The one-byte loop goes on behind a longer header if the one before it was at least so many
/// fragments ago.
const RARE_DISTANCE: usize = 16;

/// After so many fragments their mean size is computed; below that many bytes pairs are worth it.
const SAMPLE: usize = 8;
const PAIRS_MEAN_BYTES: usize = 40;

/// How far ahead the one-byte loop prefetches.
const PREFETCH_BYTES: usize = 384;

/// Same contract as [`super::walk`].
///
/// # Safety
/// `start` is readable for `len` bytes, at most [`super::MAX_BYTES`], which nobody changes
/// meanwhile; `spans` is writable for `limit` spans, to which nobody else has access meanwhile; and
/// the processor has what `H` and `P` need.
#[inline(always)]
pub(crate) unsafe fn walk<H: Header, P: Pairs>(
    start: *const u8,
    len: usize,
    limit: usize,
    spans: *mut Span,
) -> Walk {
    // SAFETY: the caller's ranges; one past the end of each is still a valid cursor.
    let mut cursor =
        unsafe { Cursor { at: start, end: start.add(len), out: spans, out_end: spans.add(limit) } };
    if len >= H::BEFORE_BYTES + H::WIDE_BYTES && limit > 0 {
        // The first header separately: in front of all others there is a byte that may be read.
        // SAFETY: the bytes are there, and room for a span; the cursor keeps its invariants.
        unsafe {
            let first = H::first_header(cursor.at);
            cursor = match fit::<H>(first, cursor.at, cursor.end, cursor.out) {
                Some((header, next)) => {
                    walk_fast::<H, P>(Cursor { at: next, out: cursor.out.add(1), ..cursor }, header)
                }
                None => H::walk_long(cursor),
            };
        }
    }
    // SAFETY: the cursor holds its invariants.
    unsafe { finish(start, spans, cursor) }
}

/// Walks the rest naively and adds it to what was found before.
///
/// # Safety
/// `cursor` holds its invariants; `start` and `spans` are where it began.
#[inline(always)]
unsafe fn finish(start: *const u8, spans: *mut Span, cursor: Cursor) -> Walk {
    // SAFETY: both pointers of each pair are of the same range, and in order.
    let (fragments, visible_bytes) =
        unsafe { (cursor.out.offset_from_unsigned(spans), cursor.at.offset_from_unsigned(start)) };
    if cursor.out == cursor.out_end {
        return Walk { fragments, visible_bytes, stop: Stop::Limit };
    }
    // SAFETY: `at..end` is the rest of the caller's bytes, `out..out_end` the rest of its spans, to
    // which nobody else has access.
    let rest = unsafe {
        let bytes = std::slice::from_raw_parts(cursor.at, cursor.end.offset_from_unsigned(cursor.at));
        let spans =
            std::slice::from_raw_parts_mut(cursor.out, cursor.out_end.offset_from_unsigned(cursor.out));
        naive::walk(bytes, spans.len(), spans)
    };
    Walk {
        fragments: fragments + rest.fragments,
        visible_bytes: visible_bytes + rest.visible_bytes,
        stop: rest.stop,
    }
}

/// Walks one fragment with a header of any length. Returns false, and changes nothing, if it ends
/// the walk.
///
/// # Safety
/// `cursor` holds its invariants.
#[cold]
#[inline(never)]
unsafe fn take_long(cursor: &mut Cursor) -> bool {
    // SAFETY: `at..end` is readable.
    let bytes = unsafe { std::slice::from_raw_parts(cursor.at, cursor.end.offset_from_unsigned(cursor.at)) };
    let Ok((body, header)) = naive::header(bytes) else { return false };
    if cursor.out == cursor.out_end || body == DROP_MARKER || body > (bytes.len() - header) as u64 {
        return false;
    }
    let total = header + body as usize;
    // SAFETY: out < out_end, and the fragment is within the bytes.
    unsafe {
        *cursor.out = Span::pack(header as u32, total as u32);
        cursor.out = cursor.out.add(1);
        cursor.at = cursor.at.add(total);
    }
    true
}

/// Whether `next`, which was added to `at`, is behind `limit`. With 32 bits the addition may wrap
/// around. With 64 it cannot, since both a body and an address are below 2^57.
#[inline(always)]
fn is_behind(next: *const u8, at: *const u8, limit: *const u8) -> bool {
    next > limit || usize::BITS < 64 && next < at
}

/// Walks one fragment without a branch on its header's length. Returns that length and where the
/// next one begins, or `None` if that is behind `limit`, as it is when the header is longer than a
/// word.
///
/// # Safety
/// `at - H::BEFORE_BYTES .. at + H::WIDE_BYTES` is readable, and there is room for a span at `out`.
#[inline(always)]
pub(crate) unsafe fn take_any<H: Header>(
    at: *const u8,
    limit: *const u8,
    out: *mut Span,
) -> Option<(usize, *const u8)> {
    // SAFETY: the caller's promise.
    unsafe { fit::<H>(H::header(at), at, limit, out) }
}

/// Writes the span of a decoded header, as [`take_any`] returns.
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
    // The drop marker ends here too: no chunk has that many bytes.
    let next = at.wrapping_add(header).wrapping_add(body as usize);
    if is_behind(next, at, limit) {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { *out = Span::pack(header as u32, (next as usize - at as usize) as u32) };
    Some((header, next))
}

/// Walks on while headers have `BYTES` bytes, or one if `OR_ONE`. The second result is false if the
/// next fragment does not end before `cursor.end`.
///
/// # Safety
/// `cursor` holds its invariants, and four bytes are readable at `cursor.end`.
#[inline(always)]
unsafe fn take_alike<const BYTES: usize, const OR_ONE: bool>(cursor: Cursor) -> (Cursor, bool) {
    let Cursor { mut at, end, mut out, out_end } = cursor;
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
            // The continuation bits are subtracted in advance, so that one operation for each byte
            // is left in the chain.
            let continuations: usize = (1..BYTES).map(|i| 1 << (7 * i)).sum();
            let behind = at.wrapping_sub(opaque(continuations - BYTES));
            let next =
                bytes.iter().enumerate().fold(behind, |next, (i, byte)| next.wrapping_add(byte << (7 * i)));
            (BYTES as u32, next)
        };
        if is_behind(next, at, end) {
            return (Cursor { at, out, ..cursor }, false);
        }
        // SAFETY: out < out_end.
        unsafe {
            *out = Span::pack(header, (next as usize - at as usize) as u32);
            out = out.add(1);
        }
        at = next;
    }
    (Cursor { at, out, ..cursor }, true)
}

/// Walks as far as the loops can. `headers` is the length of the first header.
///
/// # Safety
/// `cursor` holds its invariants, and the byte in front of it may be read.
#[inline(always)]
unsafe fn walk_fast<H: Header, P: Pairs>(cursor: Cursor, mut headers: usize) -> Cursor {
    let Cursor { mut at, end, mut out, out_end } = cursor;
    if (end as usize - at as usize) < H::WIDE_BYTES {
        return cursor;
    }
    // SAFETY: WIDE_BYTES are left.
    let last_wide = unsafe { end.sub(H::WIDE_BYTES) };
    // The last fragment may end with the bytes, so the loops stop in front of it. All others must
    // end where a header can be read.
    let last_out = out_end.wrapping_sub(1);
    let room = |out: *mut Span| last_out as isize - out as isize;
    // Where the sample of sizes began, and the fragment at which the one-byte loop computes its
    // mean.
    let mut sampled_from = at;
    let mut sample_at = if P::EXISTS { out.wrapping_add(SAMPLE).min(last_out) } else { last_out };
    let mut met_long = false;
    'walk: loop {
        // Any header. `headers` has the bits of all lengths of a group, `headers_before` those of
        // the group before. Here, and at the head of each loop below, at <= last_wide.
        loop {
            let headers_before = std::mem::take(&mut headers);
            if room(out) < (H::GROUP_HEADERS * size_of::<Span>()) as isize {
                break 'walk;
            }
            for _ in 0..H::GROUP_HEADERS {
                // SAFETY: at <= last_wide, a fragment is in front of it, out < out_end.
                if let Some((header, next)) = unsafe { take_any::<H>(at, last_wide, out) } {
                    headers |= header;
                    out = out.wrapping_add(1);
                    at = next;
                } else {
                    let mut cursor = Cursor { at, end: last_wide, out, out_end };
                    if std::mem::replace(&mut met_long, true) {
                        // SAFETY: the invariants hold.
                        return unsafe { H::walk_long(Cursor { end, ..cursor }) };
                    }
                    // SAFETY: the invariants hold.
                    if !unsafe { take_long(&mut cursor) } {
                        break 'walk;
                    }
                    Cursor { at, out, .. } = cursor;
                    headers = usize::MAX;
                }
            }
            if headers == 1 {
                break;
            }
            let lately = headers | headers_before;
            let cursor = Cursor { at, end: last_wide, out, out_end: last_out };
            // SAFETY: the invariants hold; WIDE_BYTES, which are at least four, are readable at
            // `last_wide`.
            let (cursor_after, fits) = unsafe {
                match lately {
                    2 | 3 if H::SLOW => take_alike::<2, true>(cursor),
                    2 => take_alike::<2, false>(cursor),
                    4 if H::SLOW => take_alike::<4, false>(cursor),
                    _ => (cursor, true),
                }
            };
            Cursor { at, out, .. } = cursor_after;
            if !fits {
                break 'walk;
            }
        }
        if room(out) <= 0 {
            break;
        }
        if sample_at != last_out && sample_at <= out {
            // Already behind the sample: a new one.
            sampled_from = at;
            sample_at = out.wrapping_add(SAMPLE).min(last_out);
        }
        let mut rare_from = out.wrapping_add(RARE_DISTANCE);
        // One-byte headers. Here out < last_out.
        loop {
            H::prefetch(at.wrapping_add(PREFETCH_BYTES));
            let behind = at.wrapping_add(opaque(1));
            // SAFETY: at <= last_wide < end.
            let body = opaque(usize::from(unsafe { *at }));
            if body < 0x80 {
                // `at` is moved before it is tested: a second copy of it would make the chain
                // longer.
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
                let is_rare = out >= rare_from;
                rare_from = out.wrapping_add(RARE_DISTANCE);
                if !is_rare {
                    break;
                }
                // SAFETY: at <= last_wide, a fragment is in front of it, out < out_end.
                let Some((_, next)) = (unsafe { take_any::<H>(at, last_wide, out) }) else { break };
                out = out.wrapping_add(1);
                at = next;
            }
            if out == sample_at {
                if out == last_out {
                    break 'walk;
                }
                sample_at = last_out;
                if (at as usize - sampled_from as usize) < SAMPLE * PAIRS_MEAN_BYTES {
                    // SAFETY: the invariants hold.
                    Cursor { at, out, .. } = unsafe { P::walk(Cursor { at, end, out, out_end }) };
                    if out >= last_out || at > last_wide {
                        break 'walk;
                    }
                }
            }
        }
    }
    // The last fragments.
    while out != out_end && at <= last_wide {
        // SAFETY: at <= last_wide, a fragment is in front of it, out < out_end.
        let Some((_, next)) = (unsafe { take_any::<H>(at, end, out) }) else { break };
        out = out.wrapping_add(1);
        at = next;
    }
    Cursor { at, end, out, out_end }
}
