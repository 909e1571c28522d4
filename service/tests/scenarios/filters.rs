//! Trace filters: what of a session's packets gets into its trace, its file and its clones.

use prost::Message;
use watershed_service::{CloneRequest, CloneSource, ConsumerId, ProducerId, SessionId};
use watershed_wire::protos::trace_config::TraceFilter;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{self, TraceConfig};

use crate::support::World;
use crate::support::config::one_source;
use crate::support::producer::packet;
use crate::support::trace::Trace;

/// Lower half of FNV-1a with 64 bits over the words of a program.
fn checksum(words: &[u32]) -> u32 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        as u32
}

/// Of packets the test event (900) with its string (1), who wrote it (10), the config (33) and the
/// time (8): no uid, no pid, no other packets of the service.
fn filter() -> TraceFilter {
    let packet = [8 << 3 | 1, 10 << 3 | 1, 33 << 3 | 1, 900 << 3 | 3, 2, 0];
    let words = [&[1 << 3 | 3, 1, 0][..], &packet, &[1 << 3 | 1, 0]].concat();
    let mut bytecode = Vec::new();
    for word in words.iter().chain([&checksum(&words)]) {
        prost::encoding::encode_varint(u64::from(*word), &mut bytecode);
    }
    TraceFilter { bytecode: Some(bytecode), ..Default::default() }
}

fn world(config: &TraceConfig) -> (World, ProducerId, ConsumerId, SessionId) {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, session) = world.enable(config);
    let target = world.producers[&producer].target_buffer(0);
    let event = protos::TestEvent { str: Some("b".to_owned()), seq_value: Some(7), ..Default::default() };
    let more =
        protos::TracePacket { data: Some(Data::ForTesting(event)), timestamp: Some(5), ..Default::default() };
    let other = protos::TracePacket { timestamp: Some(6), ..Default::default() };
    let hidden =
        protos::TracePacket { data: Some(Data::ProcessStats(Default::default())), ..Default::default() };
    let packets = [packet("a"), more.encode_to_vec(), other.encode_to_vec(), hidden.encode_to_vec()];
    world.write(producer, 1, target, &packets);
    (world, producer, consumer, session)
}

/// Only what the filter allows is there, in each packet, and the statistics.
fn check(trace: &Trace) {
    assert_eq!(trace.texts(), ["a", "b"]);
    let is_stats = |packet: &&protos::TracePacket| matches!(packet.data, Some(Data::TraceStats(_)));
    for packet in trace.packets.iter().filter(|packet| !is_stats(packet)) {
        assert_eq!((packet.optional_trusted_uid, packet.trusted_pid), (None, None), "{packet:?}");
        match &packet.data {
            Some(Data::ForTesting(event)) => assert_eq!(event.seq_value, None),
            Some(Data::TraceConfig(_)) | None => {}
            Some(other) => panic!("{other:?}"),
        }
    }
    assert!(trace.kinds().contains(&"trace_config"));
    let id = |text| crate::support::trace::sequence_id(trace.saying(text));
    assert_eq!((id("a"), id("b")), (Some(2), Some(2)));
    let stats = trace.stats().and_then(|stats| stats.filter_stats.as_ref()).expect("counters of the filter");
    let packets = trace.packets.len() as u64;
    assert_eq!(stats.input_packets(), packets - 1, "all but the statistics: {stats:?}");
    assert_eq!(stats.errors(), 0);
    assert!(stats.output_bytes() > 0 && stats.output_bytes() < stats.input_bytes());
    let [of_buffer] = stats.bytes_discarded_per_buffer[..] else { panic!("{stats:?}") };
    assert!(of_buffer > 0 && of_buffer < stats.input_bytes() - stats.output_bytes());
    assert_eq!(stats.time_taken_ns(), 2 * packets - 2, "by the clock of these tests: {stats:?}");
}

#[test]
fn packets_have_only_what_the_filter_allows() {
    let config = TraceConfig { trace_filter: Some(filter()), ..one_source("src") };
    let (mut run, _, consumer, _) = world(&config);
    run.disable(consumer);
    let trace = run.read(consumer);
    check(&trace);
    // In pieces of a consumer it is the same, and empty packets count as packets.
    let (mut run, _, consumer, _) = world(&config);
    run.disable(consumer);
    let packets = run.read_batches(consumer);
    let decoded = packets.iter().map(|packet| protos::TracePacket::decode(&packet[..]).expect("a packet"));
    assert_eq!(decoded.collect::<Vec<_>>(), trace.packets);
}

#[test]
fn the_file_has_only_what_the_filter_allows() {
    let config =
        TraceConfig { trace_filter: Some(filter()), write_into_file: Some(true), ..one_source("src") };
    let (mut world, _, consumer, session) = world(&config);
    world.disable(consumer);
    check(&Trace::parse(&world.files[&session].bytes));
}

#[test]
fn a_clone_is_filtered_unless_it_is_to_have_everything() {
    let config = TraceConfig { trace_filter: Some(filter()), bugreport_score: Some(1), ..one_source("src") };
    for (source, skip_filter, is_filtered) in
        [(None, false, true), (None, true, false), (Some(CloneSource::ForBugreport), false, false)]
    {
        let (mut world, producer, _, session) = world(&config);
        let source = source.unwrap_or(CloneSource::Session(session));
        let request =
            CloneRequest { source, for_bugreport: false, skip_filter, trigger: None, into_file: false };
        let consumer = world.consumer();
        let now = world.now;
        world.service.handle_clone_session(consumer, request, false, &now).expect("allowed");
        world.acknowledge_flush(producer);
        let trace = world.read(consumer);
        match is_filtered {
            true => check(&trace),
            false => {
                assert!(crate::support::trace::trusted_uid(trace.saying("a")).is_some());
                assert_eq!(trace.stats().expect("statistics").filter_stats, None);
            }
        }
    }
}
