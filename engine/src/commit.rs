//! Commits: from untrusted bytes to a record.
//!
//! ```text
//!   open the sequence -> is the id listed? -> size the fragments -> recommit in place
//!                                                               \-> older than consumed: refuse
//!                                                               \-> make room -> copy -> insert
//! ```
//!
//! What is judged is looked at once, and goes into the ring as it was judged. Either all bytes lie where nobody else can change them: they are the
//! caller's, or a private copy. Or it is an ordinary chunk, of which only the headers of fragments decide anything: these are fetched from
//! where others may write, and put over the copy that is then made right into the ring ([`watershed_simd::shared`]). The lookup comes before
//! the eviction: an eviction may destroy the record that the chunk is a second copy of.

use crate::buffer::{CommitScratch, SPANS, TraceBuffer};
use crate::config::{ChunkInfo, Refused};
use crate::ids::{ChunkId, LossReasons, key_of};
use crate::records::{NONE, bit};
use crate::sequence::{Ended, Sequence};
use crate::sized::{Cut, SizedChunk, size_fragments};
use crate::source::ByteSource;
use watershed_simd::{SharedBytes, Span};

/// A chunk of which only the header has been looked at.
#[derive(Clone, Copy)]
pub(crate) struct Opened<'a> {
    pub(crate) info: &'a ChunkInfo,
    pub(crate) key: u32,
    /// Its sequence, if that is known.
    opened: Option<u32>,
    place: Option<Place>,
}

impl Opened<'_> {
    pub(crate) fn num_fragments(&self) -> usize {
        self.info.num_fragments.into()
    }
}

/// Where a record is listed.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) sequence: u32,
    /// Records of the sequence that come after it.
    pub(crate) behind: usize,
}

impl TraceBuffer {
    /// Commits a chunk: copies its complete fragments into the ring. Whatever is wrong with its bytes is counted, never an error.
    /// Ends the current read pass.
    ///
    /// # Errors
    /// If the call itself is wrong: see [`Refused`]. Then nothing has changed.
    #[inline]
    pub fn copy_chunk_untrusted<S: ByteSource + ?Sized>(
        &mut self,
        info: &ChunkInfo,
        source: &S,
    ) -> Result<(), Refused> {
        self.copy_chunk_here(info, source)
    }

    /// The same without a call.
    #[inline(always)]
    pub(crate) fn copy_chunk_here<S: ByteSource + ?Sized>(
        &mut self,
        info: &ChunkInfo,
        source: &S,
    ) -> Result<(), Refused> {
        if self.is_read_only {
            return Err(Refused::ReadOnly);
        }
        let key = self.admit_key(info, source.size_bytes())?;
        self.end_read_pass();
        let mut scratch = self.commit_scratch.take().unwrap_or_else(CommitScratch::new);
        self.copy_admitted(key, info, source, &mut scratch);
        self.commit_scratch = Some(scratch);
        Ok(())
    }

    /// Which sequence a chunk is of, if it may be committed at all.
    #[inline(always)]
    pub(crate) fn admit_key(&self, info: &ChunkInfo, size_bytes: usize) -> Result<u32, Refused> {
        let key = key_of(info.producer_id_trusted, info.writer_id);
        if key == 0 {
            return Err(Refused::ReservedKey);
        }
        if size_bytes > ChunkInfo::MAX_SIZE_BYTES {
            return Err(Refused::ChunkTooLarge { size_bytes });
        }
        if self.sequences.is_full() {
            return Err(Refused::TooManySequences);
        }
        Ok(key)
    }

    /// Commits a chunk that may be committed, when no read pass stands anywhere.
    #[inline(always)]
    pub(crate) fn copy_admitted<S: ByteSource + ?Sized>(
        &mut self,
        key: u32,
        info: &ChunkInfo,
        source: &S,
        scratch: &mut CommitScratch,
    ) {
        let opened = self.sequences.open(key, &self.histograms);
        let place = match opened {
            Some(index) if !self.is_sealed => self.place_of(index, info.chunk_id),
            _ => None,
        };
        let chunk = Opened { info, key, opened, place };
        match source.shared_bytes() {
            Some(bytes) if self.commit_in_place(&chunk, bytes, scratch) => {}
            Some(_) => self.commit_elsewhere(chunk, source, scratch),
            None => self.commit_private(&chunk, source, scratch),
        }
    }

    /// Commits an ordinary chunk right from memory in which others may write. False, and nothing done, if it is none.
    #[inline(always)]
    fn commit_in_place(
        &mut self,
        chunk: &Opened<'_>,
        bytes: SharedBytes<'_>,
        scratch: &mut CommitScratch,
    ) -> bool {
        let CommitScratch { headers, entries, .. } = scratch;
        let (Some(place), Some(wanted)) = (chunk.place, entries.get_mut(..chunk.num_fragments())) else {
            return false;
        };
        let Some(fetched) = headers.fetch(self.ring.kernels, bytes, wanted) else { return false };
        self.commit_ordinary(chunk, &fetched, entries, place)
    }

    /// As [`commit_private`](Self::commit_private), of what is not ordinary. The chunk comes by value: it lives in registers until here.
    #[inline(never)]
    fn commit_elsewhere<S: ByteSource + ?Sized>(
        &mut self,
        chunk: Opened<'_>,
        source: &S,
        scratch: &mut CommitScratch,
    ) {
        self.commit_private(&chunk, source, scratch);
    }

