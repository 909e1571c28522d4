//! Chunks of packets that are valid protobuf, for workloads that look inside: the templates' sizes,
//! other bodies.

use super::minstd::Minstd;
use super::{CHUNK_PAYLOAD_BYTES, SourceChunk};

/// `count` chunks of track-event-like packets: a timestamp (field 8, varint) and an event (field
/// 11, bytes) that takes the rest, 50 to 500 bytes in all, with size headers of 2 bytes.
pub fn track_events(count: usize) -> Vec<SourceChunk> {
    let mut random = Minstd::new(42);
    let mut timestamp_ns = 1_700_000_000_000_000_000_u64;
    (0..count)
        .map(|_| {
            let mut chunk = SourceChunk { bytes: Vec::new(), fragments: 0, packets: 0, flags: 0 };
            for _ in 0..5 + random.below(11) {
                let body_bytes = 50 + random.below(451);
                if chunk.bytes.len() + 2 + body_bytes > CHUNK_PAYLOAD_BYTES {
                    break;
                }
                timestamp_ns += random.below(100_000) as u64;
                chunk.bytes.extend([(body_bytes & 0x7f) as u8 | 0x80, (body_bytes >> 7) as u8]);
                chunk.bytes.extend(track_event(body_bytes, timestamp_ns));
                chunk.fragments += 1;
                chunk.packets += 1;
            }
            chunk
        })
        .collect()
}

/// One packet of exactly `size_bytes`, at least 13.
pub fn track_event(size_bytes: usize, timestamp_ns: u64) -> Vec<u8> {
    let mut packet = vec![8 << 3];
    append_varint(&mut packet, timestamp_ns);
    // Of the two lengths of the length's own varint, the longer one where both would do: two bytes
    // hold any.
    let event_bytes = size_bytes - packet.len() - 3;
    packet.extend([11 << 3 | 2, (event_bytes & 0x7f) as u8 | 0x80, (event_bytes >> 7) as u8]);
    packet.resize(size_bytes, b'-');
    packet
}

fn append_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_the_sizes_that_their_headers_say() {
        for chunk in track_events(50) {
            let (mut at, mut packets) = (0, 0);
            while at < chunk.bytes.len() {
                let size = usize::from(chunk.bytes[at] & 0x7f) | usize::from(chunk.bytes[at + 1]) << 7;
                let packet = &chunk.bytes[at + 2..at + 2 + size];
                assert_eq!((packet[0], packet[10]), (0x40, 0x5a), "the timestamp takes nine bytes");
                let event = usize::from(packet[11] & 0x7f) | usize::from(packet[12]) << 7;
                assert_eq!(event, size - 13);
                at += 2 + size;
                packets += 1;
            }
            assert_eq!(packets, chunk.packets);
            assert!(packets > 0);
        }
    }
}
