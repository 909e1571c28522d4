//! Workers: threads that drain the shards of any number of buffers, pinned if asked for.
//!
//! ```text
//!   committer --push--> queue of shard 3 --set bit 3, wake--> whoever is free
//!                                                               | claim, one budget
//!                                     more left: set it again <-+-> nothing left anywhere: park
//! ```
//!
//! A worker stays with a shard for one budget, so a busy shard keeps no other one waiting. It never
//! waits for a shard's lock: whoever has it looks at the queue, and at what was noted, when it
//! unlocks.
//!
//! - `PoolState::changes`: publishes the list of buffers, which its mutex does. SeqCst, against
//!   `Sleepers::parked`: "change the list, then wake; say parked, then look at the number".
//! - `PoolState::is_stopping`: publishes nothing; likewise.
//! - `Served::ready_since_ns`, `Turns`: figures for people, which publish nothing. Relaxed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::shard::Shared;
use crate::shard::topology::{MAX_SHARDS, Topology};
use crate::sync::lock::OwnerId;
use crate::sync::ready::{Bits, Sleepers};
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Threads that drain buffers: any number of buffers may be made with one pool, which all of them
/// share. They end with the last copy of this value and the last buffer that was made with it.
#[derive(Clone, Debug)]
pub struct WorkerPool(Arc<Threads>);

#[derive(Debug)]
struct Threads {
    state: Arc<PoolState>,
    threads: Vec<JoinHandle<()>>,
    num_pinned: usize,
}

/// What the workers and those who give them work share.
#[derive(Debug)]
pub(crate) struct PoolState {
    sleepers: Sleepers,
    workers: Box<[OnceLock<Thread>]>,
    buffers: Mutex<Vec<Arc<Served>>>,
    /// How often the list of buffers has changed.
    changes: AtomicU64,
    is_stopping: AtomicBool,
    /// There is room in a queue for which somebody waits.
    pub(crate) on_room: Call,
    /// Something for which a `try_` has failed may be so now.
    pub(crate) on_ready: Call,
    /// What times are counted from.
    started: Instant,
    turns: Turns,
}

/// What workers have done since their start. A turn is what one of them does at one shard: as much
/// as a budget allows of what is queued there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Turns that were timed.
    pub turns: u64,
    /// The time from the first commit that had to wait for a turn to the end of that turn, when its
    /// chunks are copied and free unless the budget was spent before: over all turns.
    pub latency_sum: Duration,
    /// The longest of them.
    pub latency_max: Duration,
}

#[derive(Debug, Default)]
struct Turns {
    number: AtomicU64,
    latency_ns_sum: AtomicU64,
    latency_ns_max: AtomicU64,
}

/// What is called when there is something for which somebody waits.
#[derive(Default)]
pub(crate) struct Call(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl Call {
    #[cold]
    pub(crate) fn tell(&self) {
        if let Some(call) = self.0.get() {
            call();
        }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Call")
    }
}

/// A buffer as its workers know it.
#[derive(Debug)]
pub(crate) struct Served {
    ready: Bits,
    /// Since when each shard waits for a worker; 0: it does not.
    ready_since_ns: Box<[AtomicU64]>,
    shared: OnceLock<Weak<Shared>>,
}

/// A buffer's way to its workers.
#[derive(Debug)]
pub(crate) struct WorkerLink {
    pub(crate) pool: Arc<PoolState>,
    served: Arc<Served>,
}

impl WorkerPool {
    /// Starts `num_workers` threads, 1 to [`MAX_SHARDS`], at least one. With `pinned` each runs on
    /// one of the topology's CPUs only, in turn, where the system allows that.
    ///
    /// # Errors
    /// The system has no threads.
    pub fn start(num_workers: usize, topology: &Topology, pinned: bool) -> std::io::Result<WorkerPool> {
        let num_workers = num_workers.clamp(1, MAX_SHARDS);
        let state = Arc::new(PoolState {
            sleepers: Sleepers::new(num_workers),
            workers: (0..num_workers).map(|_| OnceLock::new()).collect(),
            buffers: Mutex::default(),
            changes: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
            on_room: Call::default(),
            on_ready: Call::default(),
            started: Instant::now(),
            turns: Turns::default(),
        });
        let mut pool = Threads { state: Arc::clone(&state), threads: Vec::new(), num_pinned: 0 };
        let (report, reports) = std::sync::mpsc::channel();
        for worker in 0..num_workers {
            let (state, report) = (Arc::clone(&state), report.clone());
            let cpu_id = pinned.then(|| topology.cpu_of_worker(worker));
            let thread = thread::Builder::new().name(format!("trace-worker-{worker}")).spawn(move || {
                let _ = state.workers[worker].set(thread::current());
                let is_pinned =
                    cpu_id.is_some_and(|id| core_affinity::set_for_current(core_affinity::CoreId { id }));
                // The other end is gone if the pool could not be made.
                let _ = report.send(is_pinned);
                drop(report);
                state.work(worker);
            })?;
            pool.threads.push(thread);
        }
        drop(report);
        pool.num_pinned = reports.into_iter().filter(|&is_pinned| is_pinned).count();
        Ok(WorkerPool(Arc::new(pool)))
    }

    /// The number of threads.
    pub fn num_workers(&self) -> usize {
        self.0.threads.len()
    }

    /// How many of them the system has pinned to a CPU.
    pub fn num_pinned(&self) -> usize {
        self.0.num_pinned
    }

    /// What they have done so far.
    pub fn stats(&self) -> WorkerStats {
        let Turns { number, latency_ns_sum, latency_ns_max } = &self.0.state.turns;
        WorkerStats {
            turns: number.load(Ordering::Relaxed),
            latency_sum: Duration::from_nanos(latency_ns_sum.load(Ordering::Relaxed)),
            latency_max: Duration::from_nanos(latency_ns_max.load(Ordering::Relaxed)),
        }
    }

    /// Has `call` called, by whichever thread drains, when there is room in a queue of which a
    /// buffer [wants](crate::ShardedBuffer::want_room) some. It must not wait. Only the first such
    /// call has an effect.
    pub fn on_room(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.state.on_room.0.set(Box::new(call));
    }

    /// Has `call` called, by whichever thread drains or unlocks a shard, when what a `try_` of a
    /// buffer has said "not yet" of is to be tried again. It must not wait. Only the first such
    /// call has an effect.
    pub fn on_ready(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.state.on_ready.0.set(Box::new(call));
    }

    /// Whether all of them are parked, or about to be. The feature `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub fn all_parked(&self) -> bool {
        self.0.state.sleepers.num_parked() as usize == self.num_workers()
    }

    /// The way to the pool for a buffer that is being made.
    pub(crate) fn link(&self, num_shards: usize) -> WorkerLink {
        let served = Served {
            ready: Bits::new(num_shards),
            ready_since_ns: (0..num_shards).map(|_| AtomicU64::new(0)).collect(),
            shared: OnceLock::new(),
        };
        WorkerLink { pool: Arc::clone(&self.0.state), served: Arc::new(served) }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.state.is_stopping.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A worker that panicked has reported it.
            let _ = thread.join();
        }
    }
}

