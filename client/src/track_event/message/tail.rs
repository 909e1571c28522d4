//! The end of a message, to which words are added, and bytes as words.

use super::{LONG, Message, Open, SHORT_BYTES};
use crate::track_event::prefix::Prefix;

/// The end of a message to which words are added. Its length is in a register meanwhile: each word
/// would have to wait for the length that the one before it has stored.
#[must_use = "it has to be ended"]
pub(in crate::track_event) struct Tail<'a> {
    message: &'a mut Message,
    len: usize,
}

impl<'a> Tail<'a> {
    #[inline(always)]
    pub(super) fn of(message: &'a mut Message) -> Self {
        Self { len: message.len, message }
    }

    /// Now the message has what was added.
    #[inline(always)]
    pub(in crate::track_event) fn end(self) {
        self.message.len = self.len;
    }

    /// As [`Message::word`].
    #[inline(always)]
    pub(in crate::track_event) fn word(&mut self, word: u64, len: usize) {
        let at = self.len;
        if at < SHORT_BYTES {
            self.message.store(at, word);
            self.len = at + len;
        } else {
            self.by_message(|message| message.long_word(word, len));
        }
    }

    /// As [`Message::append`].
    #[inline(always)]
    pub(in crate::track_event) fn append(&mut self, value: &[u8]) {
        let mut at = self.len;
        if at >= SHORT_BYTES || value.len() >= SHORT_BYTES - at {
            return self.by_message(|message| message.append_long(value));
        }
        let (words, rest) = value.as_chunks();
        for &word in words {
            self.message.store(at, u64::from_le_bytes(word));
            at += size_of::<u64>();
        }
        if !rest.is_empty() {
            self.message.store(at, last_word(value, rest));
        }
        self.len = at + rest.len();
    }

    /// The first `len` bytes of words.
    #[cfg(feature = "tracing")]
    #[inline(always)]
    pub(in crate::track_event) fn append_words(&mut self, len: usize, mut words: impl Iterator<Item = u64>) {
        let start = self.len;
        if start >= SHORT_BYTES || len >= SHORT_BYTES - start {
            return self.by_message(|message| message.append_long_words(len, words));
        }
        let mut at = start;
        self.len = start + len;
        while at < self.len
            && let Some(word) = words.next()
        {
            self.message.store(at, word);
            at += size_of::<u64>();
        }
    }

    /// What is done rarely, by the message itself.
    #[inline(always)]
    pub(in crate::track_event) fn by_message(&mut self, add: impl FnOnce(&mut Message)) {
        self.message.len = self.len;
        add(self.message);
        self.len = self.message.len;
    }

    /// As [`Message::number`]. Numbers of names are small, sizes and times since the last event
    /// mostly are.
    #[inline(always)]
    pub(in crate::track_event) fn number(&mut self, prefix: Prefix, value: u64) {
        let (bytes, len) = match value {
            0..0x80 => (value, 1),
            0x80..0x4000 => (value & 0x7F | 0x80 | value >> 7 << 8, 2),
            _ => return self.by_message(|message| message.long_number(prefix, value)),
        };
        self.word(prefix.word | bytes << (8 * prefix.len), prefix.len + len);
    }

    /// As [`Message::open_constant`].
    #[inline(always)]
    pub(in crate::track_event) fn open_constant(&mut self, prefix: Prefix) -> Open {
        let start = if self.len == LONG { self.message.long.len() } else { self.len };
        self.word(prefix.word, prefix.len);
        Open(start + prefix.open_at)
    }
}

/// Bytes in words; behind those of the last one are zeros.
#[cfg(feature = "tracing")]
pub(super) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = bytes.as_chunks();
    let last = (!rest.is_empty()).then(|| last_word(bytes, rest));
    words.iter().map(|&word| u64::from_le_bytes(word)).chain(last)
}

/// The bytes behind whole words, as a word: it is read as a whole, with bytes that are there
/// already.
#[inline]
pub(in crate::track_event) fn last_word(bytes: &[u8], rest: &[u8]) -> u64 {
    match bytes.last_chunk() {
        Some(&last) => u64::from_le_bytes(last) >> (8 * (size_of::<u64>() - rest.len())),
        None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}
