//! The home of each sequence: a table from `{producer, writer}` to shard that is read without
//! locks.
//!
//! ```text
//!   producer's second byte  lowest byte            writer's high byte     low byte
//!   [ 256 pointers ]  --->  [ 256 pointers ]  -->  [ 256 pointers ]  -->  [ 256 entries, 32 bits ]
//!                           each table is made at the first commit of a sequence below it; above
//!                           these are two levels for the upper half of producers from 65,536 on
//!
//!   entry:  bits 0..=15   home shard plus one; 0: no home
//!           bit  31       LEAVING: the writer has ended and its chunks are gone
//! ```
//!
//! A home is chosen by one compare-exchange. It stays until the sequence has ended *and* no
//! committer can be about to push to it. For the second half the tickets serve as a clock:
//!
//! 1. The shard's owner, having dropped an ended sequence, sets LEAVING (`start_leaving`) and notes
//!    the moment ([`Tickets::now`](crate::sync::tickets::Tickets::now)).
//! 2. A committer reserves its batch and takes its tickets before it looks here. One that finds
//!    LEAVING clears the bit, and the sequence keeps its home. One that holds the home's lock needs
//!    neither, since only the home's owner does 1 and 3 (`settled`).
//! 3. When a cut has reached the moment, every committer with an earlier ticket has pushed its
//!    batch, and every later one saw the bit. When the owner has drained up to that cut and the bit
//!    is still set, `finish_leaving` removes the home.
//!
//! So chunks of a sequence are never queued at two shards at once, and no commits in flight are
//! counted.
//!
//! - Entries: publish that the home's shard was made; LEAVING: that the sequence was dropped.
//!   Acquire loads, and AcqRel RMW in `settle`, `start_leaving` and `finish_leaving`; with
//!   `Tickets::now`, or the home's lock. Models: `homes_never_split`,
//!   `a_home_stays_while_its_lock_is_held`.
//! - `table_bytes`: publishes nothing, a statistic. Relaxed.

use crate::sync::once::OnceBox;
use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use std::ptr::NonNull;
use watershed_simd::prefetch;

const LEAVING: u32 = 1 << 31;
const HOME: u32 = 0xFFFF;

/// A sequence's identity as the buffer keys it: 32 bits of the producer above 16 of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    pub(crate) fn new(producer_id: u32, writer_id: u16) -> Self {
        Self(u64::from(producer_id) << 16 | u64::from(writer_id))
    }

    /// A byte of it, the lowest is 0: the writer's are 0 and 1.
    fn byte(self, n: u32) -> usize {
        (self.0 >> (8 * n) & 0xFF) as usize
    }

    /// Whether the producer is 65,536 or above.
    fn is_later(self) -> bool {
        self.0 >> 32 != 0
    }
}

#[cfg(not(loom))]
const FAN_OUT: usize = 256;
#[cfg(loom)]
const FAN_OUT: usize = 2;

type Leaf = [AtomicU32; FAN_OUT];
type Writers = [OnceBox<Leaf>; FAN_OUT];
type Producers = [OnceBox<Writers>; FAN_OUT];
type Root = [OnceBox<Producers>; FAN_OUT];
type Roots = [OnceBox<[OnceBox<Root>; FAN_OUT]>; FAN_OUT];

/// A sequence's entry, which a committer remembers to save the walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry(NonNull<AtomicU32>);

// SAFETY: it points to an atomic, which all threads may use.
unsafe impl Send for Entry {}

impl Entry {
    /// # Safety
    /// The directory of the entry outlives `'a`.
    #[inline]
    unsafe fn get<'a>(self) -> &'a AtomicU32 {
        // SAFETY: nothing in a directory is moved or freed before the directory, which lives (the
        // caller).
        unsafe { self.0.as_ref() }
    }
}

