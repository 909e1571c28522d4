//! What the cursor has taken, for all who have to know.
//!
//! A cursor that went along checked records has passed some of them. Those that the pass has left
//! are erased. Those of a packet over several records, while that is the last that was taken, are
//! read to their ends and still listed. Of the one where the cursor is a part has been read. All of
//! it follows from where the cursor began and where it is.

use crate::accounts::{Account, Accounts, Amount, BufferStats};
use crate::ids::ChunkId;
use crate::index::Index;
use crate::index::records::{NONE, Record, Slot, bit};
use crate::index::sequence::Last;
use crate::read::Reader;
use crate::read::walk::Position;
use crate::ring::space::Space;
use crate::store::Store;

/// Updates that only the cursor knows of so far.
#[derive(Clone, Copy, Debug)]
struct Deferred {
    sequence: u32,
    /// The record in which the cursor began. The others follow it in its block and its sequence.
    slot: Slot,
    /// Visible bytes of that one.
    visible_bytes: u16,
    /// It had been counted before.
    is_counted: bool,
    /// Records to that where the cursor is.
    passed: u32,
    /// Records to be erased: `left_records <= passed`.
    left_records: u32,
    /// What is unread of the record where the cursor is.
    unread_bytes: u16,
    multi_chunk_packets: u32,
}

impl Record {
    /// Notes what is left after a read; and if the first fragment was consumed and no other, that.
    /// `sizes` are those of its block.
    #[inline(always)]
    fn note_read(&mut self, unread_bytes: u16, sizes: &[u16]) {
        let consumed = self.unread_bytes - unread_bytes;
        if consumed == 0 {
            return;
        }
        // If it was consumed to its end, it was just the first if there was no other.
        let is_first = self.bits & (bit::FIRST_CONTINUES | bit::STARTED) == bit::FIRST_CONTINUES
            && if unread_bytes == 0 { self.has(bit::ONE_PART) } else { consumed == self.first_bytes(sizes) };
        self.bits = self.bits & !bit::FIRST_TAKEN | bit::STARTED;
        self.bits |= if is_first { bit::FIRST_TAKEN } else { 0 };
        self.bits |= if unread_bytes == 0 { bit::COUNTED_READ } else { 0 };
        self.unread_bytes = unread_bytes;
    }
}

impl Reader {
    /// None if the cursor has taken nothing.
    #[inline]
    fn deferred(&self) -> Option<Deferred> {
        let Reader { fragments, position, sequence, .. } = self;
        let has_taken = fragments.has_taken();
        if !fragments.is_active() || !has_taken && fragments.passed == 0 {
            return None;
        }
        Some(Deferred {
            sequence: *sequence,
            slot: position.slot,
            visible_bytes: position.visible_bytes,
            is_counted: fragments.began_at_end,
            passed: fragments.passed,
            left_records: if has_taken { fragments.passed } else { fragments.left_records },
            unread_bytes: fragments.unread_bytes() as u16,
            multi_chunk_packets: fragments.multi_chunk_packets,
        })
    }

    /// What a store has counted, with what the cursor has taken from it.
    pub(crate) fn accounts(&self, store: &Store) -> Accounts {
        let mut accounts = store.accounts;
        if let Some(deferred) = self.deferred() {
            deferred.count(&store.index, &store.ring.space, &mut accounts);
        }
        accounts
    }

    /// Brings a copy of the store up to date, as if this reader had been flushed before.
    pub(crate) fn apply_to_copy(&self, copy: &mut Store) {
        if let Some(deferred) = self.deferred() {
            deferred.apply(copy);
        }
    }

    /// Stops the cursor: index, headers, accounts and position get to know what it has taken.
    #[inline]
    pub(crate) fn flush(&mut self, store: &mut Store) {
        if self.fragments.is_active() {
            self.flush_active(store);
        }
    }

    #[inline(never)]
    fn flush_active(&mut self, store: &mut Store) {
        let Some(deferred) = self.deferred() else { return self.fragments.stop() };
        let position = self.position_after(&store.index, &deferred);
        self.fragments.stop();
        deferred.apply(store);
        self.position = position;
        if deferred.left_records != 0 {
            self.slot = position.slot;
        }
    }

