//! Where the parts of a batch go.

use crate::batch::{Batch, key_of};
use crate::directory::Key;
use crate::inner::Inner;
use crate::nodes::Letter;
use crate::part::{Op, Part};

/// The homes of what is in a batch. Used again for the next one.
#[derive(Debug)]
pub(crate) struct Route {
    /// Of each chunk, then of each patch set.
    pub(crate) homes: Vec<u16>,
    /// Of everything, each once.
    pub(crate) shards: Vec<u16>,
}

/// Elements that lists of a committer have room for from the start: so many that what is written at each commit, the first few, is not in
/// the same cache line as the same of another committer.
pub(crate) const ROOM_BETWEEN: usize = 128;

/// How many shards are few: a batch is gone through for each.
const FEW_SHARDS: usize = 8;

impl Route {
    pub(crate) fn new() -> Route {
        Route { homes: Vec::with_capacity(ROOM_BETWEEN), shards: Vec::with_capacity(ROOM_BETWEEN) }
    }

    /// Finds the homes, choosing those that are not there. They do not change before the batch's announcement ends.
    pub(crate) fn find(&mut self, inner: &Inner, cpu_id: Option<usize>, batch: &Batch<'_>) {
        self.homes.clear();
        self.shards.clear();
        // A batch is often of one writer.
        let mut last = (Key(0), 0);
        for (info, _) in &batch.chunks {
            let key = key_of(info.producer_id_trusted, info.writer_id);
            if key != last.0 {
                let home = inner.home_of(cpu_id, key);
                if self.shards.is_empty() || home != last.1 {
                    self.add(home);
                }
                last = (key, home);
            }
            self.homes.push(last.1);
        }
        for set in &batch.patches {
            // What has no home has no chunks: the patch fails wherever it goes, and is counted there.
            let home = inner.directory.home(key_of(set.producer_id_trusted, set.writer_id)).unwrap_or(0);
            self.homes.push(home);
            self.add(home);
        }
        for &(producer, writer) in &batch.ended_writers {
            inner.directory.home(key_of(producer, writer)).into_iter().for_each(|home| self.add(home));
        }
        for producer in &batch.ended_producers {
            inner.directory.homes_of(producer.0).into_iter().for_each(|(_, home)| self.add(home));
        }
    }

    fn add(&mut self, shard: u16) {
        if !self.shards.contains(&shard) {
            self.shards.push(shard);
        }
    }

    /// Whether the batch is of chunks alone, for one shard that committers drain.
    pub(crate) fn is_of_one_shard(&self, inner: &Inner, batch: &Batch<'_>) -> bool {
        !inner.has_workers && self.shards.len() == 1 && batch.has_only_chunks()
    }

    /// Whether the batch is of chunks and patches alone, for shards that committers drain, and so few of them that the batch may be gone
    /// through for each.
    pub(crate) fn is_of_few_shards(&self, inner: &Inner, batch: &Batch<'_>) -> bool {
        !inner.has_workers && self.shards.len() <= FEW_SHARDS && batch.has_no_ends()
    }

    /// Moves a batch into the parts for its shards.
    pub(crate) fn fill(
        &self,
        inner: &Inner,
        parts: &mut [Letter<Part>],
        batch: &mut Batch<'_>,
        is_owned: bool,
        first_ticket: u64,
    ) {
        let (homes, homes_of_patches) = self.homes.split_at(batch.chunks.len());
        if let [letter] = parts {
            letter.with_item(|part| part.take_chunks(batch, is_owned, first_ticket));
        } else {
            for letter in &mut *parts {
                letter.with_item(|part| part.memory.clone_from(&batch.memory));
            }
            let chunks = (first_ticket..).zip(homes).zip(batch.chunks.drain(..));
            for ((ticket, &home), (info, source)) in chunks {
                with_part(&self.shards, parts, home, |part| part.push_chunk(info, ticket, source));
            }
        }
        for (&home, set) in homes_of_patches.iter().zip(batch.patches.drain(..)) {
            with_part(&self.shards, parts, home, |part| part.push_op(Op::Patch(set)));
        }
        for (producer, writer) in batch.ended_writers.drain(..) {
            if let Some(home) = inner.directory.home(key_of(producer, writer)) {
                with_part(&self.shards, parts, home, |part| part.push_op(Op::EndWriter(producer, writer)));
            }
        }
        for producer in batch.ended_producers.drain(..) {
            let mut homes: Vec<u16> =
                inner.directory.homes_of(producer.0).into_iter().map(|(_, home)| home).collect();
            homes.sort_unstable();
            homes.dedup();
            for home in homes {
                with_part(&self.shards, parts, home, |part| part.push_op(Op::EndProducer(producer)));
            }
        }
    }
}

fn with_part(shards: &[u16], parts: &mut [Letter<Part>], home: u16, push: impl FnOnce(&mut Part)) {
    // A writer that is said to end may have been given its home after the route was found, by another thread: then the end came first.
    if let Some(at) = shards.iter().position(|&shard| shard == home) {
        parts[at].with_item(push);
    }
}
