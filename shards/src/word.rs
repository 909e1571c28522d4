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
//! somebody wants the owner to look at the shard's requests before others do. The rest says whether the word is kept between two commits, and for
//! the how manieth time: see the module `keep`.
//!
//! It is never a lock to sleep on: taking it succeeds at once or fails at once. Who fails leaves its work in the shard's
//! queue. So that no work is left behind when the owner stops draining just as somebody queues, the rule is: queue first
//! and then try to take; give first and then look at the queue again. Both sides use `SeqCst`, so one of the two sees the other.

use crate::keep::AtWork;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use std::ptr;

const FREE: u64 = 0;
const REQUEST: u64 = 1 << 31;
const KEPT: u64 = 1 << 32;
const REVOKED: u64 = 1 << 33;
/// Which time the word is kept: in the bits above.
const TIMES_SHIFT: u32 = 34;

/// How often a word can be kept: each time has a number of its own.
pub(crate) const MOST_TIMES_KEPT: u32 = (1 << (u64::BITS - TIMES_SHIFT)) - 1;

/// Who owns a shard: any number below 2^31 - 1 that helps a person to name the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerId(pub u32);

/// One shard's ownership word.
#[derive(Debug)]
pub(crate) struct Word {
    now: AtomicU64,
    /// What says whether the keeper is at work. Stored before the word is kept, and read by who has found it kept: Relaxed, the word publishes it.
    keeper: AtomicPtr<AtWork>,
}

/// What a word holds while it is kept this one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept(u64);

impl Kept {
    fn revoked(self) -> u64 {
        self.0 ^ KEPT ^ REVOKED
    }
}

fn owned_by(owner: OwnerId) -> u64 {
    debug_assert!(u64::from(owner.0) < REQUEST - 1, "owner number {} does not fit the word", owner.0);
    (u64::from(owner.0) + 1) & !REQUEST
}

