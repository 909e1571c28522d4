//! The thread of one file: it reads buffers for the file, writes and syncs. A file that takes
//! nothing holds up this thread, and no other file.
//!
//! The file of a clone has its thread before there is something to write: while the clone's memory
//! is made ready and data sources are flushed, it asks the system for the file's memory.

use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;

use watershed_service::{CloneRoom, FileWrite, FileWritten, SessionId};
use watershed_shell::trace_file::{Output, Written};

use crate::wake::Wake;

/// What is copied of another file between two looks at how far it got.
const COPY_PIECE_BYTES: u64 = 4 << 20;

/// Room that is asked for at a time: a job waits so long at most.
const ROOM_PIECE_BYTES: u64 = 2 << 20;

/// One thing to do with a file. Each has one result.
#[derive(Debug)]
pub(crate) enum Job {
    /// Appends what another file has.
    Copy {
        to: SessionId,
        from: Written,
        offset_bytes: u64,
        size_bytes: u64,
    },
    Write(FileWrite),
    Sync(SessionId),
    /// Closes the file, and ends the thread.
    Close(SessionId),
}

/// What became of a job.
#[derive(Debug)]
pub(crate) enum JobResult {
    Written(FileWritten),
    Done(SessionId, Result<(), String>),
    Closed(SessionId),
}

/// How a thread tells of results.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    pub(crate) done: Sender<JobResult>,
    pub(crate) wake: Arc<Wake>,
}

/// Bytes that a file has taken, for who waits for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TakenBytes(Arc<AtomicU64>);

/// What jobs are sent to. The thread ends with its file, or with this value.
#[derive(Debug)]
pub(crate) struct FileThread(Sender<Job>);

impl Job {
    /// The result of a job that could not be done.
    pub(crate) fn failed(&self, reason: String) -> JobResult {
        match self {
            Job::Copy { to: session_id, .. } | Job::Sync(session_id) => {
                JobResult::Done(*session_id, Err(reason))
            }
            Job::Write(step) => JobResult::Written(FileWritten::failed(step.session_id(), reason)),
            Job::Close(session_id) => JobResult::Closed(*session_id),
        }
    }
}

impl JobResult {
    pub(crate) fn session_id(&self) -> SessionId {
        match self {
            JobResult::Written(written) => written.session_id(),
            JobResult::Done(session_id, _) | JobResult::Closed(session_id) => *session_id,
        }
    }
}

impl Results {
    pub(crate) fn tell(&self, result: JobResult) {
        // The loop has gone only if it has stopped waiting for results.
        let _ = self.done.send(result);
        self.wake.wake();
    }
}

impl TakenBytes {
    // Relaxed: the count publishes nothing, and who looks at it does so again.
    fn add(&self, size_bytes: u64) {
        self.0.fetch_add(size_bytes, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as above.
        self.0.load(Ordering::Relaxed)
    }
}

impl FileThread {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// The system has no thread. Then the file is closed.
    pub(crate) fn start(
        output: Output,
        room: Option<CloneRoom>,
        taken_bytes: TakenBytes,
        results: Results,
    ) -> io::Result<FileThread> {
        let (jobs, queue) = mpsc::channel();
        let mut file = SessionFile { output, has_failed: false, taken_bytes };
        let work = move || {
            let first = room.map_or_else(|| queue.recv().ok(), |room| file.reserve_until_job(&room, &queue));
            file.work(first.into_iter().chain(queue), &results);
        };
        thread::Builder::new().name("trace-file".to_owned()).spawn(work)?;
        Ok(FileThread(jobs))
    }

    pub(crate) fn send(&self, job: Job) {
        // The thread ends only with its file, for which nothing is wanted then.
        let _ = self.0.send(job);
    }
}

/// The file of a session.
#[derive(Debug)]
struct SessionFile {
    output: Output,
    /// A write has failed; what comes later is not tried.
    has_failed: bool,
    taken_bytes: TakenBytes,
}

impl SessionFile {
    /// Asks for the file's room, a piece at a time, until there is a job. `None` if there will be
    /// none any more.
    fn reserve_until_job(&mut self, room: &CloneRoom, queue: &Receiver<Job>) -> Option<Job> {
        let room_bytes = room.size_bytes();
        let mut pieces = (0..room_bytes).step_by(ROOM_PIECE_BYTES as usize);
        let job = loop {
            match queue.try_recv() {
                Ok(job) => break Some(job),
                Err(TryRecvError::Disconnected) => break None,
                Err(TryRecvError::Empty) => {}
            }
            let has_more = pieces
                .next()
                .is_some_and(|begin| self.output.reserve(begin, ROOM_PIECE_BYTES.min(room_bytes - begin)));
            if !has_more {
                break queue.recv().ok();
            }
        };
        if job.is_none() {
            self.output.give_back_reserved();
        }
        job
    }

    fn work(mut self, jobs: impl Iterator<Item = Job>, results: &Results) {
        for job in jobs {
            if let Job::Close(session_id) = job {
                self.output.give_back_reserved();
                drop(self);
                return results.tell(JobResult::Closed(session_id));
            }
            let panicked = job.failed("its thread has panicked".to_owned());
            let result = catch_unwind(AssertUnwindSafe(|| self.run(job)));
            // The session ends then, and nothing more is written.
            self.has_failed |= result.is_err();
            results.tell(result.unwrap_or(panicked));
        }
    }

    fn run(&mut self, job: Job) -> JobResult {
        let text = |error: io::Error| error.to_string();
        match job {
            Job::Copy { to, from, offset_bytes, size_bytes } => {
                let copied = self.copy(&from, offset_bytes, size_bytes);
                self.has_failed |= copied.is_err();
                JobResult::Done(to, copied.map_err(text))
            }
            Job::Write(step) => JobResult::Written(step.write_to(&mut |slices| self.write(slices))),
            Job::Sync(session_id) => JobResult::Done(session_id, self.output.sync().map_err(text)),
            Job::Close(session_id) => JobResult::Closed(session_id),
        }
    }

    fn copy(&mut self, from: &Written, offset_bytes: u64, size_bytes: u64) -> io::Result<()> {
        for begin in (0..size_bytes).step_by(COPY_PIECE_BYTES as usize) {
            let piece_bytes = COPY_PIECE_BYTES.min(size_bytes - begin);
            self.output.copy_from(from, offset_bytes + begin, piece_bytes)?;
            self.taken_bytes.add(piece_bytes);
        }
        Ok(())
    }

    /// Writes whole packets, and nothing after a failure.
    fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<(), String> {
        if self.has_failed {
            return Err("an earlier write has failed".to_owned());
        }
        let (taken_bytes, written) = self.output.write(slices);
        self.taken_bytes.add(taken_bytes);
        self.has_failed = written.is_err();
        written.map_err(|error| error.to_string())
    }
}
