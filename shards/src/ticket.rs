//! Tickets and cuts: one order over all shards that nobody waits for.
//!
//! ```text
//!   committer                        counter      cells          reader
//!   ---------                        -------      -----          ------
//!   1 cell  := seen     ------------------------> [ 38 ]
//!   2 first := counter += n  ----->  [ 44 ]                      c   := counter        = 44
//!     cell  := first    ------------------------> [ 41 ]
//!   3 queue the batch's items                     [ 41 ] ----->  cut := min(c, cells)  = 41
//!   4 cell  := IDLE     ------------------------> [  - ]
//! ```
//!
//! What a committer announces at first is the last value of the counter that it has seen, not the present one: to look would be to
//! fetch the counter's cache line twice for each batch. The announcement is made exact as soon as the tickets are there.
//!
//! A **ticket** numbers one chunk; a batch takes as many as it has chunks with one `fetch_add`, so they are
//! consecutive. A **cut** is a number such that every chunk with a smaller ticket is queued at its shard. It always lies
//! between two batches, because the counter and the cells only ever hold numbers at which a batch begins.
//!
//! Why a cut is right. Take a batch whose first ticket `t` is below the `c` that the reader loaded. The reader's load
//! (Acquire) read from that batch's `fetch_add` (Release) or from a later one, and a chain of read-modify-writes carries
//! the release of each of its links. So the announcement, stored before the `fetch_add`, happens before the reader looks
//! at the cell: it sees the announcement (`<= t`: the cut does not cover the batch), or something that the same
//! committer stored later, which it stored after queueing the batch, with Release: the load acquires the queued items.
//! No fence and no `SeqCst` is needed. A committer that is descheduled between 1 and 4 makes cuts older and delays nobody.
//!
//! A batch for one shard whose word its committer has needs no announcement, if the word is taken before the tickets and kept until all of
//! the batch is written ([`Seat::take_in_hand`]): by the same chain who has loaded a larger number finds the word taken, or given back later.
//! So whoever takes a cut and then that shard's word finds all of the batch there, which is what every reader does. Where the word is kept, the keeper's
//! flag stands for it (module `keep`). (The Release is by this
//! argument alone: loom runs the stores of one thread in program order.)

use crate::keep::AtWork;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// What an idle committer's cell holds: above every ticket.
const IDLE: u64 = u64::MAX;

/// How often a reader looks again before it takes an older cut.
#[cfg(not(loom))]
const LOOKS: usize = 4;
#[cfg(loom)]
const LOOKS: usize = 0;

/// The counter that all committers share, and their cells.
#[derive(Debug)]
pub(crate) struct Tickets {
    /// The next ticket. `fetch_add` with Release publishes the announcement to whoever loads it with Acquire in `cut`.
    next: CachePadded<AtomicU64>,
    /// The newest cell; a list that only grows. Stored with Release by `register` (publishes the cell's `next` field),
    /// loaded with Acquire by whoever walks it.
    cells: AtomicPtr<Cell>,
    /// The largest cut so far. Raised and read with one AcqRel operation.
    last_cut: CachePadded<AtomicU64>,
}

#[derive(Debug)]
struct Cell {
    /// IDLE, or a lower bound of the tickets of the batch that this committer is queueing.
    bound: CachePadded<AtomicU64>,
    /// Whether a committer holds the cell. Taken with Acquire, given back with Release: the next holder's stores to
    /// `bound` come after the last holder's.
    taken: AtomicBool,
    /// Whether the committer is at work in the shard that it keeps. Written at its every commit, so it has a line of its own.
    at_work: CachePadded<AtWork>,
    /// The cell registered before this one; written before the cell is published and never again.
    next: *mut Cell,
}

/// One committer's place in the list of announcements. Gives its cell back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    cell: *const Cell,
    /// A number that the counter once had: what is behind this committer's last batch.
    seen: u64,
}

// SAFETY: a seat points to a cell that lives as long as `Tickets` (its holder keeps that alive, see `register`), and all
// that is reached through it is atomic or immutable.
unsafe impl Send for Seat {}

