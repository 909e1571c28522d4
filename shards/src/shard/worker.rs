//! Workers: threads that drain the shards of any number of buffers. They are the caller's.
//!
//! ```text
//!   committer --push--> queue of shard 3 --set bit 3, ask--> some thread of the caller's
//!                                                               | serve: claim a bit, one budget
//!                                     more left: set it again <-+-> nothing left anywhere: return
//! ```
//!
//! A worker stays with a shard for one budget, so a busy shard keeps no other one waiting. It never
//! waits for a shard's lock: whoever has it looks at the queue, and at what was noted, when it
//! unlocks.
//!
//! - `PoolState::changes`: publishes the list of buffers, which its mutex does. SeqCst, against the
//!   bits of shards: a thread that was asked for a new buffer's shard finds the buffer.
//! - `Served::ready_since_ns`, `Turns`: figures for people, which publish nothing. Relaxed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::shard::Shared;
use crate::shard::topology::MAX_SHARDS;
use crate::sync::lock::OwnerId;
use crate::sync::ready::{Bits, Slots};
use crate::sync::{AtomicU64, Ordering};

/// Who drains buffers: any number of buffers may be made with one pool, which all of them share. It
/// has no threads: those that call [`Worker::serve`] drain.
#[derive(Clone, Debug)]
pub struct WorkerPool(Arc<PoolState>);

/// A thread's way to serve the buffers of a pool, which it does not keep alive.
#[derive(Debug)]
pub struct Worker {
    pool: Weak<PoolState>,
    buffers: Vec<Arc<Served>>,
    /// The change up to which they are known.
    known: u64,
    /// Which of them comes first.
    first: usize,
}

/// What workers and those who give them work share.
#[derive(Debug)]
pub(crate) struct PoolState {
    num_workers: usize,
    slots: Slots,
    buffers: Mutex<Vec<Arc<Served>>>,
    /// How often the list of buffers has changed.
    changes: AtomicU64,
    /// A thread has to come and serve.
    on_work: Call,
    /// There is room in a queue for which somebody waits.
    pub(crate) on_room: Call,
    /// Something for which a `try_` has failed may be so now.
    pub(crate) on_ready: Call,
    /// What times are counted from.
    started: Instant,
    turns: Turns,
}

/// What workers have done so far. A turn is what one of them does at one shard: as much as a budget
/// allows of what is queued there.
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
    /// A pool that `num_workers` threads serve at a time, 1 to [`MAX_SHARDS`], whoever comes.
    pub fn new(num_workers: usize) -> WorkerPool {
        let num_workers = num_workers.clamp(1, MAX_SHARDS);
        WorkerPool(Arc::new(PoolState {
            num_workers,
            slots: Slots::new(num_workers),
            buffers: Mutex::default(),
            changes: AtomicU64::new(0),
            on_work: Call::default(),
            on_room: Call::default(),
            on_ready: Call::default(),
            started: Instant::now(),
            turns: Turns::default(),
        }))
    }

    /// How many threads serve at a time, at most.
    pub fn num_workers(&self) -> usize {
        self.0.num_workers
    }

    /// For a thread that serves.
    pub fn worker(&self) -> Worker {
        Worker { pool: Arc::downgrade(&self.0), buffers: Vec::new(), known: u64::MAX, first: 0 }
    }

    /// Has `call` called, by whichever thread commits or unlocks a shard, when a thread is needed
    /// that [serves](Worker::serve): one that begins with it behind that call. It is not called
    /// again before one has begun. It must not wait. Only the first such call has an effect.
    pub fn on_work(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.on_work.0.set(Box::new(call));
    }

    /// What they have done so far.
    pub fn stats(&self) -> WorkerStats {
        let Turns { number, latency_ns_sum, latency_ns_max } = &self.0.turns;
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
        let _ = self.0.on_room.0.set(Box::new(call));
    }

    /// Has `call` called, by whichever thread drains or unlocks a shard, when what a `try_` of a
    /// buffer has said "not yet" of is to be tried again. It must not wait. Only the first such
    /// call has an effect.
    pub fn on_ready(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.on_ready.0.set(Box::new(call));
    }

    /// Whether nobody serves, and there is nothing to be served. The feature `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_idle(&self) -> bool {
        let PoolState { num_workers, slots, buffers, .. } = &*self.0;
        let has_work = || buffers.lock().unwrap().iter().any(|served| served.ready.any());
        !slots.is_asked() && slots.num_taken(*num_workers) == 0 && !has_work()
    }

    /// The way to the pool for a buffer that is being made.
    pub(crate) fn link(&self, num_shards: usize) -> WorkerLink {
        let served = Served {
            ready: Bits::new(num_shards),
            ready_since_ns: (0..num_shards).map(|_| AtomicU64::new(0)).collect(),
            shared: OnceLock::new(),
        };
        WorkerLink { pool: Arc::clone(&self.0), served: Arc::new(served) }
    }
}

impl WorkerLink {
    /// From now on workers serve the buffer.
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
            self.pool.ask();
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
    fn ask(&self) {
        if self.slots.ask() {
            self.on_work.tell();
        }
    }
}

impl Worker {
    /// Drains what is to be drained, of all buffers of the pool, one budget after the other until
    /// nothing is left; unless as many threads as may do so already, who then do this, too. Waits
    /// for no other thread.
    pub fn serve(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        loop {
            pool.slots.come();
            self.look_for_buffers(&pool);
            if !self.has_ready() {
                return;
            }
            let Some(slot) = pool.slots.take() else { return };
            while self.serve_next(&pool, OwnerId(slot as u32)) {
                // There is work for more than one.
                if self.has_ready() {
                    pool.ask();
                }
                self.look_for_buffers(&pool);
            }
            pool.slots.give_back(slot);
        }
    }

    /// Whether [`serve`](Self::serve) would find something to do now.
    pub fn has_work(&mut self) -> bool {
        if let Some(pool) = self.pool.upgrade() {
            self.look_for_buffers(&pool);
        }
        self.has_ready()
    }

    fn look_for_buffers(&mut self, pool: &PoolState) {
        let changes = pool.changes.load(Ordering::SeqCst);
        if changes != self.known {
            self.buffers.clone_from(&pool.buffers.lock().unwrap_or_else(PoisonError::into_inner));
            self.known = changes;
        }
    }

    fn has_ready(&self) -> bool {
        self.buffers.iter().any(|served| served.ready.any())
    }

    /// Drains a shard for one budget. False if none has work.
    fn serve_next(&mut self, pool: &PoolState, owner: OwnerId) -> bool {
        // From another buffer each time.
        self.first = (self.first + 1) % self.buffers.len().max(1);
        let (before, from_first) = self.buffers.split_at(self.first);
        let in_turn = from_first.iter().chain(before);
        let claimed = in_turn.filter_map(|served| Some((served, served.ready.claim()?))).next();
        let Some((served, shard)) = claimed else { return false };
        // One that is committed to from here on waits for the next turn.
        let since_ns = served.ready_since_ns[shard].swap(0, Ordering::Relaxed);
        serve(served, shard, owner);
        if since_ns != 0 {
            pool.note_turn(since_ns);
        }
        true
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
