//! Varints and the lengths of protobuf fields.
//!
//! A varint is 1 to 10 bytes of seven bits each, lowest group first; a set high bit says that another byte follows. Redundant
//! forms (`80 00` for 0) are accepted, and of a tenth byte only the lowest bit counts, as in protobuf's own parsers.

pub(crate) mod many;
pub mod naive;
pub(crate) mod one;

use crate::Kernels;
use crate::bytes::Word;
use crate::fields::WireType;

/// The longest varint: ten groups of seven bits hold 64 bits.
pub const MAX_VARINT_BYTES: usize = 10;

/// The highest field number of protobuf, 2^29 - 1. The lowest is 1.
pub const MAX_FIELD_NUMBER: u32 = (1 << 29) - 1;

/// Why bytes are no varint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VarintError {
    /// The bytes end before a byte without continuation bit. Also when there are none.
    Truncated,
    /// Ten bytes all have the continuation bit.
    Overlong,
}

/// What [`varints`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Varints {
    /// Values written.
    pub values: usize,
    /// Bytes that these values took: where the next varint begins.
    pub consumed_bytes: usize,
    /// Why no more were decoded.
    pub stop: VarintsStop,
}

/// Why a row of varints ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VarintsStop {
    /// All places were filled. Also when the last varint ends with the last byte.
    Full,
    /// The bytes ended behind a varint.
    End,
    /// The bytes ended within a varint.
    Truncated,
    /// Ten bytes all have the continuation bit.
    Overlong,
}

/// The extent of one protobuf field.
///
/// ```text
///   | tag varint | length varint, only if length-delimited | value       |
///   |<------------------ header_bytes -------------------->|<value_bytes>|
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// 1..=[`MAX_FIELD_NUMBER`].
    pub number: u32,
    /// How the value is encoded.
    pub wire_type: WireType,
    /// Bytes before the value: 1..=20.
    pub header_bytes: u8,
    /// Bytes of the value: the varint's length, 4, 8, or the declared length.
    pub value_bytes: u64,
}

/// Why bytes do not begin with a whole protobuf field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldError {
    /// The bytes end inside the tag, the length or the value. Also when there are none.
    Truncated,
    /// A varint of more than ten bytes: tag, length or value.
    Overlong,
    /// Field number 0, or above [`MAX_FIELD_NUMBER`].
    Number,
    /// Wire type 3 or 4 (groups), 6 or 7.
    WireType,
}

/// What [`field_lengths`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldLengths {
    /// Fields written.
    pub fields: usize,
    /// Bytes that these fields took: where the next field begins.
    pub consumed_bytes: usize,
    /// `None` when the bytes ended behind a field or all places were filled.
    pub error: Option<FieldError>,
}

/// Decodes the varint at the start of `bytes`: its value and its length, 1 to 10 bytes.
///
/// This is the portable version for every level: asking which one to use would cost more than a better one saves.
///
/// # Errors
/// [`VarintError`] says what is wrong with the bytes.
#[inline]
pub fn varint(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    one::varint::<Word>(bytes)
}

/// Decodes consecutive varints into `values` until those are full, the bytes end, or a varint is malformed.
///
/// Places of `values` behind [`Varints::values`] may be overwritten with anything.
#[inline]
pub fn varints(bytes: &[u8], values: &mut [u64]) -> Varints {
    Kernels::chosen().varints(bytes, values)
}

/// The extent of the protobuf field at the start of `bytes`; the whole of it must be there. Portable, as [`varint`].
///
/// # Errors
/// [`FieldError`] says what is wrong, tested in the order of the bytes: tag, number, wire type, length, value.
#[inline]
pub fn field(bytes: &[u8]) -> Result<Field, FieldError> {
    one::field::<Word>(bytes)
}

/// The extents of consecutive protobuf fields, until `fields` are full, the bytes end, or a field is malformed.
#[inline]
pub fn field_lengths(bytes: &[u8], fields: &mut [Field]) -> FieldLengths {
    Kernels::chosen().field_lengths(bytes, fields)
}
