//! Fields of messages, into a packet that is composed in memory.

use crate::writer::put_varint;

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;

/// Bytes of a message that is composed before it is written: fields are short, and most packets
/// are.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A field of an integer type, bool or enum.
    #[inline]
    pub(super) fn varint(&mut self, field: u32, value: u64) {
        let mut bytes = [0; 20];
        let tag = put_varint(&mut bytes, u64::from(field << 3 | VARINT));
        let end = tag + put_varint(&mut bytes[tag..], value);
        self.0.extend_from_slice(&bytes[..end]);
    }

    /// A field of type fixed64 or double.
    #[inline]
    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A field of type string or bytes, or a message.
    #[inline]
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        let mut bytes = [0; 20];
        let tag = put_varint(&mut bytes, u64::from(field << 3 | LENGTH_DELIMITED));
        let end = tag + put_varint(&mut bytes[tag..], value.len() as u64);
        self.0.extend_from_slice(&bytes[..end]);
        self.0.extend_from_slice(value);
    }

    /// A message inside of this one.
    #[inline]
    pub(super) fn nested<R>(&mut self, field: u32, fill: impl FnOnce(&mut Self) -> R) -> R {
        self.tag(field, LENGTH_DELIMITED);
        let at = self.0.len();
        // Most are so short that the size has one byte.
        self.0.push(0);
        let result = fill(self);
        let size = self.0.len() - at - 1;
        if size < 0x80 {
            self.0[at] = size as u8;
        } else {
            self.make_room(at, size);
        }
        result
    }

    /// Text that is formatted in its place.
    pub(super) fn text(&mut self, field: u32, text: std::fmt::Arguments<'_>) {
        // A `Display` that fails leaves what it wrote: half a text is better than none.
        let _ = self.nested(field, |message| std::io::Write::write_fmt(&mut message.0, text));
    }

    #[cold]
    fn make_room(&mut self, at: usize, size: usize) {
        let mut bytes = [0; 10];
        let len = put_varint(&mut bytes, size as u64);
        self.0.splice(at..=at, bytes[..len].iter().copied());
    }

    #[inline]
    fn tag(&mut self, field: u32, wire_type: u32) {
        let mut bytes = [0; 10];
        let len = put_varint(&mut bytes, u64::from(field << 3 | wire_type));
        self.0.extend_from_slice(&bytes[..len]);
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
