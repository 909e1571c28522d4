//! Random lives of a whole service: producers that come, write, misbehave and die, consumers that
//! start, flush, read and leave, time that passes. Checked is what must hold whatever happens:
//! packets come whole, once, in order and with the right identity; sessions end; one seed gives one
//! history.

use std::collections::BTreeMap;

use proptest::prelude::*;
use watershed_service::{
    ConsumerId, FlushFlags, PeerIdentity, ProducerHello, ProducerId, ReadProgress, ScrapingMode, SessionState,
};
use watershed_wire::protos;
use watershed_wire::protos::TraceConfig;

use crate::support::config::{buffer, discard, one_source};
use crate::support::producer::{entry, moves, packet};
use crate::support::trace::{Trace, sequence_id, text, trusted_uid};
use crate::support::{World, hello};

const SOURCES: [&str; 3] = ["a", "b", "c"];

/// What the simulation knows about a session.
#[derive(Default)]
struct Reader {
    file: Vec<u8>,
    last_by_sequence: BTreeMap<u32, (String, u64)>,
}

struct Simulation {
    world: World,
    random: fastrand::Rng,
    producers: Vec<ProducerId>,
    consumers: Vec<ConsumerId>,
    readers: BTreeMap<ConsumerId, Reader>,
    uid_of_producer_name: BTreeMap<String, i32>,
    serial: u64,
    read: u64,
}

impl Simulation {
    fn new(seed: u64) -> Simulation {
        Simulation {
            world: World::with_seed(seed),
            random: fastrand::Rng::with_seed(seed),
            producers: Vec::new(),
            consumers: Vec::new(),
            readers: BTreeMap::new(),
            uid_of_producer_name: BTreeMap::new(),
            serial: 0,
            read: 0,
        }
    }

    fn pick<T: Copy>(random: &mut fastrand::Rng, from: &[T]) -> Option<T> {
        random.choice(from).copied()
    }

    fn step(&mut self) {
        match self.random.u32(0..100) {
            0..5 => self.connect(),
            5..8 => self.disconnect(),
            8..14 => self.enable(),
            14..17 => self.stop(),
            17..19 => self.free(),
            19..24 => self.flush(),
            24..34 => self.read(),
            34..44 => {
                let ms = self.random.u64(0..3000);
                self.world.advance_ms(ms);
            }
            44..50 => self.acknowledge(),
            50..55 => self.misbehave(),
            55..58 => self.reregister(),
            _ => self.write(),
        }
    }

    fn connect(&mut self) {
        if self.producers.len() > 5 {
            return;
        }
        self.serial += 1;
        let (name, uid) = (format!("p{}", self.serial), self.random.i32(-5..5));
        self.uid_of_producer_name.insert(name.clone(), uid);
        let scraping = if self.random.bool() { ScrapingMode::Enabled } else { ScrapingMode::Disabled };
        let identity = PeerIdentity { uid, pid: Some(1), ..Default::default() };
        let producer = self.world.connect_as(ProducerHello { name, identity, scraping, ..hello() });
        for name in SOURCES {
            if self.random.bool() {
                continue;
            }
            let descriptor = protos::DataSourceDescriptor {
                name: Some(name.to_owned()),
                will_notify_on_start: Some(self.random.bool()),
                will_notify_on_stop: Some(self.random.bool()),
                no_flush: Some(self.random.bool()),
                ..Default::default()
            };
            self.world.register_as(producer, descriptor);
        }
        self.producers.push(producer);
    }

    fn disconnect(&mut self) {
        if !self.producers.is_empty() {
            let producer = self.producers.swap_remove(self.random.usize(..self.producers.len()));
            self.world.disconnect(producer);
        }
    }

