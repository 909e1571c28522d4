//! The shards of a batch, and its shares for them.

use crate::batch::queued::{Op, QueuedBatch};
use crate::batch::{Batch, key_of, key_of_chunk};
use crate::shard::Shared;
use crate::sync::directory::Key;
use crate::sync::node_pool::OwnedNode;

/// The homes of what is in a batch. Used again for the next batch.
#[derive(Debug)]
pub(crate) struct Route {
    /// The home of each chunk, then of each patch set.
    pub(crate) homes: Vec<u16>,
    /// All homes, each once.
    pub(crate) shards: Vec<u16>,
}

/// The initial capacity of a committer's lists: large enough that their first elements, which each
/// commit writes, share no cache line with another committer's.
pub(crate) const LIST_CAPACITY: usize = 128;

/// A batch for at most so many shards is gone through once for each.
const FEW_SHARDS: usize = 8;

impl Route {
    pub(crate) fn new() -> Route {
        Route { homes: Vec::with_capacity(LIST_CAPACITY), shards: Vec::with_capacity(LIST_CAPACITY) }
    }

    /// Finds the homes, or chooses them. They do not change before the batch's reservation ends.
    pub(crate) fn find(&mut self, shared: &Shared, cpu_id: Option<usize>, batch: &Batch<'_>) {
        self.homes.clear();
        self.shards.clear();
        // A batch is often of one writer.
        let mut last = (Key(0), 0);
        for (info, _) in &batch.chunks {
            let key = key_of_chunk(info);
            if key != last.0 {
                let home = shared.directory.home_or(key, || shared.choose_home(cpu_id)).0;
                if self.shards.is_empty() || home != last.1 {
                    self.add(home);
                }
                last = (key, home);
            }
            self.homes.push(last.1);
        }
        for set in &batch.patches {
            // Without a home there are no chunks: the patch fails in any shard, and is counted
            // there.
            let home = shared.directory.home(key_of(set.producer_id_trusted, set.writer_id)).unwrap_or(0);
            self.homes.push(home);
            self.add(home);
        }
        for &(producer, writer) in &batch.ended_writers {
            shared.directory.home(key_of(producer, writer)).into_iter().for_each(|home| self.add(home));
        }
        for producer in &batch.ended_producers {
            shared.directory.homes_of(producer.0).into_iter().for_each(|(_, home)| self.add(home));
        }
    }

    fn add(&mut self, shard: u16) {
        if !self.shards.contains(&shard) {
            self.shards.push(shard);
        }
    }

    /// Whether the batch is only chunks, for one shard that committers drain.
    pub(crate) fn is_of_one_shard(&self, shared: &Shared, batch: &Batch<'_>) -> bool {
        !shared.has_workers && self.shards.len() == 1 && batch.has_only_chunks()
    }

    /// Whether the batch is only chunks and patches, for a few shards that committers drain.
    pub(crate) fn is_of_few_shards(&self, shared: &Shared, batch: &Batch<'_>) -> bool {
        !shared.has_workers && self.shards.len() <= FEW_SHARDS && batch.has_no_ends()
    }

    /// Moves a batch into the nodes of its shards.
    pub(crate) fn fill(
        &self,
        shared: &Shared,
        nodes: &mut [OwnedNode<QueuedBatch>],
        batch: &mut Batch<'_>,
        is_owned: bool,
        first_ticket: u64,
    ) {
        let (homes, patch_homes) = self.homes.split_at(batch.chunks.len());
        if let [node] = nodes {
            node.with_item(|queued| queued.take_chunks(batch, is_owned, first_ticket));
        } else {
            for node in &mut *nodes {
                node.with_item(|queued| {
                    queued.first_ticket = first_ticket;
                    queued.memory.clone_from(&batch.memory);
                });
            }
            let chunks = (first_ticket..).zip(homes).zip(batch.chunks.drain(..));
            for ((ticket, &home), (info, source)) in chunks {
                with_share(&self.shards, nodes, home, |queued| queued.push_chunk(info, ticket, source));
            }
        }
        for (&home, set) in patch_homes.iter().zip(batch.patches.drain(..)) {
            with_share(&self.shards, nodes, home, |queued| queued.push_op(Op::Patch(set)));
        }
        for (producer, writer) in batch.ended_writers.drain(..) {
            if let Some(home) = shared.directory.home(key_of(producer, writer)) {
                with_share(&self.shards, nodes, home, |queued| {
                    queued.push_op(Op::EndWriter(producer, writer))
                });
            }
        }
        for producer in batch.ended_producers.drain(..) {
            // To a shard that has no sequence of it this means nothing.
            nodes
                .iter_mut()
                .for_each(|node| node.with_item(|queued| queued.push_op(Op::EndProducer(producer))));
        }
    }
}

fn with_share(
    shards: &[u16],
    nodes: &mut [OwnedNode<QueuedBatch>],
    home: u16,
    push: impl FnOnce(&mut QueuedBatch),
) {
    // A writer that ends may have got its home after the route was found, by another thread: then
    // the end came first.
    if let Some(at) = shards.iter().position(|&shard| shard == home) {
        nodes[at].with_item(push);
    }
}
