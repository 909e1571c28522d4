//! Loom models of the bits by which shards ask for a worker, and of the threads that come.

use crate::models::{model, model_to};
use crate::sync::ready::{Bits, Slots};
use loom::sync::{Arc, Condvar, Mutex};
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

/// Three shards, and threads that serve them: as many as there are slots, or one more, as in the
/// daemon.
struct Pool {
    ready: Bits,
    slots: Slots,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    /// How many threads were asked for that have not woken up. What wakes them is a descriptor: who
    /// comes later finds it readable.
    num_asked: usize,
    num_served: usize,
    is_over: bool,
}

impl Pool {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.news.notify_all();
    }

    fn wait_until(&self, mut holds: impl FnMut(&mut State) -> bool) {
        let mut state = self.state.lock().unwrap();
        while !holds(&mut state) {
            state = self.news.wait(state).unwrap();
        }
    }

    fn ask(&self) {
        if self.slots.ask() {
            self.change(|state| state.num_asked += 1);
        }
    }

    fn schedule(&self, shard: usize) {
        if self.ready.set(shard) {
            self.ask();
        }
    }

    /// As `Worker::serve`.
    fn serve(&self) {
        loop {
            self.slots.come();
            if !self.ready.any() {
                return;
            }
            let Some(slot) = self.slots.take() else { return };
            while self.ready.claim().is_some() {
                self.change(|state| state.num_served += 1);
                if self.ready.any() {
                    self.ask();
                }
            }
            self.slots.give_back(slot);
        }
    }

    fn work(&self) {
        loop {
            let mut is_over = false;
            self.wait_until(|state| {
                is_over = state.is_over;
                let is_asked = state.num_asked > 0;
                state.num_asked -= usize::from(is_asked);
                is_over || is_asked
            });
            if is_over {
                return;
            }
            self.serve();
        }
    }
}

fn nobody_sleeps_while_a_shard_waits(num_threads: usize, max_preemptions: usize) {
    model_to(max_preemptions, move || {
        let pool = Arc::new(Pool {
            ready: Bits::new(3),
            slots: Slots::new(1),
            state: Mutex::new(State::default()),
            news: Condvar::new(),
        });
        let start = |_| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.work())
        };
        let threads: Vec<_> = (0..num_threads).map(start).collect();
        let setter = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || (1..3).for_each(|shard| pool.schedule(shard)))
        };
        // As the loop does in its turn, and behind it.
        if pool.ready.set(0) {
            pool.slots.ask();
        }
        pool.serve();
        setter.join().unwrap();
        pool.wait_until(|state| state.num_served == 3);
        pool.change(|state| state.is_over = true);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Whatever is set while the one slot is taken, given back, or asked for, is served: loom reports
/// it if all threads wait.
#[test]
fn no_shard_is_left_while_a_thread_sleeps() {
    nobody_sleeps_while_a_shard_waits(1, 3);
}

#[test]
fn no_shard_is_left_while_two_threads_sleep() {
    nobody_sleeps_while_a_shard_waits(2, 2);
}
