//! One sequence: its records by life and chunk id, and what is known of those that were erased.
//!
//! ```text
//!   queue:    | 7 8 9 | 0 1 2 3 |        lives behind each other, ids ascending in each
//!      last: 6 ^       ^ newest_start
//! ```

mod lookup;

use std::collections::VecDeque;

use crate::ids::{ChunkId, LossReasons};
use crate::index::key_table::EntryIndex;
use crate::index::records::{NONE, Record, Records, bit};
use crate::index::remembered::{Memory, memory_bit};
use crate::index::slot_queue::SlotQueue;
use crate::ring::Ring;

/// The newest chunk of a life that was erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) chunk_id: ChunkId,
    pub(crate) payload_bytes: u16,
    pub(crate) incomplete: bool,
}

/// Who said that a sequence's writer has ended. Their values are bits of [`Memory::bits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Ended {
    Writer = memory_bit::ENDED_WRITER,
    Producer = memory_bit::ENDED_PRODUCER,
}

/// A life of the writer that is over, with records that are still listed.
#[derive(Clone, Copy, Debug)]
struct OldLife {
    identity: u32,
    records: u32,
}

/// A sequence with records, or one that is about to get its first.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) key: u64,
    /// Its entry in the key table.
    pub(crate) entry: EntryIndex,
    /// Identity of the newest life.
    pub(crate) identity: u32,
    /// Records by (life, chunk id).
    pub(crate) queue: SlotQueue,
    /// Index in the queue at which the newest life begins.
    newest_start: u32,
    /// Chunk id of the queue's back, if the queue is not empty.
    back_id: ChunkId,
    /// Bit k: whether chunk `back_id - k` of the newest life is listed. Meaningless for ids that
    /// are not newer than what was erased.
    recent: u32,
    /// What was erased last of the life of the queue's front.
    pub(crate) last: Option<Last>,
    pub(crate) pending_loss: u16,
    pub(crate) ended: Option<Ended>,
    /// The read pass in which it stalled last.
    pub(crate) stalled_in: u32,
    /// Number of its histogram, or [`NONE`] while it has none.
    pub(crate) histogram: u32,
    /// Lives before the newest, oldest first. None in nearly all sequences.
    #[expect(clippy::box_collection, reason = "8 bytes in every sequence, not 32")]
    old_lives: Option<Box<VecDeque<OldLife>>>,
}

impl Sequence {
    pub(crate) fn new(key: u64, identity: u32, entry: EntryIndex) -> Sequence {
        Sequence {
            key,
            entry,
            identity,
            queue: SlotQueue::default(),
            newest_start: 0,
            back_id: ChunkId(0),
            recent: 0,
            last: None,
            pending_loss: 0,
            ended: None,
            stalled_in: 0,
            histogram: NONE,
            old_lives: None,
        }
    }

    /// Bytes outside the struct.
    pub(crate) fn heap_bytes(&self) -> usize {
        let lives = self.old_lives.as_ref();
        let lives =
            lives.map_or(0, |lives| size_of::<VecDeque<OldLife>>() + lives.capacity() * size_of::<OldLife>());
        self.queue.heap_bytes() + lives
    }

    /// Becomes a vacant entry again. Its records are gone, so there are no old lives.
    #[inline]
    pub(crate) fn vacate(&mut self) {
        debug_assert!(self.queue.is_empty() && self.old_lives.is_none() && self.newest_start == 0);
        self.queue.clear();
        // The next sequence in this entry sets the rest.
        (self.key, self.recent, self.stalled_in) = (0, 0, 0);
    }

    /// A vacant entry becomes what was remembered. Field by field: a sequence that is built
    /// elsewhere is copied in words wider than those in which it was written, and the processor
    /// waits for each.
    #[inline]
    pub(crate) fn recall(&mut self, memory: &Memory, histogram: u32, entry: EntryIndex) {
        let has = |bit: u16| memory.bits & bit != 0;
        (self.key, self.identity, self.entry, self.histogram) =
            (memory.key, memory.identity, entry, histogram);
        self.last = has(memory_bit::HAS_LAST).then_some(Last {
            chunk_id: ChunkId(memory.last_id),
            payload_bytes: memory.last_payload_bytes,
            incomplete: has(memory_bit::LAST_INCOMPLETE),
        });
        self.pending_loss = memory.bits & memory_bit::LOSS;
        self.ended = [Ended::Producer, Ended::Writer].into_iter().find(|ended| has(*ended as u16));
    }

