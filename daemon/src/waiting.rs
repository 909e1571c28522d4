//! Threads for what may wait: for a thread that has a shard, or for memory. The loop goes on.
//!
//! ```text
//!   loop   --- jobs: a step of a read; memory, copies of a clone;  --->  a thread that is idle,
//!              a drop; pages of rings                                    or a new one
//!          <-- results, and a wake-up ---------------------------------
//! ```
//!
//! A job that waits keeps its thread, and no other job: so a shard whose owner is stopped holds up
//! the reads of its own session and nobody else's. A thread without a job ends after a while.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use watershed_service::limits::{CLONES_MAX, SESSIONS_MAX};
use watershed_service::{
    CloneWork, CloneWorkDone, Dropped, PacketBatch, PrefaultDone, PrefaultWork, ReadDone, ReadStep,
};
use watershed_shell::machine;

use crate::wake::Wake;

/// Threads at one time: for a read of each session and of each clone, for each clone that is being
/// made, and for pages. Jobs beyond that wait for one of them: those of sessions that have gone are
/// among them until they are done.
const THREADS_MAX: usize = SESSIONS_MAX + 2 * CLONES_MAX + 1;
/// Jobs that wait for a thread. A drop beyond that is done by the loop: whoever makes sessions and
/// gives them up faster than their memory can be given back is slowed down by that.
const JOBS_QUEUED_MAX: usize = 256;
/// After so long without a job a thread ends.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// What a thread is to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Into the batch, whose memory is used again.
    Read(ReadStep, PacketBatch),
    Clone(CloneWork),
    Drop(Dropped),
    Prefault(PrefaultWork),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum JobResult {
    Read(ReadDone),
    Clone(CloneWorkDone),
    Prefault(PrefaultDone),
}

/// The threads, and the jobs that wait for one.
#[derive(Debug)]
pub(crate) struct WaitingThreads {
    shared: Arc<Shared>,
    done: Sender<thread::Result<JobResult>>,
    results: Receiver<thread::Result<JobResult>>,
    /// Jobs of clones without a result.
    num_clones: usize,
    /// Jobs that make pages ready without a result.
    num_prefaults: usize,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// A job was queued, or all are to end.
    is_queued: Condvar,
    /// The last thread has ended.
    all_ended: Condvar,
    wake: Arc<Wake>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    num_threads: usize,
    num_idle: usize,
    is_over: bool,
}

impl Job {
    fn run(self) -> Option<JobResult> {
        match self {
            Job::Read(step, batch) => Some(JobResult::Read(step.run(batch))),
            Job::Clone(work) => Some(JobResult::Clone(work.run())),
            Job::Prefault(work) => Some(JobResult::Prefault(work.run(machine::thread_cpu_time))),
            Job::Drop(dropped) => {
                drop(dropped);
                None
            }
        }
    }
}

impl WaitingThreads {
    /// None yet. After each job `wake` is called.
    pub(crate) fn new(wake: Arc<Wake>) -> WaitingThreads {
        let (done, results) = mpsc::channel();
        let (is_queued, all_ended) = (Condvar::new(), Condvar::new());
        let shared = Shared { queue: Mutex::default(), is_queued, all_ended, wake };
        WaitingThreads { shared: Arc::new(shared), done, results, num_clones: 0, num_prefaults: 0 }
    }

    /// Whether another job of a clone may be begun: also those of consumers that have gone
    /// meanwhile take memory.
    pub(crate) fn takes_clones(&self) -> bool {
        self.num_clones < CLONES_MAX
    }

    /// Begins with a job, or queues it if there are threads enough.
    pub(crate) fn begin(&mut self, job: Job) {
        self.num_clones += usize::from(matches!(job, Job::Clone(_)));
        self.num_prefaults += usize::from(matches!(job, Job::Prefault(_)));
        let mut queue = self.shared.lock();
        if matches!(job, Job::Drop(_)) && queue.jobs.len() >= JOBS_QUEUED_MAX {
            drop(queue);
            return self.shared.run(job, &self.done);
        }
        queue.jobs.push_back(job);
        if queue.jobs.len() <= queue.num_idle {
            return self.shared.is_queued.notify_one();
        }
        if queue.num_threads >= THREADS_MAX {
            return;
        }
        queue.num_threads += 1;
        drop(queue);
        if self.start_thread().is_err() {
            // The system has no thread.
            let mut queue = self.shared.lock();
            queue.num_threads -= 1;
            let is_alone = queue.num_threads == 0;
            let job = if is_alone { queue.jobs.pop_front() } else { None };
            drop(queue);
            job.into_iter().for_each(|job| self.shared.run(job, &self.done));
        }
    }

    /// Reads, clones and drops that are not done.
    pub(crate) fn num_under_way(&self) -> usize {
        let queue = self.shared.lock();
        (queue.jobs.len() + queue.num_threads - queue.num_idle).saturating_sub(self.num_prefaults)
    }

    /// What came of a job; `None` if no other one is done.
    pub(crate) fn take_result(&mut self) -> Option<JobResult> {
        let result = self.results.try_recv().ok()?.unwrap_or_else(|panic| resume_unwind(panic));
        self.num_clones -= usize::from(matches!(result, JobResult::Clone(_)));
        self.num_prefaults -= usize::from(matches!(result, JobResult::Prefault(_)));
        Some(result)
    }

    /// Nobody joins it: what of it is to be waited for is that it is not counted any more.
    fn start_thread(&self) -> std::io::Result<()> {
        let (shared, done) = (Arc::clone(&self.shared), self.done.clone());
        let thread = thread::Builder::new().name("trace-waits".to_owned());
        let run = move || {
            while let Some(job) = shared.next_job() {
                shared.run(job, &done);
            }
        };
        thread.spawn(run).map(drop)
    }
}

impl Drop for WaitingThreads {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_over = true;
        self.shared.is_queued.notify_all();
        // What is at work ends first: it may use what the daemon drops next.
        let is_left = |queue: &mut Queue| queue.num_threads > 0;
        drop(self.shared.all_ended.wait_while(queue, is_left).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, job: Job, done: &Sender<Result<JobResult, Box<dyn Any + Send>>>) {
        let result = catch_unwind(AssertUnwindSafe(|| job.run()));
        if let Some(result) = result.transpose() {
            // The other end is gone if nobody wants results any more.
            let _ = done.send(result);
            self.wake.wake();
        }
    }

    /// Waits for a job. `None` if there was none for long: then the thread is not counted any more.
    fn next_job(&self) -> Option<Job> {
        let mut queue = self.lock();
        queue.num_idle += 1;
        let wants_job = |queue: &mut Queue| queue.jobs.is_empty() && !queue.is_over;
        let waited = self.is_queued.wait_timeout_while(queue, IDLE_MAX, wants_job);
        queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        queue.num_idle -= 1;
        let job = if queue.is_over { None } else { queue.jobs.pop_front() };
        queue.num_threads -= usize::from(job.is_none());
        if queue.num_threads == 0 {
            self.all_ended.notify_all();
        }
        job
    }
}
