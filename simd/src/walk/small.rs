//! The walk over a small chunk of ordinary fragments, into 16 bits each.
//!
//! Most chunks have a few KiB, and their fragments end where their writer says. Extents of 16 bits
//! for these save a pass over spans. What is not ordinary is refused, and walked by [`super::one`].

use super::MAX_HEADER_BYTES;
use crate::Kernels;
use crate::word::Header;

/// The most bytes of a chunk that [`walk_small`] takes: 12 bits count them.
pub const MAX_SMALL_BYTES: usize = (1 << SMALL_HEADER_SHIFT) - 1;

/// Where the length of the header begins in an entry of [`walk_small`]; below it are the bytes of
/// the whole fragment.
pub const SMALL_HEADER_SHIFT: u32 = 12;

const _: () = assert!(MAX_HEADER_BYTES < 15, "15 is free to mean something else");

/// Walks exactly as many fragments as there are `entries`, and writes the extent of each: `header
/// bytes << 12 | bytes with the header`.
///
/// Returns the bytes of all, which is above 0. Returns 0, and the entries mean nothing, if the
/// chunk is larger than [`MAX_SMALL_BYTES`], a header is longer than four bytes, a fragment but the
/// last ends in the last eight bytes, or there are not as many fragments. Some levels take longer
/// headers, and ends nearer to the last byte.
///
/// Any bytes are fine: no input makes it panic, and nothing outside `bytes` is read.
#[inline(always)]
pub fn walk_small(bytes: &[u8], entries: &mut [u16]) -> usize {
    Kernels::chosen().walk_small(bytes, entries)
}

/// The same contract, at the level of `H`.
///
/// # Safety
/// The processor has what `H` needs.
#[inline(always)]
pub(crate) unsafe fn walk<H: Header>(bytes: &[u8], entries: &mut [u16]) -> usize {
    let wide = H::BEFORE_BYTES + H::WIDE_BYTES;
    if !(wide..=MAX_SMALL_BYTES).contains(&bytes.len()) || entries.is_empty() {
        return 0;
    }
    let (start, last) = (bytes.as_ptr(), entries.len() - 1);
    // Positions are counted such that the addition overflows behind the last one at which a header
    // may be read: the carry is the test.
    let first = (bytes.len() - H::WIDE_BYTES).wrapping_neg() - 1;
    let origin = start.wrapping_sub(first);
    // SAFETY: the first `wide` bytes are there.
    let (mut body, mut header) = unsafe { H::first_header(start) };
    let mut at = first;
    for entry in &mut entries[..last] {
        // This addition cannot overflow: with 64 bits both are below 2^50, with 32 bits their sum
        // is at most 2^31 + 2^28.
        let total = header + body as usize;
        *entry = small(header, total);
        match total.checked_add(at) {
            Some(next) => at = next,
            None => return 0,
        }
        // SAFETY: a fragment is in front of it, so at least a byte, and WIDE_BYTES are behind.
        (body, header) = unsafe { H::header(origin.wrapping_add(at)) };
    }
    let total = header + body as usize;
    entries[last] = small(header, total);
    let end = (at - first) + total;
    if end > bytes.len() { 0 } else { end }
}

/// An entry. It means nothing if the fragment is too large.
#[inline(always)]
fn small(header: usize, total: usize) -> u16 {
    (header << SMALL_HEADER_SHIFT).wrapping_add(total) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, Span, Stop};

    /// A generator of random numbers, the same on each run.
    fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    }

    fn put_fragment(bytes: &mut Vec<u8>, header_bytes: usize, body_bytes: usize) {
        for i in 0..header_bytes {
            let more = if i + 1 < header_bytes { 0x80 } else { 0 };
            bytes.push((body_bytes >> (7 * i)) as u8 & 0x7f | more);
        }
        bytes.resize(bytes.len() + body_bytes, 0xee);
    }

    #[test]
    fn what_it_takes_is_what_the_walk_finds() {
        for level in Level::available() {
            let kernels = Kernels::at(level).expect("it is available");
            let (mut random, mut taken) = (numbers(7), 0);
            for round in 0..3000 {
                let mut bytes = Vec::new();
                let count = 1 + random(40) as usize;
                for _ in 0..count {
                    let body = random(if round % 2 == 0 { 128 } else { 500 }) as usize;
                    let least = if body < 128 { 1 } else { 2 };
                    put_fragment(&mut bytes, least + random(5 - least as u64) as usize, body);
                }
                bytes.resize(bytes.len() + random(20) as usize, random(256) as u8);
                if round % 5 == 0 {
                    let at = random(bytes.len() as u64) as usize;
                    bytes[at] = random(256) as u8;
                }
                if round % 7 == 0 {
                    bytes.truncate(random(bytes.len() as u64) as usize);
                }
                let (mut spans, mut entries) = (vec![Span::default(); count], vec![0; count]);
                let found = kernels.walk(&bytes, count, &mut spans);
                let visible_bytes = kernels.walk_small(&bytes, &mut entries);
                if visible_bytes != 0 {
                    taken += 1;
                    assert_eq!((found.fragments, found.stop), (count, Stop::Limit), "{level}, {round}");
                    assert_eq!(found.visible_bytes, visible_bytes, "{level}, {round}");
                    let expected =
                        spans.iter().map(|span| (span.header_bytes() << 12 | span.total_bytes()) as u16);
                    assert!(expected.eq(entries), "{level}, {round}");
                } else if found.fragments == count && bytes.len() <= MAX_SMALL_BYTES {
                    let last = spans[count - 1].total_bytes();
                    assert!(found.visible_bytes - last + 8 > bytes.len(), "{level}, {round}: refused");
                }
            }
            assert!(taken > 1000, "{level}: {taken} of 3000");
        }
    }

    #[test]
    fn what_is_not_ordinary_is_refused() {
        let mut whole = Vec::new();
        put_fragment(&mut whole, 4, 3000);
        let mut marker = vec![0xff, 0xff, 0xff, 0x7f];
        marker.resize(100, 0);
        for level in Level::available() {
            let kernels = Kernels::at(level).expect("it is available");
            let walk = |bytes: &[u8], count: usize| kernels.walk_small(bytes, &mut vec![0; count]);
            assert_eq!(walk(&whole, 1), 3004, "{level}");
            assert_eq!(walk(&whole[..3003], 1), 0, "{level}: a body that ends behind the bytes");
            assert_eq!(walk(&whole, 2), 0, "{level}: no second fragment");
            assert_eq!(walk(&whole, 0), 0, "{level}: no fragment");
            assert_eq!(walk(&[whole.as_slice(), &[0; 2000]].concat(), 1), 0, "{level}: too large");
            assert_eq!(walk(&marker, 1), 0, "{level}: the drop marker");
            assert_eq!(walk(&[0x80; 100], 1), 0, "{level}: a header without an end");
        }
    }
}
