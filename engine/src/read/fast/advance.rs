//! From a record that was read to its end to the next one of the ring, where each record is the
//! front of its sequence, whole, and has nothing special: nearly every step of a pass.
//!
//! Each record and sequence is looked up once.

use crate::accounts::Account;
use crate::ids::ChunkId;
use crate::index::fragment_sizes as sizes;
use crate::index::records::{NONE, Slot, bit};
use crate::packet::{self, Pieces};
use crate::read::Reader;
use crate::read::walk::Position;
use crate::store::Store;

/// Headers are prefetched this many records before they are cleared: about the latency of memory.
const PREFETCH_RECORDS: u32 = 6;

impl Reader {
    /// Looks for the next packet as long as everything is ordinary, in a shard below the cut. None
    /// if it is not: then the pass is where [`super`] says that others go on.
    // Always inlined, as what it calls: without a cut nothing of tickets is left.
    #[inline(always)]
    pub(in crate::read) fn next_ordinary(&mut self, store: &mut Store, cut: Option<u64>) -> Option<Pieces> {
        if let Some(first) = self.fragments.open_end() {
            if let Some(pieces) = self.take_along_checked(store, first) {
                return Some(pieces);
            }
        } else if self.fragments.is_active() && self.enter_next_checked(store, cut) {
            return Some(packet::BY_CURSOR);
        }
        self.next_ordinary_after_flush(store, cut)
    }

    /// As [`next_ordinary`](Self::next_ordinary) where the cursor can go no further.
    #[inline(never)]
    fn next_ordinary_after_flush(&mut self, store: &mut Store, cut: Option<u64>) -> Option<Pieces> {
        if cut.is_none() {
            // Nothing is left of the records in between.
            self.fragments.left_records = self.fragments.passed;
        }
        self.flush(store);
        while self.position.left_bytes == 0 {
            if self.check_ahead(store) {
                self.fragments.begin(&self.position, &store.index.records, &store.ring.headers());
                if self.enter_next_checked(store, cut) {
                    if let Some(pieces) = self.take_first_of_record(store) {
                        return Some(pieces);
                    }
                    self.flush(store);
                    continue;
                }
                self.flush(store);
            }
            if !self.advance_record(store, cut) {
                return None;
            }
        }
        self.take_at_position(store)
    }

    /// The first packet after the cursor has entered a record. None if it is not ordinary: then
    /// what was lost before it is still to be reported.
    #[inline]
    fn take_first_of_record(&mut self, store: &mut Store) -> Option<Pieces> {
        let pieces = if self.fragments.has_next() {
            packet::BY_CURSOR
        } else {
            let first = self.fragments.open_end()?;
            self.take_along_checked(store, first)?
        };
        self.take_loss(store.index.sequences.get_mut(self.sequence));
        Some(pieces)
    }

    /// Takes the packet at the position, or starts the cursor with it. None if it is not ordinary.
    #[inline(never)]
    fn take_at_position(&mut self, store: &mut Store) -> Option<Pieces> {
        if self.start_cursor(store) {
            return Some(packet::BY_CURSOR);
        }
        let Position { slot, size_index, left_bytes, goes_on, continues, .. } = self.position;
        let (begin, _) = sizes::split_first(store.index.records.block_sizes(slot, size_index))?;
        if !goes_on || continues || begin.total_bytes as usize != left_bytes {
            return None;
        }
        if self.check_ahead(store) {
            self.fragments.begin(&self.position, &store.index.records, &store.ring.headers());
            if let Some(first) = self.fragments.open_end()
                && let Some(pieces) = self.take_along_checked(store, first)
            {
                self.take_loss(store.index.sequences.get_mut(self.sequence));
                return Some(pieces);
            }
            self.flush(store);
        }
        None
    }

    /// Erases the record of the position, which was read to its end and is the one that the pass
    /// has reached, and goes to the next. False, and nothing done, if anything is not ordinary.
    #[inline(never)]
    fn advance_record(&mut self, store: &mut Store, cut: Option<u64>) -> bool {
        const SPECIAL: u16 =
            bit::CUT | bit::ABORTED | bit::LIFE_END | bit::DRAINED_BY_EVICTION | bit::INCOMPLETE;
        let Position { slot, header, visible_bytes, .. } = self.position;
        if self.slot != slot || slot == NONE || visible_bytes == 0 {
            return false;
        }
        let index = &mut store.index;
        let Some((record, next)) = index.records.with_next(slot) else { return false };
        let space = &store.ring.space;
        let Some(outer) = space.outer_bytes_between(record.offset(), next.offset()) else { return false };
        let sequence = record.sequence;
        let is_same = next.sequence == sequence;
        if record.has(SPECIAL) || record.unread_bytes != 0 || next.is_padding() {
            return false;
        }
        let listed = index.sequences.get(sequence);
        let next_listed = index.sequences.get(next.sequence);
        let (next_queue_index, last_id) = if is_same {
            (1, Some(ChunkId(record.chunk_id)))
        } else {
            if next_listed.stalled_in == self.generation || next_listed.is_front_of_an_old_life() {
                return false;
            }
            (0, next_listed.last.map(|last| last.chunk_id))
        };
        let next_slot = slot + 1;
        if listed.queue.len() < 2
            || listed.is_front_of_an_old_life()
            || next_listed.queue.get(next_queue_index) != next_slot
            || last_id.is_some_and(|last| last.successor().0 != next.chunk_id)
        {
            return false;
        }
        let sizes = || index.records.block_sizes(next_slot, 0);
        let (position, is_inside) = Position::in_record(next_slot, next, sizes);
        if is_inside {
            return false;
        }
        let mut target = self.target;
        if let Some(cut) = cut {
            match index.ticket_in_order(next_slot) {
                Some(ticket) if ticket < cut && target.0 == slot => target = (next_slot, ticket),
                _ => return false,
            }
        }
        let next_sequence = next.sequence;
        // Not a copy of the record: two of its bytes were just written, and a load of all waits for
        // these.
        index.sequences.get_mut(sequence).pop_front(record, visible_bytes);
        store.unlist(header, outer, Account::Read);
        store.index.records.get_mut(slot).sequence = NONE;
        store.ring.headers().clear(header);
        self.slot = next_slot;
        self.target = target;
        self.position = position;
        if !is_same {
            self.sequence = next_sequence;
            self.origin = store.index.origin(next_sequence);
        }
        Self::prefetch_ahead_of(store, next_slot);
        true
    }

    /// Prefetches the header of a record that will be erased soon.
    #[inline]
    pub(in crate::read) fn prefetch_ahead_of(store: &Store, slot: Slot) {
        if let Some(offset) = store.index.records.offset_ahead(slot, PREFETCH_RECORDS) {
            watershed_simd::prefetch::for_write(store.ring.pointer(offset));
        }
    }
}