/// An announced batch: while it lives no cut passes it.
#[derive(Debug)]
pub(crate) struct Announced<'a> {
    tickets: &'a Tickets,
    cell: &'a Cell,
    seen: &'a mut u64,
}

impl Tickets {
    pub(crate) fn new() -> Self {
        Self {
            next: CachePadded::new(AtomicU64::new(0)),
            cells: AtomicPtr::new(std::ptr::null_mut()),
            last_cut: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Takes a free cell, or adds one to the list.
    ///
    /// # Safety
    ///
    /// The seat must not be used, nor dropped, after `self` is dropped.
    pub(crate) unsafe fn register(&self) -> Seat {
        let seen = self.next.load(Ordering::Relaxed);
        if let Some(cell) = self.iter().find(|cell| cell.try_take()) {
            return Seat { cell, seen };
        }
        let mut head = self.cells.load(Ordering::Acquire);
        let new = Box::into_raw(Box::new(Cell {
            bound: CachePadded::new(AtomicU64::new(IDLE)),
            taken: AtomicBool::new(true),
            at_work: CachePadded::new(AtWork::new()),
            next: head,
        }));
        loop {
            // Release publishes the cell; on failure Acquire, because the new head is walked through this cell's `next`.
            match self.cells.compare_exchange(head, new, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Seat { cell: new, seen },
                Err(newer) => {
                    head = newer;
                    // SAFETY: the cell is not published yet, so nobody else reads or writes it.
                    unsafe { (*new).next = head };
                }
            }
        }
    }

    /// A hint that tickets will be taken in a moment: the counter's line, which another core has, comes while this one looks at the batch and for its
    /// home. Not given earlier, as at the end of the batch before: among many cores the line would be gone again, for nothing.
    #[inline(always)]
    pub(crate) fn will_be_taken(&self) {
        watershed_simd::prefetch::for_write_shared((&raw const *self.next).cast());
    }

    /// A number such that every chunk with a smaller ticket has been queued, and no batch lies on both sides of it. Never smaller than an
    /// earlier one, which stays right for ever.
    pub(crate) fn cut(&self) -> u64 {
        let mut cut = self.look();
        // A committer that is between announcing and taking its tickets holds the cut back for a few instructions.
        for _ in 0..LOOKS {
            if cut == self.next.load(Ordering::Relaxed) {
                break;
            }
            crate::sync::spin_hint();
            cut = cut.max(self.look());
        }
        // AcqRel: whoever gets an earlier reader's cut also sees what that one saw.
        cut.max(self.last_cut.fetch_max(cut, Ordering::AcqRel))
    }

    fn look(&self) -> u64 {
        // Acquire pairs with the Release of every `fetch_add` up to the value read.
        let next = self.next.load(Ordering::Acquire);
        // Acquire pairs with the Release stores of `announce` and of `Announced::drop`: batches queued before are seen.
        self.iter().fold(next, |cut, cell| cut.min(cell.bound.load(Ordering::Acquire)))
    }

    /// The ticket that the next batch will start with, as a moment in the order of all batches: a batch with a smaller
    /// ticket is announced to every later cut, and one that takes a ticket from here on sees what the caller did before.
    ///
    /// A read-modify-write that adds nothing: a load would not be seen by the batches after it.
    pub(crate) fn now(&self) -> u64 {
        self.next.fetch_add(0, Ordering::AcqRel)
    }

    fn iter(&self) -> impl Iterator<Item = &Cell> {
        // Acquire pairs with the Release in `register`: the cell and its `next` are visible.
        let mut at = self.cells.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: `at` is null or was published by `register`; cells are freed only when `self` is dropped, and
            // `next` is not written after publication.
            let cell = unsafe { at.as_ref() }?;
            at = cell.next;
            Some(cell)
        })
    }
}

impl Drop for Tickets {
    fn drop(&mut self) {
        let mut at = self.cells.load(Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: each cell came from `Box::into_raw` in `register`, is in the list once, and no seat is used any
            // more (contract of `register`).
            let cell = unsafe { Box::from_raw(at) };
            at = cell.next;
        }
    }
}

