//! Tracing sessions.
//!
//! ```text
//!                 handle_enable_tracing                 all stopped, or stop timeout
//!        (nothing) ------> Configured ----> Started ---------------------+
//!                              |    start      | disable                 |
//!                              |               v                         v
//!                              |            Stopping -----------------> Disabled ---> (nothing)
//!                              |               some instance still       ^    free
//!                              |               has to say that it        |
//!                              +-- disable ----has stopped --------------+
//!
//!   instance of a data source:
//!      Configured ---> Starting ---> Started ---> Stopping ---> Stopped
//!                  |  (says when)  ^     |       (says when)  ^
//!                  +---------------+     +--------------------+
//! ```
//!
//! Data that was committed in any state stays readable until the session is freed; chunks are
//! accepted as long as the buffers exist, also after Disabled: late data is better than lost data.

mod change_config;
mod clone;
mod clone_room;
mod clone_taking;
mod clone_work;
mod config;
mod detach;
mod enable;
mod events;
mod file;
mod file_write;
mod flush;
mod instance_table;
mod instances;
mod periodic;
mod start;
mod stop;
mod trigger_history;
mod trigger_rules;
mod triggers;
mod validate;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use watershed_engine::ProducerId;
use watershed_wire::protos;

use crate::clock::{ClockReadings, DriftRing};
use crate::emit::OfBuffer;
use crate::filter::Filtering;
use crate::ids::{BufferId, ConsumerId, FlushId, SessionId};
use crate::limits::CONCURRENT_EVENTS_MAX;
use crate::read::{PacketBatch, ReadState, SharedSequences};
use crate::service::Service;
use crate::timer::{TimerClock, TimerTable};

pub(crate) use clone::PendingClone;
pub use clone::{CloneRequest, CloneSource, ClonedSession};
pub use clone_room::CloneRoom;
pub use clone_work::{CloneWork, CloneWorkDone};
pub(crate) use config::SessionConfig;
pub(crate) use events::LifecycleEvents;
pub(crate) use file::FileWriter;
pub use file_write::{FileWrite, FileWritten};
pub(crate) use flush::PendingFlush;
pub(crate) use instance_table::{Instance, Instances};
pub(crate) use trigger_history::TriggerHistory;
pub use triggers::ReceivedTrigger;
use triggers::SessionTriggers;

/// The state of a session. The names in `TracingServiceState` are those of upstream; see
/// [`SessionState::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Over (or failed): data can be read, nothing is recorded any more.
    Disabled,
    /// Data sources are set up, not started.
    Configured,
    /// Recording.
    Started,
    /// Stop was asked for, some data sources have not said yet that they have stopped.
    Stopping,
    /// A copy of another session: data can be read, nothing was ever recorded by it.
    Cloned,
}

impl SessionState {
    /// The name by which the consumer port reports it.
    pub fn name(self) -> &'static str {
        match self {
            SessionState::Disabled => "DISABLED",
            SessionState::Configured => "CONFIGURED",
            SessionState::Started => "STARTED",
            SessionState::Stopping => "STOP_WAIT",
            SessionState::Cloned => "CLONED_READ_ONLY",
        }
    }

    fn to_proto(self) -> protos::concurrent_session_event::State {
        use protos::concurrent_session_event::State;
        match self {
            SessionState::Disabled => State::Disabled,
            SessionState::Configured => State::Configured,
            SessionState::Started => State::Started,
            SessionState::Stopping => State::DisablingWaitingStopAcks,
            SessionState::Cloned => State::ClonedReadOnly,
        }
    }
}

/// The state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstanceState {
    Configured,
    Starting,
    Started,
    Stopping,
    Stopped,
}

