//! The service between connections that are slow, and a clock that only this moves.
//!
//! ```text
//!   peers' acts ---> queue, by time ---> handle_* ---> outputs ---> checkers at once,
//!        ^           (each connection                    |          the peer when they arrive
//!        |            in its own order)                  v
//!        +------------------- queue, by time <-----------+
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use watershed_service::{
    ClockReadings, CloneWork, ConsumerEvent, ConsumerId, FileAction, FileWrite, FlushId, Output,
    ProducerCommand, ProducerId, ReadStep, Service, ServiceOptions, SessionId, Shards, SystemInfo,
};
use watershed_smb::SharedMemory;

use crate::check::reader::Identity;
use crate::check::triggers::TriggerTimes;
use crate::choices::Choices;
use crate::consumer::{Consumer, Request};
use crate::log::Log;
use crate::producer::{Producer, ProducerMessage};
use crate::report::Report;
use crate::session::Sessions;

pub(crate) const MS: u64 = 1_000_000;

/// How a run is.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Acts of peers before everything comes to its end.
    pub(crate) num_acts: u64,
    /// What a message takes at most.
    pub(crate) delay_ns_max: u64,
    /// Between two acts of a peer.
    pub(crate) pause_ns_max: u64,
    pub(crate) has_liars: bool,
    pub(crate) has_small_buffers: bool,
    /// Peers make lists long.
    pub(crate) has_long_lists: bool,
    /// A message is the last one of its connection once in so many.
    pub(crate) dies_once_in: u64,
    /// Steps of files fail once in so many.
    pub(crate) file_fails_once_in: u64,
}

pub(crate) enum Event {
    FromProducer(u32, ProducerMessage),
    FromConsumer(u32, Request),
    ToProducer(u32, ProducerCommand),
    ToConsumer(u32, ConsumerEvent),
    ActOfProducer(u32),
    ActOfConsumer(u32),
    Arrival,
    Written(FileWrite),
    FileDone(SessionId),
    Clone(CloneWork),
    Read(SessionId, ReadStep),
}

/// When the last thing that a connection carries arrives, in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub(crate) to_service_ns: u64,
    pub(crate) to_peer_ns: u64,
}

pub(crate) struct World {
    pub(crate) service: Service,
    pub(crate) now: ClockReadings,
    pub(crate) choices: Choices,
    pub(crate) settings: Settings,
    pub(crate) log: Log,
    pub(crate) queue: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    pub(crate) producers: BTreeMap<u32, Producer>,
    pub(crate) key_of_producer: BTreeMap<ProducerId, u32>,
    pub(crate) consumers: BTreeMap<u32, Consumer>,
    pub(crate) key_of_consumer: BTreeMap<ConsumerId, u32>,
    pub(crate) links: BTreeMap<(bool, u32), Link>,
    pub(crate) last_key: u32,
    pub(crate) identities: BTreeMap<u32, Identity>,
    pub(crate) sessions: Sessions,
    /// Those that consumers asked for and that are not over, even if their consumer has gone.
    pub(crate) flushes: BTreeMap<FlushId, SessionId>,
    /// What was written for sessions that write into files, and for clones of those.
    pub(crate) files: BTreeMap<SessionId, Vec<u8>>,
    pub(crate) trigger_times: TriggerTimes,
    /// Data sources that were registered on connections that are there.
    pub(crate) num_registered: u64,
    /// Some producer's chunks are read while it writes them.
    pub(crate) has_scraping: bool,
    memories: Arc<Mutex<Vec<Weak<SharedMemory>>>>,
    /// No more acts: everything comes to its end.
    pub(crate) is_ending: bool,
    pub(crate) report: Report,
}

