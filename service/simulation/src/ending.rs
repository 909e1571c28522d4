//! A run from its beginning to its end, at which everybody leaves and nothing may be left.

use watershed_service::{Deadlines, FileWritten, SessionId, SessionState};

use crate::consumer::Request;
use crate::producer::ProducerMessage;
use crate::report::Report;
use crate::world::{Event, MS, World};

/// Peers of a run.
const PRODUCERS_MAX: u64 = 6;
const CONSUMERS_MAX: u64 = 5;

/// In which everything is over that waits for something: flushes and stops, with delays.
const LONG_MS: u64 = 60_000;

impl World {
    pub(crate) fn run(mut self) -> Report {
        for _ in 0..self.choices.between(1, 3) {
            self.connect_producer();
        }
        let key = self.connect_consumer(None);
        self.act_again(false, key);
        self.schedule(0, Event::Arrival);
        let mut num_steps = 0;
        while num_steps < self.settings.num_acts * 4 && !self.choices.are_spent() && self.step(u64::MAX) {
            num_steps += 1;
        }
        self.end();
        Report { runs: 1, ..self.report }
    }

    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::FromProducer(key, message) => self.take_message(key, message),
            Event::FromConsumer(key, request) => self.take_request(key, request),
            Event::ToProducer(key, command) => self.take_command(key, command),
            Event::ToConsumer(key, event) => self.take_event(key, event),
            Event::ActOfProducer(_) | Event::ActOfConsumer(_) | Event::Arrival if self.is_ending => {}
            Event::ActOfProducer(key) => self.act_of_producer(key),
            Event::ActOfConsumer(key) => self.act_of_consumer(key),
            Event::Arrival => self.arrive(),
            Event::Written(step) => self.write_file(step),
            // Now, though it was handed out a while ago.
            Event::Clone(work) => self.call(|service, now| service.handle_clone_work(work.run(), now)),
            Event::Read(session_id, step) => self.run_read(session_id, step),
            Event::FileDone(session_id) => {
                let result = self.file_result();
                self.fail_file(session_id, result.is_err());
                self.call(|service, now| service.handle_file_done(session_id, result, now));
            }
        }
    }

    /// Somebody new comes, while there is room.
    fn arrive(&mut self) {
        if self.choices.one_in(2) {
            if (self.producers.len() as u64) < PRODUCERS_MAX {
                self.connect_producer();
            }
        } else if (self.consumers.len() as u64) < CONSUMERS_MAX {
            let key = self.connect_consumer(None);
            self.act_again(false, key);
        }
        if self.choices.one_in(20) {
            // The machine sleeps.
            self.now.boottime_ns += 1000 * MS;
            self.now.realtime_ns += 1000 * MS;
        }
        let pause_ns = self.choices.below(4 * self.settings.pause_ns_max);
        let at_ns = self.now.monotonic_ns + pause_ns;
        self.schedule(at_ns, Event::Arrival);
    }

    fn file_result(&mut self) -> Result<(), String> {
        match self.choices.one_in(self.settings.file_fails_once_in) {
            true => Err("no space left on device".to_owned()),
            false => Ok(()),
        }
    }

    /// What was written or made durable may be gone.
    fn fail_file(&mut self, session_id: SessionId, has_failed: bool) {
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session.has_holes |= has_failed;
        }
    }

    /// Now, though it was begun a while ago.
    fn write_file(&mut self, step: watershed_service::FileWrite) {
        let session_id = step.session_id();
        let (mut bytes, fails) = (Vec::new(), self.file_result());
        let mut out = |slices: &[std::io::IoSlice<'_>]| {
            fails.clone()?;
            slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
            Ok(())
        };
        let written: FileWritten = step.write_to(&mut out);
        self.fail_file(session_id, fails.is_err());
        let before = self.report.packets;
        self.take_of_file(session_id, &bytes);
        self.report.in_files += self.report.packets - before;
        self.files.entry(session_id).or_default().extend(bytes);
        self.call(|service, now| service.handle_written(written, now));
    }

    fn end(&mut self) {
        self.is_ending = true;
        self.pass_ms(LONG_MS);
        for producer in self.producers.values_mut() {
            producer.is_lazy = false;
        }
        let consumers: Vec<u32> = self.consumers.keys().copied().collect();
        consumers.into_iter().for_each(|key| self.end_session_of(key));
        self.end_detached_sessions();
        self.forget_ended_sessions();
        assert!(self.sessions.is_empty(), "sessions of nobody: {:?}", self.sessions.keys());
        for (key, producer) in &self.producers {
            assert_eq!(producer.commands.num_live(), 0, "instances of p{key} that were not stopped");
        }
        for consumer in self.consumers.values() {
            let (flushes, clones) = (&consumer.flushes, &consumer.clones);
            assert!(flushes.is_empty() && clones.is_empty(), "not answered: {flushes:?}, {clones:?}");
            assert!(consumer.stats.is_empty(), "no statistics: {:?}", consumer.stats);
            assert!(!consumer.is_reading, "a read is not over");
        }
        self.leave();
    }

    /// As a user ends a session: stops it, reads it, and frees it.
    fn end_session_of(&mut self, key: u32) {
        let id = self.consumers[&key].id;
        let Some(session_id) = self.service.session_of(id) else { return };
        self.handle(Event::FromConsumer(key, Request::Disable));
        self.pump();
        self.pass_ms(LONG_MS);
        // It may have begun to read only now.
        if self.consumers[&key].is_reading {
            self.pass_ms(LONG_MS);
        }
        if self.service.session_of(id) != Some(session_id) {
            return;
        }
        let state = self.service.session_state(session_id);
        assert!(
            matches!(state, Some(SessionState::Disabled | SessionState::Cloned)),
            "not stopped: {state:?}"
        );
        if let Some(session) = self.sessions.get(&session_id).filter(|session| !session.is_clone) {
            assert!(session.ends_told > 0 || session.was_detached, "nobody was told of the end");
        }
        assert!(self.read(id), "a session that is over can be read");
        self.check_drained(id);
        if self.choices.one_in(2) {
            self.handle(Event::FromConsumer(key, Request::Free));
            self.pump();
            assert_eq!(self.service.session_of(id), None);
        } else {
            self.handle(Event::FromConsumer(key, Request::Gone));
            self.pump();
        }
    }

    /// Somebody of the same user takes over what was left behind.
    fn end_detached_sessions(&mut self) {
        self.forget_ended_sessions();
        let left: Vec<(i32, String)> =
            self.sessions.values().filter_map(|session| Some((session.uid, session.key.clone()?))).collect();
        for (uid, name) in left {
            let key = self.connect_consumer(Some(uid));
            let id = self.consumers[&key].id;
            self.forget_ended_sessions();
            if self.attach(id, uid, &name) {
                self.end_session_of(key);
            }
        }
    }

    /// Everybody goes.
    fn leave(&mut self) {
        let producers: Vec<u32> = self.producers.keys().copied().collect();
        for key in producers {
            self.handle(Event::FromProducer(key, ProducerMessage::Gone));
            self.pump();
        }
        let consumers: Vec<u32> = self.consumers.keys().copied().collect();
        for key in consumers {
            self.handle(Event::FromConsumer(key, Request::Gone));
            self.pump();
        }
        self.queue.clear();
        assert_eq!(self.service.poll_timeout(), Deadlines::default(), "a timer of nobody");
        assert_eq!(self.service.num_rows(), 0, "rows of nobody: {:?}", self.service);
        assert_eq!(self.num_memories(), 0, "memory of nobody");
    }
}
