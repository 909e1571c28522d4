//! The owner lock of a shard: a try-lock, for which reads and statistics wait.
//!
//! ```text
//!            try_lock                         unlock
//!   FREE ----------------> OWNED(owner) ----------------> FREE
//!                             |  ^
//!                    request  v  |   the bit stays until the owner unlocks
//!                          OWNED(owner) + REQUEST
//!
//!           poll_lock                           unlock            poll_lock
//!   OWNED ------------> OWNED(owner) + WAITER ----------> WAITER -----------> OWNED(waiter)
//!
//!   bit 31: REQUEST   bit 30: WAITER   bit 29: TELL
//!   bits 0..=28: 0 if free, else the owner's number plus one
//! ```
//!
//! Threads that commit lock a shard so often that one which waits would hardly ever find it free:
//! so a lock that is waited for is free for waiters only. Each waiter sets the bit again until it
//! has the lock, and whoever of them gets it takes the bit away; so the bit is set only while
//! somebody waits, who will unlock and look at the queue as any owner does.
//!
//! A waiter that has something else to do sets TELL with it: then it polls again when it is told,
//! by the owner's unlock, which takes this bit away. One word has the owner and the bits, so
//! whoever finds an owner to wait for has left the bit for that owner's unlock.
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
//! `a_deferred_drain_is_run`, `a_waiter_gets_the_lock_and_leaves_it_free`,
//! `who_finds_a_shard_locked_is_told`.

use crate::sync::{AtomicU32, Ordering};

const FREE: u32 = 0;
const REQUEST: u32 = 1 << 31;
const WAITER: u32 = 1 << 30;
const TELL: u32 = 1 << 29;
const OWNER: u32 = TELL - 1;

/// Who owns a shard: any number below 2^29 - 1. It only has to help a person to name the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerId(pub u32);

/// One shard's owner lock.
#[derive(Debug, Default)]
pub(crate) struct OwnerLock(AtomicU32);

/// What others have left with an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left(u32);

impl Left {
    /// Whether there is anything.
    #[inline]
    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }

    /// A request for the owner to look at.
    pub(crate) fn has_request(self) -> bool {
        self.0 & REQUEST != 0
    }

    /// Somebody waits to be told that the shard is free.
    pub(crate) fn tells(self) -> bool {
        self.0 & TELL != 0
    }
}

fn owned_by(owner: OwnerId) -> u32 {
    debug_assert!(owner.0 < OWNER, "owner number {} does not fit the lock", owner.0);
    (owner.0 + 1) & OWNER
}

impl OwnerLock {
    /// Locks the shard if it is free and nobody waits for it. The new owner sees all that the last
    /// one wrote.
    #[inline]
    pub(crate) fn try_lock(&self, owner: OwnerId) -> bool {
        // SeqCst on failure too: it is the second half of "push, then try to lock".
        self.0.compare_exchange(FREE, owned_by(owner), Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Locks the shard if it is free, or else notes that the caller waits for its owner, who is
    /// returned. The caller must call this again until it has the lock.
    pub(crate) fn poll_lock(&self, owner: OwnerId) -> Result<(), OwnerId> {
        self.poll_lock_with(owner, |bits| bits | WAITER)
    }

    /// As `poll_lock`, for a caller that calls this again when the owner's unlock has told it to.
    pub(crate) fn poll_lock_told(&self, owner: OwnerId) -> Result<(), OwnerId> {
        self.poll_lock_with(owner, |bits| bits | WAITER | TELL)
    }

    /// The caller does not wait any more. Others that do have to poll again. If the shard is free
    /// it is locked, for the caller to unlock it: nobody may have looked at it while it was left to
    /// waiters.
    pub(crate) fn stop_waiting(&self, owner: OwnerId) -> Result<(), OwnerId> {
        self.poll_lock_with(owner, |bits| bits & !(WAITER | TELL))
    }

    fn poll_lock_with(&self, owner: OwnerId, wait: impl Fn(u32) -> u32) -> Result<(), OwnerId> {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let is_free = now & OWNER == 0;
            let new = if is_free { owned_by(owner) | now & REQUEST } else { wait(now) };
            match self.0.compare_exchange_weak(now, new, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return if is_free { Ok(()) } else { Err(OwnerId((now & OWNER) - 1)) },
                Err(newer) => now = newer,
            }
        }
    }

    /// Whether a `try_lock` would fail now, without writing to the cache line.
    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.0.load(Ordering::SeqCst) != FREE
    }