impl World {
    pub(crate) fn new(mut choices: Choices, log: Log) -> World {
        let settings = Settings {
            num_acts: choices.between(30, 220),
            delay_ns_max: choices.of(&[1, MS, 100 * MS, 100 * MS, 8000 * MS]),
            pause_ns_max: choices.of(&[MS, 100 * MS, 1000 * MS]),
            has_liars: choices.one_in(3),
            has_small_buffers: choices.one_in(2),
            has_long_lists: choices.one_in(60),
            dies_once_in: choices.of(&[40, 400, 1 << 40]),
            file_fails_once_in: choices.of(&[30, 1 << 40]),
        };
        let memories: Arc<Mutex<Vec<Weak<SharedMemory>>>> = Arc::default();
        let made = Arc::clone(&memories);
        // Real files for the memory of liars, who write into it as into a file.
        let in_files = settings.has_liars;
        let memory = move |size_bytes: usize| {
            let memory = match in_files {
                true => SharedMemory::create(size_bytes),
                false => SharedMemory::anonymous(size_bytes),
            };
            let memory = memory.map(Arc::new)?;
            made.lock().expect("no thread panicked").push(Arc::downgrade(&memory));
            Ok(memory)
        };
        let never_waits = choices.one_in(2);
        let service = Service::new(ServiceOptions {
            seed: 1,
            uid: 4242,
            version: "Perfetto v58.0-simulation".to_owned(),
            system: SystemInfo::default(),
            scraping_by_default: choices.one_in(3),
            huge_pages: watershed_service::HugePages::Advise,
            shards: Shards::Wanted(choices.between(1, 3) as usize),
            workers: None,
            memory: Box::new(memory),
            read_pool: Box::new(|| None),
            never_waits,
            filter_clock: None,
        });
        let now = ClockReadings {
            boottime_ns: 7_000 * MS,
            realtime_coarse_ns: 1_700_000_000_000 * MS,
            monotonic_coarse_ns: 5_000 * MS,
            realtime_ns: 1_700_000_000_000 * MS,
            monotonic_ns: 5_000 * MS,
            monotonic_raw_ns: 4_000 * MS,
            tsc_cycles: None,
        };
        World {
            service,
            now,
            choices,
            settings,
            log,
            queue: BTreeMap::new(),
            next_event: 0,
            producers: BTreeMap::new(),
            key_of_producer: BTreeMap::new(),
            consumers: BTreeMap::new(),
            key_of_consumer: BTreeMap::new(),
            links: BTreeMap::new(),
            last_key: 0,
            identities: BTreeMap::new(),
            sessions: BTreeMap::new(),
            flushes: BTreeMap::new(),
            files: BTreeMap::new(),
            trigger_times: TriggerTimes::default(),
            num_registered: 0,
            has_scraping: false,
            memories,
            is_ending: false,
            report: Report::default(),
        }
    }

    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        self.log.add(self.now.monotonic_ns, line);
    }

    pub(crate) fn schedule(&mut self, at_ns: u64, event: Event) {
        self.next_event += 1;
        self.queue.insert((at_ns, self.next_event), event);
    }

    pub(crate) fn delay_ns(&mut self) -> u64 {
        self.choices.below(self.settings.delay_ns_max)
    }

    /// In a while, which on one connection is later than all before.
    pub(crate) fn send(&mut self, is_producer: bool, key: u32, to_service: bool, event: Event) {
        let arrival_ns = self.now.monotonic_ns + self.delay_ns();
        let link = self.links.entry((is_producer, key)).or_default();
        let last_ns = if to_service { &mut link.to_service_ns } else { &mut link.to_peer_ns };
        *last_ns = arrival_ns.max(*last_ns);
        let at_ns = *last_ns;
        self.schedule(at_ns, event);
    }

    /// A call of the service, whose work and outputs are bounded by what its peers have.
    pub(crate) fn call<R>(&mut self, call: impl FnOnce(&mut Service, &ClockReadings) -> R) -> R {
        let num_flushes = self.flushes.len() as u64;
        let before = self.service.looked_at();
        let result = call(&mut self.service, &self.now);
        let looked_at = self.service.looked_at() - before;
        let num_rows = (self.num_registered + 1) * (self.sessions.len() as u64 + 1);
        // A flush is looked at as its producer acknowledges it, and as it ends.
        let budget = 64 + 16 * num_rows + 2 * num_flushes;
        assert!(looked_at <= budget, "one turn has looked at {looked_at} rows, {budget} at most");
        result
    }

    /// Everything that is to be done after a call: outputs go to checkers and on their way, files
    /// get their steps.
    pub(crate) fn pump(&mut self) {
        loop {
            let mut num_outputs = 0;
            let num_rows = (self.num_registered + 1) * (self.sessions.len() as u64 + 1);
            let budget = 256 + 16 * num_rows + self.flushes.len() as u64;
            while let Some(output) = self.service.poll_output() {
                num_outputs += 1;
                assert!(num_outputs <= budget, "one turn has {num_outputs} outputs, {budget} at most");
                self.deliver(output);
            }
            self.note_file_clones();
            if let Some(work) = self.service.poll_clone() {
                // No thread that has a shard is stopped.
                let delay_ns = if work.holds_commits() { 50_000_000 } else { u64::MAX };
                let at_ns = self.now.monotonic_ns + self.delay_ns().min(delay_ns);
                self.schedule(at_ns, Event::Clone(work));
            }
            while self.service.poll_dropped().is_some() {}
            let Some(action) = self.service.poll_file() else { return };
            let at_ns = self.now.monotonic_ns + self.delay_ns();
            match action {
                FileAction::Write(session_id) => {
                    // Where commits wait for what a buffer has to know, it comes again.
                    if let Some(step) = self.call(|service, now| service.begin_write(session_id, now)) {
                        self.schedule(at_ns, Event::Written(step));
                    }
                }
                FileAction::Copy { from, to, offset_bytes, size_bytes } => {
                    let (begin, size) = (offset_bytes as usize, size_bytes as usize);
                    let bytes = self.files[&from][begin..][..size].to_vec();
                    self.take_of_file(to, &bytes);
                    self.files.entry(to).or_default().extend(bytes);
                    self.schedule(at_ns, Event::FileDone(to));
                }
                FileAction::Sync(session_id) | FileAction::Close(session_id) => {
                    self.schedule(at_ns, Event::FileDone(session_id));
                }
            }
        }
    }

    fn deliver(&mut self, output: Output) {
        match output {
            Output::Producer(id, command) => {
                // To one that has gone nothing is delivered.
                let Some(key) = self.key_of_producer.get(&id).copied() else { return };
                self.log(|| format!("p{key} <~ {}", short(&command)));
                self.check_command(key, &command);
                self.send(true, key, false, Event::ToProducer(key, command));
            }
            Output::Consumer(id, event) => {
                if let ConsumerEvent::FlushDone { flush_id, .. } = &event {
                    self.flushes.remove(flush_id);
                }
                let Some(key) = self.key_of_consumer.get(&id).copied() else { return };
                self.log(|| format!("c{key} <~ {event:?}"));
                self.check_event(key, &event);
                self.send(false, key, false, Event::ToConsumer(key, event));
            }
            Output::Warning(warning) => self.log(|| format!("warning: {warning}")),
        }
    }

    pub(crate) fn move_clocks(&mut self, ns: u64) {
        let now = &mut self.now;
        for clock in [
            &mut now.boottime_ns,
            &mut now.realtime_coarse_ns,
            &mut now.monotonic_coarse_ns,
            &mut now.realtime_ns,
            &mut now.monotonic_ns,
            &mut now.monotonic_raw_ns,
        ] {
            *clock += ns;
        }
    }

    /// The next thing in time: a timer of the service or an event. False if there is none before
    /// `end_ns`.
    pub(crate) fn step(&mut self, end_ns: u64) -> bool {
        let timer_ns = self.service.poll_timeout().wait_ns(&self.now);
        let timer_ns = timer_ns.map(|wait_ns| self.now.monotonic_ns + wait_ns);
        let event_ns = self.queue.first_key_value().map(|((at_ns, _), _)| *at_ns);
        let next_ns = timer_ns.into_iter().chain(event_ns).min();
        let Some(next_ns) = next_ns.filter(|next_ns| *next_ns <= end_ns) else { return false };
        self.move_clocks(next_ns.saturating_sub(self.now.monotonic_ns));
        let is_timer = timer_ns.is_some_and(|timer_ns| timer_ns <= next_ns);
        let is_event = event_ns.is_some_and(|event_ns| event_ns <= next_ns);
        if is_timer && !(is_event && self.choices.one_in(2)) {
            self.call(|service, now| service.handle_timeout(now));
            let wait_ns = self.service.poll_timeout().wait_ns(&self.now);
            assert_ne!(wait_ns, Some(0), "something is due after everything that is due");
        } else if let Some((_, event)) = self.queue.pop_first() {
            self.handle(event);
        }
        self.pump();
        true
    }

    /// All that happens within this time.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        let end_ns = self.now.monotonic_ns + ms * MS;
        while self.step(end_ns) {}
        self.move_clocks(end_ns.saturating_sub(self.now.monotonic_ns));
    }

    /// Shared memory that is still there.
    pub(crate) fn num_memories(&self) -> usize {
        let memories = self.memories.lock().expect("no thread panicked");
        memories.iter().filter(|memory| memory.strong_count() > 0).count()
    }

    pub(crate) fn note_memory(&mut self, memory: &Arc<SharedMemory>) {
        self.memories.lock().expect("no thread panicked").push(Arc::downgrade(memory));
    }

    /// Sessions that the service does not have any more are forgotten.
    pub(crate) fn forget_ended_sessions(&mut self) {
        let service = &self.service;
        self.sessions.retain(|id, _| service.session_state(*id).is_some());
        self.flushes.retain(|_, id| service.session_state(*id).is_some());
    }
}

fn short(command: &ProducerCommand) -> String {
    match command {
        ProducerCommand::SetupTracing { page_size_bytes, .. } => format!("SetupTracing {page_size_bytes}"),
        ProducerCommand::SetupDataSource { instance_id, .. } => format!("Setup {instance_id:?}"),
        ProducerCommand::StartDataSource { instance_id, .. } => format!("Start {instance_id:?}"),
        other => format!("{other:?}"),
    }
}
