//! The oracle: one byte at a time.

use super::{
    Field, FieldError, FieldLengths, MAX_FIELD_NUMBER, MAX_VARINT_BYTES, VarintError, Varints, VarintsStop,
};
use crate::fields::WireType;

/// Same contract as [`super::varint`].
pub fn varint(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    let mut value = 0u64;
    for i in 0..MAX_VARINT_BYTES {
        let Some(&byte) = bytes.get(i) else { return Err(VarintError::Truncated) };
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Ok((value, i + 1));
        }
    }
    Err(VarintError::Overlong)
}

/// Same contract as [`super::varints`].
pub fn varints(bytes: &[u8], values: &mut [u64]) -> Varints {
    let mut at = 0;
    for (i, value) in values.iter_mut().enumerate() {
        if at == bytes.len() {
            return Varints { values: i, consumed_bytes: at, stop: VarintsStop::End };
        }
        match varint(&bytes[at..]) {
            Ok((decoded, length_bytes)) => {
                *value = decoded;
                at += length_bytes;
            }
            Err(error) => {
                let stop = match error {
                    VarintError::Truncated => VarintsStop::Truncated,
                    VarintError::Overlong => VarintsStop::Overlong,
                };
                return Varints { values: i, consumed_bytes: at, stop };
            }
        }
    }
    Varints { values: values.len(), consumed_bytes: at, stop: VarintsStop::Full }
}

/// Same contract as [`super::field`].
pub fn field(bytes: &[u8]) -> Result<Field, FieldError> {
    let (tag, tag_bytes) = varint(bytes)?;
    let number = tag >> 3;
    if number == 0 || number > u64::from(MAX_FIELD_NUMBER) {
        return Err(FieldError::Number);
    }
    let wire_type = WireType::of_tag(tag).ok_or(FieldError::WireType)?;
    let mut header_bytes = tag_bytes;
    let value_bytes = match wire_type {
        WireType::Varint => varint(&bytes[tag_bytes..])?.1 as u64,
        WireType::Fixed64 => 8,
        WireType::Fixed32 => 4,
        WireType::LengthDelimited => {
            let (length, length_bytes) = varint(&bytes[tag_bytes..])?;
            header_bytes += length_bytes;
            length
        }
    };
    if value_bytes > (bytes.len() - header_bytes) as u64 {
        return Err(FieldError::Truncated);
    }
    Ok(Field { number: number as u32, wire_type, header_bytes: header_bytes as u8, value_bytes })
}

/// Same contract as [`super::field_lengths`].
pub fn field_lengths(bytes: &[u8], fields: &mut [Field]) -> FieldLengths {
    let mut at = 0;
    for (i, place) in fields.iter_mut().enumerate() {
        if at == bytes.len() {
            return FieldLengths { fields: i, consumed_bytes: at, error: None };
        }
        match field(&bytes[at..]) {
            Ok(found) => {
                *place = found;
                at += usize::from(found.header_bytes) + found.value_bytes as usize;
            }
            Err(error) => return FieldLengths { fields: i, consumed_bytes: at, error: Some(error) },
        }
    }
    FieldLengths { fields: fields.len(), consumed_bytes: at, error: None }
}

impl From<VarintError> for FieldError {
    fn from(error: VarintError) -> FieldError {
        match error {
            VarintError::Truncated => FieldError::Truncated,
            VarintError::Overlong => FieldError::Overlong,
        }
    }
}
