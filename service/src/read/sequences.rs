//! The sequences of a session: a number for each writer, and the bytes with which its packets are stamped.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;
use watershed_engine::{ClientIdentity, LossReasons, ProducerId, WriterId};

use crate::limits::FIRST_PRODUCER_SEQUENCE_ID;
use crate::proto_bytes::{put_int32, put_uint64};

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
    stamp: Vec<u8>,
    /// Loss that was reported with packets that were then dropped.
    pending_loss: u32,
}

impl Sequence {
    fn new(id: u32, identity: ClientIdentity) -> Sequence {
        let mut stamp = Vec::with_capacity(48);
        put_int32(&mut stamp, field::TRUSTED_UID, identity.uid);
        put_uint64(&mut stamp, field::TRUSTED_PACKET_SEQUENCE_ID, u64::from(id));
        if identity.pid != 0 {
            put_int32(&mut stamp, field::TRUSTED_PID, identity.pid);
        }
        if identity.machine_id != 0 {
            put_uint64(&mut stamp, field::MACHINE_ID, u64::from(identity.machine_id));
        }
        Sequence { id, stamp, pending_loss: 0 }
    }

    /// A packet was dropped: what was lost before it still is.
    pub(super) fn keep_loss(&mut self, loss: LossReasons) {
        self.pending_loss |= loss.0;
    }

    /// The bytes to append to a packet before which `loss` was reported. `scratch` is used only where there
    /// was some.
    #[inline]
    pub(super) fn stamp<'a>(&'a mut self, loss: LossReasons, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let loss = std::mem::take(&mut self.pending_loss) | loss.0;
        if loss == 0 {
            return &self.stamp;
        }
        scratch.clear();
        scratch.extend_from_slice(&self.stamp);
        // Last of all: it replaces what the writer itself may have said.
        put_uint64(scratch, field::PREVIOUS_PACKET_DROPPED, u64::from(loss));
        scratch
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
    /// Packets of one sequence come in rows.
    last: Option<(u32, usize)>,
}

impl SequenceTable {
    /// `machine_id` is part of `identity`, and so of what is stamped; the producer's number alone tells
    /// machines apart.
    #[inline]
    pub(crate) fn get_or_add(
        &mut self,
        producer_id: ProducerId,
        writer_id: WriterId,
        identity: ClientIdentity,
    ) -> &mut Sequence {
        let key = u32::from(producer_id.0) << 16 | u32::from(writer_id.0);
        let index = match self.last {
            Some((last_key, index)) if last_key == key => index,
            _ => {
                let next = self.sequences.len();
                let index = *self.index_by_key.entry(key).or_insert(next);
                if index == next {
                    let id = FIRST_PRODUCER_SEQUENCE_ID + u32::try_from(next).unwrap_or(u32::MAX);
                    self.sequences.push(Sequence::new(id, identity));
                }
                self.last = Some((key, index));
                index
            }
        };
        &mut self.sequences[index]
    }
}
