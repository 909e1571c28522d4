//! What is stored: the ring's bytes, the index of its records, and the accounts of both.
//!
//! The three change together. What has to change in more than one of them at a time, so that they
//! agree again, is done here: a record is written, consumed, or removed.

mod remove_front;

use crate::accounts::{Account, Accounts};
use crate::index::Index;
use crate::index::records::{NONE, Record, Slot, bit};
use crate::ring::Ring;
use crate::ring::tbchunk::TbChunk;

/// The parts of a buffer that hold data. Each keeps its own state private.
pub(crate) struct Store {
    pub(crate) ring: Ring,
    pub(crate) index: Index,
    pub(crate) accounts: Accounts,
}

/// Who consumes: a reader, or a writer that needs the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consumer {
    Reader,
    Evictor,
}

impl Store {
    /// The outer size of a listed record.
    #[inline]
    pub(crate) fn outer_bytes(&self, slot: Slot) -> usize {
        self.index.outer_bytes(&self.ring.space, slot)
    }

    /// Accounts for a record that has just been written at `offset`.
    #[inline(always)]
    pub(crate) fn note_written(&mut self, slot: Slot, offset: usize, outer: usize) {
        // No extents without tickets.
        if self.index.has_tickets() {
            if let Some(extents) = self.ring.space.extents_mut() {
                extents.note_listed(offset);
            }
            self.index.note_ticket(slot);
        }
        self.accounts.note_written(outer);
    }

    /// A record is not listed any more, and booked elsewhere.
    #[inline(always)]
    pub(crate) fn unlist(&mut self, offset: usize, outer: usize, account: Account) {
        self.accounts.move_listed(account, outer);
        if let Some(extents) = self.ring.space.extents_mut() {
            extents.note_erased(offset, 1);
        }
    }

    /// What a new record leaves of the oldest one is padding in the ring.
    #[inline(always)]
    pub(crate) fn note_padding(&mut self, outer: usize) {
        self.ring.padding_bytes = outer;
        self.accounts.stats.padding_bytes_written += outer as u64;
    }

    /// Closes the open extent; what is left of it becomes padding.
    pub(crate) fn close_extent(&mut self) {
        let left = self.ring.space.left_bytes();
        if left != 0 {
            let cursor = self.ring.space.cursor();
            self.ring.set_header(cursor, TbChunk::padding(left.min(1 << 16)));
            self.index.records.push_back(Record::padding(cursor));
            self.accounts.stats.padding_bytes_written += left as u64;
        }
        self.ring.space.close();
    }

    /// Makes room for a record: if it does not fit, the extent that was granted is opened.
    ///
    /// # Panics
    /// If none was granted.
    #[inline]
    pub(crate) fn make_room_in_extents(&mut self, outer: usize) {
        if !self.ring.space.fits(outer) {
            self.open_next_extent();
        }
    }

    #[cold]
    #[inline(never)]
    fn open_next_extent(&mut self) {
        self.close_extent();
        self.ring.space.open_granted_extent(self.index.newest_ticket());
    }

    /// Takes the oldest record, which is padding, out of the list.
    #[inline(always)]
    pub(crate) fn pop_oldest_padding(&mut self, front: Slot) {
        if self.index.has_tickets() {
            // The set of late records may still name it.
            self.index.records.get_mut(front).sequence = NONE;
        }
        if self.index.records.pop_front() {
            self.index.sequences.fit_some();
        }
    }

    /// Notes what is left of a record from which something was just consumed, and, in `how`, what.
    #[inline]
    pub(crate) fn set_unread(&mut self, slot: Slot, unread_bytes: u16, how: u16, by: Consumer) {
        let record = self.index.records.get_mut(slot);
        record.unread_bytes = unread_bytes;
        record.bits = record.bits & !bit::FIRST_TAKEN | how;
        let offset = record.offset();
        self.ring.headers().set_unread(offset, unread_bytes);
        if unread_bytes == 0 {
            self.note_drained(slot, by);
        }
    }

    /// Consumes the first fragment of a record, which continues a packet.
    #[inline]
    pub(crate) fn consume_first(&mut self, slot: Slot, by: Consumer) {
        let first_bytes = self.index.records.first_bytes(slot);
        let record = self.index.records.get_mut(slot);
        record.unread_bytes -= first_bytes;
        record.bits |= bit::STARTED | bit::FIRST_TAKEN;
        let (offset, unread_bytes) = (record.offset(), record.unread_bytes);
        self.ring.headers().set_unread(offset, unread_bytes);
        if unread_bytes == 0 {
            self.note_drained(slot, by);
        }
    }

    /// Counts a record whose last byte has been consumed.
    #[inline]
    pub(crate) fn note_drained(&mut self, slot: Slot, by: Consumer) {
        let next = self.index.records.with_next(slot);
        let between = |(record, next): (&Record, &Record)| {
            self.ring.space.outer_bytes_between(record.offset(), next.offset())
        };
        let outer = next.and_then(between).unwrap_or_else(|| self.outer_bytes(slot));
        let (record, stats) = (self.index.records.get_mut(slot), &mut self.accounts.stats);
        if by == Consumer::Evictor {
            record.bits |= bit::DRAINED_BY_EVICTION;
            stats.note_overwritten(outer);
        } else if !record.has(bit::COUNTED_READ) {
            record.bits |= bit::COUNTED_READ;
            stats.chunks_read += 1;
            stats.bytes_read += outer as u64;
        }
    }
}
