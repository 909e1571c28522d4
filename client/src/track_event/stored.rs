//! Arguments that are kept in words which threads share, until their event is written.
//!
//! ```text
//!   head: name, tag, length | number          one word
//!                           | text            the length in words
//!                           | encoded already likewise
//! ```
//!
//! Encoded they would be smaller, but would have to be put together and taken apart byte by byte.

use super::annotation::{Tag, put_number, put_sized};
use super::encoded::EncodedArgs;
use super::message::{Tail, last_word};
use super::names::ArgName;
use crate::sync::{AtomicU64, Ordering};

const WORD_BYTES: usize = size_of::<u64>();

/// Instead of a tag: it is encoded already, with all of its names.
const ENCODED: Tag = Tag(0);

/// What stands in front of a value.
#[derive(Clone, Copy, Debug)]
struct Head {
    tag: Tag,
    /// Of a text, or of what is encoded.
    len: u8,
    name: u32,
}

impl Head {
    fn word(self) -> u64 {
        u64::from(self.name) << 32 | u64::from(self.len) << 8 | u64::from(self.tag.0)
    }

    fn of(word: u64) -> Self {
        Self { tag: Tag(word as u8), len: (word >> 8) as u8, name: (word >> 32) as u32 }
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
        self.number(name, Tag::UINT, value)
    }

    /// Likewise with a sign.
    #[inline]
    pub(crate) fn signed(&mut self, name: usize, value: i64) -> bool {
        self.number(name, Tag::INT, value as u64)
    }

    /// Likewise a boolean.
    #[inline]
    pub(crate) fn boolean(&mut self, name: usize, value: bool) -> bool {
        self.number(name, Tag::BOOL, value.into())
    }

    /// Likewise a floating point number.
    #[inline]
    pub(crate) fn double(&mut self, name: usize, value: f64) -> bool {
        self.number(name, Tag::DOUBLE, value.to_bits())
    }

    /// Likewise a text.
    #[inline]
    pub(crate) fn text(&mut self, name: usize, text: &str) -> bool {
        let bytes = text.as_bytes();
        let Some(places) = self.begin(name, Tag::STRING, bytes.len()) else {
            return false;
        };
        let (words, rest) = bytes.as_chunks();
        for (place, word) in places.iter().zip(words) {
            place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        if let Some(place) = places.get(words.len()) {
            place.store(last_word(bytes, rest), Ordering::Relaxed);
        }
        true
    }

    /// Likewise what is encoded.
    pub(crate) fn encoded(&mut self, args: &EncodedArgs) -> bool {
        let Some(places) = self.begin(0, ENCODED, args.size_bytes()) else { return false };
        places.iter().zip(args.words()).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        true
    }

    #[inline]
    fn number(&mut self, name: usize, tag: Tag, value: u64) -> bool {
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
    fn begin(&mut self, name: usize, tag: Tag, len: usize) -> Option<&'a [AtomicU64]> {
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
    pub(super) fn put(self, names: &[ArgName], event: &mut Tail<'_>) {
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let mut words = self.0;
        while let Some((head, behind)) = words.split_first() {
            let head = Head::of(load(head));
            let (now, later) = behind.split_at(head.words().min(behind.len()));
            words = later;
            let put = |event: &mut Tail<'_>| event.append_words(head.len.into(), now.iter().map(load));
            match (names.get(head.name as usize), now) {
                (_, _) if head.tag == ENCODED => put(event),
                (Some(name), [value]) if head.len == 0 => {
                    put_number(event, name.number(), head.tag, load(value));
                }
                (Some(name), _) => put_sized(event, name.number(), head.tag, head.len.into(), put),
                (None, _) => {}
            }
        }
    }
}

impl Head {
    /// Behind it.
    #[inline]
    fn words(self) -> usize {
        let is_number = !self.tag.is_sized() && self.tag != ENCODED;
        if is_number { 1 } else { usize::from(self.len).div_ceil(WORD_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Message;
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
                let mut tail = event.tail();
                StoredArgs::new(&words[..store.used()]).put(&names, &mut tail);
                tail.end();
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
