//! Sessions that write into a file. The shell owns the file and does the writing, block by block, so memory
//! stays bounded whatever the buffers hold.
//!
//! ```text
//!       what is wanted                     what poll_file gives, one at a time,
//!                                          each to be answered by handle_file_done
//!       drain (a write is due,   ------->  Write, Write, ... until a read pass empties the buffers
//!         or the session stopped)
//!       sync (after a drain, if  ------->  Sync
//!         fflush_post_write)
//!       ended (drained after the ------->  Sync, Close ---> the consumer is told that the session is over
//!         stop, no room, failure)
//! ```

use watershed_wire::protos::trace_config::FFlushMode;

use crate::clock::ClockReadings;
use crate::ids::SessionId;
use crate::limits::READ_FRAMED_BYTES;
use crate::output::{FileAction, FlushFlags, Warning};
use crate::read::{FramedSink, PassEnd};
use crate::service::Service;
use crate::session::config::FlushStrategy;
use crate::session::flush::AfterFlush;
use crate::session::{Session, SessionState};
use crate::timer::{Deadline, Timer, TimerClock};

/// How far a session's file is.
#[derive(Debug)]
pub(crate) struct FileWriter {
    /// What the shell is doing: nothing else may be given to it for this file meanwhile.
    in_flight: Option<InFlight>,
    /// Buffers are to be read until they are empty.
    drain: bool,
    /// What was written is to be made durable.
    sync: bool,
    /// Nothing more will be written.
    ended: bool,
    ended_synced: bool,
    closed: bool,
    bytes_written: u64,
    /// `None`: as large as it gets.
    max_size_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum InFlight {
    Write { size_bytes: u64, end: PassEnd, session_was_over: bool },
    Sync,
    Close,
}

impl FileWriter {
    pub(super) fn new(max_file_size_bytes: u64) -> FileWriter {
        FileWriter {
            in_flight: None,
            drain: false,
            sync: false,
            ended: false,
            ended_synced: false,
            closed: false,
            bytes_written: 0,
            max_size_bytes: Some(max_file_size_bytes).filter(|bytes| *bytes > 0),
        }
    }

    /// What the file may still grow by, exclusive.
    fn room_bytes(&self) -> Option<u64> {
        self.max_size_bytes.map(|max| max.saturating_sub(self.bytes_written))
    }
}

impl Session {
    pub(crate) fn file_is_open(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.closed)
    }

    fn is_over(&self) -> bool {
        self.state == SessionState::Disabled
    }
}

impl Service {
    /// The next thing to do for a session with a file; `block`, which is cleared first, holds the bytes of a
    /// [`FileAction::Write`]. `None` if there is nothing to do, or if everything that there is waits for
    /// [`Service::handle_file_done`]. To be called until `None` after every [`Service::handle_timeout`] and
    /// every call that ends a session.
    ///
    /// A block has whole packets, about 1 MiB of them (a larger packet makes a larger block), each with what
    /// makes the file a `Trace` message. A shell whose write fails half-way should cut the file to what it
    /// was before the block, so that it ends with a whole packet.
    pub fn poll_file(&mut self, block: &mut Vec<u8>, now: &ClockReadings) -> Option<FileAction> {
        block.clear();
        self.session_ids().into_iter().find_map(|session_id| self.poll_file_of(session_id, block, now))
    }

    fn poll_file_of(
        &mut self,
        session_id: SessionId,
        block: &mut Vec<u8>,
        now: &ClockReadings,
    ) -> Option<FileAction> {
        let session = self.sessions.get_mut(&session_id)?;
        let session_was_over = session.is_over();
        let file = session.file.as_mut().filter(|file| file.in_flight.is_none() && !file.closed)?;
        let (in_flight, action) = if file.ended && file.ended_synced {
            (InFlight::Close, FileAction::Close(session_id))
        } else if file.ended || (file.sync && !file.drain) {
            (InFlight::Sync, FileAction::Sync(session_id))
        } else if file.drain {
            let mut sink = FramedSink::new(block, file.room_bytes());
            let end = self.read_pass(session_id, &mut sink, READ_FRAMED_BYTES, now);
            let size_bytes = block.len() as u64;
            // An empty block is handed over as well: one way for all is worth a write of nothing.
            (InFlight::Write { size_bytes, end, session_was_over }, FileAction::Write(session_id))
        } else {
            return None;
        };
        self.sessions.get_mut(&session_id)?.file.as_mut()?.in_flight = Some(in_flight);
        Some(action)
    }

