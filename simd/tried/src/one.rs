//! Walks over one chunk. All of them hold, for the fragments found so far: the next header is at `at`, and eight bytes are readable there,
//! or the loop ends; what is left, and whatever is unusual, is walked naively.

use crate::word::{Groups, HIGH, load, varint};
use crate::{Tried, WalkOne, finish};
use std::hint::select_unpredictable;
use watershed_simd::bench::span;
use watershed_simd::walk::{DROP_MARKER, MAX_BYTES, Span, Walk};

const WORD_BYTES: usize = 8;

/// All of them, for a processor that has the instructions of `G`.
pub(crate) fn all<G: Groups>() -> Vec<Tried<WalkOne>> {
    vec![
        Tried { name: "no_branches", run: no_branches::<G> },
        Tried { name: "four_tests", run: four_tests::<G> },
        Tried { name: "predicted", run: predicted::<G> },
        Tried { name: "conditional_moves", run: conditional_moves::<G> },
    ]
}

/// Walks fragment by fragment: `header` gives the body's and the header's length at a place where a word is readable, `None` for what is
/// unusual.
#[inline(always)]
fn walk<G: Groups>(
    bytes: &[u8],
    limit: usize,
    spans: &mut [Span],
    header: impl Fn(*const u8) -> Option<(u64, usize)>,
) -> Walk {
    let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
    let limit = limit.min(spans.len());
    let Some(last) = bytes.len().checked_sub(WORD_BYTES) else { return finish(bytes, limit, spans, 0, 0) };
    let (start, out) = (bytes.as_ptr(), spans.as_mut_ptr());
    let fast = move || {
        let (mut at, mut fragments) = (0, 0);
        while fragments < limit {
            // SAFETY: at <= last, here and below.
            let Some((body, header)) = header(unsafe { start.add(at) }) else { break };
            let next = at.wrapping_add(header).wrapping_add(body as usize);
            // Nothing unusual ends there: neither the drop marker, nor what does not fit. No body comes around, it is below 2^56.
            if next > last {
                // The last fragment may end with the bytes.
                if next <= last + WORD_BYTES {
                    // SAFETY: fragments < limit <= spans.len().
                    unsafe { *out.add(fragments) = span(header, next - at) };
                    (fragments, at) = (fragments + 1, next);
                }
                break;
            }
            // SAFETY: as above.
            unsafe { *out.add(fragments) = span(header, next - at) };
            fragments += 1;
            at = next;
        }
        (fragments, at)
    };
    // SAFETY: `all` is called where the processor has the instructions.
    let (fragments, at) = unsafe { G::enabled(fast) };
    finish(bytes, limit, spans, fragments, at)
}

/// Any header from one word, with the one test that its fragment ends where another can be read.
fn no_branches<G: Groups>(bytes: &[u8], limit: usize, spans: &mut [Span]) -> Walk {
    walk::<G>(bytes, limit, spans, |at| {
        // SAFETY: a word is readable; the processor has the instructions.
        unsafe {
            let word = load(at);
            let stops = !word & HIGH;
            // No stop: the value is above any chunk.
            let value = G::together(word, stops.wrapping_sub(1)) | u64::from(stops == 0) << 40;
            Some((value, (stops.trailing_zeros() as usize >> 3) + 1))
        }
    })
}

/// The same with the tests that the naive walk makes, each by itself.
fn four_tests<G: Groups>(bytes: &[u8], limit: usize, spans: &mut [Span]) -> Walk {
    let (start, len) = (bytes.as_ptr() as usize, bytes.len());
    walk::<G>(bytes, limit, spans, |at| {
        // SAFETY: as above.
        let (body, header) = unsafe { varint::<G>(load(at)) }?;
        if body == DROP_MARKER || body > (len - (at as usize - start) - header) as u64 {
            return None;
        }
        Some((body, header))
    })
}

/// One- and two-byte headers by predicted branches, others from a word.
fn predicted<G: Groups>(bytes: &[u8], limit: usize, spans: &mut [Span]) -> Walk {
    walk::<G>(bytes, limit, spans, |at| {
        // SAFETY: as above.
        unsafe {
            let (first, second) = (u64::from(*at), u64::from(*at.add(1)));
            if first < 0x80 {
                Some((first, 1))
            } else if second < 0x80 {
                Some((first & 0x7f | second << 7, 2))
            } else {
                varint::<G>(load(at))
            }
        }
    })
}

/// Headers of one, two and four bytes are decoded at once and one of the three is taken by conditional moves; others from a word.
fn conditional_moves<G: Groups>(bytes: &[u8], limit: usize, spans: &mut [Span]) -> Walk {
    walk::<G>(bytes, limit, spans, |at| {
        // SAFETY: as above.
        unsafe {
            let word = load(at);
            if word & 0x80_8080 == 0x80_8080 && word & 0x8000_0000 != 0 || word & 0x80_8080 == 0x8080 {
                return varint::<G>(word);
            }
            let one = word & 0x7f;
            let two = one | word >> 1 & 0x3f80;
            let four = two | word >> 2 & 0x1f_c000 | word >> 3 & 0xfe0_0000;
            let longer = select_unpredictable(word & 0x8000 == 0, (two, 2), (four, 4));
            Some(select_unpredictable(word & 0x80 == 0, (one, 1), longer))
        }
    })
}
