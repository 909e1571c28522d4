//! The trace reader: every packet once, bounded memory, and the exact place of damage.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;
use prost::Message as _;
use watershed_wire::framing::append_packet;
use watershed_wire::protos::{TestEvent, TracePacket, trace_packet};
use watershed_wire::raw::{Malformed, MalformedKind};
use watershed_wire::reader::{Damage, DamageKind, Limits, TraceReader, packets};

fn packet(timestamp: u64, size_bytes: usize) -> Vec<u8> {
    TracePacket {
        timestamp: Some(timestamp),
        data: Some(trace_packet::Data::ForTesting(TestEvent {
            str: Some("x".repeat(size_bytes)),
            ..Default::default()
        })),
        ..Default::default()
    }
    .encode_to_vec()
}

fn file(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for packet in packets {
        append_packet(&mut file, &[packet]);
    }
    file
}

fn compressed(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&file(packets)).unwrap();
    TracePacket {
        data: Some(trace_packet::Data::CompressedPackets(encoder.finish().unwrap())),
        ..Default::default()
    }
    .encode_to_vec()
}

fn some_packets() -> Vec<Vec<u8>> {
    vec![packet(1, 3), Vec::new(), packet(2, 200), packet(3, 70_000), packet(4, 0)]
}

fn read(trace: &[u8]) -> (Vec<Vec<u8>>, Option<Damage>) {
    let mut found = Vec::new();
    let mut damage = None;
    for item in packets(trace) {
        assert!(damage.is_none(), "something came after damage");
        match item {
            Ok(packet) => found.push(packet),
            Err(error) => damage = Some(error),
        }
    }
    (found, damage)
}

#[test]
fn undamaged() {
    assert_eq!(read(&file(&some_packets())), (some_packets(), None));
    assert_eq!(read(b""), (Vec::new(), None));
}

#[test]
fn every_cut_is_found_at_the_packet_that_it_hits() {
    let packets = [packet(1, 3), packet(2, 200), packet(3, 9)];
    let whole = file(&packets);
    let ends: Vec<usize> = (0..=3).map(|count| file(&packets[..count]).len()).collect();
    for cut in 0..=whole.len() {
        let (found, damage) = read(&whole[..cut]);
        let intact = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert_eq!(found, packets[..intact], "cut at {cut}");
        match ends.contains(&cut) {
            true => assert_eq!(damage, None, "cut at {cut}"),
            false => assert_eq!(damage.unwrap().offset_bytes, ends[intact] as u64, "cut at {cut}"),
        }
    }
}

#[test]
fn what_is_missing_is_counted() {
    let whole = file(&[packet(1, 3), packet(2, 200)]);
    let (_, damage) = read(&whole[..whole.len() - 5]);
    let size_bytes = packet(2, 200).len() as u64;
    assert_eq!(
        damage.unwrap().kind,
        DamageKind::PacketCutShort { size_bytes, size_bytes_present: size_bytes - 5 }
    );
    let (_, damage) = read(&[0x0a]);
    assert_eq!(damage.unwrap().kind, DamageKind::PreambleCutShort);
}

#[test]
fn damage_between_packets() {
    let mut trace = file(&[packet(1, 3)]);
    let offset_bytes = trace.len() as u64;
    trace.extend_from_slice(b"garbage");
    let (found, damage) = read(&trace);
    assert_eq!(found, [packet(1, 3)]);
    let damage = damage.unwrap();
    assert_eq!(
        damage,
        Damage { offset_bytes, offset_inflated_bytes: None, kind: DamageKind::NoPacket { found: b'g' } }
    );
    assert_eq!(damage.to_string(), format!("byte {offset_bytes}: expected a packet (0x0a), found 0x67"));
}

