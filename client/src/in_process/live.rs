//! A session of this process, as the service's thread keeps it.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::mpsc::Sender;

use watershed_service::{FlushId, SessionId};
use watershed_shell::trace_file;

use super::session::{Notices, SessionEnd};
use super::shell::Request;
use crate::sync::Arc;

/// What to do when a flush is over.
pub(super) enum AfterFlush {
    Stop,
    Tell(Sender<bool>),
}

/// A session of this process.
pub(super) struct Live {
    pub(super) session_id: SessionId,
    pub(super) notices: Arc<Notices>,
    /// Empty while it is with the thread that compresses.
    pub(super) trace: Trace,
    /// It is there.
    pub(super) is_packing: bool,
    /// The owner has given the session up.
    pub(super) is_free: bool,
    /// Where the other thread says that it is done.
    pub(super) requests: Sender<Request>,
    /// The service says when to write; else everything is written at the end.
    pub(super) writes_into_file: bool,
    /// Those that the service lets wait: at most `PENDING_FLUSHES_MAX`.
    pub(super) flushes: BTreeMap<FlushId, AfterFlush>,
    /// The flush before the stop was not answered by everybody.
    pub(super) flush_failed: bool,
}

/// Where a session's trace goes, and what became of it.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) output: Option<trace_file::Output>,
    pub(super) bytes_written: u64,
    pub(super) write_error: Option<io::Error>,
}

impl Trace {
    /// Writes slices of whole packets, unless writing failed before.
    pub(super) fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<(), String> {
        let Some(output) = self.output.as_mut().filter(|_| self.write_error.is_none()) else { return Ok(()) };
        let (bytes, result) = output.write(slices);
        self.bytes_written += bytes;
        self.note(result)
    }

    pub(super) fn sync(&mut self) -> Result<(), String> {
        let result = self.output.as_mut().map_or(Ok(()), trace_file::Output::sync);
        self.note(result)
    }

    fn note(&mut self, result: io::Result<()>) -> Result<(), String> {
        result.map_err(|error| {
            let reason = error.to_string();
            self.write_error.get_or_insert(error);
            reason
        })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Does nothing when the session has ended in order: the first end counts.
        let error = Some("the tracing service has ended".to_owned());
        self.notices.end(SessionEnd {
            error,
            write_error: self.trace.write_error.take(),
            bytes_written: self.trace.bytes_written,
            left_out: None,
            flush_failed: self.flush_failed,
            stats: None,
        });
    }
}
