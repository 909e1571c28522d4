//! A packet, filtered by a program: what stays is copied in as few pieces as there are gaps.
//!
//! ```text
//!   packet   | field | field | left out | size | field | left out | field |
//!   out      | field   field |            size'  field              field |
//!            one copy                     ^ set right behind the message, which became shorter
//! ```
//!
//! A packet of which everything stays, as most are, is only looked through.

use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};
use watershed_wire::raw::FIELD_SIZE_BYTES_MAX;

use super::program::{FastRule, FieldRule, MessageRules, Program};
use super::strings::Strings;
use super::{DEPTH_MAX, Kept, Unreadable, put_padded_varint};

/// A packet, or a part of one that is a message by itself.
pub(super) struct Copier<'a> {
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
#[derive(Clone, Copy)]
struct Place {
    begin: usize,
    number: u32,
    /// As keys have it.
    wire_type: u32,
    /// Where the value begins, behind its size if it has one.
    value: usize,
    end: usize,
    /// Its varints are as short as they can be.
    is_minimal: bool,
}

const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const DELIMITED: u32 = 2;
const FIXED_32: u32 = 5;

impl<'a> Copier<'a> {
    /// Appends what of `packet` the message with the index `root` lets through, nothing if it is
    /// all.
    pub(super) fn copy(
        program: &'a Program,
        strings: &'a Strings,
        packet: &'a [u8],
        root: usize,
        out: &'a mut Vec<u8>,
    ) -> Result<Kept, Unreadable> {
        let mut copier = Copier { program, strings, packet, out, done: 0, saved: 0 };
        copier.message(root, 0, packet.len(), 0)?;
        if copier.done == 0 {
            return Ok(Kept::Whole);
        }
        copier.take(packet.len());
        Ok(Kept::Part)
    }

    fn message(&mut self, index: usize, begin: usize, end: usize, depth: usize) -> Result<(), Unreadable> {
        let (rules, packet) = (self.program.message(index), &self.packet[..end]);
        let mut at = begin;
        while let Some(&key) = packet.get(at) {
            let fast_rule = rules.fast_rule(key);
            let after = match fast_rule {
                // Looked for in the whole packet: eight bytes may reach beyond the message.
                FastRule::Varint => end_of_minimal_varint(self.packet, at + 1),
                FastRule::Fixed64 => Some(at + 9),
                FastRule::Fixed32 => Some(at + 5),
                FastRule::Delimited | FastRule::Nested => end_of_short(packet, at + 1),
                FastRule::No => None,
            };
            at = match after.filter(|after| *after <= end) {
                Some(after) => {
                    if fast_rule == FastRule::Nested {
                        self.nested(rules.nested_by_key(key), at + 2, after, depth)?;
                    }
                    after
                }
                None => self.any_field(rules, packet, at, depth)?,
            };
        }
        Ok(())
    }

    /// A field of any kind. Returns where it ends. Not inlined, so that the other way stays short.
    #[inline(never)]
    fn any_field(
        &mut self,
        rules: &MessageRules,
        message: &[u8],
        at: usize,
        depth: usize,
    ) -> Result<usize, Unreadable> {
        let place = Place::read(message, at).ok_or(Unreadable)?;
        match rules.rule(place.number) {
            Some(FieldRule::Simple) => self.write_head_anew(place),
            Some(FieldRule::Nested(nested)) if place.wire_type == DELIMITED => {
                self.write_head_anew(place);
                self.nested(nested as usize, place.value, place.end, depth)?;
            }
            Some(FieldRule::String(semantic_type)) if place.wire_type == DELIMITED => {
                self.write_head_anew(place);
                self.take(place.end);
                let begin = self.out.len() - (place.end - place.value);
                self.strings.redact(&mut self.out[begin..], semantic_type);
            }
            // Also a number where the program expects a message or a string.
            _ => self.leave_out(place),
        }
        Ok(place.end)
    }

    /// A message whose size is in its shortest form.
    fn nested(&mut self, nested: usize, value: usize, end: usize, depth: usize) -> Result<(), Unreadable> {
        if depth == DEPTH_MAX {
            return Err(Unreadable);
        }
        let (saved, done, copied) = (self.saved, self.done, self.out.len());
        self.message(nested, value, end, depth + 1)?;
        let shorter = self.saved - saved;
        if shorter > 0 {
            let width = encoded_len_varint((end - value) as u64);
            // What was before it may have waited to be copied.
            let size_at = copied + value - done - width;
            put_padded_varint(&mut self.out[size_at..][..width], end - value - shorter);
        }
        Ok(())
    }

    /// Copies what has not been taken or left out so far, up to `end`.
    fn take(&mut self, end: usize) {
        self.out.extend_from_slice(&self.packet[self.done..end]);
        self.done = end;
    }

    fn leave_out(&mut self, place: Place) {
        self.take(place.begin);
        self.done = place.end;
        self.saved += place.end - place.begin;
    }

