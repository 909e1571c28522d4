//! A batch: what is committed together, as the caller gives it.

pub(crate) mod queued;

use watershed_engine::{ByteSource, ChunkId, ChunkInfo, Patch, ProducerId, Refused, Shard, WriterId};
use watershed_simd::prefetch::{self, LINE_BYTES};
use watershed_smb::{Payload, ReadToken, Smb};

use crate::sync::directory::Key;

/// Where the bytes of a chunk come from.
// With a tag of its own. In the niche that the compiler would choose, in the middle of the token, a
// source is copied in two pieces that overlap, and the processor cannot forward such stores to a
// load.
#[derive(Debug)]
#[repr(u8)]
pub enum Source<'a> {
    /// Bytes of the caller. Copied before the commit returns.
    Borrowed(&'a [u8]),
    /// A chunk that was taken for reading, in the batch's shared memory. It is released when its
    /// bytes have been copied, which may be after the commit has returned.
    Shared(ReadToken),
    /// A chunk in shared memory that a scrape found. It was not taken, so its writer may go on at
    /// any moment. Copied before the commit returns: later it may be another chunk.
    Scraped(Payload<'a>),
    /// Bytes from somewhere else, which the batch owns. Copied when the shard's owner drains its
    /// queue, which may be after the commit has returned and in another thread.
    Owned(OwnedBytes),
}

/// The bytes of a chunk behind a pointer.
pub struct OwnedBytes {
    size_bytes: usize,
    source: Box<dyn ByteSource + Send + Sync>,
}

impl OwnedBytes {
    /// Asks the source for its size, and never again: the size that a commit checks is the one that
    /// is copied.
    pub fn new(source: impl ByteSource + Send + Sync + 'static) -> OwnedBytes {
        OwnedBytes { size_bytes: source.size_bytes(), source: Box::new(source) }
    }

    /// A copy of the bytes, by code that may panic.
    pub(crate) fn copy(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size_bytes];
        self.source.copy_range(0, &mut bytes);
        bytes
    }
}

impl std::fmt::Debug for OwnedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.size_bytes)
    }
}

/// Patches for one chunk: all of them are applied, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchSet {
    /// The producer, as the connection says.
    pub producer_id_trusted: ProducerId,
    /// The writer of the chunk.
    pub writer_id: WriterId,
    /// The chunk.
    pub chunk_id: ChunkId,
    /// The patches.
    pub patches: Vec<Patch>,
    /// Whether more will come for this chunk.
    pub other_patches_pending: bool,
}

/// One request of a producer, or one scrape: committed together, so that no read sees a part of it.
///
/// Chunks come first, in their order, then patches, then ends, as in the protocol's request.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    /// The shared memory of the chunks that are [`Source::Shared`]: a batch comes from one
    /// producer.
    pub memory: Option<Smb>,
    /// Chunks, with their headers as they were read once.
    pub chunks: Vec<(ChunkInfo, Source<'a>)>,
    /// Patches for these or earlier chunks.
    pub patches: Vec<PatchSet>,
    /// Writers that have ended.
    pub ended_writers: Vec<(ProducerId, WriterId)>,
    /// Producers that have ended.
    pub ended_producers: Vec<ProducerId>,
}

impl Source<'_> {
    /// An upper bound of the bytes.
    #[inline]
    pub(crate) fn max_bytes(&self) -> usize {
        match self {
            Source::Borrowed(bytes) => bytes.len(),
            Source::Shared(token) => token.size_bytes(),
            Source::Scraped(payload) => payload.size_bytes(),
            Source::Owned(bytes) => bytes.size_bytes,
        }
    }
}

/// Not inlined: the engine's commit is large. A refusal is the caller's mistake, who was told when
/// the batch was committed.
#[inline(never)]
pub(crate) fn copy_to<S: ByteSource + ?Sized>(engine: &mut Shard, info: &ChunkInfo, source: &S, ticket: u64) {
    let _ = engine.copy_chunk_untrusted(info, source, ticket);
}

