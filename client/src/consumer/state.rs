//! The parts of the service's state, put together.

use watershed_wire::ipc::ConsumerMethod;
use watershed_wire::ipc::messages::{QueryServiceStateResponse, TracingServiceState};

use super::decode;
use super::error::ConsumerError;

/// How much state, as it is encoded, is taken from a service.
pub const STATE_SIZE_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct StateJoiner {
    state: TracingServiceState,
    size_bytes: usize,
}

impl StateJoiner {
    pub(super) fn take(&mut self, reply: &[u8]) -> Result<(), ConsumerError> {
        // An empty reply counts too, or a service could send them without end.
        self.size_bytes += reply.len().max(1);
        if self.size_bytes > STATE_SIZE_BYTES_MAX {
            let what = format!("a state above {STATE_SIZE_BYTES_MAX} bytes");
            return Err(ConsumerError::Protocol(what));
        }
        let response: QueryServiceStateResponse = decode(ConsumerMethod::QueryServiceState, reply)?;
        let Some(part) = response.service_state else { return Ok(()) };
        let state = &mut self.state;
        state.producers.extend(part.producers);
        state.data_sources.extend(part.data_sources);
        state.tracing_sessions.extend(part.tracing_sessions);
        state.num_sessions = part.num_sessions.or(state.num_sessions);
        state.num_sessions_started = part.num_sessions_started.or(state.num_sessions_started);
        state.supports_tracing_sessions = part.supports_tracing_sessions.or(state.supports_tracing_sessions);
        if part.tracing_service_version.is_some() {
            state.tracing_service_version = part.tracing_service_version;
        }
        Ok(())
    }

    pub(super) fn end(self) -> TracingServiceState {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
    use watershed_wire::ipc::messages::ServiceDataSource;
    use watershed_wire::ipc::split_service_state;
    use watershed_wire::protos::tracing_service_state::{Producer, TracingSession};

    #[test]
    fn a_split_state_is_whole_again() {
        let descriptor = |index: i32| ServiceDataSource::new(vec![0x0a, 0], index);
        let whole = TracingServiceState {
            producers: (1..9).map(|id| Producer { id: Some(id), ..Default::default() }).collect(),
            data_sources: (0..40_000).map(descriptor).collect(),
            tracing_sessions: vec![TracingSession::default(); 3],
            num_sessions: Some(3),
            num_sessions_started: Some(2),
            tracing_service_version: Some("Perfetto v54".to_owned()),
            supports_tracing_sessions: Some(true),
        };
        let parts = split_service_state(whole.clone()).replies;
        assert!(parts.len() > 1);
        let mut joiner = StateJoiner::default();
        for part in parts {
            joiner.take(&part.encode_to_vec()).unwrap();
        }
        assert!(joiner.end() == whole);
    }

    #[test]
    fn state_has_a_limit() {
        let mut joiner = StateJoiner::default();
        let response = QueryServiceStateResponse {
            service_state: Some(TracingServiceState {
                tracing_service_version: Some("x".repeat(STATE_SIZE_BYTES_MAX / 2)),
                ..Default::default()
            }),
        };
        let reply = response.encode_to_vec();
        joiner.take(&reply).unwrap();
        assert!(matches!(joiner.take(&reply), Err(ConsumerError::Protocol(_))));
    }
}
