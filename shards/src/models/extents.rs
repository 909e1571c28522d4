//! Loom models of extents that one shard gets from another: requests, and drains that find none.

use super::reclaim::{Guard, Queue};
use crate::{
    models::model,
    sync::extent_pool::ExtentPool,
    sync::lock::{OwnerId, OwnerLock},
    sync::node_pool::NodePool,
    sync::reclaim::{DrainResult, ExtentRequest, PendingDrains, help},
    sync::{AtomicU32, Ordering::Relaxed, UnsafeCell},
};
use loom::{sync::Arc, thread};

/// A shard with extents, of which only the owner of the lock knows.
struct Extents {
    lock: OwnerLock,
    request: ExtentRequest,
    has: UnsafeCell<Vec<u32>>,
    pool: ExtentPool,
}

// SAFETY: `has` is touched by the owner of `lock` alone; loom reports any other access.
unsafe impl Sync for Extents {}
// SAFETY: as above.
unsafe impl Send for Extents {}

impl Extents {
    /// A shard that has all extents. Lock and pool have been used: see `Queue::used`.
    fn of(num_extents: usize) -> Extents {
        let (lock, pool) = (OwnerLock::default(), ExtentPool::new(num_extents));
        assert!(lock.try_lock(OwnerId(0)) && !lock.unlock(OwnerId(0)).any());
        pool.take().into_iter().for_each(|index| pool.put(index));
        let has = std::iter::from_fn(|| pool.take()).collect();
        Extents { lock, request: ExtentRequest::default(), has: UnsafeCell::new(has), pool }
    }

    fn evict(&self) -> Option<u32> {
        // SAFETY: the caller holds the lock.
        self.has.with_mut(|has| unsafe { &mut *has }.pop())
    }

    /// What an owner does before, at and after the unlock.
    fn unlock(&self, owner: u32) {
        if self.request.take() {
            self.evict().into_iter().for_each(|index| self.pool.put(index));
        }
        if self.lock.unlock(OwnerId(owner)).has_request()
            && self.request.is_pending()
            && self.lock.try_lock(OwnerId(owner))
        {
            self.unlock(owner);
        }
    }
}

#[test]
fn an_extent_request_left_with_an_owner_is_served() {
    model(|| {
        let shard = Arc::new(Extents::of(2));
        let owners: Vec<_> = (0..2)
            .map(|owner| {
                let shard = Arc::clone(&shard);
                thread::spawn(move || {
                    if shard.lock.try_lock(OwnerId(owner)) {
                        shard.unlock(owner);
                    }
                })
            })
            .collect();

        let (mut taken, mut was_left) = (0, false);
        if shard.lock.try_lock(OwnerId(2)) {
            shard.request.withdraw();
            taken = usize::from(shard.evict().is_some());
            shard.unlock(2);
        } else {
            was_left = shard.request.post_to_owner(&shard.lock);
        }
        owners.into_iter().for_each(|owner| owner.join().unwrap());

        assert!(!shard.request.is_pending(), "a request is still pending");
        assert!(shard.lock.try_lock(OwnerId(3)), "the shard is still locked");
        // SAFETY: all other threads have ended.
        let has = shard.has.with(|has| unsafe { &*has }.len());
        let handed_over = std::iter::from_fn(|| shard.pool.take()).count();
        assert_eq!(has + handed_over + taken, 2);
        assert!(!was_left || handed_over == 1, "a request that was posted to an owner was served");
    });
}

/// A shard with something queued and no extent, and one with an extent.
struct TwoShards {
    poor: Queue,
    pending_drains: PendingDrains,
    rich: Extents,
    /// Extents of the poor one. Touched by the owner of its lock alone.
    granted: AtomicU32,
}

impl TwoShards {
    /// As `ShardGuard::acquire_extent`, for the owner of the poor shard.
    fn acquire_extent(&self, owner: u32) -> bool {
        let Extents { lock, request, pool, .. } = &self.rich;
        if pool.take().is_some() {
            return true;
        }
        loop {
            if lock.try_lock(OwnerId(owner)) {
                request.withdraw();
                let evicted = self.rich.evict().or_else(|| pool.take());
                self.rich.unlock(owner);
                return evicted.is_some();
            }
            self.pending_drains.defer(&self.poor.pending);
            if request.post_to_owner(lock) {
                return false;
            }
        }
    }

    /// As `Shared::help`.
    fn help(&self, owner: u32) -> bool {
        let lock = &self.poor.lock;
        let try_lock =
            || (!lock.is_locked() && lock.try_lock(OwnerId(owner))).then(|| Guard(&self.poor, owner));
        let drain = |guard: &mut Guard<'_>| {
            self.pending_drains.take(&self.poor.pending);
            if self.granted.load(Relaxed) == 0 {
                if !self.acquire_extent(owner) {
                    return DrainResult::NoExtent;
                }
                self.granted.store(1, Relaxed);
            }
            guard.drain(&mut 9)
        };
        let leave = || self.pending_drains.defer(&self.poor.pending);
        let has_extent = || self.rich.pool.has_returned();
        help(try_lock, drain, leave, || self.poor.queue.is_empty(), has_extent)
    }

    /// As `Shared::run_pending_drains`.
    fn run_pending(&self, owner: u32) {
        let drains = || [(0, &self.poor.pending)].into_iter();
        self.pending_drains.run(drains, |_| self.help(owner));
    }
}

/// A drain that finds no extent, since another thread owns the shard that has one, is run by that
/// thread when it has handed the extent over: nobody else comes by.
#[test]
fn what_found_no_extent_is_done_by_who_hands_one_over() {
    model(|| {
        // SAFETY: the pool is dropped after all nodes, below.
        let mut pool = unsafe { NodePool::new(1) };
        let (poor, pending_drains) = Queue::used(&mut pool);
        let shards =
            Arc::new(TwoShards { poor, pending_drains, rich: Extents::of(1), granted: AtomicU32::new(0) });
        let owner = {
            let shards = Arc::clone(&shards);
            thread::spawn(move || {
                if shards.rich.lock.try_lock(OwnerId(0)) {
                    shards.rich.unlock(0);
                }
                shards.run_pending(0);
            })
        };
        shards.poor.push(&mut pool, 7);
        shards.help(1);
        shards.run_pending(1);
        owner.join().unwrap();
        assert_eq!(shards.poor.ring(), [0, 7], "it waits for somebody who does not come");
        drop(pool);
    });
}
