//! Varints and field lengths of every level against their oracle, and the oracle against hand-written answers.

mod common;

use common::{Random, cases, levels, push_varint, small};
use watershed_simd::Kernels;
use watershed_simd::decode::{
    Field, FieldError, FieldLengths, VarintError, Varints, VarintsStop, field, field_lengths, naive, varint,
    varints,
};
use watershed_simd::fields::WireType;

const NO_FIELD: Field = Field { number: 0, wire_type: WireType::Varint, header_bytes: 0, value_bytes: 0 };

fn check(kernels: &[Kernels], bytes: &[u8], room: usize) -> Varints {
    let mut expected = vec![0; room];
    let answer = naive::varints(bytes, &mut expected);
    for kernels in kernels {
        let level = kernels.level();
        let mut values = vec![0; room];
        assert_eq!(kernels.varints(bytes, &mut values), answer, "{level}, room {room}: {bytes:02x?}");
        assert_eq!(values[..answer.values], expected[..answer.values], "{level}, room {room}: {bytes:02x?}");
        assert_eq!(kernels.varint(bytes), naive::varint(bytes), "{level}: {bytes:02x?}");
        assert_eq!(kernels.field(bytes), naive::field(bytes), "{level}: {bytes:02x?}");
        let (mut fields, mut expected) = ([NO_FIELD; 64], [NO_FIELD; 64]);
        let lengths = naive::field_lengths(bytes, &mut expected);
        assert_eq!(kernels.field_lengths(bytes, &mut fields), lengths, "{level}: {bytes:02x?}");
        assert_eq!(fields[..lengths.fields], expected[..lengths.fields], "{level}: {bytes:02x?}");
    }
    answer
}

#[test]
fn single_varints() {
    assert_eq!(varint(&[]), Err(VarintError::Truncated));
    assert_eq!(varint(&[0x80]), Err(VarintError::Truncated));
    assert_eq!(varint(&[0x96, 0x01, 0xff]), Ok((150, 2)));
    assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), Ok((u64::MAX, 10)));
    assert_eq!(
        varint(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        Ok((u64::MAX, 10)),
        "one bit of the tenth"
    );
    assert_eq!(varint(&[0x80; 10]), Err(VarintError::Overlong));
    assert_eq!(varint(&[0x80; 9]), Err(VarintError::Truncated));
    for bit in 0..64 {
        for value in [1 << bit, (1 << bit) - 1, u64::MAX >> bit] {
            for length in 1..=10 {
                let mut bytes = Vec::new();
                push_varint(&mut bytes, value, length);
                let expected = bytes.len();
                for padding in 0..12 {
                    bytes.resize(expected + padding, 0xff);
                    assert_eq!(varint(&bytes), Ok((value, expected)), "{bytes:02x?}");
                    check(&levels(), &bytes, 3);
                }
            }
        }
    }
}

#[test]
fn rows_say_why_they_end() {
    let mut values = [0; 3];
    let stop = |bytes: &[u8]| {
        let found = check(&levels(), bytes, 3);
        (found.values, found.consumed_bytes, found.stop)
    };
    assert_eq!(
        varints(&[1, 0x82, 0, 3], &mut values),
        Varints { values: 3, consumed_bytes: 4, stop: VarintsStop::Full }
    );
    assert_eq!(values, [1, 2, 3]);
    assert_eq!(stop(&[]), (0, 0, VarintsStop::End));
    assert_eq!(stop(&[1, 2]), (2, 2, VarintsStop::End));
    assert_eq!(stop(&[1, 0x80, 0x80]), (1, 1, VarintsStop::Truncated));
    assert_eq!(stop(&[[1].as_slice(), &[0x80; 10]].concat()), (1, 1, VarintsStop::Overlong));
}

