//! The home of each sequence: a table from `{producer, writer}` to shard that is read without
//! locks, and whose entries are used again.
//!
//! ```text
//!   level 0   [ line | line | ...  ]       64 lines of 8 entries; each level has one line for a
//!   level 1   [ line | line | line | ... ] key, by a hash; it is put into the largest level where
//!   level 2   ...                          there is room, or a next one of twice the size is made
//!
//!   entry:  bits 16..=63  the key; a free entry is 0
//!           bit  15       LEAVING: the writer has ended and its chunks are gone
//!           bits 0..=14   home shard plus one
//! ```
//!
//! Keys are never moved, and an entry is one word. So whoever remembers an entry sees by one load
//! whether it is still the key's, also if it was freed and used again. Only a new key takes a lock:
//! two threads that put the same key into different entries would split its home. An exchange of an
//! entry does not prevent that while others free entries: two threads may find different ones free,
//! and a third may have seen the entry of the one that then gives up. To mark entries as tentative
//! takes more code than a mutex, which only the first chunk of a sequence meets. The table is as
//! large as the most sequences that there were at a time need.
//!
//! A home is chosen once. It stays until the sequence has ended *and* no committer can be about to
//! push to it. For the second half the tickets serve as a clock:
//!
//! 1. The shard's owner, having dropped an ended sequence, sets LEAVING (`start_leaving`) and notes
//!    the moment ([`Tickets::now`](crate::sync::tickets::Tickets::now)).
//! 2. A committer reserves its batch and takes its tickets before it looks here. One that finds
//!    LEAVING clears the bit, and the sequence keeps its home. One that holds the home's lock needs
//!    neither, since only the home's owner does 1 and 3 (`settled`).
//! 3. When a cut has reached the moment, every committer with an earlier ticket has pushed its
//!    batch, and every later one saw the bit. When the owner has drained up to that cut and the bit
//!    is still set, `finish_leaving` frees the entry.
//!
//! So chunks of a sequence are never queued at two shards at once, and no commits in flight are
//! counted.
//!
//! - Entries: publish that the home's shard was made; LEAVING: that the sequence was dropped.
//!   Acquire loads, Release store in `insert`, and AcqRel RMW in `stay`, `start_leaving` and
//!   `finish_leaving`; with `Tickets::now`, or the home's lock. Models: `homes_never_split`,
//!   `a_home_stays_while_its_lock_is_held`, `an_entry_that_is_used_again_is_not_taken_for_the_old`,
//!   `two_committers_choose_one_home`.
//! - `num_levels`: publishes that a level was made. Release store in `insert`, under `inserting`;
//!   Acquire load in `made`. The same models.
//! - `inserting`: a mutex, for new keys. The last of these models.

use std::ptr::NonNull;
use std::sync::PoisonError;

use watershed_simd::prefetch;

use crate::sync::once::OnceBox;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};

const LEAVING: u64 = 1 << 15;
const HOME: u64 = LEAVING - 1;
const KEY_SHIFT: u32 = 16;

/// A sequence's identity as the buffer keys it: 32 bits of the producer above 16 of the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    pub(crate) fn new(producer_id: u32, writer_id: u16) -> Self {
        Self(u64::from(producer_id) << 16 | u64::from(writer_id))
    }

    fn is_in(self, word: u64) -> bool {
        word >> KEY_SHIFT == self.0
    }

    /// The home in the word of an entry, if that is the key's and not leaving.
    #[inline]
    fn settled_in(self, word: u64) -> Option<u16> {
        // Of another key, a free entry, or one that is leaving, something is left above the home.
        let home = (word ^ (self.0 << KEY_SHIFT)).wrapping_sub(1);
        (home < HOME).then_some(home as u16)
    }
}

#[cfg(not(loom))]
const LINE_ENTRIES: usize = 8;
#[cfg(loom)]
const LINE_ENTRIES: usize = 1;

/// Lines of the first level.
#[cfg(not(loom))]
const FIRST_LINES: usize = 64;
#[cfg(loom)]
const FIRST_LINES: usize = 1;

/// Enough for more entries than there is memory.
const MAX_LEVELS: usize = 32;

/// What a cache line holds.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; LINE_ENTRIES]);

type Level = Box<[Line]>;

/// A sequence's entry, which a committer remembers to save the search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry(NonNull<AtomicU64>);

// SAFETY: it points to an atomic, which all threads may use.
unsafe impl Send for Entry {}

/// The table. No memory of it is freed before the table is.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    levels: [OnceBox<Level>; MAX_LEVELS],
    num_levels: AtomicUsize,
    /// For whoever adds a key.
    inserting: Mutex<()>,
}

