//! Packets in a trace file.

use prost::encoding::encode_varint;

/// Key of field `Trace.packet`: number 1, length-delimited. The first byte of every trace file.
pub const PACKET_KEY: u8 = 0x0a;

/// What comes before a packet's bytes in a file: key and size. Made on the stack, for writers that
/// gather slices.
#[derive(Debug, Clone, Copy)]
pub struct Preamble {
    bytes: [u8; 11],
    size_bytes: u8,
}

impl Preamble {
    /// The preamble of a packet of `packet_size_bytes`, of any size.
    pub fn new(packet_size_bytes: usize) -> Self {
        let mut bytes = [0; 11];
        bytes[0] = PACKET_KEY;
        let mut rest = &mut bytes[1..];
        encode_varint(packet_size_bytes as u64, &mut rest);
        let size_bytes = 11 - rest.len() as u8;
        Preamble { bytes, size_bytes }
    }

    /// 2 to 11 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.size_bytes.into()]
    }
}

/// Appends a packet that is given in slices, with its preamble.
pub fn append_packet(trace: &mut Vec<u8>, slices: &[&[u8]]) {
    let size_bytes = slices.iter().map(|slice| slice.len()).sum();
    trace.extend_from_slice(Preamble::new(size_bytes).as_bytes());
    for slice in slices {
        trace.extend_from_slice(slice);
    }
}
