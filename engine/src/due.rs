//! What a run has taken, for all who are to know of it.
//!
//! A run that went along a stretch has left records behind: those that the pass is done with are erased, those of a packet over several
//! records, while that is the last that was taken, are read to their ends and still listed, and of the one where the run is a part has been
//! read. All of it follows from where the run began and where it is.

use crate::buffer::TraceBuffer;
use crate::ids::ChunkId;
use crate::read::Reader;
use crate::records::{NONE, Record, Slot, bit};
use crate::sequence::Last;
use crate::stats::{Amount, BufferStats, Ledger};
use crate::walk::At;

/// What everybody but the run does not know yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    sequence: u32,
    /// The record in which the run began; those behind it lie behind it in its block and in its sequence.
    slot: Slot,
    /// Visible bytes of that one.
    visible_bytes: u16,
    /// It had been counted before.
    is_counted: bool,
    /// Records to that where the run is.
    passed: u32,
    /// Records to be erased, at most as many.
    turned: u32,
    /// What is unread of the record where the run is.
    unread_bytes: u16,
    long_packets: u32,
}

impl Reader {
    /// None if nothing was taken.
    #[inline]
    pub(crate) fn due(&self) -> Option<Due> {
        let Reader { run, at, sequence, .. } = self;
        let has_taken = run.has_taken();
        if !run.is_on() || !has_taken && run.passed == 0 {
            return None;
        }
        Some(Due {
            sequence: *sequence,
            slot: at.slot,
            visible_bytes: at.visible_bytes,
            is_counted: run.began_at_end,
            passed: run.passed,
            turned: if has_taken { run.passed } else { run.turned },
            unread_bytes: run.unread_bytes() as u16,
            long_packets: run.long_packets,
        })
    }

    /// Whether the pass is done with a record that still looks listed.
    #[inline]
    pub(crate) fn has_left(&self, slot: Slot) -> bool {
        self.due().is_some_and(|due| slot.wrapping_sub(due.slot) < due.turned)
    }
}

impl Record {
    /// Notes what is left after a read; that the first fragment was consumed and no other, if that is so. `sizes` are those of its block.
    #[inline(always)]
    fn leave(&mut self, unread_bytes: u16, sizes: &[u16]) {
        let consumed = self.unread_bytes - unread_bytes;
        if consumed == 0 {
            return;
        }
        // If it was consumed to its end, it was just that if there was no other.
        let is_first = self.bits & (bit::FIRST_CONTINUES | bit::STARTED) == bit::FIRST_CONTINUES
            && if unread_bytes == 0 { self.has(bit::ONE_PART) } else { consumed == self.first_bytes(sizes) };
        self.bits = self.bits & !bit::FIRST_TAKEN | bit::STARTED;
        self.bits |= if is_first { bit::FIRST_TAKEN } else { 0 };
        self.bits |= if unread_bytes == 0 { bit::COUNTED_READ } else { 0 };
        self.unread_bytes = unread_bytes;
    }
}

impl TraceBuffer {
    /// What was counted.
    pub fn stats(&self) -> BufferStats {
        let mut stats = self.stats;
        if let Some(due) = self.reader.due() {
            stats.note_read(self.read(&due), due.long_packets);
        }
        stats
    }

    /// Where every record went.
    pub fn ledger(&self) -> Ledger {
        let mut books = self.books;
        if let Some(due) = self.reader.due() {
            let erased = self.erased(&due);
            books.move_read(erased.chunks as usize, erased.bytes as usize);
        }
        books.ledger(&self.stats, self.sequences.forgotten)
    }

    #[inline(never)]
    pub(crate) fn settle_run(&mut self) {
        let due = self.reader.due();
        let Some(due) = due else { return self.reader.run.stop() };
        let at = self.place_after(&due);
        #[cfg(debug_assertions)]
        let was_said = (self.stats(), self.ledger());
        self.reader.run.stop();
        self.apply(&due);
        #[cfg(debug_assertions)]
        assert_eq!((self.stats(), self.ledger()), was_said);
        self.reader.at = at;
        if due.turned != 0 {
            self.reader.slot = at.slot;
        }
    }

