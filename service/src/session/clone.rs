//! Clones: a session that only has what another one has recorded so far.
//!
//! ```text
//!   handle_clone_session     the session, as far as the consumer may
//!     | buffers with clear_before_clone are emptied
//!     | memory for the copies is made ready, if another thread does that (`clone_work`)
//!     | flush of the data sources that write into buffers with transfer_on_clone
//!     |   over, in time or not ---> those buffers go to the clone, empty ones take their place
//!     | flush of the others
//!     |   over, in time or not ---> their buffers are copied (`clone_taking`)
//!     v
//!   both over: a session in the state Cloned, of the consumer that asked ---> ConsumerEvent::Cloned
//! ```
//!
//! What was read from the original before is not in the clone. The original goes on.
//!
//! Where the original writes into a file, so does the clone, into one of the consumer's. What the
//! original's file has by the time at which the buffers are taken is copied there, then follows
//! what was in the buffers. They are all taken at one time, at which no write is under way: what is
//! in the file is in no buffer, and the other way round. The event comes when that file is closed.
//! The clone of another session goes into a file if the consumer wants that: who writes it is the
//! shell, while the loop goes on, and nothing of it takes the way through a socket.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::buffers::Buffer;
use crate::clock::ClockReadings;
use crate::error::CloneRefused;
use crate::filter::Filtering;
use crate::ids::{ConsumerId, SessionId};
use crate::limits;
use crate::output::{ConsumerEvent, FlushFlags};
use crate::read::ReadState;
use crate::service::Service;
use crate::session::clone_taking::{Behind, CloneGroup};
use crate::session::clone_work::{CloneTask, TaskKind};
use crate::session::flush::AfterFlush;
use crate::session::triggers::SessionTriggers;
use crate::session::{
    FileWriter, Instances, PendingPackets, ReceivedTrigger, Session, SessionCounters, SessionState,
};
use crate::timer::TimerTable;
use watershed_shards::CloneMemory;
use watershed_wire::protos::trace_stats::FinalFlushOutcome;

const ROOT_UID: i32 = 0;

/// Which session a consumer wants a clone of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloneSource {
    /// The one with this number.
    Session(SessionId),
    /// The one with this `unique_session_name`.
    Named(String),
    /// Of those that record the one with the highest `bugreport_score`, which must be above 0.
    ForBugreport,
}

/// What a consumer asks for when it wants a clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneRequest {
    /// Of which session.
    pub source: CloneSource,
    /// Whether it is for a bug report, as data sources are told with the flush.
    pub for_bugreport: bool,
    /// Whether the clone is read without the filter of the session. So is that of
    /// [`CloneSource::ForBugreport`].
    pub skip_filter: bool,
    /// The trigger that was hit, which the trace of the clone names.
    pub trigger: Option<ReceivedTrigger>,
    /// Whether the clone goes into the consumer's file, if there is one, also where the session
    /// writes into none.
    pub into_file: bool,
}

/// A clone that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClonedSession {
    /// The `trace_uuid` of its trace: most and least significant 64 bits.
    pub uuid: (i64, i64),
    /// Whether it is in the consumer's file, and not to be read.
    pub is_in_file: bool,
}

/// A clone for which flushes are waited.
#[derive(Debug)]
pub(crate) struct PendingClone {
    consumer_id: ConsumerId,
    skip_filter: bool,
    trigger: Option<ReceivedTrigger>,
    started_boottime_ns: u64,
    /// By index, once they are there, with the time at which they were taken.
    pub(super) taken: Vec<Option<(Buffer, u64)>>,
    /// When the others were copied.
    pub(super) copied_at_ns: u64,
    /// What another thread is to do for it, or does.
    pub(super) task: CloneTask,
    /// What was made ready, by index.
    pub(super) memory: Vec<(usize, CloneMemory)>,
    /// Of the flushes.
    flags: FlushFlags,
    /// It goes into the consumer's file.
    pub(super) in_file: bool,
    /// The original's file is to be copied.
    pub(super) copies_file: bool,
    /// Flushes that are not over.
    pub(super) flushes_left: usize,
    /// Those whose flush is over and whose buffers have not been taken.
    pub(super) flushed: Vec<CloneGroup>,
    /// Of their buffers: what had to find room first when the flush was over.
    pub(super) behind: Vec<Behind>,
    pub(super) all_flushed: bool,
    pub(super) error: Option<String>,
}

