//! Queueing chunks of one writer, whose home is locked or has a worker: the path of every chunk for
//! a busy shard.
//!
//! ```text
//!   home locked? -> tickets -> room? -> fill a node -> push -> unlocked meanwhile? try to drain
//!                      |         |                       |
//!                (fetch_add)  no: try to drain    (compare-exchange)
//! ```
//!
//! The two read-modify-writes are most of the cost.

use crate::batch::Batch;
use crate::commit::{Committer, QueueFull};
use crate::shard::Shared;
use crate::shard::budget::DrainBudget;
use crate::sync::directory::Key;
use crate::sync::lock::OwnerId;

impl Committer {
    /// Queues a batch that needs no further check: chunks of the last writer in shared memory and
    /// nothing else, for a home that is locked or has a worker. None, and nothing done, for any
    /// other.
    ///
    /// Saves 100 of 270 instructions of queueing one chunk.
    #[inline]
    pub(super) fn enqueue_fast(&mut self, batch: &mut Batch<'_>) -> Option<Result<(), QueueFull>> {
        let (key, home) = self.home_cache.last()?;
        // First the lock: if it is free, the batch is checked once, by another path.
        let is_busy = self.shared.has_workers || self.shared.slots.get(home.into()).lock.is_locked();
        if !is_busy || self.shared.has_poisoned() || !batch.is_only_shared_of(key) {
            return None;
        }
        Some(self.enqueue_inlined(key, batch, true))
    }

    /// Queues chunks of one writer.
    #[inline(never)]
    pub(super) fn enqueue(
        &mut self,
        key: Key,
        batch: &mut Batch<'_>,
        is_owned: bool,
    ) -> Result<(), QueueFull> {
        self.enqueue_inlined(key, batch, is_owned)
    }

    #[inline(always)]
    fn enqueue_inlined(&mut self, key: Key, batch: &mut Batch<'_>, is_owned: bool) -> Result<(), QueueFull> {
        let Committer { owner, cell, home_cache, pool, cpu_id, nodes, shared, .. } = self;
        let (owner, shared): (OwnerId, &Shared) = (*owner, shared);
        let mut reservation = cell.reserve(&shared.tickets);
        let first_ticket = reservation.take_tickets(batch.chunks.len() as u64);
        let home = home_cache.home_or_choose(shared, *cpu_id, key).into();
        let queue = &shared.slots.get(home).queue;
        let mut budget = DrainBudget::new();
        let node = match queue.has_room() || drain_for_room(shared, home, owner, &mut budget) {
            true => pool.take().or_else(|| nodes.pop()),
            false => None,
        };
        let queued = match node {
            Some(mut node) => {
                node.with_item(|queued| queued.take_chunks(batch, is_owned, first_ticket));
                queue.push(node);
                Ok(())
            }
            None => Err(QueueFull { shard: home }),
        };
        drop(reservation);
        // Also if the queue is full: whoever pushed while this thread held the lock relies on it.
        shared.after_push(home, owner, &mut budget);
        shared.run_pending_drains(owner, &mut budget);
        queued
    }
}

/// Whether a full queue has room, after a try to drain it where there are no workers.
#[cold]
#[inline(never)]
pub(super) fn drain_for_room(
    shared: &Shared,
    shard: usize,
    owner: OwnerId,
    budget: &mut DrainBudget,
) -> bool {
    // If workers are at it the batch is handed back.
    shared.help(shard, owner, budget);
    shared.slots.get(shard).queue.has_room()
}
