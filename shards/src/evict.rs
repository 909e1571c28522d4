//! Extents for a shard: out of the common pool, or from whoever has the globally oldest data.
//!
//! ```text
//!   pool has one? ------------------------------------------> take it
//!   whose oldest record has the smallest ticket?
//!     mine ------------------------------------------------> evict my oldest extent
//!     another's, and its word is free ----------------------> take the word, evict its oldest extent, give the word back
//!     another's, and its owner is at work: leave a request ---> evict my own oldest extent; if I have none, ask the next
//! ```
//!
//! Words are only tried here, never waited for, so two owners that want each other's extents do not block each other.

use crate::inner::NO_TICKET;
use crate::own::Owned;
use crate::sync::Ordering;

impl Owned<'_> {
    /// Makes sure that a chunk of `payload_bytes` can be written. False if that would mean to wait.
    #[inline]
    pub(crate) fn has_extent_for(&mut self, payload_bytes: usize) -> bool {
        !self.engine().needs_extent(payload_bytes) || self.get_extent()
    }

    #[cold]
    fn get_extent(&mut self) -> bool {
        let Some(index) = self.inner.pool.take().or_else(|| self.evict_somewhere()) else { return false };
        // SAFETY: an index that was taken out of the pool, or that an eviction has given up, is ours alone until it is put back.
        unsafe { self.engine().grant(index) };
        true
    }

    fn evict_somewhere(&mut self) -> Option<u32> {
        let mine = self.engine().oldest_ticket().unwrap_or(NO_TICKET);
        let mut passed_over: Vec<usize> = Vec::new();
        loop {
            let oldest = (0..self.inner.places.len())
                .filter(|&shard| shard != self.shard && !passed_over.contains(&shard))
                .map(|shard| (self.inner.places[shard].oldest.load(Ordering::Relaxed), shard))
                .min()
                .filter(|&(ticket, _)| ticket != NO_TICKET);
            let Some((_, theirs)) = oldest.filter(|&(ticket, _)| ticket < mine) else {
                return self.evict_here();
            };
            if let Some(index) = self.evict_at(theirs) {
                return Some(index);
            }
            if self.engine().has_extents() {
                return self.evict_here();
            }
            passed_over.push(theirs);
        }
    }

    fn evict_here(&mut self) -> Option<u32> {
        let index = self.engine().evict_oldest_extent();
        self.return_emptied(false);
        index.or_else(|| self.inner.pool.take())
    }

    fn evict_at(&mut self, theirs: usize) -> Option<u32> {
        let place = &self.inner.places[theirs];
        let Some(mut other) = Owned::try_new(self.inner, theirs, self.owner()) else {
            // Release: the owner that takes the wish sees it with the bit.
            place.wanted.fetch_add(1, Ordering::Release);
            if !place.word.request() {
                // It was given back meanwhile, perhaps with the wish served.
                let _ = place
                    .wanted
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |wanted| wanted.checked_sub(1));
            }
            return None;
        };
        let index = other.evict_here();
        drop(other);
        // Somebody may have queued there while we had the word and relies on us: see the word's rule.
        if !place.inbox.is_empty() {
            self.inner.neglect(theirs);
        }
        index
    }

    /// Evicts extents that others have asked for.
    #[cold]
    pub(crate) fn hand_over_extents(&mut self, wanted: u32) {
        for _ in 0..wanted {
            let Some(index) = self.state.engine.as_mut().and_then(|engine| engine.evict_oldest_extent())
            else {
                break;
            };
            self.inner.pool.put(index);
        }
        self.return_emptied(false);
    }

    /// Puts extents back in which nothing is listed.
    pub(crate) fn return_emptied(&mut self, all: bool) {
        let Some(engine) = &mut self.state.engine else { return };
        for index in engine.take_emptied(all) {
            self.inner.pool.put(index);
        }
    }
}
