//! The packets that the suite's producers write.
//!
//! A packet holds its place in its sequence as timestamp, so that whoever reads the trace finds
//! what is missing.

use crate::workload::minstd::Minstd;
use crate::workload::protobuf;

/// The timestamp of a sequence's first packet. All that come later have as many bytes.
pub(super) const FIRST_TIMESTAMP: u64 = 1 << 60;
/// Payload of a chunk that takes a page of 4 KiB.
pub(super) const CHUNK_PAYLOAD_BYTES: u64 = 4080;
/// What a packet has in front of its content.
const HEAD_BYTES: usize = 16;

/// The sizes of the published comparison of trace buffers: 50 to 500 bytes. With content it is four
/// bits of chance in each byte, else one byte again and again.
pub(super) fn packets(has_content: bool) -> Vec<Vec<u8>> {
    let mut random = Minstd::new(42);
    let mut packets: Vec<_> =
        (0..1000).map(|_| protobuf::track_event(50 + random.below(451), FIRST_TIMESTAMP)).collect();
    for byte in packets.iter_mut().filter(|_| has_content).flat_map(|packet| &mut packet[HEAD_BYTES..]) {
        *byte = b'a' + random.below(16) as u8;
    }
    packets
}

/// What a byte of a packet takes of the shared memory: its size field, and the chunk's header.
pub(super) fn memory_bytes_per_byte() -> f64 {
    const SIZE_FIELD_BYTES: usize = 4;
    let packets = packets(false);
    let bytes: usize = packets.iter().map(Vec::len).sum();
    let with_sizes = bytes + packets.len() * SIZE_FIELD_BYTES;
    with_sizes as f64 / bytes as f64 * 4096.0 / CHUNK_PAYLOAD_BYTES as f64
}

/// Makes the packet that of a place in its sequence. The timestamp is its first field.
pub(super) fn number(packet: &mut [u8], place: u64) {
    let mut value = FIRST_TIMESTAMP + place;
    for byte in &mut packet[1..9] {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    packet[9] = value as u8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use watershed_wire::raw::Fields;

    #[test]
    fn a_packet_has_the_number_of_its_place() {
        for mut packet in [packets(false), packets(true)].concat() {
            for place in [0, 1, 1 << 40] {
                number(&mut packet, place);
                let timestamp = Fields::new(&packet).next().unwrap().unwrap();
                assert_eq!((timestamp.number, timestamp.value.varint()), (8, Some(FIRST_TIMESTAMP + place)));
                assert!(Fields::new(&packet).all(|field| field.is_ok()));
            }
        }
    }
}
