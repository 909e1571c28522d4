//! Draining: working through a shard's queue, budget by budget, so that nothing stays in it unseen.
//!
//! ```text
//!   locked? ----------------------------------------------> return: its owner looks again
//!      | no
//!   try_lock -> drain -> budget spent, or no extent: note it -> unlock -> queue empty? -> return
//!      ^                                                                      | no
//!      +----------------------------------------------------------------------+
//! ```
//!
//! The rule is "push, then try to lock; unlock, then look again": `after_push` and `after_unlock`
//! are the second halves, see `sync::lock`. A committer or reader helps others for one budget in an
//! operation, whatever it comes across: the rest is noted, for whoever has unlocked a shard next
//! (`sync::reclaim`). Where there are workers nobody else helps: each unlock has one of them come
//! if something is queued or noted, also for those that came before it and found the shard locked.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use watershed_engine::ChunkInfo;
use watershed_smb::{Reads, Smb};

use crate::batch::queued::{Op, PendingChunks, QueuedBatch, QueuedBytes};
use crate::batch::{PatchSet, SharedBytes, Source, copy_to, key_of};
use crate::shard::budget::DrainBudget;
use crate::shard::guard::ShardGuard;
use crate::shard::smb_chunks::StopReason;
use crate::shard::{ShardSlot, ShardState, Shared};
use crate::sync::Ordering;
use crate::sync::lock::OwnerId;
use crate::sync::node_pool::{NodeReturns, OwnedNode};
use crate::sync::queue::NodeList;
use crate::sync::reclaim::{DrainResult, help};

