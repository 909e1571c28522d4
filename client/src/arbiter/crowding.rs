//! When many writers share a memory: who keeps a chunk between two packets.
//!
//! A writer keeps the chunk that it fills, also while its thread does something else. With more
//! writers than chunks those that idle would have all memory, and the others none. So from a half
//! of the memory on, a writer gives its chunk back with each packet, until it has done so
//! [`BUSY_RETURNS`] times in short succession: then it is one of those that write much. From three
//! quarters on all do. The fuller the memory, the smaller the chunks into which a free page is cut.
//!
//! ```text
//!   held by writers   0 ------------- 1/2 ---------------- 3/4 --------------- 1
//!   after a packet    keep the chunk   keep it if busy      give it back
//!   a free page is    as the options   four chunks          fourteen chunks
//! ```
//!
//! Only chunks that are *being written* count: those that wait for the service come free by
//! themselves. But a writer that commits itself holds a chunk that it has filled until it takes the
//! next one.

use watershed_smb::{PageLayout, WriteChunk};

use super::Shared;
use crate::sync::{AtomicU64, Ordering};

/// What writers hold of the memory. Relaxed throughout: nothing else is published by it.
#[derive(Debug)]
pub(super) struct Crowding {
    /// Bytes that are held, at most 32 MiB, and above [`TAKEN`] how many chunks writers took, ever:
    /// a clock that stands still when nobody writes. In one, since it is another processor's as a
    /// rule.
    held: AtomicU64,
    half_bytes: usize,
    /// Not more than so many taken ones lie between two returns in short succession.
    busy_within: u32,
}

/// A chunk that was taken, in [`Crowding::held`].
const TAKEN: u64 = 1 << 32;

/// So many returns make a writer one that is busy. The first event of a thread has four packets.
const BUSY_RETURNS: u32 = 8;

/// When a writer last gave a chunk back, and how often in short succession.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Returns {
    num: u32,
    last_at: u32,
    /// Of a full chunk that was committed: they count as held until the next one is taken, so that
    /// both take one exchange with other processors.
    still_held_bytes: usize,
}

impl Crowding {
    pub(super) fn new(memory_bytes: usize, num_pages: usize) -> Self {
        Self {
            held: AtomicU64::new(0),
            half_bytes: memory_bytes / 2,
            busy_within: (num_pages / 8).max(1) as u32,
        }
    }

    #[inline]
    fn held_bytes(&self) -> usize {
        (self.held.load(Ordering::Relaxed) % TAKEN) as usize
    }

    fn taken(&self) -> u32 {
        (self.held.load(Ordering::Relaxed) / TAKEN) as u32
    }

    fn is_tight(&self, held_bytes: usize) -> bool {
        held_bytes >= self.half_bytes + self.half_bytes / 2
    }

    /// Into what a free page is cut now.
    pub(super) fn layout(&self, wanted: PageLayout) -> PageLayout {
        let held_bytes = self.held_bytes();
        let smallest = match held_bytes >= self.half_bytes {
            false => return wanted,
            true if self.is_tight(held_bytes) => PageLayout::Div14,
            true => PageLayout::Div4,
        };
        if smallest.num_chunks() > wanted.num_chunks() { smallest } else { wanted }
    }

    /// Whether few chunks were taken since `at`.
    fn is_recent(&self, at: u32) -> bool {
        self.taken().wrapping_sub(at) <= self.busy_within
    }

    /// A writer takes a chunk, and what it still held is given back.
    pub(super) fn take(&self, chunk: &WriteChunk, returns: &mut Returns) {
        let given_back = std::mem::take(&mut returns.still_held_bytes) as u64;
        let taken = TAKEN + chunk.payload_size_bytes() as u64;
        // The sum has all that is given back.
        self.held.fetch_add(taken.wrapping_sub(given_back), Ordering::Relaxed);
    }
}

