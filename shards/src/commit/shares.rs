//! The shares that shards have of a batch: each is written where its shard is unlocked, or queued.

use crate::batch::queued::{Op, QueuedBatch};
use crate::batch::{Batch, PatchSet, Source};
use crate::commit::RoutedCommit;
use crate::commit::route::Route;
use crate::shard::guard::ShardGuard;

impl RoutedCommit<'_> {
    /// Commits a batch, and leaves it empty but for its memory. There is a node for each shard, for
    /// what cannot be written now; the others stay in `nodes`. Every queue had room: threads that
    /// come at once may exceed it by one each.
    pub(super) fn commit_shares(&mut self, route: &Route, batch: &mut Batch<'_>) {
        let RoutedCommit { shared, owner, is_owned, first_ticket, .. } = *self;
        // Ends may release homes, which the owner of a shard does at the end of a drain.
        let may_write = self.may_write && batch.has_no_ends();
        let mut take_rest = |share: &Share<'_>, batch: &mut Batch<'_>, from| {
            let mut node = self.nodes.pop().expect("a node for each shard");
            node.with_item(|queued| share.take_rest(batch, from, queued));
            node
        };
        for &shard in &route.shards {
            let share = Share { route, shard, is_owned, first_ticket };
            let try_lock = || ShardGuard::try_lock_drained(shared, shard.into(), owner);
            let Some(mut guard) = may_write.then(try_lock).flatten() else {
                shared.slots.get(shard.into()).queue.push(take_rest(&share, batch, 0));
                continue;
            };
            if let Some(done) = share.write(&mut guard, batch) {
                guard.leave(take_rest(&share, batch, done));
            }
        }
        batch.chunks.clear();
        batch.patches.clear();
        batch.ended_writers.clear();
        batch.ended_producers.clear();
    }
}

/// What a batch has for one shard.
struct Share<'a> {
    route: &'a Route,
    shard: u16,
    /// Whether no chunk of the batch borrows its bytes.
    is_owned: bool,
    first_ticket: u64,
}

impl Share<'_> {
    /// Those of a list that are for the shard, with their places in it, by their homes.
    fn of<'l, T>(
        &self,
        homes: &'l [u16],
        list: &'l mut [T],
    ) -> impl Iterator<Item = (usize, &'l mut T)> + use<'l, T> {
        let shard = self.shard;
        list.iter_mut().enumerate().filter(move |(at, _)| homes[*at] == shard)
    }

    /// Writes its chunks and patches. If there is no extent without waiting, returns the batch's
    /// chunk at which it stopped.
    fn write(&self, guard: &mut ShardGuard<'_>, batch: &mut Batch<'_>) -> Option<usize> {
        let (homes, patch_homes) = self.route.homes.split_at(batch.chunks.len());
        for (at, (info, source)) in self.of(homes, &mut batch.chunks) {
            let ticket = self.first_ticket + at as u64;
            if guard.commit_source(info, source, batch.memory.as_ref(), ticket).is_none() {
                return Some(at);
            }
        }
        self.of(patch_homes, &mut batch.patches).for_each(|(_, set)| guard.patch(set));
        None
    }

    /// Moves what is left of it, from the batch's chunk `from` on, into an empty item.
    fn take_rest(&self, batch: &mut Batch<'_>, from: usize, queued: &mut QueuedBatch) {
        let (homes, patch_homes) = self.route.homes.split_at(batch.chunks.len());
        let (patch_homes, writer_homes) = patch_homes.split_at(batch.patches.len());
        if self.route.shards.len() == 1 && from == 0 {
            queued.take_chunks(batch, self.is_owned, self.first_ticket);
        } else {
            queued.first_ticket = self.first_ticket;
            queued.memory.clone_from(&batch.memory);
        }
        for (at, (info, source)) in self.of(homes, &mut batch.chunks).skip_while(|(at, _)| *at < from) {
            let source = std::mem::replace(source, Source::Borrowed(&[]));
            queued.push_chunk(*info, self.first_ticket + at as u64, source);
        }
        for (_, set) in self.of(patch_homes, &mut batch.patches) {
            let patches = std::mem::take(&mut set.patches);
            queued.push_op(Op::Patch(PatchSet { patches, ..*set }));
        }
        for (_, &mut (producer, writer)) in self.of(writer_homes, &mut batch.ended_writers) {
            queued.push_op(Op::EndWriter(producer, writer));
        }
        // To a shard that has no sequence of it this means nothing.
        batch.ended_producers.iter().for_each(|&producer| queued.push_op(Op::EndProducer(producer)));
    }
}
