//! Instances of data sources: matching, set-up, start, acknowledgements, removal.

use std::sync::Arc;

use watershed_engine::ProducerId;

use crate::clock::ClockReadings;
use crate::direct::Target;
use crate::ids::{InstanceId, SessionId};
use crate::output::{ConsumerEvent, ObservedEvents, ProducerCommand, Warning};
use crate::producer::SourceKey;
use crate::service::Service;
use crate::session::{Instance, InstanceState, Session, SessionState};

impl Service {
    /// Offers to every entry of the config the registered sources of its name, entries first.
    pub(super) fn set_up_all(&mut self, session_id: SessionId) {
        let Some(entries) = self.sessions.get(&session_id).map(|session| session.config.entries.len()) else {
            return;
        };
        for entry_index in 0..entries {
            let config = self.sessions.get(&session_id).map(|session| &session.config);
            let Some(entry) = config.and_then(|config| config.entries.get(entry_index)) else { return };
            for key in self.sources.of_name(&entry.name) {
                self.set_up_if_matching(session_id, entry_index, key);
            }
        }
    }

    /// A source was registered while the session lives: it joins for each entry that takes it, and
    /// starts if the session has.
    pub(crate) fn offer_source(&mut self, session_id: SessionId, key: SourceKey, now: &ClockReadings) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let Some(source) = self.sources.get(key) else { return };
        let (state, entries) = (session.state, session.config.entries_of(&source.descriptor.name));
        if !matches!(state, SessionState::Configured | SessionState::Started) {
            return;
        }
        for entry_index in entries {
            if let Some(instance_id) = self.set_up_if_matching(session_id, entry_index, key)
                && state == SessionState::Started
            {
                self.start_instance(session_id, instance_id);
            }
        }
        if state == SessionState::Started {
            self.tell_if_all_started(session_id, now);
        }
    }

    /// Makes an instance of a source for an entry of the config that takes it.
    pub(super) fn set_up_if_matching(
        &mut self,
        session_id: SessionId,
        entry_index: usize,
        key: SourceKey,
    ) -> Option<InstanceId> {
        self.counters.looked_at += 1;
        if !self.matches(session_id, entry_index, key)? {
            return None;
        }
        self.sessions.get_mut(&session_id)?.config.note_offered(entry_index);
        let producer_id = self.sources.get(key)?.producer_id;
        if !self.has_room_for_instance(session_id, producer_id)
            || !self.ensure_memory(producer_id, session_id)
        {
            return None;
        }
        let (session, source) = (self.sessions.get_mut(&session_id)?, self.sources.get(key)?);
        let producer = self.producers.get_mut(&producer_id)?;
        let buffer_index = session.config.entries.get(entry_index)?.buffer_index;
        let buffer_id = *session.buffers.get(buffer_index)?;
        let config = session.config.forwarded(entry_index, session_id, buffer_id)?;
        self.counters.last_instance_id += 1;
        let instance_id = InstanceId(self.counters.last_instance_id);
        producer.allowed_buffers.insert(buffer_id);
        if let (Some(smb), Some(buffer)) = (producer.memory(), self.buffers.get(buffer_id)) {
            let target = Target {
                smb: smb.clone(),
                identity: producer.client,
                trace: Arc::clone(&buffer.trace),
                sequences: session.sequences.clone(),
            };
            self.direct.allow(producer_id, buffer_id, target);
        }
        session.producers.insert(producer_id);
        session.instances.insert(Instance {
            id: instance_id,
            producer_id,
            producer_name: Arc::clone(&producer.name),
            source_name: Arc::clone(&source.descriptor.name),
            state: InstanceState::Configured,
            buffer_index,
            config: Arc::clone(&config),
            will_notify_on_start: source.descriptor.will_notify_on_start,
            will_notify_on_stop: source.descriptor.will_notify_on_stop,
            handles_incremental_state_clear: source.descriptor.handles_incremental_state_clear,
            no_flush: source.descriptor.no_flush,
        });
        self.command(producer_id, ProducerCommand::SetupDataSource { instance_id, config });
        self.tell_instance_state(session_id, instance_id);
        Some(instance_id)
    }

    /// Whether the session may use one more data source of the producer. The user is told if not.
    fn has_room_for_instance(&mut self, session_id: SessionId, producer_id: ProducerId) -> bool {
        let Some(session) = self.sessions.get_mut(&session_id) else { return false };
        let has_room = session.instances.has_room_for(producer_id);
        if !has_room
            && session.instances.refuse(producer_id)
            && let Some(producer) = self.producers.get(&producer_id)
        {
            let producer_name = producer.name.to_string();
            self.warn(Warning::TooManyInstances { session_id, producer_name });
        }
        has_room
    }

    /// Whether an entry of a config takes a source of its name: by lockdown, machine and producer.
    fn matches(&self, session_id: SessionId, entry_index: usize, key: SourceKey) -> Option<bool> {
        let config = &self.sessions.get(&session_id)?.config;
        let entry = config.entries.get(entry_index)?;
        let producer = self.producers.get(&self.sources.get(key)?.producer_id)?;
        let machine_name = (!producer.identity.is_local()).then_some(producer.identity.machine_name.as_str());
        Some(
            (!self.locked_down || producer.identity.uid == self.options.uid)
                && entry.takes_machine(machine_name, config.message().trace_all_machines())
                && entry.takes_producer(&producer.name),
        )
    }

    pub(super) fn start_instance(&mut self, session_id: SessionId, instance_id: InstanceId) {
        let Some(instance) = self.instance(session_id, instance_id) else { return };
        let (producer_id, config) = (instance.producer_id, Arc::clone(&instance.config));
        let state =
            if instance.will_notify_on_start { InstanceState::Starting } else { InstanceState::Started };
        self.command(producer_id, ProducerCommand::StartDataSource { instance_id, config });
        self.set_instance_state(session_id, instance_id, state);
    }

    /// Stops one instance. Returns true if it has stopped, false if it has to say so first.
    pub(super) fn stop_instance(
        &mut self,
        session_id: SessionId,
        instance_id: InstanceId,
        immediate: bool,
    ) -> bool {
        self.counters.looked_at += 1;
        let Some(instance) = self.instance(session_id, instance_id) else { return true };
        let (producer_id, state) = (instance.producer_id, instance.state);
        let waits = instance.will_notify_on_stop && !immediate;
        if !matches!(state, InstanceState::Stopping | InstanceState::Stopped) {
            self.command(producer_id, ProducerCommand::StopDataSource { instance_id });
            let state = if waits { InstanceState::Stopping } else { InstanceState::Stopped };
            self.set_instance_state(session_id, instance_id, state);
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
        let expected = |session: &Session| {
            let instance = session.instances.get(instance_id);
            session.state == session_state
                && instance.is_some_and(|asked| asked.producer_id == producer_id && asked.state == from)
        };
        let found = self.sessions.iter().find(|(_, session)| expected(session)).map(|(id, _)| *id);
        let Some(session_id) = found else { return };
        self.set_instance_state(session_id, instance_id, to);
        match to {
            InstanceState::Started => self.tell_if_all_started(session_id, now),
            _ => self.finish_stop_if_all_stopped(session_id, now),
        }
    }

    /// The producer withdraws a source, or with no name all it has: their instances count as
    /// stopped and are removed.
    pub(crate) fn remove_instances(
        &mut self,
        session_id: SessionId,
        producer_id: ProducerId,
        source_name: Option<&str>,
        now: &ClockReadings,
    ) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let is_meant = |id: &InstanceId| {
            let instance = session.instances.get(*id);
            source_name.is_none_or(|name| instance.is_some_and(|instance| *instance.source_name == *name))
        };
        let of_producer = session.instances.ids_of(producer_id);
        self.counters.looked_at += of_producer.len() as u64;
        let removed: Vec<InstanceId> = of_producer.into_iter().filter(is_meant).collect();
        for &instance_id in &removed {
            self.stop_instance(session_id, instance_id, true);
            self.set_instance_state(session_id, instance_id, InstanceState::Stopped);
            if let Some(session) = self.sessions.get_mut(&session_id) {
                session.instances.remove(instance_id);
            }
        }
        if !removed.is_empty() {
            self.finish_stop_if_all_stopped(session_id, now);
            self.tell_if_all_started(session_id, now);
        }
    }

    fn instance(&self, session_id: SessionId, instance_id: InstanceId) -> Option<&Instance> {
        self.sessions.get(&session_id)?.instances.get(instance_id)
    }

    pub(super) fn set_instance_state(
        &mut self,
        session_id: SessionId,
        instance_id: InstanceId,
        state: InstanceState,
    ) {
        let session = self.sessions.get_mut(&session_id);
        if session.is_some_and(|session| session.instances.set_state(instance_id, state)) {
            self.tell_instance_state(session_id, instance_id);
        }
    }

    fn tell_instance_state(&mut self, session_id: SessionId, instance_id: InstanceId) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let Some(instance) = session.instances.get(instance_id) else { return };
        let (Some(consumer_id), Some(started)) = (session.consumer_id, instance.state.visible()) else {
            return;
        };
        let wanted = self
            .consumers
            .get(&consumer_id)
            .is_some_and(|consumer| consumer.observed.contains(ObservedEvents::INSTANCE_STATES));
        if wanted {
            let event = ConsumerEvent::InstanceState {
                producer_name: instance.producer_name.to_string(),
                data_source_name: instance.source_name.to_string(),
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
        if session.state != SessionState::Started
            || session.all_started_told
            || !session.instances.all_started()
        {
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