impl Shared {
    /// Whether writers hold so much that each has to ask [`Shared::keeps_chunk`].
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowding.held_bytes() >= self.crowding.half_bytes
    }

    /// Whether a writer that has just ended a packet in `chunk` keeps it.
    pub(crate) fn keeps_chunk(&self, chunk: &WriteChunk, returns: Returns) -> bool {
        // What others hold: a writer that is alone may have all memory.
        let held_bytes = self.crowding.held_bytes().saturating_sub(chunk.payload_size_bytes());
        let is_busy = || returns.num >= BUSY_RETURNS && self.crowding.is_recent(returns.last_at);
        held_bytes < self.crowding.half_bytes || !self.crowding.is_tight(held_bytes) && is_busy()
    }

    /// A writer returns a chunk, and takes the next one or calls
    /// [`give_back`](Shared::give_back).
    pub(crate) fn note_return(&self, chunk: &WriteChunk, returns: &mut Returns) {
        returns.still_held_bytes += chunk.payload_size_bytes();
        let goes_on = self.crowding.is_recent(returns.last_at);
        returns.num = if goes_on { returns.num.saturating_add(1) } else { 1 };
        returns.last_at = self.crowding.taken();
    }

    /// A writer that holds no chunk may not take one soon.
    pub(crate) fn give_back(&self, returns: &mut Returns) {
        let given_back = std::mem::take(&mut returns.still_held_bytes) as u64;
        if given_back != 0 {
            self.crowding.held.fetch_sub(given_back, Ordering::Relaxed);
        }
    }

    /// Whether so much waits to be sent that writers may soon find nothing: a half of what they do
    /// not hold.
    pub(super) fn is_much(&self, waiting_bytes: usize) -> bool {
        let held_bytes = self.crowding.held_bytes();
        waiting_bytes >= self.smb.size_bytes().saturating_sub(held_bytes) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbiter::{Arbiter, ArbiterOptions, Waker};
    use crate::sync::Arc;
    use std::time::Duration;
    use watershed_smb::{SharedMemory, Smb};

    #[test]
    fn pages_are_cut_smaller_the_more_is_held() {
        let crowding = Crowding::new(100, 8);
        let layouts = |wanted: PageLayout| {
            [0, 49, 50, 74, 75, 100].map(|held_bytes| {
                crowding.held.store(held_bytes, Ordering::Relaxed);
                crowding.layout(wanted).num_chunks()
            })
        };
        assert_eq!(layouts(PageLayout::Div1), [1, 1, 4, 4, 14, 14]);
        assert_eq!(layouts(PageLayout::Div7), [7, 7, 7, 7, 14, 14]);
    }

    /// A full chunk is held until the next one is taken, or until it is given back.
    #[test]
    fn a_writer_that_goes_on_holds_one_chunk() {
        let arbiter = Arbiter::unbound(
            Smb::new(Arc::new(SharedMemory::create(4 * 4096).unwrap()), 4096).unwrap(),
            Box::new(Nobody),
            ArbiterOptions::default(),
        );
        let (shared, mut returns) = (&arbiter.shared, Returns::default());
        let held = || (shared.crowding.held_bytes(), shared.crowding.taken());
        let first = shared.smb.try_acquire(0, PageLayout::Div1).unwrap();
        let second = shared.smb.try_acquire(1, PageLayout::Div2).unwrap();
        shared.crowding.take(&first, &mut returns);
        assert_eq!(held(), (first.payload_size_bytes(), 1));
        shared.note_return(&first, &mut returns);
        assert_eq!(held(), (first.payload_size_bytes(), 1));
        shared.crowding.take(&second, &mut returns);
        assert_eq!(held(), (second.payload_size_bytes(), 2));
        shared.note_return(&second, &mut returns);
        (0..2).for_each(|_| shared.give_back(&mut returns));
        assert_eq!(held(), (0, 2));
    }

    struct Nobody;

    impl Waker for Nobody {
        fn wake(&self, _: Duration) {}
    }
}
