//! The ownership word: who may touch a shard's ring now.
//!
//! ```text
//!        try_take (Acquire)                 give (swap, AcqRel)
//!  FREE ------------------> OWNED(who) ----------------------> FREE
//!                              |  ^
//!                 request      v  |  (the bit stays until the owner gives the word back)
//!                           OWNED(who) + REQUEST
//! ```
//!
//! Bits 0..=30 hold 0 for free or the owner's number plus one (so that a stuck owner can be named), bit 31 is REQUEST:
//! somebody wants the owner to look at the shard's requests before others do.
//!
//! It is never a lock to sleep on: taking it succeeds at once or fails at once. Who fails leaves its work in the shard's
//! queue. So that no work is left behind when the owner stops draining just as somebody queues, the rule is: queue first
//! and then try to take; give first and then look at the queue again. Both sides use `SeqCst`, so one of the two sees the other.

use crate::sync::{AtomicU32, Ordering};

const FREE: u32 = 0;
const REQUEST: u32 = 1 << 31;

/// Who owns a shard: any number below 2^31 - 1 that helps a person to name the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerId(pub u32);

/// One shard's ownership word.
#[derive(Debug)]
pub(crate) struct Word(AtomicU32);

impl Word {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes the shard if nobody has it.
    ///
    /// Acquire (part of `SeqCst`) pairs with the release in [`give`](Self::give): the new owner sees all that the last
    /// one wrote. The load part of a failed try is `SeqCst` too: it is the second half of "queue, then try".
    #[inline]
    pub(crate) fn try_take(&self, owner: OwnerId) -> bool {
        debug_assert!(owner.0 < REQUEST - 1, "owner number {} does not fit the word", owner.0);
        self.0.compare_exchange(FREE, (owner.0 + 1) & !REQUEST, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whether somebody has the shard: what a failed try would say, without writing. `SeqCst`, as that one's load.
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::SeqCst) != FREE
    }

    /// Gives the shard back; tells whether a request came in meanwhile.
    ///
    /// Only the owner may call it. A swap and not a store, so that a request cannot fall between looking and giving.
    #[inline]
    pub(crate) fn give(&self) -> bool {
        self.0.swap(FREE, Ordering::SeqCst) & REQUEST != 0
    }

    /// Asks the owner, if there is one, to look at the shard's requests. False if nobody owns it.
    ///
    /// The bit carries no data: what is asked for lies in the shard's own atomics, stored before with Release or stronger.
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

    /// Who owns the shard now: a hint, for reports.
    pub(crate) fn owner(&self) -> Option<OwnerId> {
        match self.0.load(Ordering::Relaxed) & !REQUEST {
            FREE => None,
            owner => Some(OwnerId(owner - 1)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_owner_at_a_time_and_a_request_reaches_it() {
        let word = Word::new();
        assert!(!word.request(), "nobody to ask");
        assert!(word.try_take(OwnerId(7)));
        assert!(!word.try_take(OwnerId(8)));
        assert_eq!(word.owner(), Some(OwnerId(7)));
        assert!(word.request());
        assert_eq!(word.owner(), Some(OwnerId(7)), "the request does not hide the owner");
        assert!(word.give(), "the owner hears of the request");
        assert_eq!(word.owner(), None);
        assert!(word.try_take(OwnerId(8)));
        assert!(!word.give(), "a request is heard once");
    }
}
