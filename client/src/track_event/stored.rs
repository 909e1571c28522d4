//! Arguments that are kept in words which threads share, until their event is written.
//!
//! ```text
//!   head: name, tag, length | number          one word
//!                           | text            the length in words
//!                           | encoded already likewise
//! ```
//!
//! Encoded they would be smaller, but would have to be put together and taken apart byte by byte.

use super::args::{BOOL_VALUE, DOUBLE_VALUE, INT_VALUE, STRING_VALUE, UINT_VALUE};
use super::encoded::EncodedArgs;
use super::event::DEBUG_ANNOTATIONS;
use super::message::{Message, varint_word};
use super::names::ArgName;
use super::prefix::Prefix;
use crate::sync::{AtomicU64, Ordering};

const WORD_BYTES: usize = size_of::<u64>();

// Types of fields, in the tags of values.
const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const SIZED: u8 = 2;

/// Instead of a tag: it is encoded already, with all of its names.
const ENCODED: u8 = 0;

const fn tag(field: u32, wire_type: u8) -> u8 {
    let prefix = Prefix::NONE.tag(field, wire_type as u32);
    assert!(prefix.len == 1, "a tag of one byte");
    prefix.word as u8
}

/// What stands in front of a value.
#[derive(Clone, Copy, Debug)]
struct Head {
    tag: u8,
    /// Of a text, or of what is encoded.
    len: u8,
    name: u32,
}

impl Head {
    fn word(self) -> u64 {
        u64::from(self.name) << 32 | u64::from(self.len) << 8 | u64::from(self.tag)
    }

    fn of(word: u64) -> Self {
        Self { tag: word as u8, len: (word >> 8) as u8, name: (word >> 32) as u32 }
    }
}

/// Keeps arguments, whose names it has by their index. What does not fit is refused.
///
/// Stores are relaxed: whoever hands out the words publishes them.
#[derive(Debug)]
pub(crate) struct ArgStore<'a> {
    words: &'a [AtomicU64],
    used: usize,
}

impl<'a> ArgStore<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words, used: 0 }
    }

    /// How many words have a meaning.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Adds a number without a sign. False: it is refused.
    #[inline]
    pub(crate) fn unsigned(&mut self, name: usize, value: u64) -> bool {
        self.number(name, const { tag(UINT_VALUE, VARINT) }, value)
    }

    /// Likewise with a sign.
    #[inline]
    pub(crate) fn signed(&mut self, name: usize, value: i64) -> bool {
        self.number(name, const { tag(INT_VALUE, VARINT) }, value as u64)
    }

    /// Likewise a boolean.
    #[inline]
    pub(crate) fn boolean(&mut self, name: usize, value: bool) -> bool {
        self.number(name, const { tag(BOOL_VALUE, VARINT) }, value.into())
    }

    /// Likewise a floating point number.
    #[inline]
    pub(crate) fn double(&mut self, name: usize, value: f64) -> bool {
        self.number(name, const { tag(DOUBLE_VALUE, FIXED64) }, value.to_bits())
    }

    /// Likewise a text.
    #[inline]
    pub(crate) fn text(&mut self, name: usize, text: &str) -> bool {
        let bytes = text.as_bytes();
        let Some(places) = self.begin(name, const { tag(STRING_VALUE, SIZED) }, bytes.len()) else {
            return false;
        };
        let (words, rest) = bytes.as_chunks();
        let all = words.iter().map(|&word| u64::from_le_bytes(word));
        // The last one is read as a whole, with bytes that are there already.
        let last = match bytes.last_chunk() {
            Some(&last) if !rest.is_empty() => u64::from_le_bytes(last) >> (8 * (WORD_BYTES - rest.len())),
            _ => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        let all = all.chain(std::iter::once(last));
        places.iter().zip(all).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        true
    }

    /// Likewise what is encoded.
    pub(crate) fn encoded(&mut self, args: &EncodedArgs) -> bool {
        let Some(places) = self.begin(0, ENCODED, args.size_bytes()) else { return false };
        places.iter().zip(args.words()).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        true
    }

    #[inline]
    fn number(&mut self, name: usize, tag: u8, value: u64) -> bool {
        let Some([head, number]) = self.words.get(self.used..).and_then(|words| words.first_chunk()) else {
            return false;
        };
        head.store(Head { tag, len: 0, name: name as u32 }.word(), Ordering::Relaxed);
        number.store(value, Ordering::Relaxed);
        self.used += 2;
        true
    }

    /// Begins one of so many bytes, if there is room for all of it.
    #[inline]
    fn begin(&mut self, name: usize, tag: u8, len: usize) -> Option<&'a [AtomicU64]> {
        let words = self.words.get(self.used..self.used + 1 + len.div_ceil(WORD_BYTES))?;
        let (head, places) = words.split_first()?;
        let head_word = Head { tag, len: u8::try_from(len).ok()?, name: name as u32 };
        head.store(head_word.word(), Ordering::Relaxed);
        self.used += words.len();
        Some(places)
    }
}

/// Arguments that are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredArgs<'a>(&'a [AtomicU64]);

