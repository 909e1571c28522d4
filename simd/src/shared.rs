//! Chunks in memory that another process may be writing to.
//!
//! ```text
//!   there    |h|body    |h|body     |h|body |      1. each header is read once and kept
//!   target   |h|body    |h|body     |h|body |      2. all bytes are copied
//!             ^           ^           ^            3. the kept headers go over their copies
//! ```
//!
//! So the copy has the headers that were checked, whatever they have become in the source, and one
//! copy is enough. All accesses are `asm!`, for the reason that [`crate::copy`] gives.

use crate::prefetch::LinesAhead;
use crate::{Kernels, copy};
use std::marker::PhantomData;

/// Bytes that others may change at any time. It is no slice, since the compiler may assume that a
/// slice does not change.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    start: *const u8,
    len: usize,
    lent: PhantomData<&'a [u8]>,
}

/// With fewer bytes for each header a walk takes so long that all its lines arrive meanwhile.
const NEAR_MEAN_BYTES: usize = 256;

/// As many as [`SharedBytes::prefetch`] asks for.
const PREFETCHED_BYTES: usize = 4096;

impl<'a> SharedBytes<'a> {
    /// Memory that is shared with other threads or processes.
    ///
    /// # Safety
    /// `start` is readable for `len` bytes during `'a`, and there is no exclusive Rust reference to
    /// any of them during that time.
    #[inline]
    pub unsafe fn new(start: *const u8, len: usize) -> SharedBytes<'a> {
        SharedBytes { start, len, lent: PhantomData }
    }

    /// The first `len` bytes, or all if there are not as many.
    #[inline(always)]
    #[must_use]
    pub fn first(self, len: usize) -> SharedBytes<'a> {
        SharedBytes { len: self.len.min(len), ..self }
    }

    /// Prefetches the first bytes, which will be copied soon: so more lines are under way at once
    /// than a copy has loads under way. Of a longer copy the processor foresees the rest.
    #[inline(always)]
    pub fn prefetch(self) {
        LinesAhead::new(self.start).of_bytes(self.len.min(PREFETCHED_BYTES)).finish();
    }
}

impl<'a> From<&'a [u8]> for SharedBytes<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> SharedBytes<'a> {
        SharedBytes { start: bytes.as_ptr(), len: bytes.len(), lent: PhantomData }
    }
}

/// The position of a chunk's first byte. Positions are counted such that the addition overflows
/// behind the last one at which a word may be read: the carry is the test.
#[inline(always)]
pub(crate) fn first_position(len: usize) -> usize {
    (len - size_of::<u64>()).wrapping_neg() - 1
}

/// Memory for the headers of a chunk. It has room for the most that one had so far.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    pub(crate) kept: Vec<Kept>,
}

/// A header that was fetched.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Kept {
    /// Eight bytes from the header on.
    pub(crate) word: u64,
    /// Where it is, as [`first_position`] counts.
    pub(crate) position: usize,
}

impl Headers {
    /// Reads the headers of exactly as many fragments as there are `entries`, each once, and writes
    /// their extents there as [`Kernels::walk_ordinary`] does. Meanwhile it prefetches the lines
    /// `ahead`, and the chunk.
    ///
    /// Returns `None`, and the entries mean nothing, for a chunk that `walk_ordinary` refuses, if
    /// the last fragment has less than eight bytes, if all together have less than 64 or more than
    /// 65,536, or if the level has no copy of shared bytes.
    ///
    /// Any bytes are fine, also if they change during the call. Nothing outside of them is read.
    #[inline(always)]
    pub fn fetch<'h>(
        &'h mut self,
        kernels: Kernels,
        bytes: SharedBytes<'h>,
        entries: &mut [u16],
        ahead: LinesAhead,
    ) -> Option<Fetched<'h>> {
        let count = entries.len();
        // SAFETY: the bytes are readable, by the promise of `SharedBytes::new`.
        let visible_bytes = unsafe { kernels.fetch_headers(bytes.start, bytes.len, entries, self, ahead) };
        let kept = self.kept.get(..count)?;
        (visible_bytes != 0).then_some(Fetched { kernels, bytes, visible_bytes, kept })
    }

    /// Makes room for so many headers.
    #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
    #[cold]
    #[inline(never)]
    pub(crate) fn grow(&mut self, count: usize) {
        self.kept.resize(count, Kept::default());
    }
}

/// A chunk whose headers have been fetched.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'h> {
    kernels: Kernels,
    bytes: SharedBytes<'h>,
    visible_bytes: usize,
    kept: &'h [Kept],
}

