//! What producers do, and what the service is told of it.

use std::sync::Arc;

use prost::Message as _;
use watershed_service::{
    FlushId, PeerIdentity, ProducerCommand, ProducerHello, ProducerMemory, ScrapingMode, SessionId,
};
use watershed_smb::SharedMemory;
use watershed_wire::protos;

use crate::check::ledger::CommittedChunk;
use crate::check::reader::Identity;
use crate::config::{NAMES, SOURCES, TRIGGERS};
use crate::packet::packet;
use crate::producer::{Note, Producer, ProducerMessage};
use crate::world::{Event, World};

impl World {
    pub(crate) fn connect_producer(&mut self) {
        let choices = &mut self.choices;
        let is_liar = self.settings.has_liars && choices.one_in(3);
        self.last_key += 1;
        let key = self.last_key;
        let name = choices.of(&NAMES).to_owned();
        let identity = Identity {
            uid: if is_liar { 6666 } else { choices.of(&[-1, 0, 1000, 10_123]) },
            pid: 1000 + key as i32,
            machine_id: u32::from(choices.one_in(10)),
            is_liar,
        };
        let (memory, is_emulated) = match choices.below(6) {
            0 => (ProducerMemory::Emulated, true),
            1 | 2 if is_liar => {
                let memory = Arc::new(SharedMemory::create(64 << 10).expect("memory"));
                self.note_memory(&memory);
                (ProducerMemory::Provided(memory), false)
            }
            _ => (ProducerMemory::FromService, false),
        };
        let provided = match &memory {
            ProducerMemory::Provided(memory) => Some(Arc::clone(memory)),
            _ => None,
        };
        let scraping =
            self.choices.of(&[ScrapingMode::Default, ScrapingMode::Enabled, ScrapingMode::Disabled]);
        self.has_scraping |= scraping != ScrapingMode::Disabled;
        let hello = ProducerHello {
            identity: PeerIdentity {
                uid: identity.uid,
                pid: Some(identity.pid),
                machine_id: identity.machine_id,
                machine_name: if identity.machine_id == 0 { String::new() } else { "remote".to_owned() },
            },
            name: name.clone(),
            page_size_hint_bytes: 4096,
            shm_size_hint_bytes: 64 << 10,
            scraping,
            memory,
            ..Default::default()
        };
        let welcome = self.call(|service, _| service.handle_producer_connect(hello)).expect("it is let in");
        let mut producer = Producer::new(key, welcome.producer_id, name, is_liar, is_emulated);
        producer.is_lazy = self.choices.one_in(4);
        if let Some(memory) = provided {
            producer.smb = watershed_smb::Smb::new(memory, 4096).ok();
        }
        self.log(|| format!("p{key} connects, {identity:?}, {scraping:?}, by message: {is_emulated}"));
        self.identities.insert(key, identity);
        self.key_of_producer.insert(welcome.producer_id, key);
        self.producers.insert(key, producer);
        self.pump();
        self.act_again(true, key);
    }

    pub(crate) fn act_again(&mut self, is_producer: bool, key: u32) {
        let pause_ns = self.choices.below(self.settings.pause_ns_max);
        let event = if is_producer { Event::ActOfProducer(key) } else { Event::ActOfConsumer(key) };
        let at_ns = self.now.monotonic_ns + pause_ns;
        self.schedule(at_ns, event);
    }

    /// A message on its way to the service, which may be the last one of its connection.
    pub(crate) fn tell(&mut self, key: u32, message: ProducerMessage) {
        if self.choices.one_in(self.settings.dies_once_in) {
            return self.kill_producer(key);
        }
        self.send(true, key, true, Event::FromProducer(key, message));
    }

    /// In the middle of anything: of what is on its way the rest is lost.
    pub(crate) fn kill_producer(&mut self, key: u32) {
        let mut left = self.choices.below(4);
        self.queue.retain(|_, event| {
            let is_its = matches!(event, Event::FromProducer(of, _) if *of == key);
            left = left.saturating_sub(u64::from(is_its));
            !is_its || left > 0
        });
        self.report.deaths += 1;
        self.send(true, key, true, Event::FromProducer(key, ProducerMessage::Gone));
    }

