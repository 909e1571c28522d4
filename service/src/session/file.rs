//! Sessions that write into a file. The shell owns the file and does the writing, block by block,
//! so memory stays bounded whatever the buffers hold; on another thread, if it has one for that.
//!
//! ```text
//!   what is wanted                  what poll_file gives, one at a time
//!   copy (a clone of what    --->   Copy, Copy, ...: each answered by handle_file_done
//!     another file has)
//!   drain (a write is due,   --->   Write, Write, ... until a read pass empties the buffers:
//!     or the session stopped)         each is a step of begin_write, answered by handle_written
//!   sync (after a drain, if  --->   Sync: answered by handle_file_done
//!     fflush_post_write)
//!   ended (drained after the --->   Sync, Close: answered by handle_file_done. Then the consumer
//!     stop, no room, failure)         is told that the session is over
//! ```
//!
//! What is committed while a step is under way is not in it. So a drain that is asked for meanwhile
//! is another one: that of a session that stops has everything. A file is not closed while clones
//! want something of it.

use watershed_wire::protos::trace_config::FFlushMode;

use crate::clock::ClockReadings;
use crate::compress::Codec;
use crate::ids::SessionId;
use crate::output::{FileAction, FlushFlags, Warning};
use crate::read::{PassEnd, StepEnd, TraceSink, WriteTrace};
use crate::service::Service;
use crate::session::config::FlushStrategy;
use crate::session::file_write::{FileWrite, FileWritten};
use crate::session::flush::AfterFlush;
use crate::session::{Session, SessionState};
use crate::timer::{Deadline, Timer, TimerClock};

/// Bytes that are copied in one step: others' files wait for no more than that.
const COPY_STEP_BYTES: u64 = 64 << 20;

/// The state of a session's file.
#[derive(Debug)]
pub(crate) struct FileWriter {
    /// What the shell is doing: nothing else may be given to it for this file meanwhile.
    in_flight: Option<InFlight>,
    /// What another file has is to come first.
    copy: Option<CopyFrom>,
    /// Buffers are to be read until they are empty.
    drain: bool,
    /// They have been, and what the service has to say of it is to be written.
    tail: bool,
    /// What was written is to be made durable.
    sync: bool,
    /// Nothing more will be written.
    ended: bool,
    /// It ended because a packet had no room.
    full: bool,
    ended_synced: bool,
    closed: bool,
    bytes_written: u64,
    /// `None`: as large as it gets.
    max_size_bytes: Option<u64>,
}

/// What is still to be copied of another session's file: from `offset_bytes` to `end_bytes`.
#[derive(Clone, Copy, Debug)]
struct CopyFrom {
    session_id: SessionId,
    offset_bytes: u64,
    end_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
enum InFlight {
    /// So many bytes.
    Copy(u64),
    Write,
    Sync,
    Close,
}

impl FileWriter {
    pub(super) fn new(max_file_size_bytes: u64) -> FileWriter {
        FileWriter {
            in_flight: None,
            copy: None,
            drain: false,
            tail: false,
            sync: false,
            ended: false,
            full: false,
            ended_synced: false,
            closed: false,
            bytes_written: 0,
            max_size_bytes: Some(max_file_size_bytes).filter(|bytes| *bytes > 0),
        }
    }

    /// The file of a clone: what this one of `session_id` has, then what is in the clone's buffers.
    pub(super) fn for_clone(&self, session_id: SessionId) -> FileWriter {
        let copy = CopyFrom { session_id, offset_bytes: 0, end_bytes: self.bytes_written };
        let copy = Some(copy).filter(|copy| copy.end_bytes > 0);
        FileWriter { copy, ..FileWriter::of_buffers() }
    }

