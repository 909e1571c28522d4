//! The ring for people, and what must always be true of it.

use std::fmt::{self, Write};

use crate::buffer::TraceBuffer;
use crate::ids::{LossReasons, ids_of};
use crate::records::{Record, Slot, bit};
use crate::sizes;
use crate::stats::Amount;
use crate::tbchunk::{INCOMPLETE, TbChunk, checksum, outer_bytes};

impl TraceBuffer {
    /// One line for each record in the order of the ring's bytes, then one for each sequence in the order of producer and writer. The same
    /// state gives the same text.
    pub fn dump(&mut self) -> String {
        self.settle();
        let mut text = String::new();
        self.write_dump(&mut text).expect("a string takes everything");
        text
    }

    fn write_dump(&self, out: &mut String) -> fmt::Result {
        let (size, used) = (self.size_bytes(), self.used_size_bytes());
        writeln!(out, "buffer {:?} size {size} used {used} cursor {}", self.policy, self.write_offset())?;
        let mut offset = 0;
        while offset < used {
            let header = self.ring.header(offset);
            let outer = outer_bytes(header.reserved_bytes.into());
            let cursor = if offset == self.write_offset() { " <- cursor" } else { "" };
            writeln!(out, "{offset:>10} +{outer:<6}{}{cursor}", Line(header))?;
            offset += outer;
        }
        let mut sequences: Vec<_> = self.sequences.live().collect();
        sequences.sort_unstable_by_key(|sequence| sequence.key);
        for sequence in sequences {
            let (producer, writer) = ids_of(sequence.key);
            write!(out, "sequence {}/{}:", producer.0, writer.0)?;
            for index in 0..sequence.queue.len() {
                let record = self.records.get(sequence.queue.get(index));
                let end = if record.has(bit::LIFE_END) { " |" } else { "" };
                write!(out, " {}@{}{end}", { record.chunk_id }, record.offset())?;
            }
            let last = sequence.last.map(|last| format!(", last {}", last.chunk_id.0)).unwrap_or_default();
            writeln!(out, "{last}, loss {}", LossReasons(sequence.pending_loss.into()))?;
        }
        Ok(())
    }

    /// Tests every invariant of the buffer's structure: records tile the used part, headers, records and sequences agree, the ledger
    /// balances. For tests; looks at everything.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&mut self) -> Result<(), String> {
        self.settle();
        let mut by_offset = std::collections::BTreeMap::new();
        for slot in self.records.slots() {
            let record = self.records.get(slot);
            let outer = self.space.outer_bytes(&self.records, slot);
            if by_offset.insert(record.offset(), (slot, outer)).is_some() {
                return Err(format!("two records at {}", record.offset()));
            }
        }
        let in_lists = self.sequences.listed();
        let (mut end, mut cursor_is_boundary) = (0, self.write_offset() == self.used_size_bytes());
        let mut listed = Amount::default();
        for (&offset, &(slot, outer)) in &by_offset {
            if offset != end {
                return Err(format!("a record ends at {end}, the next begins at {offset}"));
            }
            cursor_is_boundary |= offset == self.write_offset();
            end = offset + outer;
            let record = self.records.get(slot);
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

    /// As [`check`](Self::check) for a shard: its records need not tile anything, but extents and counts must agree.
    pub(crate) fn check_shard(&mut self) -> Result<(), String> {
        self.settle();
        let mut listed = Amount::default();
        for slot in self.records.slots() {
            let record = self.records.get(slot);
            if record.is_padding() {
                continue;
            }
            let outer = self.space.outer_bytes(&self.records, slot);
            self.check_header(slot, outer)?;
            listed.add(outer);
        }
        let in_lists: usize = self.sequences.live().map(|sequence| sequence.queue.len()).sum();
        let ledger = self.ledger();
        if in_lists as u64 != listed.chunks || listed != ledger.listed || !ledger.is_balanced() {
            return Err(format!("{in_lists} records in lists, {listed:?} in the extents, {ledger:?}"));
        }
        let records = self.records.slots().map(|slot| self.records.get(slot));
        let mut places = records.filter(|record| !record.is_padding()).map(Record::offset);
        match &self.space.extents {
            Some(extents) if !extents.agrees_with(&mut places) => {
                Err(format!("{extents:?} counts other records"))
            }
            _ => Ok(()),
        }
    }

    fn check_header(&self, slot: Slot, outer: usize) -> Result<(), String> {
        let record = self.records.get(slot);
        let offset = record.offset();
        let header = self.ring.header(offset);
        let wrong = |what: &str| Err(format!("at {offset}: {what}: {header:?}, {record:?}"));
        if outer_bytes(header.reserved_bytes.into()) != outer {
            return wrong("size");
        }
        if header.checksum != checksum(offset, header.reserved_bytes) {
            return wrong("checksum");
        }
        if record.is_padding() != (header.key == 0) {
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
            && header.key == self.sequences.get(record.sequence).key;
        if !(flags && incomplete && started && same && header.visible_bytes <= header.reserved_bytes) {
            return wrong("fields");
        }
        if record.has(bit::SIZED) && !self.has_sizes_of(slot, header.visible_bytes.into()) {
            return wrong("sizes");
        }
        Ok(())
    }

    /// Whether the sizes that are kept of a record are those of some fragments that make up its visible bytes.
    fn has_sizes_of(&self, slot: Slot, visible_bytes: usize) -> bool {
        let mut sizes = self.records.sizes(slot);
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

/// A header on one line.
struct Line(TbChunk);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TbChunk { chunk_id, key, reserved_bytes, visible_bytes, unread_bytes, flags, .. } = self.0;
        if key == 0 {
            return f.write_str(" padding");
        }
        let (producer, writer) = ids_of(key);
        write!(f, " {}/{} chunk {chunk_id} unread {unread_bytes} of {visible_bytes}", producer.0, writer.0)?;
        if reserved_bytes != visible_bytes {
            write!(f, " in {reserved_bytes}")?;
        }
        let names = [
            (1, "first-continues"),
            (2, "last-continues"),
            (4, "needs-patching"),
            (INCOMPLETE, "incomplete"),
        ];
        names.iter().filter(|(bit, _)| flags & bit != 0).try_for_each(|(_, name)| write!(f, " {name}"))
    }
}
