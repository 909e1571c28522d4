//! What a started session does at intervals. Intervals begin at multiples of themselves on the
//! clock, so sessions with one interval wake together.

use std::collections::BTreeMap;

use watershed_engine::ProducerId;

use crate::clock::ClockReadings;
use crate::ids::{InstanceId, SessionId};
use crate::output::ProducerCommand;
use crate::service::Service;
use crate::session::{Session, SessionState};
use crate::timer::{Deadline, Timer, TimerClock};

impl Service {
    /// Asks for a sync marker and statistics in the next read, and keeps a clock snapshot for it.
    pub(crate) fn periodic_snapshot(&mut self, session_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.started(session_id) else { return };
        session.pending.sync_marker = true;
        session.pending.stats = true;
        session.snapshot_clocks(now);
        let clock = Session::timer_clock(session.config.builtin().prefer_suspend_clock_for_snapshot());
        let interval_ms = session.config.snapshot_interval_ms();
        session.timers.arm(Timer::Snapshot, Deadline::next_multiple(clock, interval_ms, now));
    }

    /// Tells every producer that can to start incremental state afresh.
    pub(crate) fn clear_incremental_state(&mut self, session_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.started(session_id) else { return };
        let config = session.config.message().incremental_state_config.as_ref();
        let period_ms = config.map_or(0, |config| config.clear_period_ms());
        if period_ms == 0 {
            return;
        }
        let deadline = Deadline::next_multiple(TimerClock::Monotonic, period_ms, now);
        session.timers.arm(Timer::ClearIncrementalState, deadline);
        let mut by_producer: BTreeMap<ProducerId, Vec<InstanceId>> = BTreeMap::new();
        for instance in session.instances.iter().filter(|instance| instance.handles_incremental_state_clear) {
            by_producer.entry(instance.producer_id).or_default().push(instance.id);
        }
        for (producer_id, instance_ids) in by_producer {
            self.command(producer_id, ProducerCommand::ClearIncrementalState { instance_ids });
        }
    }

    fn started(&mut self, session_id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&session_id).filter(|session| session.state == SessionState::Started)
    }
}
