//! Arguments that are kept in words which threads share, until their event is written.
//!
//! ```text
//!   all in front of a value, kind | number                      one word
//!                                 | text                        as many as it takes
//!   length, kind                  | others, encoded already     likewise
//! ```
//!
//! They are encoded, so that the event takes them word by word; but each part begins with a word of
//! its own, so that they need not be put together byte by byte. Names have the same numbers in all
//! sequences.

use super::annotation::{HEAD_BYTES_MAX, Tag, number_words, sized_head};
use super::encoded::EncodedArgs;
use super::message::{Tail, last_word};
use super::names::ArgName;
use crate::sync::{AtomicU64, Ordering};

const WORD_BYTES: usize = size_of::<u64>();

const _: () = assert!(HEAD_BYTES_MAX < WORD_BYTES, "the kind has the last byte");

/// What follows a head, and how long that is: the last byte of its word.
#[derive(Clone, Copy, Debug)]
struct Kind(u8);

impl Kind {
    /// Others, in as many bytes as the first byte says.
    const ENCODED: Self = Self(0);
    const SIZED: u8 = 0xF0;

    /// A number in so many bytes, 1 to 8.
    const fn number(head_bytes: usize, bytes: usize) -> Self {
        Self(head_bytes as u8 | (bytes as u8) << 4)
    }

    /// A text in as many bytes as the last one of the head says.
    const fn sized(head_bytes: usize) -> Self {
        Self(head_bytes as u8 | Self::SIZED)
    }

    const fn head_bytes(self) -> usize {
        (self.0 & 0xF) as usize
    }

    /// Of a number.
    const fn bytes(self) -> usize {
        (self.0 >> 4) as usize
    }

    const fn word(self, head: u64) -> u64 {
        head | (self.0 as u64) << (8 * (WORD_BYTES - 1))
    }

    const fn of(word: u64) -> Self {
        Self((word >> (8 * (WORD_BYTES - 1))) as u8)
    }
}

/// Keeps arguments. What does not fit is refused.
///
/// Stores are relaxed: whoever hands out the words publishes them.
#[derive(Debug)]
pub(crate) struct ArgStore<'a> {
    words: &'a [AtomicU64],
    used: usize,
    bytes: usize,
}

impl<'a> ArgStore<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words, used: 0, bytes: 0 }
    }

    /// How many words have a meaning, and how many bytes an event needs for them.
    pub(crate) fn used(&self) -> (usize, usize) {
        (self.used, self.bytes)
    }

    /// Those so far.
    pub(crate) fn args(&self) -> StoredArgs<'a> {
        StoredArgs::new(&self.words[..self.used], self.bytes)
    }

    /// Adds a number without a sign. False: it is refused.
    #[inline]
    pub(crate) fn unsigned(&mut self, name: &ArgName, value: u64) -> bool {
        self.number(name, Tag::UINT, value)
    }

    /// Likewise with a sign.
    #[inline]
    pub(crate) fn signed(&mut self, name: &ArgName, value: i64) -> bool {
        self.number(name, Tag::INT, value as u64)
    }

    /// Likewise a boolean.
    #[inline]
    pub(crate) fn boolean(&mut self, name: &ArgName, value: bool) -> bool {
        self.number(name, Tag::BOOL, value.into())
    }

    /// Likewise a floating point number.
    #[inline]
    pub(crate) fn double(&mut self, name: &ArgName, value: f64) -> bool {
        self.number(name, Tag::DOUBLE, value.to_bits())
    }

    /// Likewise a text.
    #[inline]
    pub(crate) fn text(&mut self, name: &ArgName, text: &str) -> bool {
        let bytes = text.as_bytes();
        let Some((head, head_bytes)) = sized_head(name.number(), Tag::STRING, bytes.len()) else {
            return false;
        };
        let Some(places) = self.begin(Kind::sized(head_bytes).word(head), bytes.len()) else { return false };
        let (words, rest) = bytes.as_chunks();
        for (place, word) in places.iter().zip(words) {
            place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        if let Some(place) = places.get(words.len()) {
            place.store(last_word(bytes, rest), Ordering::Relaxed);
        }
        self.bytes += head_bytes + bytes.len();
        true
    }

    /// Likewise what is encoded.
    pub(crate) fn encoded(&mut self, args: &EncodedArgs) -> bool {
        let bytes = args.size_bytes();
        let Some(places) = self.begin(Kind::ENCODED.word(bytes as u64), bytes) else { return false };
        places.iter().zip(args.words()).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        self.bytes += bytes;
        true
    }

    #[inline]
    fn number(&mut self, name: &ArgName, tag: Tag, value: u64) -> bool {
        let Some([(head, head_bytes), (value, bytes)]) = number_words(name.number(), tag, value) else {
            return false;
        };
        let Some([head_place, place]) = self.words.get(self.used..).and_then(|words| words.first_chunk())
        else {
            return false;
        };
        head_place.store(Kind::number(head_bytes, bytes).word(head), Ordering::Relaxed);
        place.store(value, Ordering::Relaxed);
        self.used += 2;
        self.bytes += head_bytes + bytes;
        true
    }

    /// Begins one with so many bytes behind its head, if there is room for all of it.
    #[inline]
    fn begin(&mut self, head: u64, bytes: usize) -> Option<&'a [AtomicU64]> {
        let words = self.words.get(self.used..self.used + 1 + bytes.div_ceil(WORD_BYTES))?;
        let (head_place, places) = words.split_first()?;
        // It is less than a place has.
        u8::try_from(bytes).ok()?;
        head_place.store(head, Ordering::Relaxed);
        self.used += words.len();
        Some(places)
    }
}

