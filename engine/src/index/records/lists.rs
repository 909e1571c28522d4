//! What belongs to a block beside its records: sizes of fragments, and, in a shard, tickets.

use super::{BLOCK_BITS, BLOCK_RECORDS, Record, Records, Slot, bit};
use crate::index::fragment_sizes::{self as sizes, MAX_ENTRIES};

/// Set in the tickets of late records. Tickets count commits: they never reach this bit.
const LATE: u64 = 1 << 63;

impl Records {
    /// Appends a record and the sizes of its fragments, as long as indices of the list fit into a
    /// record.
    #[inline(always)]
    pub(crate) fn push_with_sizes(
        &mut self,
        mut record: Record,
        entries: &[u16; MAX_ENTRIES],
        count: usize,
    ) -> Slot {
        let slot = self.end;
        let block = match self.blocks.get_mut((slot >> BLOCK_BITS) as usize) {
            Some(block) => block,
            None => self.make_first_block(),
        };
        match u16::try_from(block.sizes.len() / 2) {
            Ok(at) => {
                record.sizes_or_first = at;
                record.bits |= bit::SIZED;
                sizes::append_narrow(&mut block.sizes, entries, count);
            }
            Err(_) => record.sizes_or_first = sizes::total_of_narrow(entries[0]) as u16,
        }
        block.records[slot as usize % BLOCK_RECORDS] = record;
        self.advance_end(slot);
        slot
    }

    /// Sets the ticket of a record.
    #[inline(always)]
    pub(crate) fn set_ticket(&mut self, slot: Slot, ticket: u64) {
        let tickets = &mut self.blocks[(slot >> BLOCK_BITS) as usize].tickets;
        match tickets.get_mut(slot as usize % BLOCK_RECORDS) {
            Some(known) => *known = ticket,
            None => Self::set_first_ticket(tickets, slot, ticket),
        }
    }

    #[cold]
    #[inline(never)]
    fn set_first_ticket(tickets: &mut Vec<u64>, slot: Slot, ticket: u64) {
        tickets.resize(BLOCK_RECORDS, 0);
        tickets[slot as usize % BLOCK_RECORDS] = ticket;
    }

    /// The ticket of a record that has one.
    #[inline]
    pub(crate) fn ticket(&self, slot: Slot) -> u64 {
        self.blocks[(slot >> BLOCK_BITS) as usize].tickets[slot as usize % BLOCK_RECORDS] & !LATE
    }

    /// Marks a record as late: it came after one with a larger ticket.
    pub(crate) fn set_late(&mut self, slot: Slot) {
        let tickets = &mut self.blocks[(slot >> BLOCK_BITS) as usize].tickets;
        tickets[slot as usize % BLOCK_RECORDS] |= LATE;
    }

    /// Whether a record, no padding, was [marked](Self::set_late).
    pub(crate) fn is_late(&self, slot: Slot) -> bool {
        self.blocks[(slot >> BLOCK_BITS) as usize].tickets[slot as usize % BLOCK_RECORDS] & LATE != 0
    }

    /// The list of sizes for the next record, and its index, if that fits into a record.
    #[inline(always)]
    pub(crate) fn sizes_for_next(&mut self) -> Option<(&mut Vec<u16>, u16)> {
        if self.blocks.is_empty() {
            self.make_first_block();
        }
        let sizes = &mut self.blocks[(self.end >> BLOCK_BITS) as usize].sizes;
        debug_assert!(sizes.len().is_multiple_of(2));
        let at = u16::try_from(sizes.len() / 2).ok()?;
        Some((sizes, at))
    }

    /// The sizes of a record's fragments, followed by those of later records. Empty if none are
    /// kept.
    #[inline]
    pub(crate) fn sizes(&self, slot: Slot) -> &[u16] {
        self.with_sizes(slot).1
    }

    /// A record, and [`sizes`](Self::sizes) of it.
    #[inline]
    pub(crate) fn with_sizes(&self, slot: Slot) -> (&Record, &[u16]) {
        let block = &self.blocks[(slot >> BLOCK_BITS) as usize];
        let record = &block.records[slot as usize % BLOCK_RECORDS];
        let sizes = record.size_index().and_then(|at| block.sizes.get(at..)).unwrap_or_default();
        (record, sizes)
    }

    /// Bytes of a record's first fragment, header included; 0 if it has none.
    #[inline]
    pub(crate) fn first_bytes(&self, slot: Slot) -> u16 {
        let block = &self.blocks[(slot >> BLOCK_BITS) as usize];
        block.records[slot as usize % BLOCK_RECORDS].first_bytes(&block.sizes)
    }

    /// The sizes of a slot's block from an index on. Empty at the end of the list, and without such
    /// a block.
    #[inline]
    pub(crate) fn block_sizes(&self, slot: Slot, at: usize) -> &[u16] {
        let block = self.blocks.get((slot >> BLOCK_BITS) as usize);
        block.and_then(|block| block.sizes.get(at..)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of records of two fragments each.
    fn push_block(records: &mut Records) {
        let entries = [1 << 12 | 100; MAX_ENTRIES];
        for _ in 0..BLOCK_RECORDS {
            records.push_with_sizes(Record::padding(0), &entries, 2);
        }
    }

    #[test]
    fn lists_of_blocks_that_were_freed_together_are_used_again() {
        let mut records = Records::default();
        (0..4).for_each(|_| push_block(&mut records));
        for round in 0..4 {
            let bytes = records.memory_bytes();
            (0..3 * BLOCK_RECORDS).for_each(|_| _ = records.pop_front());
            assert_eq!(
                (records.spare_sizes.len(), records.memory_bytes()),
                (3, bytes),
                "nothing is given back"
            );
            (0..3).for_each(|_| push_block(&mut records));
            assert_eq!(records.spare_sizes.len(), 0);
            // The newest block had no list before the first round.
            assert!(round == 0 || records.memory_bytes() == bytes, "nothing is asked for");
        }
        let most = crate::index::records::MAX_SPARE_SIZES;
        (0..100).for_each(|_| push_block(&mut records));
        (0..100 * BLOCK_RECORDS).for_each(|_| _ = records.pop_front());
        assert!((most - most / 16..=most).contains(&records.spare_room()), "{}", records.spare_room());
    }
}
