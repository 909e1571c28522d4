//! What is committed together, as the caller gives it and as it waits in a queue.

use watershed_engine::{ByteSource, ChunkId, ChunkInfo, Patch, ProducerId, Refused, Shard, WriterId};
use watershed_simd::prefetch;
use watershed_smb::{Payload, ReadToken, Smb};

use crate::directory::Key;

/// Where the bytes of a chunk come from.
// With a tag of its own: in the niche that the compiler would choose, in the middle of the token, a source is copied in two pieces that overlap,
// and what was stored in pieces cannot be loaded before it is in the cache.
#[derive(Debug)]
#[repr(u8)]
pub enum Source<'a> {
    /// The caller's own bytes. Copied before the commit returns.
    Borrowed(&'a [u8]),
    /// A chunk that was taken for reading in the shared memory that the batch names. It is released when its bytes have been copied, which may be
    /// after the commit has returned.
    Shared(ReadToken),
    /// A chunk in shared memory that a scrape found and that was not taken: its state is left alone and its writer may go on at any moment.
    /// Copied before the commit returns, for later it may be another chunk.
    Scraped(Payload<'a>),
    /// Bytes from somewhere else, which the batch owns. Copied when the shard's owner gets to it, which may be after the commit has returned
    /// and in another thread.
    Owned(OwnedBytes),
}

/// The bytes of a chunk behind a pointer.
pub struct OwnedBytes(pub Box<dyn ByteSource + Send + Sync>);

impl std::fmt::Debug for OwnedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.size_bytes())
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

/// What is committed together: one request, or one scrape. No read sees a part of it.
///
/// Chunks come first, in their order, then patches, then ends, as the protocol says of a request.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    /// The shared memory in which those chunks lie that are [`Source::Shared`]. What is committed together comes from one producer, so it is counted
    /// once for a batch and not for each chunk.
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
    fn is_owned(&self) -> bool {
        matches!(self, Source::Shared(..) | Source::Owned(_))
    }

    /// An upper bound of the bytes.
    #[inline]
    pub(crate) fn most_bytes(&self) -> usize {
        match self {
            Source::Borrowed(bytes) => bytes.len(),
            Source::Shared(token) => token.size_bytes(),
            Source::Scraped(payload) => payload.size_bytes(),
            Source::Owned(bytes) => bytes.0.size_bytes(),
        }
    }

    /// Commits the chunk to a shard that the caller owns and that has an extent for it; then there is nothing left here. A refusal is the
    /// caller's mistake, who was told at the commit. `memory` is the batch's.
    #[inline]
    pub(crate) fn commit_to(
        &mut self,
        memory: Option<&Smb>,
        engine: &mut Shard,
        info: &ChunkInfo,
        ticket: u64,
    ) {
        if let Source::Borrowed(bytes) = self {
            let _ = engine.copy_chunk_untrusted(info, *bytes, ticket);
        } else {
            self.give_up_to(memory, engine, info, ticket);
        }
    }

    /// The same of what must be let go of afterwards.
    pub(crate) fn give_up_to(
        &mut self,
        memory: Option<&Smb>,
        engine: &mut Shard,
        info: &ChunkInfo,
        ticket: u64,
    ) {
        match std::mem::replace(self, Source::Borrowed(&[])) {
            Source::Borrowed(bytes) => copy_to(engine, info, bytes, ticket),
            Source::Scraped(payload) => copy_to(engine, info, &SharedBytes(payload), ticket),
            Source::Owned(bytes) => copy_to(engine, info, &*bytes.0, ticket),
            Source::Shared(token) => {
                // The commit has seen that there is one.
                let Some(smb) = memory else { return };
                let chunk = smb.attach(token);
                copy_to(engine, info, &SharedBytes(chunk.payload()), ticket);
            }
        }
    }
}

/// A call, where the engine's commit would be copied into each caller.
#[inline(never)]
fn copy_to<S: ByteSource + ?Sized>(engine: &mut Shard, info: &ChunkInfo, source: &S, ticket: u64) {
    let _ = engine.copy_chunk_untrusted(info, source, ticket);
}

/// Whether a chunk may be committed. A refusal is the caller's mistake.
#[inline]
pub(crate) fn check(info: &ChunkInfo, size_bytes: usize) -> Result<(), Refused> {
    if info.producer_id_trusted.0 == 0 && info.writer_id.0 == 0 {
        return Err(Refused::ReservedKey);
    }
    if size_bytes > ChunkInfo::MAX_SIZE_BYTES {
        return Err(Refused::ChunkTooLarge { size_bytes });
    }
    Ok(())
}