impl Service {
    /// A consumer without a session wants a clone of one, which becomes its session: it can be
    /// read, and nothing else. A consumer may clone sessions of its own user, root all. Returns the
    /// number that the clone will have. What becomes of it is told by [`ConsumerEvent::Cloned`].
    ///
    /// `has_file`: the consumer has handed over a file. It is needed if the session writes into
    /// one; then, and if the request wants that, [`Service::poll_file`] says what is to be done
    /// with it, and nothing is left to read.
    ///
    /// # Errors
    ///
    /// [`CloneRefused`], whose text is for the consumer; then no event follows.
    pub fn handle_clone_session(
        &mut self,
        consumer_id: ConsumerId,
        request: CloneRequest,
        has_file: bool,
        now: &ClockReadings,
    ) -> Result<SessionId, CloneRefused> {
        let source_id = self.find_source(consumer_id, &request.source)?;
        self.check_clone(consumer_id, source_id, has_file)?;
        self.counters.last_session_id += 1;
        let clone_id = SessionId(self.counters.last_session_id);
        self.clear_before_clone(source_id, now)?;
        let session = self.sessions.get_mut(&source_id).ok_or(CloneRefused::NotFound)?;
        let groups = session.clone_groups();
        let copies_file = session.file_is_open();
        let for_bugreport = request.for_bugreport || request.source == CloneSource::ForBugreport;
        let wants_memory = self.options.never_waits && groups.contains(&CloneGroup::Copied);
        let clone = PendingClone {
            consumer_id,
            skip_filter: request.skip_filter || request.source == CloneSource::ForBugreport,
            trigger: request.trigger,
            started_boottime_ns: now.boottime_ns,
            taken: session.buffers.iter().map(|_| None).collect(),
            copied_at_ns: 0,
            task: if wants_memory { CloneTask::Wanted(TaskKind::Memory) } else { CloneTask::Nothing },
            memory: Vec::new(),
            flags: if for_bugreport { FlushFlags::CLONE_FOR_BUGREPORT } else { FlushFlags::CLONE },
            in_file: copies_file || (request.into_file && has_file),
            copies_file,
            flushes_left: groups.len(),
            flushed: Vec::new(),
            behind: Vec::new(),
            all_flushed: true,
            error: None,
        };
        session.clones.insert(clone_id, clone);
        if !wants_memory {
            self.flush_for_clone(source_id, clone_id, now);
        }
        Ok(clone_id)
    }

    /// Asks data sources for what they hold. Then their buffers are taken.
    pub(super) fn flush_for_clone(&mut self, source_id: SessionId, clone_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.sessions.get(&source_id) else { return };
        let Some(flags) = session.clones.get(&clone_id).map(|clone| clone.flags) else { return };
        let groups = session.clone_groups();
        if groups.is_empty() {
            self.go_on_with_clone(source_id, clone_id, now);
        }
        for group in groups {
            let then = AfterFlush::Clone(clone_id, group);
            if self.start_flush(source_id, 0, flags, then, now).is_err() {
                self.clone_flushed(source_id, clone_id, group, false, now);
            }
        }
    }

    fn find_source(&self, consumer_id: ConsumerId, source: &CloneSource) -> Result<SessionId, CloneRefused> {
        let uid = self.consumers.get(&consumer_id).ok_or(CloneRefused::NotFound)?.identity.uid;
        let is_original = |session: &Session| session.state != SessionState::Cloned;
        let found = match source {
            CloneSource::Session(id) => self.sessions.get_key_value(id),
            CloneSource::Named(name) => self.sessions.iter().find(|(_, session)| {
                is_original(session) && session.config.message().unique_session_name() == name
            }),
            CloneSource::ForBugreport => self
                .sessions
                .iter()
                .filter(|(_, session)| {
                    session.state == SessionState::Started && session.bugreport_score() > 0
                })
                .max_by_key(|(_, session)| session.bugreport_score()),
        };
        let (session_id, session) = found.ok_or(match source {
            CloneSource::ForBugreport => CloneRefused::NoneForBugreport,
            _ => CloneRefused::NotFound,
        })?;
        match uid == ROOT_UID || uid == session.consumer_uid {
            true => Ok(*session_id),
            false => Err(CloneRefused::NotAllowed),
        }
    }

