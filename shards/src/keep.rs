//! A kept word: who commits to one shard again and again, undisturbed, does not give its word back after each commit.
//!
//! ```text
//!   keeper                                              who else wants the shard
//!   ------                                              ------------------------
//!   after many takes in a row: OWNED -> KEPT
//!
//!   flag := at work                                     KEPT -> REVOKED
//!   light barrier                                       heavy barrier
//!   KEPT still? -- no: as anybody else                  flag: at work? -- no: REVOKED -> OWNED, it is its own
//!    | yes                                               | yes
//!   writes                                              goes away, as from a word that is taken
//!   flag := not at work (Release)
//!   light barrier
//!   KEPT still? -- no: REVOKED -> FREE, looks again
//! ```
//!
//! A commit to a kept shard stores two times into a line of the committer's own and loads the word, which nobody writes: no read-modify-write,
//! which would wait until the bytes of the chunk before it have left the store buffer.
//!
//! Why only one has the shard. Who revokes stores REVOKED and then loads the flag; the keeper stores the flag and then loads the word; the
//! [barriers](crate::barrier) between make one see the other. If the keeper sees REVOKED it has not touched anything, and takes the word by an
//! exchange like everybody. If the other sees "not at work", the keeper will see REVOKED at its next look. Then only these two can end REVOKED,
//! each by an exchange from a value that the word never has again: it counts how often it was kept, and is not kept any more when the numbers are
//! used up. The load of "not at work" is an Acquire and its partner the Release of the keeper's last commit, so what that wrote is seen.
//!
//! Why nothing is left behind. Who queues tries to take the word then, and does one of three things. It takes it. Or it revokes it and finds the
//! keeper at work: that one's store "not at work" comes after the heavy barrier, hence so does its look at the word, which says REVOKED: it gives
//! the word back and looks at the queue. Or it finds the word revoked or owned: it is before the exchange by which somebody ends that, who looks
//! at the queue when giving the word back. The flag is the keeper's, not the shard's (an old keeper's store must not hide a new one's): seen set,
//! it may be for another shard. But no keeper keeps a second word before it has let go of the first; the flag's Release shows that to who loads
//! it, and that one tries again.
//!
//! Why a batch in hand need not be announced, as `ticket` says: the flag is stored before the tickets are taken, with a Release. By the chain of
//! the counter who has loaded a larger number loads "at work" or what was stored after it, with all of the batch.
//!
//! A keeper that stops, or whose thread ends without a drop, between two commits holds nobody up: its flag says so.

use crate::sync::{AtomicBool, Ordering};
use crate::word::{Kept, OwnerId, Word};
use std::ptr;

/// So many takes in a row, by one committer and with nobody else between, until a word is kept: then what it may cost to revoke it is little
/// beside the commits in between, however often that happens.
#[cfg(not(loom))]
const TAKES: u32 = 1024;

/// Whether a keeper is at work in the shard that it keeps. Written by the keeper alone.
#[derive(Debug)]
pub(crate) struct AtWork(AtomicBool);

impl AtWork {
    pub(crate) fn new() -> AtWork {
        AtWork(AtomicBool::new(false))
    }

    /// Release: publishes with `true` that other words were let go of, with `false` what was written into the shard.
    #[inline(always)]
    fn set(&self, is_at_work: bool) {
        self.0.store(is_at_work, Ordering::Release);
    }

    /// Acquire: pairs with `set`.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A committer as one who may keep a word.
#[derive(Debug)]
pub(crate) struct Keeper {
    owner: OwnerId,
    at_work: *const AtWork,
    /// The word that is kept, or was until somebody revoked it; null if none is.
    word: *const Word,
    kept: Option<Kept>,
}

// SAFETY: what it points to is atomic, and lives as long as it does (contract of `new`).
unsafe impl Send for Keeper {}

/// How a word was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Had {
    /// It was taken, and is to be given back or kept.
    Taken,
    /// It was kept, and stays so.
    Kept,
}

impl Keeper {
    /// # Safety
    /// The flag is this keeper's alone as long as that lives. The flag, and every word that the keeper is used with, live until all of these are
    /// not used any more.
    pub(crate) unsafe fn new(owner: OwnerId, at_work: *const AtWork) -> Keeper {
        Keeper { owner, at_work, word: ptr::null(), kept: None }
    }

    #[inline]
    pub(crate) fn owner(&self) -> OwnerId {
        self.owner
    }

