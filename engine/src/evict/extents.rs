//! The oldest extent of a shard, and extents in which nothing is listed any more.

use super::{Evictor, evict_ordinary, pop_oldest};
use crate::accounts::Account;
use crate::index::Index;
use crate::index::records::NONE;
use crate::read::Reader;
use crate::ring::extents::Extents;
use crate::store::Store;

/// How many records ahead of an eviction their sequences are prefetched: with many writers no cache
/// holds them.
const SEQUENCES_AHEAD: usize = 4;

fn extents(store: &Store) -> &Extents {
    store.ring.space.extents().expect("a shard has extents")
}

fn extents_mut(store: &mut Store) -> &mut Extents {
    store.ring.space.extents_mut().expect("a shard has extents")
}

impl Evictor {
    /// Evicts everything in the oldest extent and gives it up. None if the shard has none.
    pub(crate) fn evict_oldest_extent(&mut self, store: &mut Store, reader: &mut Reader) -> Option<u32> {
        let index = extents(store).iter().next()?;
        reader.interrupt(store);
        if extents(store).has_one() {
            store.close_extent();
        }
        while extents(store).has_listed(index) {
            // A pass must know what goes; a sink too.
            if self.sink.is_none() && reader.is_between_passes() {
                self.evict_ordinary_run(store, index);
            }
            if !extents(store).has_listed(index) {
                break;
            }
            let slot = store.index.records.front()?;
            let record = *store.index.records.get(slot);
            if !record.is_padding() {
                let outer = store.outer_bytes(slot);
                self.evict_record(store, reader, slot, &record, outer, false);
            }
            pop_oldest(store, reader);
        }
        extents_mut(store).pop_evicted();
        Some(index)
    }

    /// Evicts the oldest records of the oldest extent as long as they are ordinary ones or padding
    /// and lie side by side in the table: nearly all of the extent.
    fn evict_ordinary_run(&mut self, store: &mut Store, extent: u32) {
        let Store { ring, index: Index { records, sequences, .. }, accounts } = store;
        let Some(extents) = ring.space.extents_mut() else { return };
        let range = extents.range_of(extent);
        let listed = extents.listed_mut(extent);
        let mut left = *listed;
        let (first, run, newest_end) = records.oldest_run();
        let mut slot = first;
        for i in 1..run.len() {
            if left == 0 || slot + 1 == newest_end {
                break;
            }
            let next = run[i].offset();
            if let Some(ahead) = run.get(i + SEQUENCES_AHEAD) {
                sequences.prefetch(ahead.sequence);
            }
            let record = &mut run[i - 1];
            // Padding may be of an extent that was given back.
            if !record.is_padding() {
                let at = record.offset();
                debug_assert!(range.contains(&at));
                let end = if next > at && next <= range.end { next } else { range.end };
                if !evict_ordinary(sequences, slot, record, self.pinned) {
                    break;
                }
                accounts.stats.note_overwritten(end - at);
                accounts.move_listed(Account::Overwritten, end - at);
                left -= 1;
                // The set of late records may still name it.
                record.sequence = NONE;
            }
            slot += 1;
        }
        *listed = left;
        records.pop_run(slot - first);
    }

    /// Gives up what nothing is listed in: padding at the front of the records, and empty extents,
    /// which are collected.
    pub(crate) fn trim(&self, store: &mut Store, reader: &mut Reader) {
        reader.flush(store);
        while store.index.records.front().is_some_and(|slot| store.index.records.get(slot).is_padding()) {
            pop_oldest(store, reader);
        }
        store.index.records.drop_padding(reader.slots_in_use());
        let open = extents(store).iter().next_back();
        if open.is_some_and(|index| !extents(store).has_listed(index)) {
            // Nothing of it is needed, so its rest is no padding either.
            store.ring.space.close();
        }
        extents_mut(store).collect_emptied();
    }
}