impl<'a> StoredArgs<'a> {
    /// What has used these words.
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Self(words)
    }

    /// Writes them into an event.
    #[inline]
    pub(super) fn put(self, names: &[ArgName], event: &mut Message) {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let mut words = self.0;
        while let Some((head, behind)) = words.split_first() {
            let head = Head::of(load(head));
            let (now, later) = behind.split_at(head.words().min(behind.len()));
            words = later;
            let values = now.iter().map(load);
            match (names.get(head.name as usize), now) {
                (_, _) if head.tag == ENCODED => event.append_words(head.len.into(), values),
                (Some(name), [value]) if head.len == 0 => {
                    put_number(event, name.number(), head.tag, load(value))
                }
                (Some(name), _) => put_text(event, name.number(), head, values),
                (None, _) => {}
            }
        }
    }
}

impl Head {
    /// Behind it.
    #[inline]
    fn words(self) -> usize {
        let is_number = self.tag & 7 != SIZED && self.tag != ENCODED;
        if is_number { 1 } else { usize::from(self.len).div_ceil(WORD_BYTES) }
    }
}

/// An argument with its name, behind the byte for its size.
const ARG: Prefix = Prefix::NONE.open(DEBUG_ANNOTATIONS).varint(1);

/// All in front of a value, whose tag is one byte, and whose length with all in front of it is
/// known: it takes at most eight bytes. `None`: it takes more.
#[inline(always)]
fn head(name: u32, tag: u8, value_bytes: usize) -> Option<(u64, usize)> {
    let (name, name_bytes) = match u64::from(name) {
        name @ 0..0x80 => (name, 1),
        name @ 0x80..0x4000 => (name & 0x7F | 0x80 | name >> 7 << 8, 2),
        _ => return None,
    };
    let len = ARG.len + name_bytes + 1;
    let size = (len - ARG.open_at + value_bytes) as u64;
    let (size, tag) = (size << (8 * (ARG.open_at - 1)), u64::from(tag) << (8 * (len - 1)));
    (size < 0x80 << (8 * (ARG.open_at - 1))).then_some((ARG.word | size | name << (8 * ARG.len) | tag, len))
}

#[inline]
fn put_number(event: &mut Message, name: u32, tag: u8, value: u64) {
    let value_word = if tag & 7 == FIXED64 { Some((value, WORD_BYTES)) } else { varint_word(value) };
    if let Some((value, len)) = value_word
        && let Some((head, head_len)) = head(name, tag, len)
    {
        event.word(head, head_len);
        event.word(value, len);
    } else {
        put_slowly(event, name, |event| match tag & 7 {
            FIXED64 => event.fixed64(u32::from(tag >> 3), value),
            _ => event.varint(u32::from(tag >> 3), value),
        });
    }
}

#[inline]
fn put_text(event: &mut Message, name: u32, Head { tag, len, .. }: Head, words: impl Iterator<Item = u64>) {
    let size = usize::from(len);
    match head(name, tag, 1 + size) {
        Some((head, head_len)) if head_len < WORD_BYTES => {
            event.word(head | u64::from(len) << (8 * head_len), head_len + 1);
            event.append_words(size, words);
        }
        _ => put_slowly(event, name, |event| {
            event.number(Prefix::NONE.sized(u32::from(tag >> 3)), len.into());
            event.append_words(size, words);
        }),
    }
}

#[cold]
fn put_slowly(event: &mut Message, name: u32, value: impl FnOnce(&mut Message)) {
    let open = event.open_with(ARG, name.into());
    value(event);
    event.close(open);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<ArgName> {
        (0..20_000).map(|name| ArgName::new(String::leak(format!("stored {name}")))).collect()
    }

    /// As [`EncodedArgs`] has them, with names of all lengths and values of all sizes.
    #[test]
    fn stored_is_as_encoded() {
        const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
        let names = names();
        for name in [0, 1, 130, 19_999] {
            for len in 0..60 {
                // Names get their numbers in the order of use.
                names.iter().for_each(|name| _ = name.number());
                let text = &ALPHABET.repeat(2)[..len];
                let number = 1_u64.checked_shl(len as u32 + 4).unwrap_or(u64::MAX).wrapping_sub(1);
                let (of, float) = (&names[name], number as f64 / 3.0);
                let mut encoded = EncodedArgs::new();
                encoded.arg(of, number);
                encoded.arg(of, text);
                encoded.arg(of, number as i64);
                encoded.arg(of, len % 2 == 0);
                encoded.arg(of, float);
                let words = [const { AtomicU64::new(u64::MAX) }; 40];
                let mut store = ArgStore::new(&words);
                let mut alone = EncodedArgs::new();
                alone.arg(of, float);
                assert!(store.unsigned(name, number) && store.text(name, text));
                assert!(store.signed(name, number as i64) && store.boolean(name, len % 2 == 0));
                assert!(if len % 3 == 0 { store.encoded(&alone) } else { store.double(name, float) });
                let mut event = Message::default();
                StoredArgs::new(&words[..store.used()]).put(&names, &mut event);
                let expected: Vec<u8> = encoded.words().flat_map(u64::to_le_bytes).collect();
                assert_eq!(event.as_bytes(), &expected[..encoded.size_bytes()], "{name} {len}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let words = [const { AtomicU64::new(0) }; 5];
        let mut store = ArgStore::new(&words);
        assert!(!store.text(0, "more than four words of eight bytes") && store.used() == 0);
        assert!(store.text(0, "nine bytes") && store.used() == 3);
        assert!(!store.text(0, "nine bytes") && store.signed(0, -1));
        assert!(!store.unsigned(0, 1) && !store.text(0, "") && store.used() == 5);
        let words = [const { AtomicU64::new(0) }; 80];
        assert!(!ArgStore::new(&words).text(0, &"long ".repeat(60)), "its length has one byte");
    }
}
