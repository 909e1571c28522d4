//! The fields of a protobuf message as they lie in its bytes, without a schema.
//!
//! Configs and packets pass through hands that know only some of their fields. What must survive is
//! handled here, as bytes:
//!
//! ```text
//!   message  =  field*
//!   field    =  key varint: number << 3 | wire type,  then by wire type
//!               0 varint        up to 10 bytes
//!               1 fixed64       8 bytes
//!               2 length        varint n, n bytes
//!               5 fixed32       4 bytes
//! ```
//!
//! Groups (wire types 3 and 4) are not part of the format and count as malformed.

use std::fmt;

use prost::encoding::{WireType, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len};

/// Longest value of a length-delimited field: 2^28 - 1 bytes (spec, service 5.13).
pub const FIELD_SIZE_BYTES_MAX: u64 = (1 << 28) - 1;

/// One field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// From 1 to 2^29 - 1.
    pub number: u32,
    /// Place of the field's key in the message.
    pub offset_bytes: usize,
    /// Key and value.
    pub bytes: &'a [u8],
    /// The value alone.
    pub value: Value<'a>,
}

/// The value of a field; what it means (signed, double, text, message) is the schema's to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Integers, booleans and enums.
    Varint(u64),
    /// `fixed64`, `sfixed64`, `double`.
    Fixed64(u64),
    /// Strings, bytes, messages and packed lists.
    LengthDelimited(&'a [u8]),
    /// `fixed32`, `sfixed32`, `float`.
    Fixed32(u32),
}

impl<'a> Value<'a> {
    /// The integer, if it is one.
    pub fn varint(self) -> Option<u64> {
        match self {
            Value::Varint(value) => Some(value),
            _ => None,
        }
    }

    /// The bytes, if it is a length-delimited value.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::LengthDelimited(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// Why bytes are not a message, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset_bytes}")]
pub struct Malformed {
    /// Place of the key of the field that cannot be read, in the message.
    pub offset_bytes: usize,
    /// What is wrong with it.
    pub kind: MalformedKind,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MalformedKind {
    /// A varint that ends with the message or is longer than 10 bytes.
    Varint,
    /// A field number of 0 or above 2^29 - 1.
    FieldNumber,
    /// A wire type other than 0, 1, 2 and 5.
    WireType(u8),
    /// A value of so many bytes in a message that ends before.
    OutOfBounds(u64),
    /// A value of so many bytes, more than [`FIELD_SIZE_BYTES_MAX`].
    TooLong(u64),
}

impl fmt::Display for MalformedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MalformedKind::Varint => write!(f, "a varint without an end"),
            MalformedKind::FieldNumber => write!(f, "a field number out of range"),
            MalformedKind::WireType(wire_type) => write!(f, "unknown wire type {wire_type}"),
            MalformedKind::OutOfBounds(size) => {
                write!(f, "a field of {size} bytes that ends after its message")
            }
            MalformedKind::TooLong(size) => {
                write!(f, "a field of {size} bytes, above the limit of {FIELD_SIZE_BYTES_MAX}")
            }
        }
    }
}

/// Iterates over the fields of a message, in their order; nothing comes after an error.
///
/// Never panics, whatever the bytes are, and does not look into values.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    message: &'a [u8],
    offset_bytes: usize,
}

impl<'a> Fields<'a> {
    /// Starts at the first field of `message`.
    pub fn new(message: &'a [u8]) -> Self {
        Fields { message, offset_bytes: 0 }
    }