    pub(crate) fn act_of_producer(&mut self, key: u32) {
        let Some(mut producer) = self.producers.remove(&key) else { return };
        let messages = self.act(&mut producer);
        self.producers.insert(key, producer);
        messages.into_iter().for_each(|message| self.tell(key, message));
        self.act_again(true, key);
    }

    fn act(&mut self, producer: &mut Producer) -> Vec<ProducerMessage> {
        if producer.is_liar && self.choices.one_in(2) {
            self.report.lies += 1;
            return vec![producer.lie(&mut self.choices)];
        }
        match self.choices.below(24) {
            0 => vec![ProducerMessage::Gone],
            1..=3 => self.register(producer),
            4 => {
                let names: Vec<String> = producer.sources.keys().cloned().collect();
                let name = self.choices.any(&names);
                name.into_iter()
                    .map(|name| {
                        producer.sources.remove(&name);
                        ProducerMessage::Unregister(name)
                    })
                    .collect()
            }
            5 | 6 => vec![ProducerMessage::Triggers(vec![self.choices.of(&TRIGGERS).to_owned()])],
            7..=9 => {
                producer.patch_some(&mut self.choices);
                producer.write_rests(&mut self.choices);
                vec![producer.commit(None)]
            }
            10 => {
                producer.close_all();
                vec![producer.commit(None)]
            }
            // A liar writes nothing that would have to be there.
            _ if producer.is_liar => Vec::new(),
            _ => self.write(producer),
        }
    }

    fn register(&mut self, producer: &mut Producer) -> Vec<ProducerMessage> {
        if self.settings.has_long_lists && producer.is_liar {
            let many = |number| protos::DataSourceDescriptor {
                name: Some(if number % 2 == 0 { "a".to_owned() } else { format!("many {number}") }),
                ..Default::default()
            };
            return (0..300).map(many).map(ProducerMessage::Register).collect();
        }
        let name = self.choices.of(&SOURCES).to_owned();
        if producer.sources.contains_key(&name) {
            return Vec::new();
        }
        let descriptor = protos::DataSourceDescriptor {
            name: Some(name.clone()),
            will_notify_on_start: Some(self.choices.one_in(2)),
            will_notify_on_stop: Some(self.choices.one_in(2)),
            handles_incremental_state_clear: Some(self.choices.one_in(2)),
            no_flush: Some(self.choices.one_in(4)),
            ..Default::default()
        };
        producer.sources.insert(name, descriptor.clone());
        vec![ProducerMessage::Register(descriptor)]
    }

    fn write(&mut self, producer: &mut Producer) -> Vec<ProducerMessage> {
        let ids: Vec<_> = producer.instances.keys().copied().collect();
        let Some(instance_id) = self.choices.any(&ids).filter(|_| producer.has_memory()) else {
            return Vec::new();
        };
        let (mut index, registration) = producer.writer_for(instance_id, &mut self.choices);
        let mut messages: Vec<ProducerMessage> = registration.into_iter().collect();
        for _ in 0..self.choices.between(1, 4) {
            let Some((session, writer, serial)) = producer.next_packet(index) else { break };
            if let Some(session) = self.sessions.get_mut(&session) {
                session.ledger.written(writer, serial);
            }
            let is_patched = self.choices.one_in(8);
            let packet = packet(writer, serial, is_patched);
            index = producer.write(index, serial, packet, &mut self.choices);
        }
        if producer.has_to_commit() && !self.choices.one_in(3) {
            messages.push(producer.commit(None));
        }
        messages
    }

