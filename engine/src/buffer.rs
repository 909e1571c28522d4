//! The buffer: its parts, and what can be asked of it.

use std::sync::Arc;

use watershed_simd::Span;
use watershed_simd::shared::Headers;

use crate::config::{BufferConfig, ChunkInfo, CreateError, FillPolicy, HugePages};
use crate::histogram::{Histograms, WriterStats};
use crate::identity::Identities;
use crate::ids::{LossReasons, ProducerId, WriterId, key_of};
use crate::mem::{Ahead, Region};
use crate::packet::SliceArena;
use crate::read::Reader;
use crate::records::{NONE, Records, Slot};
use crate::sequences::Sequences;
use crate::sink::OverwriteSink;
use crate::sizes::SMALL_ENTRIES;
use crate::space::Space;
use crate::stats::{Books, BufferStats};
use crate::tbchunk::RingMemory;
use crate::tickets::Tickets;

/// Fragments that are sized at a time.
pub(crate) const SPANS: usize = 1024;

/// Memory that is used again by each commit.
pub(crate) struct CommitScratch {
    /// Private copy of a chunk whose source may change. Stays in the cache from chunk to chunk.
    pub(crate) staging: [u8; ChunkInfo::MAX_SIZE_BYTES + 1],
    /// Fragments of the chunk that is being committed.
    pub(crate) spans: [Span; SPANS],
    /// The same of an ordinary chunk.
    pub(crate) entries: [u16; SMALL_ENTRIES],
    /// Its headers, if it is taken from where others may write.
    pub(crate) headers: Headers,
}

impl CommitScratch {
    pub(crate) fn new() -> Box<CommitScratch> {
        Box::new(CommitScratch {
            staging: [0; ChunkInfo::MAX_SIZE_BYTES + 1],
            spans: [Span::default(); SPANS],
            entries: [0; SMALL_ENTRIES],
            headers: Headers::default(),
        })
    }
}

/// Memory that is used again by each call.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Records that hold the rest of a packet, after the one where it begins.
    pub(crate) chain: Vec<Slot>,
    /// Bodies of the packet's fragments.
    pub(crate) bodies: Vec<*const [u8]>,
    /// Offsets of patches, in order.
    pub(crate) offsets: Vec<u32>,
}

// SAFETY: the pointers in `bodies` are written and read within one call.
unsafe impl Send for Scratch {}
// SAFETY: a shared scratch is not used.
unsafe impl Sync for Scratch {}

/// A trace buffer of one shard.
///
/// One thread at a time writes and reads; the buffer may move between threads. See the crate's documentation for what it keeps and promises.
pub struct TraceBuffer {
    pub(crate) ring: RingMemory,
    pub(crate) space: Space,
    /// During a first lap that is worth it.
    pub(crate) ahead: Option<Ahead>,
    pub(crate) records: Records,
    pub(crate) sequences: Sequences,
    pub(crate) identities: Identities,
    pub(crate) histograms: Histograms,
    pub(crate) policy: FillPolicy,
    /// A chunk did not fit into a DISCARD buffer.
    pub(crate) is_sealed: bool,
    pub(crate) is_read_only: bool,
    /// The sequence that is being written, which must stay live although it may be empty for a moment.
    pub(crate) pinned: u32,
    /// Number of the newest read pass.
    pub(crate) generation: u32,
    pub(crate) reader: Reader,
    pub(crate) arena: SliceArena,
    pub(crate) scratch: Scratch,
    /// Away while a commit uses it; made by the first.
    pub(crate) commit_scratch: Option<Box<CommitScratch>>,
    pub(crate) sink: Option<Box<dyn OverwriteSink>>,
    /// Not there in a buffer that is used by itself.
    pub(crate) tickets: Option<Box<Tickets>>,
    pub(crate) stats: BufferStats,
    pub(crate) books: Books,
}

impl TraceBuffer {
    /// Makes an empty buffer. Costs a few system calls whatever its size: memory is used as it is written.
    ///
    /// # Errors
    /// If the size is above [`BufferConfig::MAX_SIZE_BYTES`], or the system has no memory or addresses left.
    pub fn create(config: &BufferConfig) -> Result<TraceBuffer, CreateError> {
        let size_bytes = config.size_bytes;
        if size_bytes > BufferConfig::MAX_SIZE_BYTES {
            return Err(CreateError::TooLarge { size_bytes });
        }
        let size_bytes = size_bytes.max(1).next_multiple_of(4096);
        let region = Region::map(size_bytes, config.huge_pages)
            .map_err(|source| CreateError::NoMemory { size_bytes, source })?;
        let space = Space::new(size_bytes, Ahead::first_stop(&region));
        Ok(Self::with_space(Arc::new(region), space, config.policy))
    }

