//! The producer's side: acquire a chunk, write it, complete it.

use thiserror::Error;

use crate::header::{ChunkFlags, ChunkHeader};
use crate::layout::{CHUNK_HEADER_BYTES, ChunkState, PageLayout, PageSnapshot};
use crate::smb::{Place, Smb, TransitionError};
use crate::sync::Ordering;

/// Why a chunk was not acquired.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AcquireError {
    /// None of the pages that were tried is free, nor a chunk in them: the reader is behind.
    #[error("no chunk is free")]
    Exhausted,
}

/// A chunk that is being written. It belongs to one writer until it is passed on with
/// [`Smb::complete`] or given up with [`Smb::abandon`].
///
/// It is a token without a reference to the memory. It must be used with the [`Smb`] that returned
/// it: another one would write into some other chunk, though never outside its memory.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a chunk that is dropped stays BeingWritten and is lost to its page"]
pub struct WriteChunk {
    pub(crate) place: Place,
}

impl WriteChunk {
    /// Index of the page.
    #[must_use]
    pub fn page(&self) -> usize {
        self.place.page()
    }

    /// Index of the chunk in its page, 0..=13.
    #[must_use]
    pub fn index(&self) -> usize {
        self.place.index()
    }

    /// Bytes of payload that the chunk holds.
    #[inline]
    #[must_use]
    pub fn payload_size_bytes(&self) -> usize {
        self.place.payload_size_bytes()
    }
}

impl Smb {
    /// Acquires a free chunk: tries every page once, from page `first_page` modulo the number of
    /// pages on. A free page is partitioned with `layout`; of a partitioned page any free chunk is
    /// taken, whatever its layout. The header is still zero: [`Smb::write_header`] comes next.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Exhausted`] if no page had a free chunk when it was tried.
    pub fn try_acquire(&self, first_page: usize, layout: PageLayout) -> Result<WriteChunk, AcquireError> {
        self.try_acquire_within(first_page, self.num_pages(), layout)
    }

    /// As [`Smb::try_acquire`], but tries only the first `num_pages_max` pages from `first_page`
    /// on.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Exhausted`] if none of them had a free chunk when it was tried.
    pub fn try_acquire_within(
        &self,
        first_page: usize,
        num_pages_max: usize,
        layout: PageLayout,
    ) -> Result<WriteChunk, AcquireError> {
        let num_pages = self.num_pages();
        let first_page = first_page % num_pages;
        (first_page..num_pages)
            .chain(0..first_page)
            .take(num_pages_max)
            .find_map(|page| self.try_acquire_in(page, layout))
            .ok_or(AcquireError::Exhausted)
    }

    fn try_acquire_in(&self, page: usize, layout: PageLayout) -> Option<WriteChunk> {
        // One exchange partitions the page and takes the first chunk. The ABI also allows a page
        // that is partitioned and all free; it is accepted above.
        let taken = std::cell::Cell::new(0);
        let choose = |now: PageSnapshot| {
            let now = if now.is_free() { PageSnapshot::partitioned(layout) } else { now };
            let index = now.first_free().ok_or(TransitionError::NoSuchChunk)?;
            taken.set(index);
            Ok(now.with_state(index, ChunkState::BeingWritten))
        };
        // Acquire: pairs with the Release of `release_chunk`, which the reader did after its last
        // access to the chunk. Weaker, a reader that still copies the previous contents could see
        // our first bytes. The exchanges of neighbours in between are read-modify-writes and
        // continue the release sequence.
        let now = self.update(page, Ordering::Acquire, choose).ok()?;
        Some(WriteChunk { place: self.place(page, taken.get(), now.layout()) })
    }

    /// Writes the header of a chunk that was just acquired.
    ///
    /// # Panics
    ///
    /// If `header.fragments` is above [`crate::MAX_FRAGMENTS_PER_CHUNK`].
    pub fn write_header(&self, chunk: &WriteChunk, header: ChunkHeader) {
        let words = self.region.header(chunk.place.offset_bytes());
        words.chunk_id.store(header.chunk_id, Ordering::Relaxed);
        words.writer_id.store(header.writer_id, Ordering::Relaxed);
        // Release: publishes the two ids to a scrape that loads the count with Acquire and sees it
        // above zero.
        words.fragments.store(ChunkHeader::pack_fragments(header.fragments, header.flags), Ordering::Release);
    }

