//! What went into the file, counted on its way.

use std::collections::BTreeSet;

use watershed_wire::raw::Fields;

/// Field `TracePacket.trusted_packet_sequence_id`.
const SEQUENCE_ID: u32 = 10;
/// Field `TracePacket.previous_packet_dropped`: a set of reasons.
const LOSS: u32 = 42;
/// Field `TracePacket.first_packet_on_sequence`.
const FIRST: u32 = 87;
/// Field `TracePacket.ftrace_events`.
const KERNEL_EVENTS: u32 = 1;
/// Field `FtraceEventBundle.lost_events`, among the first of a bundle.
const KERNEL_LOST: u32 = 3;
/// Fields of a bundle before its events.
const BUNDLE_HEAD: usize = 6;
/// Field `Trace.packet`.
const PACKET: u32 = 1;

/// Packets, sequences and reported losses of what was written so far.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    sequences: BTreeSet<u64>,
    /// Packets that report a loss before them, by bit of the reason.
    pub(super) losses: [u64; 32],
    /// Bundles before which the kernel overwrote events that nobody had read.
    pub(super) kernel_losses: u64,
}

impl Tally {
    pub(super) fn sequences(&self) -> usize {
        self.sequences.len()
    }

    /// Counts framed packets from the beginning of `block`, as far as whole ones go, and returns
    /// how far that is.
    pub(super) fn count(&mut self, block: &[u8]) -> usize {
        let mut whole = 0;
        for field in Fields::new(block) {
            let Ok(field) = field else { break };
            whole = field.offset_bytes + field.bytes.len();
            if let (PACKET, Some(packet)) = (field.number, field.value.bytes()) {
                self.count_packet(packet);
            }
        }
        self.bytes += whole as u64;
        whole
    }

    fn count_packet(&mut self, packet: &[u8]) {
        self.packets += 1;
        let (mut sequence, mut loss, mut is_first) = (None, 0, false);
        // The service's own fields come last and win over what a producer wrote.
        for field in Fields::new(packet).map_while(Result::ok) {
            match field.number {
                SEQUENCE_ID => sequence = field.value.varint(),
                LOSS => loss = field.value.varint().unwrap_or(0),
                FIRST => is_first = field.value.varint() == Some(1),
                KERNEL_EVENTS => {
                    let bundle = field.value.bytes().unwrap_or_default();
                    let mut head = Fields::new(bundle).map_while(Result::ok).take(BUNDLE_HEAD);
                    self.kernel_losses += u64::from(head.any(|field| field.number == KERNEL_LOST));
                }
                _ => {}
            }
        }
        self.sequences.extend(sequence);
        // On a sequence's first packet the mark means "before this nothing is known", not that
        // something was lost.
        if !is_first {
            for bit in 0..32 {
                self.losses[bit] += loss >> bit & 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watershed_wire::framing::append_packet;

    fn block(packets: &[&[u8]]) -> Vec<u8> {
        let mut block = Vec::new();
        for packet in packets {
            append_packet(&mut block, &[packet]);
        }
        block
    }

    #[test]
    fn counts_packets_sequences_and_losses() {
        // sequence 2; sequence 3 with loss 65; sequence 3, first, with loss 1; no sequence; the
        // later sequence id counts.
        let loss_first = [0x50, 3, 0xd0, 2, 1, 0xb8, 5, 1];
        let block = block(&[&[0x50, 2], &[0x50, 3, 0xd0, 2, 65], &loss_first, &[], &[0x50, 9, 0x50, 2]]);
        let mut tally = Tally::default();
        assert_eq!(tally.count(&block), block.len());
        assert_eq!((tally.packets, tally.sequences(), tally.bytes), (5, 2, block.len() as u64));
        let lost: Vec<_> = tally.losses.iter().enumerate().filter(|(_, n)| **n > 0).collect();
        assert_eq!(lost, [(0, &1), (6, &1)]);
    }

    #[test]
    fn a_cut_block_counts_to_the_last_whole_packet() {
        let whole = block(&[&[0x50, 2], &[0x50, 3]]);
        for cut in 0..whole.len() {
            let mut tally = Tally::default();
            let end = tally.count(&whole[..cut]);
            assert_eq!((end, tally.packets), (cut / 4 * 4, (cut / 4) as u64), "{cut}");
        }
    }
}
