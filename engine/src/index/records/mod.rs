//! What is kept of each record beside its payload.
//!
//! ```text
//!   blocks of 1024 records, linked in the order of writing, which is that of the ring from the
//!   write cursor on
//!
//!      head                                        end
//!       v                                           v
//!   [...R R R R] -> [R R R R R R R R] -> [R R R R R ....]
//!       ^ evicted next                      ^ newest
//! ```
//!
//! The records tile the used part of the ring: each ends where the next one begins, or at the seam,
//! where the used part ends. So sizes are not kept. Erased records stay as padding. A record's slot
//! (block and index) does not change while it is listed.
//!
//! For nearly every record writes and evictions look at no more than its 18 bytes and the 4 of its
//! entry in the sequence's queue. Sizes of fragments ([`super::fragment_sizes`]) belong to the
//! block; evictions look there for the size of a first fragment that continues a packet.

use crate::index::fragment_sizes as sizes;

mod lists;
mod record;

pub(crate) use record::{NONE, Record, Slot, bit};

const BLOCK_RECORDS: usize = 1 << BLOCK_BITS;
const BLOCK_BITS: u32 = 10;

/// Room for so many sizes is kept for later blocks, or one list: as much as the eviction of an
/// extent frees before the next block is needed.
const MAX_SPARE_SIZES: usize = 1 << 16;

#[derive(Clone)]
struct Block {
    records: [Record; BLOCK_RECORDS],
    /// Tickets of the records, in a shard; else empty.
    tickets: Vec<u64>,
    sizes: Vec<u16>,
    next: u32,
}

impl Block {
    fn new() -> Box<Block> {
        Box::new(Block {
            records: [Record::padding(0); BLOCK_RECORDS],
            tickets: Vec::new(),
            sizes: Vec::new(),
            next: NONE,
        })
    }
}

/// The records of a buffer, oldest first. The default has no records, and no memory yet.
#[derive(Clone, Default)]
pub(crate) struct Records {
    blocks: Vec<Box<Block>>,
    free: Vec<u32>,
    /// How many blocks may be in use before blocks of padding are looked for.
    most_in_use: usize,
    /// Memory of freed blocks, for the lists of sizes of the next ones.
    spare_sizes: Vec<Vec<u16>>,
    /// The oldest record; equal to `end` when there is none.
    head: Slot,
    /// Where the next record goes.
    end: Slot,
}

