//! What consumers do, and what the service is told of it.

use prost::Message as _;
use watershed_service::{
    CloneRequest, CloneSource, ConsumerEvent, ConsumerId, FlushFlags, ObservedEvents, OutputFile,
    PacketBatch, PeerIdentity, ReadBegun, ReadProgress, ReadStep, SessionId, SessionState, limits,
};
use watershed_wire::protos::TraceConfig;
use watershed_wire::reader::{Limits, TraceReader};

use crate::check::reader::{names_a_loss, of_producers, packets_of, summary};
use crate::config;
use crate::consumer::{Consumer, Request};
use crate::session::Session;
use crate::world::{Event, World};

/// Users that consumers are of: fewer than there are consumers, so that they meet.
const UIDS: [i32; 3] = [0, 500, 501];
const KEYS: [&str; 2] = ["left", "right"];

impl World {
    pub(crate) fn connect_consumer(&mut self, uid: Option<i32>) -> u32 {
        let uid = uid.unwrap_or_else(|| self.choices.of(&UIDS));
        let identity = PeerIdentity { uid, ..Default::default() };
        let id = self.call(|service, _| service.handle_consumer_connect(identity)).expect("it is let in");
        self.last_key += 1;
        let key = self.last_key;
        self.log(|| format!("c{key} connects, uid {uid}, {id:?}"));
        self.key_of_consumer.insert(id, key);
        let (flushes, stats, clones, is_reading) = Default::default();
        self.consumers.insert(key, Consumer { id, uid, flushes, stats, clones, is_reading });
        key
    }

    pub(crate) fn act_of_consumer(&mut self, key: u32) {
        if !self.consumers.contains_key(&key) {
            return;
        }
        if self.choices.one_in(self.settings.dies_once_in) {
            self.report.deaths += 1;
            self.send(false, key, true, Event::FromConsumer(key, Request::Gone));
        } else {
            let num_requests = if self.settings.has_long_lists && self.choices.one_in(8) { 300 } else { 1 };
            let request = self.draw_request(key);
            for _ in 1..num_requests {
                self.send(false, key, true, Event::FromConsumer(key, Request::Flush(0)));
            }
            self.send(false, key, true, Event::FromConsumer(key, request));
        }
        self.act_again(false, key);
    }

    fn draw_request(&mut self, key: u32) -> Request {
        let has_session = self.service.session_of(self.consumers[&key].id).is_some();
        let choices = &mut self.choices;
        match choices.below(20) {
            0..=9 if !has_session => {
                Request::Enable(Box::new(config::draw(choices, self.settings.has_small_buffers)))
            }
            0 | 1 => Request::Disable,
            2..=4 => Request::Flush(choices.of(&[0, 1, 300, 3000])),
            5..=8 => Request::Read,
            9 => Request::Free,
            10 => Request::Observe(ObservedEvents(choices.small(8))),
            11 => Request::Detach(choices.of(&KEYS).to_owned()),
            12 => Request::Attach(choices.of(&KEYS).to_owned()),
            13..=15 => {
                let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
                let source = match choices.below(4) {
                    0 => CloneSource::ForBugreport,
                    1 => CloneSource::Named(choices.of(&["one", "two"]).to_owned()),
                    _ => CloneSource::Session(choices.any(&sessions).unwrap_or(SessionId(77))),
                };
                Request::Clone(CloneRequest {
                    source,
                    for_bugreport: choices.one_in(2),
                    skip_filter: choices.one_in(3),
                    trigger: None,
                    into_file: choices.one_in(3),
                })
            }
            16 => Request::ChangeConfig(config::names(choices)),
            17 => Request::EndWanted,
            18 => Request::Start,
            _ if choices.one_in(6) => Request::Gone,
            _ if choices.one_in(2) => Request::Stats,
            _ => Request::Query,
        }
    }

