//! Eviction: a read that waits for nothing.
//!
//! ```text
//!   cursor            end of the new record
//!   v                 v
//!   | oldest | next | padding |...       each record that begins in the range goes, with all that is before it in its sequence
//!   | new record      | rest  |...       what is left of the last one becomes padding
//! ```
//!
//! A record of which nothing was consumed is evicted by what is kept of it in [`crate::records`]: neither its payload nor its
//! header is touched. Fragments are gone through one by one only if a sink wants the packets, or if others than the first were consumed.

use crate::buffer::TraceBuffer;
use crate::ids::{ChunkId, LossReasons};
use crate::packet::{Origin, Unbound};
use crate::read::Mode;
use crate::records::{NONE, Record, Slot, bit};
use crate::sequence::Last;
use crate::sequences::Sequences;
use crate::stats::Account;
use crate::tbchunk::TbChunk;

/// Whether a record of which nothing is the matter is whole and untouched, and has no packets that are in other records too.
#[inline(always)]
fn is_ordinary(record: &Record) -> bool {
    const SPECIAL: u16 = bit::FIRST_CONTINUES
        | bit::LAST_CONTINUES
        | bit::STARTED
        | bit::CUT
        | bit::ABORTED
        | bit::LIFE_END
        | bit::GAP_ACCOUNTED;
    !record.has(SPECIAL) && record.unread_bytes != 0
}

impl Sequences {
    /// Evicts an ordinary record that is the front of its sequence: all there is to do in nearly every eviction, but for the books. False, and
    /// nothing done, if it is another kind of record.
    #[inline(always)]
    pub(crate) fn evict_ordinary(&mut self, slot: Slot, record: &Record, pinned: u32) -> bool {
        if !is_ordinary(record) {
            return false;
        }
        let listed = self.get_mut(record.sequence);
        if !listed.pop_ordinary_front(record, slot) {
            return false;
        }
        listed.add_loss_if(record.has(bit::DELIVERABLE), LossReasons::OVERWRITE);
        if listed.queue.is_empty() && record.sequence != pinned {
            self.release(record.sequence);
        }
        true
    }
}

impl TraceBuffer {
    /// Evicts what is in the way of a record of `outer` bytes at the cursor, in a buffer that is one ring.
    ///
    /// Nearly always that is a rest of padding and an ordinary record or two, side by side in the table: they go here.
    #[inline(never)]
    pub(crate) fn make_room(&mut self, outer: usize) {
        let (mut at, used) = (self.space.cursor(), self.space.used_bytes());
        let end = at + outer;
        // A pass that stands somewhere, in a shard, must know what goes; a sink too.
        if self.sink.is_some() || !self.reader.stands_nowhere() {
            return self.make_room_slowly(at, end);
        }
        // The used part is tiled, and the oldest record of it lies at the cursor unless the cursor is its end.
        while at < end && at < used {
            let Some((slot, record, next)) = self.records.oldest_in_block() else {
                return self.make_room_slowly(at, end);
            };
            debug_assert_eq!(record.offset(), at);
            let next = if next > at { next } else { used };
            let outer = next - at;
            let record = if record.is_padding() {
                self.stats.padding_bytes_cleared += outer as u64;
                record
            } else if self.sequences.evict_ordinary(slot, record, self.pinned) {
                self.stats.note_overwritten(outer);
                self.books.move_listed(Account::Overwritten, outer);
                record
            } else {
                let record = *record;
                self.evict_special(slot, &record, outer)
            };
            if next > end {
                *record = Record::padding(end);
                self.leave_padding(end, next - end);
                return;
            }
            // The list of late records may still name it.
            record.sequence = NONE;
            self.records.pop_in_block();
            at = next;
        }
    }

    /// Evicts a record that is none for [`Sequences::evict_ordinary`], with all before it in its sequence.
    #[inline(always)]
    fn evict_special(&mut self, slot: Slot, record: &Record, outer: usize) -> &mut Record {
        if !self.evict_plain_front(slot, record, outer) {
            self.evict_up_to(record.sequence, slot, false);
        } else if record.sequence != self.pinned {
            self.sequences.release(record.sequence);
        }
        self.records.get_mut(slot)
    }

