//! What tests and measurements need of a buffer: its invariants, and threads that stop in the
//! middle of their work. The feature `testing`.

use std::io::{self, IoSlice, Write};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use watershed_engine::{BufferStats, CreateError, Ledger, OverwriteSink, WriterStats};

use super::ShardedBuffer;
use crate::read::merge::Pieces;
use crate::read::{PacketWriter, ReadPass};
use crate::shard::Shared;
use crate::shard::budget::DrainBudget;
use crate::shard::guard::ShardGuard;
use crate::sync::Ordering;
use crate::sync::lock::OwnerId;
use crate::sync::reclaim::DrainResult;

impl ShardedBuffer {
    /// Starts a read pass over what has been committed.
    pub fn read_pass<W: PacketWriter>(&self, writer: W) -> ReadPass<'_, W> {
        self.read_pass_to(self.cut(), writer)
    }

    /// A read-only copy into new memory.
    ///
    /// # Errors
    /// As [`clone_in_memory`](Self::clone_in_memory).
    pub fn clone_read_only(&self) -> Result<ShardedBuffer, CreateError> {
        self.clone_in_memory(self.cut(), None)
    }

    /// Shards that have panicked.
    pub fn poisoned_list(&self) -> Vec<usize> {
        self.poisoned_shards().collect()
    }

    /// Bytes of the ring, and of all metadata.
    pub fn memory_usage_bytes(&self) -> usize {
        let mut bytes = self.size_bytes() + self.shared.directory.table_bytes();
        self.for_each_shard(|guard| {
            bytes += guard.state.engine.as_ref().map_or(0, |engine| engine.metadata_bytes())
        });
        bytes
    }

    /// What became of every record of all shards.
    pub fn ledger(&self) -> Ledger {
        let mut sum = Ledger::default();
        self.for_each_shard(|guard| {
            if let Some(engine) = &guard.state.engine {
                add_ledger(&mut sum, &engine.ledger());
            }
        });
        sum
    }

    /// Statistics of the buffer.
    pub fn stats(&self) -> BufferStats {
        self.statistics().buffer
    }

    /// Histograms of all writers.
    pub fn writer_stats(&self) -> Vec<WriterStats> {
        self.statistics().writers
    }

    /// Statistics of each shard, in their order; zeros for one that was never used.
    pub fn shard_stats(&self) -> Vec<(BufferStats, Ledger)> {
        let mut list = vec![Default::default(); self.shared.slots.len()];
        self.for_each_shard(|guard| {
            if let Some(engine) = &guard.state.engine {
                list[guard.shard] = (engine.stats(), engine.ledger());
            }
        });
        list
    }

    /// Extents that no shard has: a hint.
    pub fn num_free_extents(&self) -> usize {
        self.shared.extent_pool.num_free_hint()
    }

    /// Checks every invariant of the structure.
    ///
    /// # Errors
    /// Which one is broken.
    pub fn check(&self) -> Result<(), String> {
        let mut result = Ok(());
        self.for_each_shard(|guard| {
            if let (Ok(()), Some(engine)) = (&result, &mut guard.state.engine) {
                result = engine.check().map_err(|wrong| format!("shard {}: {wrong}", guard.shard));
            }
        });
        result
    }

    /// Keeps workers from a shard, until the guard is dropped.
    pub fn stop_worker(&self, shard: usize) -> StoppedWorker<'_> {
        let slot = self.shared.slots.get(shard);
        slot.is_held.store(true, Ordering::SeqCst);
        // A worker that is at it finishes its budget.
        drop(self.lock(shard));
        StoppedWorker { shared: &self.shared, shard }
    }

    /// Drains a shard for one budget and leaves the rest, like a thread that is then descheduled.
    pub fn drain_once(&self, shard: usize) {
        let mut guard = self.lock(shard);
        if guard.drain(&mut DrainBudget::new()) != DrainResult::Empty {
            self.shared.defer_drain(shard);
        }
    }

    /// Gives packets that the first shard overwrites to a sink, which is called in the middle of an
    /// eviction.
    pub fn set_sink(&self, sink: Box<dyn OverwriteSink>) {
        self.lock(0).engine().set_overwrite_sink(Some(sink));
    }

    /// Panics while it owns a shard, as an engine with a mistake would.
    pub fn panic_in_shard(&self, shard: usize) {
        let _guard = self.lock(shard);
        // Without the panic's message.
        std::panic::resume_unwind(Box::new("broken"));
    }

    /// Whether a read, a clone or statistics wait for a shard.
    pub fn is_waited_for(&self, shard: usize) -> bool {
        self.shared.slots.get(shard).lock.is_waited_for()
    }

    /// Locks a shard until the guard is dropped, like a thread that stops while it owns the shard.
    pub fn stop_shard(&self, shard: usize) -> Stopped<'_> {
        Stopped { _guard: ShardGuard::lock(&self.shared, shard, OwnerId(STOPPED_OWNER)) }
    }
}