/// Arguments that are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredArgs<'a> {
    words: &'a [AtomicU64],
    bytes: usize,
}

impl<'a> StoredArgs<'a> {
    pub(super) const NONE: Self = Self { words: &[], bytes: 0 };

    /// What has used these words, and how many bytes an event needs for it.
    pub(crate) fn new(words: &'a [AtomicU64], bytes: usize) -> Self {
        Self { words, bytes }
    }

    #[inline]
    pub(super) fn size_bytes(self) -> usize {
        self.bytes
    }

    /// Writes them into an event.
    #[inline]
    pub(super) fn put(self, event: &mut Tail<'_>) {
        let mut words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        while let Some(head) = words.next() {
            let kind = Kind::of(head);
            let head_bytes = kind.head_bytes();
            let bytes = if kind.0 == Kind::ENCODED.0 {
                head as u8
            } else {
                event.word(head, head_bytes);
                if kind.0 & Kind::SIZED != Kind::SIZED {
                    event.word(words.next().unwrap_or_default(), kind.bytes());
                    continue;
                }
                (head >> (8 * (head_bytes - 1))) as u8
            };
            event.append_words(bytes.into(), words.by_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Message;
    use super::*;

    /// As [`EncodedArgs`] has them, with names of all lengths and values of all sizes.
    #[test]
    fn stored_is_as_encoded() {
        const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
        for name in [1, 0x7F, 0x80, 0x3FFF, 0x4000] {
            for len in 0..60 {
                let text = &ALPHABET.repeat(2)[..len];
                let number = 1_u64.checked_shl(len as u32 + 4).unwrap_or(u64::MAX).wrapping_sub(1);
                let (of, float) = (&ArgName::numbered(name), number as f64 / 3.0);
                let words = [const { AtomicU64::new(u64::MAX) }; 40];
                let (mut store, mut encoded) = (ArgStore::new(&words), EncodedArgs::new());
                // What a word has no room for is refused, and encoded instead.
                let mut all_of = |arg: &dyn Fn(&mut EncodedArgs), is_stored: bool, fits: bool| {
                    assert_eq!(is_stored, fits, "{name} {len}");
                    if is_stored {
                        arg(&mut encoded);
                    }
                };
                let has_short_number = name < 0x4000;
                let fits = has_short_number && number < 1 << 56;
                all_of(&|args| args.arg(of, number), store.unsigned(of, number), fits);
                all_of(&|args| args.arg(of, text), store.text(of, text), has_short_number);
                all_of(&|args| args.arg(of, number as i64), store.signed(of, number as i64), fits);
                let is_even = len % 2 == 0;
                all_of(&|args| args.arg(of, is_even), store.boolean(of, is_even), has_short_number);
                let mut alone = EncodedArgs::new();
                alone.arg(of, float);
                match len % 3 {
                    0 => all_of(&|args| args.arg(of, float), store.encoded(&alone), true),
                    _ => all_of(&|args| args.arg(of, float), store.double(of, float), has_short_number),
                }
                let mut event = Message::default();
                let mut tail = event.tail();
                store.args().put(&mut tail);
                tail.end();
                let expected: Vec<u8> = encoded.words().flat_map(u64::to_le_bytes).collect();
                assert_eq!(event.as_bytes(), &expected[..encoded.size_bytes()], "{name} {len}");
                assert_eq!(store.args().size_bytes(), encoded.size_bytes());
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        static NAME: ArgName = ArgName::numbered(1);
        let words = [const { AtomicU64::new(0) }; 5];
        let mut store = ArgStore::new(&words);
        assert!(!store.text(&NAME, "more than four words of eight bytes") && store.used() == (0, 0));
        assert!(store.text(&NAME, "nine bytes") && store.used().0 == 3);
        assert!(!store.text(&NAME, "nine bytes") && store.signed(&NAME, 1));
        assert!(!store.unsigned(&NAME, 1) && !store.text(&NAME, "") && store.used().0 == 5);
        let words = [const { AtomicU64::new(0) }; 80];
        let mut store = ArgStore::new(&words);
        assert!(!store.text(&NAME, &"long ".repeat(30)), "the argument's size has one byte");
        let mut encoded = EncodedArgs::new();
        encoded.arg(&NAME, "long ".repeat(60).as_str());
        assert!(!store.encoded(&encoded) && store.used() == (0, 0), "nor has that of others two");
        assert!(!store.signed(&NAME, -1), "ten bytes are more than a word");
    }
}
