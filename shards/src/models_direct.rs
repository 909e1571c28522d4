//! Loom models of the shortest way: a shard that is in hand before there are tickets. See [`crate::models`].
//!
//! | model | covers |
//! |---|---|
//! | `what_is_in_hand_needs_no_announcement` | `Tickets::next` with `Word`, beside batches that are announced |
//! | `a_home_in_hand_stays` | `Directory` entries with `Word` |

use crate::{
    directory::Directory,
    inbox::Inbox,
    models::{model, settled},
    nodes::NodePool,
    sync::UnsafeCell,
    ticket::Tickets,
    word::{OwnerId, Word},
};
use loom::{sync::Arc, thread};

/// Something that only the owner of the word touches.
struct Owned<T> {
    word: Word,
    state: UnsafeCell<T>,
}

// SAFETY: `state` is touched by the owner of `word` alone; loom reports any other access.
unsafe impl<T: Send> Sync for Owned<T> {}

impl<T> Owned<T> {
    fn new(state: T) -> Owned<T> {
        Owned { word: Word::new(), state: UnsafeCell::new(state) }
    }

    /// Nothing is done if somebody has the word.
    fn try_with<R>(&self, owner: u32, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.word.try_take(OwnerId(owner)).then(|| {
            // SAFETY: this thread owns the word.
            let result = self.state.with_mut(|state| work(unsafe { &mut *state }));
            self.word.give();
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

/// Two committers write directly where they can and queue where they cannot. Whoever takes a cut and then the shard finds all below the cut.
#[test]
fn what_is_in_hand_needs_no_announcement() {
    struct Shard {
        tickets: Tickets,
        inbox: Inbox<u64>,
        ring: Owned<Vec<u64>>,
    }

    model(|| {
        let shard =
            Arc::new(Shard { tickets: Tickets::new(), inbox: Inbox::new(4), ring: Owned::new(Vec::new()) });
        let committers: Vec<_> = (0..2)
            .map(|id| {
                let shard = Arc::clone(&shard);
                thread::spawn(move || {
                    // SAFETY: the seat is dropped here, while `shard` is alive.
                    let mut seat = unsafe { shard.tickets.register() };
                    let in_hand = |ring: &mut Vec<u64>| ring.push(seat.take_in_hand(&shard.tickets, 1));
                    if shard.ring.try_with(id, in_hand).is_some() {
                        return None;
                    }
                    // SAFETY: the pool is returned and dropped after the queue was emptied below.
                    let mut pool = unsafe { NodePool::new(1) };
                    let mut announced = seat.announce(&shard.tickets);
                    let ticket = announced.take(1);
                    let mut letter = pool.letter().expect("a free node");
                    letter.with_item(|item| *item = ticket);
                    shard.inbox.put(letter);
                    Some(pool)
                })
            })
            .collect();

        let drain = |ring: &mut Vec<u64>| {
            ring.extend(shard.inbox.take_all().map(|mut letter| letter.with_item(|item| *item)));
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

/// A committer that finds the home still settled when it has it in hand relies on it. Meanwhile its owner lets the sequence go, in two turns.
#[test]
fn a_home_in_hand_stays() {
    struct Homes {
        tickets: Tickets,
        directory: Directory,
        /// Of the first shard: whether the home was taken away.
        is_gone: Owned<bool>,
    }

    model(|| {
        let homes = Arc::new(Homes {
            tickets: Tickets::new(),
            directory: Directory::new(),
            is_gone: Owned::new(false),
        });
        let key = settled(&homes.directory);
        let writer = {
            let homes = Arc::clone(&homes);
            thread::spawn(move || {
                // SAFETY: the seat is dropped here, while `homes` is alive.
                let mut seat = unsafe { homes.tickets.register() };
                let home = homes.directory.settled(key);
                let entry = homes.directory.entry_of(key).expect("an entry was made");
                let in_hand = |is_gone: &mut bool| {
                    // SAFETY: the entry is of this directory.
                    let is_settled = unsafe { homes.directory.settled_at(entry) } == home;
                    is_settled.then(|| {
                        assert!(!*is_gone, "in hand, settled, and gone");
                        seat.take_in_hand(&homes.tickets, 1)
                    })
                };
                home == Some(0) && homes.is_gone.try_with(1, in_hand).flatten().is_some()
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
        // Nobody else holds the cut back, and nobody has come back to the sequence by the announced way.
        assert!(is_gone);
        assert_eq!(homes.directory.settled(key), None);
    });
}
