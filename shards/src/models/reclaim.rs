//! Loom models of pending drains.

use crate::{
    models::model,
    sync::lock::{OwnerId, OwnerLock},
    sync::node_pool::NodePool,
    sync::queue::{CommitQueue, NodeList},
    sync::reclaim::{DrainResult, PendingDrain, PendingDrains, help},
    sync::{AtomicU32, Ordering::Relaxed, UnsafeCell},
};
use loom::{sync::Arc, thread};

pub(super) struct Queue {
    pub(super) lock: OwnerLock,
    pub(super) queue: CommitQueue<u64>,
    pub(super) pending: PendingDrain,
    /// Only the owner of `lock` touches it.
    state: UnsafeCell<State>,
}

/// What was taken out of the queue, and what was done of it.
struct State {
    backlog: NodeList<u64>,
    ring: Vec<u64>,
}

// SAFETY: `state` is touched by the owner of `lock` alone; loom reports any other access.
unsafe impl Sync for Queue {}
// SAFETY: as above.
unsafe impl Send for Queue {}

pub(super) struct Guard<'a>(pub(super) &'a Queue, pub(super) u32);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.lock.unlock(OwnerId(self.1));
    }
}

impl Guard<'_> {
    pub(super) fn drain(&mut self, budget: &mut usize) -> DrainResult {
        // SAFETY: the guard's lock is held.
        self.0.state.with_mut(|state| {
            let State { backlog, ring } = unsafe { &mut *state };
            loop {
                if backlog.is_empty() {
                    *backlog = self.0.queue.take_all();
                }
                match (backlog.is_empty(), budget.checked_sub(1)) {
                    (true, _) => return DrainResult::Empty,
                    (false, None) => return DrainResult::BudgetSpent,
                    (false, Some(left)) => *budget = left,
                }
                ring.extend(backlog.next().map(|mut node| node.with_item(|item| *item)));
            }
        })
    }
}

impl Queue {
    /// Queue and lock have been used: loom lets a SeqCst load see an initial value, which is not a
    /// SeqCst store, after any that is.
    pub(super) fn used(pool: &mut NodePool<u64>) -> (Queue, PendingDrains) {
        let state = UnsafeCell::new(State { backlog: NodeList::none(), ring: Vec::new() });
        let (lock, queue, pending) = (OwnerLock::default(), CommitQueue::new(4), PendingDrain::default());
        let shared = (Queue { lock, queue, pending, state }, PendingDrains::default());
        let (queue, pending_drains) = &shared;
        queue.push(pool, 0);
        assert!(queue.help(pending_drains, 3, &mut 1));
        shared
    }

    pub(super) fn push(&self, pool: &mut NodePool<u64>, value: u64) {
        let mut node = pool.take().expect("a free node");
        node.with_item(|item| *item = value);
        self.queue.push(node);
    }

    /// As `Shared::help`, with a budget of items.
    fn help(&self, pending_drains: &PendingDrains, owner: u32, budget: &mut usize) -> bool {
        let try_lock =
            || (!self.lock.is_locked() && self.lock.try_lock(OwnerId(owner))).then(|| Guard(self, owner));
        let drain = |guard: &mut Guard<'_>| {
            pending_drains.take(&self.pending);
            guard.drain(budget)
        };
        help(try_lock, drain, || pending_drains.defer(&self.pending), || self.queue.is_empty(), || false)
    }

    /// As `Shared::run_pending_drains`.
    fn run_pending(&self, pending_drains: &PendingDrains, owner: u32, budget: &mut usize) {
        let drains = || [(0, &self.pending)].into_iter();
        pending_drains.run(drains, |_| *budget > 0 && self.help(pending_drains, owner, budget));
    }

    /// Locks the shard for a moment, without looking at the queue.
    fn evict(&self, pending_drains: &PendingDrains, owner: u32) {
        if self.lock.try_lock(OwnerId(owner)) {
            self.lock.unlock(OwnerId(owner));
            if !self.queue.is_empty() {
                pending_drains.defer(&self.pending);
            }
        }
    }

    /// What was done, when all other threads have ended.
    pub(super) fn ring(&self) -> Vec<u64> {
        // SAFETY: nobody else has the queue.
        self.state.with(|state| unsafe { (*state).ring.clone() })
    }
}

