//! The sequences: one for each `{ProducerID, WriterID}`.
//!
//! ```text
//!   index: key -> live n ------> slab[n]: Sequence, which lists its records by (life, chunk id)
//!          key -> remembered p -> 16 bytes for a sequence without records
//! ```
//!
//! A sequence moves from the slab to the remembered ones when its last record is erased and back at its next chunk. Records hold the
//! slab index, so nothing but a commit or a patch looks a key up, and of these the last key is kept.

use std::collections::{HashSet, VecDeque};

use crate::ids::{ChunkId, LossReasons};
use crate::key_table::{Entry, KeyTable, Place, VACANT};
use crate::queue::SlotQueue;
use crate::records::{NONE, Record, Records, bit};
use crate::remembered::{Memory, Remembered, memory_bit};

/// The newest chunk of a life that was erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) chunk_id: ChunkId,
    pub(crate) payload_bytes: u16,
    pub(crate) incomplete: bool,
}

/// Who said that a sequence's writer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Writer,
    Producer,
}

/// A life of the writer that is over, of which records are still listed.
#[derive(Clone, Copy, Debug)]
struct OldLife {
    identity: u32,
    records: u32,
}

/// A sequence with records, or one that is about to get its first.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) key: u32,
    /// Where the index has it.
    place: Place,
    /// Identity of the newest life.
    identity: u32,
    /// Records by (life, chunk id).
    pub(crate) queue: SlotQueue,
    /// Where the newest life begins in the queue.
    newest_start: u32,
    /// Chunk id of the queue's back, when the queue is not empty.
    back_id: ChunkId,
    /// What was erased last of the life that the queue's front belongs to.
    pub(crate) last: Option<Last>,
    pub(crate) pending_loss: u16,
    pub(crate) ended: Option<Ended>,
    /// Generation of the read pass that it stalled.
    pub(crate) stalled_in: u32,
    /// Number of its histogram, as that gave it, or [`NONE`] while it has none.
    pub(crate) histogram: u32,
    /// Lives before the newest, oldest first. Not there in nearly all sequences.
    #[expect(clippy::box_collection, reason = "8 bytes in every sequence, not 32")]
    old_lives: Option<Box<VecDeque<OldLife>>>,
}

impl Sequence {
    fn new(key: u32, identity: u32, place: Place) -> Sequence {
        Sequence {
            key,
            place,
            identity,
            queue: SlotQueue::default(),
            newest_start: 0,
            back_id: ChunkId(0),
            last: None,
            pending_loss: 0,
            ended: None,
            stalled_in: 0,
            histogram: NONE,
            old_lives: None,
        }
    }

    fn recalled(memory: Memory, place: Place) -> Sequence {
        let has = |bit: u16| memory.bits & bit != 0;
        let last = Last {
            chunk_id: ChunkId(memory.last_id),
            payload_bytes: memory.last_payload_bytes,
            incomplete: has(memory_bit::LAST_INCOMPLETE),
        };
        let ended = match () {
            () if has(memory_bit::ENDED_PRODUCER) => Some(Ended::Producer),
            () if has(memory_bit::ENDED_WRITER) => Some(Ended::Writer),
            () => None,
        };
        Sequence {
            last: has(memory_bit::HAS_LAST).then_some(last),
            pending_loss: memory.bits & memory_bit::LOSS,
            ended,
            ..Sequence::new(memory.key, memory.identity, place)
        }
    }

