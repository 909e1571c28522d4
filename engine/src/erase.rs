//! Erasing: the front of a sequence, of which nothing is left to read, is booked and becomes padding.

use crate::buffer::TraceBuffer;
use crate::ids::LossReasons;
use crate::records::{NONE, Slot, bit};
use crate::stats::Account;

impl TraceBuffer {
    /// A record is listed no more, and booked elsewhere.
    #[inline(always)]
    pub(crate) fn unlist(&mut self, offset: usize, outer: usize, account: Account) {
        self.books.move_listed(account, outer);
        if let Some(extents) = &mut self.space.extents {
            extents.note_erased(offset, 1);
        }
    }

    /// As [`erase_front`](Self::erase_front) for a front that was read to its end and has nothing special.
    #[inline]
    pub(crate) fn erase_read(&mut self, sequence: u32, slot: Slot, visible_bytes: u16) {
        const SPECIAL: u16 = bit::CUT | bit::ABORTED | bit::LIFE_END | bit::DRAINED_BY_EVICTION;
        let record = *self.records.get(slot);
        if record.has(SPECIAL) || record.unread_bytes != 0 || visible_bytes == 0 {
            self.erase_front(sequence, true, Some(visible_bytes));
            return;
        }
        let outer = self.space.outer_bytes(&self.records, slot);
        self.unlist(record.offset(), outer, Account::Read);
        self.sequences.get_mut(sequence).pop_front(&record, visible_bytes);
        self.records.get_mut(slot).sequence = NONE;
        self.ring.clear_header(record.offset());
    }

    /// Takes the front record out of its sequence, books it, and turns it into padding. Whether its header says so too depends
    /// on whether anybody will see it; the header is not looked at if the caller knows the number of visible bytes.
    pub(crate) fn erase_front(&mut self, sequence: u32, keeps_header: bool, visible_bytes: Option<u16>) {
        let slot = self.sequences.get(sequence).queue.get(0);
        let record = *self.records.get(slot);
        let outer = self.space.outer_bytes(&self.records, slot);
        let visible_bytes = visible_bytes.unwrap_or_else(|| self.ring.header(record.offset()).visible_bytes);
        let account = match () {
            () if visible_bytes == 0 => Account::Empty,
            () if record.unread_bytes != 0 => Account::Damaged,
            () if record.has(bit::DRAINED_BY_EVICTION) => Account::Overwritten,
            () => Account::Read,
        };
        self.unlist(record.offset(), outer, account);
        let listed = self.sequences.get_mut(sequence);
        listed.pop_front(&record, visible_bytes);
        if record.has(bit::CUT) {
            listed.add_loss(LossReasons::CHUNK_CORRUPTED);
        }
        if record.has(bit::ABORTED) {
            listed.add_loss(LossReasons::WRITER_ABORT);
        }
        let offset = record.offset();
        self.records.get_mut(slot).sequence = NONE;
        if keeps_header {
            self.ring.clear_header(offset);
        }
    }
}
