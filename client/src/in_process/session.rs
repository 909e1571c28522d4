//! A session as its owner sees it.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use thiserror::Error;
use watershed_service::{ConnectError, ConsumerId, EnableError, Unread};
use watershed_wire::protos::TraceStats;

use super::shell::Request;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering, PoisonError, lock};

/// Why a session did not start. Nothing was recorded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The service refuses the config.
    #[error(transparent)]
    Config(#[from] EnableError),
    /// The service has no room for another session's owner.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A data source of this process refuses its part of the config.
    #[error("data source {name:?}: {reason}")]
    DataSource {
        /// Name of the data source.
        name: String,
        /// What it says, for the user.
        reason: String,
    },
    /// The service's thread has ended.
    #[error("the tracing service has ended")]
    Ended,
}

/// How a session ended.
#[derive(Debug)]
pub struct SessionEnd {
    /// What the service has to say if it ended the session on account of an error.
    pub error: Option<String>,
    /// Why writing to the sink failed, if it did. What was written before is a valid trace.
    pub write_error: Option<io::Error>,
    /// Bytes of trace that went to the sink.
    pub bytes_written: u64,
    /// The sink reached the config's `max_file_size_bytes`, and this is what data sources had still
    /// written. The service's last packets, statistics among them, are missing in the trace too.
    pub left_out: Option<Unread>,
    /// A data source did not answer the flush before the end in time: its last data may be missing.
    pub flush_failed: bool,
    /// The buffers' statistics at the end, after everything was read that went to the sink.
    pub stats: Option<TraceStats>,
}

/// The session's state as far as its owner waits for it.
#[derive(Debug, Default)]
struct Progress {
    all_started: bool,
    end: Option<Arc<SessionEnd>>,
}

/// What the service's thread tells the owner, and has been asked for and not done.
#[derive(Debug, Default)]
pub(super) struct Notices {
    progress: Mutex<Progress>,
    changed: Condvar,
    /// A flush that nobody waits for is in the queue.
    flush_queued: AtomicBool,
    start_asked: AtomicBool,
    stop_asked: AtomicBool,
}

impl Notices {
    /// The service's thread has come to the flush that nobody waits for.
    pub(super) fn flush_begins(&self) {
        // AcqRel, as in `Session::flush`: who has found the mark there is before this.
        self.flush_queued.swap(false, Ordering::AcqRel);
    }

    pub(super) fn all_started(&self) {
        lock(&self.progress).all_started = true;
        self.changed.notify_all();
    }

    /// The first end counts.
    pub(super) fn end(&self, end: SessionEnd) {
        lock(&self.progress).end.get_or_insert_with(|| Arc::new(end));
        self.changed.notify_all();
    }

    fn wait_until<T>(
        &self,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&Progress) -> Option<T>,
    ) -> Option<T> {
        let mut progress = lock(&self.progress);
        loop {
            if let Some(ready) = ready(&progress) {
                return Some(ready);
            }
            progress = match deadline.map(|deadline| deadline.checked_duration_since(Instant::now())) {
                None => self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner),
                Some(Some(left)) => {
                    self.changed.wait_timeout(progress, left).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(None) => return None,
            };
        }
    }
}

#[derive(Debug)]
struct Owner {
    requests: Sender<Request>,
    consumer_id: ConsumerId,
    notices: Arc<Notices>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // An error means that the service has ended, and the session with it.
        let _ = self.requests.send(Request::Free(self.consumer_id));
    }
}

/// A running session. Clones are the same session; when the last one is dropped the session is
/// ended and its buffers are freed, with what was not written or read of them.
#[derive(Clone, Debug)]
pub struct Session {
    owner: Arc<Owner>,
}

impl Session {
    pub(super) fn new(requests: Sender<Request>, consumer_id: ConsumerId, notices: Arc<Notices>) -> Self {
        Self { owner: Arc::new(Owner { requests, consumer_id, notices }) }
    }

    fn request(&self, request: impl FnOnce(ConsumerId) -> Request) {
        // An error means that the service has ended; waiters have been told.
        let _ = self.owner.requests.send(request(self.owner.consumer_id));
    }

    /// Starts a session whose config has `deferred_start`.
    pub fn start(&self) {
        // Relaxed, as in `stop`: the queue publishes.
        if !self.owner.notices.start_asked.swap(true, Ordering::Relaxed) {
            self.request(Request::Start);
        }
    }

    /// Asks all data sources to hand over what they have, without waiting for it. A call before the
    /// service has come to an earlier one adds nothing: that one is for both.
    pub fn flush(&self) {
        if !self.owner.notices.flush_queued.swap(true, Ordering::AcqRel) {
            self.request(|consumer_id| Request::Flush { consumer_id, timeout_ms: 0, reply: None });
        }
    }

    /// Asks all data sources to hand over what they have, and waits for them. False if one of them
    /// did not answer within `timeout` (of 1 ms to 49 days; other values are taken to the nearest),
    /// or if the session is not running.
    #[must_use]
    pub fn flush_and_wait(&self, timeout: Duration) -> bool {
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1);
        let (reply, done) = mpsc::channel();
        self.request(|consumer_id| Request::Flush { consumer_id, timeout_ms, reply: Some(reply) });
        done.recv().unwrap_or(false)
    }

    /// Ends the session: data sources are flushed and stopped, then what is in the buffers goes to
    /// the sink. Does not wait for it.
    pub fn stop(&self) {
        if !self.owner.notices.stop_asked.swap(true, Ordering::Relaxed) {
            self.request(Request::Stop);
        }
    }

    /// Waits until every data source of the session has started; false if that took longer than
    /// `timeout`, or if the session ended before.
    #[must_use]
    pub fn wait_all_started(&self, timeout: Duration) -> bool {
        let ready = |progress: &Progress| {
            (progress.all_started || progress.end.is_some()).then_some(progress.all_started)
        };
        self.owner.notices.wait_until(Instant::now().checked_add(timeout), ready).unwrap_or(false)
    }

    /// Waits until the session has ended and its sink has everything.
    #[must_use]
    pub fn wait(&self) -> Arc<SessionEnd> {
        let end = self.owner.notices.wait_until(None, |progress| progress.end.clone());
        // Without a deadline the wait ends with the session only.
        end.expect("a wait without deadline ends with the session")
    }

    /// As [`Session::wait`], for `timeout` at most.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Arc<SessionEnd>> {
        self.owner.notices.wait_until(Instant::now().checked_add(timeout), |progress| progress.end.clone())
    }

    /// The statistics of the session's buffers as they are now; `None` after the session was freed.
    #[must_use]
    pub fn stats(&self) -> Option<TraceStats> {
        let (reply, stats) = mpsc::channel();
        self.request(|consumer_id| Request::Stats { consumer_id, reply });
        stats.recv().ok().flatten()
    }

    /// Takes about 1 MiB of what is in the buffers and appends it to `trace`, as it lies in a trace
    /// file. True if there is more. For sessions with [`super::Sink::Buffers`]; others have nothing
    /// to read.
    pub fn read(&self, trace: &mut Vec<u8>) -> bool {
        let (reply, block) = mpsc::channel();
        self.request(|consumer_id| Request::Read { consumer_id, reply });
        let Ok((block, more)) = block.recv() else { return false };
        trace.extend_from_slice(&block);
        more
    }
}