fn add_ledger(sum: &mut Ledger, part: &Ledger) {
    let pairs = [
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
    sum.duplicate_commits += part.duplicate_commits;
    sum.forgotten_sequences += part.forgotten_sequences;
}

/// All buffers of the process, for tests of programs that do not hand theirs out.
static MADE: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

pub(super) fn note_made(shared: &Arc<Shared>) {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.retain(|shared| shared.strong_count() > 0);
    made.push(Arc::downgrade(shared));
}

/// Calls `call` while a shard is locked, as by a thread that stops while it owns the shard: of the
/// buffer, wherever in this process it is, that has this size.
pub fn while_stopped<R>(size_bytes: usize, shard: usize, call: impl FnOnce() -> R) -> R {
    let made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let of_size = |shared: &Arc<Shared>| shared.config.region.size_bytes() == size_bytes;
    let shared = made.iter().filter_map(Weak::upgrade).find(of_size).expect("there is such a buffer");
    drop(made);
    let guard = ShardGuard::lock(&shared, shard, OwnerId(STOPPED_OWNER));
    let result = call();
    guard.unlock_read(&mut DrainBudget::new());
    result
}

/// A shard that workers pass over: see [`ShardedBuffer::stop_worker`].
pub struct StoppedWorker<'a> {
    shared: &'a Shared,
    shard: usize,
}

impl Drop for StoppedWorker<'_> {
    fn drop(&mut self) {
        self.shared.slots.get(self.shard).is_held.store(false, Ordering::SeqCst);
        self.shared.defer_drain(self.shard);
    }
}

/// The owner of a shard that is locked by [`ShardedBuffer::stop_shard`].
pub const STOPPED_OWNER: u32 = 1 << 28;

/// A shard that is locked without any work: see [`ShardedBuffer::stop_shard`].
pub struct Stopped<'a> {
    _guard: ShardGuard<'a>,
}

impl Pieces<'_> {
    /// Writes all of them, many in one call.
    ///
    /// # Errors
    /// That of the writer. How much was written is then not known.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        self.write_slices(|slices| write_all(out, slices))
    }
}

fn write_all(out: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match out.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use watershed_engine::Amount;

    /// Every field is named here, so that none is forgotten above.
    #[test]
    fn every_field_is_in_the_sum() {
        let mut next = 0;
        let mut number = || {
            next += 1;
            next
        };
        let mut amount = || Amount { chunks: number(), bytes: number() };
        let part = Ledger {
            written: amount(),
            read: amount(),
            overwritten: amount(),
            empty: amount(),
            damaged: amount(),
            listed: amount(),
            duplicate_commits: number(),
            forgotten_sequences: number(),
        };
        let mut sum = Ledger::default();
        add_ledger(&mut sum, &part);
        assert_eq!(sum, part);
        add_ledger(&mut sum, &part);
        assert_eq!(sum.listed.bytes, 2 * part.listed.bytes);
    }
}
