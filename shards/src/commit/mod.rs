//! Committing, by any thread that has a [`Committer`]. Never waits.
//!
//! ```text
//!   any shard poisoned --------------------------------------------> as "else", with all homes
//!   home known and locked, chunks of one writer -------------------> enqueue
//!   home known and free, nothing queued there ---------------------> direct: the fast path
//!   else: reserve -> tickets -> find or choose homes
//!     one shard, free, nothing queued there -----------------------> write
//!     a full queue: try to drain it; still full -------------------> QueueFull, nothing was done
//!     otherwise: write or push the share of each shard ------------> shares
//!   then: shards that were unlocked meanwhile are drained, or their workers woken
//! ```

mod direct;
mod enqueue;
mod home_cache;
mod route;
mod shares;
#[cfg(any(test, feature = "testing"))]
mod testing;

use std::sync::Arc;

use watershed_engine::Refused;

use crate::batch::Batch;
use crate::batch::queued::QueuedBatch;
use crate::commit::direct::{DirectCommit, write_chunks};
use crate::commit::enqueue::drain_for_room;
use crate::commit::home_cache::HomeCache;
use crate::commit::route::{LIST_CAPACITY, Route};
use crate::shard::Shared;
use crate::shard::budget::DrainBudget;
use crate::shard::guard::ShardGuard;
use crate::sync::Ordering;
use crate::sync::lock::OwnerId;
use crate::sync::node_pool::{NodePool, OwnedNode};
use crate::sync::tickets::CommitterCell;

/// A committer has at most so many nodes.
pub(crate) const MAX_NODES: usize = 1024;

/// One thread's access to a buffer. Cheap to keep, a few allocations to make.
///
/// It is written at every commit. Aligned, so that two of them side by side share no cache line,
/// nor a pair of lines that processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
pub struct Committer {
    // Cell and pool point into `shared`, which is dropped last.
    owner: OwnerId,
    cell: CommitterCell,
    home_cache: HomeCache,
    pool: NodePool<QueuedBatch>,
    /// The CPU to whose shard new sequences go, if not the calling thread's.
    cpu_id: Option<usize>,
    route: Route,
    /// Nodes for the next batch. Those that it does not need stay.
    nodes: Vec<OwnedNode<QueuedBatch>>,
    shared: Arc<Shared>,
}

/// Backpressure: a queue is full, and the shard's owner is at work. Nothing of the batch was
/// committed, and it is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of shard {shard} is full")]
pub struct QueueFull {
    /// The shard whose queue is full.
    pub shard: usize,
}

/// Why a batch was not committed, or not all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A chunk of it breaks a rule: the caller's mistake. Nothing of the batch was committed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A chunk of it is [`Source::Shared`](crate::Source::Shared), and [`Batch::memory`] is None:
    /// the caller's mistake.
    #[error("the batch does not name the shared memory of its chunks")]
    NoMemory,
    /// To be tried again later.
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// So many chunks of it are for shards whose engines have panicked. They are discarded, and
    /// counted in the statistics; all else of the batch was committed, and the batch is empty.
    #[error("{0} chunks are for a shard that has panicked")]
    Poisoned(usize),
}

impl Committer {
    pub(crate) fn new(shared: &Arc<Shared>) -> Committer {
        let shared = Arc::clone(shared);
        let recycled = shared.node_pools.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
        // SAFETY: the pool moves to `Shared::node_pools` when the committer is dropped, and is
        // dropped there after all nodes.
        let pool = recycled.unwrap_or_else(|| unsafe { NodePool::new(MAX_NODES) });
        Committer {
            owner: OwnerId(shared.next_owner.fetch_add(1, Ordering::Relaxed) % (1 << 29)),
            // SAFETY: the cell is dropped before `shared` is, which keeps the tickets alive.
            cell: unsafe { shared.tickets.register() },
            home_cache: HomeCache::default(),
            pool,
            cpu_id: None,
            route: Route::new(),
            nodes: Vec::with_capacity(LIST_CAPACITY),
            shared,
        }
    }

    /// From now on new sequences go to the shard of this CPU, as if the calling thread ran there:
    /// for a thread that commits for threads elsewhere. `None`: the CPU of the calling thread.
    pub fn set_cpu(&mut self, cpu_id: Option<usize>) {
        self.cpu_id = cpu_id;
    }

    /// Commits a batch, and leaves it empty. A later read covers it, unless another committer is
    /// stopped in the middle of a commit (then it covers neither). Never waits.
    ///
    /// # Errors
    /// [`CommitError`]; then the batch is unchanged, but for [`CommitError::Poisoned`].
    pub fn commit(&mut self, batch: &mut Batch<'_>) -> Result<(), CommitError> {
        self.shared.tickets.prefetch();
        match self.enqueue_fast(batch) {
            Some(queued) => Ok(queued?),
            None => self.commit_checked(batch),
        }
    }

