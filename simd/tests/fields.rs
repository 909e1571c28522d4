//! Hand-written answers for the field scan, in one slice and cut at every byte.

use watershed_simd::fields::{Rules, Scan, Violation, ViolationKind, WireType, scan};

fn rules() -> Rules {
    Rules::new()
        .reserve([3, 10, 133, 5000])
        .expect_wire_type(8, WireType::Varint)
        .expect_wire_type(4000, WireType::Fixed32)
}

/// The answer for the packet in one piece; cut in two and three pieces the answer must be the same.
fn scan_cut(packet: &[u8]) -> Result<Scan, Violation> {
    let whole = scan(&[packet], &rules());
    for i in 0..=packet.len() {
        assert_eq!(scan(&[&packet[..i], &packet[i..]], &rules()), whole, "cut at {i}: {packet:02x?}");
        for j in i..=packet.len() {
            assert_eq!(
                scan(&[&packet[..i], &packet[i..j], &[], &packet[j..]], &rules()),
                whole,
                "{i}, {j}: {packet:02x?}"
            );
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
    // timestamp = 2^63 (ten bytes), track_event with 3 bytes, field 58 a varint in a two-byte tag, fixed64, fixed32.
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
