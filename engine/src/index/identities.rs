//! Identities, each kept once, so that a sequence needs four bytes for its own.

use std::collections::HashMap;

use crate::ids::ClientIdentity;
use crate::index::put;
use crate::index::records::NONE;

/// So many are kept without a look at which are in use.
const FEW: usize = 1024;

/// The identities that are in use, and some that were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identities {
    list: Vec<ClientIdentity>,
    index: HashMap<ClientIdentity, u32>,
    free: Vec<u32>,
    /// The one that was asked for last.
    last: u32,
    /// When there are so many, those that are not in use are removed.
    most: usize,
}

impl Identities {
    /// The number of an identity.
    pub(crate) fn intern(&mut self, identity: ClientIdentity) -> u32 {
        if self.list.get(self.last as usize) == Some(&identity) {
            return self.last;
        }
        let Identities { list, index, free, .. } = self;
        self.last = *index.entry(identity).or_insert_with(|| put(list, free, identity));
        self.last
    }

    /// Whether it is time to [`keep`](Self::keep) those in use only.
    pub(crate) fn is_crowded(&self) -> bool {
        self.index.len() >= self.most.max(FEW)
    }

    /// Removes all but those that are in use.
    pub(crate) fn keep(&mut self, used: impl Iterator<Item = u32>) {
        let mut is_used = vec![false; self.list.len()];
        used.for_each(|number| is_used[number as usize] = true);
        self.index.retain(|_, number| is_used[*number as usize]);
        self.free = (0..).zip(is_used).filter_map(|(number, is_used)| (!is_used).then_some(number)).collect();
        self.most = 2 * self.index.len();
        self.last = NONE;
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> ClientIdentity {
        self.list[number as usize]
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.list.capacity() * size_of::<ClientIdentity>()
            + self.index.capacity() * 20
            + self.free.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_use_stay_and_others_are_used_again() {
        let mut identities = Identities::default();
        let of = |pid| ClientIdentity { pid, ..ClientIdentity::default() };
        for pid in 0..100_000 {
            if identities.is_crowded() {
                identities.keep([7, 9].into_iter().chain([identities.last]));
            }
            let number = identities.intern(of(pid));
            assert_eq!((identities.get(number), identities.intern(of(pid))), (of(pid), number));
        }
        assert_eq!((identities.get(7), identities.get(9), identities.intern(of(9))), (of(7), of(9), 9));
        assert!(identities.memory_bytes() < 128 << 10, "{} bytes", identities.memory_bytes());
    }
}