    /// Unlocks the shard; says what was left meanwhile. Only for the owner.
    #[inline]
    pub(crate) fn unlock(&self, owner: OwnerId) -> Left {
        // An exchange and not a load and a store: a request cannot fall between the two.
        let exchanged = self.0.compare_exchange(owned_by(owner), FREE, Ordering::SeqCst, Ordering::Relaxed);
        if exchanged.is_ok() { Left(0) } else { self.unlock_with_bits() }
    }

    /// The same, of a lock that has a request or is waited for.
    #[cold]
    #[inline(never)]
    fn unlock_with_bits(&self) -> Left {
        Left(self.0.fetch_and(WAITER, Ordering::SeqCst) & (REQUEST | TELL))
    }

    /// Asks the owner, or who waits to be it, to look at the shard's requests at the unlock. False
    /// if the shard is free.
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

    /// Whether somebody waits for the lock.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.0.load(Ordering::SeqCst) & WAITER != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn owner(lock: &OwnerLock) -> Option<OwnerId> {
        (lock.0.load(Ordering::SeqCst) & OWNER).checked_sub(1).map(OwnerId)
    }

    #[test]
    fn one_owner_at_a_time_and_a_request_reaches_it() {
        let lock = OwnerLock::default();
        assert!(!lock.request(), "there is no owner to ask");
        assert!(lock.try_lock(OwnerId(7)));
        assert!(!lock.try_lock(OwnerId(8)));
        assert_eq!(owner(&lock), Some(OwnerId(7)));
        assert!(lock.request());
        assert_eq!(owner(&lock), Some(OwnerId(7)), "the request does not hide the owner");
        assert!(lock.unlock(OwnerId(7)).has_request(), "the owner is told of the request");
        assert_eq!(owner(&lock), None);
        assert!(lock.try_lock(OwnerId(8)));
        assert!(!lock.unlock(OwnerId(8)).any(), "a request is told once");
    }

    #[test]
    fn a_lock_that_is_waited_for_is_free_for_waiters_only() {
        let lock = OwnerLock::default();
        assert_eq!(lock.poll_lock(OwnerId(1)), Ok(()), "nobody has it");
        for waiter in [2, 2, 3] {
            assert_eq!(lock.poll_lock(OwnerId(waiter)), Err(OwnerId(1)));
        }
        assert_eq!(owner(&lock), Some(OwnerId(1)), "waiting does not hide the owner");
        assert!(!lock.unlock(OwnerId(1)).any(), "who waits polls again");
        assert!(!lock.try_lock(OwnerId(4)) && lock.is_locked() && owner(&lock).is_none());
        assert!(lock.request(), "who waits will be the owner");
        assert_eq!(lock.poll_lock(OwnerId(2)), Ok(()));
        assert!(lock.unlock(OwnerId(2)).has_request(), "and is told of the request");
        assert!(lock.try_lock(OwnerId(4)), "the other one did not note again that it waits");
        assert!(lock.poll_lock(OwnerId(3)).is_err() && !lock.unlock(OwnerId(4)).any());
        assert!(lock.poll_lock(OwnerId(3)).is_ok() && !lock.unlock(OwnerId(3)).any());
        assert!(!lock.is_locked());
    }

    #[test]
    fn an_owner_is_asked_to_tell_once_and_whoever_waits() {
        let lock = OwnerLock::default();
        assert!(lock.try_lock(OwnerId(1)) && lock.poll_lock_told(OwnerId(2)).is_err());
        assert!(lock.poll_lock(OwnerId(3)).is_err() && lock.request());
        let left = lock.unlock(OwnerId(1));
        assert!(left.tells() && left.has_request());
        assert!(lock.poll_lock(OwnerId(3)).is_ok(), "another one was faster");
        assert_eq!(lock.poll_lock_told(OwnerId(2)), Err(OwnerId(3)));
        let left = lock.unlock(OwnerId(3));
        assert!(left.tells() && !left.has_request() && !lock.try_lock(OwnerId(1)));
        assert!(lock.poll_lock_told(OwnerId(2)).is_ok() && !lock.unlock(OwnerId(2)).any());
        assert!(!lock.is_locked());
    }
}
