//! A naive twin of the filter, field by field, with which random packets are compared.

use fastrand::Rng;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use watershed_wire::raw::{Fields, Value};

use super::program::FieldRule;
use super::tests::{filter, left, nested, range, simple, string};
use super::{DEPTH_MAX, TraceFilter, Unreadable, put_padded_varint};

/// What the message with this index lets through.
fn message(
    filter: &TraceFilter,
    index: usize,
    bytes: &[u8],
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Unreadable> {
    for field in Fields::new(bytes) {
        let field = field.map_err(|_| Unreadable)?;
        let Some(rule) = filter.program.message(index).rule(field.number) else { continue };
        match (field.value, rule) {
            (Value::LengthDelimited(_), FieldRule::Nested(_)) if depth == DEPTH_MAX => {
                return Err(Unreadable);
            }
            (Value::LengthDelimited(bytes), FieldRule::Nested(nested)) => {
                let mut inner = Vec::new();
                message(filter, nested as usize, bytes, depth + 1, &mut inner)?;
                encode_key(field.number, WireType::LengthDelimited, out);
                let size_at = out.len();
                out.resize(size_at + encoded_len_varint(bytes.len() as u64), 0);
                put_padded_varint(&mut out[size_at..], inner.len());
                out.extend(inner);
            }
            (Value::LengthDelimited(bytes), FieldRule::Simple | FieldRule::String(_)) => {
                encode_key(field.number, WireType::LengthDelimited, out);
                encode_varint(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
            (Value::Varint(value), FieldRule::Simple) => {
                encode_key(field.number, WireType::Varint, out);
                encode_varint(value, out);
            }
            (Value::Fixed64(value), FieldRule::Simple) => {
                encode_key(field.number, WireType::SixtyFourBit, out);
                out.extend_from_slice(&value.to_le_bytes());
            }
            (Value::Fixed32(value), FieldRule::Simple) => {
                encode_key(field.number, WireType::ThirtyTwoBit, out);
                out.extend_from_slice(&value.to_le_bytes());
            }
            _ => {}
        }
    }
    Ok(())
}

/// A varint, now and then longer than it needs to be.
fn put_varint(random: &mut Rng, value: u64, out: &mut Vec<u8>) {
    let width = encoded_len_varint(value);
    let padding = if random.u8(..) < 20 { random.usize(..=10 - width) } else { 0 };
    let begin = out.len();
    encode_varint(value, out);
    if padding > 0 {
        out[begin + width - 1] |= 0x80;
        out.resize(begin + width + padding - 1, 0x80);
        out.push(0);
    }
}

fn random_message(random: &mut Rng, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.usize(..6) {
        let number = if random.u8(..) < 30 { random.u64(100..200) } else { random.u64(1..9) };
        match random.u8(..6) {
            0 => {
                put_varint(random, number << 3 | 1, &mut out);
                out.extend(random.u64(..).to_le_bytes());
            }
            1 => {
                put_varint(random, number << 3 | 5, &mut out);
                out.extend(random.u32(..).to_le_bytes());
            }
            2 | 3 => {
                put_varint(random, number << 3, &mut out);
                let value = random.u64(..) >> random.u32(..64);
                put_varint(random, value, &mut out);
            }
            _ => {
                let value = match depth {
                    0 => vec![b'x'; random.usize(..300)],
                    depth => random_message(random, depth - 1),
                };
                put_varint(random, number << 3 | 2, &mut out);
                put_varint(random, value.len() as u64, &mut out);
                out.extend(value);
            }
        }
    }
    out
}

#[test]
fn random_packets_come_out_as_the_twin_says() {
    let mut random = Rng::with_seed(7);
    let (mut changed, mut whole, mut broken) = (0, 0, 0);
    for _ in 0..30_000 {
        let rules = |random: &mut Rng| {
            let rule = |number| match random.u8(..5) {
                0 => Vec::new(),
                1 => nested(number, random.u32(1..4)),
                2 => string(number),
                _ => simple(number),
            };
            let mut rules: Vec<_> = (1..9).map(rule).collect();
            rules.push(range(random.u32(100..130), 40));
            rules
        };
        let filter = filter(&[rules(&mut random), rules(&mut random), rules(&mut random)]);
        let mut packet = random_message(&mut random, 4);
        if random.u8(..) < 50 && !packet.is_empty() {
            let at = random.usize(..packet.len());
            packet[at] = random.u8(..);
        }
        let mut theirs = Vec::new();
        let result = left(&filter, &[&packet], &[]);
        let expected = message(&filter, filter.program.root(), &packet, 0, &mut theirs);
        assert_eq!(result, expected.map(|()| theirs), "{filter:?} {packet:x?}");
        broken += u32::from(result.is_err());
        if let Ok(ours) = result {
            changed += u32::from(ours != packet);
            whole += u32::from(ours == packet && !packet.is_empty());
        }
    }
    assert!(changed > 1000 && whole > 1000 && broken > 1000, "{changed} {whole} {broken}");
}
