//! A shard: an engine, the queue before it, and the lock by which one thread at a time owns them.
//!
//! ```text
//!   Shared ---- tickets, directory, extent pool, oldest          all threads, lock-free
//!     |
//!     +-- ShardSlot 0:  lock | queue | hints                     all threads, lock-free
//!     |                 state: engine, backlog, what was told    the owner of the lock
//!     +-- ShardSlot 1: ...
//! ```
//!
//! - `Shared::oldest`, `Hints::granted_ticket`: publish nothing: a shard is locked before anything
//!   is done about them. Relaxed.
//! - `Hints::is_room_wanted`: publishes nothing. SeqCst, against `CommitQueue::head`: "set it, then
//!   look for room; take the queue, then look at it": one of the two sees the other. Argument, as
//!   for the lock.
//! - `Hints::live`, `Shared::live`, `has_poisoned`, `next_owner`, `next_home`, `next_help`,
//!   `extracted_bytes`: publish nothing: hints and numbers. Relaxed.

pub(crate) mod budget;
pub(crate) mod drain;
pub(crate) mod evict;
pub(crate) mod guard;
pub(crate) mod homes;
pub(crate) mod smb_chunks;
#[cfg(any(test, feature = "testing"))]
mod testing;
pub(crate) mod topology;
pub(crate) mod worker;

use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;
use watershed_engine::{FillPolicy, Shard, mem::Region};

use crate::batch::queued::QueuedBatch;
use crate::shard::budget::DrainBudget;
use crate::shard::homes::Homes;
use crate::shard::topology::{MAX_SHARDS, Topology};
use crate::shard::worker::WorkerLink;
use crate::sync::directory::{Directory, Key};
use crate::sync::extent_pool::{ExtentLayout, ExtentPool};
use crate::sync::lock::{OwnerId, OwnerLock};
use crate::sync::node_pool::{NodePool, OwnedNode};
use crate::sync::once::OnceBox;
use crate::sync::queue::{CommitQueue, NodeList};
use crate::sync::reclaim::{ExtentRequest, PendingDrain, PendingDrains};
use crate::sync::tickets::Tickets;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, UnsafeCell};

/// The oldest ticket of a shard without extents: above every ticket.
pub(crate) const NO_TICKET: u64 = u64::MAX;

/// The live sequences of a poisoned shard: more than any other has.
pub(crate) const POISONED: u32 = u32::MAX;

/// What only the owner of a shard touches.
#[derive(Debug)]
pub(crate) struct ShardState {
    /// Made at the first commit.
    pub(crate) engine: Option<Shard>,
    /// The batch that was begun, then those taken out of the queue after it, oldest first.
    pub(crate) in_progress: Option<OwnedNode<QueuedBatch>>,
    pub(crate) backlog: NodeList<QueuedBatch>,
    /// Sequences that have gone, with the moment at which their homes were marked as leaving.
    pub(crate) leaving: Vec<(Key, u64)>,
    pub(crate) published: PublishedHints,
    /// Who drains up to here tells that; the queue was sorted up to there.
    pub(crate) awaited_cut: Option<u64>,
    /// The engine has panicked, and is another one that discards all.
    pub(crate) is_poisoned: bool,
    /// Chunks that were discarded before that.
    pub(crate) discarded_before_poison: u64,
}

/// The owner's copy of its hints: the hints themselves are in cache lines that other cores read.
#[derive(Debug)]
pub(crate) struct PublishedHints {
    /// The last ticket of the oldest extent, or [`NO_TICKET`]. A shard that is alone publishes 0:
    /// nobody asks.
    pub(crate) oldest: u64,
    pub(crate) live: u32,
}

/// One shard.
#[derive(Debug)]
pub(crate) struct ShardSlot {
    pub(crate) lock: CachePadded<OwnerLock>,
    pub(crate) queue: CachePadded<CommitQueue<QueuedBatch>>,
    pub(crate) hints: CachePadded<Hints>,
    /// No worker drains it.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) is_held: AtomicBool,
    state: CachePadded<UnsafeCell<ShardState>>,
}

/// What others may know of a shard without its lock. The owner stores only what has changed.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// The shard's newest ticket when it got its newest extent: tells whether it is active.
    pub(crate) granted_ticket: AtomicU64,
    /// Live sequences, for the choice of homes; [`POISONED`] in a poisoned shard.
    pub(crate) live: AtomicU32,
    pub(crate) extent_request: ExtentRequest,
    pub(crate) pending_drain: PendingDrain,
    /// Somebody waits for room in the queue.
    pub(crate) is_room_wanted: AtomicBool,
}

