//! What a consumer may change of a session that lives: which producers take part.

use std::collections::BTreeSet;

use watershed_engine::ProducerId;
use watershed_wire::config::TraceConfig;

use crate::clock::ClockReadings;
use crate::error::EnableError;
use crate::ids::{ConsumerId, SessionId};
use crate::service::Service;
use crate::session::SessionState;

impl Service {
    /// The consumer changes the producer filters of its session: for each data source of the
    /// session those of the entry of the same name in `config` count from now on. Anything else in
    /// `config` is ignored. The trace gets the config as it is then.
    ///
    /// Producers that match now and did not take part join, and start if the session has. Those
    /// that take part stay, whether they match or not. Ignored if there is no session, or if it is
    /// over.
    ///
    /// # Errors
    ///
    /// [`EnableError::Malformed`] or [`EnableError::BadPattern`]; then nothing has changed.
    pub fn handle_change_trace_config(
        &mut self,
        consumer_id: ConsumerId,
        config: &[u8],
        now: &ClockReadings,
    ) -> Result<(), EnableError> {
        let Some(session_id) = self.session_of(consumer_id) else { return Ok(()) };
        let Some(session) = self.sessions.get_mut(&session_id) else { return Ok(()) };
        let state = session.state;
        if !matches!(state, SessionState::Configured | SessionState::Started) {
            return Ok(());
        }
        let config = TraceConfig::from_binary(config.to_vec())
            .map_err(|error| EnableError::Malformed(error.to_string()))?;
        session.config.change_filters(&config)?;
        let known: BTreeSet<ProducerId> = session.instances.producers().collect();
        self.set_up_others(session_id, &known, state == SessionState::Started);
        if state == SessionState::Started {
            self.tell_if_all_started(session_id, now);
        }
        Ok(())
    }

    /// Sets up, and if the session has started starts, the matching sources of all producers but
    /// those that are known.
    fn set_up_others(&mut self, session_id: SessionId, known: &BTreeSet<ProducerId>, started: bool) {
        let entries = self.sessions.get(&session_id).map_or(0, |session| session.config.entries.len());
        for entry_index in 0..entries {
            let entry = self.sessions.get(&session_id).map(|session| &session.config.entries[entry_index]);
            let Some(entry) = entry else { return };
            for key in self.sources.of_name(&entry.name) {
                if self.sources.get(key).is_none_or(|source| known.contains(&source.producer_id)) {
                    continue;
                }
                if let Some(instance_id) = self.set_up_if_matching(session_id, entry_index, key)
                    && started
                {
                    self.start_instance(session_id, instance_id);
                }
            }
        }
    }
}