    /// Key, and size or integer, in their shortest form, if they are not yet.
    #[inline]
    fn write_head_anew(&mut self, place: Place) {
        if !place.is_minimal {
            self.shorten(place);
        }
    }

    #[cold]
    fn shorten(&mut self, place: Place) {
        self.take(place.begin);
        let begin = self.out.len();
        encode_varint(u64::from(place.number << 3 | place.wire_type), self.out);
        self.done = place.value;
        if place.wire_type == DELIMITED {
            encode_varint((place.end - place.value) as u64, self.out);
        } else if place.wire_type == VARINT {
            let value = decode_varint(&mut &self.packet[place.value..place.end]);
            encode_varint(value.expect("it has been read"), self.out);
            self.done = place.end;
        }
        self.saved += self.done - place.begin - (self.out.len() - begin);
    }
}

impl Place {
    /// The field at this place of a message that ends with `message`; `None` if there is none.
    fn read(message: &[u8], begin: usize) -> Option<Place> {
        let (key, value, mut is_minimal) = varint(message, begin)?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number))?;
        let wire_type = (key & 7) as u32;
        let (value, end) = match wire_type {
            VARINT => {
                let (_, end, value_is_minimal) = varint(message, value)?;
                is_minimal &= value_is_minimal;
                (value, end)
            }
            FIXED_64 => (value, value + 8),
            DELIMITED => {
                let (size, value, size_is_minimal) = varint(message, value)?;
                is_minimal &= size_is_minimal;
                (value, value + usize::try_from(size).ok().filter(|_| size <= FIELD_SIZE_BYTES_MAX)?)
            }
            FIXED_32 => (value, value + 4),
            _ => return None,
        };
        (end <= message.len()).then_some(Place { begin, number, wire_type, value, end, is_minimal })
    }
}

/// A varint of a message, where it ends, and whether it is as short as it can be.
fn varint(message: &[u8], begin: usize) -> Option<(u64, usize, bool)> {
    let mut rest = message.get(begin..)?;
    let value = decode_varint(&mut rest).ok()?;
    let end = message.len() - rest.len();
    Some((value, end, end == begin + 1 || message[end - 1] != 0))
}

/// Where a varint ends, if it is as short as it can be and easily found: that of a timestamp or
/// another large number among eight bytes at once.
#[inline]
fn end_of_minimal_varint(message: &[u8], begin: usize) -> Option<usize> {
    if *message.get(begin)? < 0x80 {
        return Some(begin + 1);
    }
    let eight = eight_bytes(message, begin)?;
    let ends = !eight & 0x8080_8080_8080_8080;
    if ends == 0 {
        return end_of_longest_varint(message, begin + 8);
    }
    let last = ends.trailing_zeros() / 8;
    (eight >> (8 * last) & 0x7f != 0).then_some(begin + last as usize + 1)
}

/// Eight bytes of a message, the first one lowest; 0 for those behind its end. `None` if it is
/// shorter than that.
#[inline]
fn eight_bytes(message: &[u8], begin: usize) -> Option<u64> {
    let at = begin.min(message.len().checked_sub(8)?);
    let bytes = message.get(at..)?.first_chunk()?;
    u64::from_le_bytes(*bytes).checked_shr(8 * (begin - at) as u32)
}

/// Where one ends of which eight bytes have been: a random number, such as that of a track. Of its
/// tenth byte one bit is left.
#[inline]
fn end_of_longest_varint(message: &[u8], ninth: usize) -> Option<usize> {
    match message.get(ninth..)? {
        [1..0x80, ..] => Some(ninth + 1),
        [0x80..=0xff, 1, ..] => Some(ninth + 2),
        _ => None,
    }
}

/// Where a value of less than 128 bytes ends, whose size is at `begin`.
#[inline]
fn end_of_short(message: &[u8], begin: usize) -> Option<usize> {
    let size = *message.get(begin)?;
    (size < 0x80).then_some(begin + 1 + usize::from(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_ends_where_it_does_however_near_the_end_of_the_packet() {
        for bits in 0..64 {
            let mut varint = Vec::new();
            encode_varint(1 << bits, &mut varint);
            for (before, behind) in (0..20).flat_map(|before| (0..10).map(move |behind| (before, behind))) {
                for filler in [0, 0x7f, 0xff] {
                    let packet = [&vec![filler; before][..], &varint, &vec![filler; behind]].concat();
                    let end = before + varint.len();
                    let found = end_of_minimal_varint(&packet, before);
                    let is_found = packet.len() >= 8 || varint.len() == 1;
                    assert_eq!(found, is_found.then_some(end), "2^{bits}, {before} before, {behind} behind");
                    // Cut off, or longer than it has to be.
                    let (last, head) = packet[..end].split_last().expect("it has a byte");
                    assert_eq!(end_of_minimal_varint(head, before), None);
                    let longer = [head, &[last | 0x80, 0], &packet[end..]].concat();
                    assert_eq!(end_of_minimal_varint(&longer, before), None);
                }
            }
        }
    }
}