    /// A message arrives.
    pub(crate) fn take_message(&mut self, key: u32, message: ProducerMessage) {
        let Some(producer) = self.producers.get(&key) else { return };
        let id = producer.id;
        self.log(|| format!("p{key} ~> {message:?}"));
        match message {
            ProducerMessage::Register(descriptor) => {
                self.num_registered += 1;
                let bytes = descriptor.encode_to_vec();
                self.call(|service, now| service.handle_register_data_source(id, &bytes, now));
            }
            ProducerMessage::Update(bytes) => {
                self.call(|service, _| service.handle_update_data_source(id, &bytes));
            }
            ProducerMessage::Unregister(name) => {
                self.call(|service, now| service.handle_unregister_data_source(id, &name, now));
            }
            ProducerMessage::RegisterWriter(writer, buffer) => {
                self.call(|service, _| service.handle_register_trace_writer(id, writer, buffer));
            }
            ProducerMessage::UnregisterWriter(writer) => {
                self.call(|service, _| service.handle_unregister_trace_writer(id, writer));
                if let Some(producer) = self.producers.get_mut(&key) {
                    producer.free_writer_id(writer);
                }
            }
            ProducerMessage::Commit(request, notes) => {
                let is_taken = self.call(|service, _| service.handle_commit_data(id, &request));
                if let (Some(flush_id), Some(producer)) =
                    (request.flush_request_id, self.producers.get_mut(&key))
                {
                    producer.commands.acknowledge(FlushId(flush_id));
                }
                if is_taken {
                    notes.into_iter().for_each(|note| self.note(note));
                }
            }
            ProducerMessage::Started(instance) => {
                self.call(|service, now| service.handle_data_source_started(id, instance, now));
            }
            ProducerMessage::Stopped(instance) => {
                self.call(|service, now| service.handle_data_source_stopped(id, instance, now));
            }
            ProducerMessage::Triggers(names) => self.announce(key, &names),
            ProducerMessage::Gone => {
                self.producers.remove(&key);
                self.call(|service, now| service.handle_producer_disconnect(id, now));
                self.key_of_producer.remove(&id);
            }
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Chunk { session, writer, ordinal, serials, is_unpatched } => {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.ledger.committed(writer, CommittedChunk { ordinal, serials, is_unpatched });
                }
            }
            Note::Patched { session, writer, ordinal } => {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.ledger.patched(writer, ordinal);
                }
            }
        }
    }

    /// Triggers arrive: exactly those sessions take them that must.
    fn announce(&mut self, key: u32, names: &[String]) {
        let producer = &self.producers[&key];
        let (id, producer_name) = (producer.id, producer.name.clone());
        let mut expected: Vec<SessionId> = Vec::new();
        for name in names {
            if expected.len() > 1000 {
                break;
            }
            let (service, sessions) = (&self.service, &self.sessions);
            let open = sessions.iter().filter_map(|(id, session)| {
                let triggers = session.config.trigger_config.as_ref()?;
                Some((*id, service.session_state(*id)?, triggers))
            });
            let looked_at = watershed_service::limits::TRIGGERS_PER_CALL_MAX;
            if names.len() > looked_at && std::ptr::eq(name, &names[looked_at]) {
                break;
            }
            expected.extend(self.trigger_times.announce(name, &producer_name, self.now.boottime_ns, open));
        }
        let taken = self.call(|service, now| service.handle_activate_triggers(id, names, now));
        assert_eq!(taken, expected.len(), "sessions that take {names:?}: {expected:?}");
        self.report.triggers += taken as u64;
        for session in expected {
            if let Some(session) = self.sessions.get_mut(&session) {
                session.num_triggers_taken += 1;
            }
        }
    }

    /// A command arrives at its producer.
    pub(crate) fn take_command(&mut self, key: u32, command: ProducerCommand) {
        let Some(producer) = self.producers.get_mut(&key) else { return };
        let answers = producer.receive(command, &mut self.choices);
        answers.into_iter().for_each(|message| self.tell(key, message));
    }

    /// The service has said something: is it in order, and does it concern this producer?
    pub(crate) fn check_command(&mut self, key: u32, command: &ProducerCommand) {
        let Some(producer) = self.producers.get_mut(&key) else { return };
        producer.commands.check(command);
        if let ProducerCommand::SetupDataSource { config, .. } = command {
            let config = protos::DataSourceConfig::decode(&config[..]).expect("a config");
            // A session that is just being made is not known yet.
            if let Some(session) = self.sessions.get(&SessionId(config.tracing_session_id())) {
                assert!(
                    session.takes(config.name(), &producer.name),
                    "{} of {} was not asked for",
                    config.name(),
                    producer.name
                );
            }
        }
    }
}
