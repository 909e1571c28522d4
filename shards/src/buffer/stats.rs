//! Statistics and histograms of all shards: at once, or bit by bit without waiting.

use std::sync::Arc;

use watershed_engine::{BufferStats, ProducerId, WriterId, WriterStats};

use crate::batch::key_of;
use crate::buffer::ShardedBuffer;
use crate::shard::Shared;
use crate::shard::budget::DrainBudget;
use crate::shard::drain::poll_drained;
use crate::shard::guard::ShardGuard;
use crate::sync::lock::OwnerId;

/// What was lost with shards whose engine has panicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Poisoned {
    /// How many these are.
    pub shards: u64,
    /// Chunks that they had and nobody had read, were damaged there before, or came since.
    pub chunks: u64,
}

/// What a buffer has to tell of all its shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// In sum. Without evictions each field is what one shard would say, but for wraps and padding:
    /// wraps are the bytes of evicted extents divided by the size of the buffer, padding is the
    /// tails of sealed extents.
    pub buffer: BufferStats,
    /// What was lost with shards that have panicked.
    pub poisoned: Poisoned,
    /// The histograms of all writers, sorted by producer and writer.
    pub writers: Vec<WriterStats>,
}

/// Statistics that are being gathered, shard by shard, while nobody waits for it.
#[derive(Debug)]
pub struct StatsPass {
    shared: Arc<Shared>,
    owner: OwnerId,
    cut: u64,
    /// Shards that are still to be asked.
    left: Vec<usize>,
    evicted_bytes: u64,
    sum: Statistics,
}

impl ShardedBuffer {
    /// Whether anything was ever committed. Waits for nobody.
    pub fn has_data(&self) -> bool {
        self.cut() != 0
    }

    /// Whether something may be left of a sequence: a chunk, or what is remembered of it.
    pub fn has_sequence(&self, producer_id: ProducerId, writer_id: WriterId) -> bool {
        self.shared.directory.home(key_of(producer_id, writer_id)).is_some()
    }

    /// Statistics of all that has been committed. Waits for the owners of the shards.
    pub fn statistics(&self) -> Statistics {
        let mut pass = self.begin_statistics();
        self.for_each_of(std::mem::take(&mut pass.left).into_iter(), |guard| pass.add(guard));
        pass.finish()
    }

    /// Begins to gather the statistics of all that has been committed, without waiting.
    pub fn begin_statistics(&self) -> StatsPass {
        let cut = self.cut();
        StatsPass {
            shared: Arc::clone(&self.shared),
            owner: self.owner,
            cut,
            left: self.shared.slots.made().map(|(shard, _)| shard).collect(),
            evicted_bytes: 0,
            sum: Statistics::default(),
        }
    }

    /// How many shards have panicked, as far as this thread knows. Waits for nobody.
    pub fn num_poisoned(&self) -> u64 {
        self.poisoned_shards().count() as u64
    }

    pub(super) fn poisoned_shards(&self) -> impl Iterator<Item = usize> {
        self.shared.slots.made().map(|(shard, _)| shard).filter(|&shard| self.shared.is_poisoned(shard))
    }

    /// Shards that have panicked, and what was lost there. Costs next to nothing while there is
    /// none, and waits for the owners of those alone.
    pub fn poisoned(&self) -> Poisoned {
        let mut sum = Poisoned::default();
        self.for_each_of(self.poisoned_shards(), |guard| add_poisoned(&mut sum, guard));
        sum
    }

    /// About how much there is to read: bytes of all records, with their headers. Waits for each
    /// shard's owner, as statistics do.
    pub fn listed_bytes(&self) -> u64 {
        let mut sum_bytes = 0;
        self.for_each_shard(|guard| {
            sum_bytes += guard.state.engine.as_ref().map_or(0, |engine| engine.ledger().listed.bytes);
        });
        sum_bytes
    }
}

impl StatsPass {
    /// Goes on with shards that nobody else has locked and in which all has been written. None: not
    /// yet, there are others. Where there are workers, these go on with what is to be written, and
    /// this is to be tried again when [they tell](crate::WorkerPool::on_ready); else it writes some
    /// of it itself. Never waits.
    pub fn try_finish(&mut self) -> Option<Statistics> {
        let (shared, cut, owner) = (Arc::clone(&self.shared), self.cut, self.owner);
        let (mut left, mut budget) = (std::mem::take(&mut self.left), DrainBudget::new());
        left.retain(|&shard| {
            let guard = poll_drained(&shared, (shard, cut), owner, &mut budget);
            let visited = guard.inspect(|guard| self.add(guard));
            visited.map(|guard| guard.unlock_read(&mut budget)).is_none()
        });
        self.left = left;
        self.left.is_empty().then(|| self.finish())
    }

    fn add(&mut self, guard: &ShardGuard<'_>) {
        let Some(engine) = &guard.state.engine else { return };
        let Statistics { buffer, poisoned, writers } = &mut self.sum;
        add_stats(buffer, &engine.stats());
        self.evicted_bytes += engine.evicted_bytes();
        add_poisoned(poisoned, guard);
        writers.extend(engine.writer_stats());
    }

    fn finish(&mut self) -> Statistics {
        let mut sum = std::mem::take(&mut self.sum);
        let size_bytes = self.shared.config.region.size_bytes() as u64;
        if self.shared.has_extents() {
            sum.buffer.write_wrap_count = self.evicted_bytes / size_bytes;
        }
        sum.buffer.buffer_size = size_bytes;
        sum.writers.sort_unstable_by_key(|stats| (stats.producer_id, stats.writer_id));
        sum
    }
}

impl Drop for StatsPass {
    fn drop(&mut self) {
        for &shard in &self.left {
            ShardGuard::stop_waiting(&self.shared, shard, self.owner);
        }
    }
}

fn add_poisoned(sum: &mut Poisoned, guard: &ShardGuard<'_>) {
    if let (true, Some(engine)) = (guard.state.is_poisoned, &guard.state.engine) {
        let discarded = engine.stats().chunks_discarded - guard.state.discarded_before_poison;
        sum.shards += 1;
        sum.chunks += engine.ledger().damaged.chunks + discarded;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field is named here, so that none is forgotten above.
    #[test]
    fn every_field_is_in_the_sum() {
        let mut next = 0;
        let mut number = || {
            next += 1;
            next
        };
        let part = BufferStats {
            buffer_size: 0,
            bytes_written: number(),
            bytes_overwritten: number(),
            bytes_read: number(),
            padding_bytes_written: number(),
            padding_bytes_cleared: number(),
            chunks_written: number(),
            chunks_overwritten: number(),
            chunks_read: number(),
            chunks_rewritten: number(),
            chunks_relocated: number(),
            chunks_discarded: number(),
            chunks_committed_out_of_order: number(),
            write_wrap_count: number(),
            patches_succeeded: number(),
            patches_failed: number(),
            readaheads_succeeded: number(),
            readaheads_failed: number(),
            abi_violations: number(),
            trace_writer_packet_loss: number(),
        };
        let mut sum = BufferStats::default();
        add_stats(&mut sum, &part);
        assert_eq!(sum, part);
    }
}