impl Fetched<'_> {
    /// Bytes of all fragments together.
    #[inline(always)]
    pub fn visible_bytes(&self) -> usize {
        self.visible_bytes
    }

    /// Copies the fragments, with the headers that were fetched.
    ///
    /// # Safety
    /// `to` is writable for as many bytes as are visible, and does not overlap the chunk's.
    #[inline(always)]
    pub unsafe fn copy_to(&self, to: *mut u8) {
        let (mut left, kernels) = (self.visible_bytes, self.kernels);
        // What was walked last is still in the first-level cache.
        if left > copy::LONG_BYTES && left < self.kept.len() * NEAR_MEAN_BYTES {
            // SAFETY: as below.
            left = unsafe { copy::copy_last_blocks(kernels, self.bytes.start, to, left) };
        }
        // SAFETY: the fragments end inside of the bytes, and the target is the caller's promise.
        // Their length was checked when the headers were fetched.
        let is_done = unsafe { kernels.copy_vectors(self.bytes.start, to, left) };
        debug_assert!(is_done);
        let origin = to.wrapping_sub(first_position(self.bytes.len));
        // In this order: the bytes of a word behind its header may belong to the next header, whose
        // word overwrites them.
        let put = |Kept { word, position }: &Kept| {
            // SAFETY: the last word ends inside of the fragments.
            unsafe { origin.wrapping_add(*position).cast::<u64>().write_unaligned(*word) }
        };
        let (pairs, last) = self.kept.as_chunks::<2>();
        pairs.iter().for_each(|pair| pair.iter().for_each(put));
        last.iter().for_each(put);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    /// Fragments of these bodies, with headers of two bytes, and some bytes behind them.
    fn chunk(bodies: &[usize], behind: usize) -> Vec<u8> {
        chunk_with_headers(&bodies.iter().map(|&body| (2, body)).collect::<Vec<_>>(), behind)
    }

    /// Fragments with headers of so many bytes and such bodies, and some bytes behind them.
    fn chunk_with_headers(fragments: &[(usize, usize)], behind: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(header_bytes, body_bytes) in fragments {
            for i in 0..header_bytes {
                let more = if i + 1 < header_bytes { 0x80 } else { 0 };
                bytes.push((body_bytes >> (7 * i)) as u8 & 0x7f | more);
            }
            // No byte of the copy is right at another place.
            bytes.extend((bytes.len()..).map(|at| (at % 251) as u8).take(body_bytes));
        }
        bytes.resize(bytes.len() + behind, 0x44);
        bytes
    }

    fn nothing() -> LinesAhead {
        LinesAhead::new(std::ptr::null())
    }

    fn has_any(level: Level) -> bool {
        matches!(level, Level::Avx2 | Level::Avx512)
    }

    #[test]
    fn it_takes_what_the_ordinary_walk_takes() {
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for level in Level::available() {
            let kernels = Kernels::at(level).expect("it is available");
            let (mut headers, mut taken) = (Headers::default(), 0);
            for round in 0..6000 {
                // From one line of the source a header to more than are asked for beside it.
                let longest = [120, 200, 300, 400, 1000][next(5) as usize];
                let long_headers = [0, 0, 30, 2][next(4) as usize];
                let fragments: Vec<(usize, usize)> = (0..1 + next(60))
                    .map(|_| {
                        let body_bytes = next(longest) as usize;
                        let header_bytes = if body_bytes < 128 { 1 } else { 2 };
                        let is_long = long_headers != 0 && next(long_headers) == 0;
                        (header_bytes + if is_long { next(4) as usize } else { 0 }, body_bytes)
                    })
                    .collect();
                let mut bytes = chunk_with_headers(&fragments, next(20) as usize);
                if round % 3 == 0 {
                    let at = next(bytes.len() as u64) as usize;
                    bytes[at] = next(256) as u8;
                }
                let (mut expected, mut entries) = (vec![0; fragments.len()], vec![0; fragments.len()]);
                let visible_bytes = kernels.walk_ordinary(&bytes, &mut expected, nothing());
                let fetched = headers.fetch(kernels, bytes.as_slice().into(), &mut entries, nothing());
                let Some(fetched) = fetched else {
                    let last = expected.last().map_or(0, |entry| entry & 0xfff);
                    assert!(!has_any(level) || visible_bytes < 64 || last < 8, "{level}, {round}");
                    continue;
                };
                taken += 1;
                assert!(has_any(level) && fetched.visible_bytes() == visible_bytes, "{level}, {round}");
                assert_eq!(entries, expected, "{level}, {round}");
                let mut copy = vec![0xee; visible_bytes + 64];
                // SAFETY: there is room, and nobody else knows of it.
                unsafe { fetched.copy_to(copy.as_mut_ptr()) };
                assert!(copy[..visible_bytes] == bytes[..visible_bytes], "{level}, {round}");
                assert!(
                    copy[visible_bytes..].iter().all(|&byte| byte == 0xee),
                    "{level}, {round}: behind it"
                );
            }
            assert!(taken > 3000 || !has_any(level), "{level}: {taken} of 6000");
        }
    }

    #[test]
    fn headers_that_change_meanwhile_are_those_that_were_fetched() {
        // The shortest fragments lie in the word of the header before.
        for bodies in [&[100, 50, 60][..], &[0, 0, 1, 2, 0, 70], &[5, 4, 3, 2, 1, 0, 62]] {
            let before = chunk(bodies, 9);
            let visible_bytes = before.len() - 9;
            for level in Level::available().filter(|level| has_any(*level)) {
                let kernels = Kernels::at(level).expect("it is available");
                let (mut headers, mut entries) = (Headers::default(), vec![0; bodies.len()]);
                let mut there = before.clone();
                let start = there.as_mut_ptr();
                // SAFETY: the memory is used by this pointer alone until all is done.
                let bytes = unsafe { SharedBytes::new(start, there.len()) };
                let fetched =
                    headers.fetch(kernels, bytes, &mut entries, nothing()).expect("an ordinary chunk");
                // SAFETY: as above.
                unsafe { start.write_bytes(0xff, before.len()) };
                let mut copy = vec![0; visible_bytes];
                // SAFETY: there is room, and nobody else knows of it.
                unsafe { fetched.copy_to(copy.as_mut_ptr()) };
                let mut again = vec![0; bodies.len()];
                assert_eq!(kernels.walk_ordinary(&copy, &mut again, nothing()), visible_bytes, "{level}");
                assert_eq!(again, entries, "{level}");
                assert_eq!(copy.last(), Some(&0xff), "{level}: bodies may be of any moment");
            }
        }
    }

    #[test]
    fn long_chunks_are_copied_whole() {
        for level in Level::available().filter(|level| has_any(*level)) {
            let kernels = Kernels::at(level).expect("it is available");
            for (body_bytes, count) in
                [(130, 124), (130, 125), (130, 496), (250, 100), (60, 1000), (1000, 30)]
            {
                let bytes = chunk(&vec![body_bytes; count], 0);
                let (mut headers, mut entries) = (Headers::default(), vec![0; count]);
                let fetched = headers.fetch(kernels, bytes.as_slice().into(), &mut entries, nothing());
                let mut copy = vec![0; bytes.len()];
                // SAFETY: there is room, and nobody else knows of it.
                unsafe { fetched.expect("an ordinary chunk").copy_to(copy.as_mut_ptr()) };
                assert!(copy == bytes, "{level}, {count} of {body_bytes}");
            }
        }
    }

    #[test]
    fn no_byte_behind_the_first_ones_counts() {
        let bytes = chunk(&[100, 50, 60], 0);
        let (mut headers, mut entries) = (Headers::default(), [0; 3]);
        for level in Level::available().filter(|level| has_any(*level)) {
            let kernels = Kernels::at(level).expect("it is available");
            for (len, is_taken) in [(bytes.len() + 1, true), (bytes.len(), true), (bytes.len() - 1, false)] {
                let first = SharedBytes::from(bytes.as_slice()).first(len);
                assert_eq!(
                    headers.fetch(kernels, first, &mut entries, nothing()).is_some(),
                    is_taken,
                    "{level} {len}"
                );
            }
        }
    }

    #[test]
    fn chunks_that_are_none_for_it_are_left_to_others() {
        for level in Level::available() {
            let kernels = Kernels::at(level).expect("it is available");
            let is_taken = |bytes: &[u8], count: usize| {
                Headers::default().fetch(kernels, bytes.into(), &mut vec![0; count], nothing()).is_some()
            };
            let whole = chunk(&[100, 20], 0);
            assert_eq!(is_taken(&whole, 2), has_any(level));
            assert!(!is_taken(&whole, 3) && !is_taken(&whole, 0) && !is_taken(&whole[..60], 1), "{level}");
            assert!(!is_taken(&whole[..whole.len() - 1], 2), "{level}: a body that ends behind the bytes");
            assert!(!is_taken(&chunk(&[100, 5], 50), 2), "{level}: a last one of seven bytes");
            assert!(!is_taken(&chunk(&[20, 20], 50), 2), "{level}: too few bytes to copy");
            assert_eq!(is_taken(&chunk(&[20; 2000], 50), 2000), has_any(level), "{level}: many fragments");
            assert!(!is_taken(&[0x80; 100], 1), "{level}: a header without an end");
            assert_eq!(is_taken(&chunk(&[4093; 16], 0), 16), has_any(level), "{level}: a large one");
            assert!(!is_taken(&chunk(&[4093; 16], 51), 16), "{level}: one of more than 65,536 bytes");
            assert!(!is_taken(&chunk(&[4094, 80], 0), 2), "{level}: too large a fragment");
            assert!(!is_taken(&chunk(&[80, 4094], 0), 2), "{level}: too large a last one");
            for high_bit in [0x20, 0x40] {
                let mut bytes = chunk(&[130; 40], 0);
                assert_eq!(is_taken(&bytes, 40), has_any(level));
                bytes[10 * 132 + 1] |= high_bit;
                assert!(!is_taken(&bytes, 40), "{level}: one of so many is too large");
            }
        }
    }
}
