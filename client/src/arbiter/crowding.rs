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
//! themselves.

use watershed_smb::{PageLayout, WriteChunk};

use super::Shared;
use crate::sync::{AtomicUsize, Ordering};

/// What writers hold of the memory. Relaxed throughout: nothing else is published by it.
#[derive(Debug)]
pub(super) struct Crowding {
    held_bytes: AtomicUsize,
    half_bytes: usize,
    /// Chunks that writers took, ever: a clock that stands still when nobody writes.
    taken: AtomicUsize,
    /// Not more than so many taken ones lie between two returns in short succession.
    busy_within: usize,
}

/// So many returns make a writer one that is busy. The first event of a thread has four packets.
const BUSY_RETURNS: u32 = 8;

/// When a writer last gave a chunk back, and how often in short succession.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Returns {
    num: u32,
    last_at: usize,
}

impl Crowding {
    pub(super) fn new(memory_bytes: usize, num_pages: usize) -> Self {
        Self {
            held_bytes: AtomicUsize::new(0),
            half_bytes: memory_bytes / 2,
            taken: AtomicUsize::new(0),
            busy_within: (num_pages / 8).max(1),
        }
    }

    #[inline]
    fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
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
    fn is_recent(&self, at: usize) -> bool {
        self.taken.load(Ordering::Relaxed).wrapping_sub(at) <= self.busy_within
    }

    pub(super) fn take(&self, chunk: &WriteChunk) {
        self.held_bytes.fetch_add(chunk.payload_size_bytes(), Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, chunk: &WriteChunk) {
        self.held_bytes.fetch_sub(chunk.payload_size_bytes(), Ordering::Relaxed);
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

    /// A writer gives a chunk back now.
    pub(crate) fn note_return(&self, chunk: &WriteChunk, returns: &mut Returns) {
        self.crowding.give_back(chunk);
        let goes_on = self.crowding.is_recent(returns.last_at);
        returns.num = if goes_on { returns.num.saturating_add(1) } else { 1 };
        returns.last_at = self.crowding.taken.load(Ordering::Relaxed);
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

    #[test]
    fn pages_are_cut_smaller_the_more_is_held() {
        let crowding = Crowding::new(100, 8);
        let layouts = |wanted: PageLayout| {
            [0, 49, 50, 74, 75, 100].map(|held_bytes| {
                crowding.held_bytes.store(held_bytes, Ordering::Relaxed);
                crowding.layout(wanted).num_chunks()
            })
        };
        assert_eq!(layouts(PageLayout::Div1), [1, 1, 4, 4, 14, 14]);
        assert_eq!(layouts(PageLayout::Div7), [7, 7, 7, 7, 14, 14]);
    }
}