impl ShardGuard<'_> {
    /// Works through the queue, as far as the budget goes. What is left is the caller's to come
    /// back for, or to note.
    pub(crate) fn drain(&mut self, budget: &mut DrainBudget) -> DrainResult {
        self.drain_until(u64::MAX, budget)
    }

    /// Puts what a cut covers before all that has been queued here. To be called once, by the first
    /// owner after the cut: what is queued later is behind it.
    ///
    /// A batch with a smaller ticket goes before one that was queued before it. It is of another
    /// committer, who had not come back from its commit when the other one took its tickets.
    pub(crate) fn sort_queue(&mut self, cut: u64) {
        if self.is_drained() {
            return;
        }
        let state = &mut *self.state;
        let taken = std::mem::replace(&mut state.backlog, NodeList::none());
        let nodes = state.in_progress.take().into_iter().chain(taken).chain(self.slot.queue.take_all());
        state.backlog = NodeList::sorted(nodes, |batch| batch.first_ticket < cut);
    }

    /// As `drain`, but no further than the cut, up to which the queue was sorted.
    pub(crate) fn drain_until(&mut self, cut: u64, budget: &mut DrainBudget) -> DrainResult {
        self.shared.pending_drains.take(&self.slot.hints.pending_drain);
        let is_behind = |node: &mut OwnedNode<QueuedBatch>| node.with_item(|batch| batch.first_ticket >= cut);
        if self.state.in_progress.as_mut().is_some_and(is_behind) {
            return DrainResult::Empty;
        }
        let mut in_progress = None;
        let mut returns = NodeReturns::none();
        let mut state = DrainState { cut, budget, reads: Reads::new() };
        // Sources are foreign code and may panic in their copy. The thread dies of it; the rest of
        // the batch does not.
        let drain = || self.drain_nodes(&mut in_progress, &mut returns, &mut state);
        let drained = catch_unwind(AssertUnwindSafe(drain));
        if let (Err(_), Some(node)) = (&drained, &mut in_progress) {
            node.with_item(|batch| {
                batch.done += 1;
                batch.memory = batch.memory.take().or_else(|| state.reads.put_down());
            });
        }
        self.state.in_progress = in_progress;
        // Nodes count as room, too.
        drop(returns);
        self.shared.tell_room(self.slot);
        if self.state.awaited_cut.is_some_and(|cut| self.is_drained_to(cut)) {
            self.state.awaited_cut = None;
            self.shared.tell_ready();
        }
        drained.unwrap_or_else(|panic| {
            self.shared.defer_drain(self.shard);
            resume_unwind(panic)
        })
    }

    /// Leaves a batch that is not done in `in_progress`.
    fn drain_nodes(
        &mut self,
        in_progress: &mut Option<OwnedNode<QueuedBatch>>,
        returns: &mut NodeReturns<QueuedBatch>,
        drain: &mut DrainState<'_>,
    ) -> DrainResult {
        *in_progress = self.state.in_progress.take();
        loop {
            match self.drain_smb_chunks(in_progress, drain, returns) {
                None => return DrainResult::Empty,
                Some(StopReason::BudgetSpent) => return DrainResult::BudgetSpent,
                Some(StopReason::NeedsExtent) if self.acquire_extent() => continue,
                Some(StopReason::NeedsExtent) => return DrainResult::NoExtent,
                Some(StopReason::NotSmbChunk) => {}
            }
            let Some(node) = in_progress else { return DrainResult::Empty };
            if let Some(stopped) = node.with_item(|batch| self.drain_batch(batch, drain)) {
                return stopped;
            }
            in_progress.take().into_iter().for_each(|node| returns.add(node));
        }
    }

    /// Does what is left of a batch. None if all of it is done.
    #[inline(never)]
    fn drain_batch(&mut self, batch: &mut QueuedBatch, drain: &mut DrainState<'_>) -> Option<DrainResult> {
        let PendingChunks { chunks, mut ticket, done, memory } = batch.pending_chunks();
        for (info, source) in chunks {
            let commit = || self.commit_source(info, source, memory, ticket);
            if let Some(stopped) = drain.budget.spend(commit) {
                return Some(stopped);
            }
            *done += 1;
            ticket += 1;
        }
        while let Some((op, bytes, memory)) = batch.next_op() {
            if let Some(stopped) = drain.budget.spend(|| self.run_op(op, bytes, memory)) {
                return Some(stopped);
            }
            batch.done += 1;
        }
        batch.finish();
        None
    }

    /// Does one thing, and tells its size in bytes. None if it needs an extent and there is none.
    #[inline(never)]
    fn run_op(&mut self, op: &mut Op, bytes: &[u8], memory: Option<&Smb>) -> Option<usize> {
        match op {
            Op::Chunk { info, ticket, bytes: QueuedBytes::Source(source) } => {
                return self.commit_source(info, source, memory, *ticket);
            }
            Op::Chunk { info, ticket, bytes: QueuedBytes::Copied { start, len } } => {
                let mut source = Source::Borrowed(&bytes[*start..*start + *len]);
                return self.commit_source(info, &mut source, None, *ticket);
            }
            Op::Patch(set) => self.patch(set),
            // The engine knows none of its sequences any more: if they come back, it is elsewhere.
            Op::EndWriter(producer, writer) if self.state.is_poisoned => {
                self.release_homes(vec![key_of(*producer, *writer)]);
            }
            Op::EndProducer(producer) if self.state.is_poisoned => {
                let homes = self.shared.directory.homes_of(producer.0);
                self.release_homes(homes.into_iter().map(|(key, _)| key).collect());
            }
            Op::EndWriter(producer, writer) => self.engine().end_writer(*producer, *writer),
            Op::EndProducer(producer) => self.engine().end_producer(*producer),
        }
        Some(0)
    }

    pub(crate) fn patch(&mut self, set: &PatchSet) {
        let (producer, writer) = (set.producer_id_trusted, set.writer_id);
        let pending = set.other_patches_pending;
        self.engine().try_patch(producer, writer, set.chunk_id, &set.patches, pending);
    }

    /// Commits a chunk, and tells its size in bytes. None, and nothing done, if it needs an extent
    /// and there is none without waiting.
    #[inline]
    pub(crate) fn commit_source(
        &mut self,
        info: &ChunkInfo,
        source: &mut Source<'_>,
        memory: Option<&Smb>,
        ticket: u64,
    ) -> Option<usize> {
        let bytes = source.max_bytes();
        if self.engine().needs_extent(bytes) && !self.acquire_extent() {
            return None;
        }
        match source {
            Source::Borrowed(bytes) => copy_to(self.engine(), info, *bytes, ticket),
            _ => self.commit_taken(info, std::mem::replace(source, Source::Borrowed(&[])), memory, ticket),
        }
        Some(bytes)
    }

    #[inline(never)]
    fn commit_taken(&mut self, info: &ChunkInfo, source: Source<'_>, memory: Option<&Smb>, ticket: u64) {
        match (source, memory) {
            (Source::Scraped(payload), _) => copy_to(self.engine(), info, &SharedBytes(payload), ticket),
            (Source::Owned(bytes), _) => {
                // Foreign code: the engine is as it was if this panics.
                let may_poison = std::mem::replace(&mut self.may_poison, false);
                let bytes = bytes.copy();
                self.may_poison = may_poison;
                copy_to(self.engine(), info, bytes.as_slice(), ticket);
            }
            // The commit has checked that there is memory.
            (Source::Shared(token), Some(memory)) => {
                let chunk = memory.attach(token);
                copy_to(self.engine(), info, &SharedBytes(chunk.payload()), ticket);
            }
            _ => {}
        }
    }
}

