//! The home of the sequence that a committer wrote to last.

use crate::batch::{Batch, key_of_chunk};
use crate::shard::Shared;
use crate::sync::directory::{Entry, Key};

/// Saves the search in the directory, since the next chunk is nearly always of the same
/// sequence.
///
/// A hint: whoever relies on it asks `is_valid` with the home's lock held. All its entries are of
/// the directory of its committer's buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HomeCache {
    /// Of no sequence, if it is 0.
    key: Key,
    home: u16,
    entry: Option<Entry>,
}

impl HomeCache {
    /// The home of a sequence, if it has one.
    #[inline]
    pub(crate) fn home(&mut self, shared: &Shared, key: Key) -> Option<u16> {
        if key != self.key {
            self.find(shared, key)?;
        }
        Some(self.home)
    }

    #[inline]
    fn find(&mut self, shared: &Shared, key: Key) -> Option<()> {
        let (home, entry) = shared.directory.settled(key)?;
        shared.directory.prefetch_next(key);
        *self = HomeCache { key, home, entry: Some(entry) };
        Some(())
    }

    /// Whether the home of the last sequence is still what it was.
    #[inline]
    pub(crate) fn is_valid(&self, shared: &Shared) -> bool {
        // SAFETY: the entry is of the directory of this committer's buffer.
        let home = |entry| unsafe { shared.directory.settled_at(entry, self.key) };
        self.entry.is_some_and(|entry| home(entry) == Some(self.home))
    }

    /// The last sequence, if there is one, and its home.
    #[inline]
    pub(crate) fn last(&self) -> Option<(Key, u16)> {
        self.entry.map(|_| (self.key, self.home))
    }

    /// The home of a sequence, chosen now if it has none. The caller has a reservation and its
    /// tickets.
    #[inline]
    pub(crate) fn home_or_choose(&mut self, shared: &Shared, cpu_id: Option<usize>, key: Key) -> u16 {
        if !(key == self.key && self.is_valid(shared)) {
            self.find_or_choose(shared, cpu_id, key);
        }
        self.home
    }

    #[cold]
    #[inline(never)]
    fn find_or_choose(&mut self, shared: &Shared, cpu_id: Option<usize>, key: Key) {
        let (home, entry) = shared.directory.home_or(key, || shared.choose_home(cpu_id));
        *self = HomeCache { key, home, entry: Some(entry) };
    }

    /// The home of all chunks of a batch, if they have one and the same.
    pub(crate) fn common_home(&mut self, shared: &Shared, batch: &Batch<'_>) -> Option<u16> {
        let common = self.home(shared, key_of_chunk(&batch.chunks.first()?.0))?;
        for (info, _) in &batch.chunks {
            if self.home(shared, key_of_chunk(info))? != common {
                return None;
            }
        }
        Some(common)
    }
}
