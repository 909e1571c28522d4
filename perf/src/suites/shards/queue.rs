//! The commit queue against crossbeam's `ArrayQueue`, item by item and as its owner takes it.

use super::overhead::{Both, on_a_core};
use super::team::race;
use crate::measure::{LapResult, Options, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use crossbeam_queue::ArrayQueue;
use std::sync::Mutex;
use watershed_shards::queue::{CommitQueue, NodePool, NodeReturns};

const CAPACITY: usize = 256;
/// The most nodes of a sender: those in the queue and as many on their way back.
const NODES: usize = 1024;

/// Items are put one by one, 32 of them, then taken.
pub(super) fn one_thread(options: &Options) -> Result<Measurement, WrongAnswer> {
    let turns = options.size(20_000, 20);
    let (queue, rival) = (CommitQueue::new(CAPACITY), ArrayQueue::new(CAPACITY));
    let pool = NodePool::leaked(NODES);
    let items = turns * 32;
    let expected = (0..items).sum::<u64>();
    let check =
        |sum: u64| if sum == expected { Ok(()) } else { Err(format!("the sum is {sum}, not {expected}")) };
    let our_lap = || -> LapResult {
        let (lap, sum) = timed(items, || {
            let mut sum = 0;
            for turn in 0..turns {
                for n in 0..32 {
                    put(&queue, pool, turn * 32 + n);
                }
                take_all(&queue, |value| sum += value);
            }
            sum
        });
        check(sum).map(|()| lap)
    };
    let rival_lap = || -> LapResult {
        let (lap, sum) = timed(items, || {
            let mut sum = 0;
            for turn in 0..turns {
                for n in 0..32 {
                    let _ = rival.push(turn * 32 + n);
                }
                while let Some(value) = rival.pop() {
                    sum += value;
                }
            }
            sum
        });
        check(sum).map(|()| lap)
    };
    let contest = Both(our_lap, rival_lap);
    let [ours, theirs] = on_a_core(move || contest.run(options))?;
    Ok(Measurement::ns_per("item", "queue_one_thread", &ours)
        .with("of_array_queue", ours.speedup_over(&theirs))
        .with("array_queue_ns", theirs.median()))
}

/// What one of two threads does.
enum Side<P, T> {
    Puts(P),
    Takes(T),
}

/// One thread puts as fast as it can, another takes as fast as it can, each on its core; a full
/// queue is tried again.
pub(super) fn two_threads(options: &Options) -> Result<Measurement, WrongAnswer> {
    let items: u64 = options.size(400_000, 1000);
    let expected = (0..items).sum::<u64>();
    let (queue, rival) = (CommitQueue::new(CAPACITY), ArrayQueue::new(CAPACITY));
    let sum = Mutex::new(0);
    let check = |lap| match std::mem::take(&mut *sum.lock().expect("nobody panics")) {
        sum if sum == expected => Ok(lap),
        sum => Err(format!("the sum is {sum}, not {expected}")),
    };
    let pool = NodePool::leaked(NODES);
    let our_lap = || -> LapResult {
        let mut sides = [Side::Puts(&mut *pool), Side::Takes(&queue)];
        check(race(items, &mut sides, |side| match side {
            Side::Puts(pool) => (0..items).for_each(|value| {
                while !put(&queue, pool, value) {
                    std::hint::spin_loop();
                }
            }),
            Side::Takes(queue) => {
                let (mut taken, mut total) = (0, 0);
                while taken < items {
                    take_all(queue, |value| {
                        total += value;
                        taken += 1;
                    });
                }
                *sum.lock().expect("nobody panics") = total;
            }
        }))
    };
    let rival_lap = || -> LapResult {
        let mut sides = [Side::Puts(&rival), Side::Takes(&rival)];
        check(race(items, &mut sides, |side| match side {
            Side::Puts(queue) => (0..items).for_each(|value| {
                while queue.push(value).is_err() {
                    std::hint::spin_loop();
                }
            }),
            Side::Takes(queue) => {
                let (mut taken, mut total) = (0, 0);
                while taken < items {
                    if let Some(value) = queue.pop() {
                        total += value;
                        taken += 1;
                    }
                }
                *sum.lock().expect("nobody panics") = total;
            }
        }))
    };
    let [ours, theirs] = interleave(options, [Box::new(our_lap), Box::new(rival_lap)])?;
    Ok(Measurement::ns_per("item", "queue_two_threads", &ours)
        .with("of_array_queue", ours.speedup_over(&theirs))
        .with("array_queue_ns", theirs.median()))
}

/// Puts an item. False if the queue is full.
fn put(queue: &CommitQueue<u64>, pool: &mut NodePool<u64>, value: u64) -> bool {
    if !queue.has_room() {
        return false;
    }
    let Some(mut node) = pool.take() else { return false };
    node.with_item(|item| *item = value);
    queue.push(node);
    true
}

fn take_all(queue: &CommitQueue<u64>, mut each: impl FnMut(u64)) {
    let mut returns = NodeReturns::none();
    for mut node in queue.take_all() {
        each(node.with_item(|item| *item));
        returns.add(node);
    }
}
