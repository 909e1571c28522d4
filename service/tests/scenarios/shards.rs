//! Buffers of several shards: a trace is what one shard would have given, and what is lost is told.

use std::collections::BTreeMap;

use watershed_service::{ConsumerId, FlushFlags, ProducerHello, ProducerId, Reduced, ScrapingMode, Warning};
use watershed_smb::ChunkFlags;
use watershed_wire::protos::commit_data_request::{ChunkToPatch, chunk_to_patch::Patch};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{CommitDataRequest, TraceConfig, TracePacket, TraceStats};

use crate::support::config::{buffer, discard, one_source, source};
use crate::support::producer::packet;
use crate::support::trace::{Trace, sequence_id, text};
use crate::support::{World, hello};

const RING_KB: u32 = 16 << 10;
const DISCARD_KB: u32 = 2 << 10;

/// A session with a large ring, a DISCARD buffer and a small ring, and three producers that write
/// into all of them.
struct Session {
    world: World,
    consumer: ConsumerId,
    producers: Vec<ProducerId>,
    serial: u32,
    file: Vec<u8>,
    /// Packets whose patches are still to come: producer, writer, chunk, target buffer.
    unpatched: Vec<(ProducerId, u16, u32, u32)>,
}

impl Session {
    fn new(num_shards: usize) -> Session {
        let mut world = World::with_shards(num_shards);
        let producers = ["a", "b", "c"].map(|name| {
            let hello = ProducerHello { name: name.to_owned(), scraping: ScrapingMode::Enabled, ..hello() };
            let producer = world.connect_as(hello);
            world.register(producer, "src");
            producer
        });
        let config = TraceConfig {
            buffers: vec![buffer(RING_KB), discard(DISCARD_KB), buffer(64)],
            data_sources: vec![source("src", 0), source("src", 1), source("src", 2)],
            ..TraceConfig::default()
        };
        let (consumer, _) = world.enable(&config);
        let producers = producers.to_vec();
        Session { world, consumer, producers, serial: 0, file: Vec::new(), unpatched: Vec::new() }
    }

    fn next_packet(&mut self, random: &mut fastrand::Rng) -> Vec<u8> {
        self.serial += 1;
        packet(&format!("{} {}", self.serial, "x".repeat(random.usize(100..300))))
    }

    /// A chunk of whole packets by one of 24 writers, maybe scraped before it is complete.
    fn write(&mut self, random: &mut fastrand::Rng) {
        let producer = self.producers[random.usize(..self.producers.len())];
        let writer = random.u16(1..9);
        // A writer has one buffer.
        let index = if writer == 7 { 1 } else { usize::from(writer == 8) * 2 };
        let target = self.world.producers[&producer].target_buffer(index);
        self.world.service.handle_register_trace_writer(producer, u32::from(writer), target);
        let packets: Vec<_> = (0..random.usize(1..8)).map(|_| self.next_packet(random)).collect();
        let fake = self.world.producers.get_mut(&producer).expect("connected");
        let mut chunk = fake.chunk(writer).packets(&packets);
        match random.u32(0..12) {
            0 => {
                chunk = chunk.begun();
                let consumer = self.consumer;
                let now = self.world.now;
                let _ = self.world.service.handle_flush(consumer, 10, FlushFlags::EXPLICIT, &now);
                self.world.advance_ms(11);
                chunk = chunk.packet(&self.next_packet(random));
            }
            1 => {
                chunk = chunk.flags(ChunkFlags::NEEDS_PATCHING);
                self.unpatched.push((producer, writer, chunk.chunk_id(), target));
            }
            _ => {}
        }
        let mut request = chunk.move_to(target);
        if random.bool() {
            self.patch(random, producer, &mut request);
        }
        self.world.commit(producer, request);
    }

    /// The oldest patches that are still to come: those of the request's producer go with its
    /// chunks, others on their own.
    fn patch(&mut self, random: &mut fastrand::Rng, by: ProducerId, request: &mut CommitDataRequest) {
        while random.u32(0..4) != 0 && !self.unpatched.is_empty() {
            let (producer, writer, chunk_id, target) = self.unpatched.remove(0);
            let entry = ChunkToPatch {
                target_buffer: Some(target),
                writer_id: Some(u32::from(writer)),
                chunk_id: Some(chunk_id),
                patches: vec![Patch { offset: Some(60), data: Some(b"wxyz".to_vec()) }],
                ..Default::default()
            };
            if producer == by {
                request.chunks_to_patch.push(entry);
            } else {
                let alone = CommitDataRequest { chunks_to_patch: vec![entry], ..Default::default() };
                self.world.commit(producer, alone);
            }
        }
    }

    fn read(&mut self) {
        self.file.extend(self.world.read_bytes(self.consumer));
    }

    /// Everything that happened, as a trace.
    fn finish(mut self) -> Trace {
        self.world.disable(self.consumer).advance_ms(6000);
        self.read();
        Trace::parse(&self.file)
    }
}

/// What differs by definition is made equal: how buffers go round, and what that leaves unused.
fn comparable(trace: &Trace) -> Vec<TracePacket> {
    let mut packets = trace.packets.clone();
    for packet in &mut packets {
        if let Some(Data::TraceStats(stats)) = &mut packet.data {
            for buffer in &mut stats.buffer_stats {
                buffer.write_wrap_count = None;
                buffer.padding_bytes_written = None;
                buffer.padding_bytes_cleared = None;
            }
        }
    }
    packets
}

fn lived(num_shards: usize, seed: u64) -> Session {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut session = Session::new(num_shards);
    for _ in 0..1500 {
        match random.u32(0..100) {
            0..2 => session.read(),
            2..4 => {
                let producer = session.producers[random.usize(..session.producers.len())];
                session.world.service.handle_unregister_trace_writer(producer, random.u32(1..9));
            }
            4..6 => drop(session.world.advance_ms(random.u64(1..4000))),
            _ => session.write(&mut random),
        }
    }
    session
}

