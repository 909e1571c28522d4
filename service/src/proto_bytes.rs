//! Protobuf fields as bytes, for the envelopes of packets.

use prost::encoding::{WireType, encode_key, encode_varint};

/// Appends a varint field.
pub(crate) fn put_uint64(out: &mut Vec<u8>, number: u32, value: u64) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value, out);
}

/// Appends an `int32` field: negative values take ten bytes, as the format wants it.
pub(crate) fn put_int32(out: &mut Vec<u8>, number: u32, value: i32) {
    put_uint64(out, number, i64::from(value) as u64);
}

/// Appends a length-delimited field.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_numbers_take_ten_bytes() {
        let mut out = Vec::new();
        put_int32(&mut out, 3, -1);
        assert_eq!(out, [0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }
}
