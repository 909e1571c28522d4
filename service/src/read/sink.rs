//! Where packets go: into blocks as they lie in a trace file, or into a batch for a consumer.

use prost::encoding::{decode_varint, encoded_len_varint};
use watershed_shards::framing::{Stamp, put_packet};

pub(crate) trait Sink {
    /// Appends one packet: its slices, then the stamp. False if there is no room for it; then nothing is
    /// appended, and nothing may be afterwards.
    fn packet(&mut self, slices: &[&[u8]], stamp: &Stamp) -> bool;

    /// Appends packets that [`put_packet`] has made. Returns how many bytes of them there is room for: those of whole
    /// packets from the first on. Less than all of them, and nothing may be appended afterwards.
    fn framed(&mut self, packets: &[u8]) -> usize;

    /// How many bytes came in, as far as thresholds are concerned.
    fn bytes(&self) -> usize;
}

/// Size of a packet in a file.
fn framed_bytes(body_bytes: usize) -> usize {
    1 + encoded_len_varint(body_bytes as u64) + body_bytes
}

/// Takes the first of packets that [`put_packet`] has made: how long it is with its preamble, and its body.
fn first_packet(packets: &[u8]) -> Option<(usize, &[u8])> {
    let (_tag, mut rest) = packets.split_first()?;
    let body_bytes = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    let body = rest.get(..body_bytes)?;
    Some((packets.len() - rest.len() + body_bytes, body))
}

/// Appends to a block, with everything that makes a sequence of packets a `Trace` message.
#[derive(Debug)]
pub(crate) struct FramedSink<'a> {
    block: &'a mut Vec<u8>,
    begin: usize,
    /// Exclusive: a file never reaches its limit.
    room_bytes: Option<u64>,
}

impl<'a> FramedSink<'a> {
    pub(crate) fn new(block: &'a mut Vec<u8>, room_bytes: Option<u64>) -> FramedSink<'a> {
        let begin = block.len();
        FramedSink { block, begin, room_bytes }
    }
}

impl Sink for FramedSink<'_> {
    #[inline]
    fn packet(&mut self, slices: &[&[u8]], stamp: &Stamp) -> bool {
        let body_bytes = slices.iter().map(|slice| slice.len()).sum::<usize>() + stamp.size_bytes();
        if self.room_bytes.is_some_and(|room| (self.bytes() + framed_bytes(body_bytes)) as u64 >= room) {
            return false;
        }
        put_packet(self.block, slices, stamp);
        true
    }

    fn framed(&mut self, packets: &[u8]) -> usize {
        let room = self.room_bytes.map(|room| room.saturating_sub(self.bytes() as u64));
        let mut fitting = packets.len();
        if let Some(room) = room.filter(|room| packets.len() as u64 >= *room) {
            fitting = 0;
            while let Some((size_bytes, _)) = first_packet(&packets[fitting..])
                && ((fitting + size_bytes) as u64) < room
            {
                fitting += size_bytes;
            }
        }
        self.block.extend_from_slice(&packets[..fitting]);
        fitting
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.block.len() - self.begin
    }
}

/// Packets as they go to a consumer: without anything around them. Kept from read to read, its memory is used
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketBatch {
    bytes: Vec<u8>,
    /// Where each packet ends.
    ends: Vec<usize>,
}

impl PacketBatch {
    /// An empty batch.
    pub fn new() -> PacketBatch {
        PacketBatch::default()
    }

    /// The packets in order, each a whole `TracePacket`.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    /// How many packets there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl Sink for PacketBatch {
    fn packet(&mut self, slices: &[&[u8]], stamp: &Stamp) -> bool {
        for slice in slices {
            self.bytes.extend_from_slice(slice);
        }
        self.bytes.extend_from_slice(stamp.as_bytes());
        self.ends.push(self.bytes.len());
        true
    }

    fn framed(&mut self, packets: &[u8]) -> usize {
        let mut rest = packets;
        while let Some((size_bytes, body)) = first_packet(rest) {
            self.bytes.extend_from_slice(body);
            self.ends.push(self.bytes.len());
            rest = &rest[size_bytes..];
        }
        packets.len() - rest.len()
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_those_of_a_trace_message() {
        for body_bytes in [0, 1, 127, 128, 129, 255, 16_383, 16_384, 2_097_151, 2_097_152] {
            let body = vec![7; body_bytes];
            let (mut expected, mut block) = (Vec::new(), Vec::new());
            prost::encoding::bytes::encode(1, &body, &mut expected);
            put_packet(&mut block, &[&body], &Stamp::EMPTY);
            assert!(block == expected, "{body_bytes}");
            assert_eq!(framed_bytes(body_bytes), expected.len());
        }
    }

    #[test]
    fn of_framed_packets_as_many_fit_as_are_below_the_limit() {
        let mut packets = Vec::new();
        for body in [&[1; 3][..], &[2; 200], &[], &[3; 20_000]] {
            put_packet(&mut packets, &[body], &Stamp::EMPTY);
        }
        let ends = [0, 5, 208, 210, 20_214];
        assert_eq!(packets.len(), ends[4]);
        for room in (0..300).chain(20_200..20_220) {
            let mut block = vec![7];
            let fitting = FramedSink::new(&mut block, Some(room as u64)).framed(&packets);
            let expected =
                ends.into_iter().rev().find(|end| *end < room.max(1)).expect("nothing always fits");
            assert_eq!((fitting, block.len()), (expected, expected + 1), "room for {room}");
        }
        let mut batch = PacketBatch::new();
        assert_eq!(batch.framed(&packets), packets.len());
        assert_eq!(batch.packets().map(<[u8]>::len).collect::<Vec<_>>(), [3, 200, 0, 20_000]);
    }

    #[test]
    fn a_file_never_reaches_its_limit() {
        let packet_bytes = framed_bytes(10);
        for (room, fits) in [(packet_bytes, false), (packet_bytes + 1, true)] {
            let mut block = vec![7];
            let mut sink = FramedSink::new(&mut block, Some(room as u64));
            assert_eq!(sink.packet(&[&[1; 4], &[2; 6]], &Stamp::EMPTY), fits);
            assert_eq!(
                sink.bytes(),
                if fits { packet_bytes } else { 0 },
                "what lay in the block before does not count"
            );
            assert!(!sink.packet(&[&[1; 4], &[2; 6]], &Stamp::EMPTY), "no room for another");
        }
    }
}
