//! A packet on its way through a program: what stays is copied in as few pieces as there are gaps.
//!
//! ```text
//!   packet   | field | field | left out | size | field | left out | field |
//!   out      | field   field |            size'  field              field |
//!            one copy                     ^ set right behind the message, which became shorter
//! ```
//!
//! A packet of which everything stays, as most are, is looked through and copied once.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use watershed_wire::raw::FIELD_SIZE_BYTES_MAX;

use super::program::{FieldRule, Program};
use super::strings::Strings;
use super::{DEPTH_MAX, Unreadable, put_padded_varint};

/// A packet, or a part of one that is a message by itself.
pub(super) struct Passage<'a> {
    program: &'a Program,
    strings: &'a Strings,
    packet: &'a [u8],
    out: &'a mut Vec<u8>,
    /// What lies before it in the packet has been copied or left out.
    done: usize,
    /// How much shorter that is in `out`.
    saved: usize,
}

/// Where a field lies.
struct Place {
    begin: usize,
    number: u32,
    wire_type: WireType,
    /// Where the value begins, behind its size if it has one.
    value: usize,
    /// The integer, or the size.
    varint: u64,
    end: usize,
    /// Its varints are as short as they can be.
    is_minimal: bool,
}

impl<'a> Passage<'a> {
    /// Appends what of `packet` the message with the index `root` lets through.
    pub(super) fn copy(
        program: &'a Program,
        strings: &'a Strings,
        packet: &'a [u8],
        root: usize,
        out: &'a mut Vec<u8>,
    ) -> Result<(), Unreadable> {
        let mut passage = Passage { program, strings, packet, out, done: 0, saved: 0 };
        passage.message(root, 0, packet.len(), 0)?;
        passage.take(packet.len());
        Ok(())
    }

    fn message(&mut self, index: usize, begin: usize, end: usize, depth: usize) -> Result<(), Unreadable> {
        let (program, packet) = (self.program, &self.packet[..end]);
        let mut at = begin;
        while at < end {
            let place = Place::read(packet, at)?;
            at = place.end;
            match (program.rule(index, place.number), place.wire_type) {
                (Some(FieldRule::Nested(nested)), WireType::LengthDelimited) => {
                    self.nested(nested, &place, depth)?;
                }
                (Some(FieldRule::String(semantic_type)), WireType::LengthDelimited) => {
                    self.write_head_anew(&place);
                    self.take(place.end);
                    let begin = self.out.len() - (place.end - place.value);
                    self.strings.redact(&mut self.out[begin..], semantic_type);
                }
                (Some(FieldRule::Simple), _) => self.write_head_anew(&place),
                // Also a number where the program expects a message or a string.
                _ => self.leave_out(&place),
            }
        }
        Ok(())
    }

    fn nested(&mut self, nested: usize, place: &Place, depth: usize) -> Result<(), Unreadable> {
        if depth == DEPTH_MAX {
            return Err(Unreadable);
        }
        self.write_head_anew(place);
        let width = encoded_len_varint(place.varint);
        // Some of what is before it may wait to be copied.
        let size_at = self.out.len() + place.value - self.done - width;
        let saved = self.saved;
        self.message(nested, place.value, place.end, depth + 1)?;
        let shorter = self.saved - saved;
        if shorter > 0 {
            put_padded_varint(&mut self.out[size_at..][..width], place.varint as usize - shorter);
        }
        Ok(())
    }

    /// Copies what has not been taken or left out so far, up to `end`.
    fn take(&mut self, end: usize) {
        self.out.extend_from_slice(&self.packet[self.done..end]);
        self.done = end;
    }

    fn leave_out(&mut self, place: &Place) {
        self.take(place.begin);
        self.done = place.end;
        self.saved += place.end - place.begin;
    }

    /// Key, and size or integer, in their shortest form, if they are not yet.
    #[inline]
    fn write_head_anew(&mut self, place: &Place) {
        if !place.is_minimal {
            self.shorten(place);
        }
    }

    #[cold]
    fn shorten(&mut self, place: &Place) {
        self.take(place.begin);
        let begin = self.out.len();
        encode_key(place.number, place.wire_type, self.out);
        if matches!(place.wire_type, WireType::Varint | WireType::LengthDelimited) {
            encode_varint(place.varint, self.out);
        }
        self.done = if place.wire_type == WireType::Varint { place.end } else { place.value };
        self.saved += self.done - place.begin - (self.out.len() - begin);
    }
}

impl Place {
    /// The field at this place of a message that ends with `message`.
    #[inline]
    fn read(message: &[u8], begin: usize) -> Result<Place, Unreadable> {
        let key = Varint::read(message, begin)?;
        let number = u32::try_from(key.value >> 3).map_err(|_| Unreadable)?;
        if number == 0 || number >= 1 << 29 {
            return Err(Unreadable);
        }
        let (wire_type, value, size, rest) = match key.value & 7 {
            0 => (WireType::Varint, key.end, 0, Varint::read(message, key.end)?),
            1 => (WireType::SixtyFourBit, key.end, 8, key),
            2 => {
                let size = Varint::read(message, key.end)?;
                if size.value > FIELD_SIZE_BYTES_MAX {
                    return Err(Unreadable);
                }
                (WireType::LengthDelimited, size.end, size.value as usize, size)
            }
            5 => (WireType::ThirtyTwoBit, key.end, 4, key),
            _ => return Err(Unreadable),
        };
        let end = rest.end + size;
        if end > message.len() {
            return Err(Unreadable);
        }
        let is_minimal = key.is_minimal && rest.is_minimal;
        Ok(Place { begin, number, wire_type, value, varint: rest.value, end, is_minimal })
    }
}

/// A varint of a message, and where it ends.
#[derive(Clone, Copy)]
struct Varint {
    value: u64,
    end: usize,
    is_minimal: bool,
}

impl Varint {
    #[inline]
    fn read(message: &[u8], begin: usize) -> Result<Varint, Unreadable> {
        match message.get(begin) {
            Some(&byte) if byte < 0x80 => {
                Ok(Varint { value: u64::from(byte), end: begin + 1, is_minimal: true })
            }
            Some(_) => Varint::read_long(message, begin),
            None => Err(Unreadable),
        }
    }

    fn read_long(message: &[u8], begin: usize) -> Result<Varint, Unreadable> {
        const BYTES_MAX: usize = 10;
        let mut value = 0;
        for (index, &byte) in message[begin..].iter().take(BYTES_MAX).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                // Of the last possible byte one bit is left.
                let fits = index + 1 < BYTES_MAX || byte <= 1;
                let varint = Varint { value, end: begin + index + 1, is_minimal: byte != 0 };
                return fits.then_some(varint).ok_or(Unreadable);
            }
        }
        Err(Unreadable)
    }
}
