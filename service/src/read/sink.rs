//! Where packets go: into blocks as they lie in a trace file, or into a batch for a consumer.

use prost::encoding::{encode_varint, encoded_len_varint};

/// Field 1 of `Trace`, length-delimited: in front of each packet in a file.
const PACKET_TAG: u8 = 0x0a;

pub(crate) trait Sink {
    /// Appends one packet: its slices, then the stamp. False if there is no room for it; then nothing is
    /// appended, and nothing may be afterwards.
    fn packet(&mut self, slices: &[&[u8]], stamp: &[u8]) -> bool;

    /// How many bytes came in, as far as thresholds are concerned.
    fn bytes(&self) -> usize;
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
    fn packet(&mut self, slices: &[&[u8]], stamp: &[u8]) -> bool {
        let body_bytes = slices.iter().map(|slice| slice.len()).sum::<usize>() + stamp.len();
        let packet_bytes = 1 + encoded_len_varint(body_bytes as u64) + body_bytes;
        if self.room_bytes.is_some_and(|room| (self.bytes() + packet_bytes) as u64 >= room) {
            return false;
        }
        self.block.reserve(packet_bytes);
        self.block.push(PACKET_TAG);
        encode_varint(body_bytes as u64, self.block);
        for slice in slices {
            self.block.extend_from_slice(slice);
        }
        self.block.extend_from_slice(stamp);
        true
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
    fn packet(&mut self, slices: &[&[u8]], stamp: &[u8]) -> bool {
        for slice in slices {
            self.bytes.extend_from_slice(slice);
        }
        self.bytes.extend_from_slice(stamp);
        self.ends.push(self.bytes.len());
        true
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}
