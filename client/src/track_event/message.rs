//! Fields of messages, into a packet that is composed in memory.

use super::prefix::Prefix;
use crate::writer::put_varint as put;

const FIXED64: u32 = 1;

/// Bytes of the longest number.
const NUMBER_BYTES_MAX: usize = 10;

/// A message that is composed before it is written: fields are short, and most packets are. They
/// are stored as words of eight bytes into memory that is there: a call of `memcpy` for two or
/// three bytes would cost more than all else of an event.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// Whole words. What is behind `len` has no meaning.
    bytes: Vec<u8>,
    len: usize,
}

/// A number as a varint, and how many bytes of the word that takes; `None`: more than it has.
#[inline]
pub(super) fn varint_word(value: u64) -> Option<(u64, usize)> {
    if value >= 1 << 56 {
        return None;
    }
    let len = (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize;
    // Groups of 28 bits move apart, then of 14, then of 7.
    let mut word = value & 0x0FFF_FFFF | (value & 0x00FF_FFFF_F000_0000) << 4;
    word = word & 0x0000_3FFF_0000_3FFF | (word & 0x0FFF_C000_0FFF_C000) << 2;
    word = word & 0x007F_007F_007F_007F | (word & 0x3F80_3F80_3F80_3F80) << 1;
    // All but the last byte say that another one follows.
    Some((word | 0x0080_8080_8080_8080 >> (8 * (size_of::<u64>() - len)), len))
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

    /// Empties it for a packet, which [`Message::packet`] gives.
    pub(super) fn begin_packet(&mut self) {
        self.len = 1;
    }

    /// The packet behind a byte for its size.
    #[inline]
    pub(super) fn packet(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
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
        self.number(Prefix::NONE.varint(field), value);
    }

    /// A field of type fixed64 or double.
    #[inline]
    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        let tag = Prefix::NONE.tag(field, FIXED64);
        self.word(tag.word, tag.len);
        self.word(value, size_of::<u64>());
    }

    /// A field of type string or bytes, or a message.
    #[inline]
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.number(Prefix::NONE.sized(field), value.len() as u64);
        self.append(value);
    }

    /// Begins a message inside of this one.
    #[inline(always)]
    pub(super) fn open(&mut self, field: u32) -> Open {
        let prefix = Prefix::NONE.open(field);
        self.word(prefix.word, prefix.len);
        Open(self.len)
    }

    /// Begins the message that `prefix` opens, whose first field has this value.
    #[inline(always)]
    pub(super) fn open_with(&mut self, prefix: Prefix, value: u64) -> Open {
        let open = Open(self.len + prefix.open_at);
        self.number(prefix, value);
        open
    }

    /// A number behind what stands in front of it. Numbers of names are small, sizes and times
    /// since the last event mostly are.
    #[inline(always)]
    pub(super) fn number(&mut self, prefix: Prefix, value: u64) {
        let (bytes, len) = match value {
            0..0x80 => (value, 1),
            0x80..0x4000 => (value & 0x7F | 0x80 | value >> 7 << 8, 2),
            _ => return self.long_number(prefix.word, prefix.len, value),
        };
        self.word(prefix.word | bytes << (8 * prefix.len), prefix.len + len);
    }

    #[inline(never)]
    fn long_number(&mut self, prefix: u64, prefix_len: usize, value: u64) {
        self.word(prefix, prefix_len);
        match varint_word(value) {
            Some((word, len)) => self.word(word, len),
            None => {
                self.reserve(NUMBER_BYTES_MAX);
                self.len += put(&mut self.bytes[self.len..], value);
            }
        }
    }

    /// Bytes that are the same each time.
    #[inline(always)]
    pub(super) fn constant(&mut self, prefix: Prefix) {
        self.word(prefix.word, prefix.len);
    }

    /// The first `len` bytes of a word, stored as a whole: what is behind them has no meaning.
    #[inline(always)]
    pub(super) fn word(&mut self, word: u64, len: usize) {
        match self.bytes.get_mut(self.len..).and_then(|place| place.first_chunk_mut()) {
            Some(place) => *place = word.to_le_bytes(),
            None => self.word_at_end(word),
        }
        self.len += len;
    }

    #[cold]
    fn word_at_end(&mut self, word: u64) {
        self.grow(size_of::<u64>());
        self.bytes[self.len..self.len + size_of::<u64>()].copy_from_slice(&word.to_le_bytes());
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

    /// Its bytes in words; of the last one some may have no meaning.
    #[cfg(feature = "tracing")]
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        let words = self.bytes[..self.len.next_multiple_of(size_of::<u64>())].as_chunks().0;
        words.iter().map(|&word| u64::from_le_bytes(word))
    }

    /// The first `len` bytes of words.
    #[cfg(feature = "tracing")]
    #[inline]
    pub(super) fn append_words(&mut self, len: usize, words: impl Iterator<Item = u64>) {
        self.reserve(len.next_multiple_of(size_of::<u64>()));
        let places = self.bytes[self.len..].as_chunks_mut().0;
        places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
        self.len += len;
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
        let mut bytes = [0; NUMBER_BYTES_MAX];
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
    fn a_number_is_a_varint_of_any_length() {
        for bits in 0..u64::BITS {
            for value in [(1 << bits) - 1, 1 << bits, (1 << bits) + 5] {
                let mut bytes = [0; NUMBER_BYTES_MAX];
                let len = put(&mut bytes, value);
                let mut message = Message::default();
                message.varint(1, value);
                assert_eq!(message.as_bytes()[1..], bytes[..len], "{value:#x}");
                let word = varint_word(value).map(|(word, len)| word.to_le_bytes()[..len].to_vec());
                assert_eq!(word, (value < 1 << 56).then(|| bytes[..len].to_vec()), "{value:#x}");
            }
        }
    }

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