impl Word {
    pub(crate) fn new() -> Self {
        Self { now: AtomicU64::new(FREE), keeper: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Takes the shard if nobody has it, or who keeps it is not at work.
    ///
    /// Acquire (part of `SeqCst`) pairs with the release in [`give`](Self::give): the new owner sees all that the last
    /// one wrote. The load part of a failed try is `SeqCst` too: it is the second half of "queue, then try".
    #[inline]
    pub(crate) fn try_take(&self, owner: OwnerId) -> bool {
        match self.now.compare_exchange(FREE, owned_by(owner), Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(now) => now & KEPT != 0 && self.take_from_keeper(owner),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_from_keeper(&self, owner: OwnerId) -> bool {
        loop {
            match self.now.compare_exchange(FREE, owned_by(owner), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(now) if now & KEPT == 0 => return false,
                Err(now) => {
                    if let Some(is_taken) = self.revoke(Kept(now), owner) {
                        return is_taken;
                    }
                }
            }
        }
    }

    /// Revokes a word that is kept, and takes it unless the keeper is at work. None if the word is not any more what it was.
    fn revoke(&self, kept: Kept, owner: OwnerId) -> Option<bool> {
        // Acquire: pairs with the release in `keep`. Whatever comes of it, only who has made this exchange, and the keeper, answer for the word.
        self.now.compare_exchange(kept.0, kept.revoked(), Ordering::SeqCst, Ordering::SeqCst).ok()?;
        crate::barrier::heavy();
        // SAFETY: the pointer was stored before the word was kept (contract of `keep`: what it points to lives as long as this word). If it is
        // another keeper's by now, the word is not what it was, and the exchange below fails.
        let keeper = unsafe { &*self.keeper.load(Ordering::Relaxed) };
        if keeper.is_set() {
            // At work here, or in another shard: then it has let go of this word before, and that is seen, since the flag was.
            return (self.now.load(Ordering::SeqCst) & !REQUEST == kept.revoked()).then_some(false);
        }
        self.resolve(kept, owned_by(owner)).map(|_| true)
    }

    /// Ends a word's being revoked; tells whether a request came in meanwhile, which stays with an owner. None if somebody else has ended it.
    pub(crate) fn resolve(&self, kept: Kept, to: u64) -> Option<bool> {
        let mut now = kept.revoked();
        loop {
            let request = if to == FREE { 0 } else { now & REQUEST };
            match self.now.compare_exchange(now, to | request, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(now & REQUEST != 0),
                Err(newer) if newer & !REQUEST == kept.revoked() => now = newer,
                Err(_) => return None,
            }
        }
    }

    /// Keeps the word instead of giving it back; `times` is another number each time. None, and it is owned as before, if there is a request.
    ///
    /// Only the owner may call it, and `keeper` is to be that one's. Release (part of `SeqCst`) as in `give`.
    ///
    /// # Safety
    /// `keeper` lives as long as the word.
    pub(crate) unsafe fn keep(&self, owner: OwnerId, times: u32, keeper: *const AtWork) -> Option<Kept> {
        self.keeper.store(keeper.cast_mut(), Ordering::Relaxed);
        let kept = Kept(owned_by(owner) | KEPT | u64::from(times) << TIMES_SHIFT);
        let kept_now = self.now.compare_exchange(owned_by(owner), kept.0, Ordering::SeqCst, Ordering::SeqCst);
        kept_now.is_ok().then_some(kept)
    }

    /// Whether the word is still kept. Relaxed: while it is, nobody but the keeper has had the shard; the order against the keeper's flag is made
    /// by the barrier between them.
    #[inline(always)]
    pub(crate) fn is_kept_as(&self, kept: Kept) -> bool {
        self.now.load(Ordering::Relaxed) == kept.0
    }

    /// Takes a word back that was kept and is revoked.
    pub(crate) fn take_back(&self, kept: Kept, owner: OwnerId) -> bool {
        self.resolve(kept, owned_by(owner)).is_some()
    }

    /// Gives a word back that was kept and is revoked; tells whether a request came in meanwhile.
    pub(crate) fn give_back(&self, kept: Kept) -> bool {
        self.resolve(kept, FREE).unwrap_or(false)
    }

    /// Gives a word back that is kept, by a keeper that is not at work. Who revokes it meanwhile tries again.
    pub(crate) fn let_go(&self, kept: Kept) {
        let was_kept = self.now.compare_exchange(kept.0, FREE, Ordering::SeqCst, Ordering::SeqCst);
        if was_kept.is_err() {
            self.give_back(kept);
        }
    }

    /// Whether somebody has the shard: what a failed try would say, without writing. `SeqCst`, as that one's load. Of a word that is kept only a
    /// try can tell.
    pub(crate) fn is_taken(&self) -> bool {
        let now = self.now.load(Ordering::SeqCst);
        now != FREE && now & KEPT == 0
    }

    /// Gives the shard back; tells whether a request came in meanwhile.
    ///
    /// Only the owner may call it. A swap and not a store, so that a request cannot fall between looking and giving.
    #[inline]
    pub(crate) fn give(&self) -> bool {
        self.now.swap(FREE, Ordering::SeqCst) & REQUEST != 0
    }

    /// Asks the owner, if there is one, to look at the shard's requests. False if nobody owns it, or somebody keeps it.
    ///
    /// The bit carries no data: what is asked for lies in the shard's own atomics, stored before with Release or stronger.
    pub(crate) fn request(&self) -> bool {
        let mut now = self.now.load(Ordering::Relaxed);
        while now != FREE && now & KEPT == 0 {
            match self.now.compare_exchange_weak(now, now | REQUEST, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(newer) => now = newer,
            }
        }
        false
    }

    /// Who owns the shard now: a hint, for reports. Nobody has a shard only because it is kept.
    pub(crate) fn owner(&self) -> Option<OwnerId> {
        let now = self.now.load(Ordering::Relaxed);
        let owner = (now & (REQUEST - 1)) as u32;
        (owner != 0 && now & KEPT == 0).then(|| OwnerId(owner - 1))
    }

    /// Whether somebody keeps the shard between two commits: a hint.
    #[cfg(not(loom))]
    pub(crate) fn is_kept(&self) -> bool {
        self.now.load(Ordering::Relaxed) & KEPT != 0
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
