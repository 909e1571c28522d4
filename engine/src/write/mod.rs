//! From untrusted bytes to records.
//!
//! ```text
//!   open the sequence -> is the chunk ordinary and new? --yes--> ordinary: room, copy, list
//!                          \--no--> general: parse the fragments
//!                                     |-> listed already: recommit in place
//!                                     |-> older than what was consumed: refused
//!                                     \-> append: room, copy, list
//! ```
//!
//! Every byte on which a decision depends is fetched once, and what was fetched is what the ring
//! keeps. Either all bytes are where nobody else can change them: the caller's, or a private copy
//! that stays in the cache, from which they go to the ring. Or the chunk is ordinary and its
//! fragments are long, so that few bytes decide anything: the headers are fetched from where others
//! may write, and put over the copy that is then made right into the ring
//! ([`watershed_simd::shared`]).
//!
//! While the processor goes from header to header, it asks for the ring's lines of the next records
//! ([`Ring::lines_ahead`](crate::ring::Ring::lines_ahead)).
//!
//! A source is asked for its size once, and no more of its bytes are used than it said: it is safe
//! code, which may say whatever it likes.
//!
//! The chunk is looked up before anything is evicted: an eviction may destroy the record that the
//! chunk is a second copy of.

mod append;
mod general;
mod ordinary;
mod parsed;
mod patch;
mod recommit;
pub(crate) mod source;

use crate::config::{ChunkInfo, FillPolicy, Refused};
use crate::evict::Evictor;
use crate::ids::key_of;
use crate::index::Index;
use crate::index::fragment_sizes::{MAX_ENTRIES, MAX_SPANS};
use crate::read::Reader;
use crate::store::Store;
use source::ByteSource;
use watershed_simd::shared::Headers;
use watershed_simd::{SharedBytes, Span};

/// Memory that each commit uses again.
pub(crate) struct CommitScratch {
    /// Private copy of a chunk whose source may change. Stays in the cache from chunk to chunk, and
    /// is as long as the longest so far.
    staging: Vec<u8>,
    /// Fragments of the chunk that is being committed.
    spans: [Span; MAX_SPANS],
    /// The same of an ordinary chunk.
    entries: [u16; MAX_ENTRIES],
    /// Its headers, if it is taken from where others may write.
    headers: Headers,
}

impl CommitScratch {
    #[cold]
    #[inline(never)]
    pub(crate) fn new() -> Box<CommitScratch> {
        Box::new(CommitScratch {
            staging: Vec::new(),
            spans: [Span::default(); MAX_SPANS],
            entries: [0; MAX_ENTRIES],
            headers: Headers::default(),
        })
    }

    /// Makes room for a private copy.
    #[cold]
    #[inline(never)]
    fn grow(staging: &mut Vec<u8>, size_bytes: usize) {
        staging.resize(size_bytes, 0);
    }
}

/// What only writing needs, but for its scratch memory.
#[derive(Clone, Copy)]
pub(crate) struct Writer {
    pub(crate) policy: FillPolicy,
    /// A chunk did not fit into a DISCARD buffer.
    is_sealed: bool,
}

impl Writer {
    pub(crate) fn new(policy: FillPolicy) -> Writer {
        Writer { policy, is_sealed: false }
    }

    /// A writer that discards all chunks, and counts them.
    pub(crate) fn sealed() -> Writer {
        Writer { policy: FillPolicy::Discard, is_sealed: true }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed
    }
}

/// The parts of a buffer that a write needs.
///
/// Calls that are not inlined take it by value: so it lives in registers until there.
pub(crate) struct WriteParts<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) reader: &'a mut Reader,
    pub(crate) evictor: &'a mut Evictor,
    pub(crate) writer: &'a mut Writer,
}

/// A chunk of which only the header has been used.
#[derive(Clone, Copy)]
struct Opened<'a> {
    info: &'a ChunkInfo,
    key: u64,
    /// As its source said when it was asked.
    size_bytes: usize,
    /// Its sequence, if that is known.
    sequence: Option<u32>,
    /// Where it is to be listed, if it is complete, not listed and nothing is special.
    insertion: Option<Insertion>,
}

impl Opened<'_> {
    #[inline(always)]
    fn num_fragments(&self) -> usize {
        self.info.num_fragments.into()
    }
}

/// Where a record is listed.
#[derive(Clone, Copy)]
struct Insertion {
    sequence: u32,
    /// Records of the sequence that come after it.
    behind: usize,
}

