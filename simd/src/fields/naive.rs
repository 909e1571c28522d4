//! The oracle: one byte at a time over the slices. Also the plain loop of the measurements.

use super::{MAX_FIELD_NUMBER, MAX_VARINT_BYTES, Rules, Scan, Violation, ViolationKind, WireType};

/// Same contract as [`super::scan`].
pub fn scan(slices: &[&[u8]], rules: &Rules) -> Result<Scan, Violation> {
    let mut cursor = Cursor::new(slices);
    let mut fields = 0;
    while !cursor.at_end() {
        field(&mut cursor, rules)?;
        fields += 1;
    }
    Ok(Scan { fields, bytes: cursor.offset_bytes })
}

/// Reads one field at the cursor, which is not at the end.
pub(super) fn field(cursor: &mut Cursor<'_>, rules: &Rules) -> Result<(), Violation> {
    let offset_bytes = cursor.offset_bytes;
    let bad = |kind, number| Violation { kind, offset_bytes, number };
    let tag = cursor.varint().map_err(|kind| bad(kind, None))?;
    if tag >> 3 == 0 || tag >> 3 > u64::from(MAX_FIELD_NUMBER) {
        return Err(bad(ViolationKind::Number, None));
    }
    let number = (tag >> 3) as u32;
    let bad = |kind| bad(kind, Some(number));
    let class = rules.class(number);
    if class == 0 {
        return Err(bad(ViolationKind::Reserved));
    }
    let wire_type = WireType::of_tag(tag).ok_or(bad(ViolationKind::WireType))?;
    if class & 1 << wire_type as u8 == 0 {
        return Err(bad(ViolationKind::WireType));
    }
    let value_bytes = match wire_type {
        WireType::Varint => {
            cursor.varint().map_err(bad)?;
            0
        }
        WireType::Fixed64 => 8,
        WireType::Fixed32 => 4,
        WireType::LengthDelimited => {
            let length = cursor.varint().map_err(bad)?;
            if length > rules.max_length_bytes {
                return Err(bad(ViolationKind::Length));
            }
            length
        }
    };
    if cursor.skip(value_bytes) { Ok(()) } else { Err(bad(ViolationKind::EndInsideField)) }
}

/// A position in a list of slices. Invariant: `current` is empty only at the packet's end.
pub(super) struct Cursor<'a> {
    current: &'a [u8],
    rest: &'a [&'a [u8]],
    pub(super) offset_bytes: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(slices: &'a [&'a [u8]]) -> Cursor<'a> {
        let mut cursor = Cursor { current: &[], rest: slices, offset_bytes: 0 };
        cursor.settle();
        cursor
    }

    pub(super) fn at_end(&self) -> bool {
        self.current.is_empty()
    }

    /// The rest of the current slice.
    pub(super) fn current(&self) -> &'a [u8] {
        self.current
    }

    /// Moves on by `bytes`, at most the rest of this slice.
    pub(super) fn skip_here(&mut self, bytes: usize) {
        self.current = &self.current[bytes..];
        self.offset_bytes += bytes;
        self.settle();
    }

    /// Moves past empty slices.
    fn settle(&mut self) {
        while self.current.is_empty() {
            let Some((next, rest)) = self.rest.split_first() else { return };
            self.current = next;
            self.rest = rest;
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.current.split_first()?;
        self.current = rest;
        self.offset_bytes += 1;
        self.settle();
        Some(byte)
    }

    fn varint(&mut self) -> Result<u64, ViolationKind> {
        let mut value = 0;
        for i in 0..MAX_VARINT_BYTES {
            let byte = self.byte().ok_or(ViolationKind::EndInsideField)?;
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ViolationKind::OverlongVarint)
    }

    /// Moves on by `bytes`; false if the packet has fewer.
    fn skip(&mut self, mut bytes: u64) -> bool {
        while bytes > self.current.len() as u64 {
            bytes -= self.current.len() as u64;
            self.offset_bytes += self.current.len();
            self.current = &[];
            self.settle();
            if self.current.is_empty() {
                return false;
            }
        }
        self.current = &self.current[bytes as usize..];
        self.offset_bytes += bytes as usize;
        self.settle();
        true
    }
}
