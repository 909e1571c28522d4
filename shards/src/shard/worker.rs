//! Workers: a thread for each shard that drains it, pinned where the system allows it.
//!
//! - `Parker::is_parked`: against `CommitQueue::head` and `PendingDrain`: "push, then look who is
//!   parked; announce parking, then look at the queue". SeqCst store by the worker, SeqCst load and
//!   RMW in `wake`: one of the two sees the other. Argument, as for the lock.
//! - `Parker::is_gated`: publishes nothing, the mutex beside it does. Relaxed; for tests.
//! - `Workers::is_stopping`: publishes nothing. SeqCst store, against `is_parked`; the threads are
//!   joined.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use crate::shard::Shared;
use crate::shard::budget::DrainBudget;
use crate::sync::lock::OwnerId;
use crate::sync::{AtomicBool, Ordering};

/// Parks a worker, and wakes it.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    /// The worker is parked, or is about to look at its queue a last time before it parks.
    is_parked: AtomicBool,
    worker: OnceLock<Thread>,
    /// Locked by whoever has stopped the worker, for tests and measurements; the flag says whether
    /// to look at it.
    gate: Mutex<()>,
    is_gated: AtomicBool,
}

impl Parker {
    /// Stops the worker before its next batch, until the guard is dropped.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn stop(&self) -> std::sync::MutexGuard<'_, ()> {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_gated.store(true, Ordering::Relaxed);
        gate
    }

    fn wait_at_gate(&self) {
        if self.is_gated.load(Ordering::Relaxed) {
            drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Wakes the worker if it is parked. The first thread that finds it so does it.
    pub(crate) fn wake(&self) {
        if self.is_parked.load(Ordering::SeqCst)
            && self.is_parked.swap(false, Ordering::SeqCst)
            && let Some(worker) = self.worker.get()
        {
            worker.unpark();
        }
    }
}

/// The workers of a buffer. Dropping this ends them; whatever is queued then, the next reader
/// drains.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
    is_stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// How many the system has pinned.
    pub(crate) num_pinned: usize,
}

impl Workers {
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Workers> {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let mut workers =
            Workers { shared: Arc::clone(shared), is_stopping, threads: Vec::new(), num_pinned: 0 };
        let (report, reports) = std::sync::mpsc::channel();
        for shard in 0..shared.slots.len() {
            let (shared, is_stopping, report) =
                (Arc::clone(shared), Arc::clone(&workers.is_stopping), report.clone());
            let cpu = shared.topology.cpu_of_worker(shard);
            let thread = thread::Builder::new().name(format!("shard-{shard}")).spawn(move || {
                let is_pinned = core_affinity::set_for_current(core_affinity::CoreId { id: cpu.id });
                // The other end is gone if the buffer could not be made.
                let _ = report.send(is_pinned);
                drop(report);
                work(&shared, shard, &is_stopping);
            })?;
            workers.threads.push(thread);
        }
        drop(report);
        workers.num_pinned = reports.into_iter().filter(|&is_pinned| is_pinned).count();
        Ok(workers)
    }
}

fn work(shared: &Shared, shard: usize, is_stopping: &AtomicBool) {
    let slot = &shared.slots.get(shard);
    let owner = OwnerId(shard as u32);
    let _ = slot.parker.worker.set(thread::current());
    while !is_stopping.load(Ordering::Acquire) {
        slot.parker.wait_at_gate();
        let drain = || {
            let is_short = shared.drain_by_worker(shard, owner);
            shared.run_pending_drains(owner, &mut DrainBudget::new());
            is_short
        };
        // A panic took one chunk, or has poisoned its shard. What else is queued is drained.
        if catch_unwind(AssertUnwindSafe(drain)).unwrap_or(true) {
            // Other owners hold all extents, and will return one.
            thread::yield_now();
            continue;
        }
        slot.parker.is_parked.store(true, Ordering::SeqCst);
        let has_work = !slot.queue.is_empty() || slot.hints.pending_drain.is_pending();
        if !has_work && !is_stopping.load(Ordering::SeqCst) {
            thread::park();
        } else if slot.lock.is_locked() {
            thread::yield_now();
        }
        slot.parker.is_parked.store(false, Ordering::SeqCst);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        for (_, slot) in self.shared.slots.made() {
            slot.parker.wake();
        }
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A worker that panicked has reported it.
            let _ = thread.join();
        }
    }
}
