//! The shards of a batch.

use crate::batch::{Batch, key_of, key_of_chunk};
use crate::shard::Shared;
use crate::sync::directory::Key;

/// The homes of what is in a batch. Used again for the next batch.
#[derive(Debug)]
pub(crate) struct Route {
    /// The home of each chunk, then of each patch set, then of each writer that ends, which may
    /// have [`NO_HOME`].
    pub(crate) homes: Vec<u16>,
    /// All homes, each once.
    pub(crate) shards: Vec<u16>,
}

/// The initial capacity of a committer's lists: large enough that their first elements, which each
/// commit writes, share no cache line with another committer's.
pub(crate) const LIST_CAPACITY: usize = 128;

/// Of a writer without chunks. One that gets its home from now on comes after its end.
const NO_HOME: u16 = u16::MAX;

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
            let home = shared.directory.home(key_of(producer, writer));
            self.homes.push(home.unwrap_or(NO_HOME));
            home.into_iter().for_each(|home| self.add(home));
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
}
