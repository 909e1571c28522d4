//! The sequences of a session: a number for each writer, and the bytes with which its packets are
//! stamped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxBuildHasher;
use watershed_engine::{ClientIdentity, LossReasons, ProducerId, WriterId};

use crate::limits::FIRST_PRODUCER_SEQUENCE_ID;
use crate::proto_bytes::{put_int32, put_uint64};
use crate::read::Stamp;

mod field {
    //! Fields of `TracePacket` that are stamped on producers' packets.
    pub(super) const TRUSTED_UID: u32 = 3;
    pub(super) const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub(super) const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub(super) const TRUSTED_PID: u32 = 79;
    pub(super) const MACHINE_ID: u32 = 98;
}

#[derive(Debug)]
pub(crate) struct Sequence {
    /// `trusted_packet_sequence_id`: unique in the trace.
    pub(crate) id: u32,
    /// What every packet of it is stamped with.
    stamp: Stamp,
}

// All fields at their longest: uid 11 bytes, sequence id 6, pid 12, machine id 7, loss 7.
const _: () = assert!(11 + 6 + 12 + 7 + 7 <= Stamp::BYTES_MAX);

impl Sequence {
    fn new(id: u32, identity: ClientIdentity) -> Sequence {
        let mut fields = Vec::with_capacity(Stamp::BYTES_MAX);
        put_int32(&mut fields, field::TRUSTED_UID, identity.uid);
        put_uint64(&mut fields, field::TRUSTED_PACKET_SEQUENCE_ID, u64::from(id));
        if identity.pid != 0 {
            put_int32(&mut fields, field::TRUSTED_PID, identity.pid);
        }
        if identity.machine_id != 0 {
            put_uint64(&mut fields, field::MACHINE_ID, u64::from(identity.machine_id));
        }
        Sequence { id, stamp: Stamp::of(&fields) }
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

/// Numbers are given out from 2 upwards, before the first packet of a sequence is read; 1 is the
/// service's own.
///
/// The key is producer and writer. A producer id does not come back while a session has data of it,
/// so one key is one connection.
#[derive(Debug, Default)]
pub(crate) struct SequenceTable {
    index_by_key: HashMap<u32, u32, FxBuildHasher>,
    sequences: Vec<Sequence>,
}

fn key_of(producer_id: ProducerId, writer_id: WriterId) -> u32 {
    u32::from(producer_id.0) << 16 | u32::from(writer_id.0)
}

impl SequenceTable {
    /// `machine_id` is part of `identity`, and so of what is stamped; the producer's number alone
    /// tells machines apart.
    pub(crate) fn get_or_add(
        &mut self,
        producer_id: ProducerId,
        writer_id: WriterId,
        identity: ClientIdentity,
    ) -> &Sequence {
        let next = self.sequences.len() as u32;
        let index = *self.index_by_key.entry(key_of(producer_id, writer_id)).or_insert(next);
        if index == next {
            let id = FIRST_PRODUCER_SEQUENCE_ID.saturating_add(next);
            self.sequences.push(Sequence::new(id, identity));
        }
        &self.sequences[index as usize]
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
        // Relaxed: key and index are one value, and the table does not change while it is borrowed.
        let (last_key, last_index) = halves(slot.load(Ordering::Relaxed));
        if key == last_key {
            return self.sequences.get(last_index as usize);
        }
        let index = *self.index_by_key.get(&key)?;
        slot.store(u64::from(key) << 32 | u64::from(index), Ordering::Relaxed);
        self.sequences.get(index as usize)
    }
}

/// What was found last in a table: packets of one sequence come in rows. Threads that read one
/// table share it. Each sequence has one of the slots, so that two threads, whose sequences differ,
/// seldom write to the same one. Key 0 is nobody's.
#[derive(Debug)]
pub(super) struct LastFound([AtomicU64; LastFound::SLOTS]);

impl LastFound {
    const SLOTS: usize = 64;

    fn slot(&self, key: u32) -> &AtomicU64 {
        &self.0[key as usize % Self::SLOTS]
    }
}

impl Default for LastFound {
    fn default() -> LastFound {
        LastFound([const { AtomicU64::new(0) }; Self::SLOTS])
    }
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}