    fn pending_clones(&self) -> impl Iterator<Item = &PendingClone> {
        self.sessions.values().flat_map(|session| session.clones.values())
    }

    /// Whether there is no room for another session: the consumer has one, or a clone is being made
    /// for it. Buffers that were taken for a clone would be lost if there were no room at its end.
    pub(super) fn has_or_awaits_session(&self, consumer_id: ConsumerId) -> bool {
        self.session_of(consumer_id).is_some()
            || self.pending_clones().any(|clone| clone.consumer_id == consumer_id)
    }

    fn check_clone(
        &self,
        consumer_id: ConsumerId,
        source_id: SessionId,
        has_file: bool,
    ) -> Result<(), CloneRefused> {
        let source = self.sessions.get(&source_id).ok_or(CloneRefused::NotFound)?;
        if source.file_is_open() && !has_file {
            return Err(CloneRefused::NoFile);
        }
        if self.has_or_awaits_session(consumer_id) {
            return Err(CloneRefused::AlreadyHasSession);
        }
        self.check_number_of_clones(consumer_id)
    }

    fn check_number_of_clones(&self, consumer_id: ConsumerId) -> Result<(), CloneRefused> {
        let uid_of = |consumer_id| self.consumers.get(&consumer_id).map_or(0, |found| found.identity.uid);
        let made = self.sessions.values().filter(|session| session.state == SessionState::Cloned);
        let pending = self.pending_clones().map(|clone| uid_of(clone.consumer_id));
        let uids: Vec<i32> = made.map(|session| session.consumer_uid).chain(pending).collect();
        let uid = uid_of(consumer_id);
        if uids.iter().filter(|other| **other == uid).count() >= limits::CLONES_PER_UID_MAX {
            return Err(CloneRefused::TooManyClonesOfUid { uid });
        }
        match uids.len() >= limits::CLONES_MAX {
            true => Err(CloneRefused::TooManyClones),
            false => Ok(()),
        }
    }

    /// Everything is there: the clone becomes a session, or the consumer is told why not.
    pub(super) fn finish_clone(&mut self, source_id: SessionId, clone_id: SessionId, now: &ClockReadings) {
        let Some(source) = self.sessions.get_mut(&source_id) else { return };
        let Some(clone) = source.clones.remove(&clone_id) else { return };
        let (consumer_id, in_file) = (clone.consumer_id, clone.in_file);
        let result = match self.why_no_clone(&clone) {
            Some(reason) => {
                self.discard(clone);
                Err(reason)
            }
            None => self.add_clone(source_id, clone_id, clone, now),
        };
        // A clone in a file is told of when the file is closed.
        if result.is_err() || !in_file {
            self.tell(consumer_id, ConsumerEvent::Cloned { session_id: clone_id, result });
        }
    }

    fn why_no_clone(&self, clone: &PendingClone) -> Option<String> {
        let has_session = self.session_of(clone.consumer_id).is_some();
        let refused = has_session.then(|| CloneRefused::AlreadyHasSession.to_string());
        clone.error.clone().or(refused)
    }