/// Whether a chunk may be committed.
#[inline]
pub(crate) fn check(info: &ChunkInfo, size_bytes: usize) -> Result<(), Refused> {
    if key_of_chunk(info) == Key(0) {
        Err(Refused::ReservedKey)
    } else if size_bytes > ChunkInfo::MAX_SIZE_BYTES {
        Err(Refused::ChunkTooLarge { size_bytes })
    } else {
        Ok(())
    }
}

/// What one look at all chunks of a batch tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchSummary {
    /// The writer, if the batch is chunks of one writer and nothing else.
    pub(crate) only_writer: Option<Key>,
    /// Whether a chunk is [`Source::Shared`].
    pub(crate) has_shared: bool,
    /// Whether no chunk borrows its bytes.
    pub(crate) is_owned: bool,
}

impl Batch<'_> {
    /// Makes room for so many more chunks. A worker may have read that memory last, for an earlier
    /// batch: its lines are on their way here while the caller takes the chunks.
    pub fn reserve_chunks(&mut self, num_chunks: usize) {
        self.chunks.reserve(num_chunks);
        let room = &self.chunks.spare_capacity_mut()[..num_chunks];
        for offset in (0..size_of_val(room)).step_by(LINE_BYTES) {
            prefetch::for_write_shared(room.as_ptr().cast::<u8>().wrapping_add(offset));
        }
    }

    /// Checks every chunk, once. Inlined, for its caller would load the summary in one piece.
    #[inline(always)]
    pub(crate) fn summarize(&self) -> Result<BatchSummary, Refused> {
        let mut summary = BatchSummary { only_writer: None, has_shared: false, is_owned: true };
        let mut is_of_one = self.has_only_chunks();
        for (info, source) in &self.chunks {
            check(info, source.max_bytes())?;
            match source {
                Source::Shared(_) => summary.has_shared = true,
                Source::Owned(_) => {}
                Source::Borrowed(_) | Source::Scraped(_) => summary.is_owned = false,
            }
            let key = key_of_chunk(info);
            is_of_one &= *summary.only_writer.get_or_insert(key) == key;
        }
        summary.only_writer = summary.only_writer.filter(|_| is_of_one);
        Ok(summary)
    }

    /// Whether the batch is chunks of that writer in the batch's shared memory, and nothing else:
    /// these need no further check.
    #[inline]
    pub(crate) fn is_only_shared_of(&self, writer: Key) -> bool {
        let is_one = |(info, source): &(ChunkInfo, Source<'_>)| {
            matches!(source, Source::Shared(_)) && key_of_chunk(info) == writer
        };
        self.memory.is_some()
            && !self.chunks.is_empty()
            && self.has_only_chunks()
            && self.chunks.iter().all(is_one)
    }

    #[inline]
    pub(crate) fn has_only_chunks(&self) -> bool {
        self.patches.is_empty() && self.has_no_ends()
    }

    pub(crate) fn has_no_ends(&self) -> bool {
        self.ended_writers.is_empty() && self.ended_producers.is_empty()
    }

    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.has_only_chunks()
    }
}

/// The sequence of a writer's chunks.
#[inline]
pub(crate) fn key_of(producer: ProducerId, writer: WriterId) -> Key {
    Key::new(producer.0, writer.0)
}

/// The sequence that a chunk belongs to.
#[inline]
pub(crate) fn key_of_chunk(info: &ChunkInfo) -> Key {
    key_of(info.producer_id_trusted, info.writer_id)
}

/// A chunk in shared memory, for the engine: bytes that may change at any time.
pub(crate) struct SharedBytes<'a>(pub(crate) Payload<'a>);

impl ByteSource for SharedBytes<'_> {
    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        self.0.copy_range(offset_bytes, dst);
    }

    #[inline]
    fn shared_bytes(&self) -> Option<watershed_engine::SharedBytes<'_>> {
        self.0.shared_bytes()
    }
}
