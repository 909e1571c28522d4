//! The buffer as its users see it.

use std::sync::Arc;

use watershed_engine::{
    Amount, BufferConfig, BufferStats, CreateError, FillPolicy, HugePages, Ledger, OverwriteSink,
    WriterStats, mem::Region,
};

use crate::commit::Committer;
use crate::directory::Directory;
use crate::drain::Drained;
use crate::extents::{Cutting, Pool};
use crate::inner::{Inner, Places, oldest_of_none};
use crate::own::Owned;
use crate::read::{PacketWriter, ReadPass};
use crate::sync::AtomicU32;
use crate::ticket::Tickets;
use crate::topology::{MAX_SHARDS, Topology};
use crate::wish::Debts;
use crate::word::OwnerId;
use crate::worker::Workers;

/// How a buffer is made.
#[derive(Clone, Debug)]
pub struct ShardedConfig {
    /// Size, policy, pages.
    pub buffer: BufferConfig,
    /// Shards that are wanted; `None`: one for each CPU that the process may keep busy. At least 1, at most [`MAX_SHARDS`].
    pub num_shards: Option<usize>,
    /// The largest SMB page in use: extents are at least 32 times as large.
    pub page_bytes: usize,
    /// The CPUs.
    pub topology: Topology,
    /// Whether each shard has a thread of its own that drains it. Without, the threads that commit do.
    pub has_workers: bool,
    /// Batches that can wait in the queue of one shard.
    pub queue_capacity: usize,
    /// How sequences get their shards.
    pub homes: Homes,
}

/// Where a new sequence lives, as long as the shard has not many more sequences than others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Homes {
    /// In the shard of the CPU that commits its first chunk.
    #[default]
    OfTheCpu,
    /// In the next shard after that of the sequence before. For one thread that commits for all, whose CPU says nothing; and the same
    /// commits give the same homes again.
    InTurn,
}

impl ShardedConfig {
    /// A ring of `size_bytes` over the CPUs of this process, without workers.
    pub fn ring(size_bytes: usize) -> ShardedConfig {
        ShardedConfig {
            buffer: BufferConfig::ring(size_bytes),
            num_shards: None,
            page_bytes: 4096,
            topology: Topology::of_this_process(),
            has_workers: false,
            queue_capacity: 256,
            homes: Homes::OfTheCpu,
        }
    }
}

/// Why a buffer has fewer shards than were wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduced {
    /// A DISCARD buffer must end exactly: it has one.
    Discard,
    /// A sink must see the order of the whole buffer: it has one.
    Sink,
    /// Each shard needs eight extents of 128 KiB or 32 SMB pages.
    TooSmall,
}

/// What a buffer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Shards, extents.
    pub cutting: Cutting,
    /// Shards that were wanted.
    pub num_shards_wanted: usize,
    /// Why there are fewer, if there are.
    pub reduced: Option<Reduced>,
    /// Which pages the memory is made of.
    pub pages: HugePages,
    /// Workers, and how many of them are pinned: where the system refuses that, they run where they like.
    pub num_workers: usize,
    /// See there.
    pub num_workers_pinned: usize,
}

/// A trace buffer over many cores. Cheap to share: all methods take `&self`.
#[derive(Debug)]
pub struct ShardedBuffer {
    pub(crate) workers: Option<Workers>,
    pub(crate) inner: Arc<Inner>,
    pub(crate) owner: OwnerId,
    pub(crate) report: Report,
    /// A clone is read up to here.
    pub(crate) limit: Option<u64>,
}

impl ShardedBuffer {
    /// Makes an empty buffer. Nothing of its memory is touched, shards are made at their first commit.
    ///
    /// # Errors
    /// [`CreateError`]: the size is out of range, the system has no memory or no threads.
    pub fn create(config: ShardedConfig) -> Result<ShardedBuffer, CreateError> {
        Self::create_with(config, None)
    }

    /// As [`create`](Self::create), with a sink for overwritten packets: the buffer has one shard.
    ///
    /// # Errors
    /// As there.
    pub fn create_with_sink(
        config: ShardedConfig,
        sink: Box<dyn OverwriteSink>,
    ) -> Result<ShardedBuffer, CreateError> {
        Self::create_with(config, Some(sink))
    }

