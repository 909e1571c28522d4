//! The daemon's threads: one of them is the loop, the others copy or wait. Each may be either.
//!
//! ```text
//!         +--> wait: an event wakes one of those that wait; maybe poll before (crate::polling)
//!         |      |
//!         |    note the events. Is another thread the loop? --yes--> it looks at them in its next
//!         |      | no                                          |     turn, which begins at once
//!         |    be the loop: one turn; nothing was noted        |
//!         |    meanwhile? Be the loop no more                  |
//!         |      |                                             |
//!         +--- serve: copy what was queued, if a worker <------+
//!              is wanted
//! ```
//!
//! To wake a thread, which then has to get a CPU, takes several times as long as to copy what a
//! commit brings. So who has been the loop copies that, and the loop is the next thread that an
//! event wakes. There is one thread more than workers, and no more threads copy at one time than
//! there are workers ([`WorkerPool`]): one is always left to be the loop, which copies nothing. If
//! that one does not get a CPU before whoever copies is done, that one takes the event from it.

use std::cell::Cell;
use std::io;
use std::mem;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use mio::{Registry, Token};
use watershed_service::{Topology, WorkerPool};

use crate::connection::Ready;
use crate::event_loop::EventLoop;
use crate::events::Waiter;
use crate::options::DaemonError;
use crate::polling::Polling;
use crate::wake::Wake;

thread_local! {
    static IS_LOOP: Cell<bool> = const { Cell::new(false) };
}

/// Has `pool` wake a thread when one is wanted, unless the loop wants it: that serves itself at the
/// end of its turn.
pub(crate) fn wake_for_work(pool: &WorkerPool, wake: &Arc<Wake>) {
    let wake = Arc::clone(wake);
    pool.on_work(move || {
        if !IS_LOOP.get() {
            wake.wake();
        }
    });
}

/// What the threads share.
struct Turns {
    /// Whoever has it locked is the loop.
    event_loop: Mutex<EventLoop>,
    /// For the next turn. Whoever has been the loop looks here once more after that.
    noted: Mutex<Vec<(Token, Ready)>>,
    pool: Option<WorkerPool>,
    polling: Arc<Polling>,
    wake: Arc<Wake>,
    /// The daemon has been shut down, or a thread has failed.
    is_over: AtomicBool,
}

/// Serves until the daemon is stopped, with as many threads besides the calling one as there are
/// workers. Then it is shut down.
pub(crate) fn run(
    event_loop: EventLoop,
    pool: Option<WorkerPool>,
    is_pinned: bool,
) -> Result<(), DaemonError> {
    let num_workers = pool.as_ref().map_or(0, WorkerPool::num_workers);
    let registry = event_loop.registry()?;
    let registries = (0..num_workers).map(|_| event_loop.registry()).collect::<io::Result<Vec<_>>>()?;
    let polling = event_loop.polling();
    let (report, reports) = mpsc::channel();
    let wake = Arc::clone(&event_loop.wake);
    let turns = Turns {
        event_loop: Mutex::new(event_loop),
        noted: Mutex::default(),
        pool,
        polling,
        wake,
        is_over: false.into(),
    };
    thread::scope(|scope| {
        let is_over = EndAll(&turns);
        let topology = Topology::of_this_process();
        let start = |(number, registry)| {
            let (turns, report, cpu_id) = (&turns, report.clone(), topology.cpu_of_worker(number));
            let run = move || {
                // Nobody waits for that if a thread could not be started.
                let _ = report.send(is_pinned && pin_to(cpu_id));
                drop(report);
                turns.run(registry, false)
            };
            thread::Builder::new().name(format!("trace-worker-{number}")).spawn_scoped(scope, run)
        };
        let workers = registries.into_iter().enumerate().map(start).collect::<io::Result<Vec<_>>>();
        let workers = workers.map_err(|error| DaemonError::Workers { num_workers, error })?;
        drop(report);
        if is_pinned {
            let num_pinned = reports.into_iter().filter(|&is_pinned| is_pinned).count();
            lock(&turns.event_loop).tell_pinned(num_pinned, num_workers);
        }
        let result = turns.run(registry, true);
        drop(is_over);
        let join =
            |worker: thread::ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|e| resume_unwind(e));
        workers.into_iter().map(join).fold(result, Result::and)
    })
}

impl Turns {
    /// One thread's part of it, until the daemon is shut down. With `has_more` there is something
    /// to do that no event announces.
    fn run(&self, registry: Registry, mut has_more: bool) -> Result<(), DaemonError> {
        let _is_over = EndAll(self);
        let mut worker = self.pool.as_ref().map(WorkerPool::worker);
        let (mut waiter, mut events) = (Waiter::new(registry), Vec::new());
        loop {
            let new = waiter.wait(has_more, &self.polling)?;
            lock(&self.noted).extend(new);
            has_more = self.take_turns(&mut events)?;
            // Acquire: pairs with the release of who ended it, after whom nobody begins a turn.
            if self.is_over.load(Ordering::Acquire) {
                return Ok(());
            }
            if let Some(worker) = &mut worker {
                if has_more && worker.has_work() {
                    // Another one goes on as the loop, while this one copies.
                    self.wake.wake();
                }
                worker.serve();
            }
        }
    }

    /// Is the loop until nothing is noted, unless another thread is: that sees then what was noted.
    /// Whether there is more to do that no event announces.
    fn take_turns(&self, events: &mut Vec<(Token, Ready)>) -> Result<bool, DaemonError> {
        loop {
            // Poisoned by a thread that panicked, which ends all.
            let Ok(mut event_loop) = self.event_loop.try_lock() else { return Ok(false) };
            if self.wake.is_stop_wanted() {
                // The others serve meanwhile, as files need it.
                event_loop.shut_down();
                self.is_over.store(true, Ordering::Release);
                return Ok(false);
            }
            mem::swap(&mut *lock(&self.noted), events);
            IS_LOOP.set(true);
            let has_more = event_loop.take_turn(events.drain(..));
            IS_LOOP.set(false);
            drop(event_loop);
            // Who noted something before this was the loop no more has left it to this one.
            if lock(&self.noted).is_empty() {
                return Ok(has_more?);
            }
        }
    }
}

/// Ends all threads when it is dropped: there is no daemon any more.
struct EndAll<'a>(&'a Turns);

impl Drop for EndAll<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire of each of them. Each wakes the next one.
        self.0.is_over.store(true, Ordering::Release);
        self.0.wake.wake();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pin_to(cpu_id: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: cpu_id })
}
