//! What is kept beside the ring: the table of records, the sequences that list them, and the rest
//! of what is known of writers.
//!
//! ```text
//!   SequenceTable: key -> Sequence -> slots by (life, chunk id)
//!                                       |
//!   Records: blocks of 1024 records, oldest first, with sizes of fragments and tickets
//!                                       |
//!   ring (not here): offset of each record
//! ```

pub(crate) mod fragment_sizes;
pub(crate) mod histograms;
mod identities;
mod key_table;
pub(crate) mod records;
mod remembered;
pub(crate) mod sequence;
pub(crate) mod sequence_table;
mod slot_queue;
mod tickets;

use crate::ids::{ChunkId, ClientIdentity, LossReasons};
use crate::packet::Origin;
use crate::ring::Ring;
use crate::ring::space::Space;
use histograms::{Histograms, WriterStats};
use identities::Identities;
use records::{Records, Slot, bit};
use sequence_table::SequenceTable;
use tickets::Tickets;

/// The index of a buffer's records.
#[derive(Clone)]
pub(crate) struct Index {
    pub(crate) records: Records,
    pub(crate) sequences: SequenceTable,
    identities: Identities,
    histograms: Histograms,
    /// None in a buffer that is used by itself.
    tickets: Option<Box<Tickets>>,
}

impl Index {
    /// An empty index; that of a shard has tickets.
    pub(crate) fn new(of_shard: bool) -> Index {
        Index {
            records: Records::default(),
            sequences: SequenceTable::new(),
            identities: Identities::default(),
            histograms: Histograms::default(),
            tickets: of_shard.then(Box::default),
        }
    }

    /// The sequence of a key: see [`SequenceTable::open`].
    #[inline]
    pub(crate) fn open(&mut self, key: u64) -> Option<u32> {
        self.sequences.open(key, &self.histograms)
    }

    /// Makes a sequence that is not known.
    pub(crate) fn create_sequence(&mut self, key: u64, identity: ClientIdentity) -> u32 {
        if self.tickets.is_none() {
            // Nobody else asks for them.
            drop(self.take_dropped());
        }
        let identity = self.intern(identity);
        self.sequences.create(key, identity)
    }

    /// Remembers the sequences of another index whose writers have not ended, as if all that a
    /// reader can get there had been consumed here, but for those that are known here. Returns
    /// their keys. `ring` is the other's.
    pub(crate) fn remember_from(&mut self, other: &mut Index, ring: &Ring) -> Vec<u64> {
        let mut keys = other.sequences.keys();
        keys.retain(|&key| {
            let Some(opened) = other.open(key) else { return false };
            let sequence = other.sequences.get(opened);
            let last = sequence.last_readable(&other.records, ring).filter(|_| sequence.ended.is_none());
            let known = self.open(key);
            known.into_iter().for_each(|known| self.sequences.release(known));
            let last = last.filter(|_| known.is_none());
            if last.is_some() {
                let created = self.create_sequence(key, other.identities.get(sequence.identity));
                self.sequences.get_mut(created).last = last;
                self.sequences.release(created);
            }
            other.sequences.release(opened);
            last.is_some()
        });
        keys
    }

    /// Keys that are not known any more.
    pub(crate) fn take_dropped(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.sequences.take_dropped(&mut self.histograms)
    }

    fn intern(&mut self, identity: ClientIdentity) -> u32 {
        let Index { sequences, histograms, identities, .. } = self;
        if identities.is_crowded() {
            identities.keep(sequences.identities().chain(histograms.identities()));
        }
        identities.intern(identity)
    }

    /// What comes from now on is another writer's.
    pub(crate) fn start_life(&mut self, sequence: u32, identity: ClientIdentity) {
        let identity = self.intern(identity);
        self.sequences.get_mut(sequence).start_life(&mut self.records, identity);
    }

    /// Lists a record in its sequence, before the last `behind` ones, and counts its size. Whether
    /// there are any behind it.
    #[inline(always)]
    pub(crate) fn list(
        &mut self,
        slot: Slot,
        sequence: u32,
        id: ChunkId,
        behind: usize,
        visible_bytes: usize,
    ) -> bool {
        let listed = self.sequences.get_mut(sequence);
        let is_late = listed.insert(slot, id, behind);
        self.histograms.count(listed, visible_bytes);
        is_late
    }

    /// Adds a visible size to the histogram of a sequence's writer.
    #[cold]
    pub(crate) fn count_size(&mut self, sequence: u32, visible_bytes: usize) {
        self.histograms.count(self.sequences.get_mut(sequence), visible_bytes);
    }

    /// Reports chunk ids that are missing before the front of a sequence, once.
    #[inline]
    pub(crate) fn note_gap_before_front(&mut self, sequence: u32) {
        let listed = self.sequences.get_mut(sequence);
        let Some(last) = listed.last else { return };
        let record = self.records.get_mut(listed.queue.get(0));
        let id = ChunkId(record.chunk_id);
        if id != last.chunk_id.successor()
            && id.is_newer_than(last.chunk_id)
            && !record.has(bit::GAP_ACCOUNTED)
        {
            record.bits |= bit::GAP_ACCOUNTED;
            listed.add_loss(LossReasons::READ_GAP);
        }
    }

    /// Whose the packets at the front of a sequence are, when nothing is lost before them.
    #[inline]
    pub(crate) fn origin(&self, sequence: u32) -> Origin {
        let listed = self.sequences.get(sequence);
        Origin {
            key: listed.key,
            identity: self.identities.get(listed.front_identity()),
            loss: LossReasons::NONE,
        }
    }

    /// The outer size of a record: it ends where the next one begins, or at a seam of the ring.
    #[inline]
    pub(crate) fn outer_bytes(&self, space: &Space, slot: Slot) -> usize {
        let (offset, next) = self.records.extent(slot);
        let end = next.unwrap_or(space.cursor());
        let seam = space.seam(offset);
        if end > offset && end <= seam { end - offset } else { seam - offset }
    }

    pub(crate) fn writer_stats(&self) -> Vec<WriterStats> {
        self.histograms.list(&self.identities)
    }

    /// Bytes of memory in use. Walks the sequences: not for hot paths.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.records.memory_bytes()
            + self.sequences.memory_bytes()
            + self.histograms.memory_bytes()
            + self.identities.memory_bytes()
    }
}

/// Puts a value into a free place of a list, or at its end. Returns where.
fn put<T>(list: &mut Vec<T>, free: &mut Vec<u32>, value: T) -> u32 {
    let Some(at) = free.pop() else {
        list.push(value);
        return list.len() as u32 - 1;
    };
    list[at as usize] = value;
    at
}
