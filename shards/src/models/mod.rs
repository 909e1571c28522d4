//! Loom models: every interleaving and every allowed reordering of small cases, on the shipped
//! source. Each primitive in `sync` names the models that cover it.
//!
//! Run by `ci/loom`. They are the only proof for processors with weak memory order, since emulation
//! does not reorder.

mod direct;
mod extents;
mod ready;
mod reclaim;

use crate::{
    sync::UnsafeCell,
    sync::directory::{Directory, Key},
    sync::extent_pool::ExtentPool,
    sync::lock::{OwnerId, OwnerLock},
    sync::node_pool::NodePool,
    sync::queue::CommitQueue,
    sync::tickets::Tickets,
};
use loom::{sync::Arc, thread};

pub(crate) fn model(f: impl Fn() + Send + Sync + 'static) {
    model_to(3, f);
}

/// As `model`, where threads lose the processor at most so many times in the middle of something.
pub(crate) fn model_to(max_preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(max_preemptions);
    builder.check(f);
}

struct Queue {
    tickets: Tickets,
    queue: CommitQueue<u64>,
}

// The pools of the models live as long as the queue: the threads that used them return them.
fn commit(queue: &Queue, pool: &mut NodePool<u64>, cell: &mut crate::sync::tickets::CommitterCell) {
    let mut reservation = cell.reserve(&queue.tickets);
    let ticket = reservation.take_tickets(1);
    let mut node = pool.take().expect("a free node");
    node.with_item(|item| *item = ticket);
    queue.queue.push(node);
}

#[test]
fn a_cut_covers_only_what_is_queued() {
    model(|| {
        let queue = Arc::new(Queue { tickets: Tickets::default(), queue: CommitQueue::new(4) });
        let committers: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    // SAFETY: the pool is returned and dropped after the queue was emptied below.
                    let mut pool = unsafe { NodePool::new(1) };
                    // SAFETY: the cell is dropped here, while `queue` is alive.
                    let mut cell = unsafe { queue.tickets.register() };
                    commit(&queue, &mut pool, &mut cell);
                    pool
                })
            })
            .collect();

        let cut = queue.tickets.cut();
        let mut got: Vec<u64> = queue.queue.take_all().map(|mut node| node.with_item(|item| *item)).collect();
        for ticket in 0..cut {
            assert!(got.contains(&ticket), "cut {cut} covers {ticket}, which is not queued");
        }
        let pools: Vec<_> = committers.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(queue.tickets.cut(), 2);
        got.extend(queue.queue.take_all().map(|mut node| node.with_item(|item| *item)));
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
        drop(pools);
    });
}

#[test]
fn a_cell_is_used_again_by_another_thread() {
    model(|| {
        let queue = Arc::new(Queue { tickets: Tickets::default(), queue: CommitQueue::new(4) });
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                // SAFETY: the pool outlives its nodes, which are taken below before it is dropped.
                let mut pool = unsafe { NodePool::new(2) };
                for _ in 0..2 {
                    // SAFETY: the cell is dropped in this round, while `queue` is alive.
                    let mut cell = unsafe { queue.tickets.register() };
                    commit(&queue, &mut pool, &mut cell);
                }
                pool
            })
        };
        // SAFETY: the cell is dropped before `queue`.
        let mut cell = unsafe { queue.tickets.register() };
        let mut reservation = cell.reserve(&queue.tickets);
        let mine = reservation.take_tickets(1);
        let cut = queue.tickets.cut();
        assert!(cut <= mine, "a reserved batch is not covered");
        let queued = queue.queue.take_all().count() as u64;
        assert!(cut <= queued, "cut {cut}, queued {queued}");
        drop(reservation);
        let pool = other.join().unwrap();
        drop(queue.queue.take_all());
        drop(pool);
    });
}

struct Shard {
    lock: OwnerLock,
    queue: CommitQueue<u64>,
    /// Only the owner of `lock` touches it: what was drained.
    ring: UnsafeCell<Vec<u64>>,
}

// SAFETY: `ring` is touched by the owner of `lock` alone; loom reports any other access.
unsafe impl Sync for Shard {}
// SAFETY: as above.
unsafe impl Send for Shard {}

/// As `Shared::try_drain`: unlock, then look again.
fn drain(shard: &Shard, owner: u32) {
    while !shard.queue.is_empty() && shard.lock.try_lock(OwnerId(owner)) {
        drain_locked(shard);
        shard.lock.unlock(OwnerId(owner));
    }
}