impl Records {
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> &Record {
        &self.blocks[(slot >> BLOCK_BITS) as usize].records[slot as usize % BLOCK_RECORDS]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Record {
        &mut self.blocks[(slot >> BLOCK_BITS) as usize].records[slot as usize % BLOCK_RECORDS]
    }

    /// The oldest record.
    #[inline]
    pub(crate) fn front(&self) -> Option<Slot> {
        (self.head != self.end).then_some(self.head)
    }

    /// The slot after a listed one. None after the newest.
    #[inline]
    pub(crate) fn next(&self, slot: Slot) -> Option<Slot> {
        let next = self.step(slot);
        (next != self.end).then_some(next)
    }

    /// A listed record and the one after it, in the next slot. None at the end of a block, and
    /// after the newest.
    #[inline]
    pub(crate) fn with_next(&self, slot: Slot) -> Option<(&Record, &Record)> {
        let records = &self.blocks[(slot >> BLOCK_BITS) as usize].records;
        let index = slot as usize % BLOCK_RECORDS;
        let next = records.get(index + 1).filter(|_| slot + 1 != self.end)?;
        Some((&records[index], next))
    }

    /// A listed record, the offset of the one after it, and the sizes of the block. None where
    /// [`with_next`](Self::with_next) has none.
    #[inline(always)]
    pub(crate) fn with_next_mut(&mut self, slot: Slot) -> Option<(&mut Record, usize, &[u16])> {
        let Block { records, sizes, .. } = &mut *self.blocks[(slot >> BLOCK_BITS) as usize];
        let index = slot as usize % BLOCK_RECORDS;
        let next = records.get(index + 1).filter(|_| slot + 1 != self.end)?.offset();
        Some((&mut records[index], next, sizes))
    }

    /// `count` records from a slot on, contiguous in their block. Empty if there are fewer.
    #[inline(always)]
    pub(crate) fn run_at(&self, slot: Slot, count: u32) -> &[Record] {
        self.run_with_sizes(slot, count).map(|(run, _)| run).unwrap_or_default()
    }

    /// As [`run_at`](Self::run_at), with the sizes of the block. None if there are fewer.
    #[inline(always)]
    pub(crate) fn run_with_sizes(&self, slot: Slot, count: u32) -> Option<(&[Record], &[u16])> {
        let block = self.blocks.get((slot >> BLOCK_BITS) as usize)?;
        let start = slot as usize % BLOCK_RECORDS;
        let run = block.records.get(start..start + count as usize)?;
        Some((run, &block.sizes))
    }

    /// As [`run_with_sizes`](Self::run_with_sizes); no records if there are fewer.
    #[inline(always)]
    pub(crate) fn run_at_mut(&mut self, slot: Slot, count: u32) -> (&mut [Record], &[u16]) {
        let Block { records, sizes, .. } = &mut *self.blocks[(slot >> BLOCK_BITS) as usize];
        let start = slot as usize % BLOCK_RECORDS;
        (records.get_mut(start..start + count as usize).unwrap_or_default(), sizes)
    }

    /// The records of a block from a slot on. Empty if that is not listed.
    #[inline]
    pub(crate) fn rest_of_block(&self, slot: Slot) -> &[Record] {
        let (number, start) = (slot >> BLOCK_BITS, slot as usize % BLOCK_RECORDS);
        let is_newest = self.end >> BLOCK_BITS == number;
        let end = if is_newest { self.end as usize % BLOCK_RECORDS } else { BLOCK_RECORDS };
        let block = self.blocks.get(number as usize);
        block.and_then(|block| block.records.get(start..end)).unwrap_or_default()
    }

    /// The oldest record and where it ends, in a ring that is tiled up to `seam`.
    pub(crate) fn oldest(&self, seam: usize) -> Option<(Slot, Record, usize)> {
        let slot = self.front()?;
        let (offset, next) = self.extent(slot);
        let end = next.filter(|&next| next > offset).unwrap_or(seam);
        Some((slot, *self.get(slot), end))
    }

    /// The oldest record, its slot, and where the next one begins. None if the next one is in
    /// another block.
    #[inline(always)]
    pub(crate) fn oldest_in_block(&mut self) -> Option<(Slot, &mut Record, usize)> {
        let slot = self.head;
        let records = &mut self.blocks.get_mut((slot >> BLOCK_BITS) as usize)?.records;
        let index = slot as usize % BLOCK_RECORDS;
        let next = records.get(index + 1).filter(|_| slot + 1 != self.end)?.offset();
        Some((slot, &mut records[index], next))
    }

    /// The oldest slot, the records from there to the end of the block, and the slot at which
    /// records end. Empty if there never was a record.
    #[inline(always)]
    pub(crate) fn oldest_run(&mut self) -> (Slot, &mut [Record], Slot) {
        let first = self.head;
        let block = self.blocks.get_mut((first >> BLOCK_BITS) as usize);
        let run = block.map(|block| &mut block.records[first as usize % BLOCK_RECORDS..]);
        (first, run.unwrap_or_default(), self.end)
    }

    /// Removes records of the oldest run, but not the last of it, or what
    /// [`oldest_in_block`](Self::oldest_in_block) found.
    #[inline(always)]
    pub(crate) fn pop_run(&mut self, count: u32) {
        self.head += count;
    }

    /// Offsets of a listed record and of the next one. None after the newest.
    #[inline]
    pub(crate) fn extent(&self, slot: Slot) -> (usize, Option<usize>) {
        let records = &self.blocks[(slot >> BLOCK_BITS) as usize].records;
        let index = slot as usize % BLOCK_RECORDS;
        let offset = records[index].offset();
        match records.get(index + 1) {
            Some(next) if slot + 1 != self.end => (offset, Some(next.offset())),
            Some(_) => (offset, None),
            None => (offset, self.next(slot).map(|next| self.get(next).offset())),
        }
    }

    #[inline]
    fn step(&self, slot: Slot) -> Slot {
        let next = slot + 1;
        if !(next as usize).is_multiple_of(BLOCK_RECORDS) {
            return next;
        }
        self.blocks[(slot >> BLOCK_BITS) as usize].next << BLOCK_BITS
    }

    /// Slots from the oldest to the newest.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(self.front(), |&slot| self.next(slot))
    }

