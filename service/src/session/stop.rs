//! Stopping a session, and the end of it.

use crate::clock::ClockReadings;
use crate::ids::{ConsumerId, SessionId};
use crate::output::ConsumerEvent;
use crate::service::Service;
use crate::session::{InstanceState, SessionState};
use crate::timer::{Deadline, Timer, TimerClock};

impl Service {
    /// A consumer stops its session. [`ConsumerEvent::TracingDisabled`] comes when it has stopped.
    /// Ignored if there is none, or if it is over.
    pub fn handle_disable_tracing(&mut self, consumer_id: ConsumerId, now: &ClockReadings) {
        if let Some(session_id) = self.session_of(consumer_id) {
            self.disable(session_id, false, None, now);
        }
    }

    /// A consumer gives its session up, with all data that was not read. A session that still
    /// records is stopped at once; one that writes into a file gets what there is to write first,
    /// and the consumer may go on without waiting for that.
    pub fn handle_free_buffers(&mut self, consumer_id: ConsumerId, now: &ClockReadings) {
        if let Some(session_id) = self.session_of(consumer_id) {
            self.free(session_id, now);
        }
    }

    pub(super) fn disable(
        &mut self,
        session_id: SessionId,
        immediate: bool,
        error: Option<String>,
        now: &ClockReadings,
    ) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let immediate = match session.state {
            SessionState::Disabled | SessionState::Cloned => return,
            SessionState::Stopping if immediate => return self.finish_stop(session_id, now),
            SessionState::Stopping => return,
            SessionState::Configured => true,
            SessionState::Started => immediate,
        };
        session.error = session.error.take().or(error);
        for timer in [
            Timer::Snapshot,
            Timer::SlowStart,
            Timer::PeriodicFlush,
            Timer::ClearIncrementalState,
            Timer::Duration,
        ] {
            session.timers.stop(timer);
        }
        let instances = session.instances.ids();
        let stop_timeout_ms = session.config.stop_timeout_ms();
        let mut all_stopped = true;
        for instance_id in instances {
            all_stopped &= self.stop_instance(session_id, instance_id, immediate);
        }
        if all_stopped {
            return self.finish_stop(session_id, now);
        }
        self.set_state(session_id, SessionState::Stopping, now);
        if let Some(session) = self.sessions.get_mut(&session_id) {
            let deadline = Deadline::after_ms(TimerClock::Monotonic, stop_timeout_ms, now);
            session.timers.arm(Timer::StopTimeout, deadline);
        }
    }

    pub(super) fn finish_stop_if_all_stopped(&mut self, session_id: SessionId, now: &ClockReadings) {
        let stopped = |session: &super::Session| {
            session.state == SessionState::Stopping && session.instances.all_stopped()
        };
        if self.sessions.get(&session_id).is_some_and(stopped) {
            self.finish_stop(session_id, now);
        }
    }

    /// Every instance has stopped, or its time to do so is over.
    pub(crate) fn finish_stop(&mut self, session_id: SessionId, now: &ClockReadings) {
        self.commit_all_held(session_id);
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        // Final statistics of what was recorded and lost, even if an earlier read took those of the
        // interval.
        session.pending.stats |= session.state != SessionState::Configured || session.file_is_open();
        session.timers.stop_all();
        for instance_id in session.instances.ids() {
            self.set_instance_state(session_id, instance_id, InstanceState::Stopped);
        }
        self.set_state(session_id, SessionState::Disabled, now);
        self.scrape_all(session_id);
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        session.snapshot_clocks(now);
        session.pending.events.tracing_disabled(now);
        session.reading.restart();
        if session.file_is_open() {
            self.drain_file(session_id);
        } else {
            self.tell_end(session_id);
        }
    }

    /// Tells the consumer, once, that its session has ended. Of a session with a file that is when
    /// the file is closed.
    pub(super) fn tell_end(&mut self, session_id: SessionId) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        if std::mem::replace(&mut session.end_told, true) {
            return;
        }
        let error = session.error.clone();
        if let Some(consumer_id) = session.consumer_id {
            self.tell(consumer_id, ConsumerEvent::TracingDisabled { session_id, error });
        }
    }

    /// Stops the session at once and erases it: now, or when its file is closed.
    pub(super) fn free(&mut self, session_id: SessionId, now: &ClockReadings) {
        self.disable(session_id, true, None, now);
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        if let Some(consumer) = session.consumer_id.and_then(|id| self.consumers.get_mut(&id)) {
            consumer.session_id = None;
        }
        if !session.file_is_open() {
            return self.erase(session_id);
        }
        session.free_when_closed = true;
        // Nobody may take over what is about to be erased.
        session.detach_key = None;
        if session.state == SessionState::Cloned {
            // Nobody waits for what is not written yet.
            session.give_up_file();
        }
        self.fail_clones(session_id);
    }

    pub(super) fn erase(&mut self, session_id: SessionId) {
        self.fail_flushes(session_id);
        self.fail_clones(session_id);
        let Some(session) = self.sessions.remove(&session_id) else { return };
        for producer_id in &session.producers {
            let Some(producer) = self.producers.get_mut(producer_id) else { continue };
            for buffer_id in &session.buffers {
                producer.allowed_buffers.remove(buffer_id);
            }
        }
        self.remove_buffers(&session.buffers);
        self.fail_stats(session_id);
    }

    /// An exclusive session begins: every other one ends, and its consumer is told why.
    pub(super) fn abort_all_sessions(&mut self, now: &ClockReadings) {
        for session_id in self.session_ids() {
            self.disable(
                session_id,
                true,
                Some("aborted: a session with a higher exclusive_prio begins".to_owned()),
                now,
            );
            self.free(session_id, now);
        }
    }
}
