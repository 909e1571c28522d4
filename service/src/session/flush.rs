//! Flushes: producers are asked to commit what they hold, and the session waits until they have
//! said that they did.
//!
//! ```text
//!   session.flushes:  number -> who is waited for      producer.awaited:  number -> session
//!                       |                                 an acknowledgement takes all up to its own
//!                       v                                 and looks at no other
//!   nobody any more, or too late: all that are due end together, behind one scrape
//! ```
//!
//! Numbers grow over all sessions, and the acknowledgement of one is that of all earlier ones, of
//! every session: a producer commits in order. Whatever the outcome, all producers' memory is
//! scraped at the end: data of sources that are never asked (`no_flush`) comes only so.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use watershed_engine::ProducerId;
use watershed_wire::protos::trace_stats::FinalFlushOutcome;

use crate::clock::ClockReadings;
use crate::error::FlushRefused;
use crate::ids::{ConsumerId, FlushId, InstanceId, SessionId};
use crate::limits;
use crate::output::{ConsumerEvent, FlushFlags, ProducerCommand};
use crate::service::Service;
use crate::session::clone_taking::CloneGroup;
use crate::session::config::FlushStrategy;
use crate::session::{InstanceState, Session, SessionState};
use crate::timer::{Deadline, Timer, TimerClock};

#[derive(Debug)]
pub(crate) struct PendingFlush {
    /// When it ends, whoever is still waited for; at once when nobody is.
    pub(crate) deadline: Deadline,
    waits_for: BTreeSet<ProducerId>,
    flags: FlushFlags,
    then: AfterFlush,
}

/// What a flush was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFlush {
    /// Nothing but itself.
    Nothing,
    /// A consumer waits for the outcome.
    Answer(ConsumerId),
    /// The session's time is over.
    Stop,
    /// The file is to be written, even if the flush failed.
    WriteFile,
    /// Some buffers are to be cloned, even if the flush failed. Only what writes into them is
    /// flushed.
    Clone(SessionId, CloneGroup),
}

impl Service {
    /// A consumer asks for a flush. `timeout_ms` 0 means the session's own, or 5 seconds. The
    /// outcome comes as [`ConsumerEvent::FlushDone`].
    ///
    /// # Errors
    ///
    /// [`FlushRefused`]; then no event follows.
    pub fn handle_flush(
        &mut self,
        consumer_id: ConsumerId,
        timeout_ms: u32,
        flags: FlushFlags,
        now: &ClockReadings,
    ) -> Result<FlushId, FlushRefused> {
        let session_id = self.session_of(consumer_id).ok_or(FlushRefused::NoSession)?;
        self.start_flush(session_id, timeout_ms, flags, AfterFlush::Answer(consumer_id), now)
    }

    pub(super) fn start_flush(
        &mut self,
        session_id: SessionId,
        timeout_ms: u32,
        flags: FlushFlags,
        then: AfterFlush,
        now: &ClockReadings,
    ) -> Result<FlushId, FlushRefused> {
        let emulated = self.emulated_scraped_producers(session_id);
        let session = self.sessions.get_mut(&session_id).ok_or(FlushRefused::NoSession)?;
        if session.state != SessionState::Started {
            return Err(FlushRefused::NotStarted);
        }
        if session.flushes.len() >= limits::PENDING_FLUSHES_MAX {
            return Err(FlushRefused::TooManyPending);
        }
        session.pending.events.flush_started(now);
        session.pending.events.forget_slow_flush();
        session.counters.flushes_requested += 1;
        let mut asked = session.instances_to_flush(then);
        for producer_id in emulated {
            asked.entry(producer_id).or_default();
        }
        let timeout_ms = if timeout_ms > 0 { timeout_ms } else { session.config.flush_timeout_ms() };
        let deadline = if asked.is_empty() {
            Deadline::AT_ONCE
        } else {
            Deadline::after_ms(TimerClock::Monotonic, timeout_ms, now)
        };
        self.counters.last_flush_id += 1;
        let request_id = FlushId(self.counters.last_flush_id);
        let waits_for = asked.keys().copied().collect();
        session.flushes.insert(request_id, PendingFlush { deadline, waits_for, flags, then });
        for (producer_id, instance_ids) in asked {
            if let Some(producer) = self.producers.get_mut(&producer_id) {
                producer.awaited.insert(request_id, session_id);
            }
            self.command(producer_id, ProducerCommand::Flush { request_id, instance_ids, flags });
        }
        Ok(request_id)
    }

    /// The producer has committed everything that it was asked for up to this flush.
    pub(crate) fn acknowledge_flushes(&mut self, producer_id: ProducerId, up_to: FlushId) {
        let Some(producer) = self.producers.get_mut(&producer_id) else { return };
        while let Some(first) = producer.awaited.first_entry().filter(|first| *first.key() <= up_to) {
            self.counters.looked_at += 1;
            let (flush_id, session_id) = first.remove_entry();
            let session = self.sessions.get_mut(&session_id);
            let Some(flush) = session.and_then(|session| session.flushes.get_mut(&flush_id)) else {
                continue;
            };
            if flush.waits_for.remove(&producer_id) && flush.waits_for.is_empty() {
                flush.deadline = Deadline::AT_ONCE;
            }
        }
    }

    /// Nothing more can come from the producer.
    pub(crate) fn acknowledge_all_flushes(&mut self, producer_id: ProducerId) {
        self.acknowledge_flushes(producer_id, FlushId(u64::MAX));
    }

