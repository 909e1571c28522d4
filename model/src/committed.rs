//! What the writers of a history committed, for steps that refer to it.

use std::fmt::Write as _;

use crate::flag;

/// Commits of a writer to which steps may come back.
const MOST_COMMITS: usize = 70;

/// What a writer committed, for steps that refer to it.
#[derive(Clone)]
pub(crate) struct Committed {
    pub(crate) id: u32,
    pub(crate) fragments: Vec<Vec<u8>>,
    pub(crate) declared: u16,
    pub(crate) flags: u8,
    pub(crate) slack: Vec<u8>,
}

pub(crate) struct Writer {
    pub(crate) producer_id: u32,
    pub(crate) writer_id: u16,
    pub(crate) highest: u32,
    /// LN of the highest.
    pub(crate) continues: bool,
    pub(crate) commits: Vec<Committed>,
}

impl Committed {
    /// All of its payload.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.fragments.concat(), self.slack.clone()].concat()
    }
}

impl Writer {
    /// Writer number `i`, whose next chunk is the one after `highest`. Two producers whose numbers
    /// have the same low half, with the same writer ids: only the whole number tells them apart.
    pub(crate) fn new(i: u8, highest: u32) -> Self {
        Self {
            producer_id: 1 + (u32::from(i / 2) << 16),
            writer_id: 1 + u16::from(i % 2),
            highest,
            continues: false,
            commits: Vec::new(),
        }
    }

    /// Another writer has its ids now.
    pub(crate) fn restart(&mut self) {
        self.highest = u32::MAX;
        self.continues = false;
        self.commits.clear();
    }

    /// Keeps what was committed for the steps that come back to it.
    pub(crate) fn remember(&mut self, committed: Committed) {
        if committed.id.wrapping_sub(self.highest).cast_signed() >= 0 {
            self.highest = committed.id;
            self.continues = committed.flags & flag::LAST_CONTINUES != 0;
        }
        self.commits.retain(|c| c.id != committed.id);
        self.commits.push(committed);
        if self.commits.len() > MOST_COMMITS {
            self.commits.remove(0);
        }
    }
}

pub(crate) fn names_of(flags: u8) -> String {
    let names =
        ["FP", "LN", "NP"].iter().enumerate().filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, name)| *name);
    let mut text: String = names.collect::<Vec<_>>().join("|");
    if flags & !flag::KNOWN != 0 {
        write!(text, "|{:#x}", flags & !flag::KNOWN).expect("strings take all text");
    }
    if text.is_empty() { "no flags".to_owned() } else { text }
}
