//! The sequences: one for each `{ProducerID, WriterID}`.
//!
//! ```text
//!   index: key -> live n ------> slab[n]: Sequence, which lists its records by (life, chunk id)
//!          key -> remembered p -> 20 bytes for a sequence without records
//! ```
//!
//! A sequence moves from the slab to the remembered ones when its last record is erased, and back
//! at its next chunk. Records hold the slab index, so that only commits and patches look keys up;
//! these find recent keys without a hash.

use std::vec::Drain;

use crate::index::histograms::Histograms;
use crate::index::key_table::{Entry, EntryIndex, KeyTable, VACANT};
use crate::index::records::NONE;
use crate::index::remembered::{MAX_REMEMBERED, Remembered, memory_bit};
use crate::index::sequence::{Ended, Sequence};

const REMEMBERED: u32 = 1 << 31;

/// Keys that are found without a hash: 16 KiB.
const RECENT: usize = 1024;

/// Where a key may be among the recent ones: 32 writers of a producer side by side, behind them
/// those of the next. Producers of one writer each, with the same id, spread over all.
#[inline]
fn recent_index(key: u64) -> usize {
    (key ^ key >> 11) as usize % RECENT
}

/// One more vacant sequence in the slab.
#[cold]
#[inline(never)]
fn grow(slab: &mut Vec<Sequence>) -> u32 {
    slab.push(Sequence::new(0, 0, EntryIndex::default()));
    slab.len() as u32 - 1
}

/// All sequences of a buffer.
#[derive(Clone, Default)]
pub(crate) struct SequenceTable {
    slab: Vec<Sequence>,
    free: Vec<u32>,
    /// Values say where a sequence is; notes are the histograms of those that are remembered.
    index: KeyTable,
    remembered: Remembered,
    /// The most that are remembered.
    pub(crate) max_remembered: usize,
    /// The key that was looked up last, if it was live; 0 if none.
    last_key: u64,
    last_index: u32,
    /// More keys with their indices, each at its [`recent_index`], so that writers that take turns
    /// are found without a hash. Empty until two keys were looked up.
    recent: Vec<(u64, u32)>,
    /// Number of empty sequences that were forgotten.
    pub(crate) forgotten: u64,
    /// Keys that are not known any more.
    pub(crate) dropped: Vec<u64>,
    /// Where [`fit_some`](Self::fit_some) goes on in the slab.
    next_to_fit: usize,
}