impl InstanceState {
    /// What consumers are told: whether it is started, nothing while it changes its state.
    pub(crate) fn visible(self) -> Option<bool> {
        match self {
            InstanceState::Started => Some(true),
            InstanceState::Configured | InstanceState::Stopped => Some(false),
            InstanceState::Starting | InstanceState::Stopping => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    /// Who is told of it; `None` while it is detached.
    pub(crate) consumer_id: Option<ConsumerId>,
    /// Under which it was left behind, while it is.
    detach_key: Option<String>,
    pub(crate) consumer_uid: i32,
    pub(crate) config: SessionConfig,
    pub(crate) uuid: (i64, i64),
    pub(crate) state: SessionState,
    /// In the order of the config, then of late registrations.
    pub(crate) instances: Instances,
    /// In the order of the config.
    pub(crate) buffers: Vec<BufferId>,
    /// Every connected producer on which something was ever set up: it may write to a buffer.
    pub(crate) producers: BTreeSet<ProducerId>,
    pub(crate) timers: TimerTable,
    pub(crate) flushes: BTreeMap<FlushId, PendingFlush>,
    /// Clones of it that are being made, by the number that they will have.
    clones: BTreeMap<SessionId, PendingClone>,
    pub(crate) file: Option<FileWriter>,
    /// What is to be told of its buffers in the file.
    pub(crate) look: Option<Vec<OfBuffer>>,
    pub(crate) pending: PendingPackets,
    pub(crate) reading: ReadState,
    pub(crate) sequences: SharedSequences,
    pub(crate) filtering: Arc<Filtering>,
    pub(crate) triggers: SessionTriggers,
    pub(crate) counters: SessionCounters,
    all_started_told: bool,
    /// Why it ended, for the consumer.
    error: Option<String>,
    /// The consumer has been told that it ended.
    end_told: bool,
    /// To be erased as soon as its file is closed.
    free_when_closed: bool,
}

/// What the service itself still has to write into the trace.
#[derive(Debug, Default)]
pub(crate) struct PendingPackets {
    pub(crate) initial_clocks: Option<ClockReadings>,
    pub(crate) clocks: DriftRing,
    pub(crate) sync_marker: bool,
    pub(crate) stats: bool,
    /// What is written once (config, uuid, system info, provenance) has been.
    pub(crate) once_done: bool,
    pub(crate) events: LifecycleEvents,
    pub(crate) concurrent: VecDeque<(u64, protos::ConcurrentSessionEvent)>,
    /// For which the session was cloned.
    pub(crate) clone_trigger: Option<ReceivedTrigger>,
    /// What was read for a consumer that did not get it: it comes first.
    pub(crate) handed_back: PacketBatch,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SessionCounters {
    pub(crate) invalid_packets: u64,
    pub(crate) flushes_requested: u64,
    pub(crate) flushes_succeeded: u64,
    pub(crate) flushes_failed: u64,
    pub(crate) final_flush_outcome: Option<protos::trace_stats::FinalFlushOutcome>,
}

impl Session {
    /// Whether it records, or will.
    fn is_active(&self) -> bool {
        !matches!(self.state, SessionState::Disabled | SessionState::Cloned)
    }

    fn timer_clock(suspend_aware: bool) -> TimerClock {
        if suspend_aware { TimerClock::Boottime } else { TimerClock::Monotonic }
    }

    /// Keeps a clock snapshot for the trace if it tells something new.
    fn snapshot_clocks(&mut self, now: &ClockReadings) {
        if !self.config.builtin().disable_clock_snapshotting() {
            self.pending.clocks.offer(now);
        }
    }
}

impl Service {
    fn set_state(&mut self, session_id: SessionId, state: SessionState, now: &ClockReadings) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        session.state = state;
        let event = protos::ConcurrentSessionEvent {
            state: Some(state.to_proto().into()),
            session_name: session.config.message().unique_session_name.clone(),
            session_id: Some(session_id.0),
            consumer_uid: Some(session.consumer_uid),
            num_data_sources: Some(session.instances.len() as u32),
        };
        for (other_id, other) in &mut self.sessions {
            if *other_id == session_id || !other.config.builtin().enable_concurrent_session_events() {
                continue;
            }
            if other.pending.concurrent.len() < CONCURRENT_EVENTS_MAX {
                other.pending.concurrent.push_back((now.boottime_ns, event.clone()));
            }
        }
    }
}
