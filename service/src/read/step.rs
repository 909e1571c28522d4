//! One step of a read for a consumer, which any thread may do while the service goes on.
//!
//! ```text
//!   the service's thread                            any thread
//!   begin_read: what the service itself has   --->  run: those packets, then the buffers'
//!     to say, where the buffers end                   packets below the cuts; may wait for shards
//!   handle_read: packets for the consumer     <---  how far it got
//! ```
//!
//! Steps follow each other until a pass has read everything; the step behind that is what the
//! service has to say of it. One step of a session is under way at a time, and no clone is made of
//! its buffers meanwhile. If the session is not the consumer's any more when the step ends, another
//! consumer gets what was read, before everything else.

use std::fmt;

use watershed_shards::{Statistics, framing::Stamp};

use crate::clock::ClockReadings;
use crate::ids::{ConsumerId, SessionId};
use crate::limits::READ_STEP_BYTES;
use crate::output::{ConsumerEvent, ReadProgress};
use crate::read::{PacketBatch, PassEnd, PassSource, Sink};
use crate::service::Service;
use crate::session::Session;

/// What [`Service::begin_read`] has to offer.
#[derive(Debug)]
pub enum ReadBegun {
    /// To be [run](ReadStep::run).
    Step(ReadStep),
    /// There is nothing to read: no session, or one that writes into a file.
    Nothing,
    /// Something has to be done first: by workers, by the step of another consumer, or by a clone.
    /// [`ConsumerEvent::ReadReady`] tells when it is to be tried again.
    Later,
}

/// What is to be read next for a consumer: about 256 KiB at most, whole packets.
pub struct ReadStep {
    consumer_id: ConsumerId,
    pub(super) session_id: SessionId,
    /// Packets of the service itself.
    own: PacketBatch,
    /// What comes behind them; `None` if that is all.
    source: Option<PassSource>,
    /// How it ends where there is no source.
    end: StepEnd,
}

/// What came of a [`ReadStep`], for [`Service::handle_read`].
#[derive(Debug)]
pub struct ReadDone {
    consumer_id: ConsumerId,
    session_id: SessionId,
    packets: PacketBatch,
    ran: StepRan,
}

/// How a step of a consumer's read or of a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepEnd {
    /// That of the buffers' packets.
    Pass(PassEnd),
    /// Behind a pass that has read everything, what the service has to say of it.
    Tail,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StepRan {
    pub(super) end: StepEnd,
    num_invalid: u64,
}

/// How far the reading of a session for consumers is.
#[derive(Debug, Default)]
pub(crate) struct ReadState {
    /// A step has been begun and has not ended.
    pub(crate) is_under_way: bool,
    /// A pass has read everything: the next step says so.
    is_drained: bool,
    /// There is more since the step that is under way was begun, which is to be read before that.
    has_more: bool,
}

impl ReadState {
    /// All that the session has now is to be read before a read is over.
    pub(crate) fn restart(&mut self) {
        (self.is_drained, self.has_more) = (false, true);
    }

    fn begin(&mut self) {
        *self = ReadState { is_under_way: true, is_drained: false, has_more: false };
    }

    fn end(&mut self, end: StepEnd) {
        self.is_under_way = false;
        self.is_drained = end == StepEnd::Pass(PassEnd::Drained) && !self.has_more;
    }
}

impl Session {
    /// Whether a step is under way, or a copy, which is to have what no step has.
    fn may_not_be_read(&self) -> bool {
        self.reading.is_under_way || self.is_being_copied()
    }
}

impl ReadStep {
    /// For whom.
    pub fn consumer_id(&self) -> ConsumerId {
        self.consumer_id
    }

    /// Whether running it may wait, for a thread that has a shard.
    pub fn may_wait(&self) -> bool {
        self.source.is_some()
    }

    /// Reads, into a batch whose memory is used again.
    pub fn run(self, mut batch: PacketBatch) -> ReadDone {
        let (consumer_id, session_id) = (self.consumer_id, self.session_id);
        batch.clear();
        let ran = self.run_into(&mut batch, READ_STEP_BYTES);
        ReadDone { consumer_id, session_id, packets: batch, ran }
    }

    pub(super) fn run_into(self, sink: &mut impl Sink, threshold_bytes: usize) -> StepRan {
        let mut own = self.own.packets();
        let (mut end, mut num_invalid) = (self.end, 0);
        if !own.all(|packet| sink.packet(&[packet], &Stamp::EMPTY)) {
            end = StepEnd::Pass(PassEnd::NoRoom);
        } else if let Some(source) = &self.source {
            let passed = source.read(sink, threshold_bytes);
            (end, num_invalid) = (StepEnd::Pass(passed.end), passed.num_invalid);
        }
        StepRan { end, num_invalid }
    }
}

impl ReadDone {
    /// For whom it was read.
    pub fn consumer_id(&self) -> ConsumerId {
        self.consumer_id
    }
}

impl fmt::Debug for ReadStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadStep").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

