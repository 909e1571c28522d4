//! The buffer, put together from its parts, and what can be asked of it.
//!
//! ```text
//!   TraceBuffer  writer   policy; scratch memory of commits
//!                evictor  overwrite sink
//!                reader   the read pass
//!                store    ring (bytes, cursor, extents), index (records, sequences), accounts
//! ```

#[cfg(any(test, feature = "testing"))]
mod check;
pub(crate) mod shard;
mod snapshot;

use std::sync::Arc;

use crate::accounts::{Accounts, BufferStats, Ledger};
use crate::config::{BufferConfig, ChunkInfo, CreateError, FillPolicy, Patch, Refused};
use crate::evict::Evictor;
use crate::evict::sink::OverwriteSink;
use crate::ids::{ChunkId, LossReasons, ProducerId, WriterId, key_of};
use crate::index::Index;
use crate::index::histograms::WriterStats;
use crate::packet::Packet;
use crate::read::Reader;
use crate::ring::Ring;
use crate::ring::mem::Region;
use crate::ring::space::Space;
use crate::store::Store;
use crate::write::source::ByteSource;
use crate::write::{self, CommitScratch, WriteParts, Writer};

/// A trace buffer of one shard.
///
/// One thread at a time writes and reads; the buffer may move between threads. See the crate's
/// documentation for what it keeps and promises.
pub struct TraceBuffer {
    store: Store,
    reader: Reader,
    evictor: Evictor,
    writer: Writer,
    /// None before the first commit.
    scratch: Option<Box<CommitScratch>>,
    is_read_only: bool,
}

impl TraceBuffer {
    /// Makes an empty buffer. Costs a few system calls whatever its size: memory is used as it is
    /// written.
    ///
    /// # Errors
    /// If the size is above [`BufferConfig::MAX_SIZE_BYTES`], or the system has no memory or
    /// addresses left.
    pub fn create(config: &BufferConfig) -> Result<TraceBuffer, CreateError> {
        let size_bytes = config.size_bytes;
        if size_bytes > BufferConfig::MAX_SIZE_BYTES {
            return Err(CreateError::TooLarge { size_bytes });
        }
        let size_bytes = size_bytes.max(1).next_multiple_of(4096);
        let region = Region::map(size_bytes, config.huge_pages)
            .map_err(|source| CreateError::NoMemory { size_bytes, source })?;
        let ring = Ring::new(Arc::new(region), Space::new(size_bytes));
        Ok(Self::in_ring(ring, Index::new(false), config.policy))
    }

    fn in_ring(ring: Ring, index: Index, policy: FillPolicy) -> TraceBuffer {
        let accounts = Accounts::new(ring.space.size_bytes());
        TraceBuffer {
            store: Store { ring, index, accounts },
            reader: Reader::default(),
            evictor: Evictor::default(),
            writer: Writer::new(policy),
            scratch: None,
            is_read_only: false,
        }
    }

    /// Bytes for records: the size that was asked for, rounded up to a multiple of 4096.
    pub fn size_bytes(&self) -> usize {
        self.store.ring.space.size_bytes()
    }

    /// The most bytes that records have ever covered. The bytes of the ring behind it are zero.
    pub fn used_size_bytes(&self) -> usize {
        self.store.ring.space.used_bytes()
    }

    /// Offset at which the next record will be written if it fits there. Equal to the size when the
    /// buffer is exactly full.
    pub fn write_offset(&self) -> usize {
        self.store.ring.space.cursor()
    }

    /// What the buffer does when it is full.
    pub fn policy(&self) -> FillPolicy {
        self.writer.policy
    }