impl SequenceTable {
    /// No sequences.
    pub(crate) fn new() -> SequenceTable {
        SequenceTable { last_index: NONE, max_remembered: MAX_REMEMBERED, ..SequenceTable::default() }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Sequence {
        &self.slab[index as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Sequence {
        &mut self.slab[index as usize]
    }

    /// Prefetches a sequence that will be changed soon. Any number is allowed.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        let first = self.slab.as_ptr().wrapping_add(index as usize).cast::<u8>();
        watershed_simd::prefetch::for_write(first);
        watershed_simd::prefetch::for_write(first.wrapping_add(size_of::<Sequence>() - 1));
    }

    /// The live sequence of a key; a remembered one is none.
    #[inline]
    pub(crate) fn find_live(&mut self, key: u64) -> Option<u32> {
        if key == self.last_key {
            return Some(self.last_index);
        }
        let entry = self.index.find(key)?;
        let index = self.index.get(entry).value;
        if index & REMEMBERED != 0 {
            return None;
        }
        (self.last_key, self.last_index) = (key, index);
        Some(index)
    }

    /// The sequence of a key, live from now on until [`release`](Self::release) finds it empty.
    /// None if it is not known. If it was not looked up lately its histogram is cold, and is
    /// prefetched.
    #[inline]
    pub(crate) fn open(&mut self, key: u64, histograms: &Histograms) -> Option<u32> {
        if key == self.last_key {
            return Some(self.last_index);
        }
        match self.recent.get(recent_index(key)) {
            Some(&(recent, index)) if recent == key => Some(index),
            _ => self.open_by_hash(key, histograms),
        }
    }

    #[inline(never)]
    fn open_by_hash(&mut self, key: u64, histograms: &Histograms) -> Option<u32> {
        let SequenceTable { slab, free, index, remembered, .. } = self;
        let (entry_index, entry) = index.find_entry(key)?;
        let mut found = entry.value;
        if found & REMEMBERED != 0 {
            let position = found & !REMEMBERED;
            found = free.pop().unwrap_or_else(|| grow(slab));
            slab[found as usize].recall(remembered.get(position), entry.note, entry_index);
            remembered.take(position);
            entry.value = found;
        } else {
            // A sequence that was remembered rarely gets a second chunk before its first is gone:
            // it takes no recent slot.
            match self.recent.get_mut(recent_index(key)) {
                Some(recent) => *recent = (key, found),
                // No key is 0.
                None => self.recent = vec![(0, NONE); RECENT],
            }
        }
        (self.last_key, self.last_index) = (key, found);
        histograms.prefetch(self.slab[found as usize].histogram);
        Some(found)
    }

    /// Makes a sequence of a key that is not known.
    pub(crate) fn create(&mut self, key: u64, identity: u32) -> u32 {
        let entry = self.index.insert(key, 0);
        let index = self.free.pop().unwrap_or_else(|| grow(&mut self.slab));
        self.slab[index as usize] = Sequence::new(key, identity, entry);
        self.index.get_mut(entry).value = index;
        (self.last_key, self.last_index) = (key, index);
        index
    }

    /// Whether no more sequences can be live. This one may be, if it was looked up last.
    #[inline]
    pub(crate) fn is_full_for(&self, key: u64) -> bool {
        key != self.last_key && self.slab.len() >= VACANT as usize
    }

    /// To be called when a sequence may have lost its last record: if so, it is only remembered
    /// from now on.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        if self.get(index).queue.is_empty() {
            self.remember(index);
        }
    }

    #[cold]
    #[inline(never)]
    fn drop_key(&mut self, key: u64) {
        self.index.remove(key);
        self.dropped.push(key);
    }

