//! The service's side: taking complete chunks, and scraping chunks that are still being written.

use std::mem::ManuallyDrop;

use crate::header::ChunkHeader;
use crate::layout::{CHUNK_HEADER_BYTES, ChunkState};
use crate::smb::{Place, Smb, TransitionError};
use crate::sync::Ordering;
use watershed_simd::SharedBytes;

/// The payload of a chunk, which the producer may be writing at any moment, so two copies may
/// differ. Fetch each byte on which a decision depends once, and decide on the fetched value.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    smb: &'a Smb,
    offset_bytes: usize,
    size_bytes: usize,
}

impl Payload<'_> {
    /// Size in bytes: the whole chunk without its header, however much of it was written.
    #[must_use]
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Copies `dst.len()` bytes at `offset_bytes` from the start of the payload.
    ///
    /// # Panics
    ///
    /// If the range does not lie in the payload.
    pub fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        assert!(
            offset_bytes.checked_add(dst.len()).is_some_and(|end| end <= self.size_bytes),
            "{} bytes at {offset_bytes} are outside a payload of {} bytes",
            dst.len(),
            self.size_bytes
        );
        self.smb.region.copy_out(self.offset_bytes + offset_bytes, dst);
    }

    /// The payload for kernels that take bytes that others may change. `None` in a loom model.
    #[must_use]
    #[inline]
    pub fn shared_bytes(&self) -> Option<SharedBytes<'_>> {
        self.smb.region.shared_bytes(self.offset_bytes, self.size_bytes)
    }
}

/// A chunk that the service has taken: its state is BeingRead, its header was read once. Dropping
/// it frees the chunk; [`ReadChunk::release`] does the same and says whether it worked.
#[derive(Debug)]
pub struct ReadChunk<'a> {
    smb: &'a Smb,
    token: ReadToken,
}

/// A [`ReadChunk`] without the borrow, for a queue that holds a clone of the [`Smb`]. It must go
/// back through [`Smb::attach`]; if it is dropped, the chunk stays BeingRead for ever.
#[derive(Debug)]
#[must_use = "a token that is dropped leaves its chunk BeingRead"]
pub struct ReadToken {
    place: Place,
    header: ChunkHeader,
}

impl ReadToken {
    #[inline]
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The header as it was read when the chunk was taken. Untrusted.
    #[must_use]
    pub fn header(&self) -> ChunkHeader {
        self.header
    }

    /// Size of the payload in bytes: the whole chunk without its header, however much of it was
    /// written.
    #[must_use]
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.place.payload_size_bytes()
    }
}

impl ReadChunk<'_> {
    /// The header as it was read when the chunk was taken. Untrusted.
    #[must_use]
    pub fn header(&self) -> ChunkHeader {
        self.token.header
    }

    /// The payload.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> Payload<'_> {
        #[cfg(loom)]
        self.smb.region.witness_exclusive(self.token.place.offset_bytes());
        self.smb.payload(&self.token.place)
    }

    /// Gives the chunk back to the producer: the header is zeroed, the state becomes Free, and the
    /// page can be partitioned anew when this was its last chunk in use.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] if the producer tampered with the bitmap. The chunk is given up in any
    /// case; the caller may count a violation or close the connection.
    pub fn release(self) -> Result<(), TransitionError> {
        let (smb, page) = (self.smb, self.token.place.page());
        let freed = smb.release_chunk(self.detach().place, ChunkState::BeingRead);
        smb.count_free(page);
        freed
    }

    /// The chunk without the borrow.
    pub fn detach(self) -> ReadToken {
        // Not to be freed.
        let chunk = ManuallyDrop::new(self);
        ReadToken { place: chunk.token.place, header: chunk.token.header }
    }
}

impl Drop for ReadChunk<'_> {
    #[inline]
    fn drop(&mut self) {
        // A refusal means that the producer broke the ABI: it loses its own chunk.
        let _ = self.smb.release_chunk(self.token.place, ChunkState::BeingRead);
        self.smb.count_free(self.token.place.page());
    }
}

/// A chunk that a scrape found, in use or complete. Its state is not changed.
#[derive(Debug)]
pub struct ScrapedChunk<'a> {
    smb: &'a Smb,
    place: Place,
    header: ChunkHeader,
    complete: bool,
}

impl<'a> ScrapedChunk<'a> {
    /// The header, read once. Untrusted. The count of an incomplete chunk includes the fragment
    /// that is being written.
    #[must_use]
    pub fn header(&self) -> ChunkHeader {
        self.header
    }

    /// True if the chunk is complete and its commit outstanding; false if its writer is still
    /// writing, so that the last fragment and its flags mean nothing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> Payload<'a> {
        self.smb.payload(&self.place)
    }
}

impl Smb {
    #[inline]
    pub(crate) fn payload(&self, place: &Place) -> Payload<'_> {
        Payload {
            smb: self,
            offset_bytes: place.offset_bytes() + CHUNK_HEADER_BYTES,
            size_bytes: place.payload_size_bytes(),
        }
    }

    fn read_header(&self, place: &Place) -> ChunkHeader {
        let words = self.region.header(place.offset_bytes());
        // Acquire: pairs with the Release of `set_fragments` and `write_header`. A count of n shows
        // the ids and the bytes of the first n - 1 fragments. Weaker, a scrape could take an old
        // writer id or unwritten bytes.
        let (fragments, flags) = ChunkHeader::unpack_fragments(words.fragments.load(Ordering::Acquire));
        ChunkHeader {
            chunk_id: words.chunk_id.load(Ordering::Relaxed),
            writer_id: words.writer_id.load(Ordering::Relaxed),
            fragments,
            flags,
        }
    }

    /// Takes a complete chunk for reading. Any `page` and `index` may be given, they may come from
    /// the producer.
    ///
    /// # Errors
    ///
    /// [`TransitionError::NoSuchChunk`] or [`TransitionError::WrongState`] if there is no such
    /// chunk or it is not complete, [`TransitionError::Contended`] if the bitmap could not be
    /// changed.
    pub fn try_begin_read(&self, page: usize, index: usize) -> Result<ReadChunk<'_>, TransitionError> {
        let states = (ChunkState::Complete, ChunkState::BeingRead);
        // Acquire: pairs with the Release of `complete`: header and payload are visible.
        let now = self.transition(page, index, None, states, Ordering::Acquire)?;
        // The layout is that of the very value that was exchanged.
        let place = self.place(page, index, now.layout());
        let header = self.read_header(&place);
        Ok(ReadChunk { smb: self, token: ReadToken { place, header } })
    }

    /// Borrows for a detached chunk again.
    #[inline]
    pub fn attach(&self, token: ReadToken) -> ReadChunk<'_> {
        ReadChunk { smb: self, token }
    }

    /// Visits every chunk that holds data without taking it: pages in index order with one load of
    /// the bitmap each, chunks in index order. Left out are chunks that are free or being read, and
    /// those being written with fewer than two fragments started: no fragment of them is finished,
    /// and with a count of zero not even the header.
    pub fn scrape(&self) -> impl Iterator<Item = ScrapedChunk<'_>> {
        (0..self.num_pages()).flat_map(move |page| {
            let now = self.load(page);
            now.states().filter_map(move |(index, state)| {
                let complete = match state {
                    ChunkState::Complete => true,
                    ChunkState::BeingWritten => false,
                    ChunkState::Free | ChunkState::BeingRead => return None,
                };
                let place = self.place(page, index, now.layout());
                let header = self.read_header(&place);
                (complete || header.fragments >= 2).then_some(ScrapedChunk {
                    smb: self,
                    place,
                    header,
                    complete,
                })
            })
        })
    }
}
