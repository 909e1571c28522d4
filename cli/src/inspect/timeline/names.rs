//! Names, each kept once.

use std::collections::HashMap;

use super::{NAME_SIZE_BYTES_MAX, TRACKS_MAX};

/// Number of a text; the default is the empty one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Text(u32);

impl Text {
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[derive(Debug, Default)]
pub(super) struct Texts {
    numbers: HashMap<Box<str>, Text>,
    /// By number, the first of which is 1.
    texts: Vec<Box<str>>,
}

impl Texts {
    /// Long ones are cut; beyond the limit all are the last one.
    pub(super) fn number(&mut self, text: &str) -> Text {
        let text = &text[..text.floor_char_boundary(NAME_SIZE_BYTES_MAX)];
        if text.is_empty() {
            return Text::default();
        }
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let text: &str = if self.texts.len() < TRACKS_MAX { text } else { "(another name)" };
        let number = self.numbers.get(text).copied();
        number.unwrap_or_else(|| {
            self.texts.push(text.into());
            let number = Text(self.texts.len() as u32);
            self.numbers.insert(text.into(), number);
            number
        })
    }

    pub(super) fn get(&self, text: Text) -> &str {
        (text.0 as usize).checked_sub(1).map_or("", |index| &self.texts[index])
    }
}
