//! The files of sessions, and the thread that reads buffers for them, writes and syncs: a slow file
//! stops neither the loop nor commits.
//!
//! ```text
//!   loop   --- jobs: open, copy, write, sync, close --->  trace-file thread: one at a time
//!          <-- results, and a wake-up ------------------
//! ```
//!
//! The service asks for one thing at a time for each session, so jobs of a file stay in order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use watershed_service::limits::SESSIONS_MAX;
use watershed_service::{ClockReadings, FileAction, FileWrite, FileWritten, Service, SessionId};
use watershed_shell::trace_file::{Output, Sink};

use crate::wake::Wake;

/// Jobs that wait. Each session has one file to open, and one job at a time.
const JOBS_MAX: usize = 2 * SESSIONS_MAX;

/// Files that are written by a thread of their own.
#[derive(Debug)]
pub(crate) struct Files {
    /// `None` once the thread has been told to end.
    jobs: Option<SyncSender<Job>>,
    results: Receiver<JobResult>,
    /// Of clones that are not there yet.
    for_clones: BTreeMap<SessionId, File>,
    thread: Option<JoinHandle<()>>,
    /// Jobs without a result.
    num_under_way: usize,
}

#[derive(Debug)]
enum Job {
    Open(SessionId, Output),
    Copy { from: SessionId, to: SessionId, offset_bytes: u64, size_bytes: u64 },
    Write(FileWrite),
    Sync(SessionId),
    Close(SessionId),
}

#[derive(Debug)]
enum JobResult {
    Written(FileWritten),
    Done(SessionId, Result<(), String>),
}

impl Files {
    /// Starts the thread. After each job `wake` is called.
    pub(crate) fn start(wake: Arc<Wake>) -> io::Result<Files> {
        let (jobs, queue) = mpsc::sync_channel(JOBS_MAX);
        let (done, results) = mpsc::channel();
        let work = move || {
            let mut open = OpenFiles::default();
            for job in queue {
                if let Some(result) = open.run(job) {
                    // The loop has gone only if it has stopped waiting for results.
                    let _ = done.send(result);
                    wake.wake();
                }
            }
        };
        let thread = thread::Builder::new().name("trace-file".to_owned()).spawn(work)?;
        Ok(Files {
            jobs: Some(jobs),
            results,
            for_clones: BTreeMap::new(),
            thread: Some(thread),
            num_under_way: 0,
        })
    }

    /// From now on the session writes into the file.
    pub(crate) fn add(&mut self, session_id: SessionId, file: File) {
        if let Some(output) = Output::new(Sink::File(file)) {
            self.send(Job::Open(session_id, output));
        }
    }

    /// The clone with this number may want the file, once it is there.
    pub(crate) fn keep_for_clone(&mut self, session_id: SessionId, file: File) {
        self.for_clones.insert(session_id, file);
    }

    /// The clone has been made, or will not be.
    pub(crate) fn forget_clone(&mut self, session_id: SessionId) {
        self.for_clones.remove(&session_id);
    }

    /// Hands on what sessions with files want done.
    pub(crate) fn hand_out(&mut self, service: &mut Service, now: &ClockReadings) {
        while self.num_under_way < SESSIONS_MAX
            && let Some(action) = service.poll_file()
        {
            if let FileAction::Copy { to, .. } | FileAction::Write(to) = action
                && let Some(file) = self.for_clones.remove(&to)
            {
                self.add(to, file);
            }
            let job = match action {
                FileAction::Write(session_id) => service.begin_write(session_id, now).map(Job::Write),
                FileAction::Copy { from, to, offset_bytes, size_bytes } => {
                    Some(Job::Copy { from, to, offset_bytes, size_bytes })
                }
                FileAction::Sync(session_id) => Some(Job::Sync(session_id)),
                FileAction::Close(session_id) => Some(Job::Close(session_id)),
            };
            // A write that has to wait for workers: it comes again.
            let Some(job) = job else { continue };
            self.num_under_way += 1;
            self.send(job);
        }
    }

    /// Tells the service of one job that has been done. False if there is none.
    pub(crate) fn take_result(&mut self, service: &mut Service, now: &ClockReadings) -> bool {
        let Ok(result) = self.results.try_recv() else { return false };
        self.note(result, service, now);
        true
    }

    /// As `take_result`, and waits for it if there are any under way.
    pub(crate) fn wait_for_result(&mut self, service: &mut Service, now: &ClockReadings) -> bool {
        if self.num_under_way == 0 {
            return false;
        }
        let Ok(result) = self.results.recv() else { return false };
        self.note(result, service, now);
        true
    }

    fn note(&mut self, result: JobResult, service: &mut Service, now: &ClockReadings) {
        self.num_under_way -= 1;
        match result {
            JobResult::Written(written) => service.handle_written(written, now),
            JobResult::Done(session_id, result) => service.handle_file_done(session_id, result, now),
        }
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // There is room for all that sessions may want, so it does not wait; and the thread
            // ends only with this value.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

/// What the thread keeps.
#[derive(Debug, Default)]
struct OpenFiles(BTreeMap<SessionId, SessionFile>);

/// The file of a session.
#[derive(Debug)]
struct SessionFile {
    output: Output,
    /// A write has failed; what comes later is not tried.
    has_failed: bool,
}

impl OpenFiles {
    fn run(&mut self, job: Job) -> Option<JobResult> {
        match job {
            Job::Open(session_id, output) => {
                self.0.insert(session_id, SessionFile { output, has_failed: false });
                None
            }
            Job::Copy { from, to, offset_bytes, size_bytes } => {
                let copied = self.copy(from, to, offset_bytes, size_bytes);
                Some(JobResult::Done(to, copied.map_err(|error| error.to_string())))
            }
            Job::Write(step) => {
                let mut file = self.0.get_mut(&step.session_id());
                let mut out = |slices: &[IoSlice<'_>]| match &mut file {
                    Some(file) => file.write(slices),
                    None => Err("the file is closed".to_owned()),
                };
                Some(JobResult::Written(step.write_to(&mut out)))
            }
            Job::Sync(session_id) => {
                let synced = self.0.get_mut(&session_id).map_or(Ok(()), |file| file.output.sync());
                Some(JobResult::Done(session_id, synced.map_err(|error| error.to_string())))
            }
            Job::Close(session_id) => {
                self.0.remove(&session_id);
                Some(JobResult::Done(session_id, Ok(())))
            }
        }
    }
}

impl OpenFiles {
    fn copy(&mut self, from: SessionId, to: SessionId, offset_bytes: u64, size_bytes: u64) -> io::Result<()> {
        let closed = || io::Error::other("the file is closed");
        let mut copy = self.0.remove(&to).ok_or_else(closed)?;
        let source = self.0.get(&from).ok_or_else(closed);
        let copied = source.and_then(|file| file.output.copy_to(&mut copy.output, offset_bytes, size_bytes));
        copy.has_failed |= copied.is_err();
        self.0.insert(to, copy);
        copied
    }
}

impl SessionFile {
    /// Writes whole packets, and nothing after a failure.
    fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<(), String> {
        if self.has_failed {
            return Err("an earlier write has failed".to_owned());
        }
        let (_, written) = self.output.write(slices);
        self.has_failed = written.is_err();
        written.map_err(|error| error.to_string())
    }
}
