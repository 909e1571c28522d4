//! The owner lock of a shard: a try-lock that nobody waits for.
//!
//! ```text
//!            try_lock                         unlock
//!   FREE ----------------> OWNED(owner) ----------------> FREE
//!                             |  ^
//!                    request  v  |   the bit stays until the owner unlocks
//!                          OWNED(owner) + REQUEST
//!
//!   bit 31: REQUEST     bits 0..=30: 0 if free, else the owner's number plus one
//! ```
//!
//! A thread that does not get the lock leaves its work in the shard's queue. So that nothing stays
//! there unseen when the owner stops draining while somebody pushes, the rule is: *push, then try
//! to lock; unlock, then look at the queue again*. Both sides are `SeqCst`, so at least one of them
//! sees the other.
//!
//! `OwnerLock`: publishes the shard's state from owner to owner. `SeqCst` throughout: its Release
//! half (`unlock`) pairs with the Acquire half of `try_lock`; the total order pairs `try_lock`,
//! `is_locked` and `unlock` with `CommitQueue::head`. Models:
//! `nothing_stays_queued_when_an_owner_unlocks`, `an_extent_request_left_with_an_owner_is_served`,
//! `a_deferred_drain_is_run`.

use crate::sync::{AtomicU32, Ordering};

const FREE: u32 = 0;
const REQUEST: u32 = 1 << 31;

/// Who owns a shard: any number below 2^31 - 1. It only has to help a person to name the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerId(pub u32);

/// One shard's owner lock.
#[derive(Debug)]
pub(crate) struct OwnerLock(AtomicU32);

fn owned_by(owner: OwnerId) -> u32 {
    debug_assert!(owner.0 < REQUEST - 1, "owner number {} does not fit the lock", owner.0);
    (owner.0 + 1) & !REQUEST
}

impl OwnerLock {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Locks the shard if it is free. The new owner sees all that the last one wrote.
    #[inline]
    pub(crate) fn try_lock(&self, owner: OwnerId) -> bool {
        // SeqCst on failure too: it is the second half of "push, then try to lock".
        self.0.compare_exchange(FREE, owned_by(owner), Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether a `try_lock` would fail now, without writing to the cache line.
    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.load(Ordering::SeqCst) != FREE
    }

    /// Unlocks the shard; tells whether a request came in meanwhile. Only for the owner.
    #[inline]
    pub(crate) fn unlock(&self) -> bool {
        // A swap and not a load and a store: a request cannot fall between the two.
        self.0.swap(FREE, Ordering::SeqCst) & REQUEST != 0
    }

    /// Asks the owner to look at the shard's requests when it unlocks. False if the shard is free.
    ///
    /// The bit carries no data: what is wanted was stored before, with Release or stronger.
    pub(crate) fn request(&self) -> bool {
        let mut now = self.0.load(Ordering::Relaxed);
        while now != FREE {
            match self.0.compare_exchange_weak(now, now | REQUEST, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(newer) => now = newer,
            }
        }
        false
    }

    /// The owner: a hint, for reports.
    pub(crate) fn owner(&self) -> Option<OwnerId> {
        (self.0.load(Ordering::Relaxed) & !REQUEST).checked_sub(1).map(OwnerId)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_owner_at_a_time_and_a_request_reaches_it() {
        let lock = OwnerLock::new();
        assert!(!lock.request(), "there is no owner to ask");
        assert!(lock.try_lock(OwnerId(7)));
        assert!(!lock.try_lock(OwnerId(8)));
        assert_eq!(lock.owner(), Some(OwnerId(7)));
        assert!(lock.request());
        assert_eq!(lock.owner(), Some(OwnerId(7)), "the request does not hide the owner");
        assert!(lock.unlock(), "the owner is told of the request");
        assert_eq!(lock.owner(), None);
        assert!(lock.try_lock(OwnerId(8)));
        assert!(!lock.unlock(), "a request is told once");
    }
}