    /// Whether no chunk will come, and no loss is left to report.
    #[inline]
    pub(crate) fn is_done_with(&self) -> bool {
        self.ended == Some(Ended::Producer) && self.pending_loss == 0
    }

    #[inline]
    pub(crate) fn to_memory(&self) -> Memory {
        let mut bits = self.pending_loss & memory_bit::LOSS;
        bits |= self.ended.map_or(0, |ended| ended as u16);
        let mut memory = Memory { key: self.key, identity: self.identity, ..Memory::default() };
        if let Some(last) = &self.last {
            memory.last_id = last.chunk_id.0;
            memory.last_payload_bytes = last.payload_bytes;
            bits |= memory_bit::HAS_LAST;
            bits |= if last.incomplete { memory_bit::LAST_INCOMPLETE } else { 0 };
        }
        Memory { bits, ..memory }
    }

    #[inline]
    pub(crate) fn add_loss(&mut self, reasons: LossReasons) {
        self.pending_loss |= (reasons.0 | LossReasons::PRESENT.0) as u16;
    }

    /// The same, if `is_lost`. Without a branch: adding a constant writes one byte of two, which
    /// the processor cannot forward to a load of both, as when the sequence is remembered right
    /// after.
    #[inline(always)]
    pub(crate) fn add_loss_if(&mut self, is_lost: bool, reasons: LossReasons) {
        self.pending_loss |= [0, (reasons.0 | LossReasons::PRESENT.0) as u16][usize::from(is_lost)];
    }

    /// Identity of the front's life.
    #[inline]
    pub(crate) fn front_identity(&self) -> u32 {
        let oldest = self.old_lives.as_ref().and_then(|lives| lives.front());
        oldest.map_or(self.identity, |life| life.identity)
    }

