//! The walk over an ordinary chunk, into 16 bits a fragment.
//!
//! ```text
//!   dense    |05|..|21|....|1c|...|...       one-byte headers, in groups of 8: a load and an
//!             group of 8        group        addition each, one test of where they end
//!   sparse   |c8 01|..........|ff 02|....    any header from one load, without a branch
//! ```
//!
//! Fragments of ordinary chunks end where their writer says, so that 16 bits for each are enough.
//! What is not ordinary is refused, and walked by [`super::one`].
//!
//! The processor waits for header after header meanwhile. So it asks for lines that will be written
//! soon at the same time, some with each group ([`LinesAhead`]).

use super::MAX_HEADER_BYTES;
use crate::Kernels;
use crate::prefetch::LinesAhead;
use crate::word::{Header, opaque};

/// Where the length of the header begins in an entry of [`walk_ordinary`]; below it are the bytes
/// of the whole fragment.
pub const ENTRY_HEADER_SHIFT: u32 = 12;

/// The most bytes of a fragment that an entry counts.
pub const MAX_ENTRY_BYTES: usize = (1 << ENTRY_HEADER_SHIFT) - 1;

const _: () = assert!(MAX_HEADER_BYTES < 15, "15 is free to mean something else");

/// With fewer bytes for each fragment most headers take one byte, and a private copy of a chunk
/// takes less time than a fetch of its headers ([`crate::shared`]).
const DENSE_MEAN_BYTES: usize = 128;

/// Headers in a group, and the most bytes that their fragments take.
const GROUP: usize = 8;
const GROUP_BYTES: usize = GROUP * 128;

/// Whether a chunk has so many headers that it is better copied before they are walked.
#[inline(always)]
pub fn is_dense(fragments: usize, chunk_bytes: usize) -> bool {
    fragments * DENSE_MEAN_BYTES > chunk_bytes
}

/// Walks exactly as many fragments as there are `entries`, and writes the extent of each: `header
/// bytes << 12 | bytes with the header`. Meanwhile it prefetches the lines `ahead`.
///
/// Returns the bytes of all, which is above 0. Returns 0, and the entries mean nothing, if a
/// fragment is larger than [`MAX_ENTRY_BYTES`], a header is longer than four bytes, a header begins
/// in the last eight bytes, or there are not as many fragments. Some levels take longer headers,
/// and headers nearer to the last byte.
///
/// Any bytes are fine: no input makes it panic, and nothing outside `bytes` is read.
#[inline(always)]
pub fn walk_ordinary(bytes: &[u8], entries: &mut [u16], ahead: LinesAhead) -> usize {
    Kernels::chosen().walk_ordinary(bytes, entries, ahead)
}

/// The same contract, at the level of `H`.
///
/// # Safety
/// The processor has what `H` needs.
#[inline(always)]
pub(crate) unsafe fn walk<H: Header>(bytes: &[u8], entries: &mut [u16], ahead: LinesAhead) -> usize {
    let wide = H::BEFORE_BYTES + H::WIDE_BYTES;
    let (Some(last), Some(last_wide)) = (entries.len().checked_sub(1), bytes.len().checked_sub(wide)) else {
        return 0;
    };
    let mut walk = Ordinary { start: bytes.as_ptr(), at: 0, last_wide };
    let ahead = ahead.of_bytes(bytes.len());
    // SAFETY: the bytes are readable as `Ordinary` says, and the processor has the level.
    let before_last = unsafe {
        if is_dense(entries.len(), bytes.len()) {
            let last_group = bytes.len().saturating_sub(GROUP_BYTES);
            walk.take_dense::<H>(&mut entries[..last], last_group, ahead)
        } else {
            walk.take_sparse::<H>(&mut entries[..last], ahead)
        }
    };
    // SAFETY: as above.
    let is_walked = before_last.is_some() && unsafe { walk.take::<H>(&mut entries[last]) }.is_some();
    if is_walked && walk.at <= bytes.len() { walk.at } else { 0 }
}

/// A walk that has come to byte `at`, which may lie behind the bytes. `start` is readable up to
/// `last_wide` and what a header's decode reads from there.
struct Ordinary {
    start: *const u8,
    at: usize,
    last_wide: usize,
}

impl Ordinary {
    /// Takes a fragment with any header. None if it is not ordinary, or too near to the end to be
    /// decoded.
    ///
    /// # Safety
    /// The processor has what `H` needs, and the bytes are readable.
    #[inline(always)]
    unsafe fn take<H: Header>(&mut self, entry: &mut u16) -> Option<()> {
        if self.at > self.last_wide {
            return None;
        }
        // SAFETY: at <= last_wide.
        let (body, header) = unsafe { H::first_header(self.start.add(self.at)) };
        // It cannot overflow: a body is below 2^50, or 2^28 where there are only 32 bits.
        let total = header + body as usize;
        if total > MAX_ENTRY_BYTES {
            return None;
        }
        *entry = ((header << ENTRY_HEADER_SHIFT) + total) as u16;
        self.at += total;
        Some(())
    }

