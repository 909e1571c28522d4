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

/// Two shards, and the workers that serve them until both are done.
struct Pool {
    ready: Bits,
    sleepers: Sleepers,
    num_served: AtomicUsize,
    wake: [Notify; 2],
}

impl Pool {
    fn wake_one(&self) {
        if let Some(worker) = self.sleepers.wake_one() {
            self.wake[worker].notify();
        }
    }

    fn schedule(&self, shard: usize) {
        if self.ready.set(shard) {
            self.wake_one();
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
                if self.num_served.fetch_add(1, Ordering::SeqCst) == 1 {
                    self.wake.iter().for_each(Notify::notify);
                }
            } else if self.num_served.load(Ordering::SeqCst) == 2 {
                return;
            } else {
                let has_work = || self.ready.any() || self.num_served.load(Ordering::SeqCst) == 2;
                is_chosen = self.sleepers.sleep(worker, has_work, || self.wake[worker].wait());
            }
        }
    }
}

fn nobody_sleeps_while_a_shard_waits(num_workers: usize, max_preemptions: usize) {
    model_to(max_preemptions, move || {
        let pool = Arc::new(Pool {
            ready: Bits::new(2),
            sleepers: Sleepers::new(num_workers),
            num_served: AtomicUsize::new(0),
            wake: [Notify::new(), Notify::new()],
        });
        let start = |worker| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.work(worker))
        };
        let workers: Vec<_> = (0..num_workers).map(start).collect();
        let setter = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.schedule(1))
        };
        pool.schedule(0);
        setter.join().unwrap();
        workers.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Whatever is set while a worker falls asleep, or while another wake-up is under way, is served:
/// loom reports it if all threads wait.
#[test]
fn no_shard_is_left_to_a_worker_that_sleeps() {
    nobody_sleeps_while_a_shard_waits(1, 4);
}

#[test]
fn no_shard_is_left_to_two_workers_that_sleep() {
    nobody_sleeps_while_a_shard_waits(2, 2);
}