    /// Identities of all lives.
    pub(crate) fn identities(&self) -> impl Iterator<Item = u32> + '_ {
        let old = self.old_lives.iter().flat_map(|lives| lives.iter());
        old.map(|life| life.identity).chain([self.identity])
    }

    /// Whether another life has followed that of the front: no chunk and no patch will come for it.
    #[inline]
    pub(crate) fn is_front_of_an_old_life(&self) -> bool {
        self.newest_start != 0
    }

    /// What was erased last, if it was of the newest life.
    #[inline]
    pub(crate) fn last_of_newest_life(&self) -> Option<Last> {
        if self.newest_start == 0 { self.last } else { None }
    }

    /// Up to where a reader can come in the newest life: the first chunk that its writer has not
    /// completed or patched, or the newest.
    pub(crate) fn last_readable(&self, records: &Records, ring: &Ring) -> Option<Last> {
        let newest = self.newest_start as usize..self.queue.len();
        let mut newest = newest.map(|index| records.get(self.queue.get(index)));
        let waits = |record: &&Record| record.has(bit::INCOMPLETE | bit::NEEDS_PATCHING);
        let last = newest.clone().find(waits).or(newest.next_back());
        let Some(record) = last else { return self.last_of_newest_life() };
        let payload_bytes = ring.header(record.offset()).visible_bytes;
        let (chunk_id, incomplete) = (ChunkId(record.chunk_id), record.has(bit::INCOMPLETE));
        Some(Last { chunk_id, payload_bytes, incomplete })
    }

    /// The newest id of the newest life that is listed.
    #[inline]
    pub(crate) fn newest_listed(&self) -> Option<ChunkId> {
        (self.queue.len() > self.newest_start as usize).then_some(self.back_id)
    }

    /// A new life: from now on chunks are another writer's, with this identity.
    pub(crate) fn start_life(&mut self, records: &mut Records, identity: u32) {
        let of_newest = self.queue.len() as u32 - self.newest_start;
        if let Some(back) = self.queue.back() {
            if of_newest != 0 {
                records.get_mut(back).bits |= bit::LIFE_END;
                let life = OldLife { identity: self.identity, records: of_newest };
                self.old_lives.get_or_insert_default().push_back(life);
                self.newest_start = self.queue.len() as u32;
            }
        } else {
            self.last = None;
        }
        self.identity = identity;
        self.histogram = NONE;
        self.recent = 0;
        self.ended = None;
    }

    /// Appends the newest record of the newest life to the queue.
    #[inline(always)]
    pub(crate) fn push_back(&mut self, slot: u32, id: ChunkId) {
        self.queue.push_back(slot);
        // Where the id is not newer the queue was empty: nothing is listed that far back.
        let ahead = id.0.wrapping_sub(self.back_id.0);
        self.recent = self.recent.checked_shl(ahead).unwrap_or(0) | 1;
        self.back_id = id;
    }

    /// Inserts a record of the newest life before the last `behind` records that are still there.
    /// Whether there are any.
    ///
    /// The position counts from the end: evictions since it was found take from the front only.
    #[inline(always)]
    pub(crate) fn insert(&mut self, slot: u32, id: ChunkId, behind: usize) -> bool {
        let is_late = behind != 0 && !self.queue.is_empty();
        if is_late {
            self.queue.insert(slot, behind);
            if let Some(bit) = 1u32.checked_shl(self.back_id.0.wrapping_sub(id.0)) {
                self.recent |= bit;
            }
        } else {
            self.push_back(slot, id);
        }
        is_late
    }

    /// Removes the front, which was `record`, from the queue.
    #[inline]
    pub(crate) fn pop_front(&mut self, record: &Record, payload_bytes: u16) {
        self.queue.pop_front();
        if self.newest_start != 0 {
            self.pop_old(record);
        }
        if record.has(bit::LIFE_END) {
            self.last = None;
            return;
        }
        let chunk_id = ChunkId(record.chunk_id);
        match self.last {
            Some(last) if last.chunk_id.is_newer_than(chunk_id) => {}
            _ => self.last = Some(Last { chunk_id, payload_bytes, incomplete: record.has(bit::INCOMPLETE) }),
        }
    }

    /// Whether nothing newer than `id` was erased, and there are no old lives.
    #[inline(always)]
    pub(crate) fn has_erased_up_to(&self, id: ChunkId) -> bool {
        self.newest_start == 0 && self.last.is_none_or(|last| !last.chunk_id.is_newer_than(id))
    }

    /// Whether chunk `id` is the successor of what was erased, and there are no old lives.
    #[inline(always)]
    pub(crate) fn is_followed_by(&self, id: ChunkId) -> bool {
        self.newest_start == 0 && self.last.is_none_or(|last| last.chunk_id.successor() == id)
    }

    /// Removes the first `count` records, which are contiguous in memory, from the queue; `last`
    /// describes the last of them. Nothing newer was erased, and there are no old lives.
    #[inline(always)]
    pub(crate) fn pop_read(&mut self, count: usize, last: Last) {
        self.queue.pop_front_run(count);
        self.last = Some(last);
    }

    /// Removes `record` from the queue if it is the front and follows what was erased before it,
    /// and there are no old lives. False, and nothing done, if not. It must not be the end of a
    /// life.
    #[inline(always)]
    pub(crate) fn pop_ordinary_front(&mut self, record: &Record, slot: u32) -> bool {
        let chunk_id = ChunkId(record.chunk_id);
        if !self.is_followed_by(chunk_id) || !self.queue.pop_front_if(slot) {
            return false;
        }
        let incomplete = record.has(bit::INCOMPLETE);
        self.last = Some(Last { chunk_id, payload_bytes: record.unread_bytes, incomplete });
        true
    }

    #[cold]
    fn pop_old(&mut self, record: &Record) {
        self.newest_start -= 1;
        if let Some(lives) = &mut self.old_lives {
            if record.has(bit::LIFE_END) {
                lives.pop_front();
            } else if let Some(life) = lives.front_mut() {
                life.records -= 1;
            }
            if lives.is_empty() {
                self.old_lives = None;
            }
        }
    }
}
