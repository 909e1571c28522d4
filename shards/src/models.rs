//! Loom models: every interleaving and every allowed reordering of small cases, on the shipped source.
//!
//! Run by `ci/loom`. They are the only proof for processors with weak memory order, since emulation does not reorder.
//!
//! | model | covers |
//! |---|---|
//! | `a_cut_covers_only_what_is_queued` | `Tickets::next`, `Cell::bound`, `Tickets::cells`, `Cell::taken`, `Inbox::head` |
//! | `a_seat_is_used_again_by_another_thread` | `Cell::taken`, `Cell::bound` |
//! | `nothing_is_left_behind_when_an_owner_stops` | `Word`, `Inbox::head` |
//! | `homes_never_split` | `Directory` entries and rooms, `Tickets::now` |
//! | `an_extent_has_one_holder` | `Pool::top`, `Pool::next`, `Pool::fresh` |
//! | `nodes_go_round` | `Inbox::head`, `Node::depth`, `NodePool::returned` |

use crate::{
    directory::{Directory, Key},
    extents::Pool,
    inbox::Inbox,
    nodes::NodePool,
    sync::UnsafeCell,
    ticket::Tickets,
    word::{OwnerId, Word},
};
use loom::{sync::Arc, thread};

pub(crate) fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

struct Queue {
    tickets: Tickets,
    inbox: Inbox<u64>,
}

// The pools of the models live as long as the queue: they are handed back by the threads that used them.
fn commit(queue: &Queue, pool: &mut NodePool<u64>, seat: &mut crate::ticket::Seat) {
    let mut announced = seat.announce(&queue.tickets);
    let ticket = announced.take(1);
    let mut letter = pool.letter().expect("a free node");
    letter.with_item(|item| *item = ticket);
    queue.inbox.put(letter);
}

#[test]
fn a_cut_covers_only_what_is_queued() {
    model(|| {
        let queue = Arc::new(Queue { tickets: Tickets::new(), inbox: Inbox::new(4) });
        let committers: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || {
                    // SAFETY: the pool is returned and dropped after the queue was emptied below.
                    let mut pool = unsafe { NodePool::new(1) };
                    // SAFETY: the seat is dropped here, while `queue` is alive.
                    let mut seat = unsafe { queue.tickets.register() };
                    commit(&queue, &mut pool, &mut seat);
                    pool
                })
            })
            .collect();

        let cut = queue.tickets.cut();
        let mut got: Vec<u64> =
            queue.inbox.take_all().map(|mut letter| letter.with_item(|item| *item)).collect();
        for ticket in 0..cut {
            assert!(got.contains(&ticket), "cut {cut} covers {ticket}, which is not queued");
        }
        let pools: Vec<_> = committers.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(queue.tickets.cut(), 2);
        got.extend(queue.inbox.take_all().map(|mut letter| letter.with_item(|item| *item)));
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
        drop(pools);
    });
}

#[test]
fn a_seat_is_used_again_by_another_thread() {
    model(|| {
        let queue = Arc::new(Queue { tickets: Tickets::new(), inbox: Inbox::new(4) });
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                // SAFETY: the pool outlives its letters, which are taken below before it is dropped.
                let mut pool = unsafe { NodePool::new(2) };
                for _ in 0..2 {
                    // SAFETY: the seat is dropped in this turn, while `queue` is alive.
                    let mut seat = unsafe { queue.tickets.register() };
                    commit(&queue, &mut pool, &mut seat);
                }
                pool
            })
        };
        // SAFETY: the seat is dropped before `queue`.
        let mut seat = unsafe { queue.tickets.register() };
        let mut announced = seat.announce(&queue.tickets);
        let mine = announced.take(1);
        let cut = queue.tickets.cut();
        assert!(cut <= mine, "an announced batch is not covered");
        let queued = queue.inbox.take_all().count() as u64;
        assert!(cut <= queued, "cut {cut}, queued {queued}");
        drop(announced);
        let pool = other.join().unwrap();
        drop(queue.inbox.take_all());
        drop(pool);
    });
}

struct Shard {
    word: Word,
    inbox: Inbox<u64>,
    /// Only the owner of `word` touches it: what was drained.
    ring: UnsafeCell<Vec<u64>>,
}

// SAFETY: `ring` is touched by the owner of `word` alone; loom reports any other access.
unsafe impl Sync for Shard {}
// SAFETY: as above.
unsafe impl Send for Shard {}

/// The rule of the ownership word as the buffer uses it.
fn drain(shard: &Shard, owner: u32) {
    while !shard.inbox.is_empty() && shard.word.try_take(OwnerId(owner)) {
        for mut letter in shard.inbox.take_all() {
            let value = letter.with_item(|item| *item);
            // SAFETY: this thread owns the word.
            shard.ring.with_mut(|ring| unsafe { (*ring).push(value) });
        }
        shard.word.give();
    }
}