/// One owner's drain.
pub(crate) struct DrainState<'a> {
    /// Batches from this ticket on stay queued.
    pub(crate) cut: u64,
    pub(crate) budget: &'a mut DrainBudget,
    /// The shared memory at hand. Chunks that were read are released when the drain ends, or
    /// earlier.
    pub(crate) reads: Reads,
}

/// Locks a shard in which all that the cut covers has been written, waiting for its owner. What
/// else is queued there stays: whoever unlocks the shard [notes](ShardGuard::unlock_read) it.
pub(crate) fn lock_drained<'a>(
    shared: &'a Shared,
    (shard, cut): (usize, u64),
    owner: OwnerId,
) -> ShardGuard<'a> {
    let mut guard = ShardGuard::lock(shared, shard, owner);
    guard.sort_queue(cut);
    loop {
        let result = guard.drain_until(cut, &mut DrainBudget::new());
        if result == DrainResult::Empty {
            return guard;
        }
        // Unlocked between two budgets, for threads that commit there.
        drop(guard);
        if result == DrainResult::NoExtent {
            // Other owners hold all extents, and will return one.
            std::thread::yield_now();
        }
        guard = ShardGuard::lock(shared, shard, owner);
    }
}

/// As `lock_drained`, without waiting: None if another thread has locked the shard, or if something
/// that the cut covers is not written yet. Where there are workers, these do that and tell of both;
/// where there are none, this call drains as far as the budget goes.
pub(crate) fn poll_drained<'a>(
    shared: &'a Shared,
    (shard, cut): (usize, u64),
    owner: OwnerId,
    budget: &mut DrainBudget,
) -> Option<ShardGuard<'a>> {
    let mut guard = ShardGuard::poll_lock(shared, shard, owner)?;
    guard.sort_queue(cut);
    if !shared.has_workers {
        guard.drain_until(cut, budget);
    }
    if guard.is_drained_to(cut) {
        return Some(guard);
    }
    let awaited_cut = &mut guard.state.awaited_cut;
    *awaited_cut = Some(awaited_cut.map_or(cut, |other| other.min(cut)));
    guard.unlock_read(budget);
    None
}

impl ShardGuard<'_> {
    /// Whether all that a cut covers has been written, up to which the queue was sorted.
    fn is_drained_to(&mut self, cut: u64) -> bool {
        let ShardState { in_progress, backlog, .. } = &mut *self.state;
        let mut next_ticket = in_progress.as_mut().map(|node| node.with_item(|batch| batch.first_ticket));
        backlog.next_if(|batch| {
            next_ticket.get_or_insert(batch.first_ticket);
            false
        });
        next_ticket.is_none_or(|ticket| ticket >= cut)
    }

    /// Unlocks a shard that was drained up to a cut, and helps whoever has queued more: those who
    /// came while it was locked rely on that. One budget for all shards of an operation.
    pub(crate) fn unlock_read(self, budget: &mut DrainBudget) {
        let (shared, shard, owner) = (self.shared, self.shard, self.owner);
        self.note_rest();
        drop(self);
        shared.help_after_unlock(shard, owner, budget);
    }

    /// Notes what was taken out of the queue and is not done.
    pub(crate) fn note_rest(&self) {
        if self.has_rest() {
            self.shared.defer_drain(self.shard);
        }
    }
}

