//! A table from keys to two numbers, found by hashing once.
//!
//! ```text
//!   hash of (key / 8) -> group g
//!   groups   [ 8 entries | 8 entries | 8 entries | ...      an entry: value, note
//!                          g: one line of the cache, for writers with neighbouring ids
//!   index of a key = 8 g + key % 8, the same as long as the key is in the table
//! ```
//!
//! A producer numbers its writers one by one, and they come back in about that order. So neighbours
//! share a cache line and a bucket of the hash table, which has an eighth of the entries. Ids that
//! are far from each other take a line each: at most 64 MiB for the sequences that are remembered
//! ([`super::remembered::MAX_REMEMBERED`]), and 64 bytes for each that has a record.

use std::collections::HashMap;

use crate::index::records::NONE;
use rustc_hash::FxBuildHasher;

const GROUP_KEYS: usize = 1 << GROUP_BITS;
const GROUP_BITS: u32 = 3;

/// No group's owner: keys have 48 bits.
const NOBODY: u64 = u64::MAX;

/// No key has this value.
pub(crate) const VACANT: u32 = 0x7fff_ffff;

/// Index of the entry of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntryIndex(u32);

/// What is kept of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) value: u32,
    /// Without a meaning to the table. [`NONE`] for a new key.
    pub(crate) note: u32,
}

const VACANCY: Entry = Entry { value: VACANT, note: NONE };

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Group([Entry; GROUP_KEYS]);

const _: () = assert!(size_of::<Group>() == 64);

/// A table of keys.
#[derive(Clone, Default)]
pub(crate) struct KeyTable {
    numbers: HashMap<u64, u32, FxBuildHasher>,
    groups: Vec<Group>,
    /// The owner of each group: its keys divided by [`GROUP_KEYS`]. [`NOBODY`] for a free group.
    owners: Vec<u64>,
    free: Vec<u32>,
    /// The group that was found last.
    last: u32,
}

impl KeyTable {
    #[inline]
    fn entry_index(group: u32, key: u64) -> EntryIndex {
        EntryIndex((group << GROUP_BITS) | (key as u32 % GROUP_KEYS as u32))
    }

    /// The index of a key's entry. None if the key is not in the table.
    #[inline]
    pub(crate) fn find(&mut self, key: u64) -> Option<EntryIndex> {
        self.find_entry(key).map(|(index, _)| index)
    }

    /// The same, with the entry.
    #[inline(always)]
    pub(crate) fn find_entry(&mut self, key: u64) -> Option<(EntryIndex, &mut Entry)> {
        self.last = self.group_of(key >> GROUP_BITS)?;
        let index = Self::entry_index(self.last, key);
        let entry = self.get_mut(index);
        (entry.value != VACANT).then_some((index, entry))
    }

    /// The group of an owner. Owners that come back in the order in which they came first are found
    /// without a hash, whose two cache lines are cold when there are many.
    #[inline]
    fn group_of(&self, owner: u64) -> Option<u32> {
        let is_owned = |group: u32| self.owners.get(group as usize) == Some(&owner);
        match self.last {
            last if is_owned(last) => Some(last),
            last if is_owned(last + 1) => Some(last + 1),
            _ => self.group_by_hash(owner),
        }
    }

    #[inline(never)]
    fn group_by_hash(&self, owner: u64) -> Option<u32> {
        self.numbers.get(&owner).copied()
    }

    #[inline]
    pub(crate) fn get(&self, index: EntryIndex) -> Entry {
        self.groups[(index.0 >> GROUP_BITS) as usize].0[index.0 as usize % GROUP_KEYS]
    }

    /// The entry at an index. Its value must not become [`VACANT`].
    #[inline]
    pub(crate) fn get_mut(&mut self, index: EntryIndex) -> &mut Entry {
        &mut self.groups[(index.0 >> GROUP_BITS) as usize].0[index.0 as usize % GROUP_KEYS]
    }

    /// Inserts a key, if it is not there, and sets its value.
    pub(crate) fn insert(&mut self, key: u64, value: u32) -> EntryIndex {
        let KeyTable { numbers, groups, owners, free, .. } = self;
        let owner = key >> GROUP_BITS;
        let group = *numbers.entry(owner).or_insert_with(|| {
            let group = free.pop().unwrap_or_else(|| {
                groups.push(Group([VACANCY; GROUP_KEYS]));
                owners.push(NOBODY);
                groups.len() as u32 - 1
            });
            owners[group as usize] = owner;
            group
        });
        let index = Self::entry_index(group, key);
        self.get_mut(index).value = value;
        index
    }

    /// Removes a key, if it is there.
    pub(crate) fn remove(&mut self, key: u64) {
        let Some(index) = self.find(key) else { return };
        *self.get_mut(index) = VACANCY;
        let group = index.0 >> GROUP_BITS;
        if self.groups[group as usize].0.iter().all(|entry| *entry == VACANCY) {
            self.numbers.remove(&(key >> GROUP_BITS));
            self.owners[group as usize] = NOBODY;
            self.free.push(group);
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.numbers.capacity() * 17
            + self.groups.capacity() * size_of::<Group>()
            + self.owners.capacity() * 8
            + self.free.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_and_go_and_their_groups_are_used_again() {
        let mut table = KeyTable::default();
        for round in 0..3 {
            for key in (1..2000).chain((1 << 20..1 << 21).step_by(4096)) {
                assert_eq!(table.find(key), None);
                let index = table.insert(key, key as u32 ^ round);
                table.get_mut(index).note = key as u32;
                assert_eq!(table.find(key), Some(index));
            }
            for key in (1..2000).chain((1 << 20..1 << 21).step_by(4096)) {
                let index = table.find(key).expect("it was put in");
                assert_eq!(table.get(index), Entry { value: key as u32 ^ round, note: key as u32 });
            }
            assert_eq!(table.groups.len(), 2000 / GROUP_KEYS + 256);
            for key in (1..2000).chain((1 << 20..1 << 21).step_by(4096)) {
                table.remove(key);
                assert_eq!(table.find(key), None);
            }
            assert!(table.numbers.is_empty());
        }
    }

    #[test]
    fn a_new_key_has_no_note_and_one_that_is_set_again_keeps_it() {
        let mut table = KeyTable::default();
        let index = table.insert(9, 5);
        assert_eq!(table.get(index), Entry { value: 5, note: NONE });
        table.get_mut(index).note = 7;
        assert_eq!(table.insert(9, 6), index);
        assert_eq!(table.get(index), Entry { value: 6, note: 7 });
        assert_eq!(table.find(8), None, "a neighbour was never put in");
    }
}
