//! The sequences of a session: a number for each writer, and the bytes with which its packets are
//! stamped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustc_hash::FxBuildHasher;
use watershed_engine::{ClientIdentity, LossReasons, ProducerId, WriterId};

use crate::limits::{FIRST_PRODUCER_SEQUENCE_ID, SEQUENCES_KEPT};
use crate::proto_bytes::{put_int32, put_uint64};
use crate::read::Stamp;
use crate::sync::{Mutex, MutexGuard, lock};

mod field {
    //! Fields of `TracePacket` that are stamped on producers' packets.
    pub(super) const TRUSTED_UID: u32 = 3;
    pub(super) const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub(super) const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub(super) const TRUSTED_PID: u32 = 79;
    pub(super) const MACHINE_ID: u32 = 98;
}

#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// 0 where there is none.
    key: u64,
    /// `trusted_packet_sequence_id`: unique in the trace.
    pub(crate) id: u32,
    /// What every packet of it is stamped with.
    stamp: Stamp,
}

// All fields at their longest: uid 11 bytes, sequence id 6, pid 12, machine id 7, loss 7.
const _: () = assert!(11 + 6 + 12 + 7 + 7 <= Stamp::BYTES_MAX);

impl Sequence {
    fn new(key: u64, id: u32, identity: ClientIdentity) -> Sequence {
        let mut fields = Vec::with_capacity(Stamp::BYTES_MAX);
        put_int32(&mut fields, field::TRUSTED_UID, identity.uid);
        put_uint64(&mut fields, field::TRUSTED_PACKET_SEQUENCE_ID, u64::from(id));
        if identity.pid != 0 {
            put_int32(&mut fields, field::TRUSTED_PID, identity.pid);
        }
        if identity.machine_id != 0 {
            put_uint64(&mut fields, field::MACHINE_ID, u64::from(identity.machine_id));
        }
        Sequence { key, id, stamp: Stamp::of(&fields) }
    }

    /// What to append to a packet before which `loss` was reported. `scratch` is used only where
    /// there was some.
    #[inline]
    pub(super) fn stamp<'a>(&'a self, loss: LossReasons, scratch: &'a mut Stamp) -> &'a Stamp {
        if loss.is_empty() {
            return &self.stamp;
        }
        *scratch = self.stamp_with_loss(loss);
        scratch
    }

    #[cold]
    fn stamp_with_loss(&self, loss: LossReasons) -> Stamp {
        // Last of all: it replaces what the writer itself may have said.
        let mut fields = self.stamp.as_bytes().to_vec();
        put_uint64(&mut fields, field::PREVIOUS_PACKET_DROPPED, u64::from(loss.0));
        Stamp::of(&fields)
    }
}

/// Numbers are given out from 2 upwards when the first chunk of a sequence is committed: in the
/// order of reading they would depend on how many shards there are. 1 is the service's own.
///
/// The key is producer and writer. A producer's number is that of its connection, which is never
/// used again: so one key is one connection, and no packet gets another one's identity.
#[derive(Clone, Debug, Default)]
pub(crate) struct SequenceTable {
    index_by_key: HashMap<u64, u32, FxBuildHasher>,
    sequences: Vec<Sequence>,
    /// Indices of those that are none.
    vacant: Vec<u32>,
    /// Numbers given out.
    numbered: u32,
    /// Where [`sweep`](Self::sweep) goes on.
    next_to_sweep: usize,
}

/// Entries that are looked at for each new sequence while there are more than [`SEQUENCES_KEPT`]:
/// of all that are there at most a quarter is to be removed.
const SWEPT_FOR_EACH: usize = 4;

fn key_of(producer_id: ProducerId, writer_id: WriterId) -> u64 {
    u64::from(producer_id.0) << 16 | u64::from(writer_id.0)
}

/// The sequences of a session, to which commits add some while another thread reads by the table as
/// it was when its pass began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequences {
    /// Copied when it has to be changed and somebody reads by it: at most once a pass.
    table: Arc<SequenceTable>,
    /// The last one that was noted: chunks of one sequence often come in rows. 0 if none.
    last_key: u64,
}

impl Sequences {
    /// A chunk of this sequence comes. Returns whether the sequence is new.
    ///
    /// `machine_id` is part of `identity`, and so of what is stamped; the producer's number alone
    /// tells machines apart.
    #[inline]
    pub(crate) fn note(
        &mut self,
        producer_id: ProducerId,
        writer_id: WriterId,
        identity: ClientIdentity,
    ) -> bool {
        let key = key_of(producer_id, writer_id);
        let is_new =
            key != std::mem::replace(&mut self.last_key, key) && !self.table.index_by_key.contains_key(&key);
        if is_new {
            Arc::make_mut(&mut self.table).add(key, identity);
        }
        is_new
    }

    /// Forgets some of the sequences of which no chunk is left, if there are many: so the table is
    /// bounded by what the buffers know, whoever has come and gone. To be called with the number of
    /// new sequences when their chunks have been committed.
    pub(crate) fn sweep(&mut self, num_new: usize, is_known: impl Fn(ProducerId, WriterId) -> bool) {
        if self.table.index_by_key.len() > SEQUENCES_KEPT {
            // It may be forgotten, too.
            self.last_key = 0;
            Arc::make_mut(&mut self.table).sweep(num_new, is_known);
        }
    }

    /// All of them as they are now, for a pass.
    pub(crate) fn table(&self) -> &Arc<SequenceTable> {
        &self.table
    }
}

/// The sequences of a session, to which the writers that commit themselves add their own: each of
/// them before its first chunk, so the lock is hardly ever waited for. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedSequences(Arc<Mutex<Sequences>>);

