//! Names that a trace has once for each sequence, by number.

use std::collections::HashMap;

use crate::sync::{AtomicU32, Mutex, Ordering, lock};

/// One kind of interned names. The numbers are the program's, from 1 on, the same in all sequences;
/// each sequence says what those stand for that it uses.
#[derive(Debug)]
pub(super) struct Names {
    numbers: Mutex<Option<HashMap<&'static str, u32>>>,
}

/// Names of events: `InternedData.event_names`.
pub(super) static EVENT_NAMES: Names = Names::new();
/// Names of categories: `InternedData.event_categories`.
pub(super) static CATEGORY_NAMES: Names = Names::new();
/// Names of arguments: `InternedData.debug_annotation_names`.
pub(super) static ARG_NAMES: Names = Names::new();

impl Names {
    const fn new() -> Self {
        Self { numbers: Mutex::new(None) }
    }

    /// The number of a name, which `place` keeps: 0 there until it is known.
    #[inline]
    pub(super) fn number(&self, name: &'static str, place: &AtomicU32) -> u32 {
        // Relaxed: the number is all there is to it.
        match place.load(Ordering::Relaxed) {
            0 => self.find(name, place),
            number => number,
        }
    }

    #[cold]
    fn find(&self, name: &'static str, place: &AtomicU32) -> u32 {
        let mut numbers = lock(&self.numbers);
        let numbers = numbers.get_or_insert_default();
        // Programs do not have four billion names.
        let next = numbers.len() as u32 + 1;
        let number = *numbers.entry(name).or_insert(next);
        place.store(number, Ordering::Relaxed);
        number
    }
}

/// The name of an event, as a static of the place that writes it: looked up once.
#[derive(Debug)]
pub struct EventName {
    text: &'static str,
    number: AtomicU32,
}

impl EventName {
    /// An event of that name.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        Self { text, number: AtomicU32::new(0) }
    }

    pub(super) fn text(&self) -> &'static str {
        self.text
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        EVENT_NAMES.number(self.text, &self.number)
    }
}

/// The name of an argument, as a static of the place that writes it: looked up once.
#[derive(Debug)]
pub struct ArgName {
    text: &'static str,
    number: AtomicU32,
}

impl ArgName {
    /// An argument of that name.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        Self { text, number: AtomicU32::new(0) }
    }

    /// One with a number of its own.
    #[cfg(all(test, feature = "tracing"))]
    pub(super) const fn numbered(number: u32) -> Self {
        Self { text: "numbered", number: AtomicU32::new(number) }
    }

    pub(super) fn text(&self) -> &'static str {
        self.text
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        ARG_NAMES.number(self.text, &self.number)
    }
}

/// Which numbers a sequence has already explained.
#[derive(Debug, Default)]
pub(super) struct Seen {
    words: Vec<u64>,
}

impl Seen {
    pub(super) fn clear(&mut self) {
        self.words.clear();
    }

    /// Adds a number. True: it was not there.
    #[inline]
    pub(super) fn is_new(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        match self.words.get(word) {
            Some(word) if word & bit != 0 => false,
            _ => self.add(word, bit),
        }
    }

    #[cold]
    fn add(&mut self, word: usize, bit: u64) -> bool {
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_of_two_places_have_one_number() {
        static NAMES: Names = Names::new();
        let places = [(); 3].map(|()| AtomicU32::new(0));
        let names = ["a", "b", "a"];
        let number = |index: usize| NAMES.number(names[index], &places[index]);
        assert_eq!([number(0), number(1), number(2), number(1)], [1, 2, 1, 2]);
    }

    #[test]
    fn a_number_is_new_once() {
        let mut seen = Seen::default();
        let mut is_new = |numbers: &[u32]| numbers.iter().map(|&n| seen.is_new(n)).collect::<Vec<_>>();
        assert_eq!(is_new(&[1, 1, 200, 63, 64, 200, 64]), [true, false, true, true, true, false, false]);
        seen.clear();
        assert!(seen.is_new(1) && seen.is_new(200));
    }
}
