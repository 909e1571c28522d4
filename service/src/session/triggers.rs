//! Triggers: names that producers announce, on which sessions start or stop, or are to be cloned.
//!
//! ```text
//!             from the beginning           a trigger of the config
//!   Start     Configured              ---> Started, stops stop_delay_ms later
//!   Stop      Started                 ---> stops stop_delay_ms later; others are only noted
//!   Clone     Started                 ---> stop_delay_ms later its consumer is told, each time
//!
//!   No trigger within trigger_timeout_ms: the session ends, and there is nothing to read.
//! ```
//!
//! What a session recorded can be read once it was triggered, and of one that is to be cloned only
//! from its clones: reading takes data out of the buffers.

use std::collections::VecDeque;
use std::sync::Arc;

use watershed_engine::ProducerId;
use watershed_wire::protos;

use crate::clock::ClockReadings;
use crate::ids::SessionId;
use crate::limits;
use crate::output::{ConsumerEvent, ObservedEvents, Warning};
use crate::producer::PeerIdentity;
use crate::service::Service;
use crate::session::trigger_rules::TriggerMode;
use crate::session::{Session, SessionState};
use crate::timer::{Deadline, Timer, TimerClock};

/// A trigger that a session has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedTrigger {
    /// When it came: boot time.
    pub boottime_ns: u64,
    /// Its name.
    pub name: Arc<str>,
    /// Name of the producer that sent it.
    pub producer_name: Arc<str>,
    /// User id of that producer.
    pub producer_uid: i32,
    /// How long after it the session acts.
    pub stop_delay_ms: u64,
}

impl ReceivedTrigger {
    pub(crate) fn to_proto(&self) -> protos::Trigger {
        protos::Trigger {
            trigger_name: Some(self.name.to_string()),
            producer_name: Some(self.producer_name.to_string()),
            trusted_producer_uid: Some(self.producer_uid),
            stop_delay_ms: Some(self.stop_delay_ms),
        }
    }
}

/// What has come for one session.
#[derive(Debug, Default)]
pub(crate) struct SessionTriggers {
    /// The last ones, of which the first `num_emitted` are in the trace.
    pub(super) received: VecDeque<ReceivedTrigger>,
    num_emitted: usize,
    /// At least one was taken: from then on what was recorded can be read.
    was_triggered: bool,
    /// Those that the consumer is still to be told of, with the time for it.
    hits: VecDeque<(Deadline, ReceivedTrigger)>,
}

impl SessionTriggers {
    /// Those of a session whose clone this is.
    pub(super) fn of_clone(received: VecDeque<ReceivedTrigger>) -> SessionTriggers {
        SessionTriggers { received, ..SessionTriggers::default() }
    }

    /// They have gone to a clone.
    pub(super) fn forget_received(&mut self) {
        self.num_emitted = 0;
    }

    /// Returns true if an earlier one had to go that is not in the trace yet.
    fn note(&mut self, trigger: ReceivedTrigger) -> bool {
        self.was_triggered = true;
        let is_full = self.received.len() >= limits::TRIGGERS_KEPT;
        if is_full {
            self.received.pop_front();
        }
        let is_lost = is_full && self.num_emitted == 0;
        self.num_emitted = self.num_emitted.saturating_sub(usize::from(is_full));
        self.received.push_back(trigger);
        is_lost
    }

    /// Those that are not in the trace yet, which they are from now on.
    pub(crate) fn emit(&mut self) -> impl Iterator<Item = &ReceivedTrigger> {
        let from = std::mem::replace(&mut self.num_emitted, self.received.len());
        self.received.range(from..)
    }

    /// When the next consumer's notices are due.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Deadline> + '_ {
        self.hits.iter().map(|(deadline, _)| *deadline)
    }
}

impl Session {
    /// Whether there is nothing to read until a trigger comes, or at all.
    pub(crate) fn waits_for_trigger(&self) -> bool {
        match self.config.triggers.mode {
            _ if self.state == SessionState::Cloned => false,
            TriggerMode::None => false,
            TriggerMode::Start | TriggerMode::Stop => !self.triggers.was_triggered,
            TriggerMode::Clone => true,
        }
    }
}

impl Service {
    /// A producer announces triggers. Of one call
    /// [`TRIGGERS_PER_CALL_MAX`](limits::TRIGGERS_PER_CALL_MAX) names are looked at.
    ///
    /// Returns by how many sessions triggers were taken: 0 if none waits for these names from this
    /// producer, or if they came more often than a config allows.
    pub fn handle_activate_triggers(
        &mut self,
        producer_id: ProducerId,
        names: &[String],
        now: &ClockReadings,
    ) -> usize {
        let Some(producer) = self.producers.get(&producer_id) else { return 0 };
        let (producer_name, identity) = (Arc::clone(&producer.name), producer.identity.clone());
        let mut num_taken = 0;
        for name in names.iter().take(limits::TRIGGERS_PER_CALL_MAX) {
            let before = num_taken;
            let num_recent = self.trigger_history.num_recent(name, now.boottime_ns);
            for session_id in self.session_ids() {
                let taken = self.trigger(session_id, name, &producer_name, &identity, num_recent, now);
                num_taken += usize::from(taken);
            }
            if num_taken > before {
                self.trigger_history.note(name, now.boottime_ns);
            }
        }
        if names.len() > limits::TRIGGERS_PER_CALL_MAX {
            self.warn(Warning::TooManyTriggers { producer_name: producer_name.to_string() });
        }
        num_taken
    }