    /// Takes a fragment for each entry, which may have any header.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    #[inline(always)]
    unsafe fn take_sparse<H: Header>(&mut self, entries: &mut [u16], mut ahead: LinesAhead) -> Option<()> {
        let lines = ahead.lines_a_step(entries.len());
        for entry in entries {
            ahead.ask(lines);
            // SAFETY: the caller's promise.
            unsafe { self.take::<H>(entry)? }
        }
        ahead.finish();
        Some(())
    }

    /// Takes a fragment for each entry, most with a header of one byte. Groups may begin before
    /// `last_group`, which is [`GROUP_BYTES`] before the end of the bytes.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    #[inline(always)]
    unsafe fn take_dense<H: Header>(
        &mut self,
        entries: &mut [u16],
        last_group: usize,
        mut ahead: LinesAhead,
    ) -> Option<()> {
        let lines = ahead.lines_a_step(entries.len() / GROUP);
        let mut i = 0;
        while self.at < last_group
            && let Some(group) = entries[i..].first_chunk_mut::<GROUP>()
        {
            ahead.ask(lines);
            // SAFETY: at < last_group; the rest is the caller's promise.
            match unsafe { self.take_group(group) } {
                GROUP => i += GROUP,
                taken => {
                    // SAFETY: the caller's promise.
                    unsafe { self.take::<H>(&mut group[taken])? }
                    i += taken + 1;
                }
            }
        }
        ahead.finish();
        for entry in &mut entries[i..] {
            // SAFETY: at <= last_wide.
            let body = if self.at > self.last_wide { 0x80 } else { unsafe { self.body_at(self.at) } };
            if body < 0x80 {
                *entry = one_byte(body);
                self.at += body + 1;
            } else {
                // SAFETY: the caller's promise.
                unsafe { self.take::<H>(entry)? }
            }
        }
        Some(())
    }

    /// Takes fragments with headers of one byte. How many; fewer than eight in front of a longer
    /// header.
    ///
    /// # Safety
    /// [`GROUP_BYTES`] are readable from `at` on.
    #[inline(always)]
    unsafe fn take_group(&mut self, group: &mut [u16; GROUP]) -> usize {
        // Without the headers, whose bytes are constants in the addresses: so the chain from header
        // to header has one addition.
        let mut bodies = self.at;
        for (taken, entry) in group.iter_mut().enumerate() {
            // SAFETY: so many fragments of at most 128 bytes are in front of it.
            let body = unsafe { self.body_at(bodies + taken) };
            if body >= 0x80 {
                self.at = bodies + taken;
                return taken;
            }
            *entry = one_byte(body);
            bodies += body;
        }
        self.at = bodies + GROUP;
        GROUP
    }

    /// The byte at an offset.
    ///
    /// # Safety
    /// It is readable.
    #[inline(always)]
    unsafe fn body_at(&self, at: usize) -> usize {
        // SAFETY: the caller's promise.
        opaque(usize::from(unsafe { *self.start.add(at) }))
    }
}