    /// The file of a clone is closed.
    pub(super) fn clone_in_file(&mut self, session_id: SessionId) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let Some(consumer_id) = session.consumer_id else { return self.erase(session_id) };
        let (error, given_up) = (session.error.clone(), session.free_when_closed);
        let result = match error {
            Some(reason) => Err(reason),
            None if given_up => Err("the clone was given up".to_owned()),
            None => Ok(ClonedSession { uuid: session.uuid, is_in_file: true }),
        };
        if result.is_err() {
            if let Some(consumer) = self.consumers.get_mut(&consumer_id)
                && consumer.session_id == Some(session_id)
            {
                consumer.session_id = None;
            }
            self.erase(session_id);
        }
        self.tell(consumer_id, ConsumerEvent::Cloned { session_id, result });
    }

    fn add_clone(
        &mut self,
        source_id: SessionId,
        session_id: SessionId,
        clone: PendingClone,
        now: &ClockReadings,
    ) -> Result<ClonedSession, String> {
        let consumer_id = clone.consumer_id;
        let consumer_uid = self.consumers.get(&consumer_id).ok_or("the consumer has gone")?.identity.uid;
        let mut buffers = Vec::with_capacity(clone.taken.len());
        let mut cloned_at_ns = Vec::with_capacity(clone.taken.len());
        for (mut buffer, at_ns) in clone.taken.into_iter().flatten() {
            buffer.session_id = session_id;
            cloned_at_ns.push(at_ns);
            match self.buffers.insert(buffer) {
                Some(buffer_id) => buffers.push(buffer_id),
                None => {
                    self.remove_buffers(&buffers);
                    return Err(crate::error::EnableError::NoBufferIds.to_string());
                }
            }
        }
        let msb = self.random.i64(..);
        let source = self.sessions.get_mut(&source_id).ok_or("the session has ended")?;
        let uuid = (msb, source.uuid.1);
        let mut pending = source.pending.for_clone(clone.trigger);
        pending.events.cloned(clone.started_boottime_ns, &cloned_at_ns);
        let flushed = clone.all_flushed;
        let final_flush_outcome = Some(if flushed {
            FinalFlushOutcome::FinalFlushSucceeded
        } else {
            FinalFlushOutcome::FinalFlushFailed
        });
        let mut session = Session {
            consumer_id: Some(consumer_id),
            detach_key: None,
            consumer_uid,
            config: source.config.clone(),
            uuid,
            state: SessionState::Disabled,
            instances: Instances::default(),
            buffers,
            producers: BTreeSet::new(),
            timers: TimerTable::default(),
            flushes: Default::default(),
            clones: Default::default(),
            file: clone.in_file.then(|| {
                let original = source.file.as_ref().filter(|_| clone.copies_file);
                original.map_or_else(FileWriter::of_buffers, |file| file.for_clone(source_id))
            }),
            look: None,
            reading: ReadState::default(),
            pending,
            sequences: source.sequences.copy(),
            filtering: Arc::new(match clone.skip_filter {
                true => Filtering::new(None, 0, None),
                false => source.filtering.afresh(),
            }),
            triggers: SessionTriggers::of_clone(std::mem::take(&mut source.triggers.received)),
            counters: SessionCounters { final_flush_outcome, ..source.counters.clone() },
            all_started_told: true,
            error: None,
            end_told: true,
            free_when_closed: false,
        };
        source.triggers.forget_received();
        session.snapshot_clocks(now);
        session.pending.events.tracing_disabled(now);
        self.sessions.insert(session_id, session);
        if let Some(consumer) = self.consumers.get_mut(&consumer_id) {
            consumer.session_id = Some(session_id);
        }
        self.set_state(session_id, SessionState::Cloned, now);
        Ok(ClonedSession { uuid, is_in_file: false })
    }

    /// The session is about to be erased: whoever waits for a clone of it is told that there is
    /// none.
    pub(super) fn fail_clones(&mut self, session_id: SessionId) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        for (clone_id, clone) in std::mem::take(&mut session.clones) {
            let result = Err("the original session has ended".to_owned());
            self.tell(clone.consumer_id, ConsumerEvent::Cloned { session_id: clone_id, result });
            self.discard(clone);
        }
    }

    /// The consumer is gone: nobody wants what is being made for it.
    pub(crate) fn drop_clones_of(&mut self, consumer_id: ConsumerId) {
        let is_its = |clone: &PendingClone| clone.consumer_id == consumer_id;
        let sessions = self.sessions.values_mut();
        let unwanted: Vec<PendingClone> = sessions
            .flat_map(|session| session.clones.extract_if(.., |_, clone| is_its(clone)))
            .map(|(_, clone)| clone)
            .collect();
        unwanted.into_iter().for_each(|clone| self.discard(clone));
    }
}

impl Session {
    /// Whether clones that are being made will need what is in its file.
    pub(super) fn is_file_wanted(&self) -> bool {
        self.clones.values().any(|clone| clone.copies_file)
    }

    fn bugreport_score(&self) -> i32 {
        self.config.message().bugreport_score()
    }
}

impl PendingPackets {
    /// What the trace of a clone has to tell that the original's did not tell yet, and what every
    /// trace begins with.
    fn for_clone(&self, clone_trigger: Option<ReceivedTrigger>) -> PendingPackets {
        PendingPackets {
            initial_clocks: self.initial_clocks,
            clocks: self.clocks.clone(),
            sync_marker: self.sync_marker,
            stats: true,
            once_done: false,
            events: self.events.clone(),
            concurrent: self.concurrent.clone(),
            clone_trigger,
            handed_back: self.handed_back.clone(),
        }
    }
}
