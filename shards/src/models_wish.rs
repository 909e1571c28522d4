//! Loom models of wishes and debts: evictions in another's shard. See [`crate::models`].
//!
//! | model | covers |
//! |---|---|
//! | `a_wish_left_with_an_owner_is_served` | `Wish` with `Word` |
//! | `a_debt_is_paid` | `Debt`, `Debts` with `Word` and `Inbox::head` |
//! | `every_debt_is_found` | `Debts` against `Debt` |

use crate::{
    inbox::Inbox,
    models::model,
    nodes::NodePool,
    sync::{AtomicU32, Ordering::Relaxed, UnsafeCell},
    wish::{Debt, Debts, Wish},
    word::{OwnerId, Word},
};
use loom::{sync::Arc, thread};

/// A shard with extents, of which only the owner of the word knows.
struct Extents {
    word: Word,
    wish: Wish,
    /// Extents that it has, and such that it has handed over.
    counts: UnsafeCell<(u32, u32)>,
}

// SAFETY: `counts` is touched by the owner of `word` alone; loom reports any other access.
unsafe impl Sync for Extents {}
// SAFETY: as above.
unsafe impl Send for Extents {}

impl Extents {
    fn counts<R>(&self, work: impl FnOnce(&mut (u32, u32)) -> R) -> R {
        // SAFETY: the caller owns the word.
        self.counts.with_mut(|counts| work(unsafe { &mut *counts }))
    }

    /// What an owner does before, when and after it gives the word back.
    fn give(&self, owner: u32) {
        if self.wish.take() {
            self.counts(|(has, handed_over)| {
                *has -= 1;
                *handed_over += 1;
            });
        }
        if self.word.give() && self.wish.is_there() && self.word.try_take(OwnerId(owner)) {
            self.give(owner);
        }
    }
}

#[test]
fn a_wish_left_with_an_owner_is_served() {
    model(|| {
        let shard =
            Arc::new(Extents { word: Word::new(), wish: Wish::new(), counts: UnsafeCell::new((2, 0)) });
        let owners: Vec<_> = (0..2)
            .map(|owner| {
                let shard = Arc::clone(&shard);
                thread::spawn(move || {
                    if shard.word.try_take(OwnerId(owner)) {
                        shard.give(owner);
                    }
                })
            })
            .collect();

        let (mut taken, mut was_left) = (0, false);
        if shard.word.try_take(OwnerId(2)) {
            shard.wish.withdraw();
            shard.counts(|(has, _)| *has -= 1);
            taken = 1;
            shard.give(2);
        } else {
            was_left = shard.wish.leave_with_owner(&shard.word);
        }
        owners.into_iter().for_each(|owner| owner.join().unwrap());

        assert!(!shard.wish.is_there(), "a wish was left behind");
        assert!(shard.word.try_take(OwnerId(3)), "the word was left behind");
        let (has, handed_over) = shard.counts(|counts| *counts);
        assert_eq!(has + handed_over + taken, 2);
        assert!(!was_left || handed_over == 1, "a wish that was heard came true");
    });
}

struct Queue {
    word: Word,
    inbox: Inbox<u64>,
    debt: Debt,
    /// Only the owner of `word` touches it.
    ring: UnsafeCell<Vec<u64>>,
}

// SAFETY: `ring` is touched by the owner of `word` alone; loom reports any other access.
unsafe impl Sync for Queue {}
// SAFETY: as above.
unsafe impl Send for Queue {}

impl Queue {
    fn new() -> Queue {
        Queue {
            word: Word::new(),
            inbox: Inbox::new(4),
            debt: Debt::new(),
            ring: UnsafeCell::new(Vec::new()),
        }
    }

    /// The rule of the ownership word.
    fn visit(&self, owner: u32) {
        while !self.inbox.is_empty() && !self.word.is_taken() && self.word.try_take(OwnerId(owner)) {
            for mut letter in self.inbox.take_all() {
                let value = letter.with_item(|item| *item);
                // SAFETY: this thread owns the word.
                self.ring.with_mut(|ring| unsafe { (*ring).push(value) });
            }
            self.word.give();
        }
    }

    /// Has the word for a moment without a look at the queue.
    fn evict(&self, debts: &Debts, owner: u32) {
        if self.word.try_take(OwnerId(owner)) {
            self.word.give();
            if !self.inbox.is_empty() {
                debts.note(&self.debt);
            }
        }
    }
}

#[test]
fn a_debt_is_paid() {
    model(|| {
        // SAFETY: the pool is dropped after all letters, below.
        let mut pool = unsafe { NodePool::new(1) };
        let shared = Arc::new((Queue::new(), Debts::new()));
        // Queue and word have been used: loom lets a SeqCst load see an initial value, which is no SeqCst store, behind any that is.
        shared.0.inbox.put(pool.letter().expect("a free node"));
        shared.0.visit(3);
        let evicters: Vec<_> = (0..2)
            .map(|owner| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (queue, debts) = &*shared;
                    queue.evict(debts, owner);
                    if debts.are_there() {
                        debts.pay(|| [(0, &queue.debt)].into_iter(), |_| queue.visit(owner));
                    }
                })
            })
            .collect();

        let (queue, debts) = &*shared;
        let mut letter = pool.letter().expect("a free node");
        letter.with_item(|item| *item = 7);
        queue.inbox.put(letter);
        queue.visit(2);
        evicters.into_iter().for_each(|evicter| evicter.join().unwrap());

        assert!(queue.inbox.is_empty(), "an item was left behind");
        assert!(!debts.are_there());
        // SAFETY: all other threads have ended.
        assert_eq!(queue.ring.with(|ring| unsafe { (*ring).clone() }), [0, 7]);
        drop(pool);
    });
}

/// Two threads note a debt each and pay what they find. Nobody waits for the other, and each has paid its own, or found it paid.
#[test]
fn every_debt_is_found() {
    model(|| {
        let shared = Arc::new(([Debt::new(), Debt::new()], Debts::new(), [0; 2].map(AtomicU32::new)));
        let run = |shared: &([Debt; 2], Debts, [AtomicU32; 2]), mine: usize| {
            let (debt, debts, visits) = shared;
            debts.note(&debt[mine]);
            let each = || debt.iter().enumerate();
            debts.pay(each, |shard| {
                visits[shard].fetch_add(1, Relaxed);
            });
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || run(&shared, 1))
        };
        run(&shared, 0);
        other.join().unwrap();
        let (_, debts, visits) = &*shared;
        assert!(!debts.are_there());
        assert_eq!([0, 1].map(|shard| visits[shard].load(Relaxed)), [1, 1]);
    });
}
