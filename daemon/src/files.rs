//! The files of sessions. Each has a thread of its own that reads buffers for it, writes and syncs:
//! a slow file stops neither the loop nor commits, nor another file.
//!
//! ```text
//!   loop   --- jobs: copy, write, sync, close ---------->  trace-file threads: one for each file,
//!          <-- results, and a wake-up ------------------    from its first job until it is closed
//! ```
//!
//! That of a clone begins when the clone is asked for.
//!
//! The service asks for one thing at a time for each session, so jobs of a file stay in order.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use watershed_service::limits::{CLONES_MAX, SESSIONS_MAX};
use watershed_service::{ClockReadings, CloneRoom, FileAction, FileWritten, Service, SessionId};
use watershed_shell::trace_file::{Output, Sink, Written};

use crate::file_thread::{FileThread, Job, JobResult, Results, TakenBytes};
use crate::wake::Wake;

/// Files that are written at one time, each by a thread: a session has one, and so has a clone.
const FILES_MAX: usize = SESSIONS_MAX + CLONES_MAX;

/// At the daemon's end a file is given up when it has taken nothing for so long.
pub(crate) const FILE_STALL_MAX: Duration = Duration::from_secs(10);

/// Files, and the threads that write them.
#[derive(Debug)]
pub(crate) struct Files {
    open: BTreeMap<SessionId, OpenFile>,
    /// Of clones that are not there yet.
    for_clones: BTreeMap<SessionId, OpenFile>,
    of_threads: Results,
    results: Receiver<JobResult>,
}

#[derive(Debug)]
struct OpenFile {
    /// Until there is a thread.
    unused: Option<Output>,
    /// From then on; or why the system has none.
    thread: Result<FileThread, String>,
    /// For clones, which begin with what the file has.
    written: Written,
    /// What is under way, unless the file waits for something to do.
    job: Option<UnderWay>,
    taken_bytes: TakenBytes,
}

/// How far a job was at a time.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    taken_bytes: u64,
    at: Instant,
}

impl Files {
    /// None yet, and no thread. After each job `wake` is called.
    pub(crate) fn new(wake: Arc<Wake>) -> Files {
        let (done, results) = mpsc::channel();
        let of_threads = Results { done, wake };
        Files { open: BTreeMap::new(), for_clones: BTreeMap::new(), of_threads, results }
    }

    /// From now on the session writes into the file.
    pub(crate) fn add(&mut self, session_id: SessionId, file: File) {
        if let Some(output) = Output::new(Sink::File(file)) {
            self.open.insert(session_id, OpenFile::new(output));
            debug_assert!(self.open.len() <= FILES_MAX, "each is one of a session or a clone");
        }
    }

    /// The clone with this number may want the file, once it is there, and so much room in it.
    pub(crate) fn keep_for_clone(&mut self, session_id: SessionId, file: File, room: Option<CloneRoom>) {
        let Some(output) = Output::new(Sink::File(file)) else { return };
        let mut file = OpenFile::new(output);
        if room.is_some() {
            file.start(room, &self.of_threads);
        }
        self.for_clones.insert(session_id, file);
    }

    /// The clone has been made, or will not be.
    pub(crate) fn forget_clone(&mut self, session_id: SessionId) {
        self.for_clones.remove(&session_id);
    }

    /// Hands on what sessions with files want done.
    pub(crate) fn hand_out(&mut self, service: &mut Service, now: &ClockReadings) {
        while let Some(action) = service.poll_file() {
            if let FileAction::Copy { to, .. } | FileAction::Write(to) = action
                && let Some(file) = self.for_clones.remove(&to)
            {
                self.open.insert(to, file);
            }
            let (session_id, job) = match action {
                // If it has to wait for workers, it comes again.
                FileAction::Write(session_id) => match service.begin_write(session_id, now) {
                    Some(step) => (session_id, Job::Write(step)),
                    None => continue,
                },
                FileAction::Copy { from, to, offset_bytes, size_bytes } => {
                    let from = self.open.get(&from).map(|file| file.written.clone()).unwrap_or_default();
                    (to, Job::Copy { to, from, offset_bytes, size_bytes })
                }
                FileAction::Sync(session_id) => (session_id, Job::Sync(session_id)),
                FileAction::Close(session_id) => (session_id, Job::Close(session_id)),
            };
            self.send(session_id, job);
        }
    }

