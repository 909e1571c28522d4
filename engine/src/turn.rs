//! The step from a record that was read to its end to the next one of the ring, as nearly every one is taken: each record is the front of
//! its sequence, whole, and nothing is the matter with either.
//!
//! What is said and done here is what [`crate::read`] and [`crate::walk`] do in general, with each record and sequence looked up once.

use crate::buffer::TraceBuffer;
use crate::ids::ChunkId;
use crate::packet::{self, Pieces};
use crate::read::Reader;
use crate::records::{NONE, bit};
use crate::sizes;
use crate::stats::Account;
use crate::walk::At;

/// Headers are asked for this many records before they are cleared: about the time that memory takes.
const PREFETCH_RECORDS: u32 = 6;

impl TraceBuffer {
    /// Looks for the next packet as long as everything is ordinary, in a shard: below the cut. None if it is not: then the pass stands where
    /// the general way goes on.
    // Always inlined, as what it calls: without a cut nothing of tickets is left.
    #[inline(always)]
    pub(crate) fn look_on_ordinary(&mut self, cut: Option<u64>) -> Option<Pieces> {
        if let Some(first) = self.reader.run.kept() {
            if let Some(pieces) = self.take_in_stretch(first) {
                return Some(pieces);
            }
        } else if self.reader.run.is_on() && self.stand_on_next(cut) {
            return Some(packet::A_RUN);
        }
        self.look_further(cut)
    }

    /// As [`look_on_ordinary`](Self::look_on_ordinary) where the run can go no further.
    #[inline(never)]
    fn look_further(&mut self, cut: Option<u64>) -> Option<Pieces> {
        if cut.is_none() {
            // Nothing is left of the records in between.
            self.reader.run.turned = self.reader.run.passed;
        }
        self.settle();
        while self.reader.at.left_bytes == 0 {
            if self.look_along() {
                let TraceBuffer { records, ring, reader, .. } = self;
                reader.run.begin(&reader.at, records, &ring.headers());
                if self.stand_on_next(cut) {
                    if let Some(pieces) = self.take_first_of_run() {
                        return Some(pieces);
                    }
                    self.settle();
                    continue;
                }
                self.settle();
            }
            if !self.turn_page(cut) {
                return None;
            }
        }
        self.take_at_hand()
    }

    /// The first packet of a run that has just come to a record, or the run itself if that has it. None if it is not ordinary: then what was lost
    /// before it is still to be told.
    #[inline]
    fn take_first_of_run(&mut self) -> Option<Pieces> {
        let pieces = if self.reader.run.has_next() {
            packet::A_RUN
        } else {
            let first = self.reader.run.kept()?;
            self.take_in_stretch(first)?
        };
        self.reader.take_loss(self.sequences.get_mut(self.reader.sequence));
        Some(pieces)
    }

    /// Takes the packet at hand, or begins a run with it. None if it is not ordinary.
    #[inline(never)]
    fn take_at_hand(&mut self) -> Option<Pieces> {
        if self.start_run() {
            return Some(packet::A_RUN);
        }
        let At { slot, sizes_at, left_bytes, goes_on, continues, .. } = self.reader.at;
        let (begin, _) = sizes::split_first(self.records.block_sizes(slot, sizes_at))?;
        if !goes_on || continues || begin.total_bytes as usize != left_bytes {
            return None;
        }
        if self.look_along() {
            let TraceBuffer { records, ring, reader, .. } = self;
            let Reader { run, at, .. } = reader;
            run.begin(at, records, &ring.headers());
            if let Some(first) = run.kept()
                && let Some(pieces) = self.take_in_stretch(first)
            {
                self.reader.take_loss(self.sequences.get_mut(self.reader.sequence));
                return Some(pieces);
            }
            self.settle();
        }
        let sequence = self.reader.sequence;
        let pieces = self.take_ordinary(sequence, begin)?;
        self.reader.take_loss(self.sequences.get_mut(sequence));
        Some(pieces)
    }

    /// Erases the record at hand, which was read to its end and is the one whose turn it is in the outer walk, and stands on the next.
    /// False, and nothing done, if anything is not ordinary.
    #[inline(never)]
    fn turn_page(&mut self, cut: Option<u64>) -> bool {
        const SPECIAL: u16 =
            bit::CUT | bit::ABORTED | bit::LIFE_END | bit::DRAINED_BY_EVICTION | bit::INCOMPLETE;
        let At { slot, header, visible_bytes, .. } = self.reader.at;
        if self.reader.slot != slot || slot == NONE || visible_bytes == 0 {
            return false;
        }
        let Some((record, next)) = self.records.with_next(slot) else { return false };
        let Some(outer) = self.space.outer_bytes_before(record, next) else { return false };
        let sequence = record.sequence;
        let is_same = next.sequence == sequence;
        if record.has(SPECIAL) || record.unread_bytes != 0 || next.is_padding() {
            return false;
        }
        let listed = self.sequences.get(sequence);
        let (next_queue_place, last_id) = if is_same {
            (1, Some(ChunkId(record.chunk_id)))
        } else {
            let others = self.sequences.get(next.sequence);
            if others.stalled_in == self.generation || others.is_front_of_an_old_life() {
                return false;
            }
            (0, others.last.map(|last| last.chunk_id))
        };
        let next_slot = slot + 1;
        let next_listed = self.sequences.get(next.sequence);
        if listed.queue.len() < 2
            || listed.is_front_of_an_old_life()
            || next_listed.queue.get(next_queue_place) != next_slot
            || last_id.is_some_and(|last| last.successor().0 != next.chunk_id)
        {
            return false;
        }
        let (at, is_inside) = At::in_record(next_slot, next, || self.records.block_sizes(next_slot, 0));
        if is_inside {
            return false;
        }
        let mut target = self.reader.target;
        if let Some(cut) = cut {
            match self.ticket_in_order(next_slot) {
                Some(ticket) if ticket < cut && target.0 == slot => target = (next_slot, ticket),
                _ => return false,
            }
        }
        let next_sequence = next.sequence;
        // Not a copy of the record: its last two bytes that were written are still on their way.
        self.sequences.get_mut(sequence).pop_front(record, visible_bytes);
        self.unlist(header, outer, Account::Read);
        self.records.get_mut(slot).sequence = NONE;
        self.ring.clear_header(header);
        self.reader.slot = next_slot;
        self.reader.target = target;
        self.reader.at = at;
        if !is_same {
            self.reader.sequence = next_sequence;
            self.reader.origin = self.origin(next_sequence);
        }
        self.prefetch_ahead_of(next_slot);
        true
    }

    /// Asks for the header of a record that will be erased soon.
    #[inline]
    pub(crate) fn prefetch_ahead_of(&self, slot: u32) {
        if let Some(offset) = self.records.offset_ahead(slot, PREFETCH_RECORDS) {
            self.ring.prefetch_header(offset);
        }
    }
}
