//! Tickets and cuts: one order over all shards that nobody waits for.
//!
//! ```text
//!   committer                        counter      cells          reader
//!   ---------                        -------      -----          ------
//!   1 cell  := seen     ------------------------> [ 38 ]
//!   2 first := counter += n  ----->  [ 44 ]                      c   := counter        = 44
//!     cell  := first    ------------------------> [ 41 ]
//!   3 push the batch                              [ 41 ] ----->  cut := min(c, cells)  = 41
//!   4 cell  := IDLE     ------------------------> [  - ]
//! ```
//!
//! A **ticket** numbers one chunk; a batch takes as many as it has chunks with one `fetch_add`, so
//! they are consecutive. A **cut** is a number such that every chunk with a smaller ticket is
//! queued at its shard. It always lies between two batches, because counter and cells only hold
//! numbers at which a batch begins.
//!
//! A committer first reserves the last value of the counter that it has seen, not the present one:
//! a look at the counter would fetch its cache line twice for each batch. Step 2 makes the
//! reservation exact.
//!
//! Why a cut is right. Take a batch whose first ticket `t` is below the `c` that the reader loaded.
//! That load (Acquire) read from the batch's `fetch_add` (Release) or from a later one, and a chain
//! of read-modify-writes carries the release of each of its links. So the reservation, stored
//! before the `fetch_add`, happens before the reader looks at the cell. It sees the reservation
//! (`<= t`: the cut does not cover the batch), or something that the same committer stored later;
//! that was stored after the batch was queued, with Release, so the load acquires the queued items.
//! Neither a fence nor SeqCst is needed. A committer that is descheduled between 1 and 4 makes cuts
//! older and delays nobody.
//!
//! Why a locked shard needs no reservation ([`CommitterCell::take_tickets_locked`]). The batch is
//! for one shard, whose lock is taken before the tickets and held until all of it is written. By
//! the same chain, whoever has loaded a larger number finds the shard locked, or unlocked later. So
//! whoever takes a cut and then that shard's lock finds all of the batch, and every reader does
//! just that.
//!
//! - `Tickets::next`: publishes the reservation stored, or the lock taken, before it; with `now`,
//!   what the caller did. AcqRel RMW in `take_tickets`, `take_tickets_locked` and `now`; Acquire
//!   load in `cut_once`. Models: `a_cut_covers_only_what_is_queued`,
//!   `a_locked_shard_needs_no_reservation`, `homes_never_split`; argument for the lock taken.
//! - `Tickets::last_cut`: publishes what an earlier reader has seen. AcqRel RMW, with itself.
//!   Model: `a_cut_covers_only_what_is_queued`.
//! - `Tickets::cells`: publishes a new cell and its `next`. Release in `register`, Acquire in
//!   `iter`. Both models of cells.
//! - `Cell::bound`: publishes, with IDLE, the items that were queued. Release stores in `reserve`,
//!   `take_tickets` and the drop; Acquire load in `cut_once`. Model:
//!   `a_cut_covers_only_what_is_queued`; argument for the Release of IDLE.
//! - `Cell::is_claimed`: publishes the last holder's stores to `bound`. Acquire RMW in `try_claim`,
//!   Release store in the drop. Model: `a_cell_is_used_again_by_another_thread`.

use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// What an idle committer's cell holds: above every ticket.
const IDLE: u64 = u64::MAX;

/// How often a reader looks again before it takes an older cut.
#[cfg(not(loom))]
const CUT_RETRIES: usize = 4;
#[cfg(loom)]
const CUT_RETRIES: usize = 0;

/// The counter that all committers share, and their cells.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// The next ticket.
    next: CachePadded<AtomicU64>,
    /// The newest cell of a list that only grows.
    cells: AtomicPtr<Cell>,
    /// The largest cut so far.
    last_cut: CachePadded<AtomicU64>,
}

#[derive(Debug)]
struct Cell {
    /// IDLE, or a lower bound of the tickets of the batch that this committer is queueing.
    bound: CachePadded<AtomicU64>,
    /// Whether a committer holds the cell.
    is_claimed: AtomicBool,
    /// The cell registered before this one; not written after publication.
    next: *mut Cell,
}

/// One committer's cell. Dropping it frees the cell for another committer.
#[derive(Debug)]
pub(crate) struct CommitterCell {
    cell: *const Cell,
    /// A number that the counter once had: the end of this committer's last batch.
    seen: u64,
}

// SAFETY: it points to a cell that lives as long as `Tickets`, which the holder keeps alive (see
// `register`); all that is reached through it is atomic or immutable.
unsafe impl Send for CommitterCell {}

/// While it lives, no cut passes its batch.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    tickets: &'a Tickets,
    cell: &'a Cell,
    seen: &'a mut u64,
}

impl Tickets {
    /// Claims a free cell, or adds one to the list.
    ///
    /// # Safety
    /// The cell must not be used, nor dropped, after `self` is dropped.
    pub(crate) unsafe fn register(&self) -> CommitterCell {
        let seen = self.next.load(Ordering::Relaxed);
        if let Some(cell) = self.iter().find(|cell| cell.try_claim()) {
            return CommitterCell { cell, seen };
        }
        let mut head = self.cells.load(Ordering::Acquire);
        let new = Box::into_raw(Box::new(Cell {
            bound: CachePadded::new(AtomicU64::new(IDLE)),
            is_claimed: AtomicBool::new(true),
            next: head,
        }));
        loop {
            // Acquire on failure: the new head is walked through this cell's `next`.
            match self.cells.compare_exchange(head, new, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return CommitterCell { cell: new, seen },
                Err(newer) => {
                    head = newer;
                    // SAFETY: the cell is not published yet, so nobody else reads or writes it.
                    unsafe { (*new).next = head };
                }
            }
        }
    }

