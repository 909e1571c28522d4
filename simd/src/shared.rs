//! Chunks in memory that another process may be writing to.
//!
//! ```text
//!   there    |h|body    |h|body     |h|body |      1. each header is read once and kept
//!   target   |h|body    |h|body     |h|body |      2. all bytes are copied
//!             ^           ^           ^            3. the kept headers go over their copies
//! ```
//!
//! So the copy has the headers that were checked, whatever they have become in the source, and one
//! copy is enough. Chunks with many headers are copied to private memory, walked there, and copied
//! again: that takes less time than a fetch of each header. All accesses are `asm!`, for the reason
//! that [`crate::copy`] gives.

use crate::prefetch::LinesAhead;
use crate::{Kernels, copy, walk};
use std::marker::PhantomData;

/// Bytes that others may change at any time. It is no slice, since the compiler may assume that a
/// slice does not change.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    start: *const u8,
    len: usize,
    lent: PhantomData<&'a [u8]>,
}

/// Shorter chunks with many headers are copied before they are walked.
const LEAST_DENSE_BYTES: usize = 1024;

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

/// Memory for the headers of a chunk, and for all of one that has many. It has room for the most
/// that one had so far.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    pub(crate) kept: Vec<Kept>,
    copy: Vec<u8>,
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
    /// Whether [`fetch`](Self::fetch) is for a chunk with so many fragments: of others it says no.
    #[inline(always)]
    pub fn can_fetch(kernels: Kernels, fragments: usize, chunk_bytes: usize) -> bool {
        !walk::is_dense(fragments, chunk_bytes)
            || chunk_bytes >= LEAST_DENSE_BYTES && kernels.copies_beside_walk()
    }

    /// Reads the headers of exactly as many fragments as there are `entries`, each once, and writes
    /// their extents there as [`Kernels::walk_ordinary`] does. Meanwhile it prefetches the lines
    /// `ahead`, and the chunk.
    ///
    /// Returns `None`, and the entries mean nothing, for a chunk that `walk_ordinary` refuses, if
    /// all together have less than 64 or more than 65,536, or if the level has no copy of shared
    /// bytes. Nor is a chunk taken that is not [dense](walk::is_dense) if its last fragment has less
    /// than eight bytes, nor a dense one of less than 1,024.
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
        if !Self::can_fetch(kernels, count, bytes.len) {
            return None;
        }
        if walk::is_dense(count, bytes.len) {
            return self.copy(kernels, bytes, entries, ahead);
        }
        // SAFETY: the bytes are readable, by the promise of `SharedBytes::new`.
        let visible_bytes = unsafe { kernels.fetch_headers(bytes.start, bytes.len, entries, self, ahead) };
        let kept = self.kept.get(..count)?;
        (visible_bytes != 0).then_some(Fetched { kernels, bytes, visible_bytes, kept })
    }

    /// The same for a chunk with many headers: what was fetched is a private copy of it.
    #[inline(always)]
    fn copy<'h>(
        &'h mut self,
        kernels: Kernels,
        bytes: SharedBytes<'h>,
        entries: &mut [u16],
        ahead: LinesAhead,
    ) -> Option<Fetched<'h>> {
        if self.copy.len() < bytes.len {
            self.grow_copy(bytes.len);
        }
        let copy = &mut self.copy[..bytes.len];
        // SAFETY: the bytes are readable, by the promise of `SharedBytes::new`, and nobody else
        // knows of the copy.
        let visible_bytes = unsafe { kernels.copy_and_walk(bytes.start, copy, entries, ahead) };
        let bytes = SharedBytes::from(&*copy);
        (visible_bytes != 0).then_some(Fetched { kernels, bytes, visible_bytes, kept: &[] })
    }

    #[cold]
    #[inline(never)]
    fn grow_copy(&mut self, len: usize) {
        self.copy.resize(len, 0);
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
        let (from, len, kernels, fragments) =
            (self.bytes.start, self.visible_bytes, self.kernels, self.kept.len());
        // SAFETY: the fragments end inside of the bytes, and the target is the caller's promise.
        // Their length was checked when the headers were fetched.
        let is_done = unsafe {
            // All lines of a private copy, which keeps no headers, are near.
            if len >= copy::LONG_BYTES && fragments != 0 {
                copy::copy_long(kernels, from, to, len, fragments)
            } else {
                kernels.copy_vectors(from, to, len)
            }
        };
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
mod tests;