    /// As [`make_room`](Self::make_room), one by one from the oldest record on, which is at `at`.
    #[inline(never)]
    fn make_room_slowly(&mut self, mut at: usize, end: usize) {
        let used = self.space.used_bytes();
        while at < end && at < used {
            let Some((slot, record, next)) = self.records.oldest(used) else { return };
            debug_assert_eq!(record.offset(), at);
            self.evict_record(slot, &record, next - at, false);
            if next > end {
                *self.records.get_mut(slot) = Record::padding(end);
                self.leave_padding(end, next - end);
                return;
            }
            self.pop_oldest_record();
            at = next;
        }
    }

    /// What a new record leaves of the oldest one, from `end` on, is padding now: says so in the ring.
    #[inline(always)]
    fn leave_padding(&mut self, end: usize, rest: usize) {
        self.ring.set_header(end, TbChunk::padding(rest));
        self.stats.padding_bytes_written += rest as u64;
    }

    /// Evicts everything between the cursor and the end of the used part. What was there stays as padding, and is now the newest.
    pub(crate) fn evict_tail(&mut self) {
        let start = self.space.cursor();
        while let Some(slot) = self.records.front() {
            let record = *self.records.get(slot);
            if record.offset() < start {
                return;
            }
            let outer = self.space.outer_bytes(&self.records, slot);
            self.evict_record(slot, &record, outer, true);
            self.pop_oldest_record();
            self.records.push_back(Record::padding(record.offset()));
        }
    }

    pub(crate) fn evict_record(&mut self, slot: Slot, record: &Record, outer: usize, keeps_header: bool) {
        if record.is_padding() {
            self.stats.padding_bytes_cleared += outer as u64;
        } else if keeps_header
            || self.sink.is_some()
            || !self.sequences.evict_ordinary(slot, record, self.pinned)
        {
            self.evict_up_to(record.sequence, slot, keeps_header);
        } else {
            self.stats.note_overwritten(outer);
            self.unlist(record.offset(), outer, Account::Overwritten);
        }
    }

    /// Evicts the records of a sequence up to `target`. Its header is rewritten only if it will be seen again.
    #[inline(never)]
    fn evict_up_to(&mut self, sequence: u32, target: Slot, keeps_header: bool) {
        let mut is_lost = false;
        loop {
            if self.sink.is_none() && self.evict_ordinary_fronts(sequence, target, keeps_header) {
                break;
            }
            let front = self.sequences.get(sequence).queue.get(0);
            let keeps_front = keeps_header || front != target;
            if self.sink.is_some() || !self.evict_next_front(front, keeps_front) {
                is_lost |= self.evict_front(sequence, front, keeps_front);
            }
            if front == target {
                break;
            }
        }
        if is_lost {
            self.sequences.get_mut(sequence).add_loss(LossReasons::OVERWRITE);
        }
        if sequence != self.pinned {
            self.sequences.release(sequence);
        }
    }

