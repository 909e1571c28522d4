//! Starting a session, and what is noted when data sources are slow to follow.

use crate::clock::ClockReadings;
use crate::ids::{ConsumerId, SessionId};
use crate::limits;
use crate::service::Service;
use crate::session::config::FlushStrategy;
use crate::session::{InstanceState, Session, SessionState};
use crate::timer::{Deadline, Timer, TimerClock};

impl Service {
    /// A consumer starts the session that it has deferred. Ignored in any other state.
    pub fn handle_start_tracing(&mut self, consumer_id: ConsumerId, now: &ClockReadings) {
        if let Some(session_id) = self.session_of(consumer_id) {
            self.start(session_id, now);
        }
    }

    pub(super) fn start(&mut self, session_id: SessionId, now: &ClockReadings) {
        if self.session_state(session_id) != Some(SessionState::Configured) {
            return;
        }
        self.set_state(session_id, SessionState::Started, now);
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        if !session.config.builtin().disable_clock_snapshotting() {
            session.pending.initial_clocks = Some(*now);
        }
        session.pending.events.tracing_started(now);
        session.arm_at_start(now);
        let instances = session.instances.ids();
        self.periodic_snapshot(session_id, now);
        for instance_id in instances {
            self.start_instance(session_id, instance_id);
        }
        self.tell_if_all_started(session_id, now);
    }

    /// Data sources have had their time to start: those that have not are named in the trace.
    pub(crate) fn note_slow_start(&mut self, session_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        if session.all_started_told {
            return;
        }
        let slow = session.instances.iter().filter(|instance| instance.state != InstanceState::Started);
        let names =
            slow.map(|instance| (instance.producer_name.to_string(), instance.source_name.to_string()));
        let names: Vec<_> = names.take(limits::SLOW_SOURCES_MAX).collect();
        session.pending.events.slow_starting(now, names);
    }
}

impl Session {
    fn arm_at_start(&mut self, now: &ClockReadings) {
        let (message, timers) = (self.config.message(), &mut self.timers);
        if message.duration_ms() > 0 {
            let clock = Session::timer_clock(message.prefer_suspend_clock_for_duration());
            timers.arm(Timer::Duration, Deadline::after_ms(clock, message.duration_ms(), now));
        }
        if self.file.is_some() {
            let period_ms = self.config.file_write_period_ms();
            timers.arm(Timer::FileWrite, Deadline::next_multiple(TimerClock::Monotonic, period_ms, now));
        }
        if let FlushStrategy::Periodic { period_ms } = self.config.flush_strategy() {
            timers.arm(Timer::PeriodicFlush, Deadline::next_multiple(TimerClock::Monotonic, period_ms, now));
        }
        let clear_period_ms =
            message.incremental_state_config.as_ref().map_or(0, |config| config.clear_period_ms());
        if clear_period_ms > 0 {
            let deadline = Deadline::next_multiple(TimerClock::Monotonic, clear_period_ms, now);
            timers.arm(Timer::ClearIncrementalState, deadline);
        }
        if self.consumer_id.is_some() {
            timers
                .arm(Timer::SlowStart, Deadline::after_ms(TimerClock::Monotonic, limits::SLOW_START_MS, now));
        }
    }
}
