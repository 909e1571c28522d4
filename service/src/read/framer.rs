//! What a producer's packet becomes on its way out of a buffer.

use std::sync::atomic::{AtomicU64, Ordering};

use watershed_engine::Packet;
use watershed_shards::framing::{Stamp, put_packet};
use watershed_simd::fields;

use super::RULES;
use super::sequences::{LastFound, SequenceTable};

/// Validates, stamps and frames. Threads that extract from several shards share it.
pub(super) struct Framer<'a> {
    sequences: &'a SequenceTable,
    last: LastFound,
    /// Relaxed: it publishes nothing, and is read when all threads have stopped.
    num_invalid: AtomicU64,
}

impl<'a> Framer<'a> {
    pub(super) fn new(sequences: &'a SequenceTable) -> Framer<'a> {
        Framer { sequences, last: LastFound::default(), num_invalid: AtomicU64::new(0) }
    }

    /// Packets that were dropped.
    pub(super) fn num_invalid(&self) -> u64 {
        self.num_invalid.load(Ordering::Relaxed)
    }

    /// Appends the packet as it lies in a file. False if it is not valid; then what was lost before
    /// it is told with the next of its sequence.
    #[inline]
    pub(super) fn write(&self, packet: &Packet<'_>, out: &mut Vec<u8>) -> bool {
        let sequence = self.sequences.find(packet.producer_id, packet.writer_id, &self.last);
        debug_assert!(sequence.is_some(), "a sequence with a chunk has a number");
        let (Some(sequence), true) = (sequence, fields::scan(packet.slices(), &RULES).is_ok()) else {
            self.num_invalid.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let mut with_loss = Stamp::EMPTY;
        put_packet(out, packet.slices(), sequence.stamp(packet.loss, &mut with_loss));
        true
    }
}
