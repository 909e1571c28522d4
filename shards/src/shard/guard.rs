//! The guard of a locked shard: locking, publishing what has changed, unlocking. What the owner
//! does with the queue is in `drain`.
//!
//! ```text
//!   try_lock -> work -> publish (extent request, oldest ticket, live sequences, homes) -> unlock
//!      ^                                                                                    |
//!      +------------------------------------- to serve a REQUEST that came in meanwhile ----+
//! ```

use std::sync::Arc;
use std::time::Duration;

use watershed_engine::Shard;

use crate::batch::queued::QueuedBatch;
use crate::shard::budget::DrainBudget;
use crate::shard::{NO_TICKET, POISONED, ShardSlot, ShardState, Shared};
use crate::sync::Ordering;
use crate::sync::directory::Key;
use crate::sync::lock::{Left, OwnerId};
use crate::sync::node_pool::OwnedNode;
use crate::sync::queue::NodeList;

/// Who waits for a shard yields so often, then polls its lock at intervals: its owner may have lost
/// its core, which takes milliseconds.
const MAX_YIELDS: u32 = 100;
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// A locked shard. Dropping it unlocks the shard; the caller then looks at its queue again.
pub(crate) struct ShardGuard<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) shard: usize,
    pub(crate) slot: &'a ShardSlot,
    pub(crate) state: &'a mut ShardState,
    pub(crate) owner: OwnerId,
    /// Whether the oldest extent may be another one at the end: not while chunks are only added.
    pub(crate) oldest_may_change: bool,
    /// A panic from now on is one of the shard: not of foreign code that is called, nor one that
    /// was there before.
    pub(crate) may_poison: bool,
}

