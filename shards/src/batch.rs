//! What is committed together, as the caller gives it.

use watershed_engine::{ByteSource, ChunkId, ChunkInfo, Patch, ProducerId, Refused, Shard, WriterId};
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
                let Some(memory) = memory else { return };
                copy_shared(memory, token, engine, info, ticket);
            }
        }
    }
}

/// Commits a chunk in shared memory, and frees it there. The engine's commit is copied into each caller.
#[inline(always)]
pub(crate) fn copy_shared(memory: &Smb, token: ReadToken, engine: &mut Shard, info: &ChunkInfo, ticket: u64) {
    let chunk = memory.attach(token);
    let _ = engine.copy_chunk_untrusted(info, &SharedBytes(chunk.payload()), ticket);
}

/// A call, where the engine's commit would be copied into each caller.
#[inline(never)]
fn copy_to<S: ByteSource + ?Sized>(engine: &mut Shard, info: &ChunkInfo, source: &S, ticket: u64) {
    let _ = engine.copy_chunk_untrusted(info, source, ticket);
}

/// Whether a chunk may be committed. A refusal is the caller's mistake.
#[inline]
pub(crate) fn check(info: &ChunkInfo, size_bytes: usize) -> Result<(), Refused> {
    check_key(info)?;
    check_size(size_bytes)
}

#[inline]
fn check_key(info: &ChunkInfo) -> Result<(), Refused> {
    match key_of(info.producer_id_trusted, info.writer_id) {
        Key(0) => Err(Refused::ReservedKey),
        _ => Ok(()),
    }
}

#[inline]
fn check_size(size_bytes: usize) -> Result<(), Refused> {
    if size_bytes > ChunkInfo::MAX_SIZE_BYTES { Err(Refused::ChunkTooLarge { size_bytes }) } else { Ok(()) }
}

/// What a look at all chunks of a batch says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The writer of all that is in the batch, if that is chunks of one writer and nothing else.
    pub(crate) only_writer: Option<Key>,
    /// Whether a chunk lies in shared memory.
    pub(crate) has_shared: bool,
    /// Whether no chunk borrows its bytes.
    pub(crate) is_owned: bool,
}

impl<'a> Batch<'a> {
    /// A batch of one chunk.
    pub fn of_chunk(info: ChunkInfo, bytes: &'a [u8]) -> Batch<'a> {
        Batch { chunks: vec![(info, Source::Borrowed(bytes))], ..Batch::default() }
    }

    /// Looks at every chunk, once.
    #[inline]
    pub(crate) fn look(&self) -> Result<Look, Refused> {
        let mut look = Look { only_writer: None, has_shared: false, is_owned: true };
        let mut is_of_one = self.has_only_chunks();
        for (info, source) in &self.chunks {
            check_key(info)?;
            match source {
                // Never larger than a chunk may be.
                Source::Shared(_) => look.has_shared = true,
                Source::Owned(bytes) => check_size(bytes.0.size_bytes())?,
                Source::Borrowed(_) | Source::Scraped(_) => {
                    look.is_owned = false;
                    check_size(source.most_bytes())?;
                }
            }
            let key = key_of(info.producer_id_trusted, info.writer_id);
            is_of_one &= *look.only_writer.get_or_insert(key) == key;
        }
        look.only_writer = look.only_writer.filter(|_| is_of_one);
        Ok(look)
    }

    /// Whether all that is in the batch is chunks of that writer in the batch's shared memory, which can only be in order.
    #[inline]
    pub(crate) fn is_only_shared_of(&self, writer: Key) -> bool {
        let is_one = |(info, source): &(ChunkInfo, Source<'_>)| {
            matches!(source, Source::Shared(_)) && key_of(info.producer_id_trusted, info.writer_id) == writer
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

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.has_only_chunks()
    }
}

/// The sequence of a writer's chunks.
#[inline]
pub(crate) fn key_of(producer: ProducerId, writer: WriterId) -> Key {
    Key::new(producer.0, writer.0)
}

/// A chunk in shared memory as the engine sees it: bytes that may change at any time.
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