/// The table. Nothing in it is freed before the table is.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Of producers below 65,536.
    producers: Root,
    /// Of the others, by the upper half.
    later: OnceBox<Roots>,
    /// Bytes of the tables below the first level.
    table_bytes: AtomicUsize,
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self { producers: empty(), later: OnceBox::new(), table_bytes: AtomicUsize::new(0) }
    }

    /// The home of a sequence, chosen now by `choose` if it has none; whether it was chosen now.
    ///
    /// The caller has reserved its batch and taken its tickets: else the home may be removed at any
    /// time.
    #[inline]
    pub(crate) fn home_or(&self, key: Key, choose: impl FnOnce() -> u16) -> (u16, bool) {
        Self::home_in(self.entry(key), choose)
    }

    /// As `home_or`, of a sequence whose entry is known.
    ///
    /// # Safety
    /// The entry is of this directory.
    #[inline]
    pub(crate) unsafe fn home_or_at(&self, entry: Entry, choose: impl FnOnce() -> u16) -> (u16, bool) {
        // SAFETY: `self` lives, and the entry is of it.
        Self::home_in(unsafe { entry.get() }, choose)
    }

    #[inline]
    fn home_in(entry: &AtomicU32, choose: impl FnOnce() -> u16) -> (u16, bool) {
        let now = entry.load(Ordering::Acquire);
        if now & LEAVING == 0 && now & HOME != 0 {
            return ((now & HOME) as u16 - 1, false);
        }
        Self::settle(entry, now, choose())
    }

    /// The home of a sequence that has one and is not leaving.
    ///
    /// While that home's lock is held it stays: only the owner of a home removes it. Otherwise a
    /// hint.
    #[inline]
    pub(crate) fn settled(&self, key: Key) -> Option<u16> {
        Self::settled_in(self.find(key)?)
    }

    /// As `settled`, of a sequence whose entry is known.
    ///
    /// # Safety
    /// The entry is of this directory.
    #[inline]
    pub(crate) unsafe fn settled_at(&self, entry: Entry) -> Option<u16> {
        // SAFETY: `self` lives, and the entry is of it.
        Self::settled_in(unsafe { entry.get() })
    }

    #[inline]
    fn settled_in(entry: &AtomicU32) -> Option<u16> {
        // No home is 0 and LEAVING is above all homes: minus one, either is beyond them.
        let home = entry.load(Ordering::Acquire).wrapping_sub(1);
        (home < HOME).then_some(home as u16)
    }

    /// The entry of a sequence, if its table was made. It stays as long as the directory.
    #[inline]
    pub(crate) fn entry_of(&self, key: Key) -> Option<Entry> {
        let entry = self.find(key)?;
        // Writers with neighbouring ids often commit in turn: 2 to 4 points of `sequences_100k`.
        let next = std::ptr::from_ref(entry).cast::<u8>().wrapping_add(prefetch::LINE_BYTES);
        prefetch::for_read(next);
        Some(Entry(entry.into()))
    }

    /// The entry of a sequence; its table is made now if need be.
    #[inline]
    pub(crate) fn entry_or_insert(&self, key: Key) -> Entry {
        Entry(self.entry(key).into())
    }

    #[cold]
    fn settle(entry: &AtomicU32, mut now: u32, chosen: u16) -> (u16, bool) {
        loop {
            let home = if now & HOME == 0 { u32::from(chosen) + 1 } else { now & HOME };
            match entry.compare_exchange(now, home, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (home as u16 - 1, now & HOME == 0),
                Err(newer) if newer & LEAVING == 0 && newer & HOME != 0 => {
                    return ((newer & HOME) as u16 - 1, false);
                }
                Err(newer) => now = newer,
            }
        }
    }

    /// The home of a sequence, also if it is leaving. For patches and ends of writers: without a
    /// home there are no chunks.
    pub(crate) fn home(&self, key: Key) -> Option<u16> {
        let entry = self.find(key)?;
        match entry.load(Ordering::Acquire) & HOME {
            0 => None,
            home => Some(home as u16 - 1),
        }
    }

    /// Marks a sequence as leaving. Only for the owner of its home, who has dropped the sequence
    /// and calls `Tickets::now` afterwards. A second mark replaces the noted moment of the first.
    pub(crate) fn start_leaving(&self, key: Key) {
        if let Some(entry) = self.find(key) {
            entry.fetch_or(LEAVING, Ordering::AcqRel);
        }
    }

    /// Removes the home unless a committer came back meanwhile. True if it was removed.
    pub(crate) fn finish_leaving(&self, key: Key) -> bool {
        let Some(entry) = self.find(key) else { return false };
        let now = entry.load(Ordering::Acquire);
        now & LEAVING != 0 && entry.compare_exchange(now, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Every sequence of a producer that has a home, with the home.
    pub(crate) fn homes_of(&self, producer_id: u32) -> Vec<(Key, u16)> {
        let mut homes = Vec::new();
        let writers = self.writers(Key::new(producer_id, 0));
        for (high, leaf) in writers.into_iter().flatten().enumerate() {
            let Some(leaf) = leaf.get() else { continue };
            for (low, entry) in leaf.iter().enumerate() {
                let home = entry.load(Ordering::Acquire) & HOME;
                if home != 0 {
                    homes.push((Key::new(producer_id, (high << 8 | low) as u16), home as u16 - 1));
                }
            }
        }
        homes
    }

    pub(crate) fn table_bytes(&self) -> usize {
        self.table_bytes.load(Ordering::Relaxed)
    }

    #[inline]
    fn find(&self, key: Key) -> Option<&AtomicU32> {
        Some(&self.writers(key)?[key.byte(1)].get()?[key.byte(0)])
    }

    #[inline]
    fn writers(&self, key: Key) -> Option<&Writers> {
        let root = match key.is_later() {
            false => &self.producers,
            true => self.later.get()?[key.byte(5)].get()?[key.byte(4)].get()?,
        };
        root[key.byte(3)].get()?[key.byte(2)].get()
    }

    #[inline]
    fn entry(&self, key: Key) -> &AtomicU32 {
        self.find(key).unwrap_or_else(|| self.make(key))
    }

    #[cold]
    fn make(&self, key: Key) -> &AtomicU32 {
        let root = match key.is_later() {
            false => &self.producers,
            true => {
                let upper = self.level(&self.level(&self.later, empty)[key.byte(5)], empty);
                self.level(&upper[key.byte(4)], empty)
            }
        };
        let producers = self.level(&root[key.byte(3)], empty);
        let writers = self.level(&producers[key.byte(2)], empty);
        let leaf = self.level(&writers[key.byte(1)], || std::array::from_fn(|_| AtomicU32::new(0)));
        &leaf[key.byte(0)]
    }

    fn level<'a, T>(&'a self, slot: &'a OnceBox<T>, make: impl FnOnce() -> T) -> &'a T {
        let (level, is_new) = slot.get_or(make);
        if is_new {
            self.table_bytes.fetch_add(size_of::<T>(), Ordering::Relaxed);
        }
        level
    }
}

fn empty<T>() -> [OnceBox<T>; FAN_OUT] {
    std::array::from_fn(|_| OnceBox::new())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_chosen_once_and_stays() {
        let directory = Directory::new();
        let key = Key::new(7, 300);
        assert_eq!(directory.home(key), None);
        assert_eq!(directory.home_or(key, || 5), (5, true));
        assert_eq!(directory.home_or(key, || 6), (5, false));
        assert_eq!(directory.home(key), Some(5));
        assert_eq!(directory.home(Key::new(7, 301)), None);
        assert_eq!(directory.home(Key::new(8, 300)), None);
        assert_eq!(directory.homes_of(7), [(key, 5)]);
    }

    #[test]
    fn a_sequence_that_comes_back_keeps_its_home() {
        let directory = Directory::new();
        let key = Key::new(1, 1);
        directory.home_or(key, || 3);
        directory.start_leaving(key);
        assert_eq!(directory.home_or(key, || 9), (3, false), "it came back before it was gone");
        assert!(!directory.finish_leaving(key));
        directory.start_leaving(key);
        assert!(directory.finish_leaving(key));
        assert_eq!(directory.home(key), None);
        assert_eq!(directory.home_or(key, || 9), (9, true));
    }

    #[test]
    fn the_edges_of_both_id_spaces_have_entries_of_their_own() {
        let directory = Directory::new();
        let keys =
            [(0, 1), (0, 255), (0, 256), (0, 65535), (65535, 0), (65535, 65535), (65536, 1), (u32::MAX, 1)];
        for (home, &(producer, writer)) in keys.iter().enumerate() {
            assert_eq!(directory.home_or(Key::new(producer, writer), || home as u16), (home as u16, true));
        }
        for (home, &(producer, writer)) in keys.iter().enumerate() {
            assert_eq!(directory.home(Key::new(producer, writer)), Some(home as u16));
        }
    }
}
