//! The buffer as its users see it.

use std::sync::Arc;

use watershed_engine::{BufferConfig, CreateError, FillPolicy, OverwriteSink, mem::Region};

use crate::commit::Committer;
use crate::config::{Reduced, Report, ShardedConfig};
use crate::directory::Directory;
use crate::drain::Drained;
use crate::extents::{Cutting, Pool};
use crate::inner::{Inner, Places, oldest_of_none};
use crate::own::Owned;
use crate::read::{PacketWriter, ReadPass};
use crate::sync::AtomicU32;
use crate::ticket::Tickets;
use crate::topology::MAX_SHARDS;
use crate::wish::Debts;
use crate::word::OwnerId;
use crate::worker::Workers;

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
    /// Makes an empty buffer. Nothing of its memory is touched, shards are made at their first commit. On Linux the first buffer without workers of a
    /// process that has threads takes some milliseconds longer: the system is asked for `membarrier`.
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
        if !config.has_workers {
            crate::barrier::prepare();
        }
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

    /// Shards whose word a committer keeps between its commits: a hint.
    #[doc(hidden)]
    pub fn num_kept(&self) -> usize {
        self.inner.places.made().filter(|(_, place)| place.word.is_kept()).count()
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
    pub(crate) fn for_each(&self, mut look: impl FnMut(&mut Owned<'_>)) {
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

    /// Does what waits at a shard for one turn and leaves the rest, as a thread that loses its processor behind it. For tests.
    #[doc(hidden)]
    pub fn take_turn(&self, shard: usize) {
        Owned::wait_for(&self.inner, shard, self.owner, |_, _| {}).drain(true);
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
