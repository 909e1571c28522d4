//! Fields of messages, into a packet that is composed in memory.

use crate::writer::put_varint as put;

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;

/// Room for a tag and a number, each at its longest.
const FIELD_BYTES_MAX: usize = 20;

/// Fields are constants where they are written: the tag is stored as such.
#[inline(always)]
fn put_tag(place: &mut [u8; FIELD_BYTES_MAX], tag: u32) -> usize {
    match tag {
        0..0x80 => {
            place[0] = tag as u8;
            1
        }
        0x80..0x4000 => {
            place[..2].copy_from_slice(&[tag as u8 | 0x80, (tag >> 7) as u8]);
            2
        }
        _ => put(place, tag.into()),
    }
}

/// Numbers of names are small, sizes and times since the last event mostly are. Longer ones are not
/// inlined: the compiler would prepare all ten bytes of each value before it is known to be needed.
#[inline(always)]
fn put_short(place: &mut [u8], value: u64) -> usize {
    match value {
        0..0x80 => {
            place[0] = value as u8;
            1
        }
        0x80..0x4000 => {
            place[..2].copy_from_slice(&[value as u8 | 0x80, (value >> 7) as u8]);
            2
        }
        _ => put_long(place, value),
    }
}

#[inline(never)]
fn put_long(place: &mut [u8], value: u64) -> usize {
    put(place, value)
}

/// A message that is composed before it is written: fields are short, and most packets are. Bytes
/// are stored one by one into memory that is there: a call of `memcpy` for two or three bytes would
/// cost more than all else of an event.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// What is behind `len` has no meaning.
    bytes: Vec<u8>,
    len: usize,
}

/// Where the size of a message that is open belongs.
#[derive(Clone, Copy, Debug)]
#[must_use = "the message has to be closed"]
pub(super) struct Open(usize);

impl Message {
    #[cfg(feature = "tracing")]
    pub(super) const fn new() -> Self {
        Self { bytes: Vec::new(), len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A field of an integer type, bool or enum.
    #[inline(always)]
    pub(super) fn varint(&mut self, field: u32, value: u64) {
        let place = self.place();
        let tag = put_tag(place, field << 3 | VARINT);
        self.len += tag + put_short(&mut place[tag..], value);
    }

    /// A field of type fixed64 or double.
    #[inline]
    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        let place = self.place();
        let tag = put_tag(place, field << 3 | FIXED64);
        place[tag..tag + 8].copy_from_slice(&value.to_le_bytes());
        self.len += tag + 8;
    }

    /// A field of type string or bytes, or a message.
    #[inline]
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        let place = self.place();
        let tag = put_tag(place, field << 3 | LENGTH_DELIMITED);
        self.len += tag + put_short(&mut place[tag..], value.len() as u64);
        self.append(value);
    }

    /// Begins a message inside of this one.
    #[inline(always)]
    pub(super) fn open(&mut self, field: u32) -> Open {
        let place = self.place();
        let tag = put_tag(place, field << 3 | LENGTH_DELIMITED);
        self.len += tag + 1;
        Open(self.len)
    }

    /// Ends it. Those that were opened after it must be closed.
    #[inline]
    pub(super) fn close(&mut self, Open(start): Open) {
        let size = self.len - start;
        // Most are so short that the size has one byte.
        match u8::try_from(size) {
            Ok(size) if size < 0x80 => self.bytes[start - 1] = size,
            _ => self.make_room(start, size),
        }
    }

    /// A message inside of this one.
    pub(super) fn nested<R>(&mut self, field: u32, fill: impl FnOnce(&mut Self) -> R) -> R {
        let open = self.open(field);
        let result = fill(self);
        self.close(open);
        result
    }

    /// Text that is formatted in its place.
    pub(super) fn text(&mut self, field: u32, text: std::fmt::Arguments<'_>) {
        // A `Display` that fails leaves what it wrote: half a text is better than none.
        let _ = self.nested(field, |message| std::fmt::Write::write_fmt(message, text));
    }

    /// Bytes as they are: text, or fields that are encoded already.
    #[inline]
    pub(super) fn append(&mut self, value: &[u8]) {
        self.reserve(value.len());
        self.bytes[self.len..self.len + value.len()].copy_from_slice(value);
        self.len += value.len();
    }

    /// Room for one field behind what is written.
    #[inline(always)]
    fn place(&mut self) -> &mut [u8; FIELD_BYTES_MAX] {
        self.reserve(FIELD_BYTES_MAX);
        self.bytes[self.len..].first_chunk_mut().expect("room was made")
    }

    #[inline]
    fn reserve(&mut self, more_bytes: usize) {
        if self.bytes.len() - self.len < more_bytes {
            self.grow(more_bytes);
        }
    }

    #[cold]
    fn grow(&mut self, more_bytes: usize) {
        self.bytes.resize((self.len + more_bytes).next_power_of_two().max(512), 0);
    }

    /// The size takes more than the one byte that was left for it.
    #[cold]
    fn make_room(&mut self, start: usize, size: usize) {
        let mut bytes = [0; FIELD_BYTES_MAX];
        let more_bytes = put(&mut bytes, size as u64) - 1;
        self.reserve(more_bytes);
        self.bytes.copy_within(start..self.len, start + more_bytes);
        self.bytes[start - 1..start + more_bytes].copy_from_slice(&bytes[..=more_bytes]);
        self.len += more_bytes;
    }
}

impl std::fmt::Write for Message {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.append(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use watershed_wire::raw::Fields;

    use super::*;

    #[test]
    fn messages_of_any_size_nest() {
        for size in [0, 1, 126, 127, 128, 129, 20_000] {
            let mut message = Message::default();
            message.nested(4, |inner| {
                inner.nested(5, |innermost| innermost.bytes(6, &vec![7; size]));
                inner.text(300, format_args!("{size:05}"));
            });
            message.fixed64(7, 1);
            let field = |bytes: &[u8], number: u32| {
                let fields: Vec<_> = Fields::new(bytes).map(Result::unwrap).collect();
                let field = fields.iter().find(|field| field.number == number);
                field.unwrap().value.bytes().unwrap().to_vec()
            };
            let inner = field(message.as_bytes(), 4);
            assert_eq!(field(&field(&inner, 5), 6), vec![7; size]);
            assert_eq!(field(&inner, 300), format!("{size:05}").into_bytes());
        }
    }
}