impl Cell {
    fn try_take(&self) -> bool {
        // Acquire pairs with the Release in `Seat::drop`.
        self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Seat {
    /// The flag of who has the seat. It lives as long as the `Tickets`.
    pub(crate) fn at_work(&self) -> *const AtWork {
        // SAFETY: the cell lives as long as its `Tickets` (contract of `register`).
        unsafe { &*(*self.cell).at_work }
    }

    /// Announces a batch. Call [`Announced::take`] for its tickets, and drop the announcement when the last item is
    /// queued (or the batch was given up).
    ///
    /// `&mut` because a seat announces one batch at a time.
    pub(crate) fn announce<'a>(&'a mut self, tickets: &'a Tickets) -> Announced<'a> {
        // SAFETY: the cell lives as long as its `Tickets` (contract of `register`).
        let cell: &Cell = unsafe { &*self.cell };
        // Release: a reader that sees this bound, and not the IDLE before it, still sees what the last batch queued.
        cell.bound.store(self.seen, Ordering::Release);
        Announced { tickets, cell, seen: &mut self.seen }
    }

    /// An announcement that was made and forgotten, which still stands.
    pub(crate) fn announced_before<'a>(&'a mut self, tickets: &'a Tickets) -> Announced<'a> {
        // SAFETY: as in `announce`.
        Announced { tickets, cell: unsafe { &*self.cell }, seen: &mut self.seen }
    }
}

impl Seat {
    /// The first of `num_chunks` consecutive tickets for a batch that is not announced, since the caller has the word of the one shard that all of
    /// it goes to, and keeps it until all of it is written: see the module's text.
    #[inline]
    pub(crate) fn take_in_hand(&mut self, tickets: &Tickets, num_chunks: u64) -> u64 {
        // Release publishes with the number that the word is taken. Acquire as in `Announced::take`.
        let first = tickets.next.fetch_add(num_chunks, Ordering::AcqRel);
        self.seen = first + num_chunks;
        first
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // SAFETY: the cell lives as long as its `Tickets` (contract of `register`).
        let cell: &Cell = unsafe { &*self.cell };
        // Release pairs with the Acquire in `try_take`.
        cell.taken.store(false, Ordering::Release);
    }
}

impl Announced<'_> {
    /// The first of `num_chunks` consecutive tickets; a batch of patches alone takes one all the same.
    ///
    /// To be called before the homes are looked up: see [`Tickets::now`].
    pub(crate) fn take(&mut self, num_chunks: u64) -> u64 {
        let num_chunks = num_chunks.max(1);
        // Release publishes the announcement with the number, see the module's text; Acquire sees what the callers of
        // `now` that came before did.
        let first = self.tickets.next.fetch_add(num_chunks, Ordering::AcqRel);
        // From now on cuts need not be older than this batch. Release as in `announce`.
        self.cell.bound.store(first, Ordering::Release);
        *self.seen = first + num_chunks;
        first
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        // Release: whoever sees IDLE in `cut` sees what was queued before.
        self.cell.bound.store(IDLE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_cut_stops_at_an_announced_batch_and_passes_it_when_it_is_queued() {
        let tickets = Tickets::new();
        // SAFETY: both seats are dropped before `tickets`.
        let (mut a, mut b) = unsafe { (tickets.register(), tickets.register()) };
        assert_eq!(tickets.cut(), 0);

        let mut slow = a.announce(&tickets);
        let first_slow = slow.take(3);
        let mut quick = b.announce(&tickets);
        let first_quick = quick.take(2);
        drop(quick);
        assert_eq!((first_slow, first_quick), (0, 3));
        assert_eq!(tickets.cut(), 0, "the quick batch is not readable before the slow one");

        drop(slow);
        assert_eq!(tickets.cut(), 5);
    }

    #[test]
    fn a_seat_that_was_given_back_is_used_again() {
        let tickets = Tickets::new();
        for _ in 0..100 {
            // SAFETY: the seat is dropped before `tickets`.
            drop(unsafe { tickets.register() });
        }
        assert_eq!(tickets.iter().count(), 1);
    }
}
