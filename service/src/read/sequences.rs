//! The sequences of a session: a number for each writer, and the bytes with which its packets are stamped.

use std::collections::HashMap;

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
    /// Loss that was reported with packets that were then dropped.
    pending_loss: u32,
}

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
        Sequence { id, stamp: Stamp::of(&fields), pending_loss: 0 }
    }

    /// A packet was dropped: what was lost before it still is.
    pub(super) fn keep_loss(&mut self, loss: LossReasons) {
        self.pending_loss |= loss.0;
    }

    /// What to append to a packet before which `loss` was reported. `scratch` is used only where there was some.
    #[inline]
    pub(super) fn stamp<'a>(&'a mut self, loss: LossReasons, scratch: &'a mut Stamp) -> &'a Stamp {
        if self.pending_loss | loss.0 == 0 {
            return &self.stamp;
        }
        *scratch = self.stamp_with_loss(loss);
        scratch
    }

    #[cold]
    fn stamp_with_loss(&mut self, loss: LossReasons) -> Stamp {
        let loss = std::mem::take(&mut self.pending_loss) | loss.0;
        // Last of all: it replaces what the writer itself may have said.
        let mut fields = self.stamp.as_bytes().to_vec();
        put_uint64(&mut fields, field::PREVIOUS_PACKET_DROPPED, u64::from(loss));
        Stamp::of(&fields)
    }
}

/// Numbers are given out at first use, from 2 upwards; 1 is the service's own.
///
/// The key is producer and writer. A producer id does not come back while a session has data of it, so one
/// key is one connection.
#[derive(Debug, Default)]
pub(crate) struct SequenceTable {
    index_by_key: HashMap<u32, usize, FxBuildHasher>,
    sequences: Vec<Sequence>,
    /// The last one that was asked for: packets of one sequence come in rows. Key 0 is nobody's.
    last_key: u32,
    last_index: usize,
}

impl SequenceTable {
    /// `machine_id` is part of `identity`, and so of what is stamped; the producer's number alone tells machines
    /// apart.
    #[inline]
    pub(crate) fn get_or_add(
        &mut self,
        producer_id: ProducerId,
        writer_id: WriterId,
        identity: ClientIdentity,
    ) -> &mut Sequence {
        let key = u32::from(producer_id.0) << 16 | u32::from(writer_id.0);
        if key != self.last_key || self.sequences.is_empty() {
            self.last_index = self.find_or_add(key, identity);
            self.last_key = key;
        }
        &mut self.sequences[self.last_index]
    }

    #[inline(never)]
    fn find_or_add(&mut self, key: u32, identity: ClientIdentity) -> usize {
        let next = self.sequences.len();
        let index = *self.index_by_key.entry(key).or_insert(next);
        if index == next {
            let id = FIRST_PRODUCER_SEQUENCE_ID.saturating_add(u32::try_from(next).unwrap_or(u32::MAX));
            self.sequences.push(Sequence::new(id, identity));
        }
        index
    }
}