fn drain_locked(shard: &Shard) {
    for mut node in shard.queue.take_all() {
        let value = node.with_item(|item| *item);
        // SAFETY: this thread holds the lock.
        shard.ring.with_mut(|ring| unsafe { (*ring).push(value) });
    }
}

#[test]
fn nothing_stays_queued_when_an_owner_unlocks() {
    beside_committers(|_| {});
}

/// Whoever waits for a shard keeps committers from it, has it in the end, and then does what they
/// left.
#[test]
fn a_waiter_gets_the_lock_and_leaves_it_free() {
    beside_committers(|shard| {
        while shard.lock.poll_lock(OwnerId(2)).is_err() {
            thread::yield_now();
        }
        drain_locked(shard);
        shard.lock.unlock(OwnerId(2));
        drain(shard, 2);
    });
}

/// Whoever finds a shard locked is told by an owner's unlock, whoever else waits; and who gives up
/// leaves it free.
#[test]
fn who_finds_a_shard_locked_is_told() {
    for gives_up in [false, true] {
        model(move || {
            let lock = Arc::new(OwnerLock::default());
            let num_told = Arc::new(loom::sync::atomic::AtomicU32::new(0));
            let unlock = |lock: &OwnerLock, num_told: &loom::sync::atomic::AtomicU32, owner| {
                if lock.unlock(owner).tells() {
                    num_told.fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
                }
            };
            let others = [OwnerId(1), OwnerId(3)].map(|owner| {
                let (lock, num_told) = (Arc::clone(&lock), Arc::clone(&num_told));
                thread::spawn(move || {
                    // The one commits, and the other one waits for the shard.
                    let is_committer = owner == OwnerId(1);
                    if is_committer && !lock.try_lock(owner) {
                        return;
                    }
                    while !is_committer && lock.poll_lock(owner).is_err() {
                        thread::yield_now();
                    }
                    unlock(&lock, &num_told, owner);
                })
            });
            let is_locked = lock.poll_lock_told(OwnerId(2)).is_ok();
            let must_unlock = is_locked || gives_up && lock.stop_waiting(OwnerId(2)).is_ok();
            if must_unlock {
                unlock(&lock, &num_told, OwnerId(2));
            }
            others.into_iter().for_each(|thread| thread.join().unwrap());
            if !is_locked && !gives_up {
                assert!(num_told.load(loom::sync::atomic::Ordering::Relaxed) > 0, "nobody has told");
                assert!(lock.poll_lock_told(OwnerId(2)).is_ok(), "the shard was left to who waits");
                assert!(!lock.unlock(OwnerId(2)).any());
            }
            assert!(!lock.is_locked(), "the shard is still locked");
        });
    }
}

fn beside_committers(work: impl Fn(&Shard) + Copy + Send + Sync + 'static) {
    model(move || {
        let shard = Arc::new(Shard {
            lock: OwnerLock::default(),
            queue: CommitQueue::new(4),
            ring: UnsafeCell::new(Vec::new()),
        });
        // Lock and queue have been used: see `reclaim::Queue::used`.
        // SAFETY: the pool is dropped after all nodes, below.
        let mut pool = unsafe { NodePool::new(1) };
        shard.queue.push(pool.take().expect("a free node"));
        assert!(shard.lock.poll_lock(OwnerId(2)).is_ok());
        drop(shard.queue.take_all());
        shard.lock.unlock(OwnerId(2));
        let committers: Vec<_> = (0..2u32)
            .map(|id| {
                let shard = Arc::clone(&shard);
                thread::spawn(move || {
                    // SAFETY: the pool is dropped after all nodes, below.
                    let mut pool = unsafe { NodePool::new(1) };
                    let mut node = pool.take().expect("a free node");
                    node.with_item(|item| *item = u64::from(id));
                    shard.queue.push(node);
                    // As `Shared::after_push`.
                    if !shard.lock.is_locked() {
                        drain(&shard, id);
                    }
                    pool
                })
            })
            .collect();
        work(&shard);
        let pools: Vec<_> = committers.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(!shard.lock.is_locked(), "the shard is still locked");
        assert!(shard.queue.is_empty(), "an item is still queued");
        let mut ring = shard.ring.with(|ring| {
            // SAFETY: all other threads have ended.
            unsafe { (*ring).clone() }
        });
        ring.sort_unstable();
        assert_eq!(ring, [0, 1]);
        drop((pool, pools));
    });
}