/// The entry of a header of one byte.
#[inline(always)]
fn one_byte(body: usize) -> u16 {
    (body + (1 << ENTRY_HEADER_SHIFT) + 1) as u16
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

    fn walk(kernels: Kernels, bytes: &[u8], count: usize) -> (usize, Vec<u16>) {
        let mut entries = vec![0; count];
        (kernels.walk_ordinary(bytes, &mut entries, LinesAhead::new(bytes.as_ptr())), entries)
    }

    /// Compares with the walk that takes everything. Whether the bytes were taken.
    fn check(kernels: Kernels, bytes: &[u8], count: usize, what: &str) -> bool {
        let mut spans = vec![Span::default(); count];
        let found = kernels.walk(bytes, count, &mut spans);
        let (visible_bytes, entries) = walk(kernels, bytes, count);
        let (level, found_spans) = (kernels.level(), &spans[..found.fragments]);
        if visible_bytes != 0 {
            assert_eq!((found.fragments, found.stop), (count, Stop::Limit), "{level}, {what}");
            assert_eq!(found.visible_bytes, visible_bytes, "{level}, {what}");
            let expected = spans.iter().map(|span| (span.header_bytes() << 12 | span.total_bytes()) as u16);
            assert!(expected.eq(entries), "{level}, {what}");
        } else if found.fragments == count && count != 0 {
            let last = spans[count - 1].total_bytes();
            let is_special = |span: &Span| span.total_bytes() > MAX_ENTRY_BYTES || span.header_bytes() > 4;
            let is_near_the_end = found.visible_bytes - last + 8 > bytes.len();
            assert!(is_near_the_end || found_spans.iter().any(is_special), "{level}, {what}: refused");
        }
        visible_bytes != 0
    }

    #[test]
    fn what_it_takes_is_what_the_walk_finds() {
        for level in Level::available() {
            let kernels = Kernels::at(level).expect("it is available");
            let (mut random, mut taken) = (numbers(7), 0);
            for round in 0..4000 {
                let mut bytes = Vec::new();
                let count = 1 + random(if round % 10 == 0 { 1000 } else { 120 }) as usize;
                let longest = [12, 64, 128, 500][random(4) as usize];
                let long_headers = [0, 0, 20, 2][random(4) as usize];
                for _ in 0..count {
                    let body = random(longest) as usize;
                    let least = if body < 128 { 1 } else { 2 };
                    let is_long = long_headers != 0 && random(long_headers) == 0;
                    let header = if is_long { least + random(5 - least as u64) as usize } else { least };
                    put_fragment(&mut bytes, header, body);
                }
                bytes.resize(bytes.len() + random(20) as usize, random(256) as u8);
                if round % 5 == 0 {
                    let at = random(bytes.len() as u64) as usize;
                    bytes[at] = random(256) as u8;
                }
                if round % 7 == 0 {
                    bytes.truncate(random(bytes.len() as u64) as usize);
                }
                taken += u32::from(check(kernels, &bytes, count, &format!("round {round}")));
            }
            assert!(taken > 2000, "{level}: {taken} of 4000");
        }
    }

    /// Headers of two, three and four bytes, and sizes that are none, at every place of a group,
    /// the first, one in the middle and the last of a chunk.
    #[test]
    fn every_place_of_a_group() {
        const COUNT: usize = 6 * GROUP + 3;
        for kernels in Level::available().filter_map(Kernels::at) {
            for place in 0..COUNT {
                for header in 1..=5 {
                    for body in [0, 1, 60, 127, 128, 300, 4091, 4094, 4096] {
                        if header == 1 && body > 127 {
                            continue;
                        }
                        let mut bytes = Vec::new();
                        for i in 0..COUNT {
                            let (header, body) = if i == place { (header, body) } else { (1, i * 7 % 90) };
                            put_fragment(&mut bytes, header, body);
                        }
                        let what = format!("place {place}, header {header}, body {body}");
                        let is_ordinary = header <= 4 && header + body <= MAX_ENTRY_BYTES;
                        let taken = check(kernels, &bytes, COUNT, &what);
                        assert!(taken || !is_ordinary || place + 1 == COUNT, "{what}");
                        assert!(!taken || header + body <= MAX_ENTRY_BYTES, "{what}");
                        // The same with the header as the last byte, and with one that never ends.
                        bytes.truncate(bytes.len() - (COUNT - 1 - place) / 2);
                        check(kernels, &bytes, COUNT, &what);
                        let at = bytes.len() * place / COUNT;
                        bytes[at..].iter_mut().take(9).for_each(|byte| *byte = 0x80);
                        check(kernels, &bytes, COUNT, &what);
                    }
                }
            }
        }
    }

    #[test]
    fn dense_chunks_of_every_length() {
        for kernels in Level::available().filter_map(Kernels::at) {
            // Empty fragments, one byte, and the longest of one byte, up to the largest chunk.
            for (body, counts) in [(0, 1100), (1, 1100), (27, 1100), (126, 520), (127, 511)] {
                let mut bytes = Vec::new();
                for count in 1..=counts {
                    put_fragment(&mut bytes, 1, body);
                    if count > 200 && count % 37 != 0 {
                        continue;
                    }
                    for behind in [0, 1, 7, 8, 40, 2000] {
                        let mut longer = bytes.clone();
                        longer.resize(bytes.len() + behind, 0x85);
                        let taken = check(kernels, &longer, count, &format!("{count} of {body}"));
                        assert!(taken || behind + body < 8, "{count} of {body}, {behind} behind");
                        assert!(walk(kernels, &longer[..bytes.len() - 1], count).0 == 0);
                    }
                }
            }
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
            let walk = |bytes: &[u8], count: usize| walk(kernels, bytes, count).0;
            assert_eq!(walk(&whole, 1), 3004, "{level}");
            assert_eq!(walk(&[whole.as_slice(), &[0; 2000]].concat(), 1), 3004, "{level}: bytes behind it");
            assert_eq!(walk(&whole[..3003], 1), 0, "{level}: a body that ends behind the bytes");
            assert_eq!(walk(&whole, 2), 0, "{level}: no second fragment");
            assert_eq!(walk(&whole, 0), 0, "{level}: no fragment");
            assert_eq!(walk(&marker, 1), 0, "{level}: the drop marker");
            assert_eq!(walk(&[0x80; 100], 1), 0, "{level}: a header without an end");
            assert_eq!(walk(&[0x80; 2000], 200), 0, "{level}: headers without an end");
        }
    }
}