    /// Evicts fronts of a sequence as long as they are ordinary, at most up to `target`. Whether that has gone, too.
    #[inline(always)]
    fn evict_ordinary_fronts(&mut self, sequence: u32, target: Slot, keeps_header: bool) -> bool {
        let listed = self.sequences.get_mut(sequence);
        let run = listed.queue.front_run();
        let Some(&front) = run.first() else { return false };
        let mut id = ChunkId(self.records.get(front).chunk_id);
        if !listed.is_followed_by(id) {
            return false;
        }
        let (mut count, mut bytes, mut bits, mut payload_bytes) = (0, 0, 0, 0);
        let mut is_done = false;
        for &slot in run {
            let Some((record, next, _)) = self.records.with_next_mut(slot) else { break };
            let offset = record.offset();
            let Some(outer) = self.space.outer_bytes_between(offset, next) else { break };
            if !is_ordinary(record) || record.chunk_id != id.0 {
                break;
            }
            record.sequence = NONE;
            (count, bytes) = (count + 1, bytes + outer);
            (bits, payload_bytes) = (bits & bit::DELIVERABLE | record.bits, record.unread_bytes);
            id = id.successor();
            if let Some(extents) = &mut self.space.extents {
                extents.note_erased(offset, 1);
            }
            is_done = slot == target;
            if keeps_header || !is_done {
                self.ring.clear_header(offset);
            }
            if is_done {
                break;
            }
        }
        if count != 0 {
            let chunk_id = ChunkId(id.0.wrapping_sub(1));
            listed.pop_read(count, Last { chunk_id, payload_bytes, incomplete: bits & bit::INCOMPLETE != 0 });
            if bits & bit::DELIVERABLE != 0 {
                listed.add_loss(LossReasons::OVERWRITE);
            }
            self.stats.chunks_overwritten += count as u64;
            self.stats.bytes_overwritten += bytes as u64;
            self.books.move_many(Account::Overwritten, count, bytes);
        }
        is_done
    }

    /// Evicts a front with which nothing is the matter. False, and nothing done, if something is.
    #[inline(always)]
    fn evict_next_front(&mut self, slot: Slot, keeps_header: bool) -> bool {
        let Some((record, next)) = self.records.with_next(slot) else { return false };
        let Some(outer) = self.space.outer_bytes_before(record, next) else { return false };
        let record = *record;
        if !self.evict_plain_front(slot, &record, outer) {
            return false;
        }
        self.records.get_mut(slot).sequence = NONE;
        if keeps_header {
            self.ring.clear_header(record.offset());
        }
        true
    }

    /// Evicts the front record of a sequence. Returns whether packets are lost, which is to be told when all is evicted.
    #[inline(never)]
    fn evict_front(&mut self, sequence: u32, front: Slot, keeps_header: bool) -> bool {
        self.arrive_at_front(sequence);
        let record = *self.records.get(front);
        let mut is_lost = false;
        if record.unread_bytes != 0 {
            let is_in_fragments = record.has(bit::STARTED) && !record.has(bit::FIRST_TAKEN);
            is_lost = if self.sink.is_some() || is_in_fragments {
                self.evict_by_fragment(sequence)
            } else {
                self.evict_whole(front, &record)
            };
        }
        let visible_bytes = (!record.has(bit::STARTED)).then_some(record.unread_bytes);
        self.erase_front(sequence, keeps_header, visible_bytes);
        is_lost
    }

    /// Evicts the fragments of the front record, of which none was consumed, or just a first one that continued a packet. Returns whether
    /// packets are lost.
    #[inline]
    fn evict_whole(&mut self, front: Slot, record: &Record) -> bool {
        let mut is_lost = record.has(bit::DELIVERABLE);
        if record.has(bit::FIRST_CONTINUES | bit::LAST_CONTINUES) {
            is_lost |= self.evict_open_ends(record);
        }
        let record = self.records.get_mut(front);
        record.unread_bytes = 0;
        record.bits = record.bits & !bit::FIRST_TAKEN | bit::STARTED;
        self.note_drained(front, Mode::Evict);
        is_lost
    }

    /// Goes through the unread fragments of the front record. Returns whether packets are lost that no sink has absorbed.
    fn evict_by_fragment(&mut self, sequence: u32) -> bool {
        let mut is_lost = false;
        // No read pass stands anywhere while something is written.
        self.open_front(sequence);
        while let Some(pieces) = self.next_of_front(sequence, Mode::Evict) {
            let Some(sink) = &mut self.sink else {
                is_lost = true;
                continue;
            };
            let loss = LossReasons(self.sequences.get(sequence).pending_loss.into());
            // SAFETY: its bodies lie in the ring and its list in the arena; neither changes before it is dropped.
            let packet = unsafe { Unbound::pieces(pieces, Origin { loss, ..self.reader.origin }) };
            is_lost |= !sink.handle_overwritten(&packet);
        }
        self.reader.pause();
        self.arena.reset();
        is_lost
    }
}
