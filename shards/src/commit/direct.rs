//! The fast path: the committing thread locks the shard and writes into its ring itself.
//!
//! ```text
//!   home known? -> try_lock -> queue empty? -> home still valid? -> tickets -> write -> unlock
//!        |            |             |                |
//!        +------------+-------------+----------------+--> another path, see `commit`
//! ```
//!
//! The lock is held before there are tickets, so the batch needs no reservation: see
//! `sync::tickets`. Whatever finds no extent is left to the shard's next owner, in front of the
//! queue.

use crate::batch::queued::QueuedBatch;
use crate::batch::{Batch, key_of_chunk};
use crate::commit::home_cache::HomeCache;
use crate::commit::{Committer, MAX_NODES};
use crate::shard::Shared;
use crate::shard::guard::ShardGuard;
use crate::sync::directory::Key;
use crate::sync::node_pool::{NodePool, OwnedNode};

/// What became of a batch on the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectCommit {
    Done,
    /// All chunks have one home, and its shard is locked or has a queue.
    Locked,
    /// The batch is not for one shard, or its home is not known.
    NotApplicable,
}

impl Committer {
    /// Commits a batch whose chunks have one home. `only_writer` is the writer of all of it, if
    /// there is one.
    #[inline(always)]
    pub(super) fn commit_direct(&mut self, batch: &mut Batch<'_>, only_writer: Option<Key>) -> DirectCommit {
        let (shared, owner, home_cache) = (&*self.shared, self.owner, &mut self.home_cache);
        let home = match only_writer {
            _ if shared.has_poisoned() => return DirectCommit::NotApplicable,
            _ if shared.has_workers => return DirectCommit::Locked,
            Some(key) => home_cache.home(shared, key),
            None if batch.has_only_chunks() => home_cache.common_home(shared, batch),
            None => None,
        };
        let Some(home) = home else { return DirectCommit::NotApplicable };
        // A failed try_lock would fetch the lock's cache line from the owner, who is about to write
        // it.
        if shared.slots.get(home.into()).lock.is_locked() {
            return DirectCommit::Locked;
        }
        // Not moved while it is new: it is stored in pieces, and a load of more than one piece
        // waits until they are in the cache.
        let Some(mut guard) = ShardGuard::try_lock(shared, home.into(), owner) else {
            return DirectCommit::Locked;
        };
        guard.oldest_may_change = false;
        if !guard.is_drained() {
            return DirectCommit::Locked;
        }
        // Only the owner of a home removes it: while the lock is held, it stays.
        let is_home = match only_writer {
            Some(_) => home_cache.is_valid(shared),
            None => is_home_of_all(shared, home, batch),
        };
        if is_home {
            let tickets = &shared.tickets;
            let first_ticket = self.cell.take_tickets_locked(tickets, batch.chunks.len() as u64);
            write_chunks(&mut guard, batch, first_ticket);
        } else {
            // It was removed before the shard was locked.
            *home_cache = HomeCache::default();
        }
        drop(guard);
        shared.after_unlock(home.into(), owner);
        if is_home { DirectCommit::Done } else { DirectCommit::NotApplicable }
    }
}

/// Whether `home`, whose lock is held, is that of all chunks of a batch.
fn is_home_of_all(shared: &Shared, home: u16, batch: &Batch<'_>) -> bool {
    // A batch is often of one writer.
    let mut last = Key(0);
    batch.chunks.iter().all(|(info, _)| {
        let key = key_of_chunk(info);
        key == std::mem::replace(&mut last, key)
            || shared.directory.settled(key).is_some_and(|(at, _)| at == home)
    })
}

/// Writes all chunks of a batch into the locked shard, or leaves the rest to the shard's next owner
/// if there is no extent without waiting.
pub(crate) fn write_chunks(guard: &mut ShardGuard<'_>, batch: &mut Batch<'_>, first_ticket: u64) {
    let mut done = guard.write_smb_chunks(batch, first_ticket);
    let Batch { chunks, memory, .. } = &mut *batch;
    let num_chunks = chunks.len();
    for (info, source) in &mut chunks[done..] {
        if guard.commit_source(info, source, memory.as_ref(), first_ticket + done as u64).is_none() {
            break;
        }
        done += 1;
    }
    if done == num_chunks {
        batch.chunks.clear();
    } else {
        chunks.drain(..done);
        defer_rest(guard, batch, first_ticket + done as u64);
    }
}

/// Leaves the rest of a batch to the shard's next owner, in front of the queue: the first chunks
/// are in the ring, so nothing may come between. Not through the queue, which may be full.
#[cold]
fn defer_rest(guard: &mut ShardGuard<'_>, batch: &mut Batch<'_>, first_ticket: u64) {
    let pools = &guard.shared.node_pools;
    // SAFETY: these pools are dropped after all nodes.
    let mut node = unsafe { spare_node(&mut pools.lock().unwrap_or_else(|poisoned| poisoned.into_inner())) };
    node.with_item(|queued| queued.take_chunks(batch, false, first_ticket));
    guard.leave(node);
}

/// A node of one of these pools, or of a new one. No more are in use than there are shards: only a
/// drained shard is written to, and one with such a rest is not drained.
///
/// # Safety
/// The node must be dropped before the pools are: as [`NodePool::new`] says.
unsafe fn spare_node(pools: &mut Vec<NodePool<QueuedBatch>>) -> OwnedNode<QueuedBatch> {
    if let Some(node) = pools.iter_mut().find_map(NodePool::take) {
        return node;
    }
    // SAFETY: the caller's promise.
    let mut pool = unsafe { NodePool::new(MAX_NODES) };
    let node = pool.take().expect("a new pool has nodes");
    pools.push(pool);
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_node_for_a_rest_however_many_are_in_use() {
        let mut pools = Vec::new();
        for _ in 0..2 {
            // SAFETY: the nodes are dropped before the pools.
            let nodes: Vec<_> = (0..2 * MAX_NODES + 1).map(|_| unsafe { spare_node(&mut pools) }).collect();
            assert_eq!((nodes.len(), pools.len()), (2 * MAX_NODES + 1, 3), "pools are used again");
        }
    }
}