    fn read(&self) -> Result<Field<'a>, MalformedKind> {
        let all = &self.message[self.offset_bytes..];
        let mut rest = all;
        let key = varint(&mut rest)?;
        let number = u32::try_from(key >> 3)
            .ok()
            .filter(|number| (1..1 << 29).contains(number))
            .ok_or(MalformedKind::FieldNumber)?;
        let value = match (key & 7) as u8 {
            0 => Value::Varint(varint(&mut rest)?),
            1 => Value::Fixed64(u64::from_le_bytes(array(&mut rest)?)),
            2 => {
                let size = varint(&mut rest)?;
                if size > FIELD_SIZE_BYTES_MAX {
                    return Err(MalformedKind::TooLong(size));
                }
                Value::LengthDelimited(take(&mut rest, size)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(array(&mut rest)?)),
            wire_type => return Err(MalformedKind::WireType(wire_type)),
        };
        Ok(Field { number, offset_bytes: self.offset_bytes, bytes: &all[..all.len() - rest.len()], value })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset_bytes == self.message.len() {
            return None;
        }
        let read = self.read().map_err(|kind| Malformed { offset_bytes: self.offset_bytes, kind });
        self.offset_bytes = match &read {
            Ok(field) => self.offset_bytes + field.bytes.len(),
            Err(_) => self.message.len(),
        };
        Some(read)
    }
}

impl std::iter::FusedIterator for Fields<'_> {}

fn varint(rest: &mut &[u8]) -> Result<u64, MalformedKind> {
    decode_varint(rest).map_err(|_| MalformedKind::Varint)
}

fn take<'a>(rest: &mut &'a [u8], size: u64) -> Result<&'a [u8], MalformedKind> {
    let (taken, left) = usize::try_from(size)
        .ok()
        .and_then(|size| rest.split_at_checked(size))
        .ok_or(MalformedKind::OutOfBounds(size))?;
    *rest = left;
    Ok(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], MalformedKind> {
    let (taken, left) = rest.split_first_chunk::<N>().ok_or(MalformedKind::OutOfBounds(N as u64))?;
    *rest = left;
    Ok(*taken)
}

/// Size of a length-delimited field with its key.
#[must_use]
pub fn delimited_len(number: u32, value_bytes: usize) -> usize {
    key_len(number) + encoded_len_varint(value_bytes as u64) + value_bytes
}

/// Rewrites some fields of a message and keeps all others, known or not, byte for byte and in their
/// order.
///
/// ```
/// # use watershed_wire::raw::{Fields, Rewrite};
/// let before = [0x0a, 1, b'x', 0x10, 7, 0x10, 8]; // 1: "x", 2: 7, 2: 8
/// let after = Rewrite::new().set_varint(2, 300).apply(&before)?;
/// assert_eq!(after, [0x0a, 1, b'x', 0x10, 0xac, 0x02]);
/// # Ok::<(), watershed_wire::raw::Malformed>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Rewrite {
    removed: Vec<u32>,
    appended: Vec<u8>,
}

impl Rewrite {
    /// Changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every occurrence of field `number` goes.
    pub fn remove(mut self, number: u32) -> Self {
        self.removed.push(number);
        self
    }

    /// Field `number` is this integer; earlier occurrences go.
    pub fn set_varint(mut self, number: u32, value: u64) -> Self {
        encode_key(number, WireType::Varint, &mut self.appended);
        encode_varint(value, &mut self.appended);
        self.remove(number)
    }

    /// Field `number` has these values, one field each; earlier occurrences go.
    pub fn set_each<'a>(mut self, number: u32, values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        for value in values {
            encode_key(number, WireType::LengthDelimited, &mut self.appended);
            encode_varint(value.len() as u64, &mut self.appended);
            self.appended.extend_from_slice(value);
        }
        self.remove(number)
    }

    /// The message with the changes made; what was set comes after all that was kept.
    ///
    /// # Errors
    /// If `message` is not a message, where and why.
    pub fn apply(&self, message: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::with_capacity(message.len() + self.appended.len());
        for field in Fields::new(message) {
            let field = field?;
            if !self.removed.contains(&field.number) {
                out.extend_from_slice(field.bytes);
            }
        }
        out.extend_from_slice(&self.appended);
        Ok(out)
    }
}
