//! Loom models of the fast path: a shard that is locked before there are tickets.

use crate::{
    models::{model, settled},
    sync::UnsafeCell,
    sync::directory::{Directory, Key},
    sync::lock::{OwnerId, OwnerLock},
    sync::node_pool::NodePool,
    sync::queue::CommitQueue,
    sync::tickets::Tickets,
};
use loom::{sync::Arc, thread};

/// A state that only the owner of the lock touches.
struct Locked<T> {
    lock: OwnerLock,
    state: UnsafeCell<T>,
}

// SAFETY: `state` is touched by the owner of `lock` alone; loom reports any other access.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    fn new(state: T) -> Locked<T> {
        Locked { lock: OwnerLock::default(), state: UnsafeCell::new(state) }
    }

    /// Does nothing if the lock is held.
    fn try_with<R>(&self, owner: u32, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.lock.try_lock(OwnerId(owner)).then(|| {
            // SAFETY: this thread holds the lock.
            let result = self.state.with_mut(|state| work(unsafe { &mut *state }));
            self.lock.unlock(OwnerId(owner));
            result
        })
    }

    fn wait_with<R>(&self, owner: u32, mut work: impl FnMut(&mut T) -> R) -> R {
        loop {
            if let Some(result) = self.try_with(owner, &mut work) {
                return result;
            }
            thread::yield_now();
        }
    }
}

/// Two committers write directly where they can and queue where they cannot. Whoever takes a cut
/// and then the shard finds all below the cut.
#[test]
fn a_locked_shard_needs_no_reservation() {
    struct Shard {
        tickets: Tickets,
        queue: CommitQueue<u64>,
        ring: Locked<Vec<u64>>,
    }

    model(|| {
        let shard = Arc::new(Shard {
            tickets: Tickets::default(),
            queue: CommitQueue::new(4),
            ring: Locked::new(Vec::new()),
        });
        let committers: Vec<_> = (0..2)
            .map(|id| {
                let shard = Arc::clone(&shard);
                thread::spawn(move || {
                    // SAFETY: the cell is dropped here, while `shard` is alive.
                    let mut cell = unsafe { shard.tickets.register() };
                    let write = |ring: &mut Vec<u64>| ring.push(cell.take_tickets_locked(&shard.tickets, 1));
                    if shard.ring.try_with(id, write).is_some() {
                        return None;
                    }
                    // SAFETY: the pool is returned and dropped after the queue was emptied below.
                    let mut pool = unsafe { NodePool::new(1) };
                    let mut reservation = cell.reserve(&shard.tickets);
                    let ticket = reservation.take_tickets(1);
                    let mut node = pool.take().expect("a free node");
                    node.with_item(|item| *item = ticket);
                    shard.queue.push(node);
                    Some(pool)
                })
            })
            .collect();

        let drain = |ring: &mut Vec<u64>| {
            ring.extend(shard.queue.take_all().map(|mut node| node.with_item(|item| *item)));
            ring.clone()
        };
        let cut = shard.tickets.cut();
        let got = shard.ring.wait_with(7, drain);
        for ticket in 0..cut {
            assert!(got.contains(&ticket), "cut {cut} covers {ticket}, which is not there");
        }
        let pools: Vec<_> = committers.into_iter().map(|thread| thread.join().unwrap()).collect();
        let mut got = shard.ring.wait_with(7, drain);
        got.sort_unstable();
        assert_eq!((shard.tickets.cut(), &got[..]), (2, &[0, 1][..]));
        drop(pools);
    });
}