    fn enable(&mut self) {
        let consumer = self.world.consumer_of(self.random.i32(0..3));
        let buffers = (0..self.random.usize(1..3)).map(|_| {
            if self.random.bool() { buffer(self.random.u32(8..64)) } else { discard(self.random.u32(8..64)) }
        });
        let config = TraceConfig {
            buffers: buffers.collect(),
            duration_ms: self.random.bool().then(|| self.random.u32(1..20_000)),
            flush_period_ms: self.random.bool().then(|| self.random.u32(1..3000)),
            write_into_file: Some(self.random.u32(0..3) == 0),
            file_write_period_ms: Some(self.random.u32(1..12_000)),
            max_file_size_bytes: (self.random.u32(0..4) == 0).then(|| self.random.u64(1000..50_000)),
            deferred_start: Some(self.random.u32(0..5) == 0),
            ..one_source(SOURCES[self.random.usize(..SOURCES.len())])
        };
        if self.world.try_enable(consumer, &config).is_ok() {
            self.consumers.push(consumer);
            self.readers.insert(consumer, Reader::default());
        }
    }

    fn stop(&mut self) {
        if let Some(consumer) = Self::pick(&mut self.random, &self.consumers) {
            self.world.disable(consumer);
        }
    }

    fn free(&mut self) {
        if !self.consumers.is_empty() {
            let consumer = self.consumers.swap_remove(self.random.usize(..self.consumers.len()));
            if self.random.bool() {
                self.world.free(consumer);
            } else {
                self.world.service.handle_consumer_disconnect(consumer, &self.world.now);
                self.world.run_due();
            }
            assert_eq!(self.world.service.session_of(consumer), None);
        }
    }

    fn flush(&mut self) {
        if let Some(consumer) = Self::pick(&mut self.random, &self.consumers) {
            let timeout_ms = self.random.u32(0..3000);
            let _ =
                self.world.service.handle_flush(consumer, timeout_ms, FlushFlags::EXPLICIT, &self.world.now);
            self.world.service.handle_start_tracing(consumer, &self.world.now);
            self.world.run_due();
        }
    }

    fn acknowledge(&mut self) {
        if let Some(producer) = Self::pick(&mut self.random, &self.producers) {
            if self.world.producers[&producer].last_flush.is_some() {
                self.world.acknowledge_flush(producer);
            }
            for (instance, _) in self.world.producers[&producer].instances.clone() {
                self.world.service.handle_data_source_started(producer, instance, &self.world.now);
                self.world.service.handle_data_source_stopped(producer, instance, &self.world.now);
            }
            self.world.run_due();
        }
    }

    fn reregister(&mut self) {
        if let Some(producer) = Self::pick(&mut self.random, &self.producers) {
            let name = SOURCES[self.random.usize(..SOURCES.len())];
            self.world.service.handle_unregister_data_source(producer, name, &self.world.now);
            self.world.register(producer, name).run_due();
        }
    }

    /// A packet that says who wrote it, and the how manieth it is.
    fn write(&mut self) {
        let Some(producer) = Self::pick(&mut self.random, &self.producers) else { return };
        let name = self
            .world
            .service
            .producers()
            .find(|p| p.producer_id == producer)
            .expect("connected")
            .name
            .to_owned();
        let fake = &self.world.producers[&producer];
        let Some((_, config)) = self.random.choice(&fake.instances).cloned() else { return };
        // One writer for each buffer, as clients have it.
        let target = config.target_buffer();
        let writer = u16::try_from(target).expect("small");
        if self.random.bool() {
            self.world.service.handle_register_trace_writer(producer, u32::from(writer), target);
        }
        let packets: Vec<Vec<u8>> = (0..self.random.usize(1..4))
            .map(|_| {
                self.serial += 1;
                packet(&format!("{name}/{writer} {} {}", self.serial, "w".repeat(self.random.usize(..300))))
            })
            .collect();
        let fake = self.world.producers.get_mut(&producer).expect("connected");
        let mut chunk = fake.chunk(writer).packets(&packets);
        if self.random.u32(0..4) == 0 {
            // Scraped half-way, maybe.
            chunk = chunk.begun();
            self.flush();
            if !self.world.producers.contains_key(&producer) {
                return;
            }
            chunk = chunk.settled();
        }
        let request = chunk.move_to(target);
        self.world.commit(producer, request);
    }