    /// The file of a clone of a session without one: what is in the clone's buffers.
    pub(super) fn of_buffers() -> FileWriter {
        FileWriter { drain: true, ..FileWriter::new(0) }
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    pub(super) fn is_being_written(&self) -> bool {
        matches!(self.in_flight, Some(InFlight::Write))
    }

    fn has_work(&self) -> bool {
        let wants = self.ended || self.sync || self.copy.is_some() || self.wants_write();
        self.in_flight.is_none() && !self.closed && wants
    }

    fn is_to_be_closed(&self) -> bool {
        self.ended && self.ended_synced
    }

    fn wants_write(&self) -> bool {
        !self.ended && self.copy.is_none() && (self.drain || self.tail)
    }

    /// Nothing more of it is wanted.
    fn end(&mut self) {
        self.ended = true;
        self.copy = None;
    }

    fn copied(&mut self, size_bytes: u64) {
        self.bytes_written += size_bytes;
        let Some(copy) = &mut self.copy else { return };
        copy.offset_bytes += size_bytes;
        if copy.offset_bytes >= copy.end_bytes {
            self.copy = None;
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

    pub(super) fn give_up_file(&mut self) {
        if let Some(file) = &mut self.file {
            file.end();
        }
    }
}

impl Service {
    /// The next thing to do for a session with a file. `None` if there is nothing to do, or if
    /// everything that there is waits for an answer. To be called until `None` after every
    /// [`Service::handle_timeout`], every answer and every call that ends a session.
    pub fn poll_file(&mut self) -> Option<FileAction> {
        self.session_ids().into_iter().find_map(|session_id| self.poll_file_of(session_id))
    }

    /// Whether [`Service::poll_file`] has something to do.
    pub fn has_file_work(&self) -> bool {
        self.sessions.keys().any(|session_id| self.has_file_work_of(*session_id))
    }

    fn has_file_work_of(&self, session_id: SessionId) -> bool {
        let Some(session) = self.sessions.get(&session_id) else { return false };
        let Some(file) = session.file.as_ref().filter(|file| file.has_work()) else { return false };
        if file.wants_write() && (session.waits_for_shards() || session.is_being_copied()) {
            return false;
        }
        !file.is_to_be_closed() || !(session.is_file_wanted() || self.is_copied_from(session_id))
    }

    /// Whether another file gets what this session's has.
    fn is_copied_from(&self, session_id: SessionId) -> bool {
        let copies = self.sessions.values().filter_map(|session| session.file.as_ref()?.copy);
        copies.into_iter().any(|copy| copy.session_id == session_id)
    }

    fn poll_file_of(&mut self, session_id: SessionId) -> Option<FileAction> {
        if !self.has_file_work_of(session_id) {
            return None;
        }
        let file = self.sessions.get_mut(&session_id)?.file.as_mut()?;
        let (in_flight, action) = if let Some(copy) = file.copy {
            let size_bytes = COPY_STEP_BYTES.min(copy.end_bytes - copy.offset_bytes);
            let (from, offset_bytes) = (copy.session_id, copy.offset_bytes);
            let action = FileAction::Copy { from, to: session_id, offset_bytes, size_bytes };
            (InFlight::Copy(size_bytes), action)
        } else if file.is_to_be_closed() {
            (InFlight::Close, FileAction::Close(session_id))
        } else if file.wants_write() {
            return Some(FileAction::Write(session_id));
        } else {
            (InFlight::Sync, FileAction::Sync(session_id))
        };
        file.in_flight = Some(in_flight);
        Some(action)
    }

    /// The next step of writing the session's file, as [`Service::poll_file`] said, for the thread
    /// that calls [`FileWrite::write_to`]: what has been committed by now. Answered by
    /// [`Service::handle_written`]; until then nothing else is done with the file. `None` if there
    /// is nothing to write, or if workers have something to do first: [`Service::poll_file`] says
    /// when they have done it.
    pub fn begin_write(&mut self, session_id: SessionId, now: &ClockReadings) -> Option<FileWrite> {
        let file = self.sessions.get(&session_id)?.file.as_ref()?;
        if file.in_flight.is_some() || !file.wants_write() {
            return None;
        }
        let is_tail = file.tail && !file.drain;
        let looked = self.look_for_step(session_id, is_tail)?;
        let file = self.sessions.get_mut(&session_id)?.file.as_mut()?;
        file.in_flight = Some(InFlight::Write);
        (file.tail, file.drain) = (false, false);
        let room_bytes = file.room_bytes();
        let mut own = Vec::new();
        let mut append = |slices: &[std::io::IoSlice<'_>]| {
            slices.iter().for_each(|slice| own.extend_from_slice(slice));
            Ok(())
        };
        let mut sink = TraceSink::new(&mut append, room_bytes);
        let (source, end) = self.emit_step(session_id, is_tail, &mut sink, looked, now);
        // Appending does not fail.
        let _ = sink.finish();
        let codec = self.sessions.get(&session_id).and_then(|session| Codec::of(session.config.message()));
        Some(FileWrite { session_id, own, source, end, room_bytes, codec })
    }

    /// Whether steps of the session's file are compressed, which takes longer than writing them.
    pub fn compresses_file(&self, session_id: SessionId) -> bool {
        self.sessions.get(&session_id).is_some_and(|session| Codec::of(session.config.message()).is_some())
    }

    /// A step of [`Service::begin_write`] has been done. Ignored if none is under way.
    ///
    /// If its writing failed the session ends: what was written stays, nothing more is.
    pub fn handle_written(&mut self, written: FileWritten, now: &ClockReadings) {
        let FileWritten { session_id, end, num_invalid, written } = written;
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let (is_over, config) = (!session.is_active(), session.config.message());
        let syncs_writes = config.fflush_post_write() == FFlushMode::FflushEnabled;
        let Some(file) = session.file.as_mut() else { return };
        if !matches!(file.in_flight, Some(InFlight::Write)) {
            return;
        }
        file.in_flight = None;
        file.bytes_written += *written.as_ref().unwrap_or(&0);
        match end {
            _ if written.is_err() => file.ended = true,
            StepEnd::Pass(PassEnd::Threshold) => file.drain = true,
            StepEnd::Pass(PassEnd::NoRoom) => (file.ended, file.full) = (true, true),
            StepEnd::Pass(PassEnd::Drained) => file.tail = true,
            // Asked for again since the pass began.
            StepEnd::Tail if file.drain => {}
            StepEnd::Tail if is_over => file.ended = true,
            StepEnd::Tail => {
                file.sync = syncs_writes;
                session.arm_file_write(now);
            }
        }
        self.note_invalid(session_id, num_invalid);
        self.go_on_with_clones(session_id, now);
        self.file_used(session_id, written.map(|_| ()), now);
    }

    /// Writes what the session has to `out` on the calling thread, about 32 MiB at most: for a
    /// shell that has no other one, [`Service::begin_write`] and [`Service::handle_written`] in one
    /// call, without the compression that the config may ask for
    /// ([`Service::compresses_file`]). Does nothing if there is nothing to write.
    pub fn write_file(&mut self, session_id: SessionId, out: &mut WriteTrace<'_>, now: &ClockReadings) {
        while let Some(step) = self.begin_write(session_id, now) {
            let step = FileWrite { codec: None, ..step };
            let written = step.write_to(out);
            let is_drained = written.end == StepEnd::Pass(PassEnd::Drained);
            self.handle_written(written, now);
            if !is_drained {
                return;
            }
        }
    }

    /// Whether the session's file ended because `max_file_size_bytes` left no room for what came
    /// next. That can be read once the file is closed, as from a session without a file. False of a
    /// session that is gone.
    pub fn file_is_full(&self, session_id: SessionId) -> bool {
        let session = self.sessions.get(&session_id);
        session.and_then(|session| session.file.as_ref()).is_some_and(|file| file.full)
    }

    /// The shell has done what [`Service::poll_file`] said of a copy, a sync or a close, or could
    /// not (the reason goes to the consumer). Ignored if nothing was asked for. A failure ends the
    /// session.
    pub fn handle_file_done(
        &mut self,
        session_id: SessionId,
        result: Result<(), String>,
        now: &ClockReadings,
    ) {
        let file = self.sessions.get_mut(&session_id).and_then(|session| session.file.as_mut());
        let Some(file) = file else { return };
        match file.in_flight {
            None | Some(InFlight::Write) => return,
            Some(InFlight::Copy(_)) if result.is_err() => file.end(),
            Some(InFlight::Copy(size_bytes)) => file.copied(size_bytes),
            Some(InFlight::Sync) if file.ended => file.ended_synced = true,
            Some(InFlight::Sync) if result.is_ok() => file.sync = false,
            Some(InFlight::Sync) => file.ended = true,
            Some(InFlight::Close) => file.closed = true,
        }
        file.in_flight = None;
        self.file_used(session_id, result, now);
    }

    /// Something was done with the file: tells of a failure, and goes on with the session's end.
    fn file_used(&mut self, session_id: SessionId, result: Result<(), String>, now: &ClockReadings) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let Some(file) = &session.file else { return };
        let (ended, closed) = (file.ended, file.closed);
        if let Err(reason) = result {
            let error = format!("writing the trace file failed: {reason}");
            // What ends the file after a failure mostly fails for the same reason.
            let is_told = session.error.as_ref() == Some(&error);
            session.error.get_or_insert(error);
            if !is_told {
                self.warn(Warning::FileFailed { session_id, reason });
            }
        }
        if closed {
            self.file_closed(session_id);
        } else if ended {
            self.disable(session_id, false, None, now);
        }
    }

    /// Wants everything in the buffers written.
    pub(super) fn drain_file(&mut self, session_id: SessionId) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        if let Some(file) = &mut session.file {
            file.drain = !file.ended;
            // Of before.
            session.look = None;
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
        let Some(session) = self.sessions.get(&session_id) else { return };
        match session.state {
            SessionState::Disabled => {}
            SessionState::Cloned => return self.clone_in_file(session_id),
            _ => return,
        }
        let free = session.free_when_closed;
        self.tell_end(session_id);
        if free {
            self.erase(session_id);
        }
    }
}

impl Session {
    fn arm_file_write(&mut self, now: &ClockReadings) {
        let period_ms = self.config.file_write_period_ms();
        self.timers.arm(Timer::FileWrite, Deadline::next_multiple(TimerClock::Monotonic, period_ms, now));
    }
}