#[test]
fn any_number_of_shards_gives_the_same_trace() {
    for seed in 0..4 {
        let one = lived(1, seed).finish();
        let texts = one.texts().len();
        assert!(texts > 2000, "packets were written and read: {texts}");
        let ring = &last_stats(&one).buffer_stats[0];
        assert!(ring.patches_succeeded() > 10 && ring.chunks_rewritten() > 10, "{ring:?}");
        for num_shards in [2, 8] {
            let session = lived(num_shards, seed);
            let wanted = num_shards;
            let (discarding, small) =
                (reduced(wanted, 1, Reduced::Discard), reduced(wanted, 2, Reduced::TooSmall));
            let told: Vec<_> = session.world.warnings.iter().map(without_session).collect();
            assert_eq!(told, [discarding, small], "the large ring has as many as were asked for");
            assert!(comparable(&session.finish()) == comparable(&one), "{num_shards} shards, seed {seed}");
        }
    }
}

fn last_stats(trace: &Trace) -> &TraceStats {
    let stats = trace.packets.iter().rev().find_map(|packet| match &packet.data {
        Some(Data::TraceStats(stats)) => Some(stats),
        _ => None,
    });
    stats.expect("every trace ends with statistics")
}

fn reduced(wanted: usize, index: usize, reason: Reduced) -> (usize, usize, usize, Reduced) {
    (index, wanted, 1, reason)
}

fn without_session(warning: &Warning) -> (usize, usize, usize, Reduced) {
    match warning {
        Warning::FewerShards { index, wanted, num_shards, reason, .. } => {
            (*index, *wanted, *num_shards, *reason)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn one_seed_gives_one_trace_in_several_shards() {
    let [first, again] = [lived(8, 7), lived(8, 7)].map(|session| session.finish().packets);
    assert!(first == again);
}

/// Rings that go round: the newest stay, gaps are told where they are, and the statistics add up.
#[test]
fn what_a_full_ring_loses_is_told_in_any_number_of_shards() {
    for num_shards in [1, 2, 4] {
        let mut world = World::with_shards(num_shards);
        let producer = world.connect("p");
        world.register(producer, "src");
        let config = TraceConfig { buffers: vec![buffer(4 << 10)], ..one_source("src") };
        let (consumer, _) = world.enable(&config);
        assert!(world.warnings.is_empty(), "{:?}", world.warnings);
        let target = world.producers[&producer].target_buffer(0);
        let (mut random, mut written) = (fastrand::Rng::with_seed(3), BTreeMap::<u16, u32>::new());
        for _ in 0..9000 {
            // Half of all data is one writer's.
            let writer = if random.bool() { 1 } else { random.u16(2..20) };
            let serial = written.entry(writer).or_default();
            *serial += 1;
            let text = format!("{writer} {serial} {}", "y".repeat(900));
            world.write(producer, writer, target, &[packet(&text)]);
        }
        world.disable(consumer).advance_ms(6000);
        let trace = world.read(consumer);
        check_gaps(&trace, &written);

        let stats = &last_stats(&trace).buffer_stats[0];
        assert_eq!(stats.chunks_written(), 9000);
        assert_eq!(stats.chunks_written(), stats.chunks_read() + stats.chunks_overwritten());
        assert_eq!(stats.bytes_written(), stats.bytes_read() + stats.bytes_overwritten());
        assert_eq!(stats.chunks_read(), trace.texts().len() as u64);
        assert!(stats.write_wrap_count() >= 1, "{stats:?}");
        let kept = stats.bytes_read() as f64 / f64::from(4 << 20);
        assert!(
            kept > if num_shards == 1 { 0.99 } else { 0.7 },
            "{kept} of the ring is kept in {num_shards} shards"
        );
    }
}

fn check_gaps(trace: &Trace, written: &BTreeMap<u16, u32>) {
    let mut last = BTreeMap::<u16, u32>::new();
    for (packet, text) in trace.packets.iter().filter_map(|packet| Some((packet, text(packet)?))) {
        let mut words = text.split(' ').map(|word| word.parse::<u32>());
        let (Some(Ok(writer)), Some(Ok(serial))) = (words.next(), words.next()) else { panic!("{text}") };
        let before = last.insert(writer as u16, serial).unwrap_or(0);
        assert!(serial > before, "once, and in order");
        assert_eq!(
            packet.previous_packet_dropped() != 0,
            serial > before + 1,
            "writer {writer}, {before}, {serial}"
        );
        assert!(sequence_id(packet).is_some());
    }
    assert_eq!(last.get(&1), written.get(&1), "the newest data of the busiest writer is there");
}

#[test]
fn a_discard_buffer_ends_at_the_same_place() {
    let traces = [1, 8].map(|num_shards| {
        let mut world = World::with_shards(num_shards);
        let producer = world.connect("p");
        world.register(producer, "src");
        let config = TraceConfig { buffers: vec![discard(8 << 10)], ..one_source("src") };
        let (consumer, _) = world.enable(&config);
        let target = world.producers[&producer].target_buffer(0);
        for serial in 0..4000 {
            let text = format!("{serial} {}", "z".repeat(3000));
            world.write(producer, 1 + serial % 5, target, &[packet(&text)]);
        }
        world.disable(consumer).advance_ms(6000);
        let trace = world.read(consumer);
        assert!(last_stats(&trace).buffer_stats[0].chunks_discarded() > 100);
        trace.packets
    });
    assert!(traces[0] == traces[1]);
}
