//! A batch for a few shards: each share is written or queued, one shard after the other.

use crate::batch::queued::{Op, QueuedBatch};
use crate::batch::{Batch, Source};
use crate::commit::route::Route;
use crate::shard::Shared;
use crate::shard::guard::ShardGuard;
use crate::sync::lock::OwnerId;
use crate::sync::node_pool::OwnedNode;

/// Commits chunks and patches. There is a node for each shard, for what cannot be written now; the
/// others stay in `nodes`. Every queue had room: threads that come at once may exceed it by one
/// each.
pub(crate) fn commit_per_shard(
    shared: &Shared,
    owner: OwnerId,
    route: &Route,
    nodes: &mut Vec<OwnedNode<QueuedBatch>>,
    batch: &mut Batch<'_>,
    first_ticket: u64,
) {
    for &shard in &route.shards {
        let share = Share { route, shard, first_ticket };
        let Some(mut guard) = ShardGuard::try_lock_drained(shared, shard.into(), owner) else {
            let node = share.queue_rest(batch, 0, nodes);
            shared.slots.get(shard.into()).queue.push(node);
            continue;
        };
        if let Some(done) = share.write(&mut guard, batch) {
            guard.leave(share.queue_rest(batch, done, nodes));
        }
    }
    batch.chunks.clear();
    batch.patches.clear();
}

/// What a batch has for one shard.
struct Share<'a> {
    route: &'a Route,
    shard: u16,
    first_ticket: u64,
}

impl Share<'_> {
    /// Writes it. If there is no extent without waiting, returns the batch's chunk at which it
    /// stopped.
    fn write(&self, guard: &mut ShardGuard<'_>, batch: &mut Batch<'_>) -> Option<usize> {
        let (homes, patch_homes) = self.route.homes.split_at(batch.chunks.len());
        let Batch { chunks, memory, patches, .. } = batch;
        for (at, (info, source)) in chunks.iter_mut().enumerate() {
            if homes[at] == self.shard {
                let ticket = self.first_ticket + at as u64;
                if guard.commit_source(info, source, memory.as_ref(), ticket).is_none() {
                    return Some(at);
                }
            }
        }
        for (_, set) in patch_homes.iter().zip(&*patches).filter(|(home, _)| **home == self.shard) {
            guard.patch(set);
        }
        None
    }

    /// A node with what is left of it, from the batch's chunk `from` on.
    #[cold]
    fn queue_rest(
        &self,
        batch: &mut Batch<'_>,
        from: usize,
        nodes: &mut Vec<OwnedNode<QueuedBatch>>,
    ) -> OwnedNode<QueuedBatch> {
        let mut node = nodes.pop().expect("a node for each shard");
        let (homes, patch_homes) = self.route.homes.split_at(batch.chunks.len());
        node.with_item(|queued| {
            queued.clear();
            queued.first_ticket = self.first_ticket;
            queued.memory.clone_from(&batch.memory);
            for (at, (info, source)) in batch.chunks.iter_mut().enumerate().skip(from) {
                if homes[at] == self.shard {
                    let source = std::mem::replace(source, Source::Borrowed(&[]));
                    queued.push_chunk(*info, self.first_ticket + at as u64, source);
                }
            }
            let sets = patch_homes.iter().zip(&batch.patches).filter(|(home, _)| **home == self.shard);
            sets.for_each(|(_, set)| queued.push_op(Op::Patch(set.clone())));
        });
        node
    }
}
