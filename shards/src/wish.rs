//! What threads say to each other over an eviction in another's shard, and what they owe each other after it.
//!
//! ```text
//!   wisher:  word free? ------> takes the word, evicts, gives it back; somebody queued meanwhile? -> owes the shard a visit
//!            word taken? -----> wish := there; REQUEST into the word -> goes on with an extent of its own
//!   owner:   before it gives the word back: wish there? -> hands an extent over
//!            the word that it gave held REQUEST, and the wish is there: takes the word again, if nobody has, and hands one over
//! ```
//!
//! A **wish** is for one extent, however often it is said: whoever says it does not wait for it, so wishes that an owner was too busy to
//! hear must not add up until it has nothing left. A wish without a request may be heard late; one with a request is heard by the time
//! that the word is free, unless another wisher withdraws it.
//!
//! A **debt** is a visit that a thread owes a shard whose word it had without looking at the queue: who queued there in the meantime found the
//! word taken and relies on its holder. It is noted while another shard is in hand and paid when none is, by the same thread or by one that
//! comes across it earlier.

use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crate::word::Word;
use crossbeam_utils::CachePadded;

/// Others want an extent of a shard and did not take it themselves.
#[derive(Debug)]
pub(crate) struct Wish(AtomicBool);

impl Wish {
    pub(crate) fn new() -> Wish {
        Wish(AtomicBool::new(false))
    }

    /// Leaves a wish. False if there is one that was not heard.
    pub(crate) fn leave(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Leaves a wish with the owner of the word, who hears it at the latest when giving the word back. False, and no wish is there, if nobody owns it.
    pub(crate) fn leave_with_owner(&self, word: &Word) -> bool {
        // Release, and then the request: the owner that sees the bit sees the wish.
        self.0.store(true, Ordering::Release);
        let is_heard = word.request();
        if !is_heard {
            // The word was given back meanwhile, perhaps with the wish served.
            self.withdraw();
        }
        is_heard
    }

    /// The wish has come true, or is none any more.
    pub(crate) fn withdraw(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether there is a wish. Relaxed: it carries no data. After a `give` that says that there was a request, that one's wish is seen.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes a wish, to serve it. For the owner of the shard.
    pub(crate) fn take(&self) -> bool {
        self.is_there() && self.0.swap(false, Ordering::Acquire)
    }
}

/// Whether a shard is owed a visit.
#[derive(Debug)]
pub(crate) struct Debt(AtomicBool);

impl Debt {
    pub(crate) fn new() -> Debt {
        Debt(AtomicBool::new(false))
    }
}

/// How many shards are owed a visit, or about to be: never fewer than there are debts.
#[derive(Debug)]
pub(crate) struct Debts(CachePadded<AtomicU32>);

impl Debts {
    pub(crate) fn new() -> Debts {
        Debts(AtomicU32::new(0).into())
    }

    /// Notes that this thread owes a shard a visit.
    pub(crate) fn note(&self, debt: &Debt) {
        // Counted before it is there and taken off after it has gone: a thread that has a debt never finds that there are none. Relaxed: only
        // the thread's own must be seen by it; the release and acquire of the debt order what the word does not.
        self.0.fetch_add(1, Ordering::Relaxed);
        if debt.0.swap(true, Ordering::AcqRel) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a debt may be there; certainly if this thread has one.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Pays every debt that is there by `visit`, and those that the visits make. Does not wait for a debt that is only counted yet: who has
    /// counted it pays it.
    pub(crate) fn pay<'a, D: Iterator<Item = (usize, &'a Debt)>>(
        &self,
        debts: impl Fn() -> D,
        mut visit: impl FnMut(usize),
    ) {
        let mut has_paid = true;
        while has_paid && self.are_there() {
            has_paid = false;
            for (shard, debt) in debts() {
                if debt.0.load(Ordering::Relaxed) && debt.0.swap(false, Ordering::AcqRel) {
                    self.0.fetch_sub(1, Ordering::Relaxed);
                    visit(shard);
                    has_paid = true;
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_debt_that_is_noted_twice_is_paid_once() {
        let (debts, list) = (Debts::new(), [Debt::new(), Debt::new()]);
        for at in [1, 1, 0, 1] {
            debts.note(&list[at]);
        }
        let mut visited = Vec::new();
        debts.pay(|| list.iter().enumerate(), |shard| visited.push(shard));
        assert_eq!(visited, [0, 1]);
        assert!(!debts.are_there());
    }
}
