//! Runs of chunks in shared memory: nearly all chunks are such, out of the queue or on the fast
//! path.
//!
//! Done once for the chunks of a page: their release in its bitmap ([`Reads`]).

use watershed_engine::{ChunkInfo, Shard};
use watershed_smb::{ReadToken, Reads};

use crate::batch::queued::{PendingChunks, QueuedBatch};
use crate::batch::{Batch, SharedBytes, Source};
use crate::shard::ShardState;
use crate::shard::drain::DrainState;
use crate::shard::guard::ShardGuard;
use crate::sync::node_pool::{NodeReturns, OwnedNode};
use crate::sync::queue::{CommitQueue, NodeList};

/// Why a run ends before all is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The next thing is not a chunk in shared memory.
    NotSmbChunk,
    /// The next chunk needs an extent first.
    NeedsExtent,
    BudgetSpent,
}

impl ShardGuard<'_> {
    /// Works through the queue as far as there are chunks in shared memory. None if nothing is
    /// left; otherwise the batch in `in_progress` is not done.
    #[inline(always)]
    pub(crate) fn drain_smb_chunks(
        &mut self,
        in_progress: &mut Option<OwnedNode<QueuedBatch>>,
        drain: &mut DrainState<'_>,
        returns: &mut NodeReturns<QueuedBatch>,
    ) -> Option<StopReason> {
        self.engine();
        let (ShardState { engine, backlog, .. }, queue) = (&mut *self.state, &self.slot.queue);
        if in_progress.is_none() {
            *in_progress = next_node(backlog, queue, drain.cut);
        }
        let Some(engine) = engine.as_mut() else {
            return Some(StopReason::NotSmbChunk);
        };
        while let Some(node) = in_progress {
            let stopped = node.with_item(|batch| commit_smb_batch(batch, engine, drain));
            if stopped.is_some() {
                return stopped;
            }
            let done = std::mem::replace(in_progress, next_node(backlog, queue, drain.cut));
            done.into_iter().for_each(|node| returns.add(node));
        }
        None
    }

    /// Writes the chunks in shared memory with which a batch begins, as far as there are extents;
    /// returns how many.
    pub(crate) fn write_smb_chunks(&mut self, batch: &mut Batch<'_>, first_ticket: u64) -> usize {
        let Some(memory) = batch.memory.take() else { return 0 };
        let (mut reads, mut done) = (Reads::new(), 0);
        reads.take_up(memory);
        loop {
            let engine = self.engine();
            let (chunks, ticket) = (&batch.chunks[done..], first_ticket + done as u64);
            let stopped = commit_run(engine, &mut reads, chunks, ticket, &mut done, |_| true);
            if !(stopped == Some(StopReason::NeedsExtent) && self.acquire_extent()) {
                break;
            }
        }
        if done != batch.chunks.len() {
            // The other chunks need it.
            batch.memory = reads.put_down();
        }
        done
    }
}

#[inline]
fn next_node(
    backlog: &mut NodeList<QueuedBatch>,
    queue: &CommitQueue<QueuedBatch>,
    cut: u64,
) -> Option<OwnedNode<QueuedBatch>> {
    if cut != u64::MAX {
        // What the cut covers lies first, and has been taken out of the queue.
        return backlog.next_if(|batch| batch.first_ticket < cut);
    }
    backlog.next().or_else(|| {
        *backlog = queue.take_all();
        backlog.next()
    })
}

/// Does what is left of a batch, if that is chunks in shared memory. None if all of it is done.
#[inline(always)]
fn commit_smb_batch(
    batch: &mut QueuedBatch,
    engine: &mut Shard,
    drain: &mut DrainState<'_>,
) -> Option<StopReason> {
    // No foreign code runs until it is put back, so nothing panics.
    let Some(memory) = batch.memory.take() else { return Some(StopReason::NotSmbChunk) };
    let DrainState { budget, reads, .. } = drain;
    reads.take_up(memory);
    let PendingChunks { chunks, ticket, done, .. } = batch.pending_chunks();
    let stopped = commit_run(engine, reads, chunks, ticket, done, |bytes| {
        let may_commit = !budget.is_spent();
        if may_commit {
            budget.note(bytes);
        }
        may_commit
    });
    let stopped = stopped.or(batch.has_ops.then_some(StopReason::NotSmbChunk));
    match stopped {
        None => batch.finish(),
        Some(_) => batch.memory = reads.put_down(),
    }
    stopped
}

/// Commits chunks from the front, each if `may_commit` allows its size, and counts them in `done`.
/// None if none is left.
#[inline(always)]
fn commit_run(
    engine: &mut Shard,
    reads: &mut Reads,
    chunks: &[(ChunkInfo, Source<'_>)],
    first_ticket: u64,
    done: &mut usize,
    mut may_commit: impl FnMut(usize) -> bool,
) -> Option<StopReason> {
    for (ticket, (info, source)) in (first_ticket..).zip(chunks) {
        let Source::Shared(token) = source else { return Some(StopReason::NotSmbChunk) };
        let bytes = token.size_bytes();
        if engine.needs_extent(bytes) {
            return Some(StopReason::NeedsExtent);
        }
        if !may_commit(bytes) {
            return Some(StopReason::BudgetSpent);
        }
        commit_one(engine, reads, (info, token), ticket);
        *done += 1;
    }
    None
}

/// The token is not used again: its chunk counts as done, even if this panics.
#[inline(always)]
fn commit_one(engine: &mut Shard, reads: &mut Reads, (info, token): (&ChunkInfo, &ReadToken), ticket: u64) {
    // The commit has checked that there is memory.
    let Some(chunk) = reads.attach(token) else { return };
    // Refusals are reported by the commit itself.
    let _ = engine.copy_chunk_untrusted(info, &SharedBytes(chunk.payload()), ticket);
}
