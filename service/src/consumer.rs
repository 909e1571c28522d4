//! Consumers: who asks for sessions, and the calls of the consumer port that only look.

use std::fmt;

use crate::clock::ClockReadings;
use crate::emit::PendingStats;
use crate::error::ConnectError;
use crate::ids::{ConsumerId, SessionId};
use crate::limits::CONSUMERS_MAX;
use crate::output::{ConsumerEvent, ObservedEvents};
use crate::producer::PeerIdentity;
use crate::service::Service;
use crate::session::SessionState;

#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) identity: PeerIdentity,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) observed: ObservedEvents,
    pub(crate) stats: PendingStats,
    /// It wants to read and is to be told when it can.
    pub(crate) waits_to_read: bool,
}

/// Where a session with `write_into_file` writes. The file itself is the shell's, in every case.
pub enum OutputFile<'a> {
    /// The shell has no file, and cannot make one.
    None,
    /// The shell has got an open file along with the request.
    Provided,
    /// The shell makes the file when it is called with the config's `output_path`, or says why not.
    /// It is called once at most, after the config was found good, and has to refuse a path that
    /// exists.
    Create(&'a mut dyn FnMut(&str) -> Result<(), String>),
}

impl fmt::Debug for OutputFile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OutputFile::None => "None",
            OutputFile::Provided => "Provided",
            OutputFile::Create(_) => "Create",
        })
    }
}

impl Service {
    /// A consumer wants to connect.
    ///
    /// # Errors
    ///
    /// [`ConnectError::TooManyConsumers`]: the shell closes the connection.
    pub fn handle_consumer_connect(&mut self, identity: PeerIdentity) -> Result<ConsumerId, ConnectError> {
        if self.consumers.len() >= CONSUMERS_MAX {
            return Err(ConnectError::TooManyConsumers);
        }
        self.counters.last_consumer_id += 1;
        let consumer_id = ConsumerId(self.counters.last_consumer_id);
        let consumer = Consumer {
            identity,
            session_id: None,
            observed: ObservedEvents::NONE,
            stats: PendingStats::default(),
            waits_to_read: false,
        };
        self.consumers.insert(consumer_id, consumer);
        Ok(consumer_id)
    }

    /// A consumer's connection has ended: its session is freed, after its file, if it has one, got
    /// the rest.
    pub fn handle_consumer_disconnect(&mut self, consumer_id: ConsumerId, now: &ClockReadings) {
        self.handle_free_buffers(consumer_id, now);
        self.drop_clones_of(consumer_id);
        self.consumers.remove(&consumer_id);
    }

    /// What the consumer wants to be told from now on, instead of what it wanted before. What is
    /// already so is told at once.
    pub fn handle_observe_events(&mut self, consumer_id: ConsumerId, observed: ObservedEvents) {
        let Some(consumer) = self.consumers.get_mut(&consumer_id) else { return };
        consumer.observed = observed;
        let Some((session_id, session)) =
            consumer.session_id.and_then(|id| Some((id, self.sessions.get(&id)?)))
        else {
            return;
        };
        let mut events = Vec::new();
        if observed.contains(ObservedEvents::INSTANCE_STATES) {
            let visible = session.instances.iter().filter_map(|instance| {
                Some(ConsumerEvent::InstanceState {
                    producer_name: instance.producer_name.to_string(),
                    data_source_name: instance.source_name.to_string(),
                    started: instance.state.visible()?,
                })
            });
            events.extend(visible);
        }
        if observed.contains(ObservedEvents::ALL_DATA_SOURCES_STARTED)
            && session.state == SessionState::Started
            && session.instances.all_started()
        {
            events.push(ConsumerEvent::AllDataSourcesStarted { session_id });
        }
        for event in events {
            self.tell(consumer_id, event);
        }
    }

    /// The consumer's session, if it has one.
    pub fn session_of(&self, consumer_id: ConsumerId) -> Option<SessionId> {
        self.consumers.get(&consumer_id).and_then(|consumer| consumer.session_id)
    }

    /// The state of a session, `None` if it does not exist (any more).
    pub fn session_state(&self, session_id: SessionId) -> Option<SessionState> {
        self.sessions.get(&session_id).map(|session| session.state)
    }
}
