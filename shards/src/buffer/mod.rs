//! The buffer: a ring, or several, as one.

pub(crate) mod config;
mod prefault;
pub(crate) mod snapshot;
pub(crate) mod stats;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use watershed_engine::{BufferConfig, CreateError, FillPolicy, mem::Region};

use crate::batch::key_of;
use crate::buffer::config::{Reduced, Report, ShardedConfig};
use crate::commit::Committer;
use crate::read::merge::Reading;
use crate::read::{PacketWriter, ReadPass};
use crate::shard::budget::DrainBudget;
use crate::shard::drain::lock_drained;
use crate::shard::guard::ShardGuard;
use crate::shard::topology::MAX_SHARDS;
use crate::shard::{ShardSlot, Shared, SharedConfig};
use crate::sync::extent_pool::ExtentLayout;
use crate::sync::lock::OwnerId;
use crate::sync::{AtomicUsize, Ordering};

/// A trace buffer for many threads. All methods take `&self`.
#[derive(Debug)]
pub struct ShardedBuffer {
    pub(crate) shared: Arc<Shared>,
    /// What was extracted and not handed out: for one read pass at a time.
    reading: Mutex<Reading>,
    pub(crate) owner: OwnerId,
    pub(crate) report: Report,
    /// For a clone: reads end at this ticket.
    pub(crate) limit: Option<u64>,
    /// Memory up to here has been made ready.
    prefaulted_bytes: AtomicUsize,
}

impl ShardedBuffer {
    /// Makes an empty buffer. Nothing of its memory is touched; shards are made at their first
    /// commit.
    ///
    /// # Errors
    /// [`CreateError`]: the size is out of range, or the system has no memory.
    pub fn create(config: ShardedConfig) -> Result<ShardedBuffer, CreateError> {
        let size_bytes = config.buffer.size_bytes;
        if size_bytes > BufferConfig::MAX_SIZE_BYTES {
            return Err(CreateError::TooLarge { size_bytes });
        }
        let size_bytes = size_bytes.max(1).next_multiple_of(4096);
        let wanted =
            config.num_shards.unwrap_or_else(|| config.topology.default_num_shards()).clamp(1, MAX_SHARDS);
        let (most, reason) = match config.buffer.policy {
            FillPolicy::Discard => (1, Reduced::Discard),
            FillPolicy::RingBuffer => (wanted, Reduced::TooSmall),
        };
        let layout = ExtentLayout::new(size_bytes, most, config.page_bytes);
        let no_memory = |source| CreateError::NoMemory { size_bytes, source };
        let region = Arc::new(Region::map(size_bytes, config.buffer.huge_pages).map_err(no_memory)?);
        let pages = region.granted();
        let shared_config = SharedConfig {
            layout,
            policy: config.buffer.policy,
            region,
            topology: config.topology,
            workers: config.workers.as_ref().map(|pool| pool.link(layout.num_shards)),
            homes: config.homes,
        };
        let shared = Arc::new(Shared::new(shared_config, config.queue_capacity.max(1)));
        if let Some(link) = &shared.config.workers {
            link.start(&shared);
        }
        #[cfg(any(test, feature = "testing"))]
        testing::note_made(&shared);
        let report = Report {
            layout,
            num_shards_wanted: wanted,
            reduced: (layout.num_shards < wanted).then_some(reason),
            pages,
            held: Duration::ZERO,
        };
        let (reading, owner) = (Mutex::default(), OwnerId((1 << 28) + 1));
        let prefaulted_bytes = AtomicUsize::new(0);
        Ok(ShardedBuffer { shared, reading, owner, report, limit: None, prefaulted_bytes })
    }

    /// Goes on for the writers of another buffer, whose place this one takes: of a chunk that is
    /// committed there and again here, only what a reader cannot get there is read here. Waits for
    /// the owners of the other's shards, and drains them. To be called before anything is committed
    /// here: of writers that are known here nothing is remembered.
    pub fn remember_from(&self, other: &ShardedBuffer) {
        other.for_each_shard(|guard| {
            let mut own = self.lock(guard.shard % self.shared.slots.len());
            let home = own.shard as u16;
            for (producer, writer) in own.engine().remember_from(guard.engine()) {
                self.shared.directory.home_or(key_of(producer, writer), || home);
            }
        });
    }

    /// What the buffer was made of.
    pub fn report(&self) -> Report {
        self.report
    }

    /// Bytes for records.
    pub fn size_bytes(&self) -> usize {
        self.shared.config.region.size_bytes()
    }

    /// Access for one thread that commits. None for a clone, which is read-only.
    pub fn committer(&self) -> Option<Committer> {
        self.limit.is_none().then(|| Committer::new(&self.shared))
    }

    /// Goes on, for one budget, with work that commits and reads have left because theirs was
    /// spent. True if there is more to go on with. Without workers it would wait for the next of
    /// them: to be called, time and again, by a thread that has nothing else to do.
    pub fn drain_some(&self) -> bool {
        let mut budget = DrainBudget::new();
        self.shared.run_pending_drains(self.owner, &mut budget);
        budget.is_spent() && self.shared.pending_drains.any()
    }

    /// Whether commits or reads have left something because their budget was spent. Somebody has to
    /// [`drain_some`](Self::drain_some) then, unless others commit for certain.
    pub fn has_left_work(&self) -> bool {
        self.shared.pending_drains.any()
    }