impl<'a> ShardGuard<'a> {
    /// Locks a shard if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(shared: &'a Shared, shard: usize, owner: OwnerId) -> Option<ShardGuard<'a>> {
        let slot = shared.slots.get(shard);
        if !slot.lock.try_lock(owner) {
            return None;
        }
        // SAFETY: the shard was just locked.
        Some(unsafe { ShardGuard::of_locked(shared, shard, owner) })
    }

    /// # Safety
    /// The caller has just locked the shard.
    #[inline(always)]
    unsafe fn of_locked(shared: &'a Shared, shard: usize, owner: OwnerId) -> ShardGuard<'a> {
        let slot = shared.slots.get(shard);
        // SAFETY: the lock is held until the drop, and this is the only reference made of the
        // state.
        let state = unsafe { slot.state() };
        let may_poison = !std::thread::panicking();
        ShardGuard { shared, shard, slot, state, owner, oldest_may_change: true, may_poison }
    }

    /// Locks a shard in order to add chunks: if it is free and nothing is queued there.
    #[inline(always)]
    pub(crate) fn try_lock_drained(
        shared: &'a Shared,
        shard: usize,
        owner: OwnerId,
    ) -> Option<ShardGuard<'a>> {
        let mut guard = ShardGuard::try_lock(shared, shard, owner)?;
        guard.oldest_may_change = false;
        guard.is_drained().then_some(guard)
    }

    /// Leaves the rest of a batch to the next owner, in front of the queue of a drained shard.
    pub(crate) fn leave(&mut self, rest: OwnedNode<QueuedBatch>) {
        self.state.in_progress = Some(rest);
        self.shared.defer_drain(self.shard);
    }

    /// Drops all that is queued. Nobody will read it, and producers get their chunks back.
    pub(crate) fn discard_queue(&mut self) {
        let state = &mut *self.state;
        let taken = std::mem::replace(&mut state.backlog, NodeList::none());
        let nodes = state.in_progress.take().into_iter().chain(taken).chain(self.slot.queue.take_all());
        nodes.for_each(|mut node| node.with_item(QueuedBatch::clear));
    }

    /// Locks a shard, unless another thread has it: that one then leaves it to this one, and
    /// [tells](crate::WorkerPool::on_ready) when it does, where there are workers.
    pub(crate) fn poll_lock(shared: &'a Shared, shard: usize, owner: OwnerId) -> Option<ShardGuard<'a>> {
        shared.slots.get(shard).lock.poll_lock_told(owner).ok()?;
        // SAFETY: the shard was just locked.
        Some(unsafe { ShardGuard::of_locked(shared, shard, owner) })
    }

    /// Gives up what [`poll_lock`](Self::poll_lock) waits for.
    pub(crate) fn stop_waiting(shared: &'a Shared, shard: usize, owner: OwnerId) {
        if shared.slots.get(shard).lock.stop_waiting(owner).is_ok() {
            // SAFETY: the shard was just locked.
            unsafe { ShardGuard::of_locked(shared, shard, owner) }.unlock_read(&mut DrainBudget::new());
        }
        // Another one may have waited by the same bits.
        shared.tell_ready();
    }

    /// Locks a shard, waiting for its owner. For reads, clones and statistics; committers never
    /// wait, and get no lock meanwhile.
    pub(crate) fn lock(shared: &'a Shared, shard: usize, owner: OwnerId) -> ShardGuard<'a> {
        let backoff = crossbeam_utils::Backoff::new();
        let mut polls = 0;
        while shared.slots.get(shard).lock.poll_lock(owner).is_err() {
            // Where no other thread wants this core, a yield returns at once.
            if polls < MAX_YIELDS {
                polls += 1;
                backoff.snooze();
            } else {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        // SAFETY: the shard was just locked.
        unsafe { ShardGuard::of_locked(shared, shard, owner) }
    }

    #[inline]
    pub(crate) fn engine(&mut self) -> &mut Shard {
        self.shared.engine(self.state)
    }

    /// Whether nothing is queued: then a chunk that comes now is the next.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        !self.has_rest() && self.slot.queue.is_empty()
    }

    /// Whether something that was taken out of the queue is not done.
    #[inline]
    pub(crate) fn has_rest(&self) -> bool {
        self.state.in_progress.is_some() || !self.state.backlog.is_empty()
    }

    /// Whether there is anything to [`publish`](Self::publish): hardly ever where chunks were only
    /// added.
    #[inline]
    fn needs_publish(&self) -> bool {
        let ShardState { engine: Some(engine), leaving, published, .. } = &*self.state else { return false };
        self.oldest_may_change
            || published.oldest == NO_TICKET
            || differs_much(published.live, engine.num_live_sequences() as u32)
            || engine.has_dropped()
            || !leaving.is_empty()
            // One that is missed here is served by the next commit, or was posted to the owner and
            // is looked at after the unlock.
            || self.slot.hints.extent_request.is_pending()
    }

    /// Something has panicked in the shard, so nothing that it has is used any more. What is queued
    /// for it is discarded and counted, commits to it are refused, and no new sequence gets it as
    /// its home.
    #[cold]
    fn poison(&mut self) {
        let state = &mut *self.state;
        let ShardState { engine: Some(engine), published, .. } = state else { return };
        let extents = engine.give_up(Arc::clone(&self.shared.config.region));
        extents.into_iter().for_each(|index| self.shared.extent_pool.put(index));
        state.discarded_before_poison = engine.stats().chunks_discarded;
        state.is_poisoned = true;
        self.shared.live.fetch_sub(published.live, Ordering::Relaxed);
        published.live = 0;
        self.slot.hints.live.store(POISONED, Ordering::Relaxed);
        self.shared.has_poisoned.store(true, Ordering::Relaxed);
    }

    /// Serves an extent request and updates the hints. Before the unlock. Stores only what has
    /// changed, since others read it.
    #[cold]
    #[inline(never)]
    fn publish(&mut self) {
        let hints = &self.slot.hints;
        if hints.extent_request.take() {
            self.hand_over_extent();
        }
        let ShardState { engine: Some(engine), leaving, published, .. } = &mut *self.state else { return };
        let oldest = match self.shared.has_extents() {
            true => engine.oldest_ticket().unwrap_or(NO_TICKET),
            false => 0,
        };
        if oldest != published.oldest {
            self.shared.oldest[self.shard].store(oldest, Ordering::Relaxed);
            published.oldest = oldest;
        }
        let live = engine.num_live_sequences() as u32;
        if live != published.live {
            hints.live.store(live, Ordering::Relaxed);
            self.shared.live.fetch_add(live.wrapping_sub(published.live), Ordering::Relaxed);
            published.live = live;
        }
        if engine.has_dropped() || !leaving.is_empty() {
            let dropped = engine.take_dropped().map(|(producer, writer)| Key::new(producer.0, writer.0));
            let dropped = dropped.collect();
            self.release_homes(dropped);
        }
    }

    /// Serves an extent request that came in before the unlock, unless another owner does, and
    /// tells who waits for that.
    #[cold]
    #[inline(never)]
    fn serve(&self, left: Left) {
        if left.tells() {
            self.shared.tell_ready();
        }
        if left.has_request() && self.slot.hints.extent_request.is_pending() {
            drop(ShardGuard::try_lock(self.shared, self.shard, self.owner));
        }
    }

    /// Removes the homes of sequences that have gone, when no committer can be about to push to
    /// them any more: see `sync::directory`. Of homes that are not here, nothing.
    #[cold]
    pub(crate) fn release_homes(&mut self, mut dropped: Vec<Key>) {
        // An end may come late to a poisoned shard, when the sequence has got another home.
        dropped.retain(|&key| self.shared.directory.home(key) == Some(self.shard as u16));
        for &key in &dropped {
            self.shared.directory.start_leaving(key);
        }
        if !dropped.is_empty() {
            let moment = self.shared.tickets.now();
            self.state.leaving.retain(|(key, _)| !dropped.contains(key));
            self.state.leaving.extend(dropped.into_iter().map(|key| (key, moment)));
        }
        let cut = self.shared.tickets.cut();
        // What the cut covers is queued; it must be drained as well, or a chunk of the sequence may
        // wait here.
        if self.is_drained() {
            let directory = &self.shared.directory;
            self.state.leaving.retain(|&(key, moment)| {
                let is_safe = moment <= cut;
                is_safe.then(|| directory.finish_leaving(key)).is_none()
            });
        }
    }
}

impl Drop for ShardGuard<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        if self.may_poison && std::thread::panicking() {
            self.poison();
        }
        if self.needs_publish() {
            self.publish();
        }
        let left = self.slot.lock.unlock(self.owner);
        if left.any() {
            self.serve(left);
        }
        // A worker that came while it was locked, for what was pushed or noted before, has gone.
        self.shared.leave_to_workers(self.shard, self.slot);
    }
}

/// Whether the published number is off by more than a sixteenth. Publishing costs a
/// read-modify-write on a cache line of all shards, and with more writers than the ring has records
/// every commit changes the number; the choice of homes compares with twice a mean.
#[inline]
fn differs_much(published: u32, live: u32) -> bool {
    published.abs_diff(live) > published / 16
}