    /// A request arrives.
    pub(crate) fn take_request(&mut self, key: u32, request: Request) {
        let Some(consumer) = self.consumers.get(&key) else { return };
        let (id, uid) = (consumer.id, consumer.uid);
        self.log(|| match &request {
            Request::Enable(config) => format!("c{key} ~> Enable {config:?}"),
            other => format!("c{key} ~> {other:?}"),
        });
        self.forget_ended_sessions();
        match request {
            Request::Enable(config) => self.enable(id, uid, *config),
            Request::Start => self.call(|service, now| service.handle_start_tracing(id, now)),
            Request::Disable => self.call(|service, now| service.handle_disable_tracing(id, now)),
            Request::Flush(timeout_ms) => {
                let flush =
                    self.call(|service, now| service.handle_flush(id, timeout_ms, FlushFlags::EXPLICIT, now));
                if let (Ok(flush_id), Some(consumer)) = (flush, self.consumers.get_mut(&key)) {
                    consumer.flushes.insert(flush_id);
                    self.flushes.extend(self.service.session_of(id).map(|session_id| (flush_id, session_id)));
                }
            }
            Request::Read if self.choices.one_in(2) => {
                self.call(|service, _| service.handle_read_buffers(id));
                self.begin_read(key, id);
            }
            Request::Read => {
                self.read(id);
            }
            Request::Free => self.call(|service, now| service.handle_free_buffers(id, now)),
            Request::Observe(events) => {
                self.call(|service, _| service.handle_observe_events(id, events));
            }
            Request::Detach(name) => {
                let detached = self.call(|service, _| service.handle_detach(id, &name));
                if let Some(session) = detached.ok().and_then(|id| self.sessions.get_mut(&id)) {
                    session.key = Some(name);
                    session.was_detached = true;
                }
            }
            Request::Attach(name) => {
                self.attach(id, uid, &name);
            }
            Request::Clone(request) => self.ask_for_clone(key, id, request),
            Request::ChangeConfig(names) => self.change_config(id, &names),
            Request::EndWanted => {
                if let Some(session) = self.service.session_of(id).and_then(|id| self.sessions.get_mut(&id)) {
                    session.ends_wanted += 1;
                }
                self.call(|service, _| service.handle_end_wanted(id));
            }
            Request::Query => {
                let state = self.service.query_state(id, false);
                let is_own = |session: &i32| uid == 0 || *session == uid;
                assert!(state.tracing_sessions.iter().all(|session| is_own(&session.consumer_uid())));
            }
            Request::Stats => {
                let expected = self.service.trace_stats(id);
                let is_asked = self.call(|service, _| service.handle_get_trace_stats(id));
                assert_eq!(is_asked, expected.is_some(), "a session has statistics");
                self.consumers.get_mut(&key).expect("it is there").stats.extend(expected);
            }
            Request::Gone => {
                self.consumers.remove(&key);
                self.call(|service, now| service.handle_consumer_disconnect(id, now));
                self.key_of_consumer.remove(&id);
            }
        }
    }

    fn enable(&mut self, id: ConsumerId, uid: i32, config: TraceConfig) {
        let file = if config.write_into_file() { OutputFile::Provided } else { OutputFile::None };
        let bytes = config.encode_to_vec();
        match self.call(|service, now| service.handle_enable_tracing(id, &bytes, file, now)) {
            Ok(session_id) => {
                let is_roomy = !self.settings.has_small_buffers;
                self.report.sessions += 1;
                self.sessions.insert(session_id, Session::new(uid, config, is_roomy));
                self.log(|| format!("{session_id:?} begins"));
            }
            Err(_) => self.report.refused += 1,
        }
    }

    /// Reads all that there is. False if it cannot be read.
    pub(crate) fn read(&mut self, id: ConsumerId) -> bool {
        let Some(session_id) = self.service.session_of(id) else { return false };
        let bytes = if self.choices.one_in(2) { self.read_framed(id) } else { self.read_batches(id) };
        let Some(bytes) = bytes else { return false };
        self.take(session_id, &bytes);
        true
    }