    pub(crate) fn with_space(region: Arc<Region>, space: Space, policy: FillPolicy) -> TraceBuffer {
        let size_bytes = region.size_bytes();
        TraceBuffer {
            ring: RingMemory::new(region),
            space,
            ahead: None,
            records: Records::new(),
            sequences: Sequences::new(),
            identities: Identities::default(),
            histograms: Histograms::default(),
            policy,
            is_sealed: false,
            is_read_only: false,
            pinned: NONE,
            generation: 0,
            reader: Reader::default(),
            arena: SliceArena::default(),
            scratch: Scratch::default(),
            commit_scratch: None,
            sink: None,
            tickets: None,
            stats: BufferStats { buffer_size: size_bytes as u64, ..BufferStats::default() },
            books: Books::default(),
        }
    }

    /// Bytes for records: the size that was asked for, rounded up to a multiple of 4096.
    pub fn size_bytes(&self) -> usize {
        self.space.size_bytes()
    }

    /// The most bytes that records have ever covered. The bytes of the ring behind it are zero.
    pub fn used_size_bytes(&self) -> usize {
        self.space.used_bytes()
    }

    /// Offset at which the next record will be written if it fits there. Equal to the size when the buffer is exactly full.
    pub fn write_offset(&self) -> usize {
        self.space.cursor()
    }

    /// What the buffer does when it is full.
    pub fn policy(&self) -> FillPolicy {
        self.policy
    }

    /// Whether a DISCARD buffer has met a chunk that did not fit.
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Whether anything was ever written. Reading does not change the answer.
    pub fn has_data(&self) -> bool {
        self.space.used_bytes() > 0
    }

    /// Which pages the memory is made of: not always what was asked for.
    pub fn granted_pages(&self) -> HugePages {
        self.ring.region().granted()
    }

    /// Memory that the buffer stands for: its size, and what is kept beside the payload (records, sequences, sizes of fragments,
    /// histograms), as far as that has been used. Walks the sequences: not for hot paths.
    pub fn memory_usage_bytes(&self) -> usize {
        self.size_bytes() + self.metadata_bytes()
    }

    /// What is kept beside the payload, in bytes.
    pub fn metadata_bytes(&self) -> usize {
        self.records.memory_bytes()
            + self.sequences.memory_bytes()
            + self.histograms.memory_bytes()
            + self.identities.memory_bytes()
    }

    /// The ring's bytes: records of 16-byte headers and payload, as `docs/trace-buffer.md` lays them out.
    // Exclusive: reads leave headers as they are until somebody looks.
    pub fn ring(&mut self) -> &[u8] {
        self.settle();
        self.ring.region().as_slice()
    }

    /// The histogram of every writer that has committed a chunk, in the order of producer and writer.
    pub fn writer_stats(&self) -> impl ExactSizeIterator<Item = WriterStats> + use<> {
        self.histograms.list(&self.identities).into_iter()
    }

    /// From now on nothing but reading changes the buffer. Irrevocable.
    pub fn set_read_only(&mut self) {
        self.is_read_only = true;
    }

    /// Whether nothing but reading changes the buffer.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Sets who is shown the packets that are overwritten, in place of who was. With a sink every eviction takes packets apart, which is slower.
    pub fn set_overwrite_sink(&mut self, sink: Option<Box<dyn OverwriteSink>>) {
        self.sink = sink;
    }

    /// The writer has ended and its id may be given to another. From now on a chunk id that is not newer than those known starts
    /// a new life of the sequence: it is neither refused nor a gap. A newer id goes on in the old life. Nothing happens on a read-only buffer.
    pub fn end_writer(&mut self, producer: ProducerId, writer: WriterId) {
        if !self.is_read_only {
            self.end_read_pass();
            self.sequences.end_writer(key_of(producer, writer));
        }
    }

    /// The producer has ended and its id may be given to another: the next chunk of each of its sequences starts a new life, and
    /// sequences without records and pending losses are dropped. Nothing happens on a read-only buffer.
    pub fn end_producer(&mut self, producer: ProducerId) {
        if !self.is_read_only {
            self.end_read_pass();
            self.sequences.end_producer(producer.0);
        }
    }

    /// Gives loss reasons back to a sequence: they will come with its next packet. For a reader that throws a packet away, whose reasons would
    /// be lost with it. Nothing happens if the sequence is not known. Works on read-only buffers and does not end a read pass.
    pub fn return_loss(&mut self, producer: ProducerId, writer: WriterId, loss: LossReasons) {
        let key = key_of(producer, writer);
        if !loss.is_empty() && key != 0 {
            // Nothing is lost before the packets of a run.
            self.settle();
            if let Some(index) = self.sequences.open(key, &self.histograms) {
                self.sequences.get_mut(index).add_loss(loss);
                self.sequences.release(index);
            }
        }
    }
}

impl std::fmt::Debug for TraceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceBuffer")
            .field("policy", &self.policy)
            .field("space", &self.space)
            .field("records", &self.records.len())
            .field("stats", &self.stats)
            .field("ledger", &self.ledger())
            .finish_non_exhaustive()
    }
}