#[test]
fn nothing_is_left_behind_when_an_owner_stops() {
    model(|| {
        let shard =
            Arc::new(Shard { word: Word::new(), inbox: Inbox::new(4), ring: UnsafeCell::new(Vec::new()) });
        let committers: Vec<_> = (0..2u32)
            .map(|id| {
                let shard = Arc::clone(&shard);
                thread::spawn(move || {
                    // SAFETY: the pool is dropped after all letters, below.
                    let mut pool = unsafe { NodePool::new(1) };
                    let mut letter = pool.letter().expect("a free node");
                    letter.with_item(|item| *item = u64::from(id));
                    shard.inbox.put(letter);
                    // As `Inner::after_put`.
                    if !shard.word.is_taken() {
                        drain(&shard, id);
                    }
                    pool
                })
            })
            .collect();
        let pools: Vec<_> = committers.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(shard.inbox.is_empty(), "an item was left behind");
        let mut ring = shard.ring.with(|ring| {
            // SAFETY: all other threads have ended.
            unsafe { (*ring).clone() }
        });
        ring.sort_unstable();
        assert_eq!(ring, [0, 1]);
        drop(pools);
    });
}

#[test]
fn nodes_go_round() {
    model(|| {
        let inbox = Arc::new(Inbox::new(1));
        let putter = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                // SAFETY: the pool is dropped after all letters, below.
                let mut pool = unsafe { NodePool::new(1) };
                let mut put = 0;
                for value in 1..=3u64 {
                    let Some(mut letter) = pool.letter() else { continue };
                    letter.with_item(|item| *item = value);
                    if inbox.has_room() {
                        inbox.put(letter);
                        put += 1;
                    }
                }
                (pool, put)
            })
        };
        let mut last = 0;
        let mut got = 0;
        let mut take = || {
            for mut letter in inbox.take_all() {
                let value = letter.with_item(|item| *item);
                assert!(value > last, "{value} after {last}");
                last = value;
                got += 1;
            }
        };
        take();
        take();
        let (pool, put) = putter.join().unwrap();
        take();
        assert_eq!(got, put);
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

/// A writer commits one chunk and later another; meanwhile the owner of its first home lets the sequence go. The two
/// chunks may be at different shards only if the first was drained before the home went away.
#[test]
fn homes_never_split() {
    use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
    model(|| {
        let homes = Arc::new(Homes {
            tickets: Tickets::new(),
            directory: Directory::new(),
            queued: std::array::from_fn(|_| loom::sync::atomic::AtomicU32::new(0)),
        });
        let key = settled(&homes.directory);
        let writer = {
            let homes = Arc::clone(&homes);
            thread::spawn(move || {
                // SAFETY: the seat is dropped here, while `homes` is alive.
                let mut seat = unsafe { homes.tickets.register() };
                let mut announced = seat.announce(&homes.tickets);
                announced.take(1);
                let entry = homes.directory.entry_of(key).expect("an entry was made");
                // SAFETY: the entry is of this directory.
                let (home, _) = unsafe { homes.directory.home_or_at(entry, || 1) };
                homes.queued[usize::from(home)].fetch_add(1, Release);
                home
            })
        };

        homes.directory.start_leaving(key);
        let moment = homes.tickets.now();
        // Somebody else's batch moves the counter on.
        // SAFETY: the seat is dropped before `homes`.
        let mut seat = unsafe { homes.tickets.register() };
        seat.announce(&homes.tickets).take(1);
        let gone = homes.tickets.cut() >= moment && {
            let drained = homes.queued[0].swap(0, Acquire);
            homes.directory.finish_leaving(key) && {
                assert_eq!(
                    homes.queued[0].load(Relaxed),
                    0,
                    "queued behind a home that went away (drained {drained})"
                );
                true
            }
        };
        let home = writer.join().unwrap();
        if gone {
            assert_eq!(homes.queued[0].load(Relaxed), 0, "the chunk went to a home that was taken away");
        }
        assert_eq!(homes.directory.home(key), (!gone || home == 1).then_some(home));
    });
}

/// Two threads take extents, write to them and put them back; loom reports it if two ever have the same one.
#[test]
fn an_extent_has_one_holder() {
    struct Memory {
        pool: Pool,
        extents: [UnsafeCell<u32>; 2],
    }
    // SAFETY: an extent is touched by its holder alone; loom reports any other access.
    unsafe impl Sync for Memory {}
    // SAFETY: as above.
    unsafe impl Send for Memory {}

    /// Takes two, puts the first back while it goes on using the second: what an unmarked stack would get wrong (ABA).
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
        let memory =
            Arc::new(Memory { pool: Pool::new(2), extents: std::array::from_fn(|_| UnsafeCell::new(0)) });
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
