//! What a producer's packet becomes on its way out of a buffer.

use std::sync::atomic::{AtomicU64, Ordering};

use prost::encoding::encoded_len_varint;
use watershed_engine::Packet;
use watershed_shards::framing::{PREAMBLE_BYTES_MAX, Stamp, put_packet};
use watershed_simd::fields;

use super::RULES;
use super::sequences::{LastFound, SequenceTable};
use crate::filter::{Filtering, Kept, put_padded_varint};

/// Key of `Trace.packet`.
const PACKET_KEY: u8 = 1 << 3 | 2;

/// Validates, stamps, filters and frames. Threads that extract from several shards share it.
pub(super) struct Framer<'a> {
    sequences: &'a SequenceTable,
    filtering: &'a Filtering,
    last: LastFound,
    /// Relaxed: it publishes nothing, and is read when all threads have stopped.
    num_invalid: AtomicU64,
}

impl<'a> Framer<'a> {
    pub(super) fn new(sequences: &'a SequenceTable, filtering: &'a Filtering) -> Framer<'a> {
        Framer { sequences, filtering, last: LastFound::default(), num_invalid: AtomicU64::new(0) }
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
        let stamp = sequence.stamp(packet.loss, &mut with_loss);
        if self.filtering.is_on() {
            self.write_filtered(packet, stamp, out);
        } else {
            put_packet(out, packet.slices(), stamp);
        }
        true
    }

    /// The size of what a filter leaves is known only behind it. It is at most as long as that of
    /// the packet; where it is shorter the packet is moved up to it.
    #[inline(never)]
    fn write_filtered(&self, packet: &Packet<'_>, stamp: &Stamp, out: &mut Vec<u8>) {
        let preamble_bytes = |body_bytes: usize| 1 + encoded_len_varint(body_bytes as u64);
        let slices = packet.slices();
        let size_bytes = slices.iter().map(|slice| slice.len()).sum::<usize>() + stamp.size_bytes();
        let (begin, reserved_bytes) = (out.len(), preamble_bytes(size_bytes));
        out.extend_from_slice(&[PACKET_KEY; PREAMBLE_BYTES_MAX]);
        out.truncate(begin + reserved_bytes);
        if self.filtering.packet(slices, stamp.as_bytes(), out) == Kept::Whole {
            out.truncate(begin);
            return put_packet(out, slices, stamp);
        }
        let body_bytes = out.len() - begin - reserved_bytes;
        let preamble_bytes = preamble_bytes(body_bytes);
        if preamble_bytes < reserved_bytes {
            out.copy_within(begin + reserved_bytes.., begin + preamble_bytes);
            out.truncate(begin + preamble_bytes + body_bytes);
        }
        put_padded_varint(&mut out[begin + 1..begin + preamble_bytes], body_bytes);
    }
}
