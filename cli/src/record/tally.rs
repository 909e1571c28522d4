//! What went into the file, counted on its way. Of packets that hold compressed ones those count:
//! the summary is about what was recorded, and losses are told by the packets within.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use watershed_wire::raw::{Field, Fields};
use watershed_wire::reader::{Limits, TraceReader};

/// Field `TracePacket.trusted_packet_sequence_id`.
const SEQUENCE_ID: u32 = 10;
/// Field `TracePacket.previous_packet_dropped`: a set of reasons.
const LOSS: u32 = 42;
/// Field `TracePacket.first_packet_on_sequence`.
const FIRST: u32 = 87;
/// Fields `TracePacket.compressed_packets` and `zstd_compressed_packets`.
const COMPRESSED: [u32; 2] = [50, 133];
/// Field `TracePacket.ftrace_events`.
const KERNEL_EVENTS: u32 = 1;
/// Field `FtraceEventBundle.lost_events`, among the first of a bundle.
const KERNEL_LOST: u32 = 3;
/// Fields of a bundle before its events.
const BUNDLE_HEAD: usize = 6;
/// How much of a file is looked at in one piece.
const COUNTED_AT_ONCE_BYTES: u64 = 1 << 20;
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

    /// Counts what others wrote into a file, and says whether more bytes are behind the last whole
    /// packet.
    pub(super) fn of_file(path: &Path) -> io::Result<(Tally, bool)> {
        let mut file = File::open(path)?;
        let (mut tally, mut block) = (Tally::default(), Vec::new());
        while (&mut file).take(COUNTED_AT_ONCE_BYTES).read_to_end(&mut block)? > 0 {
            let whole = tally.count(&block);
            block.drain(..whole);
        }
        Ok((tally, !block.is_empty()))
    }

    /// Counts framed packets from the beginning of `block`, as far as whole ones go, and returns
    /// how far that is.
    pub(super) fn count(&mut self, block: &[u8]) -> usize {
        let mut whole = 0;
        for field in Fields::new(block) {
            let Ok(field) = field else { break };
            whole = field.offset_bytes + field.bytes.len();
            match field.value.bytes().filter(|_| field.number == PACKET) {
                Some(packet) if holds_others(packet) => self.count_within(&field),
                Some(packet) => self.count_packet(packet),
                None => {}
            }
        }
        self.bytes += whole as u64;
        whole
    }

    /// Counts the packets that one holds, as far as they can be read.
    fn count_within(&mut self, framed: &Field<'_>) {
        let mut reader = TraceReader::new(Limits::default());
        reader.feed(framed.bytes);
        while let Ok(Some(packet)) = reader.poll_packet() {
            self.count_packet(packet.bytes);
        }
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

/// A packet that holds compressed ones has no other field.
fn holds_others(packet: &[u8]) -> bool {
    let first = Fields::new(packet).next().and_then(Result::ok);
    first.is_some_and(|field| COMPRESSED.contains(&field.number))
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
    fn compressed_packets_count_and_not_what_holds_them() {
        let inner = block(&[&[0x50, 2], &[0x50, 3, 0xd0, 2, 65], &[0x50, 3, 0x0a, 2, 0x18, 1]]);
        let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut deflate, &inner).unwrap();
        let deflated = deflate.finish().unwrap();
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let zstd = ruzstd::encoding::compress_to_vec(&inner[..], level);
        for (key, content) in [([0x92, 3], deflated), ([0xaa, 8], zstd)] {
            let size = u8::try_from(content.len()).unwrap();
            let wrapper = [&key[..], &[size], &content].concat();
            let file = block(&[&[0x50, 7], &wrapper]);
            let mut tally = Tally::default();
            assert_eq!(tally.count(&file), file.len());
            assert_eq!((tally.packets, tally.sequences(), tally.bytes), (4, 3, file.len() as u64));
            assert_eq!((tally.losses[0], tally.losses[6], tally.kernel_losses), (1, 1, 1));
            // What is damaged counts no further than it can be read.
            let damaged = [&key[..], &[2], b"xx"].concat();
            tally.count(&block(&[&damaged]));
            assert_eq!(tally.packets, 4);
        }
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