    fn send(&mut self, session_id: SessionId, job: Job) {
        let sent = match self.open.get_mut(&session_id) {
            Some(file) => file.send(job, &self.of_threads),
            None => Err(job.failed("the file is closed".to_owned())),
        };
        if let Err(result) = sent {
            self.of_threads.tell(result);
        }
    }

    /// Tells the service of one job that has been done. False if there is none.
    pub(crate) fn take_result(&mut self, service: &mut Service, now: &ClockReadings) -> bool {
        let Ok(result) = self.results.try_recv() else { return false };
        self.note(result, service, now);
        true
    }

    fn note(&mut self, result: JobResult, service: &mut Service, now: &ClockReadings) {
        if let Some(file) = self.open.get_mut(&result.session_id()) {
            file.job = None;
        }
        match result {
            JobResult::Written(written) => service.handle_written(written, now),
            JobResult::Done(session_id, result) => service.handle_file_done(session_id, result, now),
            JobResult::Closed(session_id) => {
                self.open.remove(&session_id);
                service.handle_file_done(session_id, Ok(()), now);
            }
        }
    }
}

/// At the daemon's end.
impl Files {
    /// As [`Files::take_result`], and waits for one, `at_most` so long.
    pub(crate) fn wait_for_result(&mut self, service: &mut Service, now: &ClockReadings, at_most: Duration) {
        if let Ok(result) = self.results.recv_timeout(at_most) {
            self.note(result, service, now);
        }
    }

    /// Whether something is under way with a file that has not been idle for [`FILE_STALL_MAX`]
    /// since the stop.
    pub(crate) fn is_any_moving(&mut self, stopped: Instant) -> bool {
        // Each of them is looked at: that is how it is known when it last took something.
        let under_way = self.open.values_mut().filter_map(OpenFile::look);
        under_way.filter(|job| job.at.max(stopped).elapsed() < FILE_STALL_MAX).count() > 0
    }

    /// Tells the service that what is under way has failed. Its threads end with the process.
    pub(crate) fn give_up(&mut self, service: &mut Service, now: &ClockReadings) {
        for (session_id, file) in self.open.iter().filter(|(_, file)| file.job.is_some()) {
            let reason = format!(
                "it took nothing for {} s while the daemon stopped, the trace ends after {} bytes",
                FILE_STALL_MAX.as_secs(),
                file.taken_bytes.get()
            );
            // It takes the answer that it waits for.
            service.handle_written(FileWritten::failed(*session_id, reason.clone()), now);
            service.handle_file_done(*session_id, Err(reason), now);
        }
    }
}

impl OpenFile {
    fn new(output: Output) -> OpenFile {
        OpenFile {
            written: output.written(),
            unused: Some(output),
            thread: Err(String::new()),
            job: None,
            taken_bytes: TakenBytes::default(),
        }
    }

    /// Starts the file's thread, if that has not been done.
    fn start(&mut self, room: Option<CloneRoom>, results: &Results) {
        if let Some(output) = self.unused.take() {
            self.thread = FileThread::start(output, room, self.taken_bytes.clone(), results.clone())
                .map_err(|error| format!("there is no thread for it: {error}"));
        }
    }

    /// Hands the job on to the file's thread.
    ///
    /// # Errors
    ///
    /// The job's result, if the system has no thread for it.
    fn send(&mut self, job: Job, results: &Results) -> Result<(), JobResult> {
        self.job = Some(UnderWay { taken_bytes: self.taken_bytes.get(), at: Instant::now() });
        self.start(None, results);
        match &self.thread {
            Ok(thread) => thread.send(job),
            Err(reason) => return Err(job.failed(reason.clone())),
        }
        Ok(())
    }

    /// How far its job is now.
    fn look(&mut self) -> Option<UnderWay> {
        let (job, taken_bytes) = (self.job.as_mut()?, self.taken_bytes.get());
        if job.taken_bytes != taken_bytes {
            *job = UnderWay { taken_bytes, at: Instant::now() };
        }
        Some(*job)
    }
}