impl SharedSequences {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Sequences> {
        lock(&self.0)
    }

    /// All of them as they are now: see [`Sequences::table`].
    pub(crate) fn table(&self) -> Arc<SequenceTable> {
        Arc::clone(self.lock().table())
    }

    /// The same ones, for another session.
    pub(crate) fn copy(&self) -> SharedSequences {
        SharedSequences(Arc::new(Mutex::new(self.lock().clone())))
    }
}

impl SequenceTable {
    #[cold]
    fn add(&mut self, key: u64, identity: ClientIdentity) {
        let sequence = Sequence::new(key, FIRST_PRODUCER_SEQUENCE_ID.saturating_add(self.numbered), identity);
        self.numbered = self.numbered.saturating_add(1);
        let index = self.vacant.pop().unwrap_or(self.sequences.len() as u32);
        match self.sequences.get_mut(index as usize) {
            Some(vacant) => *vacant = sequence,
            None => self.sequences.push(sequence),
        }
        self.index_by_key.insert(key, index);
    }

    fn sweep(&mut self, num_new: usize, is_known: impl Fn(ProducerId, WriterId) -> bool) {
        for _ in 0..num_new * SWEPT_FOR_EACH {
            if self.index_by_key.len() <= SEQUENCES_KEPT {
                return;
            }
            let index = self.next_to_sweep % self.sequences.len();
            self.next_to_sweep = index + 1;
            let key = self.sequences[index].key;
            if key != 0 && !is_known(ProducerId((key >> 16) as u32), WriterId(key as u16)) {
                self.index_by_key.remove(&key);
                self.sequences[index].key = 0;
                self.vacant.push(index as u32);
            }
        }
    }

    /// The number of a sequence; `None` if it has none, or is forgotten.
    pub(crate) fn id_of(&self, producer_id: ProducerId, writer_id: WriterId) -> Option<u32> {
        let index = *self.index_by_key.get(&key_of(producer_id, writer_id))?;
        self.sequences.get(index as usize).map(|sequence| sequence.id)
    }

    /// `None` for a sequence that has no number.
    #[inline]
    pub(super) fn find(
        &self,
        producer_id: ProducerId,
        writer_id: WriterId,
        last: &LastFound,
    ) -> Option<&Sequence> {
        let key = key_of(producer_id, writer_id);
        let slot = last.slot(key);
        // Relaxed: any index will do, and the table does not change while it is borrowed.
        let found = self.sequences.get(slot.load(Ordering::Relaxed) as usize);
        if found.is_some_and(|sequence| sequence.key == key) {
            return found;
        }
        let index = *self.index_by_key.get(&key)?;
        slot.store(index, Ordering::Relaxed);
        self.sequences.get(index as usize)
    }
}

/// What was found last in a table: packets of one sequence come in rows. Threads that read one
/// table share it. Each sequence has one of the slots, so that two threads, whose sequences differ,
/// seldom write to the same one. A slot holds an index, right or not.
#[derive(Debug)]
pub(super) struct LastFound([AtomicU32; LastFound::SLOTS]);

impl LastFound {
    const SLOTS: usize = 64;

    fn slot(&self, key: u64) -> &AtomicU32 {
        &self.0[key as usize % Self::SLOTS]
    }
}

impl Default for LastFound {
    fn default() -> LastFound {
        LastFound([const { AtomicU32::new(0) }; Self::SLOTS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_writers_that_come_and_go_a_bounded_number_is_kept() {
        const LIVE: u32 = 1000;
        let mut sequences = Sequences::default();
        let is_live = |producer: ProducerId, newest: u32| producer.0 == 1 || producer.0 + LIVE > newest;
        for newest in 1..=4 * SEQUENCES_KEPT as u32 {
            let num_new =
                usize::from(sequences.note(ProducerId(newest), WriterId(1), ClientIdentity::default()));
            assert_eq!(num_new, 1);
            sequences.sweep(num_new, |producer, _| is_live(producer, newest));
        }
        let table = sequences.table();
        let bound = SEQUENCES_KEPT + LIVE as usize + 2;
        assert!(table.index_by_key.len() <= bound, "{} entries", table.index_by_key.len());
        assert!(table.sequences.len() <= bound, "{} places", table.sequences.len());
        let newest = 4 * SEQUENCES_KEPT as u32;
        assert_eq!(table.id_of(ProducerId(1), WriterId(1)), Some(FIRST_PRODUCER_SEQUENCE_ID));
        assert_eq!(table.id_of(ProducerId(newest), WriterId(1)), Some(newest + 1), "numbers go on");
        assert_eq!(table.id_of(ProducerId(2), WriterId(1)), None);
        assert_eq!(table.id_of(ProducerId(newest), WriterId(2)), None);
    }

    #[test]
    fn who_reads_by_a_table_keeps_it_as_it_was() {
        let mut sequences = Sequences::default();
        let note = |sequences: &mut Sequences, producer: u32| {
            sequences.note(ProducerId(producer), WriterId(1), ClientIdentity::default())
        };
        assert!(note(&mut sequences, 1));
        let before = Arc::clone(sequences.table());
        assert!(!note(&mut sequences, 1));
        assert!(Arc::ptr_eq(&before, sequences.table()), "nothing was copied for what is known");
        assert!(note(&mut sequences, 2) && note(&mut sequences, 3));
        assert_eq!(before.id_of(ProducerId(2), WriterId(1)), None);
        let ids = [1, 2, 3].map(|producer| sequences.table().id_of(ProducerId(producer), WriterId(1)));
        assert_eq!(ids, [Some(2), Some(3), Some(4)]);
    }
}
