//! Instances of data sources: matching, set-up, start, acknowledgements, removal.

use std::sync::Arc;

use watershed_engine::ProducerId;

use crate::clock::ClockReadings;
use crate::ids::{InstanceId, SessionId};
use crate::output::{ConsumerEvent, ObservedEvents, ProducerCommand};
use crate::service::Service;
use crate::session::{Instance, InstanceState, SessionState};

impl Service {
    /// Offers every registered source to every entry of the config, entries first.
    pub(super) fn set_up_all(&mut self, session_id: SessionId) {
        let Some(entries) = self.sessions.get(&session_id).map(|session| session.config.entries.len()) else {
            return;
        };
        for entry_index in 0..entries {
            for source_index in 0..self.sources.len() {
                self.set_up_if_matching(session_id, entry_index, source_index);
            }
        }
    }

    /// A source was registered while the session lives: it joins for each entry that takes it, and
    /// starts if the session has.
    pub(crate) fn offer_source(&mut self, session_id: SessionId, source_index: usize, now: &ClockReadings) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let (state, entries) = (session.state, session.config.entries.len());
        if !matches!(state, SessionState::Configured | SessionState::Started) {
            return;
        }
        for entry_index in 0..entries {
            if let Some(instance_index) = self.set_up_if_matching(session_id, entry_index, source_index)
                && state == SessionState::Started
            {
                self.start_instance(session_id, instance_index);
            }
        }
        if state == SessionState::Started {
            self.tell_if_all_started(session_id, now);
        }
    }

    fn set_up_if_matching(
        &mut self,
        session_id: SessionId,
        entry_index: usize,
        source_index: usize,
    ) -> Option<usize> {
        if !self.matches(session_id, entry_index, source_index)? {
            return None;
        }
        let producer_id = self.sources.get(source_index)?.producer_id;
        if !self.ensure_memory(producer_id, session_id) {
            return None;
        }
        let (session, source) = (self.sessions.get_mut(&session_id)?, self.sources.get(source_index)?);
        let producer = self.producers.get_mut(&producer_id)?;
        let entry = session.config.entries.get(entry_index)?;
        let buffer_id = *session.buffers.get(entry.buffer_index)?;
        self.counters.last_instance_id += 1;
        let instance_id = InstanceId(self.counters.last_instance_id);
        let config: Arc<[u8]> = session.config.forwarded(entry, session_id, buffer_id)?.into();
        producer.allowed_buffers.insert(buffer_id);
        session.producers_seen.insert(producer_id);
        session.instances.push(Instance {
            id: instance_id,
            producer_id,
            producer_name: producer.name.clone(),
            source_name: source.descriptor.name.clone(),
            state: InstanceState::Configured,
            config: Arc::clone(&config),
            will_notify_on_start: source.descriptor.will_notify_on_start,
            will_notify_on_stop: source.descriptor.will_notify_on_stop,
            handles_incremental_state_clear: source.descriptor.handles_incremental_state_clear,
            no_flush: source.descriptor.no_flush,
        });
        let instance_index = session.instances.len() - 1;
        self.command(producer_id, ProducerCommand::SetupDataSource { instance_id, config });
        self.tell_instance_state(session_id, instance_index);
        Some(instance_index)
    }

    /// Whether an entry of a config takes a source: by name, lockdown, machine and producer.
    fn matches(&self, session_id: SessionId, entry_index: usize, source_index: usize) -> Option<bool> {
        let config = &self.sessions.get(&session_id)?.config;
        let entry = config.entries.get(entry_index)?;
        let source = self.sources.get(source_index)?;
        let producer = self.producers.get(&source.producer_id)?;
        let machine_name = (!producer.identity.is_local()).then_some(producer.identity.machine_name.as_str());
        Some(
            source.descriptor.name == entry.name
                && (!self.locked_down || producer.identity.uid == self.options.uid)
                && entry.takes_machine(machine_name, config.message().trace_all_machines())
                && entry.takes_producer(&producer.name),
        )
    }

    pub(super) fn start_instance(&mut self, session_id: SessionId, instance_index: usize) {
        let Some(instance) =
            self.sessions.get_mut(&session_id).and_then(|session| session.instances.get_mut(instance_index))
        else {
            return;
        };
        let (producer_id, instance_id, config) =
            (instance.producer_id, instance.id, Arc::clone(&instance.config));
        let state =
            if instance.will_notify_on_start { InstanceState::Starting } else { InstanceState::Started };
        self.command(producer_id, ProducerCommand::StartDataSource { instance_id, config });
        self.set_instance_state(session_id, instance_index, state);
    }

    /// Stops one instance. Returns true if it has stopped, false if it has to say so first.
    pub(super) fn stop_instance(
        &mut self,
        session_id: SessionId,
        instance_index: usize,
        immediate: bool,
    ) -> bool {
        let Some(instance) =
            self.sessions.get_mut(&session_id).and_then(|session| session.instances.get_mut(instance_index))
        else {
            return true;
        };
        let (producer_id, instance_id, state) = (instance.producer_id, instance.id, instance.state);
        let waits = instance.will_notify_on_stop && !immediate;
        if !matches!(state, InstanceState::Stopping | InstanceState::Stopped) {
            self.command(producer_id, ProducerCommand::StopDataSource { instance_id });
            let state = if waits { InstanceState::Stopping } else { InstanceState::Stopped };
            self.set_instance_state(session_id, instance_index, state);
            return !waits;
        }
        state == InstanceState::Stopped
    }

    /// A producer says that an instance has reached the state that was waited for.
    pub(crate) fn acknowledge(
        &mut self,
        producer_id: ProducerId,
        instance_id: InstanceId,
        from: InstanceState,
        to: InstanceState,
        now: &ClockReadings,
    ) {
        // The session must still be in the state in which the instance was asked.
        let session_state =
            if from == InstanceState::Starting { SessionState::Started } else { SessionState::Stopping };
        let found = self.sessions.iter().find_map(|(session_id, session)| {
            let instance_index = session.instances.iter().position(|instance| instance.id == instance_id)?;
            let instance = &session.instances[instance_index];
            let expected = instance.producer_id == producer_id
                && instance.state == from
                && session.state == session_state;
            expected.then_some((*session_id, instance_index))
        });
        let Some((session_id, instance_index)) = found else { return };
        self.set_instance_state(session_id, instance_index, to);
        match to {
            InstanceState::Started => self.tell_if_all_started(session_id, now),
            _ => self.finish_stop_if_all_stopped(session_id, now),
        }
    }

    /// The producer withdraws a source: its instances count as stopped and are removed.
    pub(crate) fn remove_instances(
        &mut self,
        session_id: SessionId,
        producer_id: ProducerId,
        source_name: &str,
        now: &ClockReadings,
    ) {
        let next = |service: &Service| {
            let instances = &service.sessions.get(&session_id)?.instances;
            instances.iter().position(|instance| {
                instance.producer_id == producer_id && instance.source_name == source_name
            })
        };
        let mut removed = false;
        while let Some(instance_index) = next(self) {
            self.stop_instance(session_id, instance_index, true);
            self.set_instance_state(session_id, instance_index, InstanceState::Stopped);
            if let Some(session) = self.sessions.get_mut(&session_id) {
                session.instances.remove(instance_index);
            }
            removed = true;
        }
        if removed {
            self.finish_stop_if_all_stopped(session_id, now);
            self.tell_if_all_started(session_id, now);
        }
    }

    pub(super) fn set_instance_state(
        &mut self,
        session_id: SessionId,
        instance_index: usize,
        state: InstanceState,
    ) {
        let Some(instance) =
            self.sessions.get_mut(&session_id).and_then(|session| session.instances.get_mut(instance_index))
        else {
            return;
        };
        if instance.state != state {
            instance.state = state;
            self.tell_instance_state(session_id, instance_index);
        }
    }

    fn tell_instance_state(&mut self, session_id: SessionId, instance_index: usize) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let Some(instance) = session.instances.get(instance_index) else { return };
        let (Some(consumer_id), Some(started)) = (session.consumer_id, instance.state.visible()) else {
            return;
        };
        let wanted = self
            .consumers
            .get(&consumer_id)
            .is_some_and(|consumer| consumer.observed.contains(ObservedEvents::INSTANCE_STATES));
        if wanted {
            let event = ConsumerEvent::InstanceState {
                producer_name: instance.producer_name.clone(),
                data_source_name: instance.source_name.clone(),
                started,
            };
            self.tell(consumer_id, event);
        }
    }

    /// The first time that every instance of a started session with a consumer has started (or that
    /// there is none) is noted and told.
    pub(super) fn tell_if_all_started(&mut self, session_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let Some(consumer_id) = session.consumer_id else { return };
        if session.state != SessionState::Started || session.all_started_told || !session.all_started() {
            return;
        }
        session.all_started_told = true;
        session.snapshot_clocks(now);
        session.pending.events.all_data_sources_started(now);
        let wanted = self
            .consumers
            .get(&consumer_id)
            .is_some_and(|consumer| consumer.observed.contains(ObservedEvents::ALL_DATA_SOURCES_STARTED));
        if wanted {
            self.tell(consumer_id, ConsumerEvent::AllDataSourcesStarted { session_id });
        }
    }
}