impl<'a> Batch<'a> {
    /// A batch of one chunk.
    pub fn of_chunk(info: ChunkInfo, bytes: &'a [u8]) -> Batch<'a> {
        Batch { chunks: vec![(info, Source::Borrowed(bytes))], ..Batch::default() }
    }

    /// Looks at every chunk: the writer of all that is in the batch, if that is chunks of one writer and nothing else.
    #[inline]
    pub(crate) fn only_writer(&self) -> Result<Option<Key>, Refused> {
        let mut only = None;
        let mut is_of_one = self.has_only_chunks();
        for (info, source) in &self.chunks {
            check(info, source.most_bytes())?;
            let key = key_of(info.producer_id_trusted, info.writer_id);
            is_of_one &= *only.get_or_insert(key) == key;
        }
        Ok(only.filter(|_| is_of_one))
    }

    /// Whether a chunk lies in shared memory, and it is not said in which.
    #[inline]
    pub(crate) fn lacks_memory(&self) -> bool {
        self.memory.is_none() && self.chunks.iter().any(|(_, source)| matches!(source, Source::Shared(_)))
    }

    pub(crate) fn has_only_chunks(&self) -> bool {
        self.patches.is_empty() && self.has_no_ends()
    }

    pub(crate) fn has_no_ends(&self) -> bool {
        self.ended_writers.is_empty() && self.ended_producers.is_empty()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.has_only_chunks()
    }
}

/// The sequence of a writer's chunks.
pub(crate) fn key_of(producer: ProducerId, writer: WriterId) -> Key {
    Key::new(producer.0, writer.0)
}

/// The bytes of a queued chunk.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// In the part's own bytes, from here on, so many.
    Copied { start: usize, len: usize },
    /// Where they were. Borrowed and empty when they have been copied.
    Whole(Source<'static>),
}

/// One thing to do at a shard.
#[derive(Debug)]
pub(crate) enum Op {
    Chunk { info: ChunkInfo, ticket: u64, bytes: Waiting },
    Patch(PatchSet),
    EndWriter(ProducerId, WriterId),
    EndProducer(ProducerId),
}

/// A batch's part for one shard: the item of the queue. Its memory is used again.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Part {
    // First what every part has, so that it lies in one cache line with the links of its node.
    /// A batch's chunks, none of them borrowed, as they came, with tickets from `first_ticket` on; before `ops`.
    chunks: Vec<(ChunkInfo, Source<'static>)>,
    first_ticket: u64,
    /// How many of chunks and ops have been done.
    pub(crate) done: usize,
    /// The batch's.
    pub(crate) memory: Option<Smb>,
    pub(crate) ops: Vec<Op>,
    pub(crate) bytes: Vec<u8>,
}

/// A part whose bytes were large once does not keep them for ever.
const MOST_BYTES_KEPT: usize = 256 << 10;

impl Part {
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        self.done = 0;
        self.memory = None;
        if !self.ops.is_empty() {
            self.clear_ops();
        }
    }

    /// Bytes belong to ops.
    fn clear_ops(&mut self) {
        self.ops.clear();
        self.bytes.clear();
        if self.bytes.capacity() > MOST_BYTES_KEPT {
            self.bytes.shrink_to(MOST_BYTES_KEPT);
        }
    }

    /// A hint that it will be worked on next.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let first = self.chunks.as_ptr().cast();
        prefetch::for_read(first);
        prefetch::for_read(first.wrapping_add(prefetch::LINE_BYTES));
    }

    /// The next chunk as it came, with its ticket. None if only ops are left.
    #[inline]
    pub(crate) fn next_chunk(&mut self) -> Option<(&ChunkInfo, &mut Source<'static>, Option<&Smb>, u64)> {
        let (info, source) = self.chunks.get_mut(self.done)?;
        let ticket = self.first_ticket + self.done as u64;
        Some((info, source, self.memory.as_ref(), ticket))
    }

    /// What comes next behind the chunks, and the part's bytes.
    pub(crate) fn next_op(&mut self) -> Option<(&mut Op, &[u8], Option<&Smb>)> {
        Some((self.ops.get_mut(self.done - self.chunks.len())?, &self.bytes, self.memory.as_ref()))
    }

    /// Takes all chunks of a batch. If none of them borrows its bytes, as the list that they are, in exchange for an empty one.
    #[inline]
    pub(crate) fn take_chunks(&mut self, batch: &mut Batch<'_>, first_ticket: u64) {
        debug_assert!(self.chunks.is_empty() && self.memory.is_none());
        self.memory = batch.memory.take();
        let chunks = &mut batch.chunks;
        if chunks.iter().all(|(_, source)| source.is_owned()) {
            // SAFETY: the types differ in the lifetimes of `Source::Borrowed` and `Source::Scraped` only, and neither list has such an
            // element: one is empty, the other was looked at.
            let chunks =
                unsafe { &mut *std::ptr::from_mut(chunks).cast::<Vec<(ChunkInfo, Source<'static>)>>() };
            std::mem::swap(&mut self.chunks, chunks);
            self.first_ticket = first_ticket;
        } else {
            for (ticket, (info, source)) in (first_ticket..).zip(chunks.drain(..)) {
                self.push_chunk(info, ticket, source);
            }
        }
    }

    pub(crate) fn push_chunk(&mut self, info: ChunkInfo, ticket: u64, source: Source<'_>) {
        let bytes = match source {
            Source::Borrowed(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                Waiting::Copied { start, len: bytes.len() }
            }
            Source::Shared(token) => Waiting::Whole(Source::Shared(token)),
            Source::Owned(bytes) => Waiting::Whole(Source::Owned(bytes)),
            Source::Scraped(payload) => {
                let (start, len) = (self.bytes.len(), payload.size_bytes());
                self.bytes.resize(start + len, 0);
                payload.copy_range(0, &mut self.bytes[start..]);
                Waiting::Copied { start, len }
            }
        };
        self.ops.push(Op::Chunk { info, ticket, bytes });
    }
}

/// A chunk in shared memory as the engine sees it: bytes that may change at any time.
struct SharedBytes<'a>(Payload<'a>);

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