    /// Drains each shard up to a cut: then there is room in the queues. Waits for shards that
    /// others own.
    pub fn drain(&self) {
        self.for_each_shard(|_| {});
    }

    /// After a [`QueueFull`](crate::QueueFull): asks that [`WorkerPool::on_room`](crate::WorkerPool::on_room) be called once
    /// there is room. The caller must then try once more, since there may be room already.
    pub fn want_room(&self) {
        let slots = || self.shared.slots.made().map(|(_, slot)| slot);
        let want = |slot: &ShardSlot| slot.hints.is_room_wanted.store(true, Ordering::SeqCst);
        if slots().any(|slot| !slot.queue.has_room()) {
            slots().filter(|slot| !slot.queue.has_room()).for_each(want);
        } else {
            // It is nodes that are missing: they come back from any shard.
            slots().for_each(want);
        }
    }

    /// Starts a read pass over what a [`cut`](Self::cut) covers that was taken before. One at a
    /// time: a second one waits until the first is dropped.
    pub fn read_pass_to<W: PacketWriter>(&self, cut: u64, writer: W) -> ReadPass<'_, W> {
        let cut = self.limit.map_or(cut, |limit| limit.min(cut));
        ReadPass::begin(&self.shared, &self.reading, writer, self.owner, cut)
    }

    /// A ticket below which everything has been committed. Of a clone that at which it was made.
    pub fn cut(&self) -> u64 {
        self.limit.unwrap_or_else(|| self.shared.tickets.cut())
    }

    /// Bytes that were extracted for a read and not handed out. They count as unread. Also during a
    /// read pass, whose thread may call it.
    pub fn extracted_bytes(&self) -> usize {
        self.shared.extracted_bytes.load(Ordering::Relaxed)
    }

    /// Locks a shard, waiting for its owner.
    pub(crate) fn lock(&self, shard: usize) -> ShardGuard<'_> {
        ShardGuard::lock(&self.shared, shard, self.owner)
    }

    /// Locks a shard in which all that the cut covers has been written, waiting for its owner.
    pub(crate) fn lock_drained(&self, shard: usize, cut: u64) -> ShardGuard<'_> {
        lock_drained(&self.shared, (shard, cut), self.owner)
    }

    /// Visits each shard that was ever used, locked and drained up to a cut, one after another.
    pub(crate) fn for_each_shard(&self, visit: impl FnMut(&mut ShardGuard<'_>)) {
        self.for_each_of(self.shared.slots.made().map(|(shard, _)| shard), visit);
    }

    /// As [`for_each_shard`](Self::for_each_shard), of some shards.
    fn for_each_of(&self, shards: impl Iterator<Item = usize>, mut visit: impl FnMut(&mut ShardGuard<'_>)) {
        let cut = self.shared.tickets.cut();
        let mut budget = DrainBudget::new();
        for shard in shards {
            let mut guard = self.lock_drained(shard, cut);
            visit(&mut guard);
            guard.unlock_read(&mut budget);
        }
    }
}

impl Drop for ShardedBuffer {
    fn drop(&mut self) {
        if let Some(link) = &self.shared.config.workers {
            link.end();
        }
        // Committers may outlive the buffer. What one of them is writing now is its own to finish,
        // and what it pushes later is dropped with the last of them. A worker is waited for: it has
        // a shard for one budget.
        for (shard, _) in self.shared.slots.made() {
            let guard = match self.shared.has_workers {
                true => Some(self.lock(shard)),
                false => ShardGuard::try_lock(&self.shared, shard, self.owner),
            };
            if let Some(mut guard) = guard {
                guard.discard_queue();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::sync::directory::Key;
    use std::convert::Infallible;
    use watershed_engine::{ChunkInfo, Packet, ProducerId, WriterId};

    /// A home is removed when no committer has a ticket from before the sequence left and has not
    /// pushed yet.
    #[test]
    fn a_home_stays_while_a_committer_may_be_about_to_push_to_it() {
        let config = ShardedConfig { num_shards: Some(2), ..ShardedConfig::ring(4 << 20) };
        let buffer = ShardedBuffer::create(config).unwrap();
        let mut committers = [(); 3].map(|()| buffer.committer().unwrap());
        let [committer, before, after] = &mut committers;
        let has_home = || {
            // The owner of a shard releases the homes of sequences that have left.
            buffer.ledger();
            buffer.shared.directory.home(Key::new(1, 1)).is_some()
        };
        let info = ChunkInfo {
            producer_id_trusted: ProducerId(1),
            writer_id: WriterId(1),
            num_fragments: 1,
            complete: true,
            ..ChunkInfo::default()
        };
        committer.commit_chunk(&info, b"\x01.").unwrap();
        let ticket_before = before.stop_with_ticket();
        committer.commit(&mut Batch { ended_producers: vec![ProducerId(1)], ..Batch::default() }).unwrap();
        let mut pass = buffer.read_pass(|_: &Packet<'_>, _: &mut Vec<u8>| true);
        pass.write_all(|_| Ok::<_, Infallible>(())).unwrap();
        drop(pass);
        assert!(has_home(), "one has a ticket from before");
        let ticket_after = after.stop_with_ticket();
        assert!(has_home(), "still");
        before.resume_with_ticket(ticket_before, &mut Batch::default()).unwrap();
        assert!(!has_home(), "the other ticket is from after it");
        after.resume_with_ticket(ticket_after, &mut Batch::default()).unwrap();
    }
}
