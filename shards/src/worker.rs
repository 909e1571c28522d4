//! Workers: one thread for each shard that drains it, pinned where the system allows it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use crate::inner::Inner;
use crate::sync::{AtomicBool, Ordering};
use crate::word::OwnerId;

/// Wakes a parked worker.
#[derive(Debug)]
pub(crate) struct Bell {
    /// The worker has looked at its queue and is about to park, or has. Set by the worker with `SeqCst` before it looks again; read by
    /// committers with `SeqCst` after their put: one of the two sees the other.
    is_parked: AtomicBool,
    worker: OnceLock<Thread>,
    /// Held by who has stopped the worker, for tests and measurements; the flag says whether it is worth a look. Relaxed: the mutex does the
    /// rest.
    gate: Mutex<()>,
    is_gated: AtomicBool,
}

impl Default for Bell {
    fn default() -> Bell {
        let (is_parked, is_gated) = (AtomicBool::new(false), AtomicBool::new(false));
        Bell { is_parked, worker: OnceLock::new(), gate: Mutex::new(()), is_gated }
    }
}

impl Bell {
    /// Stops the worker when it comes to its next batch, until the guard is dropped.
    pub(crate) fn stop(&self) -> MutexGuard<'_, ()> {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_gated.store(true, Ordering::Relaxed);
        gate
    }

    fn pass(&self) {
        if self.is_gated.load(Ordering::Relaxed) {
            drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Wakes the worker if it is parked: the first to find it so does, the others need not.
    pub(crate) fn ring(&self) {
        if self.is_parked.load(Ordering::SeqCst)
            && self.is_parked.swap(false, Ordering::SeqCst)
            && let Some(worker) = self.worker.get()
        {
            worker.unpark();
        }
    }
}

/// The workers of a buffer. Dropping them ends them; what is queued then is done by whoever reads next.
#[derive(Debug)]
pub(crate) struct Workers {
    inner: Arc<Inner>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Workers that the system let be pinned.
    pub(crate) num_pinned: usize,
}

impl Workers {
    pub(crate) fn start(inner: &Arc<Inner>) -> std::io::Result<Workers> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut workers = Workers { inner: Arc::clone(inner), is_over, threads: Vec::new(), num_pinned: 0 };
        let (report, reports) = std::sync::mpsc::channel();
        for shard in 0..inner.places.len() {
            let (inner, is_over, report) = (Arc::clone(inner), Arc::clone(&workers.is_over), report.clone());
            let cpu = inner.topology.cpu_of_worker(shard);
            let thread = thread::Builder::new().name(format!("shard-{shard}")).spawn(move || {
                let is_pinned = core_affinity::set_for_current(core_affinity::CoreId { id: cpu.id });
                // Nobody listens any more if the buffer could not be made.
                let _ = report.send(is_pinned);
                drop(report);
                work(&inner, shard, &is_over);
            })?;
            workers.threads.push(thread);
        }
        drop(report);
        workers.num_pinned = reports.into_iter().filter(|&is_pinned| is_pinned).count();
        Ok(workers)
    }
}

fn work(inner: &Inner, shard: usize, is_over: &AtomicBool) {
    let place = &inner.places.get(shard);
    let owner = OwnerId(shard as u32);
    let _ = place.bell.worker.set(thread::current());
    while !is_over.load(Ordering::Acquire) {
        place.bell.pass();
        if inner.visit(shard, owner) {
            // Other owners have all the extents in hand: they will let go of one, or of a word.
            thread::yield_now();
            continue;
        }
        inner.attend(owner);
        place.bell.is_parked.store(true, Ordering::SeqCst);
        if place.inbox.is_empty() && !is_over.load(Ordering::SeqCst) {
            thread::park();
        }
        place.bell.is_parked.store(false, Ordering::SeqCst);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        for (_, place) in self.inner.places.made() {
            place.bell.ring();
        }
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A worker that panicked has said so on its own.
            let _ = thread.join();
        }
    }
}
