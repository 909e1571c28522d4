//! The field scan: hand-written answers, in one slice and cut at every byte, and every level
//! against the oracle.

mod common;

use common::{Random, cases, levels, push_varint, small};
use watershed_simd::fields::{Rules, Scan, Violation, ViolationKind, WireType, naive, scan};

fn rules() -> Rules {
    Rules::new()
        .reserve([3, 10, 133, 5000])
        .expect_wire_type(8, WireType::Varint)
        .expect_wire_type(4000, WireType::Fixed32)
}

/// The answer for the packet in one piece; cut in two and three pieces the answer must be the same.
fn scan_cut(packet: &[u8]) -> Result<Scan, Violation> {
    let whole = naive::scan(&[packet], &rules());
    let cuts = |slices: &[&[u8]]| {
        for kernels in levels() {
            assert_eq!(kernels.scan(slices, &rules()), whole, "{}: {slices:02x?}", kernels.level());
        }
        assert_eq!(naive::scan(slices, &rules()), whole, "{slices:02x?}");
        assert_eq!(scan(slices, &rules()), whole, "{slices:02x?}");
    };
    cuts(&[packet]);
    for i in 0..=packet.len() {
        cuts(&[&packet[..i], &packet[i..]]);
        for j in i..=packet.len() {
            cuts(&[&packet[..i], &packet[i..j], &[], &packet[j..]]);
        }
    }
    whole
}

fn bad(kind: ViolationKind, offset_bytes: usize, number: impl Into<Option<u32>>) -> Result<Scan, Violation> {
    Err(Violation { kind, offset_bytes, number: number.into() })
}