    /// Sets the count of started fragments and the flags.
    ///
    /// The bytes of all fragments but the last of `fragments` must have been written: from here on
    /// a scrape may read them.
    ///
    /// # Panics
    ///
    /// If `fragments` is above [`crate::MAX_FRAGMENTS_PER_CHUNK`].
    #[inline]
    pub fn set_fragments(&self, chunk: &WriteChunk, fragments: u16, flags: ChunkFlags) {
        let words = self.region.header(chunk.place.offset_bytes());
        // Release: publishes the payload of the finished fragments to a scrape's Acquire load of
        // the count. Weaker, a scrape could copy bytes from before they were written.
        words.fragments.store(ChunkHeader::pack_fragments(fragments, flags), Ordering::Release);
    }

    /// Writes `bytes` into the payload at `offset_bytes` from its start.
    ///
    /// # Panics
    ///
    /// If the range does not lie in the payload.
    #[inline]
    pub fn write_payload(&self, chunk: &WriteChunk, offset_bytes: usize, bytes: &[u8]) {
        let place = &chunk.place;
        assert!(
            offset_bytes.checked_add(bytes.len()).is_some_and(|end| end <= place.payload_size_bytes()),
            "{} bytes at {offset_bytes} do not fit a payload of {} bytes",
            bytes.len(),
            place.payload_size_bytes()
        );
        self.region.copy_in(place.offset_bytes() + CHUNK_HEADER_BYTES + offset_bytes, bytes);
    }

    /// Clears the flag [`ChunkFlags::NEEDS_PATCHING`] of a chunk that is still being written, after
    /// its last patch was written into it.
    pub fn clear_needs_patching(&self, chunk: &WriteChunk) {
        let words = self.region.header(chunk.place.offset_bytes());
        // Relaxed load: only the chunk's owner stores this word, and the owner is the caller.
        let (fragments, flags) = ChunkHeader::unpack_fragments(words.fragments.load(Ordering::Relaxed));
        self.set_fragments(chunk, fragments, flags.without(ChunkFlags::NEEDS_PATCHING));
    }

    /// Passes the chunk to the reader: BeingWritten becomes Complete.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] if somebody tampered with the bitmap: the chunk is lost.
    pub fn complete(&self, chunk: WriteChunk) -> Result<(), TransitionError> {
        let WriteChunk { place } = chunk;
        let states = (ChunkState::BeingWritten, ChunkState::Complete);
        // Release: publishes header and payload; pairs with the Acquire of `try_begin_read` and of
        // snapshots. Weaker, the reader could take bytes from before they were written.
        self.transition(place.page(), place.index(), Some(place.layout), states, Ordering::Release).map(drop)
    }

    /// Frees the chunk without passing it on: for producers that send the bytes another way, and
    /// for writers that end before they wrote anything.
    ///
    /// # Errors
    ///
    /// As [`Smb::complete`].
    pub fn abandon(&self, chunk: WriteChunk) -> Result<(), TransitionError> {
        self.release_chunk(chunk.place, ChunkState::BeingWritten)
    }

    /// Zeroes the header and frees the chunk, from `from`.
    pub(crate) fn release_chunk(&self, place: Place, from: ChunkState) -> Result<(), TransitionError> {
        self.zero_header(&place);
        // Release: everything we read and wrote in this chunk happens before the next owner's
        // Acquire in `try_acquire`.
        self.transition(
            place.page(),
            place.index(),
            Some(place.layout),
            (from, ChunkState::Free),
            Ordering::Release,
        )
        .map(drop)
    }

    /// To be called before the chunk is freed.
    #[inline]
    pub(crate) fn zero_header(&self, place: &Place) {
        let words = self.region.header(place.offset_bytes());
        // Relaxed: the exchange that frees the chunk publishes them. They come first, so that a
        // count of zero always means that the current owner has not written its header yet.
        words.chunk_id.store(0, Ordering::Relaxed);
        words.writer_id.store(0, Ordering::Relaxed);
        words.fragments.store(0, Ordering::Relaxed);
    }
}