    fn create_with(
        config: ShardedConfig,
        sink: Option<Box<dyn OverwriteSink>>,
    ) -> Result<ShardedBuffer, CreateError> {
        let size_bytes = config.buffer.size_bytes;
        if size_bytes > BufferConfig::MAX_SIZE_BYTES {
            return Err(CreateError::TooLarge { size_bytes });
        }
        let size_bytes = size_bytes.max(1).next_multiple_of(4096);
        let wanted =
            config.num_shards.unwrap_or_else(|| config.topology.default_num_shards()).clamp(1, MAX_SHARDS);
        let (most, reason) = match () {
            () if config.buffer.policy == FillPolicy::Discard => (1, Reduced::Discard),
            () if sink.is_some() => (1, Reduced::Sink),
            () => (wanted, Reduced::TooSmall),
        };
        let cutting = Cutting::new(size_bytes, most, config.page_bytes);
        let no_memory = |source| CreateError::NoMemory { size_bytes, source };
        let region = Arc::new(Region::map(size_bytes, config.buffer.huge_pages).map_err(no_memory)?);
        let pages = region.granted();
        let inner = Arc::new(make_inner(&config, cutting, region));
        if let (Some(sink), Some(mut owned)) = (sink, Owned::try_new(&inner, 0, OwnerId(0))) {
            owned.engine().set_overwrite_sink(Some(sink));
        }
        let workers =
            if config.has_workers { Some(Workers::start(&inner).map_err(no_memory)?) } else { None };
        let report = Report {
            cutting,
            num_shards_wanted: wanted,
            reduced: (cutting.num_shards < wanted).then_some(reason),
            pages,
            num_workers: if config.has_workers { cutting.num_shards } else { 0 },
            num_workers_pinned: workers.as_ref().map_or(0, |workers| workers.num_pinned),
        };
        Ok(ShardedBuffer { workers, inner, owner: OwnerId((1 << 30) + 1), report, limit: None })
    }

    /// What the buffer is made of.
    pub fn report(&self) -> Report {
        self.report
    }

    /// Bytes for records.
    pub fn size_bytes(&self) -> usize {
        self.inner.region.size_bytes()
    }

    /// What the buffer does when it is full.
    pub fn policy(&self) -> FillPolicy {
        self.inner.policy
    }

    /// A way in for one thread. None into a clone.
    pub fn committer(&self) -> Option<Committer> {
        self.limit.is_none().then(|| Committer::new(&self.inner))
    }

    /// Starts a read pass over what has been committed. One pass at a time: a second one waits for the first to be dropped.
    pub fn read_pass<W: PacketWriter>(&self, writer: W) -> ReadPass<'_, W> {
        ReadPass::begin(&self.inner, writer, self.owner, self.limit)
    }

    /// Whether anything was ever committed.
    pub fn has_data(&self) -> bool {
        self.ledger().written.chunks != 0
    }

    /// Statistics of all shards. Without evictions each field is what one shard would say, but for wraps and the two of padding: wraps are the
    /// bytes of evicted extents over the size of the buffer, padding written is the tails of sealed extents.
    pub fn stats(&self) -> BufferStats {
        let mut sum = BufferStats::default();
        let mut evicted_bytes = 0;
        self.for_each(|owned| {
            if let Some(engine) = &owned.state.engine {
                add_stats(&mut sum, &engine.stats());
                evicted_bytes += engine.evicted_bytes();
            }
        });
        if self.inner.has_extents() {
            sum.write_wrap_count = evicted_bytes / self.size_bytes() as u64;
        }
        sum.buffer_size = self.size_bytes() as u64;
        sum
    }

    /// Statistics of each shard, in their order; zeros for one that was never used.
    pub fn shard_stats(&self) -> Vec<(BufferStats, Ledger)> {
        let mut list = vec![Default::default(); self.inner.places.len()];
        self.for_each(|owned| {
            if let Some(engine) = &owned.state.engine {
                list[owned.shard] = (engine.stats(), engine.ledger());
            }
        });
        list
    }

    /// Where every record of all shards went.
    pub fn ledger(&self) -> Ledger {
        let mut sum = Ledger::default();
        self.for_each(|owned| {
            if let Some(engine) = &owned.state.engine {
                add_ledger(&mut sum, engine.ledger());
            }
        });
        sum
    }

    /// The histograms of all writers, in the order of producer and writer.
    pub fn writer_stats(&self) -> Vec<WriterStats> {
        let mut list: Vec<WriterStats> = Vec::new();
        self.for_each(|owned| {
            list.extend(owned.state.engine.iter().flat_map(|engine| engine.writer_stats()))
        });
        list.sort_unstable_by_key(|stats| (stats.producer_id, stats.writer_id));
        list
    }

    /// Bytes that were extracted for a read and not handed out yet. They count as unread.
    pub fn extracted_bytes(&self) -> usize {
        self.inner.reading.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).unread_bytes()
    }

    /// The size, and what is kept beside the payload.
    pub fn memory_usage_bytes(&self) -> usize {
        let mut bytes = self.size_bytes() + self.inner.directory.room_bytes();
        self.for_each(|owned| {
            bytes += owned.state.engine.as_ref().map_or(0, |engine| engine.metadata_bytes())
        });
        bytes
    }

    /// Extents that no shard has: a hint.
    pub fn num_free_extents(&self) -> usize {
        self.inner.pool.num_free_hint()
    }

    /// Takes a shard and drains it.
    pub(crate) fn hold_drained(&self, shard: usize) -> Owned<'_> {
        loop {
            let mut owned = Owned::wait_for(&self.inner, shard, self.owner, |_, _| {});
            match owned.drain(true) {
                Drained::Everything => return owned,
                // The word is given back between two turns: whoever commits there may take it.
                Drained::TurnIsOver => {}
                // Others have all the extents in hand.
                Drained::NoExtent => {
                    drop(owned);
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Looks at each shard that was ever used, drained, one after another.
    fn for_each(&self, mut look: impl FnMut(&mut Owned<'_>)) {
        for (shard, _) in self.inner.places.made() {
            look(&mut self.hold_drained(shard));
            self.inner.look_again(shard, self.owner);
        }
        self.inner.attend(self.owner);
    }

    /// Tests every invariant of the structure. For tests.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut result = Ok(());
        self.for_each(|owned| {
            if let (Ok(()), Some(engine)) = (&result, &mut owned.state.engine) {
                result = engine.check().map_err(|wrong| format!("shard {}: {wrong}", owned.shard));
            }
        });
        result
    }

    /// Stops the worker of a shard before its next batch, until the guard is dropped. For tests and measurements of what that holds up.
    pub fn stop_worker(&self, shard: usize) -> StoppedWorker<'_> {
        StoppedWorker { _gate: self.inner.places.get(shard).bell.stop() }
    }

    /// Stands in for a thread that stops while it has a shard: the shard is nobody else's until the guard is dropped. For tests and
    /// measurements of what that holds up.
    pub fn stop_shard(&self, shard: usize) -> Stopped<'_> {
        Stopped { _owned: Owned::wait_for(&self.inner, shard, OwnerId(STOPPED_OWNER), |_, _| {}) }
    }
}