    fn misbehave(&mut self) {
        let Some(producer) = Self::pick(&mut self.random, &self.producers) else { return };
        if self.world.producers[&producer].smb.is_none() {
            return;
        }
        let random = &mut self.random;
        let place = || entry(0, 0, 0);
        let mut request = moves((0..5).map(|_| place()).collect());
        for entry in &mut request.chunks_to_move {
            entry.page = Some(random.u32(0..70));
            entry.chunk = Some(random.u32(0..3));
            entry.target_buffer = Some(random.u32(0..20));
            entry.data = (random.u32(0..3) == 0).then(|| {
                // Any header but that of a writer that the simulation uses.
                let mut bytes = vec![0; random.usize(0..100)];
                random.fill(&mut bytes);
                if bytes.len() > 5 {
                    bytes[5] = 0x80;
                }
                bytes
            });
        }
        request.flush_request_id = Some(random.u64(0..100));
        request.chunks_to_patch = vec![protos::commit_data_request::ChunkToPatch {
            target_buffer: Some(random.u32(0..20)),
            writer_id: Some(random.u32(30_000..40_000)),
            ..Default::default()
        }];
        self.world.commit(producer, request);
        self.world.run_due();
    }

    fn read(&mut self) {
        let Some(consumer) = Self::pick(&mut self.random, &self.consumers) else { return };
        let mut bytes = Vec::new();
        while self.world.service.read_framed(consumer, &mut bytes, &self.world.now) == ReadProgress::More {}
        self.check(consumer, &bytes);
    }

    fn check(&mut self, consumer: ConsumerId, bytes: &[u8]) {
        let reader = self.readers.get_mut(&consumer).expect("every session has one");
        reader.file.extend_from_slice(bytes);
        for packet in &Trace::parse_hostile(bytes).packets {
            let Some(text) = text(packet) else { continue };
            let mut words = text.split(' ');
            let (writer, serial) = (words.next().expect("a writer"), words.next().expect("a number"));
            let serial: u64 = serial.parse().expect("a number");
            let name = writer.split('/').next().expect("a producer");
            assert_eq!(
                trusted_uid(packet),
                self.uid_of_producer_name.get(name).copied(),
                "identity of {text}"
            );
            let sequence = sequence_id(packet).expect("stamped");
            let last = reader.last_by_sequence.insert(sequence, (writer.to_owned(), serial));
            if let Some((last_writer, last_serial)) = last {
                assert_eq!(last_writer, writer, "one sequence, one writer");
                assert!(last_serial < serial, "once, and in order");
            }
            self.read += 1;
        }
    }

    /// Everybody goes: nothing may be left, and files have what they should.
    fn finish(mut self) -> (u64, Vec<Vec<u8>>) {
        let sessions: Vec<_> =
            self.consumers.iter().filter_map(|id| self.world.service.session_of(*id)).collect();
        for consumer in std::mem::take(&mut self.consumers) {
            self.world.disable(consumer).advance_ms(6000);
            let session = self.world.service.session_of(consumer).expect("not freed");
            assert_eq!(self.world.service.session_state(session), Some(SessionState::Disabled));
            let mut bytes = Vec::new();
            while self.world.service.read_framed(consumer, &mut bytes, &self.world.now) == ReadProgress::More
            {
            }
            self.check(consumer, &bytes);
            self.world.free(consumer);
        }
        assert!(sessions.iter().all(|session| self.world.service.session_state(*session).is_none()));
        assert_eq!(self.world.service.poll_timeout(), Default::default(), "nothing left to wait for");
        for file in self.world.files.values() {
            assert!(file.closed);
            Trace::parse_hostile(&file.bytes);
        }
        let files = self.world.files.into_values().map(|file| file.bytes);
        let reads = self.readers.into_values().map(|reader| reader.file);
        (self.read, files.chain(reads).collect())
    }
}

fn run(seed: u64, steps: usize) -> (u64, Vec<Vec<u8>>) {
    let mut simulation = Simulation::new(seed);
    for _ in 0..steps {
        simulation.step();
    }
    simulation.finish()
}

proptest! {
    // `PROPTEST_CASES` in the environment makes it longer.
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(20),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens(seed: u64) {
        run(seed, 500);
    }
}

#[test]
fn one_seed_gives_one_history() {
    let first = run(11, 1200);
    assert!(first.0 > 300, "the simulation reads packets: {}", first.0);
    assert!(first == run(11, 1200), "the same seed gave another history");
    assert!(first != run(12, 1200));
}