/// The sequence's key of a chunk, if the chunk may be committed at all.
#[inline(always)]
pub(crate) fn admit(index: &Index, info: &ChunkInfo, size_bytes: usize) -> Result<u64, Refused> {
    let key = key_of(info.producer_id_trusted, info.writer_id);
    if key == 0 {
        return Err(Refused::ReservedKey);
    }
    if size_bytes > ChunkInfo::MAX_SIZE_BYTES {
        return Err(Refused::ChunkTooLarge { size_bytes });
    }
    if index.sequences.is_full_for(key) {
        return Err(Refused::TooManySequences);
    }
    Ok(key)
}

impl WriteParts<'_> {
    /// Commits a chunk that was [admitted](admit) with that size. No read pass may be in a
    /// sequence.
    #[inline(always)]
    pub(crate) fn commit<S: ByteSource + ?Sized>(
        mut self,
        key: u64,
        info: &ChunkInfo,
        size_bytes: usize,
        source: &S,
        scratch: &mut CommitScratch,
    ) {
        let sequence = self.store.index.open(key);
        let insertion = match sequence {
            Some(sequence) if info.complete && !self.writer.is_sealed => {
                let Index { records, sequences, .. } = &self.store.index;
                let behind = sequences.get(sequence).behind(records, info.chunk_id);
                behind.map(|behind| Insertion { sequence, behind })
            }
            _ => None,
        };
        let chunk = Opened { info, key, size_bytes, sequence, insertion };
        match source.shared_bytes() {
            Some(bytes)
                if Headers::can_fetch(self.store.ring.kernels(), chunk.num_fragments(), size_bytes)
                    && self.commit_shared(&chunk, bytes.first(size_bytes), scratch) => {}
            Some(bytes) => {
                bytes.first(size_bytes).prefetch();
                self.commit_from_copy(chunk, source, scratch);
            }
            None => self.commit_stable(&chunk, source, scratch),
        }
    }

    /// Commits an ordinary chunk right from memory in which others may write. False, and nothing
    /// done, if it is not ordinary.
    #[inline(always)]
    fn commit_shared(
        &mut self,
        chunk: &Opened<'_>,
        bytes: SharedBytes<'_>,
        scratch: &mut CommitScratch,
    ) -> bool {
        let CommitScratch { headers, entries, .. } = scratch;
        let (Some(insertion), Some(room)) = (chunk.insertion, entries.get_mut(..chunk.num_fragments()))
        else {
            return false;
        };
        let (kernels, ahead) = (self.store.ring.kernels(), self.store.ring.lines_ahead(chunk.size_bytes));
        let Some(fetched) = headers.fetch(kernels, bytes, room, ahead) else { return false };
        self.commit_ordinary(chunk, &fetched, entries, insertion)
    }

    /// As [`commit_stable`](Self::commit_stable). The chunk, too, comes by value.
    #[inline(never)]
    fn commit_from_copy<S: ByteSource + ?Sized>(
        self,
        chunk: Opened<'_>,
        source: &S,
        scratch: &mut CommitScratch,
    ) {
        self.commit_stable(&chunk, source, scratch);
    }

    /// Commits a chunk from bytes that nobody else can change: the source's, or a copy.
    #[inline(always)]
    fn commit_stable<S: ByteSource + ?Sized>(
        mut self,
        chunk: &Opened<'_>,
        source: &S,
        scratch: &mut CommitScratch,
    ) {
        let CommitScratch { staging, spans, entries, .. } = scratch;
        let bytes = match source.stable_bytes() {
            Some(bytes) => {
                let bytes = bytes.get(..chunk.size_bytes).unwrap_or(bytes);
                // A walk over so many headers would wait for line after line.
                if watershed_simd::walk::is_dense(chunk.num_fragments(), chunk.size_bytes) {
                    SharedBytes::from(bytes).prefetch();
                }
                bytes
            }
            None => {
                if staging.len() < chunk.size_bytes {
                    CommitScratch::grow(staging, chunk.size_bytes);
                }
                let staging = &mut staging[..chunk.size_bytes];
                source.copy_range(0, staging);
                staging
            }
        };
        if let (Some(insertion), Some(room)) = (chunk.insertion, entries.get_mut(..chunk.num_fragments())) {
            let ahead = self.store.ring.lines_ahead(bytes.len());
            let visible_bytes = self.store.ring.kernels().walk_ordinary(bytes, room, ahead);
            if self.commit_ordinary(chunk, &&bytes[..visible_bytes], entries, insertion) {
                return;
            }
        }
        self.commit_general(chunk.info, chunk.key, bytes, spans, chunk.sequence);
    }
}
