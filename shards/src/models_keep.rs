//! Loom models of words that are kept between commits. See [`crate::models`].
//!
//! | model | covers |
//! |---|---|
//! | `a_kept_word_has_one_owner` | `Word` with `AtWork`, `Word::keeper`; that no time of keeping is taken for another |
//! | `nothing_is_left_behind_with_a_keeper` | the same with `Inbox::head` |
//! | `what_is_kept_needs_no_announcement` | `Tickets::next` with `AtWork` |
//! | `a_keeper_that_went_elsewhere_leaves_nothing` | `AtWork` of a keeper that keeps another word by now, with `Inbox::head` |

use crate::{
    inbox::Inbox,
    keep::{AtWork, Had, Keeper},
    models::model,
    nodes::NodePool,
    sync::UnsafeCell,
    ticket::Tickets,
    word::{OwnerId, Word},
};
use loom::{sync::Arc, thread};

/// A shard, of which only the owner of the word knows what is in it.
struct Shard {
    word: Word,
    inbox: Inbox<u64>,
    ring: UnsafeCell<Vec<u64>>,
}

// SAFETY: `ring` is touched by the owner of `word` alone; loom reports any other access.
unsafe impl Sync for Shard {}
// SAFETY: as above.
unsafe impl Send for Shard {}

impl Shard {
    fn new() -> Shard {
        Shard { word: Word::new(), inbox: Inbox::new(4), ring: UnsafeCell::new(Vec::new()) }
    }

    fn push(&self, value: u64) {
        // SAFETY: the caller owns the word.
        self.ring.with_mut(|ring| unsafe { (*ring).push(value) });
    }

    fn drain(&self) {
        self.inbox.take_all().for_each(|mut letter| self.push(letter.with_item(|item| *item)));
    }

    /// As `Inner::visit`.
    fn visit(&self, owner: u32) {
        while !self.inbox.is_empty() && !self.word.is_taken() && self.word.try_take(OwnerId(owner)) {
            self.drain();
            self.word.give();
        }
    }

    fn wait_with<R>(&self, owner: u32, work: impl Fn(&[u64]) -> R) -> R {
        while !self.word.try_take(OwnerId(owner)) {
            thread::yield_now();
        }
        self.drain();
        // SAFETY: this thread owns the word.
        let result = self.ring.with(|ring| work(unsafe { &*ring }));
        self.word.give();
        result
    }
}

/// What a committer does that keeps the word each time that it has taken it.
struct Committer {
    keeper: Keeper,
    times: u32,
}

impl Committer {
    /// # Safety
    /// As [`Keeper::new`].
    unsafe fn new(owner: u32, at_work: *const AtWork) -> Committer {
        // SAFETY: the caller's promise.
        Committer { keeper: unsafe { Keeper::new(OwnerId(owner), at_work) }, times: 0 }
    }

    /// False if somebody else has the word.
    fn work(&mut self, word: &Word, work: impl FnOnce()) -> bool {
        let Some(had) = self.keeper.try_take(word) else { return false };
        work();
        if had == Had::Kept {
            self.keeper.end(word);
        } else {
            self.times += 1;
            if !self.keeper.keep(word, self.times) {
                word.give();
            }
        }
        true
    }
}

/// A flag and shards, all of which live as long as any of them is used.
struct Shared<const N: usize> {
    shards: [Shard; N],
    at_work: AtWork,
    tickets: Tickets,
}

impl<const N: usize> Shared<N> {
    fn new() -> Arc<Shared<N>> {
        let shards = std::array::from_fn(|_| Shard::new());
        Arc::new(Shared { shards, at_work: AtWork::new(), tickets: Tickets::new() })
    }

    /// A committer that keeps the first shard.
    fn committer(&self) -> Committer {
        // SAFETY: the models drop it before `self`.
        let mut committer = unsafe { Committer::new(0, &raw const self.at_work) };
        assert!(committer.work(&self.shards[0].word, || self.shards[0].push(0)));
        committer
    }
}