#[test]
fn nodes_return_to_their_pool() {
    model(|| {
        let queue = Arc::new(CommitQueue::new(1));
        let pusher = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                // SAFETY: the pool is dropped after all nodes, below.
                let mut pool = unsafe { NodePool::new(1) };
                let mut pushed = 0;
                for value in 1..=3u64 {
                    let Some(mut node) = pool.take() else { continue };
                    node.with_item(|item| *item = value);
                    if queue.has_room() {
                        queue.push(node);
                        pushed += 1;
                    }
                }
                (pool, pushed)
            })
        };
        let mut last = 0;
        let mut got = 0;
        let mut take = || {
            for mut node in queue.take_all() {
                let value = node.with_item(|item| *item);
                assert!(value > last, "{value} after {last}");
                last = value;
                got += 1;
            }
        };
        take();
        take();
        let (pool, pushed) = pusher.join().unwrap();
        take();
        assert_eq!(got, pushed);
        drop(pool);
    });
}

/// A sequence whose home is the first shard.
pub(crate) fn settled(directory: &Directory) -> Key {
    let key = Key::new(0, 1);
    directory.home_or(key, || 0);
    key
}

/// Two shards of one queue each, and where the one sequence lives.
struct Homes {
    tickets: Tickets,
    directory: Directory,
    /// Items queued at each shard and not yet drained.
    queued: [loom::sync::atomic::AtomicU32; 2],
}

/// A writer commits a chunk while the owner of its home removes the home. The chunk may be queued
/// elsewhere only if the home was removed, and nothing is queued at a home that was removed.
#[test]
fn homes_never_split() {
    use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
    model(|| {
        let homes = Arc::new(Homes {
            tickets: Tickets::default(),
            directory: Directory::default(),
            queued: std::array::from_fn(|_| loom::sync::atomic::AtomicU32::new(0)),
        });
        let key = settled(&homes.directory);
        let writer = {
            let homes = Arc::clone(&homes);
            thread::spawn(move || {
                // SAFETY: the cell is dropped here, while `homes` is alive.
                let mut cell = unsafe { homes.tickets.register() };
                let mut reservation = cell.reserve(&homes.tickets);
                reservation.take_tickets(1);
                let (home, _) = homes.directory.home_or(key, || 1);
                homes.queued[usize::from(home)].fetch_add(1, Release);
                home
            })
        };

        homes.directory.start_leaving(key);
        let moment = homes.tickets.now();
        // Another batch moves the counter on. SAFETY: the cell is dropped before `homes`.
        let mut cell = unsafe { homes.tickets.register() };
        cell.reserve(&homes.tickets).take_tickets(1);
        let is_removed = homes.tickets.cut() >= moment && {
            let drained = homes.queued[0].swap(0, Acquire);
            homes.directory.finish_leaving(key) && {
                assert_eq!(
                    homes.queued[0].load(Relaxed),
                    0,
                    "queued at a home that was removed (drained {drained})"
                );
                true
            }
        };
        let home = writer.join().unwrap();
        if is_removed {
            assert_eq!(homes.queued[0].load(Relaxed), 0, "the chunk went to a home that was removed");
        }
        assert_eq!(homes.directory.home(key), (!is_removed || home == 1).then_some(home));
    });
}

/// Two threads take extents, write to them and put them back; loom reports it if two ever have the
/// same one.
#[test]
fn an_extent_has_one_holder() {
    struct Memory {
        pool: ExtentPool,
        extents: [UnsafeCell<u32>; 2],
    }
    // SAFETY: an extent is touched by its holder alone; loom reports any other access.
    unsafe impl Sync for Memory {}
    // SAFETY: as above.
    unsafe impl Send for Memory {}

    /// Takes two, puts the first back while it goes on using the second: what an unmarked stack
    /// would get wrong (ABA).
    fn use_extents(memory: &Memory) {
        let first = memory.pool.take();
        let second = memory.pool.take();
        for index in [first, second].into_iter().flatten() {
            // SAFETY: this thread holds the extent.
            memory.extents[index as usize].with_mut(|extent| unsafe { *extent += 1 });
            memory.pool.put(index);
        }
    }

    model(|| {
        let memory = Arc::new(Memory {
            pool: ExtentPool::new(2),
            extents: std::array::from_fn(|_| UnsafeCell::new(0)),
        });
        // Both are in the stack, so that taking and putting back wraps round.
        let both = [memory.pool.take().unwrap(), memory.pool.take().unwrap()];
        both.into_iter().for_each(|index| memory.pool.put(index));
        let other = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || use_extents(&memory))
        };
        use_extents(&memory);
        other.join().unwrap();
        let mut left = [memory.pool.take().unwrap(), memory.pool.take().unwrap()];
        left.sort_unstable();
        assert_eq!((left, memory.pool.take()), ([0, 1], None));
    });
}