    /// Appends a record.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, record: Record) -> Slot {
        let slot = self.end;
        match self.blocks.get_mut((slot >> BLOCK_BITS) as usize) {
            Some(block) => block.records[slot as usize % BLOCK_RECORDS] = record,
            None => self.make_first_block().records[0] = record,
        }
        self.advance_end(slot);
        slot
    }

    #[inline(always)]
    fn advance_end(&mut self, slot: Slot) {
        if (slot as usize + 1).is_multiple_of(BLOCK_RECORDS) {
            self.append_block(slot >> BLOCK_BITS);
        } else {
            self.end = slot + 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn make_first_block(&mut self) -> &mut Block {
        debug_assert!(self.blocks.is_empty() && self.end == 0);
        self.blocks.push(Block::new());
        &mut self.blocks[0]
    }

    /// Links a block behind the full one: a freed one if there is any, so that memory follows the
    /// number of records.
    #[cold]
    fn append_block(&mut self, full: u32) {
        let next = self.free.pop().unwrap_or_else(|| {
            self.blocks.push(Block::new());
            self.blocks.len() as u32 - 1
        });
        self.blocks[next as usize].sizes = self.spare_sizes.pop().unwrap_or_default();
        let full = &mut self.blocks[full as usize];
        sizes::fit(&mut full.sizes);
        full.next = next;
        self.end = next << BLOCK_BITS;
    }

    /// Removes the oldest record. Whether that was the last of a block.
    #[inline(always)]
    pub(crate) fn pop_front(&mut self) -> bool {
        debug_assert!(self.head != self.end);
        let is_last = (self.head as usize + 1).is_multiple_of(BLOCK_RECORDS);
        if is_last {
            self.free_front_block();
        } else {
            self.head += 1;
        }
        is_last
    }

    /// Goes on in the next block.
    #[cold]
    #[inline(never)]
    fn free_front_block(&mut self) {
        let freed = self.head >> BLOCK_BITS;
        self.head = self.step(self.head);
        self.free_block(freed);
    }

    fn free_block(&mut self, freed: u32) {
        let mut sizes = std::mem::take(&mut self.blocks[freed as usize].sizes);
        let room = sizes.capacity();
        if room != 0 && (self.spare_sizes.is_empty() || self.spare_room() + room <= MAX_SPARE_SIZES) {
            sizes.clear();
            self.spare_sizes.push(sizes);
        }
        self.free.push(freed);
    }

    /// In extents: frees blocks of nothing but padding behind a listed record, except those with
    /// the slots `kept`. Cheap if called often. Where a record ends must not change: so the record
    /// before such a block must be padding too.
    pub(crate) fn drop_padding(&mut self, kept: [Slot; 3]) {
        const MIN_BLOCKS: usize = 4;
        if self.blocks.len() - self.free.len() <= self.most_in_use.max(MIN_BLOCKS) {
            return;
        }
        let newest = self.end >> BLOCK_BITS;
        let mut block = self.head >> BLOCK_BITS;
        while block != newest {
            let next = self.blocks[block as usize].next;
            let has_kept = kept.iter().any(|slot| slot >> BLOCK_BITS == next);
            let records = &self.blocks[next as usize].records;
            if next == newest
                || has_kept
                || !self.blocks[block as usize].records[BLOCK_RECORDS - 1].is_padding()
                || !records.iter().all(Record::is_padding)
            {
                block = next;
            } else {
                self.blocks[block as usize].next = self.blocks[next as usize].next;
                self.free_block(next);
            }
        }
        let in_use = self.blocks.len() - self.free.len();
        self.most_in_use = in_use + in_use / 4;
    }

    /// Offset of the record `distance` slots after a listed one, if it is in the same block: for
    /// prefetches.
    #[inline]
    pub(crate) fn offset_ahead(&self, slot: Slot, distance: u32) -> Option<usize> {
        let index = slot as usize % BLOCK_RECORDS + distance as usize;
        let block = &self.blocks[(slot >> BLOCK_BITS) as usize];
        block.records.get(index).map(Record::offset)
    }

    /// Bytes of memory in use, lists of sizes included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let lists = |block: &Block| block.sizes.capacity() * size_of::<u16>() + block.tickets.capacity() * 8;
        let used: usize = self.blocks.iter().map(|block| lists(block)).sum();
        self.blocks.len() * size_of::<Block>() + used + self.spare_room() * size_of::<u16>()
    }

    fn spare_room(&self) -> usize {
        self.spare_sizes.iter().map(Vec::capacity).sum()
    }
}