    /// Whether a DISCARD buffer has met a chunk that did not fit. The feature `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_sealed(&self) -> bool {
        self.writer.is_sealed()
    }

    /// Whether anything was ever written. Reading does not change the answer.
    pub fn has_data(&self) -> bool {
        self.used_size_bytes() > 0
    }

    /// Memory of the buffer: its size, and what is kept beside the payload (records,
    /// sequences, sizes of fragments, histograms), as far as that has been used. Walks the
    /// sequences: not for hot paths.
    pub fn memory_usage_bytes(&self) -> usize {
        self.size_bytes() + self.metadata_bytes()
    }

    /// What is kept beside the payload, in bytes.
    pub fn metadata_bytes(&self) -> usize {
        self.store.index.memory_bytes()
    }

    /// The ring's bytes: records of 16-byte headers and payload, as `docs/trace-buffer.md` lays
    /// them out.
    // Exclusive: some writes to headers are deferred until somebody looks.
    pub fn ring(&mut self) -> &[u8] {
        self.reader.flush(&mut self.store);
        self.store.ring.flush_padding();
        self.store.ring.region().as_slice()
    }

    /// What was counted.
    pub fn stats(&self) -> BufferStats {
        self.reader.accounts(&self.store).stats
    }

    /// Where every record went.
    pub fn ledger(&self) -> Ledger {
        self.reader.accounts(&self.store).ledger(self.store.index.sequences.forgotten)
    }

    /// The histogram of every writer that has committed a chunk, in the order of their first
    /// chunks.
    pub fn writer_stats(&self) -> impl ExactSizeIterator<Item = WriterStats> + use<> {
        self.store.index.writer_stats().into_iter()
    }

    /// From now on nothing but reading changes the buffer. Irrevocable.
    pub fn set_read_only(&mut self) {
        self.is_read_only = true;
    }

    /// Sets who is shown the packets that are overwritten, in place of who was. With a sink every
    /// eviction goes through the fragments, which is slower.
    pub fn set_overwrite_sink(&mut self, sink: Option<Box<dyn OverwriteSink>>) {
        self.evictor.set_sink(sink);
    }

    #[inline(always)]
    fn write_parts(&mut self) -> WriteParts<'_> {
        let TraceBuffer { store, reader, evictor, writer, .. } = self;
        WriteParts { store, reader, evictor, writer }
    }

    /// Commits a chunk: copies its complete fragments into the ring. Whatever is wrong with its
    /// bytes is counted, never an error. Ends the current read pass.
    ///
    /// # Errors
    /// If the call itself is wrong: see [`Refused`]. Then nothing has changed.
    #[inline(always)]
    pub fn copy_chunk_untrusted<S: ByteSource + ?Sized>(
        &mut self,
        info: &ChunkInfo,
        source: &S,
    ) -> Result<(), Refused> {
        if self.is_read_only {
            return Err(Refused::ReadOnly);
        }
        let size_bytes = source.size_bytes();
        let key = write::admit(&self.store.index, info, size_bytes)?;
        self.reader.interrupt(&mut self.store);
        let TraceBuffer { store, reader, evictor, writer, scratch, .. } = self;
        let scratch = scratch.get_or_insert_with(CommitScratch::new);
        WriteParts { store, reader, evictor, writer }.commit(key, info, size_bytes, source, scratch);
        Ok(())
    }

    /// Writes patches into a chunk that was committed before; all of them, or none. If no others
    /// are pending, the chunk's last fragment may be read from the next read pass on. Ends the
    /// current read pass.
    ///
    /// False, and one failure counted, if the chunk is not there (any more), or if a patch does not
    /// lie inside of its visible bytes or touches the size of a fragment. On a read-only buffer
    /// nothing is done or counted.
    #[inline]
    pub fn try_patch(
        &mut self,
        producer: ProducerId,
        writer: WriterId,
        chunk: ChunkId,
        patches: &[Patch],
        other_patches_pending: bool,
    ) -> bool {
        if self.is_read_only {
            return false;
        }
        self.write_parts().try_patch(key_of(producer, writer), chunk, patches, other_patches_pending)
    }

    /// The writer has ended and its id may be given to another. From now on a chunk id that is not
    /// newer than those known starts a new life of the sequence: it is neither refused nor a gap. A
    /// newer id goes on in the old life. Nothing happens on a read-only buffer.
    pub fn end_writer(&mut self, producer: ProducerId, writer: WriterId) {
        if !self.is_read_only {
            self.reader.interrupt(&mut self.store);
            self.store.index.sequences.end_writer(key_of(producer, writer));
        }
    }

    /// The producer has ended and its id may be given to another: the next chunk of each of its
    /// sequences starts a new life, and sequences without records and pending losses are dropped.
    /// Nothing happens on a read-only buffer.
    pub fn end_producer(&mut self, producer: ProducerId) {
        if !self.is_read_only {
            self.reader.interrupt(&mut self.store);
            self.store.index.sequences.end_producer(producer.0);
        }
    }

    /// Starts a read pass at the oldest data. Sequences that stalled are tried again.
    pub fn begin_read(&mut self) {
        self.reader.begin(&mut self.store);
    }

    /// The next packet of the pass; none when there is no more, or since something was written. The
    /// packet is consumed.
    ///
    /// Packets of one sequence come in the order of writing. Packets of different sequences come in
    /// the order of their chunks; a packet that goes on in later chunks comes where its first is.
    // Always inlined: returned through memory a packet costs more than everything else that is done
    // for it (`packet::Pieces`).
    #[inline(always)]
    pub fn read_next(&mut self) -> Option<Packet<'_>> {
        self.reader.next(&mut self.store)
    }

    /// Starts a read pass whose packets may be held together.
    pub fn read_pass(&mut self) -> ReadPass<'_> {
        self.begin_read();
        ReadPass { buffer: self }
    }

    /// Gives loss reasons back to a sequence: they will come with its next packet. For a reader
    /// that throws a packet away, whose reasons would be lost with it. Nothing happens if the
    /// sequence is not known. Works on read-only buffers and does not end a read pass.
    pub fn return_loss(&mut self, producer: ProducerId, writer: WriterId, loss: LossReasons) {
        let key = key_of(producer, writer);
        if !loss.is_empty() && key != 0 {
            // Nothing is lost before the packets that the fragment cursor has.
            self.reader.flush(&mut self.store);
            let index = &mut self.store.index;
            if let Some(sequence) = index.open(key) {
                index.sequences.get_mut(sequence).add_loss(loss);
                index.sequences.release(sequence);
            }
        }
    }
}

impl std::fmt::Debug for TraceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceBuffer")
            .field("policy", &self.policy())
            .field("space", &self.store.ring.space)
            .field("records", &self.store.index.records.slots().count())
            .field("stats", &self.stats())
            .field("ledger", &self.ledger())
            .finish_non_exhaustive()
    }
}

/// A read pass whose packets stay valid as long as it does. Dropping it keeps what was not read for
/// the next pass.
pub struct ReadPass<'a> {
    buffer: &'a mut TraceBuffer,
}

impl<'a> Iterator for ReadPass<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        let TraceBuffer { store, reader, .. } = &mut *self.buffer;
        reader.next_kept(store)
    }
}
