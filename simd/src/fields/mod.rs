//! The scan of a packet's top-level protobuf fields: is it well-formed, and without reserved
//! fields?
//!
//! The packet may be cut into slices at any byte, also within a tag or a length; nothing is copied.
//! A length-delimited value is skipped, so nested messages are not checked.

pub mod naive;
mod rules;
pub(crate) mod scan;

use crate::Kernels;

pub use rules::{Rules, WireType};

/// The longest varint: ten groups of seven bits hold 64 bits.
pub const MAX_VARINT_BYTES: usize = 10;

/// The highest field number of protobuf, 2^29 - 1. The lowest is 1.
pub const MAX_FIELD_NUMBER: u32 = (1 << 29) - 1;

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ViolationKind {
    /// A tag, a length or a value varint of more than ten bytes.
    OverlongVarint,
    /// Field number 0, or above 2^29 - 1. No parser of protobuf accepts these.
    Number,
    /// A field number that the rules reserve.
    Reserved,
    /// Wire type 3, 4 (groups), 6 or 7, or not the one that the rules expect for this number.
    WireType,
    /// A length-delimited field of more than [`Rules::max_length_bytes`].
    Length,
    /// The packet ends inside the tag, the length or the value.
    EndInsideField,
}

/// The first violation in a packet. Within a field the kinds are tested in the order of
/// [`ViolationKind`], except for the value: an end within a varint comes before its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// What is wrong.
    pub kind: ViolationKind,
    /// Where the tag of the bad field begins, counted over all slices.
    pub offset_bytes: usize,
    /// The field's number; `None` where its tag could not be read or is no number of protobuf.
    pub number: Option<u32>,
}

/// What a clean packet holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scan {
    /// Top-level fields, repeated ones counted each time.
    pub fields: usize,
    /// Bytes over all slices.
    pub bytes: usize,
}

/// Scans one packet, given as its slices in order. No slices, or empty ones, are an empty packet,
/// which is clean.
///
/// # Errors
/// The first [`Violation`].
#[inline]
pub fn scan(slices: &[&[u8]], rules: &Rules) -> Result<Scan, Violation> {
    Kernels::chosen().scan(slices, rules)
}
