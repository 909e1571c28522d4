//! Arguments as an event has them: `DebugAnnotation`, with its name as a number.
//!
//! ```text
//!   tag, size | tag, name | tag of the value | number, or length and text
//!   \____________________________________/     \________________________/
//!    at most eight bytes, one word              whole words
//! ```
//!
//! The size of nearly every argument is known before it is written, so that nothing is filled in
//! afterwards.

use super::event::DEBUG_ANNOTATIONS;
use super::message::{Message, Tail, varint_word};
use super::prefix::Prefix;

const BOOL_VALUE: u32 = 2;
const UINT_VALUE: u32 = 3;
const INT_VALUE: u32 = 4;
const DOUBLE_VALUE: u32 = 5;
const STRING_VALUE: u32 = 6;

// Types of fields, in the tags of values.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const SIZED: u8 = 2;

/// The tag of a value, which is one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u8);

impl Tag {
    pub(super) const BOOL: Self = Self::of(BOOL_VALUE, VARINT);
    pub(super) const UINT: Self = Self::of(UINT_VALUE, VARINT);
    pub(super) const INT: Self = Self::of(INT_VALUE, VARINT);
    pub(super) const DOUBLE: Self = Self::of(DOUBLE_VALUE, FIXED64);
    pub(super) const STRING: Self = Self::of(STRING_VALUE, SIZED);

    const fn of(field: u32, wire_type: u8) -> Self {
        let prefix = Prefix::NONE.tag(field, wire_type as u32);
        assert!(prefix.len == 1, "a tag of one byte");
        Self(prefix.word as u8)
    }

    pub(super) const fn field(self) -> u32 {
        (self.0 >> 3) as u32
    }

    const fn is_fixed64(self) -> bool {
        self.0 & 7 == FIXED64
    }
}

/// An argument with its name, behind the byte for its size.
const ARG: Prefix = Prefix::NONE.open(DEBUG_ANNOTATIONS).varint(1);

/// The most bytes in front of a value: a name has at most two.
pub(super) const HEAD_BYTES_MAX: usize = ARG.len + 4;

/// All in front of a value of so many bytes, and how long it is. `None`: it does not fit a word, or
/// the size of the argument takes more than a byte.
#[inline(always)]
fn head(name: u32, tag: Tag, value_bytes: usize) -> Option<(u64, usize)> {
    let (name, name_bytes) = match u64::from(name) {
        name @ 0..0x80 => (name, 1),
        name @ 0x80..0x4000 => (name & 0x7F | 0x80 | name >> 7 << 8, 2),
        _ => return None,
    };
    let len = ARG.len + name_bytes + 1;
    let size = len - ARG.open_at + value_bytes;
    let word = (size as u64) << (8 * (ARG.open_at - 1)) | u64::from(tag.0) << (8 * (len - 1));
    (size < 0x80).then_some((ARG.word | name << (8 * ARG.len) | word, len))
}

/// All in front of a number, and the number, each with its length. `None` as for [`head`].
#[inline(always)]
pub(super) fn number_words(name: u32, tag: Tag, value: u64) -> Option<[(u64, usize); 2]> {
    let value = if tag.is_fixed64() { (value, size_of::<u64>()) } else { varint_word(value)? };
    Some([head(name, tag, value.1)?, value])
}

/// All in front of a text of so many bytes: its length is the last byte. `None` as for [`head`].
#[inline(always)]
pub(super) fn sized_head(name: u32, tag: Tag, size: usize) -> Option<(u64, usize)> {
    let (head, len) = head(name, tag, 1 + size)?;
    (len < HEAD_BYTES_MAX).then_some((head | (size as u64) << (8 * len), len + 1))
}

/// Adds one with a number.
#[inline(always)]
pub(super) fn put_number(event: &mut Tail<'_>, name: u32, tag: Tag, value: u64) {
    if let Some(words) = number_words(name, tag, value) {
        words.into_iter().for_each(|(word, len)| event.word(word, len));
    } else {
        event.by_message(|event| put_any(event, name, |arg| put_value(arg, tag, value)));
    }
}

/// Adds a number to an argument that has been begun.
pub(super) fn put_value(arg: &mut Message, tag: Tag, value: u64) {
    match tag.is_fixed64() {
        true => arg.fixed64(tag.field(), value),
        false => arg.number(Prefix::NONE.varint(tag.field()), value),
    }
}

/// Adds one with a text of so many bytes, which `put` appends.
#[inline(always)]
pub(super) fn put_sized(event: &mut Tail<'_>, name: u32, tag: Tag, size: usize, put: impl Fn(&mut Tail<'_>)) {
    match sized_head(name, tag, size) {
        Some((head, len)) => {
            event.word(head, len);
            put(event);
        }
        None => event.by_message(|event| {
            put_any(event, name, |arg| {
                let mut tail = arg.tail();
                tail.number(Prefix::NONE.sized(tag.field()), size as u64);
                put(&mut tail);
                tail.end();
            });
        }),
    }
}

/// Adds one whose value `put` writes, of any size.
#[inline(never)]
pub(super) fn put_any(event: &mut Message, name: u32, put: impl FnOnce(&mut Message)) {
    event.nested(DEBUG_ANNOTATIONS, |arg| {
        arg.varint(1, name.into());
        put(arg);
    });
}