#[test]
fn a_deferred_drain_is_run() {
    model(|| {
        // SAFETY: the pool is dropped after all nodes, below.
        let mut pool = unsafe { NodePool::new(1) };
        let shared = Arc::new(Queue::used(&mut pool));
        let evictors: Vec<_> = (0..2)
            .map(|owner| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (queue, pending_drains) = &*shared;
                    queue.evict(pending_drains, owner);
                    queue.run_pending(pending_drains, owner, &mut 9);
                })
            })
            .collect();

        let (queue, pending_drains) = &*shared;
        queue.push(&mut pool, 7);
        queue.help(pending_drains, 2, &mut 9);
        evictors.into_iter().for_each(|evictor| evictor.join().unwrap());

        assert!(queue.queue.is_empty(), "an item is still queued");
        assert_eq!(queue.ring(), [0, 7]);
        // An owner that did the work may have gone when the drain was noted.
        queue.run_pending(pending_drains, 2, &mut 9);
        assert!(!pending_drains.any());
        drop(pool);
    });
}

/// Three items and two committers, each of which may do one beside others' work: what their budgets
/// do not reach is noted when both have gone, and whoever looks next does it, in order.
#[test]
fn what_a_budget_leaves_is_noted() {
    model(|| {
        // SAFETY: the pool is dropped after all nodes, below.
        let mut pool = unsafe { NodePool::new(1) };
        let shared = Arc::new(Queue::used(&mut pool));
        shared.0.push(&mut pool, 1);
        let committers: Vec<_> = (0..2)
            .map(|owner| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (queue, pending_drains) = &*shared;
                    // SAFETY: the pool is returned and dropped after the queue was emptied below.
                    let mut pool = unsafe { NodePool::new(1) };
                    let mut budget = 1;
                    queue.push(&mut pool, 2 + u64::from(owner));
                    queue.help(pending_drains, owner, &mut budget);
                    queue.run_pending(pending_drains, owner, &mut budget);
                    pool
                })
            })
            .collect();
        let pools: Vec<_> = committers.into_iter().map(|thread| thread.join().unwrap()).collect();

        let (queue, pending_drains) = &*shared;
        assert!(queue.ring().len() < 4, "the budgets are for two of three");
        assert!(pending_drains.any() && queue.pending.is_pending(), "something is left and not noted");
        queue.run_pending(pending_drains, 2, &mut 9);
        assert!(!pending_drains.any());
        let mut ring = queue.ring();
        assert_eq!(ring[1], 1, "the oldest first");
        ring.sort_unstable();
        assert_eq!(ring, [0, 1, 2, 3]);
        drop((pool, pools));
    });
}

/// Two threads defer a drain each and run what they find. Neither waits for the other, and each
/// drain is run once.
#[test]
fn every_pending_drain_is_found() {
    model(|| {
        let shared = Arc::new((
            [PendingDrain::default(), PendingDrain::default()],
            PendingDrains::default(),
            [0; 2].map(AtomicU32::new),
        ));
        let run = |shared: &([PendingDrain; 2], PendingDrains, [AtomicU32; 2]), mine: usize| {
            let (pending, pending_drains, runs) = shared;
            pending_drains.defer(&pending[mine]);
            let each = || pending.iter().enumerate();
            pending_drains.run(each, |shard| {
                let is_taken = pending_drains.take(&pending[shard]);
                runs[shard].fetch_add(is_taken.into(), Relaxed);
                is_taken
            });
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || run(&shared, 1))
        };
        run(&shared, 0);
        other.join().unwrap();
        let (_, pending_drains, runs) = &*shared;
        assert!(!pending_drains.any());
        assert_eq!([0, 1].map(|shard| runs[shard].load(Relaxed)), [1, 1]);
    });
}