    /// Ends the flushes of the session for which everyone has answered, or whose time is over, the
    /// longest overdue first. One scrape is for all of them: what was answered was written before.
    pub(crate) fn finish_flushes(&mut self, session_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let overdue = session
            .flushes
            .iter()
            .filter_map(|(flush_id, flush)| Some((Reverse(flush.deadline.overdue_ns(now)?), *flush_id)));
        let mut due: Vec<(Reverse<u64>, FlushId)> = overdue.collect();
        due.sort_unstable();
        for (_, flush_id) in &due {
            self.give_up_waiting(session_id, *flush_id);
        }
        self.scrape_all(session_id);
        for (_, flush_id) in due {
            self.finish_flush(session_id, flush_id, now);
        }
    }

    /// Whoever has not answered by now need not do so any more. What it has sent is committed.
    fn give_up_waiting(&mut self, session_id: SessionId, flush_id: FlushId) {
        self.counters.looked_at += 1;
        let flush = self.sessions.get(&session_id).and_then(|session| session.flushes.get(&flush_id));
        let late: Vec<ProducerId> = flush.into_iter().flat_map(|flush| &flush.waits_for).copied().collect();
        for producer_id in late {
            if let Some(producer) = self.producers.get_mut(&producer_id) {
                producer.awaited.remove(&flush_id);
                self.commit_held_for(session_id, producer_id);
            }
        }
    }

    fn finish_flush(&mut self, session_id: SessionId, flush_id: FlushId, now: &ClockReadings) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        // An earlier one may have ended the session.
        let Some(flush) = session.flushes.remove(&flush_id) else { return };
        let success = flush.waits_for.is_empty();
        if !success && flush.flags.names_late_sources() {
            let late = session.instances.iter().filter(|instance| {
                instance.asked_to_flush() && flush.waits_for.contains(&instance.producer_id)
            });
            let names =
                late.map(|instance| (instance.producer_name.to_string(), instance.source_name.to_string()));
            let names = names.take(limits::SLOW_SOURCES_MAX).collect();
            session.pending.events.slow_flush(now, names);
        }
        if success {
            session.counters.flushes_succeeded += 1;
        } else {
            session.counters.flushes_failed += 1;
        }
        session.snapshot_clocks(now);
        session.pending.events.all_data_sources_flushed(now);
        match flush.then {
            AfterFlush::Nothing => {}
            AfterFlush::Answer(consumer_id) => {
                self.tell(consumer_id, ConsumerEvent::FlushDone { flush_id, success });
            }
            AfterFlush::Stop => self.final_flush_over(session_id, success, now),
            AfterFlush::WriteFile => self.drain_file(session_id),
            AfterFlush::Clone(clone_id, group) => {
                self.clone_flushed(session_id, clone_id, group, success, now);
            }
        }
    }

    /// The session is about to be erased: whoever waits for a flush of it is told that it failed.
    pub(super) fn fail_flushes(&mut self, session_id: SessionId) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let flush_ids: Vec<FlushId> = session.flushes.keys().copied().collect();
        flush_ids.into_iter().for_each(|flush_id| self.give_up_waiting(session_id, flush_id));
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        for (flush_id, flush) in std::mem::take(&mut session.flushes) {
            if let AfterFlush::Answer(consumer_id) = flush.then {
                self.tell(consumer_id, ConsumerEvent::FlushDone { flush_id, success: false });
            }
        }
    }

    pub(crate) fn periodic_flush(&mut self, session_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let FlushStrategy::Periodic { period_ms } = session.config.flush_strategy() else { return };
        if session.state != SessionState::Started {
            return;
        }
        let deadline = Deadline::next_multiple(TimerClock::Monotonic, period_ms, now);
        session.timers.arm(Timer::PeriodicFlush, deadline);
        // Refused only while a thousand of them wait: one more would tell nothing new.
        let _ = self.start_flush(session_id, 0, FlushFlags::PERIODIC, AfterFlush::Nothing, now);
    }

    /// `duration_ms` is over: everything is flushed, then the session stops.
    pub(crate) fn duration_over(&mut self, session_id: SessionId, now: &ClockReadings) {
        if self.start_flush(session_id, 0, FlushFlags::STOP, AfterFlush::Stop, now).is_err() {
            self.final_flush_over(session_id, false, now);
        }
    }

    fn final_flush_over(&mut self, session_id: SessionId, success: bool, now: &ClockReadings) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        session.counters.final_flush_outcome = Some(if success {
            FinalFlushOutcome::FinalFlushSucceeded
        } else {
            FinalFlushOutcome::FinalFlushFailed
        });
        if session.consumer_id.is_some() {
            self.disable(session_id, false, None, now);
        } else {
            self.free(session_id, now);
        }
    }
}

impl Session {
    fn instances_to_flush(&self, then: AfterFlush) -> BTreeMap<ProducerId, Vec<InstanceId>> {
        let is_meant = |instance: &super::Instance| match then {
            AfterFlush::Clone(_, group) => self.clone_group(instance.buffer_index) == group,
            _ => true,
        };
        let mut by_producer: BTreeMap<ProducerId, Vec<InstanceId>> = BTreeMap::new();
        for instance in
            self.instances.iter().filter(|instance| instance.asked_to_flush() && is_meant(instance))
        {
            by_producer.entry(instance.producer_id).or_default().push(instance.id);
        }
        by_producer
    }
}

impl super::Instance {
    fn asked_to_flush(&self) -> bool {
        !self.no_flush && self.state != InstanceState::Stopped
    }
}