    /// Prefetches the counter's cache line, which another core has, for a commit that begins. Not
    /// earlier, as at the end of the last commit: among many cores the line would be gone again.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        watershed_simd::prefetch::for_write_shared((&raw const *self.next).cast());
    }

    /// A number such that every chunk with a smaller ticket has been queued, and no batch lies on
    /// both sides of it. Never smaller than an earlier one, which stays right for ever.
    pub(crate) fn cut(&self) -> u64 {
        let mut cut = self.cut_once();
        // A committer between reservation and tickets holds the cut back for a few instructions.
        for _ in 0..CUT_RETRIES {
            if cut == self.next.load(Ordering::Relaxed) {
                break;
            }
            crate::sync::spin_hint();
            cut = cut.max(self.cut_once());
        }
        cut.max(self.last_cut.fetch_max(cut, Ordering::AcqRel))
    }

    fn cut_once(&self) -> u64 {
        // The counter first: see the module's text.
        let next = self.next.load(Ordering::Acquire);
        self.iter().fold(next, |cut, cell| cut.min(cell.bound.load(Ordering::Acquire)))
    }

    /// The next batch's first ticket, as a moment in the order of all batches: a batch with a
    /// smaller ticket is reserved to every later cut, and one that takes its tickets later sees
    /// what the caller did before.
    pub(crate) fn now(&self) -> u64 {
        // A read-modify-write that adds nothing: a load would not be seen by later batches.
        self.next.fetch_add(0, Ordering::AcqRel)
    }

    fn iter(&self) -> impl Iterator<Item = &Cell> {
        let mut at = self.cells.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: `at` is null or was published by `register`; cells are freed only when `self`
            // is dropped, and `next` is not written after publication.
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
            // SAFETY: each cell came from `Box::into_raw` in `register`, is in the list once, and
            // none is used any more (contract of `register`).
            let cell = unsafe { Box::from_raw(at) };
            at = cell.next;
        }
    }
}

impl Cell {
    fn try_claim(&self) -> bool {
        self.is_claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl CommitterCell {
    /// Reserves a batch. Call [`Reservation::take_tickets`] for its tickets, and drop the
    /// reservation when the last item is queued, or the batch was given up.
    pub(crate) fn reserve<'a>(&'a mut self, tickets: &'a Tickets) -> Reservation<'a> {
        let reservation = self.resume_reservation(tickets);
        // A reader that sees this bound, and not the IDLE before it, still sees what the last batch
        // queued.
        reservation.cell.bound.store(*reservation.seen, Ordering::Release);
        reservation
    }

    /// A reservation that was made and forgotten, which still stands.
    pub(crate) fn resume_reservation<'a>(&'a mut self, tickets: &'a Tickets) -> Reservation<'a> {
        // SAFETY: the cell lives as long as its `Tickets` (contract of `register`).
        Reservation { tickets, cell: unsafe { &*self.cell }, seen: &mut self.seen }
    }

    /// The first of `num_chunks` consecutive tickets for a batch that has no reservation: the
    /// caller holds the lock of the one shard that all of it goes to, until all of it is written.
    #[inline]
    pub(crate) fn take_tickets_locked(&mut self, tickets: &Tickets, num_chunks: u64) -> u64 {
        let first = tickets.next.fetch_add(num_chunks, Ordering::AcqRel);
        self.seen = first + num_chunks;
        first
    }
}

impl Drop for CommitterCell {
    fn drop(&mut self) {
        // SAFETY: the cell lives as long as its `Tickets` (contract of `register`).
        let cell: &Cell = unsafe { &*self.cell };
        cell.is_claimed.store(false, Ordering::Release);
    }
}

impl Reservation<'_> {
    /// The first of `num_chunks` consecutive tickets; a batch of patches alone takes one all the
    /// same.
    ///
    /// To be called before homes are looked up: see [`Tickets::now`].
    pub(crate) fn take_tickets(&mut self, num_chunks: u64) -> u64 {
        let num_chunks = num_chunks.max(1);
        let first = self.tickets.next.fetch_add(num_chunks, Ordering::AcqRel);
        // From now on cuts need not be older than this batch.
        self.cell.bound.store(first, Ordering::Release);
        *self.seen = first + num_chunks;
        first
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.cell.bound.store(IDLE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_cut_stops_at_a_reserved_batch_and_passes_it_when_it_is_queued() {
        let tickets = Tickets::default();
        // SAFETY: both cells are dropped before `tickets`.
        let (mut a, mut b) = unsafe { (tickets.register(), tickets.register()) };
        assert_eq!(tickets.cut(), 0);

        let mut slow = a.reserve(&tickets);
        let first_slow = slow.take_tickets(3);
        let mut quick = b.reserve(&tickets);
        let first_quick = quick.take_tickets(2);
        drop(quick);
        assert_eq!((first_slow, first_quick), (0, 3));
        assert_eq!(tickets.cut(), 0, "the quick batch is not readable before the slow one");

        drop(slow);
        assert_eq!(tickets.cut(), 5);
    }

    #[test]
    fn a_cell_that_was_freed_is_used_again() {
        let tickets = Tickets::default();
        for _ in 0..100 {
            // SAFETY: the cell is dropped before `tickets`.
            drop(unsafe { tickets.register() });
        }
        assert_eq!(tickets.iter().count(), 1);
    }
}