    #[inline(always)]
    fn at_work(&self) -> &AtWork {
        // SAFETY: the contract of `new`.
        unsafe { &*self.at_work }
    }

    /// Takes a word, as [`Word::try_take`] does, unless it is this keeper's already.
    #[inline(always)]
    pub(crate) fn try_take(&mut self, word: &Word) -> Option<Had> {
        match self.kept {
            Some(kept) if ptr::eq(self.word, word) => {
                self.at_work().set(true);
                crate::barrier::light();
                if word.is_kept_as(kept) { Some(Had::Kept) } else { self.take_back(word, kept) }
            }
            _ => word.try_take(self.owner).then_some(Had::Taken),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_back(&mut self, word: &Word, kept: Kept) -> Option<Had> {
        self.forget();
        self.at_work().set(false);
        // Who revoked it and saw the flag just now has left it to this thread.
        (word.take_back(kept, self.owner) || word.try_take(self.owner)).then_some(Had::Taken)
    }

    /// Ends the work in a shard whose word was kept; tells whether a request came in meanwhile. The queue is to be looked at again.
    #[inline(always)]
    pub(crate) fn end(&mut self, word: &Word) -> bool {
        self.at_work().set(false);
        crate::barrier::light();
        match self.kept {
            Some(kept) if !word.is_kept_as(kept) => self.give_back(word, kept),
            _ => false,
        }
    }

    #[cold]
    #[inline(never)]
    fn give_back(&mut self, word: &Word, kept: Kept) -> bool {
        self.forget();
        word.give_back(kept)
    }

    /// Keeps a word that was taken, instead of giving it back, for the `times`th time. False if it is to be given back, since there is a request.
    /// The queue is to be looked at again.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep(&mut self, word: &Word, times: u32) -> bool {
        self.let_go();
        // SAFETY: the contract of `new`.
        self.kept = unsafe { word.keep(self.owner, times, self.at_work) };
        self.word = word;
        self.kept.is_some()
    }

    /// Gives the word back that is kept.
    fn let_go(&mut self) {
        if let Some(kept) = self.kept {
            // SAFETY: the contract of `new`.
            unsafe { &*self.word }.let_go(kept);
            self.forget();
        }
    }

    fn forget(&mut self) {
        (self.word, self.kept) = (ptr::null(), None);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// How long a shard has been one committer's. What the owner of the word has.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Quiet {
    owner: OwnerId,
    /// How many takes are missing.
    left: u32,
    /// How often the word was kept.
    times: u32,
}

#[cfg(not(loom))]
impl Quiet {
    pub(crate) fn new() -> Quiet {
        Quiet { owner: OwnerId(u32::MAX), left: TAKES, times: 0 }
    }

    /// A committer has taken the word to add chunks.
    #[inline]
    pub(crate) fn count(&mut self, owner: OwnerId) {
        if self.owner != owner {
            self.disturb();
            self.owner = owner;
        }
        self.left = self.left.saturating_sub(1);
    }

    /// Somebody has taken it for another reason.
    #[inline]
    pub(crate) fn disturb(&mut self) {
        self.owner = OwnerId(u32::MAX);
        self.left = TAKES;
    }

    /// Whether the word should be kept.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// For which time, if it can be. The next time is far off in any case.
    #[cold]
    pub(crate) fn next_time(&mut self) -> Option<u32> {
        self.left = TAKES;
        let may_keep = crate::barrier::is_ready() && self.times < crate::word::MOST_TIMES_KEPT;
        may_keep.then(|| {
            self.times += 1;
            self.times
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_request_in_a_revoked_word_reaches_the_keeper() {
        let (word, at_work) = (Word::new(), AtWork::new());
        // SAFETY: the keeper is dropped before both.
        let mut keeper = unsafe { Keeper::new(OwnerId(1), &raw const at_work) };
        for times in 1..3 {
            assert_eq!(keeper.try_take(&word), Some(Had::Taken));
            assert!(keeper.keep(&word, times));
            assert!(!word.request(), "nobody is there to hear it");
            assert_eq!(keeper.try_take(&word), Some(Had::Kept));
            assert!(!word.try_take(OwnerId(2)), "the keeper is at work");
            assert_eq!(word.owner(), Some(OwnerId(1)));
            assert!(word.request());
            assert!(keeper.end(&word), "the keeper hears of the request");
            assert!(word.try_take(OwnerId(2)));
            assert!(!word.give(), "a request is heard once");
        }
    }
}