fn packet(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn clean_packets() {
    assert_eq!(scan(&[], &rules()), Ok(Scan { fields: 0, bytes: 0 }));
    assert_eq!(scan(&[&[], &[]], &rules()), Ok(Scan { fields: 0, bytes: 0 }));
    // timestamp = 2^63 (ten bytes), track_event with 3 bytes, field 58 a varint in a two-byte tag,
    // fixed64, fixed32.
    let p = packet(&[
        &[0x40, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
        &[0x5a, 3, 1, 2, 3],
        &[0xd0, 0x03, 6],
        &[0x09, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x0d, 1, 2, 3, 4],
        &[0x85, 0xfa, 0x01, 1, 2, 3, 4],
    ]);
    assert_eq!(scan_cut(&p), Ok(Scan { fields: 6, bytes: p.len() }));
}

#[test]
fn redundant_length_and_empty_value() {
    assert_eq!(
        scan_cut(&[0x5a, 0x80, 0x80, 0x80, 0x00, 0x5a, 0x81, 0x00, 9]),
        Ok(Scan { fields: 2, bytes: 9 })
    );
}

#[test]
fn reserved_numbers() {
    assert_eq!(scan_cut(&[0x40, 1, 0x18, 1]), bad(ViolationKind::Reserved, 2, 3));
    assert_eq!(scan_cut(&[0x50, 1]), bad(ViolationKind::Reserved, 0, 10));
    assert_eq!(scan_cut(&[0xaa, 0x08, 0]), bad(ViolationKind::Reserved, 0, 133));
    assert_eq!(scan_cut(&[0xc2, 0xb8, 0x02, 0]), bad(ViolationKind::Reserved, 0, 5000));
    assert_eq!(
        scan_cut(&[0x98, 0x80, 0x00, 0]),
        bad(ViolationKind::Reserved, 0, 3),
        "a redundant tag hides nothing"
    );
    assert_eq!(scan_cut(&[0x1b]), bad(ViolationKind::Reserved, 0, 3), "before its wire type");
}

#[test]
fn wire_types() {
    for wire_type in [3, 4, 6, 7] {
        assert_eq!(scan_cut(&[0x58 | wire_type]), bad(ViolationKind::WireType, 0, 11));
    }
    assert_eq!(scan_cut(&[0x42, 0]), bad(ViolationKind::WireType, 0, 8), "not the expected one");
    assert_eq!(scan_cut(&[0x80, 0xfa, 0x01, 1]), bad(ViolationKind::WireType, 0, 4000));
}

#[test]
fn numbers_out_of_range() {
    assert_eq!(scan_cut(&[0x02, 0]), bad(ViolationKind::Number, 0, None));
    assert_eq!(scan_cut(&[0xfa, 0xff, 0xff, 0xff, 0x0f, 0]), Ok(Scan { fields: 1, bytes: 6 }), "2^29 - 1");
    assert_eq!(scan_cut(&[0x82, 0x80, 0x80, 0x80, 0x10, 0]), bad(ViolationKind::Number, 0, None), "2^29");
    assert_eq!(
        scan_cut(&[0x98, 0x80, 0x80, 0x80, 0x80, 0x01, 0]),
        bad(ViolationKind::Number, 0, None),
        "2^32 + 3"
    );
}

#[test]
fn overlong_varints() {
    let eleven = [0x80; 11];
    assert_eq!(scan_cut(&eleven), bad(ViolationKind::OverlongVarint, 0, None));
    assert_eq!(scan_cut(&packet(&[&[0x58], &eleven])), bad(ViolationKind::OverlongVarint, 0, 11));
    assert_eq!(scan_cut(&packet(&[&[0x40, 0, 0x5a], &eleven])), bad(ViolationKind::OverlongVarint, 2, 11));
}

#[test]
fn lengths() {
    assert_eq!(
        scan_cut(&[0x5a, 0xff, 0xff, 0xff, 0x7f]),
        bad(ViolationKind::EndInsideField, 0, 11),
        "2^28 - 1"
    );
    assert_eq!(scan_cut(&[0x5a, 0x80, 0x80, 0x80, 0x80, 0x01]), bad(ViolationKind::Length, 0, 11), "2^28");
    let mut max = vec![0x5a];
    max.extend([0xff; 9]);
    max.push(0x01);
    assert_eq!(scan_cut(&max), bad(ViolationKind::Length, 0, 11), "2^64 - 1");
    assert_eq!(
        scan(&[&[0x5a, 3, 1, 2, 3]], &Rules::new().max_length_bytes(2)),
        bad(ViolationKind::Length, 0, 11)
    );
}

#[test]
fn ends_inside_a_field() {
    let whole = packet(&[
        &[0x40, 0x80, 0x01],
        &[0xda, 0x03, 0x82, 0x00, 7, 7],
        &[0x0d, 1, 2, 3, 4],
        &[0x09, 1, 2, 3, 4, 5, 6, 7, 8],
    ]);
    assert_eq!(scan_cut(&whole), Ok(Scan { fields: 4, bytes: 23 }));
    for len in 0..whole.len() {
        let starts = [0, 3, 9, 14];
        let answer = scan_cut(&whole[..len]);
        if starts.contains(&len) {
            assert!(answer.is_ok(), "{len}");
        } else {
            let violation = answer.unwrap_err();
            let start = starts.into_iter().rfind(|&s| s < len).unwrap();
            assert_eq!(
                (violation.kind, violation.offset_bytes),
                (ViolationKind::EndInsideField, start),
                "{len}"
            );
        }
    }
}

#[test]
fn reserved_wins_over_an_expectation() {
    let rules = Rules::new().reserve([8]).expect_wire_type(8, WireType::Varint);
    assert_eq!(scan(&[&[0x40, 1]], &rules), bad(ViolationKind::Reserved, 0, 8));
    assert!(format!("{rules:?}").contains("(8, 0)"));
}

/// A packet of fields of all kinds, sometimes damaged.
fn any_packet(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(12) {
        let numbers = if random.below(8) == 0 { 10 } else { 7 };
        let number = [8, 11, 12, 58, 300, 4000, 9, 3, 10, 0][random.below(numbers)];
        let wire_types = if random.below(16) == 0 { 8 } else { 6 };
        let wire_type = match number {
            8 => 0,
            4000 => 5,
            _ => [0, 1, 2, 5, 2, 0, 3, 7][random.below(wire_types)],
        };
        push_varint(&mut bytes, number << 3 | wire_type, [1, 1, 1, 4][random.below(4)]);
        match wire_type {
            0 => {
                let length = random.range(1, 10);
                push_varint(&mut bytes, random.next() >> (64 - (7 * length).min(64)).min(63), length);
            }
            1 => bytes.extend([random.next() as u8; 8]),
            2 => {
                let length = [random.below(20), random.below(300)][random.below(2)];
                push_varint(&mut bytes, length as u64, [1, 1, 4, 9][random.below(4)]);
                bytes.extend((0..length).map(|_| 0xa5));
            }
            _ => bytes.extend([random.next() as u8; 4]),
        }
    }
    match random.below(6) {
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 if !bytes.is_empty() => {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        2 => bytes.extend([0xff; 12]),
        _ => {}
    }
    bytes
}

fn cut_at_random<'a>(random: &mut Random, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let mut slices = Vec::new();
    while !bytes.is_empty() && random.below(4) != 0 {
        let (slice, rest) = bytes.split_at(random.below(bytes.len() + 1));
        slices.push(slice);
        bytes = rest;
    }
    slices.push(bytes);
    slices
}

#[test]
fn random_packets() {
    let (kernels, rules) = (levels(), rules());
    let mut clean = 0;
    for seed in 0..cases(20_000) {
        let mut random = Random::new(seed);
        let packet = any_packet(&mut random);
        let slices = cut_at_random(&mut random, &packet);
        let answer = naive::scan(&slices, &rules);
        clean += u64::from(answer.is_ok());
        for kernels in &kernels {
            assert_eq!(kernels.scan(&slices, &rules), answer, "{}: {slices:02x?}", kernels.level());
        }
    }
    let all = cases(20_000);
    assert!(
        (all / 4..all * 3 / 4).contains(&clean),
        "both answers must be common: {clean} of {all} are clean"
    );
}

/// Every packet of up to four bytes over the bytes that matter.
#[test]
fn exhaustive_short_packets() {
    const ALPHABET: [u8; 11] = [0x00, 0x01, 0x02, 0x18, 0x40, 0x5a, 0x5d, 0x59, 0x80, 0x5b, 0xff];
    let (kernels, rules) = (levels(), rules());
    for len in 0..=if small() { 3 } else { 5u32 } {
        for mut n in 0..ALPHABET.len().pow(len) {
            let mut packet = [0x5a, 1, 0, 0x58, 0x82, 0, 0, 0, 0, 0];
            for byte in &mut packet[5..5 + len as usize] {
                *byte = ALPHABET[n % ALPHABET.len()];
                n /= ALPHABET.len();
            }
            for packet in [&packet[5..5 + len as usize], &packet[..5 + len as usize]] {
                let answer = naive::scan(&[packet], &rules);
                for kernels in &kernels {
                    assert_eq!(kernels.scan(&[packet], &rules), answer, "{}: {packet:02x?}", kernels.level());
                }
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn nothing_is_touched_outside() {
    let rules = rules();
    let (mut below, mut above) = (common::Guarded::new(8 << 10), common::Guarded::new(8 << 10));
    for seed in 0..cases(3000) {
        let mut random = Random::new(seed);
        let packet = any_packet(&mut random);
        let (first, second) = packet.split_at(random.below(packet.len() + 1));
        let answer = naive::scan(&[&packet], &rules);
        let slices = [above.at_end(first), below.at_start(second)];
        for kernels in levels() {
            assert_eq!(kernels.scan(&slices, &rules), answer, "{}, seed {seed}", kernels.level());
        }
    }
}
