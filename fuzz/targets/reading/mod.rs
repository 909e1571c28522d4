//! Reads a trace as the program does.

use watershed_wire::packet::Envelope;
use watershed_wire::reader::{Damage, Limits, TraceReader};

/// Far below the default, so that the limit is met.
const LIMITS: Limits = Limits { packet_size_bytes_max: 1 << 16 };

/// The packets and what ended them, when the file comes in pieces of `piece_size_bytes`.
pub fn read(trace: &[u8], piece_size_bytes: usize) -> (Vec<Vec<u8>>, Result<(), Damage>) {
    let mut reader = TraceReader::new(LIMITS);
    let mut packets = Vec::new();
    for piece in trace.chunks(piece_size_bytes) {
        reader.feed(piece);
        loop {
            match reader.poll_packet() {
                Ok(Some(packet)) => {
                    let _ = Envelope::read(packet.bytes);
                    packets.push(packet.bytes.to_vec());
                }
                Ok(None) => break,
                Err(damage) => return (packets, Err(damage)),
            }
        }
    }
    let end = reader.end();
    (packets, end)
}
