//! Loom models of the bits by which shards ask for a worker, and of the workers' sleep.

use crate::models::{model, model_to};
use crate::sync::ready::{Bits, Sleepers};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;

/// Each time that a bit is set one worker gets the shard, or the bit is still set.
#[test]
fn a_bit_is_claimed_once_for_each_time_that_it_is_set() {
    model(|| {
        let ready = Arc::new(Bits::new(2));
        let setter = {
            let ready = Arc::clone(&ready);
            thread::spawn(move || usize::from(ready.set(0)) + usize::from(ready.set(1)))
        };
        let worker = {
            let ready = Arc::clone(&ready);
            thread::spawn(move || usize::from(ready.claim().is_some()))
        };
        let set = usize::from(ready.set(0));
        let claimed = usize::from(ready.claim().is_some()) + worker.join().unwrap();
        let set = set + setter.join().unwrap();
        let left = std::iter::from_fn(|| ready.claim()).count();
        assert_eq!(set, claimed + left);
        assert!(!ready.any());
    });
}

/// Two shards, and the workers that serve them until all is done that was scheduled.
struct Pool {
    ready: Bits,
    sleepers: Sleepers,
    num_workers: usize,
    num_served: AtomicUsize,
    /// How often a shard was scheduled, once that is known.
    num_scheduled: AtomicUsize,
    wake: [Notify; 2],
}

impl Pool {
    fn wake_one(&self) {
        if let Some(worker) = self.sleepers.wake_one() {
            self.wake[worker].notify();
        }
    }

    /// How often it was to be served because of that, here and below.
    fn schedule(&self, shard: usize) -> usize {
        let was_clear = self.ready.set(shard);
        if was_clear {
            self.wake_one();
        }
        usize::from(was_clear)
    }

    /// As a committer that leaves wake-ups to its thread, with both shards, and
    /// `WorkerPool::serve`, with one at most.
    fn schedule_and_serve(&self) -> usize {
        let were_clear = [self.ready.set(0), self.ready.set(1)];
        if self.sleepers.num_parked() as usize == self.num_workers && self.ready.claim().is_some() {
            self.num_served.fetch_add(1, Ordering::SeqCst);
            self.end_if_done();
        }
        if self.ready.any() {
            self.wake_one();
        }
        were_clear.map(usize::from).iter().sum()
    }

    fn is_done(&self) -> bool {
        // Loom's SeqCst loads may be stale.
        let look = |number: &AtomicUsize| number.fetch_add(0, Ordering::SeqCst);
        look(&self.num_served) == look(&self.num_scheduled)
    }

    fn end_if_done(&self) {
        if self.is_done() {
            self.wake.iter().for_each(Notify::notify);
        }
    }

    fn work(&self, worker: usize) {
        let mut is_chosen = false;
        loop {
            if self.ready.claim().is_some() {
                if is_chosen && self.ready.any() {
                    self.wake_one();
                }
                is_chosen = false;
                self.num_served.fetch_add(1, Ordering::SeqCst);
                self.end_if_done();
            } else if self.is_done() {
                return;
            } else {
                let has_work = || self.ready.any() || self.is_done();
                is_chosen = self.sleepers.sleep(worker, has_work, || self.wake[worker].wait());
            }
        }
    }
}

/// Two threads schedule something. Loom reports it if all threads wait.
fn nobody_sleeps_while_a_shard_waits(
    (num_workers, max_preemptions): (usize, usize),
    schedule: [fn(&Pool) -> usize; 2],
) {
    model_to(max_preemptions, move || {
        let pool = Arc::new(Pool {
            ready: Bits::new(2),
            sleepers: Sleepers::new(num_workers),
            num_workers,
            num_served: AtomicUsize::new(0),
            num_scheduled: AtomicUsize::new(usize::MAX),
            wake: [Notify::new(), Notify::new()],
        });
        let start = |worker| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.work(worker))
        };
        let workers: Vec<_> = (0..num_workers).map(start).collect();
        let [one, other] = schedule;
        let scheduler = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || other(&pool))
        };
        let num_scheduled = one(&pool) + scheduler.join().unwrap();
        pool.num_scheduled.swap(num_scheduled, Ordering::SeqCst);
        pool.end_if_done();
        workers.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Whatever is set while a worker falls asleep, or while another wake-up is under way, is served.
#[test]
fn no_shard_is_left_to_a_worker_that_sleeps() {
    nobody_sleeps_while_a_shard_waits((1, 3), [|pool| pool.schedule(0), |pool| pool.schedule(1)]);
}

#[test]
fn no_shard_is_left_to_two_workers_that_sleep() {
    nobody_sleeps_while_a_shard_waits((2, 2), [|pool| pool.schedule(0), |pool| pool.schedule(1)]);
}

/// Nor is what a thread schedules that wakes nobody before it has served some: also if another one
/// has found the shard scheduled, and left the wake-up to it.
#[test]
fn no_shard_is_left_to_who_serves_in_the_place_of_workers() {
    for at_most in [(1, 2), (2, 1)] {
        nobody_sleeps_while_a_shard_waits(at_most, [Pool::schedule_and_serve, |pool| pool.schedule(1)]);
    }
}
