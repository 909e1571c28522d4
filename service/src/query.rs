//! The state of the service, for consumers that ask who is there.

use watershed_wire::ipc::messages::{ServiceDataSource, TracingServiceState};
use watershed_wire::protos::tracing_service_state as state;

use crate::ids::{ConsumerId, SessionId};
use crate::service::Service;
use crate::session::{Session, SessionState};

const ROOT_UID: i32 = 0;

impl Service {
    /// Producers, data sources and sessions as they are. Of the sessions a consumer sees those of
    /// its own user; root sees all. The number of sessions counts all of them.
    pub fn query_state(&self, consumer_id: ConsumerId, sessions_only: bool) -> TracingServiceState {
        let uid = self.consumers.get(&consumer_id).map(|consumer| consumer.identity.uid);
        let is_visible = |session: &Session| uid == Some(ROOT_UID) || uid == Some(session.consumer_uid);
        let started = self.sessions.values().filter(|session| session.state == SessionState::Started);
        let visible = self.sessions.iter().filter(|(_, session)| is_visible(session));
        TracingServiceState {
            producers: if sessions_only { Vec::new() } else { self.producers_state() },
            data_sources: if sessions_only { Vec::new() } else { self.data_sources_state() },
            num_sessions: Some(self.sessions.len() as i32),
            num_sessions_started: Some(started.count() as i32),
            tracing_service_version: Some(self.options.version.clone()),
            tracing_sessions: visible.map(|(id, session)| self.session_state_of(*id, session)).collect(),
            supports_tracing_sessions: Some(true),
        }
    }

    fn producers_state(&self) -> Vec<state::Producer> {
        let describe = |producer: crate::ConnectedProducer<'_>| {
            let identity = producer.identity;
            state::Producer {
                id: Some(producer.producer_id.0.cast_signed()),
                name: Some(producer.name.to_owned()),
                uid: Some(identity.uid),
                sdk_version: Some(producer.sdk_version.to_owned()),
                pid: identity.pid,
                frozen: None,
                machine_id: Some(identity.machine_id).filter(|_| !identity.is_local()),
                machine_name: Some(identity.machine_name.clone()).filter(|_| !identity.is_local()),
            }
        };
        self.producers().map(describe).collect()
    }

    fn data_sources_state(&self) -> Vec<ServiceDataSource> {
        self.data_sources()
            .map(|source| {
                ServiceDataSource::new(source.descriptor.to_vec(), source.producer_id.0.cast_signed())
            })
            .collect()
    }

    fn session_state_of(&self, session_id: SessionId, session: &Session) -> state::TracingSession {
        let config = session.config.message();
        let start = session.pending.initial_clocks.as_ref().map(|clocks| clocks.realtime_ns);
        state::TracingSession {
            id: Some(session_id.0),
            consumer_uid: Some(session.consumer_uid),
            state: Some(session.state.name().to_owned()),
            unique_session_name: config.unique_session_name.clone(),
            buffer_size_kb: config.buffers.iter().map(|buffer| buffer.size_kb()).collect(),
            duration_ms: Some(config.duration_ms()),
            num_data_sources: Some(session.instances.len() as u32),
            start_realtime_ns: start.map(u64::cast_signed),
            bugreport_score: config.bugreport_score,
            bugreport_filename: config.bugreport_filename.clone(),
            is_started: Some(session.state == SessionState::Started),
        }
    }
}