    /// Lets all but the read pass know. The buffer may also be a copy of the one where the run is.
    pub(crate) fn apply(&mut self, due: &Due) {
        let read = self.read(due);
        self.stats.note_read(read, due.long_packets);
        let erased = self.erased(due);
        let TraceBuffer { records, sequences, space, ring, books, .. } = self;
        let (pages, sizes) = records.run_at_mut(due.slot, due.passed + 1);
        let (turned, listed) = pages.split_at_mut(due.turned as usize);
        if let Some(last) = turned.last() {
            let visible_bytes = match turned.len() {
                1 => due.visible_bytes,
                _ => At::in_record(due.slot, last, || sizes).0.visible_bytes,
            };
            let chunk_id = ChunkId(last.chunk_id);
            let last = Last { chunk_id, payload_bytes: visible_bytes, incomplete: false };
            sequences.get_mut(due.sequence).pop_read(turned.len(), last);
            books.move_read(turned.len(), erased.bytes as usize);
            if let Some(extents) = &mut space.extents {
                extents.note_erased(turned[0].offset(), due.turned);
            }
        }
        let mut headers = ring.headers();
        for record in turned {
            (record.sequence, record.unread_bytes) = (NONE, 0);
            headers.clear(record.offset());
        }
        let Some((last, drained)) = listed.split_last_mut() else { return };
        for record in drained {
            record.leave(0, sizes);
            headers.set_unread(record.offset(), 0);
        }
        last.leave(due.unread_bytes, sizes);
        headers.set_unread(last.offset(), due.unread_bytes);
    }

    /// Where the pass is: on the oldest record that it is not done with.
    fn place_after(&self, due: &Due) -> At {
        let pages = self.records.run_at(due.slot, due.passed + 1);
        let sizes = self.records.block_sizes(due.slot, 0);
        let before = self.reader.at;
        let slot = due.slot + due.turned;
        let mut at = match due.turned {
            0 => before,
            turned => {
                let record = &pages[turned as usize];
                At { stretch: before.stretch - turned, ..At::in_record(slot, record, || sizes).0 }
            }
        };
        let left_bytes = if due.turned == due.passed { usize::from(due.unread_bytes) } else { 0 };
        let consumed = at.left_bytes - left_bytes;
        if consumed != 0 {
            at.offset += consumed;
            at.left_bytes = left_bytes;
            at.continues = false;
        }
        // Where nothing is left nobody asks for a size.
        if left_bytes != 0 {
            // SAFETY: something is left, and the run is in this block.
            at.sizes_at = unsafe { self.reader.run.index_in(sizes) };
        }
        at
    }

    /// The records that were read to their ends.
    #[inline]
    fn read(&self, due: &Due) -> Amount {
        let pages = self.records.run_at(due.slot, due.passed + 1);
        let mut amount = Amount::default();
        let [before @ .., last] = pages else { return amount };
        let before = before.get(usize::from(due.is_counted)..).unwrap_or_default();
        if let Some(oldest) = before.first() {
            amount.chunks = before.len() as u64;
            amount.bytes = (last.offset() - oldest.offset()) as u64;
        }
        if due.unread_bytes == 0 && !last.has(bit::COUNTED_READ) {
            amount.add(self.space.outer_bytes(&self.records, due.slot + due.passed));
        }
        amount
    }

    /// The records that are to be erased.
    fn erased(&self, due: &Due) -> Amount {
        let pages = self.records.run_at(due.slot, due.turned + 1);
        let [first, .., next] = pages else { return Amount::default() };
        Amount { chunks: u64::from(due.turned), bytes: (next.offset() - first.offset()) as u64 }
    }
}