// SAFETY: `state` is reached through `ShardSlot::state` only, by the owner of the lock; the rest is
// atomic.
unsafe impl Sync for ShardSlot {}

impl ShardSlot {
    fn new(queue_capacity: usize) -> ShardSlot {
        ShardSlot {
            lock: CachePadded::default(),
            queue: CachePadded::new(CommitQueue::new(queue_capacity)),
            hints: CachePadded::default(),
            #[cfg(any(test, feature = "testing"))]
            is_held: AtomicBool::new(false),
            state: CachePadded::new(UnsafeCell::new(ShardState {
                engine: None,
                in_progress: None,
                backlog: NodeList::none(),
                leaving: Vec::new(),
                published: PublishedHints { oldest: NO_TICKET, live: 0 },
                awaited_cut: None,
                is_poisoned: false,
                discarded_before_poison: 0,
            })),
        }
    }

    /// The owner's state.
    ///
    /// # Safety
    /// The caller holds the lock, and uses no other reference to the state until this one is gone.
    #[expect(clippy::mut_from_ref, reason = "the lock excludes all others: its owner has the only reference")]
    pub(crate) unsafe fn state(&self) -> &mut ShardState {
        // SAFETY: the lock makes the access exclusive; the last owner's writes were acquired with
        // it.
        self.state.with_mut(|state| unsafe { &mut *state })
    }

    /// Whether something is queued, or noted, that a worker is to do.
    pub(crate) fn has_work(&self) -> bool {
        #[cfg(any(test, feature = "testing"))]
        if self.is_held.load(Ordering::SeqCst) {
            return false;
        }
        !self.queue.is_empty() || self.hints.pending_drain.is_pending()
    }
}

/// All shards, each made when it is first used: an unused one is a null pointer.
#[derive(Debug)]
pub(crate) struct ShardSlots {
    table: Box<[OnceBox<ShardSlot>]>,
    queue_capacity: usize,
}

impl ShardSlots {
    pub(crate) fn new(num_shards: usize, queue_capacity: usize) -> ShardSlots {
        ShardSlots { table: OnceBox::table(num_shards), queue_capacity }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// A shard, made now if need be.
    #[inline(always)]
    pub(crate) fn get(&self, shard: usize) -> &ShardSlot {
        let slot = &self.table[shard];
        slot.get().unwrap_or_else(|| self.make(slot))
    }

    #[cold]
    #[inline(never)]
    fn make<'a>(&self, slot: &'a OnceBox<ShardSlot>) -> &'a ShardSlot {
        slot.get_or(|| ShardSlot::new(self.queue_capacity))
    }

    /// The shards that have been made, all of them, beginning with `first`.
    pub(crate) fn made_from(&self, first: usize) -> impl Iterator<Item = (usize, &ShardSlot)> {
        let shards = (first..self.len()).chain(0..first);
        shards.filter_map(|shard| Some((shard, self.table[shard].get()?)))
    }

    /// The shards that have been made.
    pub(crate) fn made(&self) -> impl Iterator<Item = (usize, &ShardSlot)> {
        self.table.iter().enumerate().filter_map(|(shard, slot)| Some((shard, slot.get()?)))
    }
}

/// All that the threads of a buffer share.
#[derive(Debug)]
pub(crate) struct Shared {
    // Nodes lie in the slots and belong to the pools: the slots are dropped first.
    pub(crate) slots: ShardSlots,
    /// The pools of committers that have gone; their nodes may still be queued.
    pub(crate) node_pools: Mutex<Vec<NodePool<QueuedBatch>>>,
    pub(crate) tickets: Tickets,
    pub(crate) directory: Directory,
    pub(crate) extent_pool: CachePadded<ExtentPool>,
    pub(crate) config: SharedConfig,
    /// The last ticket of each shard's oldest extent, or [`NO_TICKET`]: a hint for evictions. Side
    /// by side, since these look at all of them.
    pub(crate) oldest: Box<[AtomicU64]>,
    /// Numbers for owners that are not workers.
    pub(crate) next_owner: AtomicU32,
    /// Live sequences of all shards.
    pub(crate) live: CachePadded<AtomicU32>,
    pub(crate) pending_drains: PendingDrains,
    /// Whether there are `workers`, where the hot paths look.
    pub(crate) has_workers: bool,
    pub(crate) has_poisoned: AtomicBool,
    /// The shard for the next sequence, for [`Homes::RoundRobin`].
    pub(crate) next_home: AtomicU32,
    /// The shard at which the next helper begins.
    pub(crate) next_help: AtomicU32,
    /// Bytes that were extracted for a read and not handed out.
    pub(crate) extracted_bytes: AtomicUsize,
}

