//! Protobuf fields, appended to a vector: events are written field by field, without a struct of
//! each.

/// Wire types of a field's key.
const VARINT: u32 = 0;
const LENGTH: u32 = 2;

/// Appends a varint. Most have up to three bytes, which take one look at the vector's capacity.
#[inline(always)]
pub(super) fn put_varint(out: &mut Vec<u8>, value: u64) {
    let more = |shift: u32| (value >> shift) as u8 | 0x80;
    match value {
        0..0x80 => out.push(value as u8),
        0x80..0x4000 => out.extend_from_slice(&[more(0), (value >> 7) as u8]),
        0x4000..0x20_0000 => out.extend_from_slice(&[more(0), more(7), (value >> 14) as u8]),
        _ => put_long_varint(out, value),
    }
}

#[cold]
fn put_long_varint(out: &mut Vec<u8>, mut value: u64) {
    let (mut bytes, mut size) = ([0; 10], 0);
    while value >= 0x80 {
        bytes[size] = value as u8 | 0x80;
        (value, size) = (value >> 7, size + 1);
    }
    bytes[size] = value as u8;
    out.extend_from_slice(&bytes[..=size]);
}

/// The key of a varint field, as it lies before the value.
pub(super) const fn varint_key(number: u32) -> u32 {
    number << 3 | VARINT
}

/// The key of a string, a message or a packed list.
pub(super) const fn length_key(number: u32) -> u32 {
    number << 3 | LENGTH
}

/// Appends a whole varint field.
#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(varint_key(number)));
    put_varint(out, value);
}

/// Appends a whole string, message or packed list.
#[inline]
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(length_key(number)));
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_those_of_prost() {
        for shift in 0..64 {
            for value in [(1_u64 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(prost::encoding::decode_varint(&mut &out[..]), Ok(value));
            }
        }
    }

    #[test]
    fn fields_are_those_of_prost() {
        let mut out = Vec::new();
        put_number(&mut out, 300, 70_000);
        put_bytes(&mut out, 5, b"name");
        let mut expected = Vec::new();
        prost::encoding::uint64::encode(300, &70_000, &mut expected);
        prost::encoding::string::encode(5, &"name".to_owned(), &mut expected);
        assert_eq!(out, expected);
    }
}
