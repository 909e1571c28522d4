//! One varint, one field: a word each for tag and value. What is not plainly fine goes to the naive version, which says what it is.

use super::{Field, FieldError, FieldLengths, VarintError, naive};
use crate::bytes::{Bytes, low_groups};
use crate::fields::WireType;
use crate::word::HIGH;

/// Same contract as [`super::varint`]. `B` must be what every processor has, or the caller is below its `target_feature`.
#[inline(always)]
pub(crate) fn varint<B: Bytes>(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    match bytes {
        [byte @ ..0x80, ..] => Ok(((*byte).into(), 1)),
        _ => match short::<B>(bytes) {
            Some(found) => Ok(found),
            None => naive::varint(bytes),
        },
    }
}

/// The varint at the start of `bytes` if it has at most eight bytes and eight are there.
#[inline(always)]
fn short<B: Bytes>(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    let stops = !word & HIGH;
    // SAFETY: the condition on `B` above.
    (stops != 0).then(|| (unsafe { low_groups::<B>(word) }, (stops.trailing_zeros() as usize >> 3) + 1))
}

/// Same contract as [`super::field`], and the condition on `B` of [`varint`].
#[inline(always)]
pub(crate) fn field<B: Bytes>(bytes: &[u8]) -> Result<Field, FieldError> {
    plain::<B>(bytes).map_or_else(|| naive::field(bytes), Ok)
}

/// The field at the start of `bytes` if its tag has at most two bytes and there is nothing wrong with it.
#[inline(always)]
fn plain<B: Bytes>(bytes: &[u8]) -> Option<Field> {
    let (tag, tag_bytes) = match *bytes {
        [tag @ ..0x80, ..] => (u32::from(tag), 1),
        [low, high @ ..0x80, ..] => (u32::from(low & 0x7f) | u32::from(high) << 7, 2),
        _ => return None,
    };
    let number = tag >> 3;
    let wire_type = WireType::of_tag(tag.into()).filter(|_| number != 0)?;
    let behind = &bytes[tag_bytes..];
    let (header_bytes, value_bytes) = match wire_type {
        WireType::Varint => (tag_bytes, varint::<B>(behind).ok()?.1 as u64),
        WireType::Fixed64 => (tag_bytes, 8),
        WireType::Fixed32 => (tag_bytes, 4),
        WireType::LengthDelimited => {
            let (length, length_bytes) = varint::<B>(behind).ok()?;
            (tag_bytes + length_bytes, length)
        }
    };
    let whole = value_bytes <= (bytes.len() - header_bytes) as u64;
    whole.then_some(Field { number, wire_type, header_bytes: header_bytes as u8, value_bytes })
}

/// Same contract as [`super::field_lengths`], and the condition on `B` of [`varint`].
#[inline(always)]
pub(crate) fn field_lengths<B: Bytes>(bytes: &[u8], fields: &mut [Field]) -> FieldLengths {
    let mut at = 0;
    for (i, place) in fields.iter_mut().enumerate() {
        if at == bytes.len() {
            return FieldLengths { fields: i, consumed_bytes: at, error: None };
        }
        match field::<B>(&bytes[at..]) {
            Ok(found) => {
                *place = found;
                at += usize::from(found.header_bytes) + found.value_bytes as usize;
            }
            Err(error) => return FieldLengths { fields: i, consumed_bytes: at, error: Some(error) },
        }
    }
    FieldLengths { fields: fields.len(), consumed_bytes: at, error: None }
}