    /// Begins a step, which is run later.
    fn begin_read(&mut self, key: u32, id: ConsumerId) {
        let session_id = self.service.session_of(id);
        let begun = self.call(|service, now| service.begin_read(id, now));
        let Some(consumer) = self.consumers.get_mut(&key) else { return };
        consumer.is_reading = !matches!(begun, ReadBegun::Nothing);
        if let (ReadBegun::Step(step), Some(session_id)) = (begun, session_id) {
            let at_ns = self.now.monotonic_ns + self.delay_ns();
            self.schedule(at_ns, Event::Read(session_id, step));
        }
    }

    pub(crate) fn run_read(&mut self, session_id: SessionId, step: ReadStep) {
        let id = step.consumer_id();
        let done = step.run(PacketBatch::new());
        self.report.steps += 1;
        let is_its_session = self.service.session_of(id) == Some(session_id);
        let (packets, progress) = self.call(|service, now| service.handle_read(done, now));
        if is_its_session {
            let mut bytes = Vec::new();
            append_framed(&packets, &mut bytes);
            check_turn(of_producers(&bytes).into_iter(), limits::READ_STEP_BYTES);
            self.take(session_id, &bytes);
        } else if let Some(session) = self.sessions.get_mut(&session_id) {
            assert!(packets.is_empty(), "packets of another one's session");
            session.was_handed_back = true;
            self.report.handed_back += 1;
        }
        let Some(key) = self.key_of_consumer.get(&id).copied() else { return };
        match progress {
            ReadProgress::More => self.begin_read(key, id),
            ReadProgress::Done | ReadProgress::Nothing => {
                self.consumers.get_mut(&key).expect("it is there").is_reading = false;
            }
        }
    }