    /// Where the pass is: in the oldest record that it has not left.
    fn position_after(&self, index: &Index, deferred: &Deferred) -> Position {
        let records = index.records.run_at(deferred.slot, deferred.passed + 1);
        let sizes = index.records.block_sizes(deferred.slot, 0);
        let before = self.position;
        let slot = deferred.slot + deferred.left_records;
        let mut position = match deferred.left_records {
            0 => before,
            left => {
                let (position, _) = Position::in_record(slot, &records[left as usize], || sizes);
                Position { checked: before.checked - left, ..position }
            }
        };
        let is_where_cursor_is = deferred.left_records == deferred.passed;
        let left_bytes = if is_where_cursor_is { usize::from(deferred.unread_bytes) } else { 0 };
        let consumed = position.left_bytes - left_bytes;
        if consumed != 0 {
            position.offset += consumed;
            position.left_bytes = left_bytes;
            position.continues = false;
        }
        // Where nothing is left nobody asks for a size.
        if left_bytes != 0 {
            // SAFETY: something is left, and the cursor is in this block.
            position.size_index = unsafe { self.fragments.index_in(sizes) };
        }
        position
    }
}

impl Deferred {
    fn apply(&self, store: &mut Store) {
        let Store { index, ring, accounts } = store;
        self.count(index, &ring.space, accounts);
        let (records, sizes) = index.records.run_at_mut(self.slot, self.passed + 1);
        let (left, listed) = records.split_at_mut(self.left_records as usize);
        if let Some(last) = left.last() {
            let visible_bytes = match left.len() {
                1 => self.visible_bytes,
                _ => Position::in_record(self.slot, last, || sizes).0.visible_bytes,
            };
            let chunk_id = ChunkId(last.chunk_id);
            let last = Last { chunk_id, payload_bytes: visible_bytes, incomplete: false };
            index.sequences.get_mut(self.sequence).pop_read(left.len(), last);
            if let Some(extents) = ring.space.extents_mut() {
                extents.note_erased(left[0].offset(), self.left_records);
            }
        }
        let mut headers = ring.headers();
        for record in left {
            (record.sequence, record.unread_bytes) = (NONE, 0);
            headers.clear(record.offset());
        }
        let Some((last, drained)) = listed.split_last_mut() else { return };
        for record in drained {
            record.note_read(0, sizes);
            headers.set_unread(record.offset(), 0);
        }
        last.note_read(self.unread_bytes, sizes);
        headers.set_unread(last.offset(), self.unread_bytes);
    }

    /// Counts what was read and what is to be erased.
    fn count(&self, index: &Index, space: &Space, accounts: &mut Accounts) {
        let (read, erased) = (self.read(index, space), self.erased(index));
        let BufferStats { chunks_read, bytes_read, readaheads_succeeded, .. } = &mut accounts.stats;
        *chunks_read += read.chunks;
        *bytes_read += read.bytes;
        *readaheads_succeeded += u64::from(self.multi_chunk_packets);
        accounts.move_many(Account::Read, erased.chunks as usize, erased.bytes as usize);
    }

    /// The records that were read to their ends, and not counted before.
    fn read(&self, index: &Index, space: &Space) -> Amount {
        let records = index.records.run_at(self.slot, self.passed + 1);
        let mut amount = Amount::default();
        let [before @ .., last] = records else { return amount };
        let before = before.get(usize::from(self.is_counted)..).unwrap_or_default();
        if let Some(oldest) = before.first() {
            amount.chunks = before.len() as u64;
            amount.bytes = (last.offset() - oldest.offset()) as u64;
        }
        if self.unread_bytes == 0 && !last.has(bit::COUNTED_READ) {
            amount.add(index.outer_bytes(space, self.slot + self.passed));
        }
        amount
    }

    /// The records that are to be erased.
    fn erased(&self, index: &Index) -> Amount {
        let records = index.records.run_at(self.slot, self.left_records + 1);
        let [first, .., next] = records else { return Amount::default() };
        let bytes = (next.offset() - first.offset()) as u64;
        Amount { chunks: u64::from(self.left_records), bytes }
    }
}
