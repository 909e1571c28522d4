//! Stretches: many chunks of well-behaved writers, committed one after the other in one step.
//!
//! With one step for each chunk, histories would hardly reach packets over dozens of chunks, long
//! runs of ordinary records, and full tables of records. A pattern is drawn, so that a shrunk
//! stretch is short.

use crate::history::Fragment;

/// A pattern of chunks. Each writer continues its last packet first, if that is incomplete.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Stretch {
    /// The order of the writers, repeated.
    pub turns: Vec<u8>,
    /// A turn takes `1 + in_a_row` chunks.
    pub in_a_row: u8,
    /// `1 + chunks % 200` in all.
    pub chunks: u8,
    /// Packets go over `1 + parts % 64` chunks, but for those that are counted in `whole`.
    pub parts: u8,
    /// Packets in one piece, `whole % 8` in every chunk in which a long one ends.
    pub whole: u8,
    /// Body bytes of fragments, repeated.
    pub lens: Vec<u16>,
    /// Bytes of headers, at least.
    pub header_len: u8,
    /// Of the chunks that go on in the next, every such one waits for a patch; none if 0.
    pub patch_every: u8,
    /// What is different about one chunk.
    pub oddity: Oddity,
}

/// What is different about one chunk of a stretch: the one of that number, if there is one.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Oddity {
    /// None is different.
    None,
    /// The id before it is left out.
    Gap(u8),
    /// It is committed after the one behind it.
    Late(u8),
    /// It is committed twice.
    Twice(u8),
    /// It is scraped before it is complete.
    Scraped(u8),
    /// It is scraped, and never complete.
    Unfinished(u8),
}

/// What a chunk of a stretch holds.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) writer: u8,
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) goes_on: bool,
    pub(crate) needs_patching: bool,
}

/// In which order chunks of a stretch are committed, and which of them are complete: for each its
/// number.
pub(crate) type Order = Vec<(usize, bool)>;

impl Stretch {
    /// Its chunks, when there are so many writers, of which these have left a packet open.
    pub(crate) fn pages(&self, open: &[bool]) -> Vec<Page> {
        let parts = 1 + self.parts % 64;
        let mut left: Vec<u8> = open.iter().map(|&is_open| u8::from(is_open) * (parts - 1).max(1)).collect();
        let mut lens = self.lens.iter().cycle();
        let header_len = self.header_len;
        let mut fragment = || Fragment::Body { len: lens.next().copied().unwrap_or(40), header_len };
        let turn = |nth: usize| nth / (1 + usize::from(self.in_a_row)) % self.turns.len().max(1);
        let page = |nth: usize| {
            let writer = self.turns.get(turn(nth)).map_or(0, |&writer| usize::from(writer) % open.len());
            let left = &mut left[writer];
            let mut fragments = Vec::new();
            if *left != 0 {
                fragments.push(fragment());
                *left -= 1;
            }
            if *left == 0 {
                fragments.extend((0..self.whole % 8).map(|_| fragment()));
                if parts > 1 || fragments.is_empty() {
                    fragments.push(fragment());
                    *left = parts - 1;
                }
            }
            let goes_on = *left != 0;
            let needs_patching =
                goes_on && nth.is_multiple_of(self.patch_every.max(1).into()) && self.patch_every != 0;
            Page { writer: writer as u8, fragments, goes_on, needs_patching }
        };
        (0..1 + usize::from(self.chunks % 200)).map(page).collect()
    }

    /// Whether the id before this chunk is left out.
    pub(crate) fn skips_before(&self, nth: usize) -> bool {
        matches!(self.oddity, Oddity::Gap(at) if usize::from(at) == nth)
    }

    /// In which order `count` chunks are committed.
    pub(crate) fn order(&self, count: usize) -> Order {
        let mut order: Order = (0..count).map(|nth| (nth, true)).collect();
        match self.oddity {
            Oddity::Late(at) if usize::from(at) + 1 < count => order.swap(at.into(), usize::from(at) + 1),
            Oddity::Twice(at) if usize::from(at) < count => order.insert(at.into(), (at.into(), true)),
            Oddity::Scraped(at) if usize::from(at) < count => order.insert(at.into(), (at.into(), false)),
            Oddity::Unfinished(at) if usize::from(at) < count => order[usize::from(at)].1 = false,
            _ => {}
        }
        order
    }
}