impl Shared {
    /// For threads that have pushed something: the second half of "push, then try to lock".
    #[inline]
    pub(crate) fn after_push(&self, shard: usize, owner: OwnerId, budget: &mut DrainBudget) {
        let slot = self.slots.get(shard);
        if self.has_workers {
            self.leave_to_workers(shard, slot);
        } else if !slot.lock.is_locked() && !slot.queue.is_empty() {
            self.help(shard, owner, budget);
        }
    }

    /// For threads that have unlocked a shard and hold no other: the second half of "unlock, then
    /// look again".
    #[inline(always)]
    pub(crate) fn after_unlock(&self, shard: usize, owner: OwnerId) {
        if !self.slots.get(shard).queue.is_empty() || self.pending_drains.any() {
            self.help_after_unlock(shard, owner, &mut DrainBudget::new());
        }
    }

    /// As `after_unlock`, in an operation that helps more than once.
    #[cold]
    #[inline(never)]
    pub(crate) fn help_after_unlock(&self, shard: usize, owner: OwnerId, budget: &mut DrainBudget) {
        // Before the own queue, which may take the whole budget, time and again.
        self.run_pending_drains(owner, budget);
        if !self.slots.get(shard).queue.is_empty() {
            self.help(shard, owner, budget);
        }
    }

    /// Helps the owners of a shard for what is left of the budget, unless workers do. Whether
    /// nothing is left there.
    #[cold]
    pub(crate) fn help(&self, shard: usize, owner: OwnerId, budget: &mut DrainBudget) -> bool {
        if self.has_workers {
            return false;
        }
        let slot = self.slots.get(shard);
        // A failed try_lock would fetch the lock's cache line from the owner.
        let try_lock = || if slot.lock.is_locked() { None } else { ShardGuard::try_lock(self, shard, owner) };
        let leave = || self.defer_drain(shard);
        let has_extent = || self.extent_pool.has_returned();
        help(try_lock, |guard| guard.drain(budget), leave, || slot.queue.is_empty(), has_extent)
    }

    /// Tells whoever waits for room in a queue, if there is some.
    #[inline]
    fn tell_room(&self, slot: &ShardSlot) {
        if let Some(workers) = &self.config.workers
            && slot.hints.is_room_wanted.load(Ordering::SeqCst)
            && slot.queue.has_room()
            && slot.hints.is_room_wanted.swap(false, Ordering::SeqCst)
        {
            workers.pool.on_room.tell();
        }
    }

    /// Tells whoever looks at shards that one of them is to be looked at again.
    pub(crate) fn tell_ready(&self) {
        if let Some(workers) = &self.config.workers {
            workers.pool.on_ready.tell();
        }
    }

    /// For a worker: drains for one budget, unless another thread has locked the shard. What is
    /// left is noted. Returns whether there was no extent.
    pub(crate) fn drain_by_worker(&self, shard: usize, owner: OwnerId) -> bool {
        let slot = self.slots.get(shard);
        let guard = if slot.lock.is_locked() { None } else { ShardGuard::try_lock(self, shard, owner) };
        // Its owner looks at the queue again, and for what was noted.
        let Some(mut guard) = guard else { return false };
        #[cfg(any(test, feature = "testing"))]
        if slot.is_held.load(Ordering::SeqCst) {
            return false;
        }
        let result = guard.drain(&mut DrainBudget::new());
        if result != DrainResult::Empty {
            // The unlock schedules it.
            self.pending_drains.defer(&slot.hints.pending_drain);
        }
        result == DrainResult::NoExtent
    }
}