#[test]
fn single_fields() {
    assert_eq!(
        field(&[0x08, 0x96, 0x01, 9]),
        Ok(Field { number: 1, wire_type: WireType::Varint, header_bytes: 1, value_bytes: 2 })
    );
    assert_eq!(
        field(&[0xd2, 0x03, 2, 9, 9]),
        Ok(Field { number: 58, wire_type: WireType::LengthDelimited, header_bytes: 3, value_bytes: 2 })
    );
    assert_eq!(field(&[0x0d, 1, 2, 3, 4]).unwrap().value_bytes, 4);
    assert_eq!(field(&[0x09, 1, 2, 3, 4, 5, 6, 7]), Err(FieldError::Truncated));
    assert_eq!(field(&[0x00, 1]), Err(FieldError::Number));
    assert_eq!(field(&[0x0b]), Err(FieldError::WireType));
    assert_eq!(field(&[0x80; 11]), Err(FieldError::Overlong));
    let mut fields = [NO_FIELD; 2];
    assert_eq!(
        field_lengths(&[0x08, 1, 0x0f], &mut fields),
        FieldLengths { fields: 1, consumed_bytes: 2, error: Some(FieldError::WireType) }
    );
    assert_eq!(
        field_lengths(&[0x08, 1], &mut fields),
        FieldLengths { fields: 1, consumed_bytes: 2, error: None }
    );
}

/// Every pattern of 17 continuation bits at the start of a longer row: all lengths in all neighbourhoods, across the edge of small windows.
#[test]
fn exhaustive_continuation_bits() {
    let kernels = levels();
    let bits = if small() { 12 } else { 17 };
    for pattern in 0..1u32 << bits {
        let mut bytes = [0x25u8; 90];
        for (i, byte) in bytes[..17].iter_mut().enumerate() {
            *byte = ((i as u8).wrapping_mul(37) & 0x7f) | (((pattern >> i) & 1) as u8) << 7;
        }
        for kernels in &kernels {
            let (mut values, mut expected) = ([0; 90], [0; 90]);
            let answer = naive::varints(&bytes, &mut expected);
            assert_eq!(kernels.varints(&bytes, &mut values), answer, "{}: {bytes:02x?}", kernels.level());
            assert_eq!(
                values[..answer.values],
                expected[..answer.values],
                "{}: {bytes:02x?}",
                kernels.level()
            );
        }
    }
}

/// Rows of varints of several shapes, sometimes damaged.
fn row(random: &mut Random) -> Vec<u8> {
    let shape = random.below(7);
    let mut bytes = Vec::new();
    for _ in 0..random.below(400) {
        let length = match shape {
            0 => 1,
            1 => 2,
            2 => 4,
            3 => random.range(1, 2),
            4 => random.range(1, 10),
            5 => [1, 1, 1, 9][random.below(4)],
            _ => random.range(8, 10),
        };
        let value = random.next() >> (64 - (7 * length).min(64)).min(63);
        push_varint(&mut bytes, value, length);
    }
    match random.below(6) {
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 if !bytes.is_empty() => {
            let at = random.below(bytes.len());
            let end = (at + random.range(1, 30)).min(bytes.len());
            bytes[at..end].fill(0x80);
        }
        _ => {}
    }
    bytes
}

#[test]
fn random_rows() {
    let kernels = levels();
    for seed in 0..cases(3000) {
        let mut random = Random::new(seed);
        let bytes = row(&mut random);
        let room = [1000, random.below(100)][random.below(2)];
        check(&kernels, &bytes, room);
    }
}

#[cfg(unix)]
#[test]
fn nothing_is_touched_outside() {
    use common::Guarded;
    let (mut below, mut above, mut slots) =
        (Guarded::new(8 << 10), Guarded::new(8 << 10), Guarded::new(16 << 10));
    for seed in 0..cases(1500) {
        let mut random = Random::new(seed);
        let bytes = row(&mut random);
        let room = random.below(500);
        let mut expected = vec![0; room];
        let answer = naive::varints(&bytes, &mut expected);
        for kernels in levels() {
            for bytes in [below.at_start(&bytes), above.at_end(&bytes)] {
                let values = slots.slots_at_end(room, 0u64);
                assert_eq!(kernels.varints(bytes, values), answer, "{}, seed {seed}", kernels.level());
                assert_eq!(
                    values[..answer.values],
                    expected[..answer.values],
                    "{}, seed {seed}",
                    kernels.level()
                );
                assert_eq!(kernels.varint(bytes), naive::varint(bytes));
                assert_eq!(kernels.field(bytes), naive::field(bytes));
            }
        }
    }
}