impl Directory {
    /// The home of a sequence, chosen now by `choose` if it has none, and its entry.
    ///
    /// The caller has reserved its batch and taken its tickets: else the home may be removed at any
    /// time.
    #[inline]
    pub(crate) fn home_or(&self, key: Key, mut choose: impl FnMut() -> u16) -> (u16, Entry) {
        loop {
            let Some((entry, word)) = self.find(key) else {
                if let Some(inserted) = self.insert(key, &mut choose) {
                    return inserted;
                }
                continue;
            };
            if let Some(home) = key.settled_in(word).or_else(|| Self::stay(entry, word)) {
                return (home, Entry(entry.into()));
            }
        }
    }

    /// Keeps the home of a sequence that is leaving. None if its entry has changed meanwhile.
    #[cold]
    fn stay(entry: &AtomicU64, word: u64) -> Option<u16> {
        let stays = entry.compare_exchange(word, word & !LEAVING, Ordering::AcqRel, Ordering::Relaxed);
        stays.is_ok().then_some((word & HOME) as u16 - 1)
    }

    /// Adds a key. None if another thread has done it.
    #[cold]
    #[inline(never)]
    fn insert(&self, key: Key, choose: &mut dyn FnMut() -> u16) -> Option<(u16, Entry)> {
        let _alone = self.inserting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.find(key).is_some() {
            return None;
        }
        let home = choose();
        let word = key.0 << KEY_SHIFT | (u64::from(home) + 1);
        // Who frees an entry does no more with it.
        let is_free = |entry: &&AtomicU64| entry.load(Ordering::Acquire) == 0;
        let made = self.made().find_map(|(number, level)| line(level, number, key).0.iter().find(is_free));
        let entry = made.unwrap_or_else(|| {
            let number = self.num_levels.load(Ordering::Relaxed);
            let level = self.levels[number].get_or(|| new_level(FIRST_LINES << number));
            self.num_levels.store(number + 1, Ordering::Release);
            &line(level, number, key).0[0]
        });
        entry.store(word, Ordering::Release);
        Some((home, Entry(entry.into())))
    }

    /// The home of a sequence that has one and is not leaving, and its entry.
    ///
    /// While that home's lock is held it stays: only the owner of a home removes it. Otherwise a
    /// hint.
    #[inline]
    pub(crate) fn settled(&self, key: Key) -> Option<(u16, Entry)> {
        let (entry, word) = self.find(key)?;
        Some((key.settled_in(word)?, Entry(entry.into())))
    }

    /// As `settled`, of a sequence whose entry was known.
    ///
    /// # Safety
    /// The entry is of this directory.
    #[inline]
    pub(crate) unsafe fn settled_at(&self, Entry(entry): Entry, key: Key) -> Option<u16> {
        // SAFETY: nothing in a directory is moved or freed before the directory, which lives.
        key.settled_in(unsafe { entry.as_ref() }.load(Ordering::Acquire))
    }

    /// Prefetches the next line of writers when the first of a line has come: writers with
    /// neighbouring ids often commit in turn.
    #[inline]
    pub(crate) fn prefetch_next(&self, Key(key): Key) {
        const AHEAD: u64 = LINE_ENTRIES as u64;
        if key % AHEAD == 1 {
            for (number, level) in self.made().take(2) {
                prefetch::for_read(std::ptr::from_ref(line(level, number, Key(key + AHEAD))).cast());
            }
        }
    }

    /// The home of a sequence, also if it is leaving. For patches and ends of writers: without a
    /// home there are no chunks.
    pub(crate) fn home(&self, key: Key) -> Option<u16> {
        self.find(key).map(|(_, word)| (word & HOME) as u16 - 1)
    }

    /// Marks a sequence as leaving. Only for the owner of its home, who has dropped the sequence
    /// and calls `Tickets::now` afterwards. A second mark replaces the noted moment of the first.
    pub(crate) fn start_leaving(&self, key: Key) {
        if let Some((entry, _)) = self.find(key) {
            // Only this thread may free it.
            entry.fetch_or(LEAVING, Ordering::AcqRel);
        }
    }