    fn read_framed(&mut self, id: ConsumerId) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let before = all.len();
            let progress = self.call(|service, now| service.read_framed(id, &mut all, now));
            check_turn(of_producers(&all[before..]).into_iter(), limits::READ_FRAMED_BYTES);
            match progress {
                ReadProgress::More => {}
                ReadProgress::Done => return Some(all),
                ReadProgress::Nothing => return None,
            }
        }
    }

    fn read_batches(&mut self, id: ConsumerId) -> Option<Vec<u8>> {
        let (mut all, mut batch) = (Vec::new(), PacketBatch::new());
        self.call(|service, _| service.handle_read_buffers(id));
        loop {
            let begun = self.call(|service, now| service.begin_read(id, now));
            let ReadBegun::Step(step) = begun else { return None };
            let (packets, progress) = self.call(|service, now| service.handle_read(step.run(batch), now));
            let before = all.len();
            append_framed(&packets, &mut all);
            check_turn(of_producers(&all[before..]).into_iter(), limits::READ_STEP_BYTES);
            if progress != ReadProgress::More {
                return Some(all);
            }
            batch = packets;
        }
    }

    /// Another part of a session's trace.
    pub(crate) fn take(&mut self, session_id: SessionId, bytes: &[u8]) {
        self.log(|| format!("{session_id:?} is read: {}", summary(bytes)));
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let before = (session.reader.num_packets, session.reader.num_losses);
        session.take(bytes, &self.identities);
        self.report.packets += session.reader.num_packets - before.0;
        self.report.losses += session.reader.num_losses - before.1;
        if session.is_filtered {
            self.report.filtered += packets_of(bytes).len() as u64;
        }
    }

    /// Another part of a session's file, which may be compressed. Each part can be read by itself.
    pub(crate) fn take_of_file(&mut self, session_id: SessionId, bytes: &[u8]) {
        let mut reader = TraceReader::new(Limits::default());
        reader.feed(bytes);
        let mut plain = Vec::new();
        while let Some(packet) = reader.poll_packet().expect("a file of packets") {
            prost::encoding::bytes::encode(1, &packet.bytes.to_vec(), &mut plain);
        }
        reader.end().expect("whole packets");
        self.report.compressed += reader.packets_compressed();
        self.take(session_id, &plain);
    }

    /// True if the consumer has it now.
    pub(crate) fn attach(&mut self, id: ConsumerId, uid: i32, name: &str) -> bool {
        let attached = self.call(|service, now| service.handle_attach(id, name, now));
        let Ok((session_id, _)) = attached else { return false };
        let session = self.sessions.get_mut(&session_id).expect("it was detached");
        assert_eq!(session.key.take().as_deref(), Some(name), "another key");
        assert_eq!(session.uid, uid, "another user's session");
        self.report.attached += 1;
        true
    }

    fn change_config(&mut self, id: ConsumerId, names: &[String]) {
        let Some(session_id) = self.service.session_of(id) else { return };
        let state = self.service.session_state(session_id);
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let mut changed = session.config.clone();
        changed.data_sources.iter_mut().for_each(|entry| entry.producer_name_filter = names.to_vec());
        if matches!(state, Some(SessionState::Configured | SessionState::Started)) {
            session.config.data_sources.clone_from(&changed.data_sources);
        }
        let bytes = changed.encode_to_vec();
        self.call(|service, now| service.handle_change_trace_config(id, &bytes, now)).expect("a good config");
    }

    fn ask_for_clone(&mut self, key: u32, id: ConsumerId, mut request: CloneRequest) {
        let origin_id = self.origin_of(&request.source);
        // Of a session whose own file is full or has failed, the clone's has the rest alone.
        let origin = origin_id.and_then(|id| self.sessions.get(&id));
        request.into_file &= origin.is_some_and(|origin| origin.before_file.is_none());
        let skips_filter = request.skip_filter || request.source == CloneSource::ForBugreport;
        // What is copied of a file was filtered when it was written.
        let has_file = !skips_filter && self.choices.one_in(2);
        let clone = self.call(|service, now| service.handle_clone_session(id, request, has_file, now));
        // Even one that is refused later has emptied buffers of the original.
        self.sessions.values_mut().for_each(|session| session.has_holes |= session.clears());
        if let (Ok(clone_id), Some(consumer)) = (clone, self.consumers.get_mut(&key)) {
            let origin_id = origin_id.expect("no clone of nothing");
            if let Some(origin) = self.sessions.get_mut(&origin_id) {
                origin.has_holes |= origin.transfers();
            }
            consumer.clones.insert(clone_id, (origin_id, skips_filter));
        }
    }

    /// Which session is meant.
    fn origin_of(&self, source: &CloneSource) -> Option<SessionId> {
        let mut originals = self.sessions.iter().filter(|(_, session)| !session.is_clone);
        match source {
            CloneSource::Session(id) => Some(*id),
            CloneSource::Named(name) => {
                originals.find(|(_, session)| session.config.unique_session_name() == name).map(|(id, _)| *id)
            }
            CloneSource::ForBugreport => originals
                .filter(|(id, session)| {
                    session.config.bugreport_score() > 0
                        && self.service.session_state(**id) == Some(SessionState::Started)
                })
                .max_by_key(|(_, session)| session.config.bugreport_score())
                .map(|(id, _)| *id),
        }
    }

    /// The service has said something: was it asked for, and is it so?
    pub(crate) fn check_event(&mut self, key: u32, event: &ConsumerEvent) {
        let Some(consumer) = self.consumers.get_mut(&key) else { return };
        let id = consumer.id;
        match event {
            ConsumerEvent::FlushDone { flush_id, .. } => {
                // One that is over within its call is told before that has returned: see `pump`.
                assert!(consumer.flushes.remove(flush_id), "nobody waits for {flush_id:?}");
                self.report.flushes += 1;
            }
            ConsumerEvent::TraceStats(stats) => {
                let expected = consumer.stats.pop_front();
                assert!(expected.is_some(), "nobody waits for statistics");
                assert_eq!(stats.as_deref(), expected.as_ref(), "as by the other way");
                self.report.stats += 1;
            }
            ConsumerEvent::Cloned { session_id, result } => {
                let of = consumer.clones.remove(session_id);
                let (origin_id, skips_filter) = of.expect("somebody waits for it");
                match result {
                    Ok(clone) if clone.is_in_file => self.report.clones += 1,
                    Ok(_) => self.cloned(id, *session_id, origin_id, skips_filter),
                    Err(_) => {}
                }
            }
            ConsumerEvent::TracingDisabled { session_id, .. } => {
                if let Some(session) = self.sessions.get_mut(session_id) {
                    session.ends_told += 1;
                    assert!(session.ends_told <= session.ends_wanted, "{session_id:?} has ended twice");
                }
            }
            ConsumerEvent::CloneTriggerHit { session_id, .. } => {
                let session = self.sessions.get_mut(session_id).expect("it is there");
                session.num_hits_told += 1;
                assert!(session.num_hits_told <= session.num_triggers_taken, "a hit without a trigger");
            }
            _ => {}
        }
    }

    /// An event arrives at its consumer, which may do something about it.
    pub(crate) fn take_event(&mut self, key: u32, event: ConsumerEvent) {
        if event == ConsumerEvent::ReadReady {
            let id = self.consumers.get(&key).map(|consumer| consumer.id);
            return id.into_iter().for_each(|id| self.begin_read(key, id));
        }
        let request = match event {
            ConsumerEvent::CloneTriggerHit { session_id, trigger } => Request::Clone(CloneRequest {
                source: CloneSource::Session(session_id),
                for_bugreport: false,
                skip_filter: false,
                trigger: Some(trigger),
                into_file: false,
            }),
            ConsumerEvent::TracingDisabled { .. } if self.choices.one_in(2) => Request::Read,
            ConsumerEvent::Cloned { result: Ok(_), .. } if self.choices.one_in(2) => Request::Read,
            _ => return,
        };
        // A session is cloned by another connection of its user.
        let key = match (&request, self.consumers.get(&key).map(|consumer| consumer.uid)) {
            (Request::Clone(_), Some(uid)) if !self.is_ending && self.consumers.len() < 12 => {
                self.connect_consumer(Some(uid))
            }
            _ => key,
        };
        self.send(false, key, true, Event::FromConsumer(key, request));
    }

    /// Clones into files that have begun: they have what the original's file has, if it writes into
    /// one, and what was committed until now, all of which the clone's file gets.
    pub(crate) fn note_file_clones(&mut self) {
        let waiting = self.consumers.values().flat_map(|consumer| {
            consumer.clones.iter().map(|(clone_id, (origin_id, _))| (consumer.uid, *clone_id, *origin_id))
        });
        let (service, sessions) = (&self.service, &self.sessions);
        let is_new = |id: SessionId| {
            service.session_state(id) == Some(SessionState::Cloned) && !sessions.contains_key(&id)
        };
        let begun: Vec<_> = waiting.filter(|(_, clone_id, _)| is_new(*clone_id)).collect();
        let holds_commits = self.holds_commits();
        for (uid, clone_id, origin_id) in begun {
            let Some(origin) = self.sessions.get_mut(&origin_id) else { continue };
            let mut session = origin.cloned(uid, false);
            if let Some(reader) = &origin.before_file {
                session.reader = reader.clone();
            }
            session.before_file = Some(session.reader.clone());
            session.has_holes |= holds_commits;
            self.sessions.insert(clone_id, session);
        }
    }

    /// Whether the service may hold commits until a flush is acknowledged: a clone that asks nobody
    /// for a flush does not have them.
    fn holds_commits(&self) -> bool {
        self.producers.values().any(|producer| producer.is_emulated && producer.commands.awaits_flush())
    }

    /// A clone is there: it has what a read of the original gives now.
    fn cloned(&mut self, id: ConsumerId, clone_id: SessionId, origin_id: SessionId, skips_filter: bool) {
        self.report.clones += 1;
        let holds_commits = self.holds_commits();
        let consumer = self.consumers.values().find(|consumer| consumer.id == id);
        let (uid, is_reading) = consumer.map_or((0, false), |consumer| (consumer.uid, consumer.is_reading));
        let origin = self.sessions.get_mut(&origin_id).expect("a clone is of a session that is there");
        let mut session = origin.cloned(uid, skips_filter);
        session.has_holes |= holds_commits;
        // Clones that wait for one flush are made in one turn. The first to be compared would take
        // from the original what the next one has too.
        let waits = |consumer: &Consumer| consumer.clones.values().any(|(other, _)| *other == origin_id);
        let is_comparable = origin.is_readable()
            && !self.consumers.values().any(waits)
            && session.is_filtered == origin.is_filtered
            && !session.has_holes
            && !is_reading
            && !self.choices.one_in(3);
        self.sessions.insert(clone_id, session);
        let of_origin = |consumer: &&Consumer| self.service.session_of(consumer.id) == Some(origin_id);
        let origin_consumer = self.consumers.values().find(of_origin).map(|consumer| consumer.id);
        let Some(origin_consumer) = origin_consumer.filter(|_| is_comparable) else { return };
        let Some(original) = self.read_framed(origin_consumer) else { return };
        self.take(origin_id, &original);
        let cloned = self.read_framed(id).expect("a clone can be read");
        self.take(clone_id, &cloned);
        self.compare_with_original(&original, &cloned);
    }

    /// Everything of a session was read: all books must agree.
    pub(crate) fn check_drained(&mut self, id: ConsumerId) {
        let Some(session_id) = self.service.session_of(id) else { return };
        let stats = self.service.trace_stats(id);
        let Some(session) = self.sessions.get(&session_id).filter(|session| session.is_readable()) else {
            return;
        };
        let num_missing = session.drained(&self.identities);
        let has_cause = stats.as_ref().is_some_and(names_a_loss);
        assert!(
            num_missing == 0 || has_cause,
            "{num_missing} packets are missing without a cause: {stats:?}"
        );
        let builtin = session.config.builtin_data_sources.unwrap_or_default();
        // A file may have had no room for them.
        let names_triggers =
            !session.is_filtered && !builtin.disable_trace_config() && !self.service.file_is_full(session_id);
        if names_triggers && !session.was_cloned && !session.has_holes && !session.is_clone {
            let (read, taken) = (session.reader.num_triggers, session.num_triggers_taken);
            assert_eq!(read, taken, "triggers in the trace");
        }
        self.report.drained += 1;
    }

    fn compare_with_original(&mut self, original: &[u8], clone: &[u8]) {
        let (original, clone) = (of_producers(original), of_producers(clone));
        // A scrape of the same turn may have added to the original.
        if !self.has_scraping {
            assert!(original == clone, "{} packets and {} in the clone", original.len(), clone.len());
        } else {
            let is_there = |packet: &&[u8]| original.contains(packet);
            assert!(clone.iter().all(is_there), "a clone has what was not there");
        }
        self.report.clones_compared += 1;
    }
}

/// As packets lie in a file.
fn append_framed(batch: &PacketBatch, out: &mut Vec<u8>) {
    for packet in batch.packets() {
        out.push(10);
        prost::encoding::encode_varint(packet.len() as u64, out);
        out.extend_from_slice(packet);
    }
}

/// What one turn reads of producers' packets ends with the row of packets that crosses the line.
/// The service's own ones have limits of their own.
fn check_turn<'a>(packets: impl Iterator<Item = &'a [u8]>, bytes_max: usize) {
    let bytes: usize = packets.map(<[u8]>::len).sum();
    assert!(bytes <= 3 * bytes_max, "one turn has read {bytes} bytes, about {bytes_max} at most");
}