#[test]
fn sizes_that_are_no_sizes() {
    let (_, damage) = read(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
    assert_eq!(damage.unwrap().kind, DamageKind::SizeMalformed);
    let (_, damage) = read(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert!(matches!(damage.unwrap().kind, DamageKind::PacketTooLarge { size_bytes: 0xffff_ffff, .. }));
}

#[test]
fn claimed_sizes_cost_nothing() {
    let mut reader = TraceReader::new(Limits::default());
    // 200 MiB are announced, one byte comes.
    reader.feed(&[0x0a, 0x80, 0x80, 0x80, 0x64, 0]);
    assert_eq!(reader.poll_packet(), Ok(None));
    assert!(reader.spare().len() < 1 << 20);
    let damage = reader.end().unwrap_err();
    assert_eq!(damage.kind, DamageKind::PacketCutShort { size_bytes: 200 << 20, size_bytes_present: 1 });
}

#[test]
fn damage_is_final() {
    let mut reader = TraceReader::new(Limits::default());
    reader.feed(b"no trace");
    let damage = reader.poll_packet().unwrap_err();
    reader.feed(&file(&some_packets()));
    assert_eq!(reader.poll_packet().unwrap_err(), damage);
    assert_eq!(reader.end().unwrap_err(), damage);
}

#[test]
fn compressed_packets_come_out_in_their_place() {
    let trace = file(&[packet(1, 1), compressed(&some_packets()), compressed(&[]), packet(9, 9)]);
    let expected = [vec![packet(1, 1)], some_packets(), vec![packet(9, 9)]].concat();
    assert_eq!(read(&trace), (expected, None));

    let mut reader = TraceReader::new(Limits::default());
    reader.feed(&trace);
    reader.poll_packet().unwrap();
    let inner = reader.poll_packet().unwrap().unwrap();
    assert_eq!(inner.offset_bytes, file(&[packet(1, 1)]).len() as u64);
    assert_eq!(inner.offset_inflated_bytes, Some(0));
    while reader.poll_packet().unwrap().is_some() {}
    assert_eq!(reader.packets_compressed(), 2);
    assert_eq!(reader.offset_bytes(), trace.len() as u64);
}

#[test]
fn damage_inside_of_compressed_packets() {
    let whole = file(&some_packets());
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&whole[..whole.len() - 1]).unwrap();
    let wrapper = TracePacket {
        data: Some(trace_packet::Data::CompressedPackets(encoder.finish().unwrap())),
        ..Default::default()
    };
    let (found, damage) = read(&file(&[wrapper.encode_to_vec()]));
    assert_eq!(found, some_packets()[..4]);
    let damage = damage.unwrap();
    assert_eq!(damage.offset_bytes, 0);
    assert_eq!(damage.offset_inflated_bytes, Some(file(&some_packets()[..4]).len() as u64));
}

#[test]
fn streams_that_do_not_decompress() {
    let mut wrapper = compressed(&some_packets());
    let middle = wrapper.len() / 2;
    wrapper[middle] ^= 0xff;
    let (_, damage) = read(&file(&[wrapper]));
    assert!(damage.is_some(), "a flipped byte went unnoticed");

    let (_, damage) = read(&file(&[compressed(&[compressed(&some_packets())])]));
    assert_eq!(damage.unwrap().kind, DamageKind::NestedCompression);
}

#[test]
fn a_bomb_is_limited_by_the_packet_size() {
    let bomb = compressed(&[packet(1, 8 << 20)]);
    assert!(bomb.len() < 20_000);
    let mut reader = TraceReader::new(Limits { packet_size_bytes_max: 1 << 20 });
    reader.feed(&file(&[bomb]));
    let damage = reader.poll_packet().unwrap_err();
    assert!(matches!(damage.kind, DamageKind::PacketTooLarge { .. }));
}

/// Written by the reference encoder of zstd: 200 packets of `TestEvent`, each with the same string.
#[cfg(feature = "zstd")]
#[test]
fn zstd() {
    let (found, damage) = read(include_bytes!("data/zstd.trace"));
    assert_eq!(damage, None);
    assert_eq!(found.len(), 200);
    for (timestamp, bytes) in (0..).zip(&found) {
        assert_eq!(*bytes, packet(timestamp, 40));
    }
}

#[cfg(not(feature = "zstd"))]
#[test]
fn zstd_is_told_apart_from_damage() {
    let (found, damage) = read(include_bytes!("data/zstd.trace"));
    assert!(found.is_empty());
    assert_eq!(damage.unwrap().kind, DamageKind::UnsupportedCompression("zstd"));
}

#[test]
fn envelopes() {
    use watershed_wire::packet::{Envelope, Payload};
    let bytes = TracePacket {
        timestamp: Some(u64::MAX),
        timestamp_clock_id: Some(6),
        previous_packet_dropped: Some(65),
        first_packet_on_sequence: Some(true),
        trusted_pid: Some(-1),
        optional_trusted_uid: Some(trace_packet::OptionalTrustedUid::TrustedUid(1000)),
        data: Some(trace_packet::Data::SynchronizationMarker(vec![1, 2])),
        ..Default::default()
    }
    .encode_to_vec();
    let envelope = Envelope::read(&bytes).unwrap();
    assert_eq!(
        envelope,
        Envelope {
            timestamp: Some(u64::MAX),
            timestamp_clock_id: Some(6),
            previous_packet_dropped: 65,
            first_packet_on_sequence: true,
            trusted_pid: Some(-1),
            trusted_uid: Some(1000),
            payload: Some(Payload { number: 36, bytes: &[1, 2] }),
            ..Default::default()
        }
    );
    assert_eq!(
        Envelope::read(&bytes[..bytes.len() - 1]).unwrap_err(),
        Malformed { offset_bytes: bytes.len() - 3, kind: MalformedKind::Varint }
    );
}

#[test]
fn a_known_payload_counts_before_an_unknown_one() {
    use watershed_wire::packet::Envelope;
    let known = [7 << 3 | 2, 0];
    // Field 1500.
    let unknown = [0xe2, 0x5d, 0];
    for bytes in [[&known[..], &unknown].concat(), [&unknown[..], &known].concat()] {
        assert_eq!(Envelope::read(&bytes).unwrap().payload.unwrap().number, 7);
    }
    assert_eq!(Envelope::read(&unknown).unwrap().payload.unwrap().number, 1500);
}

proptest! {
    #[test]
    fn any_pieces_give_the_same_packets(
        sizes in proptest::collection::vec(0_usize..3000, 0..20),
        pieces in proptest::collection::vec(1_usize..5000, 1..6),
    ) {
        let packets: Vec<Vec<u8>> = (0..).zip(&sizes).map(|(at, size)| packet(at, *size)).collect();
        let trace = file(&packets);
        let mut reader = TraceReader::new(Limits::default());
        let mut found = Vec::new();
        let mut rest = &trace[..];
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            reader.feed(now);
            rest = later;
            while let Some(packet) = reader.poll_packet().unwrap() {
                found.push(packet.bytes.to_vec());
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(reader.end(), Ok(()));
        prop_assert_eq!(found, packets);
    }

    /// What comes before the place of damage is a whole trace with the very packets that were given
    /// out.
    #[test]
    fn the_place_of_damage_is_honest(
        sizes in proptest::collection::vec(0_usize..300, 1..10),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..=255,
    ) {
        let packets: Vec<Vec<u8>> = (0..).zip(&sizes).map(|(at, size)| packet(at, *size)).collect();
        let mut trace = file(&packets);
        let at = at.index(trace.len());
        trace[at] ^= flip;
        let (found, damage) = read(&trace);
        if let Some(damage) = damage {
            let intact = &trace[..damage.offset_bytes as usize];
            prop_assert_eq!(read(intact), (found, None));
        }
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
        let _ = read(&[&[0x0a, bytes.len() as u8 & 0x7f][..], &bytes].concat());
        let _ = watershed_wire::packet::Envelope::read(&bytes);
    }
}