    /// Removes the home unless a committer came back meanwhile. True if it was removed.
    pub(crate) fn finish_leaving(&self, key: Key) -> bool {
        self.find(key).is_some_and(|(entry, word)| {
            word & LEAVING != 0
                && entry.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// Every sequence of a producer that has a home, with the home. Looks at the whole table.
    pub(crate) fn homes_of(&self, producer_id: u32) -> Vec<(Key, u16)> {
        let entries = self.made().flat_map(|(_, level)| level.iter().flat_map(|line| &line.0));
        let words = entries.map(|entry| entry.load(Ordering::Acquire));
        words
            .filter(|&word| word != 0 && word >> 32 == u64::from(producer_id))
            .map(|word| (Key(word >> KEY_SHIFT), (word & HOME) as u16 - 1))
            .collect()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn table_bytes(&self) -> usize {
        self.made().map(|(_, level)| size_of_val(&**level)).sum()
    }

    /// The levels that were made, the largest first: there keys are put if they can.
    #[inline]
    fn made(&self) -> impl Iterator<Item = (usize, &Level)> {
        (0..self.num_levels.load(Ordering::Acquire))
            .rev()
            .filter_map(|number| Some((number, self.levels[number].get()?)))
    }

    /// The entry of a key, and what is in it.
    #[inline]
    fn find(&self, key: Key) -> Option<(&AtomicU64, u64)> {
        self.made().find_map(|(number, level)| {
            let entries = line(level, number, key).0.iter();
            entries.map(|entry| (entry, entry.load(Ordering::Acquire))).find(|&(_, word)| key.is_in(word))
        })
    }
}

/// The line of a key in a level. Writers with neighbouring ids share it.
#[inline]
fn line(level: &Level, number: usize, key: Key) -> &Line {
    let hash = (key.0 / LINE_ENTRIES as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // Keys that share a line of one level do not share those of all.
    let at = hash.rotate_left(24 + 5 * number as u32) as usize;
    &level[at & (level.len() - 1)]
}

/// A level of free entries.
#[cfg(not(loom))]
fn new_level(lines: usize) -> Level {
    // SAFETY: zero bytes are atomics of 0.
    unsafe { Box::new_zeroed_slice(lines).assume_init() }
}

#[cfg(loom)]
fn new_level(lines: usize) -> Level {
    (0..lines).map(|_| Line(std::array::from_fn(|_| AtomicU64::new(0)))).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_chosen_once_and_stays() {
        let directory = Directory::default();
        let key = Key::new(7, 300);
        assert_eq!(directory.home(key), None);
        assert_eq!(directory.home_or(key, || 5).0, 5);
        assert_eq!(directory.home_or(key, || 6).0, 5);
        assert_eq!(directory.home(key), Some(5));
        assert_eq!(directory.home(Key::new(7, 301)), None);
        assert_eq!(directory.home(Key::new(8, 300)), None);
        assert_eq!(directory.homes_of(7), [(key, 5)]);
    }

    #[test]
    fn a_sequence_that_comes_back_keeps_its_home() {
        let directory = Directory::default();
        let key = Key::new(1, 1);
        directory.home_or(key, || 3);
        directory.start_leaving(key);
        assert_eq!(directory.home_or(key, || 9).0, 3, "it came back before it was gone");
        assert!(!directory.finish_leaving(key));
        directory.start_leaving(key);
        assert!(directory.finish_leaving(key));
        assert_eq!(directory.home(key), None);
        assert_eq!(directory.home_or(key, || 9).0, 9);
    }

    #[test]
    fn the_edges_of_both_id_spaces_have_entries_of_their_own() {
        let directory = Directory::default();
        let keys =
            [(0, 1), (0, 255), (0, 256), (0, 65535), (65535, 0), (65535, 65535), (65536, 1), (u32::MAX, 1)];
        for (home, &(producer, writer)) in keys.iter().enumerate() {
            assert_eq!(directory.home_or(Key::new(producer, writer), || home as u16).0, home as u16);
        }
        for (home, &(producer, writer)) in keys.iter().enumerate() {
            assert_eq!(directory.home(Key::new(producer, writer)), Some(home as u16));
        }
    }

    /// Neighbouring writers, and producers with one each: all are found, and what is freed is used
    /// again.
    #[test]
    fn entries_that_are_freed_are_used_again() {
        let directory = Directory::default();
        let mut bytes = 0;
        for round in 0..20 {
            let keys = |n: u32| [Key::new(1 + round, n as u16), Key::new(round << 20 | 1 << 16 | n, 1)];
            for key in (0..5000).flat_map(keys) {
                assert_eq!(directory.home_or(key, || (key.0 % 1000) as u16).0, (key.0 % 1000) as u16);
            }
            assert_eq!(directory.homes_of(1 + round).len(), 5000);
            for key in (0..5000).flat_map(keys) {
                let (home, entry) = directory.settled(key).expect("it is there");
                assert_eq!(u64::from(home), key.0 % 1000);
                directory.start_leaving(key);
                assert!(directory.settled(key).is_none() && directory.finish_leaving(key));
                // SAFETY: the entry is of this directory.
                assert_eq!(unsafe { directory.settled_at(entry, key) }, None);
            }
            bytes = if round == 0 { directory.table_bytes() } else { bytes };
        }
        // 625 lines of eight writers, and others that up to eight producers share.
        assert!(bytes < 256 << 10 && directory.table_bytes() <= 2 * bytes, "{}", directory.table_bytes());
    }
}