    /// The shell has done what [`Service::poll_file`] said, or could not (the reason goes to the consumer).
    /// Ignored if nothing was asked for.
    ///
    /// A failure ends the session: what was written stays, nothing more is.
    pub fn handle_file_done(
        &mut self,
        session_id: SessionId,
        result: Result<(), String>,
        now: &ClockReadings,
    ) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let syncs_writes = session.config.message().fflush_post_write() == FFlushMode::FflushEnabled;
        let is_over = session.is_over();
        let Some(file) = session.file.as_mut() else { return };
        let Some(in_flight) = file.in_flight.take() else { return };
        let mut wait_for_next = false;
        match in_flight {
            InFlight::Write { size_bytes, .. } if result.is_ok() => {
                file.bytes_written += size_bytes;
                match in_flight.drained() {
                    Drained::No => {}
                    Drained::NoRoom => file.ended = true,
                    Drained::AfterTheEnd => file.ended = true,
                    // The session stopped while this pass was under way: there may be more.
                    Drained::BeforeTheEnd if is_over => {}
                    Drained::BeforeTheEnd => {
                        file.drain = false;
                        file.sync = syncs_writes;
                        wait_for_next = true;
                    }
                }
            }
            InFlight::Sync if file.ended => file.ended_synced = true,
            InFlight::Sync if result.is_ok() => file.sync = false,
            InFlight::Write { .. } | InFlight::Sync => file.ended = true,
            InFlight::Close => file.closed = true,
        }
        let (ended, closed) = (file.ended, file.closed);
        if wait_for_next {
            session.arm_file_write(now);
        }
        if let Err(reason) = result {
            session.error.get_or_insert_with(|| format!("writing the trace file failed: {reason}"));
            self.warn(Warning::FileFailed { session_id, reason });
        }
        if closed {
            self.file_closed(session_id);
        } else if ended {
            self.disable(session_id, false, None, now);
        }
    }

    /// Wants everything in the buffers written.
    pub(super) fn drain_file(&mut self, session_id: SessionId) {
        if let Some(file) = self.sessions.get_mut(&session_id).and_then(|session| session.file.as_mut()) {
            file.drain = !file.ended;
        }
    }

    /// The period between writes is over.
    pub(crate) fn file_write_due(&mut self, session_id: SessionId, now: &ClockReadings) {
        let strategy = self.sessions.get(&session_id).map(|session| session.config.flush_strategy());
        let flushing = strategy == Some(FlushStrategy::BeforeWrite)
            && self.start_flush(session_id, 0, FlushFlags::PERIODIC, AfterFlush::WriteFile, now).is_ok();
        if !flushing {
            self.drain_file(session_id);
        }
    }

    fn file_closed(&mut self, session_id: SessionId) {
        let Some(session) = self.sessions.get(&session_id).filter(|session| session.is_over()) else {
            return;
        };
        let free = session.free_when_closed;
        self.tell_end(session_id);
        if free {
            self.erase(session_id);
        }
    }
}

/// How a pass that was written ended.
enum Drained {
    No,
    NoRoom,
    BeforeTheEnd,
    AfterTheEnd,
}

impl InFlight {
    fn drained(self) -> Drained {
        match self {
            InFlight::Write { end: PassEnd::NoRoom, .. } => Drained::NoRoom,
            InFlight::Write { end: PassEnd::Drained, session_was_over: true, .. } => Drained::AfterTheEnd,
            InFlight::Write { end: PassEnd::Drained, session_was_over: false, .. } => Drained::BeforeTheEnd,
            _ => Drained::No,
        }
    }
}

impl Session {
    fn arm_file_write(&mut self, now: &ClockReadings) {
        let period_ms = self.config.file_write_period_ms();
        self.timers.arm(Timer::FileWrite, Deadline::next_multiple(TimerClock::Monotonic, period_ms, now));
    }
}
