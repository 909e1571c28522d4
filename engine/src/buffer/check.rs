//! Invariants of a buffer's structure, for tests: the feature `testing`.

use super::TraceBuffer;
use super::shard::Shard;
use crate::accounts::Amount;
use crate::index::fragment_sizes as sizes;
use crate::index::records::{Record, Slot, bit};
use crate::ring::tbchunk::{INCOMPLETE, checksum, outer_bytes};

impl Shard {
    /// Checks every invariant of the shard's structure.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&mut self) -> Result<(), String> {
        if self.0.store.ring.space.extents().is_some() { self.0.check_shard() } else { self.0.check() }
    }
}

impl TraceBuffer {
    /// Checks every invariant: records tile the used part; headers, records and sequences agree;
    /// the ledger balances. For tests: looks at everything.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&mut self) -> Result<(), String> {
        self.reader.flush(&mut self.store);
        self.store.ring.flush_padding();
        let mut by_offset = std::collections::BTreeMap::new();
        for slot in self.store.index.records.slots() {
            let record = self.store.index.records.get(slot);
            let outer = self.store.outer_bytes(slot);
            if by_offset.insert(record.offset(), (slot, outer)).is_some() {
                return Err(format!("two records at {}", record.offset()));
            }
        }
        let in_lists = self.store.index.sequences.listed();
        let (mut end, mut cursor_is_boundary) = (0, self.write_offset() == self.used_size_bytes());
        let mut listed = Amount::default();
        for (&offset, &(slot, outer)) in &by_offset {
            if offset != end {
                return Err(format!("a record ends at {end}, the next begins at {offset}"));
            }
            cursor_is_boundary |= offset == self.write_offset();
            end = offset + outer;
            let record = self.store.index.records.get(slot);
            self.check_header(slot, outer)?;
            if !record.is_padding() {
                listed.add(outer);
                if !in_lists.contains(&(record.sequence, slot)) {
                    return Err(format!("the record at {offset} is not in its sequence's list"));
                }
            }
        }
        if end != self.used_size_bytes() || !cursor_is_boundary {
            return Err(format!("records end at {end}, cursor {}", self.write_offset()));
        }
        let in_lists = in_lists.len();
        let ledger = self.ledger();
        if in_lists as u64 != listed.chunks || listed != ledger.listed || !ledger.is_balanced() {
            return Err(format!("{in_lists} records in lists, {listed:?} in the ring, {ledger:?}"));
        }
        Ok(())
    }

    /// As [`check`](Self::check) for a shard: records need not tile anything, but the counts of
    /// extents must agree.
    pub(crate) fn check_shard(&mut self) -> Result<(), String> {
        self.reader.flush(&mut self.store);
        let mut listed = Amount::default();
        for slot in self.store.index.records.slots() {
            let record = self.store.index.records.get(slot);
            if record.is_padding() {
                continue;
            }
            let outer = self.store.outer_bytes(slot);
            self.check_header(slot, outer)?;
            listed.add(outer);
        }
        let in_lists = self.store.index.sequences.listed().len();
        let ledger = self.ledger();
        if in_lists as u64 != listed.chunks || listed != ledger.listed || !ledger.is_balanced() {
            return Err(format!("{in_lists} records in lists, {listed:?} in the extents, {ledger:?}"));
        }
        let records = self.store.index.records.slots().map(|slot| self.store.index.records.get(slot));
        let mut offsets = records.filter(|record| !record.is_padding()).map(Record::offset);
        match self.store.ring.space.extents() {
            Some(extents) if !extents.agrees_with(&mut offsets) => {
                Err(format!("{extents:?} counts other records"))
            }
            _ => Ok(()),
        }
    }

    fn check_header(&self, slot: Slot, outer: usize) -> Result<(), String> {
        let record = self.store.index.records.get(slot);
        let offset = record.offset();
        let header = self.store.ring.header(offset);
        let wrong = |what: &str| Err(format!("at {offset}: {what}: {header:?}, {record:?}"));
        if outer_bytes(header.reserved_bytes.into()) != outer {
            return wrong("size");
        }
        if header.checksum != checksum(offset, header.reserved_bytes) {
            return wrong("checksum");
        }
        if record.is_padding() && header.key_low != 0 {
            return wrong("padding");
        }
        if record.is_padding() {
            let is_clear = header.chunk_id == 0 && header.unread_bytes == 0 && header.flags == 0;
            return if is_clear { Ok(()) } else { wrong("padding is not clear") };
        }
        let flags = record.bits & bit::KNOWN_FLAGS == u16::from(header.flags) & bit::KNOWN_FLAGS;
        let incomplete = record.has(bit::INCOMPLETE) == (header.flags & INCOMPLETE != 0);
        let consumed = header.visible_bytes.checked_sub(record.unread_bytes);
        let started = consumed.is_some_and(|consumed| record.has(bit::STARTED) == (consumed != 0));
        let same = header.chunk_id == record.chunk_id
            && header.unread_bytes == record.unread_bytes
            && header.key_low == self.store.index.sequences.get(record.sequence).key as u32;
        if !(flags && incomplete && started && same && header.visible_bytes <= header.reserved_bytes) {
            return wrong("fields");
        }
        if record.has(bit::SIZED) && !self.has_sizes_of(slot, header.visible_bytes.into()) {
            return wrong("sizes");
        }
        Ok(())
    }

    /// Whether the sizes that are kept of a record add up to its visible bytes.
    fn has_sizes_of(&self, slot: Slot, visible_bytes: usize) -> bool {
        let mut sizes = self.store.index.records.sizes(slot);
        let mut bytes = 0;
        while bytes < visible_bytes
            && let Some((extent, rest)) = sizes::split_first(sizes)
        {
            bytes += extent.total_bytes as usize;
            sizes = rest;
        }
        bytes == visible_bytes && visible_bytes != 0
    }
}
