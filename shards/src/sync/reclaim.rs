//! What threads tell each other about evictions in another's shard, and the drains that these leave
//! to be run.
//!
//! ```text
//!   requester   shard free:    locks it, evicts, unlocks
//!                              something was pushed meanwhile -> defers a drain
//!               shard locked:  request := pending, REQUEST bit of the lock
//!                              -> uses an extent of its own
//!
//!   owner       before the unlock, a request is pending       -> hands an extent over
//!               unlock returned REQUEST, and it is pending    -> locks again, hands one over
//! ```
//!
//! An **extent request** is for one extent, however often it is posted: whoever posts does not wait
//! for it, so requests that a busy owner has not seen must not add up until it has nothing left.
//! One that was posted with the REQUEST bit is seen by the time that the shard is free, unless
//! another requester withdraws it; one without may be seen late.
//!
//! A **pending drain** is work that was left in a shard, or may have been: whoever helps others
//! stops after a budget, or finds no extent, and a thread that locks a shard without looking at its
//! queue has been relied upon by those who pushed there. It is noted before the unlock, by threads
//! that do not come back by themselves, and taken by the next owner that drains. Every thread looks
//! at the notes when it has unlocked its last shard; where there are workers each unlock looks at
//! that shard's, and has one of them come. So a shard that nobody owns has no work that is not
//! noted; and because a shard without an extent is noted before it requests one, the owner that
//! hands the extent over finds the note.
//!
//! - `ExtentRequest`: publishes no data, only that an extent is wanted. AcqRel swap in `post`;
//!   Release store, then the lock's REQUEST, in `post_to_owner`; Acquire swap in `take`; Relaxed
//!   load in `is_pending` after the lock's `unlock`. Model:
//!   `an_extent_request_left_with_an_owner_is_served`.
//! - `PendingDrain`: publishes that its shard was counted, and that there is work. SeqCst RMW in
//!   `defer`, AcqRel in `take`; SeqCst load in `is_pending`: "note it, then a worker finds the
//!   shard locked; unlock, then look at the note". `PendingDrains`: the number publishes nothing;
//!   Relaxed. Models: `a_deferred_drain_is_run`, `every_pending_drain_is_found`,
//!   `what_a_budget_leaves_is_noted`,
//!   `what_found_no_extent_is_done_by_who_hands_one_over`.

use crate::sync::lock::OwnerLock;
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crossbeam_utils::CachePadded;

/// Whether others want an extent of a shard.
#[derive(Debug, Default)]
pub(crate) struct ExtentRequest(AtomicBool);

impl ExtentRequest {
    /// Posts a request. False if one was pending.
    pub(crate) fn post(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Posts a request that the owner of the lock sees at the latest when it unlocks. Posts none if
    /// the shard is free.
    pub(crate) fn post_to_owner(&self, lock: &OwnerLock) -> bool {
        // Before the lock's bit: an owner that sees the bit sees the request.
        self.0.store(true, Ordering::Release);
        let is_posted = lock.request();
        if !is_posted {
            // The shard was unlocked meanwhile, perhaps with the request served.
            self.withdraw();
        }
        is_posted
    }

    /// The request was served by the caller, or is void.
    pub(crate) fn withdraw(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether a request is pending. Certain after an `unlock` that returned that one's REQUEST; a
    /// hint otherwise.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes a request in order to serve it. For the owner of the shard.
    pub(crate) fn take(&self) -> bool {
        self.is_pending() && self.0.swap(false, Ordering::Acquire)
    }
}

/// Whether a shard has a drain to be run.
#[derive(Debug, Default)]
pub(crate) struct PendingDrain(AtomicBool);

impl PendingDrain {
    /// Whether there may be work that was left. SeqCst: whoever unlocks looks for a worker that
    /// came before.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// How many drains are pending, or about to be: never fewer than there are.
#[derive(Debug, Default)]
pub(crate) struct PendingDrains(CachePadded<AtomicU32>);

impl PendingDrains {
    /// Notes that a shard must be drained later.
    pub(crate) fn defer(&self, drain: &PendingDrain) {
        // Counted before it is noted, and uncounted after it is gone: a thread that has noted one
        // never finds none. Relaxed is enough, since only this thread must see its own count.
        self.0.fetch_add(1, Ordering::Relaxed);
        if drain.0.swap(true, Ordering::SeqCst) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a drain may be pending; certainly if this thread has deferred one.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The owner of the shard is about to drain it. Whether that was pending.
    #[inline]
    pub(crate) fn take(&self, drain: &PendingDrain) -> bool {
        let is_taken = drain.is_pending() && drain.0.swap(false, Ordering::AcqRel);
        if is_taken {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// Tries every pending drain, and those that are deferred meanwhile, until none of them can be
    /// done: `run` says whether it has [taken](Self::take) the drain and left nothing. Does not
    /// wait for one that is only counted yet: the thread that counted it runs it.
    pub(crate) fn run<'a, D: Iterator<Item = (usize, &'a PendingDrain)>>(
        &self,
        drains: impl Fn() -> D,
        mut run: impl FnMut(usize) -> bool,
    ) {
        let mut has_run = true;
        while has_run && self.any() {
            has_run = false;
            for (shard, drain) in drains() {
                has_run |= drain.is_pending() && run(shard);
            }
        }
    }
}

/// Why draining stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainResult {
    /// The queue is empty.
    Empty,
    /// The budget is spent; there is more.
    BudgetSpent,
    /// There is no extent without waiting.
    NoExtent,
}

/// Helps the owners of a shard: drains it until its queue is empty, another thread has locked it,
/// there is no extent, or the helper's budget ends. `drain` drains what it was given locked, and
/// `leave` notes what is left before the unlock. Whether nothing was left.
///
/// "Push, then try to lock; unlock, then look at the queue again." And, since a thread that hands
/// an extent over leaves a shard alone that is locked: "unlock, then look for an extent again."
pub(crate) fn help<G>(
    mut try_lock: impl FnMut() -> Option<G>,
    mut drain: impl FnMut(&mut G) -> DrainResult,
    leave: impl Fn(),
    is_queue_empty: impl Fn() -> bool,
    has_extent: impl Fn() -> bool,
) -> bool {
    while let Some(mut guard) = try_lock() {
        let result = drain(&mut guard);
        if result != DrainResult::Empty {
            leave();
        }
        drop(guard);
        let is_over = match result {
            DrainResult::Empty => is_queue_empty(),
            DrainResult::BudgetSpent => true,
            DrainResult::NoExtent => !has_extent(),
        };
        if is_over {
            return result == DrainResult::Empty;
        }
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_drain_that_is_deferred_twice_is_run_once() {
        let (pending, list) = (PendingDrains::default(), [PendingDrain::default(), PendingDrain::default()]);
        for at in [1, 1, 0, 1] {
            pending.defer(&list[at]);
        }
        let mut run = Vec::new();
        let each = || list.iter().enumerate();
        pending.run(each, |shard| {
            run.push(shard);
            false
        });
        assert_eq!(run, [0, 1], "what cannot be done is tried once");
        assert!(pending.any() && list[0].is_pending());
        pending.run(each, |shard| {
            pending.take(&list[shard]);
            run.push(shard);
            true
        });
        assert_eq!(run, [0, 1, 0, 1]);
        assert!(!pending.any());
    }
}