    fn to_memory(&self) -> Memory {
        let mut bits = self.pending_loss & memory_bit::LOSS;
        bits |= match self.ended {
            None => 0,
            Some(Ended::Writer) => memory_bit::ENDED_WRITER,
            Some(Ended::Producer) => memory_bit::ENDED_PRODUCER,
        };
        let mut memory = Memory { key: self.key, identity: self.identity, ..Memory::default() };
        if let Some(last) = self.last {
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

    /// Identity of the life that the front belongs to.
    #[inline]
    pub(crate) fn front_identity(&self) -> u32 {
        match &self.old_lives {
            Some(lives) => lives.front().map_or(self.identity, |life| life.identity),
            None => self.identity,
        }
    }

    /// Identity of the newest life.
    pub(crate) fn newest_identity(&self) -> u32 {
        self.identity
    }

    /// Whether the front belongs to a life that has been followed by another: nothing of it will come or be mended.
    #[inline]
    pub(crate) fn is_front_of_an_old_life(&self) -> bool {
        self.newest_start != 0
    }

    /// Erased last, if it was of the newest life.
    #[inline]
    pub(crate) fn last_of_newest_life(&self) -> Option<Last> {
        if self.newest_start == 0 { self.last } else { None }
    }

    /// The newest id of the newest life that is listed.
    #[inline]
    pub(crate) fn newest_listed(&self) -> Option<ChunkId> {
        (self.queue.len() > self.newest_start as usize).then_some(self.back_id)
    }

    /// What comes from now on is another writer's, with this identity.
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
        self.ended = None;
    }

    /// Where in the queue a chunk of the newest life is (`Ok`), or belongs (`Err`).
    #[inline]
    pub(crate) fn find(&self, records: &Records, id: ChunkId) -> Result<usize, usize> {
        match self.newest_listed() {
            None => Err(self.queue.len()),
            Some(back) if id.is_newer_than(back) => Err(self.queue.len()),
            Some(back) if id == back => Ok(self.queue.len() - 1),
            Some(_) => self.find_between(records, id, self.newest_start as usize, self.queue.len()),
        }
    }

    /// As [`find`](Self::find) among `start..end` of the queue, which belong to one life.
    ///
    /// Ids are nearly always without gaps, so the distance to the back says where to look. Otherwise by halves; where ids are more
    /// than 2^31 apart, which only forged ones are, the order means nothing and the answer is one of the possible ones.
    fn find_between(&self, records: &Records, id: ChunkId, start: usize, end: usize) -> Result<usize, usize> {
        let id_at = |index: usize| ChunkId(records.get(self.queue.get(index)).chunk_id);
        if start == end {
            return Err(end);
        }
        let distance = id_at(end - 1).0.wrapping_sub(id.0) as usize;
        if distance < end - start && id_at(end - 1 - distance) == id {
            return Ok(end - 1 - distance);
        }
        // The last few one by one: chunks of a scrape come in any order, but together.
        let near = end.saturating_sub(8).max(start);
        for index in (near..end).rev() {
            if id_at(index) == id {
                return Ok(index);
            }
            if id.is_newer_than(id_at(index)) {
                return Err(index + 1);
            }
        }
        let (mut low, mut high) = (start, near);
        while low < high {
            let middle = low + (high - low) / 2;
            let found = id_at(middle);
            if found == id {
                return Ok(middle);
            }
            if id.is_newer_than(found) { low = middle + 1 } else { high = middle }
        }
        Err(low)
    }

    /// Where a chunk is, from the newest life back. Lives further back than 64 are not looked at: a patch that comes so late fails.
    pub(crate) fn find_in_any_life(&self, records: &Records, id: ChunkId) -> Option<usize> {
        if let Ok(index) = self.find(records, id) {
            return Some(index);
        }
        let mut end = self.newest_start as usize;
        for life in self.old_lives.iter().flat_map(|lives| lives.iter().rev().take(64)) {
            let start = end - life.records as usize;
            if let Ok(index) = self.find_between(records, id, start, end) {
                return Some(index);
            }
            end = start;
        }
        None
    }

    /// Whether a chunk is newer than all that is known of a sequence, of which no old life is listed and whose writer has not ended.
    #[inline]
    pub(crate) fn is_next(&self, id: ChunkId) -> bool {
        self.newest_start == 0
            && self.ended.is_none()
            && (self.queue.is_empty() || id.is_newer_than(self.back_id))
            && self.last.is_none_or(|last| id.is_newer_than(last.chunk_id))
    }

    /// Puts the newest record of the newest life into the queue.
    #[inline]
    pub(crate) fn push_back(&mut self, slot: u32, id: ChunkId) {
        self.queue.push_back(slot);
        self.back_id = id;
    }

    /// Puts a record of the newest life into the queue.
    #[inline]
    pub(crate) fn insert(&mut self, index: usize, slot: u32, id: ChunkId) {
        if index == self.queue.len() {
            self.push_back(slot, id);
        } else {
            self.queue.insert(index, slot);
        }
    }

    /// Takes the front, which was `record`, out of the queue.
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

    /// Takes the first `count` records, which lie behind each other in memory, out of the queue; `last` is what is known of the last of them.
    /// Nothing newer was erased, and there are no old lives.
    #[inline(always)]
    pub(crate) fn pop_read(&mut self, count: usize, last: Last) {
        self.queue.pop_front_run(count);
        self.last = Some(last);
    }

    /// Takes `record` out of the queue if it is the front, follows what was erased before it, and there are no old lives. False, and nothing
    /// done, if not. It must not be the end of a life.
    #[inline(always)]
    pub(crate) fn pop_ordinary_front(&mut self, record: &Record, slot: u32) -> bool {
        let chunk_id = ChunkId(record.chunk_id);
        let is_successor = self.last.is_none_or(|last| last.chunk_id.successor() == chunk_id);
        if !is_successor || self.is_front_of_an_old_life() || !self.queue.pop_front_if(slot) {
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

const REMEMBERED: u32 = 1 << 31;

/// Keys that are found without a hash: 8 KiB.
const RECENT: usize = 1024;

/// Where a key may be among the recent ones: 32 writers of a producer side by side, behind them those of the next. Producers of one writer
/// each, with the same id, have all places.
#[inline]
fn recent_place(key: u32) -> usize {
    (key ^ key >> 11) as usize % RECENT
}

/// All sequences of a buffer.
#[derive(Clone)]
pub(crate) struct Sequences {
    slab: Vec<Sequence>,
    free: Vec<u32>,
    /// Values say where the sequence is, notes are the numbers of histograms of those that are remembered.
    index: KeyTable,
    remembered: Remembered,
    /// The key that was looked up last, if it was live; 0 if none.
    last_key: u32,
    last_index: u32,
    /// The same of more keys, each where [`recent_place`] says, with its index: writers in turns are found without a hash. Empty until two were
    /// looked up.
    recent: Vec<(u32, u32)>,
    /// Empty sequences that were forgotten.
    pub(crate) forgotten: u64,
    /// Keys that are not known any more, for who asks: not collected without [`Sequences::collect_dropped`].
    pub(crate) dropped: Vec<u32>,
    collects_dropped: bool,
}

impl Sequences {
    pub(crate) fn new() -> Sequences {
        Sequences {
            slab: Vec::new(),
            free: Vec::new(),
            index: KeyTable::default(),
            remembered: Remembered::default(),
            last_key: 0,
            last_index: NONE,
            recent: Vec::new(),
            forgotten: 0,
            dropped: Vec::new(),
            collects_dropped: false,
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Sequence {
        &self.slab[index as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Sequence {
        &mut self.slab[index as usize]
    }

    /// The live sequence of a key; a remembered one is none.
    #[inline]
    pub(crate) fn find_live(&mut self, key: u32) -> Option<u32> {
        if key == self.last_key {
            return Some(self.last_index);
        }
        let index = self.index.get(self.index.find(key)?).value;
        if index & REMEMBERED != 0 {
            return None;
        }
        (self.last_key, self.last_index) = (key, index);
        Some(index)
    }

    /// The sequence of a key, live from now on until [`release`](Self::release) finds it empty. None if it is not known.
    #[inline]
    pub(crate) fn open(&mut self, key: u32) -> Option<u32> {
        if key == self.last_key {
            return Some(self.last_index);
        }
        match self.recent.get(recent_place(key)) {
            Some(&(recent, index)) if recent == key => Some(index),
            _ => self.open_by_hash(key),
        }
    }

    #[inline(never)]
    fn open_by_hash(&mut self, key: u32) -> Option<u32> {
        let place = self.index.find(key)?;
        let mut index = self.index.get(place).value;
        if index & REMEMBERED != 0 {
            index = self.recall(place);
        }
        if self.recent.is_empty() {
            self.recent = vec![(0, NONE); RECENT];
        }
        self.recent[recent_place(key)] = (key, index);
        (self.last_key, self.last_index) = (key, index);
        Some(index)
    }

    fn recall(&mut self, place: Place) -> u32 {
        let entry = self.index.get(place);
        let memory = self.remembered.take(entry.value & !REMEMBERED);
        let index = self.put(Sequence { histogram: entry.note, ..Sequence::recalled(memory, place) });
        self.index.get_mut(place).value = index;
        index
    }

    /// Makes a sequence that is not known.
    pub(crate) fn create(&mut self, key: u32, identity: u32) -> u32 {
        let place = self.index.insert(key, 0);
        let index = self.put(Sequence::new(key, identity, place));
        self.index.get_mut(place).value = index;
        (self.last_key, self.last_index) = (key, index);
        index
    }

    fn put(&mut self, sequence: Sequence) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.slab[index as usize] = sequence;
                index
            }
            None => {
                self.slab.push(sequence);
                self.slab.len() as u32 - 1
            }
        }
    }

    /// Whether no more sequences can be live.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.slab.len() >= VACANT as usize
    }

    /// To be called when a sequence may have lost its last record: if it has, it is only remembered from now on.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        if self.get(index).queue.is_empty() {
            self.remember(index);
        }
    }

    /// From now on `dropped` fills.
    pub(crate) fn collect_dropped(&mut self) {
        self.collects_dropped = true;
    }

    fn drop_key(&mut self, key: u32) {
        self.index.remove(key);
        if self.collects_dropped {
            self.dropped.push(key);
        }
    }

    /// Number of sequences that are live.
    #[inline]
    pub(crate) fn num_live(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    #[inline(never)]
    fn remember(&mut self, index: u32) {
        let sequence = &mut self.slab[index as usize];
        let memory = sequence.to_memory();
        let (place, histogram) = (sequence.place, sequence.histogram);
        let is_done_with = sequence.ended == Some(Ended::Producer) && sequence.pending_loss == 0;
        *sequence = Sequence::new(0, 0, Place::default());
        self.free.push(index);
        if self.last_key == memory.key {
            self.last_key = 0;
        }
        if let Some(recent) =
            self.recent.get_mut(recent_place(memory.key)).filter(|recent| recent.0 == memory.key)
        {
            *recent = (0, NONE);
        }
        if is_done_with {
            self.drop_key(memory.key);
            return;
        }
        if self.remembered.has_too_many_holes() {
            let index = &mut self.index;
            self.remembered.pack(|key, position| {
                index.insert(key, position | REMEMBERED);
            });
        }
        while self.remembered.is_full() {
            if let Some(key) = self.remembered.forget_oldest() {
                self.drop_key(key);
                self.forgotten += 1;
            }
        }
        let position = self.remembered.push(memory);
        *self.index.get_mut(place) = Entry { value: position | REMEMBERED, note: histogram };
    }

    /// Adds loss to a sequence, live or not. Nothing happens if it is not known.
    pub(crate) fn add_loss(&mut self, key: u32, reasons: LossReasons) {
        if let Some(index) = self.open(key) {
            self.get_mut(index).add_loss(reasons);
            self.release(index);
        }
    }

    /// No more chunks come from this writer.
    pub(crate) fn end_writer(&mut self, key: u32) {
        match self.index.find(key).map(|place| self.index.get(place).value) {
            None => {}
            Some(position) if position & REMEMBERED != 0 => {
                self.remembered.get_mut(position & !REMEMBERED).bits |= memory_bit::ENDED_WRITER;
            }
            Some(index) => {
                self.slab[index as usize].ended.get_or_insert(Ended::Writer);
            }
        }
    }

    /// No more chunks come from this producer.
    pub(crate) fn end_producer(&mut self, producer: u16) {
        let is_meant = |key: u32| key != 0 && key >> 16 == u32::from(producer);
        for sequence in self.slab.iter_mut().filter(|sequence| is_meant(sequence.key)) {
            sequence.ended = Some(Ended::Producer);
        }
        let mut done_with = Vec::new();
        for (position, memory) in self.remembered.iter_mut().filter(|(_, memory)| is_meant(memory.key)) {
            memory.bits |= memory_bit::ENDED_PRODUCER;
            if memory.bits & memory_bit::LOSS == 0 {
                done_with.push((memory.key, position));
            }
        }
        for (key, position) in done_with {
            self.remembered.take(position);
            self.drop_key(key);
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        let queues: usize = self.slab.iter().map(|sequence| sequence.queue.heap_bytes()).sum();
        self.slab.capacity() * size_of::<Sequence>()
            + queues
            + self.free.capacity() * 4
            + self.recent.capacity() * 8
            + self.index.memory_bytes()
            + self.remembered.memory_bytes()
    }

    /// Every record that is listed, with its sequence.
    pub(crate) fn listed(&self) -> HashSet<(u32, u32)> {
        let all = self.slab.iter().zip(0..);
        all.flat_map(|(sequence, n)| (0..sequence.queue.len()).map(move |i| (n, sequence.queue.get(i))))
            .collect()
    }

    /// The sequences that have records.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Sequence> {
        self.slab.iter().filter(|sequence| !sequence.queue.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_share_a_place_are_told_apart_and_forgotten_when_they_are_not_live() {
        let (one, other, third) = (1 << 16 | 1, 2 << 16 | 0x61, 3 << 16 | 1);
        assert_eq!(recent_place(one), recent_place(other));
        let mut sequences = Sequences::new();
        for key in [one, other, third] {
            let index = sequences.create(key, 7);
            sequences.get_mut(index).push_back(key, ChunkId(0));
        }
        for _ in 0..3 {
            for key in [one, third, other, other, one] {
                let index = sequences.open(key).expect("it is live");
                assert_eq!(sequences.get(index).key, key);
            }
        }
        let index = sequences.open(one).expect("it is live");
        sequences.get_mut(index).queue.pop_front();
        sequences.release(index);
        let new = sequences.create(4 << 16 | 1, 7);
        assert_eq!(new, index, "its place in the slab is used again");
        let recalled = sequences.open(one).expect("it is remembered");
        assert_ne!(recalled, new);
        assert_eq!(sequences.get(recalled).key, one);
    }
}