    /// Commits a chunk from bytes that nobody else can change: the source's, or a copy.
    #[inline(always)]
    fn commit_private<S: ByteSource + ?Sized>(
        &mut self,
        chunk: &Opened<'_>,
        source: &S,
        scratch: &mut CommitScratch,
    ) {
        let CommitScratch { staging, spans, entries, .. } = scratch;
        let bytes = match source.stable_bytes() {
            Some(bytes) => bytes,
            None => {
                let staging = &mut staging[..source.size_bytes()];
                source.copy_range(0, staging);
                staging
            }
        };
        if let (Some(place), Some(wanted)) = (chunk.place, entries.get_mut(..chunk.num_fragments())) {
            let visible_bytes = self.ring.kernels.walk_small(bytes, wanted);
            if self.commit_ordinary(chunk, &&bytes[..visible_bytes], entries, place) {
                return;
            }
        }
        self.commit_any(chunk.info, chunk.key, bytes, spans, chunk.opened);
    }

    /// Where a chunk belongs that is not listed. None if that takes more than a look at the last records, if it comes too late, or if
    /// anything is the matter with the sequence.
    #[inline(always)]
    fn place_of(&self, sequence: u32, id: ChunkId) -> Option<Place> {
        let listed = self.sequences.get(sequence);
        let behind = listed.behind(&self.records, id)?;
        Some(Place { sequence, behind })
    }

    /// Commits any chunk.
    #[inline(never)]
    fn commit_any(
        &mut self,
        info: &ChunkInfo,
        key: u32,
        bytes: &[u8],
        spans: &mut [Span; SPANS],
        opened: Option<u32>,
    ) {
        let id = info.chunk_id;
        let (mut is_new_life, mut found) = (false, Err(0));
        if let Some(index) = opened {
            let sequence = self.sequences.get(index);
            is_new_life = sequence.ended.is_some() && starts_new_life(sequence, id);
            found = if is_new_life { Err(sequence.queue.len()) } else { sequence.find(&self.records, id) };
        }
        if self.is_sealed && found.is_err() {
            self.stats.chunks_discarded += 1;
        } else {
            let chunk = size_fragments(info, key, bytes, spans);
            self.place(&chunk, spans, opened, is_new_life, found);
        }
        if let Some(index) = opened {
            self.sequences.release(index);
        }
    }

    #[inline(always)]
    fn note_malformed(&mut self, cut: Option<Cut>) {
        if cut == Some(Cut::Malformed) {
            self.stats.abi_violations += 1;
        }
    }

    /// Decides what becomes of a chunk that has been sized.
    fn place(
        &mut self,
        chunk: &SizedChunk<'_>,
        spans: &[Span; SPANS],
        opened: Option<u32>,
        is_new_life: bool,
        found: Result<usize, usize>,
    ) {
        self.note_malformed(chunk.cut);
        if chunk.outer_bytes() > self.space.size_bytes() {
            self.stats.abi_violations += 1;
            if let (Some(index), Err(at), true, false) = (opened, found, chunk.info.complete, is_new_life) {
                self.mark_oversize(index, at, chunk.info.chunk_id);
            }
            return;
        }
        match (opened, found) {
            (Some(sequence), Ok(at)) => self.recommit(chunk, spans, sequence, at),
            (Some(sequence), Err(at)) => {
                let behind = self.sequences.get(sequence).queue.len() - at;
                let identity = if is_new_life {
                    Some(self.identities.intern(chunk.info.identity_trusted))
                } else {
                    None
                };
                if let Some(identity) = identity {
                    self.sequences.get_mut(sequence).start_life(&mut self.records, identity);
                    self.sequences.get_mut(sequence).histogram = NONE;
                }
                if let Some(skip) = self.admit(chunk, sequence) {
                    self.write(chunk, spans, sequence, skip, behind);
                }
            }
            (None, _) => {
                let identity = self.identities.intern(chunk.info.identity_trusted);
                let sequence = self.sequences.create(chunk.key, identity);
                self.write(chunk, spans, sequence, 0, 0);
                self.sequences.release(sequence);
            }
        }
    }

    /// Compares an unlisted chunk with what was consumed last: none if it comes too late, else how many of its bytes have been consumed.
    #[inline]
    fn admit(&mut self, chunk: &SizedChunk<'_>, sequence: u32) -> Option<usize> {
        let Some(last) = self.sequences.get(sequence).last_of_newest_life() else { return Some(0) };
        let id = chunk.info.chunk_id;
        if id.is_newer_than(last.chunk_id) {
            return Some(0);
        }
        let payload_bytes = usize::from(last.payload_bytes);
        if id == last.chunk_id && last.incomplete && chunk.visible.len() > payload_bytes {
            return Some(payload_bytes);
        }
        if id == last.chunk_id && chunk.visible.len() == payload_bytes {
            self.books.duplicate_commits += 1;
        } else {
            self.stats.chunks_discarded += 1;
        }
        None
    }

    /// A chunk larger than the buffer gets no record: its loss is noted where it would have been.
    #[cold]
    fn mark_oversize(&mut self, sequence: u32, at: usize, id: ChunkId) {
        let listed = self.sequences.get_mut(sequence);
        if listed.last_of_newest_life().is_some_and(|last| !id.is_newer_than(last.chunk_id)) {
            return;
        }
        match at.checked_sub(1) {
            None => listed.add_loss(LossReasons::CHUNK_CORRUPTED),
            Some(before) => self.records.get_mut(listed.queue.get(before)).bits |= bit::CUT,
        }
    }
}

/// Whether a chunk comes from another writer than the one that has ended.
fn starts_new_life(sequence: &Sequence, id: ChunkId) -> bool {
    match sequence.ended {
        None => false,
        Some(Ended::Producer) => true,
        Some(Ended::Writer) => {
            let consumed = sequence.last_of_newest_life().map(|last| last.chunk_id);
            [sequence.newest_listed(), consumed].into_iter().flatten().any(|known| !id.is_newer_than(known))
        }
    }
}
