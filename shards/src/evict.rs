//! Extents for a shard: out of the common pool, or from whoever has the globally oldest data.
//!
//! ```text
//!   pool has one? ------------------------------------------> take it
//!   whose oldest record has the smallest ticket?
//!     mine, or mine is hardly younger ---------------------> evict my oldest extent
//!     another's, and it is at work: leave a wish ------------> evict my own oldest extent
//!     another's, and it is idle, or the wish was not heard:
//!       its word is free -----------------------------------> take the word, evict its oldest extent, give the word back
//!       its word is taken: leave a request -----------------> evict my own oldest extent; if I have none, ask the next
//! ```
//!
//! "Hardly younger" is what all shards together write into one extent of each: a shard that evicts its own neither waits for words
//! nor fetches what another core has in its cache, and with data that comes evenly nearly all evictions are such.
//!
//! A shard at work serves a wish at its next commit, by the thread that has its data in the cache. To take its word instead would send all
//! that is committed there meanwhile through the queue.
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
    pub(crate) fn get_extent(&mut self) -> bool {
        self.may_lose_oldest = true;
        let Some(index) = self.inner.pool.take().or_else(|| self.evict_somewhere()) else { return false };
        self.place.hints.granted.store(self.newest(), Ordering::Relaxed);
        // SAFETY: an index that was taken out of the pool, or that an eviction has given up, is ours alone until it is put back.
        unsafe { self.engine().grant(index) };
        true
    }

    fn evict_somewhere(&mut self) -> Option<u32> {
        let mine = self.engine().oldest_ticket().unwrap_or(NO_TICKET);
        let margin = self.margin(mine);
        let mut passed_over: Vec<usize> = Vec::new();
        loop {
            let (ticket, theirs) = self.oldest_but(&passed_over);
            if ticket >= mine.saturating_sub(margin) {
                return self.evict_here();
            }
            let is_left_alone = self.engine().has_extents() && self.is_at_work(theirs, 2 * margin);
            if is_left_alone && self.inner.places.get(theirs).hints.wanted.leave() {
                return self.evict_here();
            }
            if let Some(index) = self.evict_at(theirs) {
                return Some(index);
            }
            if self.engine().has_extents() {
                return self.evict_here();
            }
            passed_over.push(theirs);
        }
    }

    /// The oldest record of all other shards but those that were passed over, and whose it is.
    fn oldest_but(&self, passed_over: &[usize]) -> (u64, usize) {
        let mut oldest = (NO_TICKET, self.shard);
        for (shard, ticket) in self.inner.oldest.iter().enumerate() {
            let ticket = ticket.load(Ordering::Relaxed);
            if ticket < oldest.0 && shard != self.shard && !passed_over.contains(&shard) {
                oldest = (ticket, shard);
            }
        }
        oldest
    }

    /// About which ticket is the next: this shard's newest. The counter knows better, but to look there is to fetch the line that committers
    /// contend for. Where this is too old, since the shard was idle, it evicts another's extent rather than its own.
    fn newest(&self) -> u64 {
        self.state.engine.as_ref().map_or(0, |engine| engine.newest_ticket())
    }

    /// By how many tickets another shard's oldest record must be older than `mine` for its extent to go first.
    fn margin(&self, mine: u64) -> u64 {
        let cutting = self.inner.cutting;
        let kept = self.newest().saturating_sub(mine);
        kept / (cutting.num_extents / cutting.num_shards) as u64
    }

    /// Whether another shard has got an extent while the last `tickets` tickets were taken.
    fn is_at_work(&self, theirs: usize, tickets: u64) -> bool {
        let granted = self.inner.places.get(theirs).hints.granted.load(Ordering::Relaxed);
        self.newest().saturating_sub(granted) < tickets
    }

    fn evict_here(&mut self) -> Option<u32> {
        let index = self.engine().evict_oldest_extent();
        self.return_emptied(false);
        index.or_else(|| self.inner.pool.take())
    }

    fn evict_at(&mut self, theirs: usize) -> Option<u32> {
        let place = &self.inner.places.get(theirs);
        let Some(mut other) = Owned::try_new(self.inner, theirs, self.owner()) else {
            place.hints.wanted.leave_with_owner(&place.word);
            return None;
        };
        other.place.hints.wanted.withdraw();
        let index = other.evict_here();
        drop(other);
        // Somebody may have queued there while we had the word and relies on us: see the word's rule.
        if !place.inbox.is_empty() {
            self.inner.neglect(theirs);
        }
        index
    }

    /// Evicts the extent that others have asked for.
    #[cold]
    pub(crate) fn hand_over_extent(&mut self) {
        self.may_lose_oldest = true;
        if let Some(index) = self.state.engine.as_mut().and_then(|engine| engine.evict_oldest_extent()) {
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