/// A worker that was stopped between two batches: see [`ShardedBuffer::stop_worker`].
pub struct StoppedWorker<'a> {
    _gate: std::sync::MutexGuard<'a, ()>,
}

/// The number by which a shard that was stopped on purpose names its owner.
pub const STOPPED_OWNER: u32 = 1 << 30;

/// A shard that is held by nobody who works: see [`ShardedBuffer::stop_shard`].
pub struct Stopped<'a> {
    _owned: Owned<'a>,
}

impl Drop for ShardedBuffer {
    fn drop(&mut self) {
        // Threads first: they look at the rest.
        self.workers = None;
    }
}

fn make_inner(config: &ShardedConfig, cutting: Cutting, region: Arc<Region>) -> Inner {
    Inner {
        places: Places::new(cutting.num_shards, config.queue_capacity.max(1)),
        reading: std::sync::Mutex::default(),
        pools: std::sync::Mutex::default(),
        tickets: Tickets::new(),
        directory: Directory::new(),
        pool: Pool::new(if cutting.num_shards > 1 { cutting.num_extents } else { 0 }).into(),
        cutting,
        policy: config.buffer.policy,
        region,
        topology: config.topology.clone(),
        oldest: oldest_of_none(cutting.num_shards),
        // Workers have the first numbers.
        next_owner: AtomicU32::new(MAX_SHARDS as u32),
        live: AtomicU32::new(0).into(),
        debts: Debts::new(),
        has_workers: config.has_workers,
        homes: config.homes,
        next_home: AtomicU32::new(0),
    }
}

macro_rules! add_fields {
    ($sum:expr, $part:expr, $($field:ident)*) => { $( $sum.$field += $part.$field; )* };
}

fn add_stats(sum: &mut BufferStats, part: &BufferStats) {
    add_fields!(sum, part, bytes_written chunks_written bytes_overwritten chunks_overwritten bytes_read chunks_read
        padding_bytes_written padding_bytes_cleared chunks_rewritten chunks_relocated chunks_discarded
        chunks_committed_out_of_order write_wrap_count patches_succeeded patches_failed readaheads_succeeded
        readaheads_failed abi_violations trace_writer_packet_loss);
}

fn add_ledger(sum: &mut Ledger, part: Ledger) {
    let pairs: [(&mut Amount, Amount); 6] = [
        (&mut sum.written, part.written),
        (&mut sum.read, part.read),
        (&mut sum.overwritten, part.overwritten),
        (&mut sum.empty, part.empty),
        (&mut sum.damaged, part.damaged),
        (&mut sum.listed, part.listed),
    ];
    for (sum, part) in pairs {
        sum.chunks += part.chunks;
        sum.bytes += part.bytes;
    }
    add_fields!(sum, part, duplicate_commits forgotten_sequences);
}