/// What distinguishes one buffer's [`Shared`] from another's.
#[derive(Debug)]
pub(crate) struct SharedConfig {
    pub(crate) layout: ExtentLayout,
    pub(crate) policy: FillPolicy,
    pub(crate) region: Arc<Region>,
    pub(crate) topology: Topology,
    pub(crate) workers: Option<WorkerLink>,
    pub(crate) homes: Homes,
}

impl Shared {
    pub(crate) fn new(config: SharedConfig, queue_capacity: usize) -> Shared {
        let ExtentLayout { num_shards, num_extents, .. } = config.layout;
        Shared {
            slots: ShardSlots::new(num_shards, queue_capacity),
            node_pools: Mutex::default(),
            tickets: Tickets::default(),
            directory: Directory::default(),
            extent_pool: ExtentPool::new(if num_shards > 1 { num_extents } else { 0 }).into(),
            oldest: (0..num_shards).map(|_| AtomicU64::new(NO_TICKET)).collect(),
            // Workers have the first numbers.
            next_owner: AtomicU32::new(MAX_SHARDS as u32),
            live: AtomicU32::new(0).into(),
            pending_drains: PendingDrains::default(),
            has_workers: config.workers.is_some(),
            has_poisoned: AtomicBool::new(false),
            next_home: AtomicU32::new(0),
            next_help: AtomicU32::new(0),
            extracted_bytes: AtomicUsize::new(0),
            config,
        }
    }

    /// Whether the shards have extents, or the one shard has the whole region.
    pub(crate) fn has_extents(&self) -> bool {
        self.slots.len() > 1
    }

    /// Whether any shard is poisoned: then a commit looks which.
    pub(crate) fn has_poisoned(&self) -> bool {
        self.has_poisoned.load(Ordering::Relaxed)
    }

    /// Whether commits to a shard are refused.
    pub(crate) fn is_poisoned(&self, shard: usize) -> bool {
        self.has_poisoned() && self.slots.get(shard).hints.live.load(Ordering::Relaxed) == POISONED
    }

    /// The engine of a locked shard, made now if need be.
    #[inline]
    pub(crate) fn engine<'a>(&self, state: &'a mut ShardState) -> &'a mut Shard {
        match &mut state.engine {
            Some(engine) => engine,
            none => none.insert(self.make_engine()),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_engine(&self) -> Shard {
        let region = Arc::clone(&self.config.region);
        if self.has_extents() {
            Shard::new(region, self.config.layout.extent_bytes, self.config.layout.num_shards)
        } else {
            // SAFETY: the buffer has one shard and the region is the buffer's: nobody else touches
            // its bytes.
            unsafe { Shard::alone(region, self.config.policy) }
        }
    }

    /// Notes that there may be work left in a shard, for whoever looks next. By its owner, or by a
    /// thread that holds another lock.
    #[cold]
    pub(crate) fn defer_drain(&self, shard: usize) {
        let slot = self.slots.get(shard);
        self.pending_drains.defer(&slot.hints.pending_drain);
        self.leave_to_workers(shard, slot);
    }

    /// Has a worker come for what is left in a shard, if there are workers.
    #[inline]
    pub(crate) fn leave_to_workers(&self, shard: usize, slot: &ShardSlot) {
        if let Some(workers) = self.config.workers.as_ref().filter(|_| slot.has_work()) {
            workers.schedule(shard);
        }
    }

    /// Runs the drains that were deferred, as far as the budget goes, unless workers do it. For
    /// threads that hold no lock, at the end of whatever may have locked a shard.
    #[inline]
    pub(crate) fn run_pending_drains(&self, owner: OwnerId, budget: &mut DrainBudget) {
        if !self.has_workers && self.pending_drains.any() {
            self.run_pending_drains_cold(owner, budget);
        }
    }

    #[cold]
    fn run_pending_drains_cold(&self, owner: OwnerId, budget: &mut DrainBudget) {
        // From another shard each time, so that none is left out because a budget is always spent
        // before it.
        let first = self.next_help.fetch_add(1, Ordering::Relaxed) as usize % self.slots.len();
        let drains = || self.slots.made_from(first).map(|(shard, slot)| (shard, &slot.hints.pending_drain));
        self.pending_drains.run(drains, |shard| !budget.is_spent() && self.help(shard, owner, budget));
    }
}
