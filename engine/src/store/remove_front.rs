//! The front of a sequence, of which nothing is left to read, is booked and becomes padding.

use super::Store;
use crate::accounts::Account;
use crate::ids::LossReasons;
use crate::index::records::{NONE, Slot, bit};

impl Store {
    /// As [`remove_front`](Self::remove_front) for a front that was read to its end, nearly always
    /// an ordinary one.
    #[inline]
    pub(crate) fn remove_read_front(&mut self, sequence: u32, slot: Slot, visible_bytes: u16) {
        const SPECIAL: u16 = bit::CUT | bit::ABORTED | bit::LIFE_END | bit::DRAINED_BY_EVICTION;
        let record = *self.index.records.get(slot);
        if record.has(SPECIAL) || record.unread_bytes != 0 || visible_bytes == 0 {
            self.remove_front(sequence, true, Some(visible_bytes));
            return;
        }
        let outer = self.outer_bytes(slot);
        self.unlist(record.offset(), outer, Account::Read);
        self.index.sequences.get_mut(sequence).pop_front(&record, visible_bytes);
        self.index.records.get_mut(slot).sequence = NONE;
        self.ring.headers().clear(record.offset());
    }

    /// Takes the front record out of its sequence, books it, and turns it into padding. Its header
    /// is cleared only if somebody will see it; it is not read if the caller knows the visible
    /// bytes.
    pub(crate) fn remove_front(&mut self, sequence: u32, keeps_header: bool, visible_bytes: Option<u16>) {
        let slot = self.index.sequences.get(sequence).queue.get(0);
        let record = *self.index.records.get(slot);
        let (offset, outer) = (record.offset(), self.outer_bytes(slot));
        let visible_bytes = visible_bytes.unwrap_or_else(|| self.ring.header(offset).visible_bytes);
        let account = match () {
            () if visible_bytes == 0 => Account::Empty,
            () if record.unread_bytes != 0 => Account::Damaged,
            () if record.has(bit::DRAINED_BY_EVICTION) => Account::Overwritten,
            () => Account::Read,
        };
        self.unlist(offset, outer, account);
        let listed = self.index.sequences.get_mut(sequence);
        listed.pop_front(&record, visible_bytes);
        if record.has(bit::CUT) {
            listed.add_loss(LossReasons::CHUNK_CORRUPTED);
        }
        if record.has(bit::ABORTED) {
            listed.add_loss(LossReasons::WRITER_ABORT);
        }
        self.index.records.get_mut(slot).sequence = NONE;
        if keeps_header {
            self.ring.headers().clear(offset);
        }
    }
}
