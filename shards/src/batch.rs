//! What is committed together, as the caller gives it and as it waits in a queue.

use watershed_engine::{ByteSource, ChunkId, ChunkInfo, Patch, ProducerId, WriterId};
use watershed_smb::{Payload, ReadToken, Smb};

/// Where the bytes of a chunk come from.
#[derive(Debug)]
pub enum Source<'a> {
    /// The caller's own bytes. Copied before the commit returns.
    Borrowed(&'a [u8]),
    /// A chunk in shared memory that was taken for reading. It is released when its bytes have been copied, which may be after the commit
    /// has returned.
    Shared(Smb, ReadToken),
    /// A chunk in shared memory that a scrape found and that was not taken: its state is left alone and its writer may go on at any moment.
    /// Copied before the commit returns, for later it may be another chunk.
    Scraped(Payload<'a>),
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
    /// Chunks, with their headers as they were read once.
    pub chunks: Vec<(ChunkInfo, Source<'a>)>,
    /// Patches for these or earlier chunks.
    pub patches: Vec<PatchSet>,
    /// Writers that have ended.
    pub ended_writers: Vec<(ProducerId, WriterId)>,
    /// Producers that have ended.
    pub ended_producers: Vec<ProducerId>,
}

impl<'a> Batch<'a> {
    /// A batch of one chunk.
    pub fn of_chunk(info: ChunkInfo, bytes: &'a [u8]) -> Batch<'a> {
        Batch { chunks: vec![(info, Source::Borrowed(bytes))], ..Batch::default() }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
            && self.patches.is_empty()
            && self.ended_writers.is_empty()
            && self.ended_producers.is_empty()
    }
}

/// The bytes of a queued chunk.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// In the part's own bytes, from here on, so many.
    Copied { start: usize, len: usize },
    /// In shared memory. `None` when they have been copied.
    Shared(Option<(Smb, ReadToken)>),
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
pub(crate) struct Part {
    pub(crate) ops: Vec<Op>,
    /// How many of them have been done.
    pub(crate) done: usize,
    pub(crate) bytes: Vec<u8>,
}

/// A part whose bytes were large once does not keep them for ever.
const MOST_BYTES_KEPT: usize = 256 << 10;

impl Part {
    pub(crate) fn clear(&mut self) {
        self.ops.clear();
        self.done = 0;
        self.bytes.clear();
        self.bytes.shrink_to(MOST_BYTES_KEPT);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done == self.ops.len()
    }

    pub(crate) fn push_chunk(&mut self, info: ChunkInfo, ticket: u64, source: Source<'_>) {
        let bytes = match source {
            Source::Borrowed(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                Waiting::Copied { start, len: bytes.len() }
            }
            Source::Shared(smb, token) => Waiting::Shared(Some((smb, token))),
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
pub(crate) struct SharedBytes<'a>(pub(crate) watershed_smb::Payload<'a>);

impl ByteSource for SharedBytes<'_> {
    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        self.0.copy_range(offset_bytes, dst);
    }
}
