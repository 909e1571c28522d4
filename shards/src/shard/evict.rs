//! Extents for a shard: out of the pool, or by evicting the globally oldest data: the extent whose
//! last ticket is the oldest, so that all that is newer is still there. By the first ticket it
//! would be the only extent of a quiet shard, which has its newest records too.
//!
//! ```text
//!   pool has one? ------------------------------------> take it
//!   whose oldest extent has the smallest last ticket?
//!     mine, or mine is hardly younger ----------------> evict my oldest extent
//!     another's, active: post a request --------------> evict my oldest extent
//!     another's, idle, or a request was not served:
//!       free -----------------------------------------> lock it, evict its oldest extent, unlock
//!       locked: post a request to its owner ----------> evict my oldest extent; if I have none,
//!                                                       try the next shard
//! ```
//!
//! "Hardly younger" is what all shards together write into one extent of each. A shard that evicts
//! its own extent neither contends for locks nor fetches what another core has in its cache. With
//! 16 shards and evenly spread data a quarter of the evictions concern another shard. With half the
//! margin it would be half of them and nothing won, since an active shard is asked and not locked;
//! without one nine of ten, under the other's lock, for 93% of the ring's bytes that are whole in
//! place of 90% (64 MB).
//!
//! The last ticket of an open extent, a quiet shard's only one, grows unseen. Whoever has locked
//! that shard looks again.
//!
//! An active shard serves a request at its next commit, by a thread that has its data in the cache.
//! To lock it for an eviction instead would send all that is committed there meanwhile through the
//! queue.
//!
//! Locks are only tried here: two owners that want each other's extents do not block each other.

use crate::shard::NO_TICKET;
use crate::shard::guard::ShardGuard;
use crate::sync::Ordering;

impl ShardGuard<'_> {
    /// Gets the shard an extent. False if there is none without waiting.
    #[cold]
    pub(crate) fn acquire_extent(&mut self) -> bool {
        self.oldest_may_change = true;
        let Some(index) = self.shared.extent_pool.take().or_else(|| self.evict_any()) else { return false };
        self.slot.hints.granted_ticket.store(self.newest(), Ordering::Relaxed);
        // SAFETY: an index out of the pool, or of an extent that was just evicted, is ours until it
        // is put back.
        unsafe { self.engine().grant(index) };
        true
    }

    fn evict_any(&mut self) -> Option<u32> {
        let mine = self.engine().oldest_ticket().unwrap_or(NO_TICKET);
        let margin = self.margin(mine);
        let mut skipped: Vec<usize> = Vec::new();
        loop {
            let (ticket, theirs) = self.oldest_except(&skipped);
            if ticket >= mine.saturating_sub(margin) {
                return self.evict_own();
            }
            let has_extents = self.engine().num_extents() > 0;
            let is_left_alone = has_extents && self.is_active(theirs, 2 * margin);
            if is_left_alone && self.shared.slots.get(theirs).hints.extent_request.post() {
                return self.evict_own();
            }
            match self.evict_from(theirs, ticket.saturating_add(margin)) {
                Some(Some(index)) => return Some(index),
                None if has_extents => return self.evict_own(),
                _ => skipped.push(theirs),
            }
        }
    }

    /// The oldest extent of all other shards but the skipped ones: its last ticket, and its shard.
    fn oldest_except(&self, skipped: &[usize]) -> (u64, usize) {
        let all = self.shared.oldest.iter().enumerate();
        let others = all.filter(|(shard, _)| *shard != self.shard && !skipped.contains(shard));
        let oldest = others.map(|(shard, ticket)| (ticket.load(Ordering::Relaxed), shard)).min();
        oldest.unwrap_or((NO_TICKET, self.shard))
    }

    /// This shard's newest ticket: an estimate of the next one, whose exact value is in the cache
    /// line that committers contend for. Where it is too small, since the shard was idle, another's
    /// extent is evicted rather than its own.
    fn newest(&self) -> u64 {
        self.state.engine.as_ref().map_or(0, |engine| engine.newest_ticket())
    }

    /// By how many tickets another shard's oldest extent must be older than `mine` to be evicted
    /// first.
    fn margin(&self, mine: u64) -> u64 {
        let layout = self.shared.config.layout;
        let kept = self.newest().saturating_sub(mine);
        kept / (layout.num_extents / layout.num_shards) as u64
    }

    /// Whether another shard got an extent while the last `tickets` tickets were taken.
    fn is_active(&self, theirs: usize, tickets: u64) -> bool {
        let granted = self.shared.slots.get(theirs).hints.granted_ticket.load(Ordering::Relaxed);
        self.newest().saturating_sub(granted) < tickets
    }

    fn evict_own(&mut self) -> Option<u32> {
        let index = self.engine().evict_oldest_extent();
        self.return_empty_extents();
        index.or_else(|| self.shared.extent_pool.take())
    }

    /// Evicts another shard's oldest extent, unless that goes on beyond `limit`: then what it had
    /// told of an open one was old. None if it is locked.
    fn evict_from(&mut self, theirs: usize, limit: u64) -> Option<Option<u32>> {
        let slot = self.shared.slots.get(theirs);
        let mut other = loop {
            if let Some(other) = ShardGuard::try_lock(self.shared, theirs, self.owner) {
                break other;
            }
            if self.engine().num_extents() == 0 {
                // Before the request: the owner that hands an extent over comes back for this
                // shard.
                self.shared.defer_drain(self.shard);
            }
            if slot.hints.extent_request.post_to_owner(&slot.lock) {
                return None;
            }
            // It was unlocked meanwhile: nobody would see the request.
        };
        other.slot.hints.extent_request.withdraw();
        let is_older = other.engine().oldest_ticket().is_none_or(|ticket| ticket <= limit);
        let index = if is_older { other.evict_own() } else { None };
        drop(other);
        // Whoever pushed there meanwhile relies on this thread; another lock is held, so the drain
        // waits.
        if !slot.queue.is_empty() {
            self.shared.defer_drain(theirs);
        }
        Some(index)
    }

    /// Evicts an extent for others. Not the only one: its owner is at work in it, so it is not the
    /// oldest.
    #[cold]
    pub(crate) fn hand_over_extent(&mut self) {
        self.oldest_may_change = true;
        let engine = self.state.engine.as_mut().filter(|engine| engine.num_extents() > 1);
        if let Some(index) = engine.and_then(|engine| engine.evict_oldest_extent()) {
            self.shared.extent_pool.put(index);
        }
        self.return_empty_extents();
    }

    /// Puts extents without records back into the pool.
    pub(crate) fn return_empty_extents(&mut self) {
        let Some(engine) = &mut self.state.engine else { return };
        for index in engine.take_emptied() {
            self.shared.extent_pool.put(index);
        }
    }
}