/// A committer that finds the home settled while it holds the home's lock relies on it. Meanwhile
/// the home's owner removes it, in two steps.
#[test]
fn a_home_stays_while_its_lock_is_held() {
    struct Homes {
        tickets: Tickets,
        directory: Directory,
        /// The first shard: whether the home was removed.
        is_gone: Locked<bool>,
    }

    model(|| {
        let homes = Arc::new(Homes {
            tickets: Tickets::default(),
            directory: Directory::default(),
            is_gone: Locked::new(false),
        });
        let key = settled(&homes.directory);
        let writer = {
            let homes = Arc::clone(&homes);
            thread::spawn(move || {
                // SAFETY: the cell is dropped here, while `homes` is alive.
                let mut cell = unsafe { homes.tickets.register() };
                let Some((home, entry)) = homes.directory.settled(key) else { return false };
                let write = |is_gone: &mut bool| {
                    // SAFETY: the entry is of this directory.
                    let is_settled = unsafe { homes.directory.settled_at(entry, key) } == Some(home);
                    is_settled.then(|| {
                        assert!(!*is_gone, "locked, settled, and removed");
                        cell.take_tickets_locked(&homes.tickets, 1)
                    })
                };
                homes.is_gone.try_with(1, write).flatten().is_some()
            })
        };
        let moment = homes.is_gone.wait_with(2, |_| {
            homes.directory.start_leaving(key);
            homes.tickets.now()
        });
        let cut = homes.tickets.cut();
        let is_gone = homes.is_gone.wait_with(2, |is_gone| {
            *is_gone = moment <= cut && homes.directory.finish_leaving(key);
            *is_gone
        });
        writer.join().unwrap();
        // No other batch holds the cut back, and none with a reservation has cleared LEAVING.
        assert!(is_gone);
        assert!(homes.directory.settled(key).is_none());
    });
}

/// A committer remembers the entry of a sequence, and locks its home. Meanwhile the owner of the
/// home frees the entry, and a third thread uses it for another sequence of the same shard.
#[test]
fn an_entry_that_is_used_again_is_not_taken_for_the_old() {
    struct Homes {
        tickets: Tickets,
        directory: Directory,
        /// The shard: whether the home was removed.
        is_gone: Locked<bool>,
    }

    model(|| {
        let homes = Arc::new(Homes {
            tickets: Tickets::default(),
            directory: Directory::default(),
            is_gone: Locked::new(false),
        });
        let (key, other) = (settled(&homes.directory), Key::new(0, 2));
        let (home, entry) = homes.directory.settled(key).expect("a home");
        let committer = {
            let homes = Arc::clone(&homes);
            thread::spawn(move || {
                homes.is_gone.try_with(1, |is_gone| {
                    // SAFETY: the entry is of this directory.
                    let is_settled = unsafe { homes.directory.settled_at(entry, key) } == Some(home);
                    assert!(!(is_settled && *is_gone), "the entry of another sequence");
                })
            })
        };
        let newcomer = {
            let homes = Arc::clone(&homes);
            thread::spawn(move || homes.directory.home_or(other, || 0).0)
        };
        let moment = homes.is_gone.wait_with(2, |_| {
            homes.directory.start_leaving(key);
            homes.tickets.now()
        });
        let cut = homes.tickets.cut();
        homes.is_gone.wait_with(2, |is_gone| {
            *is_gone = moment <= cut && homes.directory.finish_leaving(key);
            assert!(*is_gone);
        });
        committer.join().unwrap();
        assert_eq!(newcomer.join().unwrap(), 0);
        assert_eq!((homes.directory.home(key), homes.directory.home(other)), (None, Some(0)));
    });
}

/// Two committers meet a new sequence while an entry is freed in which one of them may put it.
#[test]
fn two_committers_choose_one_home() {
    model(|| {
        let directory = Arc::new(Directory::default());
        let (gone, key) = (settled(&directory), Key::new(0, 2));
        directory.start_leaving(gone);
        let committers: Vec<_> = (1..=2)
            .map(|home| {
                let directory = Arc::clone(&directory);
                thread::spawn(move || directory.home_or(key, || home).0)
            })
            .collect();
        assert!(directory.finish_leaving(gone));
        let homes: Vec<u16> = committers.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(homes[0], homes[1], "one home");
        assert_eq!(directory.homes_of(0), [(key, homes[0])], "one entry");
    });
}
