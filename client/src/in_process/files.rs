//! The files of sessions. The service's thread writes them, but for those that are compressed: a
//! step of these takes up to some seconds, and writers wait for that thread.
//!
//! ```text
//!   service   --- Job: step, where the trace goes --->  trace-file thread: one at a time
//!             <-- Request::Packed: both back --------
//! ```

use std::io::IoSlice;
use std::sync::mpsc::{self, SendError, Sender};
use std::thread::{self, JoinHandle};

use watershed_service::{ClockReadings, ConsumerId, FileAction, FileWrite, FileWritten};

use super::live::Trace;
use super::shell::{Request, Shell};

impl Shell {
    /// Begins a step of a file that is compressed; `packed` ends it.
    fn pack(&mut self, consumer_id: ConsumerId, now: &ClockReadings) {
        let Some(live) = self.sessions.get_mut(&consumer_id) else { return };
        let Some(step) = self.service.begin_write(live.session_id, now) else { return };
        live.is_packing = true;
        let trace = std::mem::take(&mut live.trace);
        let job = Job { consumer_id, step, trace, requests: live.requests.clone() };
        if let Err(job) = self.packing.send(job) {
            // Without another thread this one has to.
            let (trace, written) = job.run();
            self.packed(consumer_id, trace, written, now);
        }
    }

    pub(super) fn packed(
        &mut self,
        consumer_id: ConsumerId,
        trace: Trace,
        written: FileWritten,
        now: &ClockReadings,
    ) {
        if let Some(live) = self.sessions.get_mut(&consumer_id) {
            live.is_packing = false;
            live.trace = trace;
        }
        self.service.handle_written(written, now);
    }

    /// Does what sessions with files want done.
    pub(super) fn work_on_files(&mut self, now: &ClockReadings) {
        while let Some(action) = self.service.poll_file() {
            let (FileAction::Write(session_id)
            | FileAction::Copy { to: session_id, .. }
            | FileAction::Sync(session_id)
            | FileAction::Close(session_id)) = action;
            let mut live = self.sessions.iter_mut().find(|(_, live)| live.session_id == session_id);
            let gone = || Err("the session has been given up".to_owned());
            let result = match (action, &mut live) {
                (FileAction::Write(_), Some((consumer_id, _)))
                    if self.service.compresses_file(session_id) =>
                {
                    let consumer_id = **consumer_id;
                    self.pack(consumer_id, now);
                    self.deliver(now);
                    continue;
                }
                (FileAction::Write(_), live) => {
                    let mut out = |slices: &[IoSlice<'_>]| {
                        live.as_mut().map_or_else(gone, |(_, live)| live.trace.write(slices))
                    };
                    self.service.write_file(session_id, &mut out, now);
                    self.deliver(now);
                    continue;
                }
                (FileAction::Sync(_), Some((_, live))) => live.trace.sync(),
                (FileAction::Copy { .. }, Some(_)) => {
                    unreachable!("sessions of a program's own are not cloned")
                }
                (FileAction::Close(_), Some((_, live))) => {
                    live.trace.output = None;
                    Ok(())
                }
                (_, None) => gone(),
            };
            self.service.handle_file_done(session_id, result, now);
            self.deliver(now);
        }
        self.sessions.retain(|_, live| !live.is_free || live.is_packing);
    }
}

/// A step that is to be written.
pub(super) struct Job {
    pub(super) consumer_id: ConsumerId,
    pub(super) step: FileWrite,
    pub(super) trace: Trace,
    /// Where the result goes.
    pub(super) requests: Sender<Request>,
}

impl Job {
    /// Compresses and writes on the calling thread.
    pub(super) fn run(self) -> (Trace, FileWritten) {
        let Job { step, mut trace, .. } = self;
        let written = step.write_to(&mut |slices| trace.write(slices));
        (trace, written)
    }
}

/// The thread, from the first job on.
#[derive(Default)]
pub(super) struct Packing(Option<Worker>);

struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Packing {
    /// Hands on a job; the result comes as a request.
    ///
    /// # Errors
    /// The job, if the system has no thread for it.
    pub(super) fn send(&mut self, job: Job) -> Result<(), Box<Job>> {
        if self.0.is_none() {
            self.0 = Worker::start();
        }
        match &self.0 {
            Some(worker) => worker.jobs.send(job).map_err(|SendError(job)| Box::new(job)),
            None => Err(Box::new(job)),
        }
    }
}

impl Worker {
    fn start() -> Option<Worker> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let work = move || {
            for job in queue {
                let (consumer_id, requests) = (job.consumer_id, job.requests.clone());
                let (trace, written) = job.run();
                // The service's thread has gone only if all is given up; the file is whole.
                let _ = requests.send(Request::Packed { consumer_id, trace, written });
            }
        };
        let thread = thread::Builder::new().name("trace-file".to_owned()).spawn(work).ok()?;
        Some(Worker { jobs, thread })
    }
}

impl Drop for Packing {
    fn drop(&mut self) {
        if let Some(Worker { jobs, thread }) = self.0.take() {
            drop(jobs);
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}
