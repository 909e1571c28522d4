//! The supplies of one pass, filled by several threads while one merges and writes.
//!
//! ```text
//!   state of each shard:   NEEDY --a thread takes it--> FILLING --extracted--> READY --the merging thread takes the block--> NEEDY
//!                                                                                                                    \-> DONE
//! ```
//!
//! A thread without anything to do looks again for a while before it sleeps: blocks are used up within microseconds, and waking costs more.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::blocks::{Block, Supply};
use crate::read::{PacketWriter, Wait, Way};

const NEEDY: u8 = 0;
const FILLING: u8 = 1;
const READY: u8 = 2;
const DONE: u8 = 3;

/// How often a thread looks for work before it sleeps.
const LOOKS: usize = 200;

struct Slot<'p> {
    /// Taken NEEDY -> FILLING with Acquire, which sees the block that was put back; every other change is a Release store by who has the slot.
    state: AtomicU8,
    supply: Mutex<&'p mut Supply>,
}

pub(crate) struct Depot<'p, W> {
    way: &'p Way<'p, W>,
    slots: Vec<Slot<'p>>,
    is_over: AtomicBool,
    /// For threads that sleep: held while they look for the last time, and by whoever has news before it tells them.
    bell: Mutex<Vec<Wait>>,
    news: Condvar,
}

/// Ends the helpers when it is dropped, whatever ends the pass.
pub(crate) struct Over<'a, 'p, W>(&'a Depot<'p, W>);

impl<W> Drop for Over<'_, '_, W> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.tell();
    }
}

/// Ends a shard of which the extraction panics, as the caller's part of it may: nobody waits for it, and the panic comes out of the pass.
struct GivenUp<'a, 'p, W>(&'a Depot<'p, W>, usize);

impl<W> Drop for GivenUp<'_, '_, W> {
    fn drop(&mut self) {
        self.0.slots[self.1].state.store(DONE, Ordering::Release);
        self.0.tell();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'p, W> Depot<'p, W> {
    pub(crate) fn over_at_drop(&self) -> Over<'_, 'p, W> {
        Over(self)
    }

    fn tell(&self) {
        drop(lock(&self.bell));
        self.news.notify_all();
    }

    /// Returns when `is_there` says so: looks for a while, then sleeps until there is news.
    fn wait(&self, is_there: impl Fn() -> bool) {
        for _ in 0..LOOKS {
            if is_there() {
                return;
            }
            std::thread::yield_now();
        }
        let bell = lock(&self.bell);
        let slept = self.news.wait_while(bell, |_| !is_there());
        drop(slept.unwrap_or_else(PoisonError::into_inner));
    }
}

impl<'p, W: PacketWriter> Depot<'p, W> {
    pub(crate) fn new(way: &'p Way<'p, W>, supplies: &'p mut [Supply]) -> Depot<'p, W> {
        let slot = |supply: &'p mut Supply| {
            let state = match (supply.back.is_empty(), supply.has_more) {
                (false, _) => READY,
                (true, true) => NEEDY,
                (true, false) => DONE,
            };
            Slot { state: AtomicU8::new(state), supply: Mutex::new(supply) }
        };
        let slots = supplies.iter_mut().map(slot).collect();
        let (is_over, bell, news) = (AtomicBool::new(false), Mutex::default(), Condvar::new());
        Depot { way, slots, is_over, bell, news }
    }

    /// Shards that have something.
    pub(crate) fn num_supplied(&self) -> usize {
        self.slots.iter().filter(|slot| slot.state.load(Ordering::Relaxed) != DONE).count()
    }

    /// Whether something may come behind what is at a shard's front.
    pub(crate) fn has_more(&self, shard: usize) -> bool {
        // Acquire: with DONE come the last words of who filled it.
        self.slots[shard].state.load(Ordering::Acquire) != DONE
    }

    /// Extracts from a shard that nobody is at. False if there is none.
    fn fill_one(&self) -> bool {
        let take = |slot: &Slot<'_>| {
            slot.state.load(Ordering::Relaxed) == NEEDY
                && slot.state.compare_exchange(NEEDY, FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(shard) = self.slots.iter().position(take) else { return false };
        let slot = &self.slots[shard];
        let given_up = GivenUp(self, shard);
        let mut supply = lock(&slot.supply);
        let waits = self.way.extract(shard, &mut supply);
        let state = if supply.back.is_empty() { DONE } else { READY };
        drop(supply);
        std::mem::forget(given_up);
        if !waits.is_empty() {
            lock(&self.bell).extend(waits);
        }
        slot.state.store(state, Ordering::Release);
        self.tell();
        true
    }

    /// What a helper does until the pass is over.
    pub(crate) fn help(&self) {
        let is_needy = |slot: &Slot<'_>| slot.state.load(Ordering::Relaxed) == NEEDY;
        while !self.is_over.load(Ordering::Acquire) {
            if !self.fill_one() {
                self.wait(|| self.is_over.load(Ordering::Acquire) || self.slots.iter().any(is_needy));
            }
        }
    }

    /// Sees to it that each front has something, unless its shard has nothing more: takes what is ready, and extracts while it is not.
    pub(crate) fn restock(&self, fronts: &mut [Block]) {
        loop {
            let mut is_dry = false;
            for (slot, front) in self.slots.iter().zip(&mut *fronts).filter(|(_, front)| front.is_empty()) {
                match slot.state.load(Ordering::Acquire) {
                    READY => {
                        let mut supply = lock(&slot.supply);
                        front.clear();
                        std::mem::swap(front, &mut supply.back);
                        let state = if supply.has_more { NEEDY } else { DONE };
                        drop(supply);
                        slot.state.store(state, Ordering::Release);
                        self.tell();
                    }
                    DONE => {}
                    _ => is_dry = true,
                }
            }
            if !is_dry {
                return;
            }
            if !self.fill_one() {
                // Others are at all that is missing.
                self.wait(|| {
                    let dry = || self.slots.iter().zip(&*fronts).filter(|(_, front)| front.is_empty());
                    let is_any =
                        |wanted: u8| dry().any(|(slot, _)| slot.state.load(Ordering::Acquire) == wanted);
                    !is_any(FILLING) || is_any(READY)
                });
            }
        }
    }

    /// For whom somebody waited.
    pub(crate) fn into_waits(self) -> Vec<Wait> {
        self.bell.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