/// A keeper commits three times; two others want the shard meanwhile. Loom reports it if two ever are in it.
#[test]
fn a_kept_word_has_one_owner() {
    model(|| {
        let shared = Shared::<1>::new();
        let mut committer = shared.committer();
        let others: Vec<_> = (1..3)
            .map(|owner| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let shard = &shared.shards[0];
                    let has_taken = shard.word.try_take(OwnerId(owner));
                    if has_taken {
                        shard.push(u64::from(owner));
                        shard.word.give();
                    }
                    usize::from(has_taken)
                })
            })
            .collect();
        let shard = &shared.shards[0];
        let mut count = 1;
        for _ in 0..2 {
            count += usize::from(committer.work(&shard.word, || shard.push(0)));
        }
        count += others.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>();
        assert_eq!(shard.wait_with(9, <[u64]>::len), count);
        drop(committer);
        assert!(shard.word.try_take(OwnerId(9)), "the word was left behind");
    });
}

/// A keeper commits; one thread queues, another has the word for a moment and looks at the queue afterwards, as all do.
#[test]
fn nothing_is_left_behind_with_a_keeper() {
    model(|| {
        // SAFETY: the pool is dropped after all letters, below.
        let mut pool = unsafe { NodePool::new(1) };
        let shared = Shared::<1>::new();
        // The queue has been used, as in `models_wish`.
        shared.shards[0].inbox.put(pool.letter().expect("a free node"));
        shared.shards[0].visit(3);
        let mut committer = shared.committer();
        let putter = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut letter = pool.letter().expect("a free node");
                letter.with_item(|item| *item = 7);
                shared.shards[0].inbox.put(letter);
                shared.shards[0].visit(1);
                pool
            })
        };
        let taker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if shared.shards[0].word.try_take(OwnerId(2)) {
                    shared.shards[0].word.give();
                    shared.shards[0].visit(2);
                }
            })
        };
        let shard = &shared.shards[0];
        committer.work(&shard.word, || shard.push(0));
        shard.visit(0);
        let pool = putter.join().unwrap();
        taker.join().unwrap();
        assert!(shard.inbox.is_empty(), "an item was left behind");
        assert!(shard.wait_with(9, |ring| ring.contains(&7)));
        drop(committer);
        drop(pool);
    });
}

/// Whoever takes a cut and then the shard finds all below the cut.
#[test]
fn what_is_kept_needs_no_announcement() {
    model(|| {
        let shared = Shared::<1>::new();
        let mut committer = shared.committer();
        let keeper = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let shard = &shared.shards[0];
                // SAFETY: the seat is dropped here, while `shared` is alive.
                let mut seat = unsafe { shared.tickets.register() };
                for _ in 0..2 {
                    let in_hand = || shard.push(1 + seat.take_in_hand(&shared.tickets, 1));
                    committer.work(&shard.word, in_hand);
                }
                drop(committer);
            })
        };
        let cut = shared.tickets.cut();
        let got = shared.shards[0].wait_with(7, <[u64]>::to_vec);
        for ticket in 0..cut {
            assert!(got.contains(&(1 + ticket)), "cut {cut} covers {ticket}, which is not there");
        }
        keeper.join().unwrap();
    });
}

/// A keeper goes on with another shard, and its flag speaks for that one, while somebody queues at the first.
#[test]
fn a_keeper_that_went_elsewhere_leaves_nothing() {
    model(|| {
        // SAFETY: the pool is dropped after all letters, below.
        let mut pool = unsafe { NodePool::new(1) };
        let shared = Shared::<2>::new();
        // As above.
        shared.shards[0].inbox.put(pool.letter().expect("a free node"));
        shared.shards[0].visit(3);
        let mut committer = shared.committer();
        let putter = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut letter = pool.letter().expect("a free node");
                letter.with_item(|item| *item = 7);
                shared.shards[0].inbox.put(letter);
                shared.shards[0].visit(1);
                pool
            })
        };
        let (here, there) = (&shared.shards[0], &shared.shards[1]);
        committer.work(&here.word, || here.push(0));
        here.visit(0);
        for _ in 0..2 {
            assert!(committer.work(&there.word, || there.push(0)));
        }
        let pool = putter.join().unwrap();
        for shard in &shared.shards {
            assert!(shard.inbox.is_empty(), "an item was left behind");
            assert!(shard.word.try_take(OwnerId(9)), "a word was left behind");
            shard.word.give();
        }
        drop(committer);
        drop(pool);
    });
}