impl Service {
    /// The consumer begins to read: its steps are to give all that has been committed by now.
    pub fn handle_read_buffers(&mut self, consumer_id: ConsumerId) {
        let session = self.session_of(consumer_id).and_then(|id| self.sessions.get_mut(&id));
        session.into_iter().for_each(|session| session.reading.restart());
    }

    /// The next step of reading the consumer's session, for the thread that [runs](ReadStep::run)
    /// it: what has been committed by now. To be called after [`Service::handle_read_buffers`], and
    /// ended by [`Service::handle_read`].
    ///
    /// Reading takes packets out of the buffers. It may be done while the session records, and as
    /// often as one likes.
    pub fn begin_read(&mut self, consumer_id: ConsumerId, now: &ClockReadings) -> ReadBegun {
        let Some(session_id) = self.session_of(consumer_id) else { return ReadBegun::Nothing };
        let Some(session) = self.sessions.get(&session_id).filter(|session| !session.file_is_open()) else {
            return ReadBegun::Nothing;
        };
        if session.may_not_be_read() {
            return self.read_later(consumer_id);
        }
        let is_tail = session.reading.is_drained;
        let Some(looked) = self.look_for_step(session_id, is_tail) else {
            return self.read_later(consumer_id);
        };
        let mut own = PacketBatch::new();
        let (source, end) = self.emit_step(session_id, is_tail, &mut own, looked, now);
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session.reading.begin();
        }
        ReadBegun::Step(ReadStep { consumer_id, session_id, own, source, end })
    }

    /// A step of [`Service::begin_read`] has been run: what its consumer gets, and whether another
    /// step is to follow. Nothing, if the session is not the consumer's any more.
    pub fn handle_read(&mut self, done: ReadDone, now: &ClockReadings) -> (PacketBatch, ReadProgress) {
        let ReadDone { consumer_id, session_id, mut packets, ran } = done;
        let is_its_session = self.session_of(consumer_id) == Some(session_id);
        if !is_its_session {
            let packets = std::mem::take(&mut packets);
            if let Some(session) = self.sessions.get_mut(&session_id) {
                session.pending.handed_back = packets;
            }
        }
        let progress = self.end_read_step(session_id, ran, now);
        // What is to be said to a consumer without it is said by its next step.
        (packets, if is_its_session { progress } else { ReadProgress::More })
    }

    pub(super) fn end_read_step(
        &mut self,
        session_id: SessionId,
        ran: StepRan,
        now: &ClockReadings,
    ) -> ReadProgress {
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session.reading.end(ran.end);
        }
        self.note_invalid(session_id, ran.num_invalid);
        self.go_on_with_clones(session_id, now);
        match ran.end {
            StepEnd::Pass(PassEnd::Threshold | PassEnd::Drained) => ReadProgress::More,
            StepEnd::Pass(PassEnd::NoRoom) | StepEnd::Tail => ReadProgress::Done,
        }
    }

    /// Statistics of the buffers that the next step has to tell, if it does: the one behind a pass
    /// that has read everything is the tail. `None`: workers have to do something first.
    pub(crate) fn look_for_step(
        &mut self,
        session_id: SessionId,
        is_tail: bool,
    ) -> Option<Option<Vec<Statistics>>> {
        let needs_look = match is_tail {
            true => self.tells_statistics(session_id),
            // What waits for room is to be in what is read.
            false => self.tells_of_sequences(session_id) || self.has_waiting(),
        };
        if needs_look { self.look(session_id).map(Some) } else { Some(None) }
    }

    /// Emits what the service itself has to say in a step. What comes behind that, and how the step
    /// ends if it is nothing.
    pub(crate) fn emit_step(
        &mut self,
        session_id: SessionId,
        is_tail: bool,
        sink: &mut impl Sink,
        looked: Option<Vec<Statistics>>,
        now: &ClockReadings,
    ) -> (Option<PassSource>, StepEnd) {
        let has_room = match is_tail {
            true => self.emit_after_data(session_id, sink, looked, now),
            false => self.emit_before_data(session_id, sink, &looked.unwrap_or_default(), now),
        };
        match (has_room, is_tail) {
            (false, _) => (None, StepEnd::Pass(PassEnd::NoRoom)),
            (true, true) => (None, StepEnd::Tail),
            (true, false) => (self.pass_source(session_id), StepEnd::Pass(PassEnd::Drained)),
        }
    }

    fn read_later(&mut self, consumer_id: ConsumerId) -> ReadBegun {
        if let Some(consumer) = self.consumers.get_mut(&consumer_id) {
            consumer.waits_to_read = true;
        }
        ReadBegun::Later
    }

    /// Tells those for whom a step can be begun now.
    pub(crate) fn tell_readers(&mut self) {
        for (consumer_id, consumer) in &mut self.consumers {
            if !consumer.waits_to_read {
                continue;
            }
            let session = consumer.session_id.and_then(|session_id| self.sessions.get(&session_id));
            if !session.is_some_and(|session| session.may_not_be_read() || session.waits_for_shards()) {
                consumer.waits_to_read = false;
                self.outputs.push_back(crate::Output::Consumer(*consumer_id, ConsumerEvent::ReadReady));
            }
        }
    }
}