impl WorkerLink {
    /// From now on the workers serve the buffer.
    pub(crate) fn start(&self, shared: &Arc<Shared>) {
        let _ = self.served.shared.set(Arc::downgrade(shared));
        self.pool.change(|buffers| buffers.push(Arc::clone(&self.served)));
    }

    /// No worker begins with a shard of the buffer any more.
    pub(crate) fn end(&self) {
        self.pool.change(|buffers| buffers.retain(|served| !Arc::ptr_eq(served, &self.served)));
    }

    /// There is work in a shard: the second half of "push, then set its bit".
    #[inline]
    pub(crate) fn schedule(&self, shard: usize) {
        let since_ns = &self.served.ready_since_ns[shard];
        if since_ns.load(Ordering::Relaxed) == 0 {
            since_ns.store(self.pool.now_ns(), Ordering::Relaxed);
        }
        if self.served.ready.set(shard) {
            self.pool.wake_one();
        }
    }
}

impl PoolState {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Served>>)) {
        change(&mut self.buffers.lock().unwrap_or_else(PoisonError::into_inner));
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Never 0.
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64 | 1
    }

    /// A turn is over for which a shard has waited.
    fn note_turn(&self, since_ns: u64) {
        let latency_ns = self.now_ns().saturating_sub(since_ns);
        self.turns.number.fetch_add(1, Ordering::Relaxed);
        self.turns.latency_ns_sum.fetch_add(latency_ns, Ordering::Relaxed);
        self.turns.latency_ns_max.fetch_max(latency_ns, Ordering::Relaxed);
    }

    #[inline]
    fn wake_one(&self) {
        if let Some(worker) = self.sleepers.wake_one().and_then(|worker| self.workers[worker].get()) {
            worker.unpark();
        }
    }

    fn work(&self, worker: usize) {
        let (mut buffers, mut known) = (Vec::new(), u64::MAX);
        let (mut first, mut is_chosen) = (worker, false);
        loop {
            let changes = self.changes.load(Ordering::SeqCst);
            if changes != known {
                buffers.clone_from(&self.buffers.lock().unwrap_or_else(PoisonError::into_inner));
                known = changes;
            }
            if self.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            // From another buffer each time.
            first = (first + 1) % buffers.len().max(1);
            let in_turn = buffers[first..].iter().chain(&buffers[..first]);
            let claimed = in_turn.filter_map(|served| Some((served, served.ready.claim()?))).next();
            if let Some((served, shard)) = claimed {
                // One that is committed to from here on waits for the next turn.
                let since_ns = served.ready_since_ns[shard].swap(0, Ordering::Relaxed);
                if std::mem::take(&mut is_chosen) && buffers.iter().any(|served| served.ready.any()) {
                    self.wake_one();
                }
                serve(served, shard, OwnerId(worker as u32));
                if since_ns != 0 {
                    self.note_turn(since_ns);
                }
                continue;
            }
            let has_work = || {
                buffers.iter().any(|served| served.ready.any())
                    || self.changes.load(Ordering::SeqCst) != known
                    || self.is_stopping.load(Ordering::SeqCst)
            };
            is_chosen = self.sleepers.sleep(worker, has_work, thread::park);
        }
    }
}

/// Drains a shard for one budget.
fn serve(served: &Served, shard: usize, owner: OwnerId) {
    // A buffer that is gone needs nothing.
    let Some(shared) = served.shared.get().and_then(Weak::upgrade) else { return };
    let drain = AssertUnwindSafe(|| shared.drain_by_worker(shard, owner));
    // A panic took one chunk, or has poisoned its shard. What else is queued is noted.
    if catch_unwind(drain).unwrap_or(true) {
        // Other owners hold all extents, and will return one.
        thread::yield_now();
    }
}
