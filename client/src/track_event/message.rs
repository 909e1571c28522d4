//! Fields of messages, into a packet that is composed in memory.
//!
//! ```text
//!   short   256 bytes, whole words stored at any byte    and the same words in the packet's slot
//!     |  no room, or a size of two bytes
//!     v
//!   long    any number of bytes
//! ```
//!
//! Fields are short, and most packets are: a call of `memcpy` for two or three bytes would cost
//! more than all else of an event. A short packet that is in its slot has not to be copied: the
//! processor would wait for words that were stored just before and overlap.

mod tail;

pub(super) use tail::Tail;
#[cfg(feature = "tracing")]
pub(super) use tail::last_word;
#[cfg(feature = "tracing")]
use tail::words;
use watershed_smb::Slot;

use super::prefix::Prefix;
use crate::writer::put_varint as put;

/// Bytes of the longest number.
const NUMBER_BYTES_MAX: usize = 10;

/// A short message ends before, or in a word that begins before.
const SHORT_BYTES: usize = 256;
/// As the length of the short one: it is a long one.
const LONG: usize = usize::MAX;

/// A message that is composed before it is written.
#[derive(Debug)]
pub(super) struct Message {
    short: [u8; SHORT_BYTES + size_of::<u64>() - 1],
    /// Bytes of `short` that have a meaning, or [`LONG`].
    len: usize,
    /// All of a long one.
    long: Vec<u8>,
    /// Has what is short, too.
    slot: Slot,
}

/// A number as a varint, and how many bytes of the word that takes; `None`: more than it has.
#[inline]
pub(super) fn varint_word(value: u64) -> Option<(u64, usize)> {
    if value >= 1 << 56 {
        return None;
    }
    // A seventh of the bits, rounded up: exact for those of a word.
    let len = ((u64::BITS - (value | 1).leading_zeros()) as usize * 9 + 64) / 64;
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

impl Default for Message {
    fn default() -> Self {
        Self::new()
    }
}

impl Message {
    pub(super) const fn new() -> Self {
        let short = [0; SHORT_BYTES + size_of::<u64>() - 1];
        Self { short, len: 0, long: Vec::new(), slot: Slot::none() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        if self.len == LONG { self.long.len() } else { self.len }
    }

    /// Takes back all behind so many bytes.
    #[inline]
    pub(super) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len());
        if self.len == LONG { self.long.truncate(len) } else { self.len = len }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Empties it for a packet, which [`Message::packet`] gives.
    #[inline]
    pub(super) fn begin_packet(&mut self) {
        self.len = 1;
        self.slot.leave();
    }

    /// Where the packet is composed, too.
    #[inline]
    pub(super) fn slot(&mut self) -> &mut Slot {
        &mut self.slot
    }

    /// The packet behind a byte for its size.
    #[inline]
    pub(super) fn packet(&mut self) -> &mut [u8] {
        let Self { short, len, long, .. } = self;
        short.get_mut(..*len).unwrap_or(long)
    }

    /// The slot and how long the packet is, with the byte for its size, if it is there as a whole.
    #[inline]
    pub(super) fn in_slot(&mut self) -> Option<(&mut Slot, usize)> {
        (self.slot.is_some() && self.len < SHORT_BYTES).then_some((&mut self.slot, self.len))
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.short.get(..self.len).unwrap_or(&self.long)
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
        let tag = Prefix::NONE.fixed64(field);
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
        self.open_constant(Prefix::NONE.open(field))
    }

    /// Begins the message that `prefix` opens.
    #[inline(always)]
    pub(super) fn open_constant(&mut self, prefix: Prefix) -> Open {
        let mut tail = self.tail();
        let open = tail.open_constant(prefix);
        tail.end();
        open
    }

    /// A number behind what stands in front of it.
    #[inline(always)]
    pub(super) fn number(&mut self, prefix: Prefix, value: u64) {
        let mut tail = self.tail();
        tail.number(prefix, value);
        tail.end();
    }

    /// A number of any length.
    #[inline(never)]
    fn long_number(&mut self, prefix: Prefix, value: u64) {
        self.constant(prefix);
        match varint_word(value) {
            Some((word, len)) => self.word(word, len),
            None => {
                let mut bytes = [0; NUMBER_BYTES_MAX];
                let len = put(&mut bytes, value);
                self.append(&bytes[..len]);
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
        let mut tail = self.tail();
        tail.word(word, len);
        tail.end();
    }

    #[inline(always)]
    pub(super) fn tail(&mut self) -> Tail<'_> {
        Tail::of(self)
    }

    #[inline(always)]
    fn store(&mut self, at: usize, word: u64) {
        if let Some(place) = self.short.get_mut(at..at + size_of::<u64>()) {
            place.copy_from_slice(&word.to_le_bytes());
            self.slot.put(at as u8, word);
        }
    }

    #[cold]
    fn long_word(&mut self, word: u64, len: usize) {
        self.long().extend_from_slice(&word.to_le_bytes()[..len]);
    }

    /// It is a long message from now on.
    fn long(&mut self) -> &mut Vec<u8> {
        if self.len != LONG {
            self.long.clear();
            self.long.extend_from_slice(&self.short[..self.len]);
            self.len = LONG;
        }
        &mut self.long
    }

    /// Ends it. Those that were opened after it must be closed.
    #[inline]
    pub(super) fn close(&mut self, Open(start): Open) {
        let size = self.len.wrapping_sub(start);
        // Most are so short that the size has one byte.
        match self.short.get_mut(start - 1) {
            Some(place) if size < 0x80 => {
                *place = size as u8;
                self.slot.put_byte((start - 1) as u8, size as u8);
            }
            _ => self.close_long(start),
        }
    }

    #[cold]
    fn close_long(&mut self, start: usize) {
        let size = self.len() - start;
        let mut bytes = [0; NUMBER_BYTES_MAX];
        let size_bytes = put(&mut bytes, size as u64);
        self.long().splice(start - 1..start, bytes[..size_bytes].iter().copied());
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
        let mut tail = self.tail();
        tail.append(value);
        tail.end();
    }

    #[cold]
    fn append_long(&mut self, value: &[u8]) {
        self.long().extend_from_slice(value);
    }

    #[cfg(feature = "tracing")]
    #[cold]
    fn append_long_words(&mut self, len: usize, words: impl Iterator<Item = u64>) {
        let long = self.long();
        let end = long.len() + len;
        words.for_each(|word| long.extend_from_slice(&word.to_le_bytes()));
        long.truncate(end);
    }

    /// Its bytes in words; of the last one some may have no meaning.
    #[cfg(feature = "tracing")]
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        words(self.as_bytes())
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