    /// Keys that are not known any more. Their histograms may go.
    pub(crate) fn take_dropped(&mut self, histograms: &mut Histograms) -> Drain<'_, u64> {
        let SequenceTable { index, dropped, .. } = self;
        for &key in &*dropped {
            histograms.retire(key, |oldest| index.find(oldest).is_some());
        }
        dropped.drain(..)
    }

    /// Numbers of identities: all that are in use, and perhaps others.
    pub(crate) fn identities(&self) -> impl Iterator<Item = u32> + '_ {
        self.slab.iter().flat_map(Sequence::identities).chain(self.remembered.identities())
    }

    /// Number of sequences that are live.
    #[inline]
    pub(crate) fn num_live(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    #[inline(never)]
    fn remember(&mut self, index: u32) {
        let is_done_with = self.get(index).is_done_with();
        if !is_done_with && self.remembered.needs_room(self.max_remembered) {
            self.make_room_to_remember();
        }
        let sequence = &mut self.slab[index as usize];
        let key = sequence.key;
        if !is_done_with {
            let position = self.remembered.push(sequence.to_memory());
            let entry = Entry { value: position | REMEMBERED, note: sequence.histogram };
            *self.index.get_mut(sequence.entry) = entry;
        }
        sequence.vacate();
        self.free.push(index);
        if self.last_key == key {
            self.last_key = 0;
        }
        if let Some(recent) = self.recent.get_mut(recent_index(key))
            && recent.0 == key
        {
            *recent = (0, NONE);
        }
        if is_done_with {
            self.drop_key(key);
        }
    }

    /// Closes holes among the remembered ones, and forgets the oldest if there are too many.
    #[cold]
    #[inline(never)]
    fn make_room_to_remember(&mut self) {
        if self.remembered.has_too_many_holes() {
            let index = &mut self.index;
            self.remembered.pack(|key, position| _ = index.insert(key, position | REMEMBERED));
        }
        while self.remembered.is_full(self.max_remembered) {
            let Some(key) = self.remembered.forget_oldest() else { return };
            self.drop_key(key);
            self.forgotten += 1;
        }
    }

    /// Keys of all sequences.
    pub(crate) fn keys(&mut self) -> Vec<u64> {
        let live = self.slab.iter().map(|sequence| sequence.key).filter(|key| *key != 0);
        live.chain(self.remembered.iter_mut().map(|(_, memory)| memory.key)).collect()
    }

    /// No more chunks come from this writer.
    pub(crate) fn end_writer(&mut self, key: u64) {
        match self.index.find(key).map(|entry| self.index.get(entry).value) {
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
    pub(crate) fn end_producer(&mut self, producer: u32) {
        let is_meant = |key: u64| key != 0 && key >> 16 == u64::from(producer);
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

    /// Gives back surplus memory of the record lists of some sequences, others at each call. Called
    /// once for each block of 1024 records it reaches all of them before more than 16 entries for
    /// each sequence are surplus.
    #[cold]
    #[inline(never)]
    pub(crate) fn fit_some(&mut self) {
        const AT_ONCE: usize = 64;
        if self.next_to_fit >= self.slab.len() {
            self.next_to_fit = 0;
        }
        for sequence in self.slab.iter_mut().skip(self.next_to_fit).take(AT_ONCE) {
            sequence.queue.fit();
        }
        self.next_to_fit += AT_ONCE;
    }

    /// Bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        let queues: usize = self.slab.iter().map(Sequence::heap_bytes).sum();
        self.slab.capacity() * size_of::<Sequence>()
            + queues
            + self.free.capacity() * 4
            + self.recent.capacity() * 16
            + self.index.memory_bytes()
            + self.remembered.memory_bytes()
    }

    /// Every listed record with its sequence.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn listed(&self) -> std::collections::HashSet<(u32, u32)> {
        let all = self.slab.iter().zip(0..);
        all.flat_map(|(sequence, n)| (0..sequence.queue.len()).map(move |i| (n, sequence.queue.get(i))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ChunkId;

    #[test]
    fn keys_that_share_a_recent_slot_are_distinguished_and_removed_when_not_live() {
        let (one, other, third) = (1 << 16 | 1, 2 << 16 | 0x61, 0x1_0001 << 16 | 1);
        assert_eq!(recent_index(one), recent_index(other));
        let (mut sequences, histograms) = (SequenceTable::new(), Histograms::default());
        for key in [one, other, third] {
            let index = sequences.create(key, 7);
            sequences.get_mut(index).push_back(key as u32, ChunkId(0));
        }
        for _ in 0..3 {
            for key in [one, third, other, other, one] {
                let index = sequences.open(key, &histograms).expect("it is live");
                assert_eq!(sequences.get(index).key, key);
            }
        }
        let index = sequences.open(one, &histograms).expect("it is live");
        sequences.get_mut(index).queue.pop_front();
        sequences.release(index);
        let new = sequences.create(4 << 16 | 1, 7);
        assert_eq!(new, index, "its entry in the slab is used again");
        let recalled = sequences.open(one, &histograms).expect("it is remembered");
        assert_ne!(recalled, new);
        assert_eq!(sequences.get(recalled).key, one);
    }

    #[test]
    fn the_sequences_that_were_empty_longest_are_forgotten_first() {
        const TOO_MANY: u64 = 10;
        let (mut sequences, histograms) = (SequenceTable::new(), Histograms::default());
        let last = MAX_REMEMBERED as u64 + TOO_MANY;
        for key in 1..=last {
            let index = sequences.create(key, 7);
            sequences.release(index);
        }
        assert_eq!(sequences.forgotten, TOO_MANY);
        assert_eq!(sequences.dropped, Vec::from_iter(1..=TOO_MANY));
        assert!(sequences.memory_bytes() < 64 << 20, "{} bytes", sequences.memory_bytes());
        assert_eq!(sequences.open(TOO_MANY, &histograms), None);
        for key in [TOO_MANY + 1, last] {
            let index = sequences.open(key, &histograms).expect("it is remembered");
            assert_eq!(sequences.get(index).key, key);
        }
    }
}