    #[inline(never)]
    fn commit_checked(&mut self, batch: &mut Batch<'_>) -> Result<(), CommitError> {
        let summary = batch.summarize()?;
        if batch.is_empty() {
            return Ok(());
        }
        if summary.has_shared && batch.memory.is_none() {
            return Err(CommitError::NoMemory);
        }
        match (self.commit_direct(batch, summary.only_writer), summary.only_writer) {
            (DirectCommit::Done, _) => {}
            (DirectCommit::Locked, Some(key)) => self.enqueue(key, batch, summary.is_owned)?,
            (direct, _) => {
                let first_ticket = self.reserve_tickets(batch.chunks.len() as u64);
                let may_write = !self.shared.has_workers && direct != DirectCommit::Locked;
                return self.commit_reserved(first_ticket, batch, summary.is_owned, may_write);
            }
        }
        batch.memory = None;
        Ok(())
    }

    /// Reserves a batch and takes its tickets. Until [`commit_reserved`](Self::commit_reserved) no
    /// cut passes them, and nothing else may be committed.
    fn reserve_tickets(&mut self, num_chunks: u64) -> u64 {
        let mut reservation = self.cell.reserve(&self.shared.tickets);
        let first_ticket = reservation.take_tickets(num_chunks);
        std::mem::forget(reservation);
        first_ticket
    }

    /// Commits a batch that goes to more than one shard, or whose home is not known. `may_write`:
    /// whether the fast path may be tried, since the shard was not just found locked.
    #[inline(never)]
    fn commit_reserved(
        &mut self,
        first_ticket: u64,
        batch: &mut Batch<'_>,
        is_owned: bool,
        may_write: bool,
    ) -> Result<(), CommitError> {
        let Committer { owner, cell, pool, cpu_id, route, nodes, shared, .. } = self;
        let (owner, shared): (OwnerId, &Shared) = (*owner, shared);
        let reservation = cell.resume_reservation(&shared.tickets);
        route.find(shared, *cpu_id, batch);
        // A poisoned shard discards and counts what comes, and frees it.
        let chunk_homes = &route.homes[..batch.chunks.len()];
        let refused = chunk_homes.iter().filter(|&&home| shared.is_poisoned(home.into())).count();
        let budget = &mut DrainBudget::new();
        let routed = RoutedCommit { shared, owner, pool, nodes, may_write, is_owned, first_ticket };
        let committed = routed.commit(route, batch, budget);
        drop(reservation);
        // Also if a queue is full: whoever pushed while this thread held the lock relies on it.
        route.shards.iter().for_each(|&home| shared.after_push(home.into(), owner, budget));
        shared.run_pending_drains(owner, budget);
        committed?;
        batch.memory = None;
        if refused == 0 { Ok(()) } else { Err(CommitError::Poisoned(refused)) }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.nodes.clear();
        // SAFETY: a pool of no nodes may be dropped at any time.
        let pool = std::mem::replace(&mut self.pool, unsafe { NodePool::new(0) });
        self.shared.node_pools.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(pool);
    }
}

/// A batch that is reserved, has its tickets, and whose homes are known.
struct RoutedCommit<'a> {
    shared: &'a Shared,
    owner: OwnerId,
    pool: &'a mut NodePool<QueuedBatch>,
    nodes: &'a mut Vec<OwnedNode<QueuedBatch>>,
    may_write: bool,
    /// Whether no chunk borrows its bytes.
    is_owned: bool,
    first_ticket: u64,
}

impl RoutedCommit<'_> {
    #[inline(never)]
    fn commit(
        mut self,
        route: &Route,
        batch: &mut Batch<'_>,
        budget: &mut DrainBudget,
    ) -> Result<(), QueueFull> {
        if let [shard] = route.shards[..]
            && self.may_write
            && batch.has_only_chunks()
        {
            if let Some(mut guard) = ShardGuard::try_lock_drained(self.shared, shard.into(), self.owner) {
                write_chunks(&mut guard, batch, self.first_ticket);
                return Ok(());
            }
            self.may_write = false;
        }
        self.prepare_nodes(&route.shards, budget)?;
        self.commit_shares(route, batch);
        Ok(())
    }

    /// Makes sure that the batch can be taken whole: room in each shard's queue, and a node for
    /// each.
    fn prepare_nodes(&mut self, shards: &[u16], budget: &mut DrainBudget) -> Result<(), QueueFull> {
        let RoutedCommit { shared, owner, .. } = *self;
        let mut has_room = |shard: usize| {
            shared.slots.get(shard).queue.has_room() || drain_for_room(shared, shard, owner, budget)
        };
        if let Some(&full) = shards.iter().find(|&&shard| !has_room(shard.into())) {
            return Err(QueueFull { shard: full.into() });
        }
        while self.nodes.len() < shards.len() {
            self.nodes.push(self.pool.take().ok_or(QueueFull { shard: shards[0].into() })?);
        }
        Ok(())
    }
}