    /// Whether the session takes it. `num_recent` is how often it was taken within 24 hours.
    fn trigger(
        &mut self,
        session_id: SessionId,
        name: &str,
        producer_name: &Arc<str>,
        identity: &PeerIdentity,
        num_recent: u64,
        now: &ClockReadings,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(&session_id) else { return false };
        let state = session.state;
        if matches!(state, SessionState::Disabled | SessionState::Cloned) {
            return false;
        }
        let Some(rule) = session.config.triggers.get(name) else { return false };
        let is_skipped = rule.takes_producer(producer_name) && self.random.f64() < rule.skip_probability;
        let is_too_often = rule.max_per_24_h > 0 && num_recent >= u64::from(rule.max_per_24_h);
        if !rule.takes_producer(producer_name) || is_skipped || is_too_often {
            return false;
        }
        let stop_delay_ms = rule.stop_delay_ms;
        let received = ReceivedTrigger {
            boottime_ns: now.boottime_ns,
            name: Arc::from(name),
            producer_name: Arc::clone(producer_name),
            producer_uid: identity.uid,
            stop_delay_ms: u64::from(stop_delay_ms),
        };
        session.snapshot_clocks(now);
        let is_first = !session.triggers.was_triggered;
        if session.triggers.note(received.clone()) {
            self.warn(Warning::TriggersForgotten { session_id });
        }
        match (self.sessions[&session_id].config.triggers.mode, state) {
            (TriggerMode::Start, SessionState::Configured) => {
                self.start_for_ms(session_id, stop_delay_ms, now);
            }
            (TriggerMode::Stop, SessionState::Started) if is_first => {
                self.stop_after_ms(session_id, stop_delay_ms, now);
            }
            (TriggerMode::Clone, SessionState::Started) => {
                self.tell_hit_after_ms(session_id, stop_delay_ms, received, now);
            }
            _ => {}
        }
        true
    }

    /// The session is configured and set up: it waits for its trigger, started or not.
    pub(super) fn await_trigger(&mut self, session_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let (mode, timeout_ms) = (session.config.triggers.mode, session.config.triggers.timeout_ms);
        match mode {
            TriggerMode::None => {}
            TriggerMode::Start => {
                let deadline = Deadline::after_ms(TimerClock::Monotonic, timeout_ms, now);
                session.timers.arm(Timer::TriggerTimeout, deadline);
            }
            // Its time begins with its start.
            TriggerMode::Stop | TriggerMode::Clone => session.config.set_duration_ms(timeout_ms),
        }
    }

    /// No trigger has started the session in time.
    pub(crate) fn trigger_timeout(&mut self, session_id: SessionId, now: &ClockReadings) {
        if self.session_state(session_id) == Some(SessionState::Configured) {
            self.disable(session_id, true, None, now);
        }
    }

    fn start_for_ms(&mut self, session_id: SessionId, duration_ms: u32, now: &ClockReadings) {
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session.timers.stop(Timer::TriggerTimeout);
            session.config.set_duration_ms(duration_ms);
        }
        self.start(session_id, now);
    }

    /// Instead of when the time for the trigger would have been over.
    fn stop_after_ms(&mut self, session_id: SessionId, delay_ms: u32, now: &ClockReadings) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let clock = Session::timer_clock(session.config.message().prefer_suspend_clock_for_duration());
        session.timers.arm(Timer::Duration, Deadline::after_ms(clock, delay_ms, now));
    }

    fn tell_hit_after_ms(
        &mut self,
        session_id: SessionId,
        delay_ms: u32,
        trigger: ReceivedTrigger,
        now: &ClockReadings,
    ) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        if session.triggers.hits.len() >= limits::CLONE_HITS_PENDING_MAX {
            return self.warn(Warning::TriggersForgotten { session_id });
        }
        let deadline = Deadline::after_ms(TimerClock::Monotonic, delay_ms, now);
        session.triggers.hits.push_back((deadline, trigger));
    }

    /// Tells consumers of the triggers whose time has come.
    pub(crate) fn tell_due_hits(&mut self, session_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let is_due = |deadline: Deadline| deadline.overdue_ns(now).is_some();
        let (due, later) = std::mem::take(&mut session.triggers.hits)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(deadline, _)| is_due(*deadline));
        session.triggers.hits = later;
        let consumer_id = session.consumer_id.filter(|_| session.state == SessionState::Started);
        let wants_them = |consumer: &crate::consumer::Consumer| {
            consumer.observed.contains(ObservedEvents::CLONE_TRIGGER_HITS)
        };
        let Some(consumer_id) = consumer_id.filter(|id| self.consumers.get(id).is_some_and(wants_them))
        else {
            return;
        };
        for (_, trigger) in due {
            self.tell(consumer_id, ConsumerEvent::CloneTriggerHit { session_id, trigger });
        }
    }
}
