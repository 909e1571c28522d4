//! A trace file in pieces of any size: no panic, and the place of damage is honest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watershed_wire::packet::Envelope;
use watershed_wire::reader::{Damage, Limits, TraceReader};

/// Far below the default, so that the limit is met.
const LIMITS: Limits = Limits { packet_size_bytes_max: 1 << 16 };

/// The packets and what ended them, when the file comes in pieces of `piece_size_bytes`.
fn read(trace: &[u8], piece_size_bytes: usize) -> (Vec<Vec<u8>>, Result<(), Damage>) {
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

fuzz_target!(|input: (u8, &[u8])| {
    let (piece_size_bytes, trace) = input;
    let (packets, end) = read(trace, usize::from(piece_size_bytes) + 1);
    let at_once = read(trace, trace.len().max(1));
    assert_eq!((&packets, &end), (&at_once.0, &at_once.1));
    if let Err(damage) = end {
        let intact = &trace[..damage.offset_bytes as usize];
        let (before, end) = read(intact, intact.len().max(1));
        assert_eq!(end, Ok(()));
        assert_eq!(before[..], packets[..before.len()]);
        if damage.offset_inflated_bytes.is_none() {
            assert_eq!(before.len(), packets.len());
        }
    }
});
