//! What the service itself writes into a trace, in which order, and what it does to producers'
//! packets.

use crate::support::config::{buffer, one_source};
use crate::support::producer::packet;
use crate::support::trace::{Trace, sequence_id, trusted_uid};
use crate::support::{MS, SERVICE_UID, World};
use prost::Message;
use watershed_engine::LossReasons;
use watershed_service::{ConsumerId, ProducerId};
use watershed_smb::ChunkFlags;
use watershed_wire::protos;
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::BuiltinDataSource;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::tracing_service_event::EventType;

/// A session with one producer, and where it writes.
fn recording(world: &mut World, config: &TraceConfig) -> (ConsumerId, ProducerId, u32) {
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, _) = world.enable(config);
    (consumer, producer, world.producers[&producer].target_buffer(0))
}

fn with_builtin(builtin: BuiltinDataSource) -> TraceConfig {
    TraceConfig { builtin_data_sources: Some(builtin), ..one_source("src") }
}

#[test]
fn the_order_of_a_whole_trace() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world, &one_source("src"));
    world.write(producer, 1, target, &[packet("data")]).advance_ms(1);
    world.disable(consumer);
    let trace = world.read(consumer);
    assert_eq!(
        trace.kinds(),
        [
            "clock_snapshot", // initial
            "clock_snapshot", // the first of the drift ring
            "synchronization_marker",
            "trace_config",
            "trace_uuid",
            "trace_provenance",
            "system_info",
            "tracing_started",
            "all_data_sources_started",
            "tracing_disabled",
            "for_testing",
            "read_tracing_buffers_completed",
            "trace_stats",
        ]
    );
    // A second read has only what is new.
    assert_eq!(world.read(consumer).kinds(), ["read_tracing_buffers_completed"]);
}

#[test]
fn a_read_while_recording_repeats_what_the_interval_asks_for() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world, &one_source("src"));
    world.read(consumer);
    world.write(producer, 1, target, &[packet("data")]);
    assert_eq!(world.read(consumer).kinds(), ["for_testing", "read_tracing_buffers_completed"]);
    // At the next multiple of ten seconds.
    world.advance_ms(5000);
    assert_eq!(
        world.read(consumer).kinds(),
        ["clock_snapshot", "synchronization_marker", "read_tracing_buffers_completed", "trace_stats"]
    );
}

#[test]
fn the_last_read_has_the_last_statistics() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world, &one_source("src"));
    assert!(world.read(consumer).stats().is_some());
    world.write(producer, 1, target, &[packet("data")]);
    world.disable(consumer);
    let trace = world.read(consumer);
    assert_eq!(trace.stats().expect("statistics").buffer_stats[0].chunks_written(), 1);
    assert!(world.read(consumer).stats().is_none(), "once");
    // A session that never started has nothing to say.
    let (consumer, _) = world.enable(&TraceConfig { deferred_start: Some(true), ..TraceConfig::default() });
    world.disable(consumer);
    assert!(world.read(consumer).stats().is_none());
}

#[test]
fn every_packet_of_the_service_says_who_wrote_it() {
    let mut world = World::new();
    let (consumer, ..) = recording(&mut world, &one_source("src"));
    world.disable(consumer);
    for packet in world.read(consumer).packets {
        assert_eq!(trusted_uid(&packet), Some(SERVICE_UID));
        assert_eq!(sequence_id(&packet), Some(1));
        assert_eq!(packet.trusted_pid, None);
        let is_marker = matches!(packet.data, Some(Data::SynchronizationMarker(_)));
        assert_eq!(packet.timestamp_clock_id, (!is_marker).then_some(6));
    }
}

#[test]
fn the_sync_marker_ends_its_packet() {
    let mut world = World::new();
    let (consumer, ..) = recording(&mut world, &one_source("src"));
    let packets = world.read_batches(consumer);
    let marker = watershed_service::SYNC_MARKER;
    let found: Vec<_> = packets.iter().filter(|packet| packet.ends_with(&marker)).collect();
    let mut expected = vec![0x18];
    prost::encoding::encode_varint(SERVICE_UID as u64, &mut expected);
    expected.extend_from_slice(&[0x50, 1, 0xa2, 2, 16]);
    expected.extend_from_slice(&marker);
    assert_eq!(found, [&expected]);
}

#[test]
fn clock_snapshots() {
    let mut world = World::new();
    let builtin = BuiltinDataSource { primary_trace_clock: Some(3), ..Default::default() };
    let (consumer, ..) = recording(&mut world, &with_builtin(builtin));
    let trace = world.read(consumer);
    let [initial, first] = trace.clock_snapshots()[..] else { panic!("{:?}", trace.kinds()) };
    assert_eq!(initial, first, "taken at one time");
    assert_eq!(initial.primary_trace_clock, Some(3));
    let readings: Vec<(u32, u64)> =
        initial.clocks.iter().map(|clock| (clock.clock_id(), clock.timestamp())).collect();
    let now = world.now;
    assert_eq!(
        readings,
        [
            (6, now.boottime_ns),
            (2, now.realtime_coarse_ns),
            (4, now.monotonic_coarse_ns),
            (1, now.realtime_ns),
            (3, now.monotonic_ns),
            (5, now.monotonic_raw_ns),
            (9, 123),
        ]
    );
}

#[test]
fn a_clock_that_drifts_is_noted_once() {
    let mut world = World::new();
    let (consumer, ..) = recording(&mut world, &one_source("src"));
    // Nothing was read yet, so the ring has the snapshot of the start, and the same again tells
    // nothing.
    world.advance_ms(30_000);
    assert_eq!(world.read(consumer).clock_snapshots().len(), 2);
    world.advance_ms(10_000);
    world.now.realtime_ns += 9 * MS;
    world.advance_ms(10_000);
    world.now.realtime_ns += MS;
    world.advance_ms(10_000);
    assert_eq!(
        world.read(consumer).clock_snapshots().len(),
        2,
        "the first, and the one after 10 ms of drift"
    );
}

#[test]
fn clocks_are_noted_at_the_turns_of_a_sessions_life() {
    let mut world = World::new();
    let producer = world.connect("p");
    let notifying = protos::DataSourceDescriptor {
        name: Some("src".to_owned()),
        will_notify_on_start: Some(true),
        ..Default::default()
    };
    world.register_as(producer, notifying);
    let (consumer, _) = world.enable(&one_source("src"));
    world.read(consumer);
    let drifted = |world: &mut World, turn: fn(&mut World, ConsumerId, ProducerId)| {
        world.now.realtime_ns += 50 * MS;
        turn(world, consumer, producer);
        world.read(consumer).clock_snapshots().len()
    };
    assert_eq!(drifted(&mut world, |_, _, _| {}), 0);
    let all_started = |world: &mut World, _, producer| {
        let instance = world.producers[&producer].instances[0].0;
        world.service.handle_data_source_started(producer, instance, &world.now);
    };
    assert_eq!(drifted(&mut world, all_started), 1);
    let flushed = |world: &mut World, consumer, producer| {
        let flags = watershed_service::FlushFlags::EXPLICIT;
        world.service.handle_flush(consumer, 0, flags, &world.now).expect("the flush begins");
        world.acknowledge_flush(producer);
    };
    assert_eq!(drifted(&mut world, flushed), 1);
    let disabled = |world: &mut World, consumer, _| {
        world.disable(consumer);
    };
    assert_eq!(drifted(&mut world, disabled), 1);
}

#[test]
fn events_come_in_the_order_of_their_time() {
    let mut world = World::new();
    let producer = world.connect("p");
    let notifying = protos::DataSourceDescriptor {
        name: Some("src".to_owned()),
        will_notify_on_start: Some(true),
        no_flush: Some(true),
        ..Default::default()
    };
    world.register_as(producer, notifying);
    let (consumer, _) = world.enable(&TraceConfig { flush_period_ms: Some(100), ..one_source("src") });
    world.advance_ms(250);
    let instance = world.producers[&producer].instances[0].0;
    world.service.handle_data_source_started(producer, instance, &world.now);
    world.advance_ms(100);
    let trace = world.read(consumer);
    let of_life =
        trace.kinds().into_iter().filter(|kind| kind.starts_with("flush") || kind.starts_with("all_data"));
    let (flush, flushed) = ("flush_started", "all_data_sources_flushed");
    assert_eq!(
        of_life.collect::<Vec<_>>(),
        [flush, flushed, flush, flushed, "all_data_sources_started", flush, flushed]
    );
}

#[test]
fn at_most_sixteen_snapshots_wait() {
    let mut world = World::new();
    let (consumer, ..) = recording(&mut world, &one_source("src"));
    world.read(consumer);
    for _ in 0..20 {
        world.now.realtime_ns += 50 * MS;
        world.advance_ms(10_000);
    }
    let trace = world.read(consumer);
    assert_eq!(trace.clock_snapshots().len(), 16);
    let realtime = |index: usize| trace.clock_snapshots()[index].clocks[3].timestamp();
    assert!(realtime(0) < realtime(15), "the latest, in order");
}

#[test]
fn what_is_disabled_is_not_there() {
    let all = |builtin| {
        let mut world = World::new();
        let (consumer, ..) = recording(&mut world, &with_builtin(builtin));
        world.disable(consumer);
        world.read(consumer).kinds().join(" ")
    };
    let nothing = BuiltinDataSource::default;
    assert!(
        !all(BuiltinDataSource { disable_clock_snapshotting: Some(true), ..nothing() })
            .contains("clock_snapshot")
    );
    assert!(
        !all(BuiltinDataSource { disable_trace_config: Some(true), ..nothing() }).contains("trace_config")
    );
    assert!(!all(BuiltinDataSource { disable_system_info: Some(true), ..nothing() }).contains("system_info"));
    let without_events = all(BuiltinDataSource { disable_service_events: Some(true), ..nothing() });
    assert!(!without_events.contains("started") && !without_events.contains("completed"), "{without_events}");
}

#[test]
fn uuids_are_given_or_random() {
    let uuid = |seed, config: &TraceConfig| {
        let mut world = World::with_seed(seed);
        let (consumer, _) = world.enable(config);
        let trace = world.read(consumer);
        let found = trace.packets.iter().find_map(|packet| match &packet.data {
            Some(Data::TraceUuid(uuid)) => Some((uuid.msb(), uuid.lsb())),
            _ => None,
        });
        found.expect("a uuid")
    };
    let given = TraceConfig { trace_uuid_msb: Some(-5), trace_uuid_lsb: Some(6), ..TraceConfig::default() };
    assert_eq!(uuid(1, &given), (-5, 6));
    assert_eq!(uuid(1, &TraceConfig::default()), uuid(1, &TraceConfig::default()), "one seed, one trace");
    assert_ne!(uuid(1, &TraceConfig::default()), uuid(2, &TraceConfig::default()));
}

#[test]
fn system_info_names_machine_and_version() {
    let mut world = World::new();
    let (consumer, _) = world.enable(&TraceConfig::default());
    let trace = world.read(consumer);
    let info = trace.packets.iter().find_map(|packet| match &packet.data {
        Some(Data::SystemInfo(info)) => Some(info),
        _ => None,
    });
    let info = info.expect("system info");
    assert_eq!(info.tracing_service_version(), "Perfetto v58.0-test");
    assert_eq!((info.page_size(), info.num_cpus(), info.system_ram_bytes), (4096, 2, None));
    let utsname = info.utsname.as_ref().expect("names");
    assert_eq!((utsname.sysname(), utsname.machine(), utsname.version.as_deref()), ("Linux", "x86_64", None));
}

#[test]
fn provenance_lists_who_wrote_before_the_first_read() {
    let mut world = World::new();
    let (consumer, producer, target) =
        recording(&mut world, &TraceConfig { buffers: vec![buffer(64), buffer(64)], ..one_source("src") });
    world.write(producer, 7, target, &[packet("a")]).write(producer, 3, target, &[packet("b")]);
    let trace = world.read(consumer);
    let listed = trace.packets.iter().find_map(|packet| match &packet.data {
        Some(Data::TraceProvenance(provenance)) => Some((packet.timestamp(), provenance)),
        _ => None,
    });
    let (at_ns, provenance) = listed.expect("provenance");
    assert_eq!(at_ns, world.now.boottime_ns);
    let mut ids: Vec<_> = provenance.buffers[0].sequences.iter().map(|s| (s.id(), s.producer_id())).collect();
    ids.sort_unstable();
    assert_eq!(ids, [(2, 1), (3, 1)]);
    assert!(provenance.buffers[1].sequences.is_empty());
    let mut used = [sequence_id(trace.saying("a")), sequence_id(trace.saying("b"))];
    used.sort_unstable();
    assert_eq!(used, [Some(2), Some(3)]);
}

#[test]
fn lifecycle_events_carry_their_own_time() {
    let mut world = World::new();
    let (consumer, ..) =
        recording(&mut world, &TraceConfig { flush_period_ms: Some(100), ..one_source("src") });
    let begin_ns = world.now.boottime_ns;
    // Nobody acknowledges; the flushes begin at 5.1 s, 5.2 s, ... on the monotonic clock, 2 s
    // earlier than boot time.
    world.advance_ms(250);
    world.disable(consumer);
    let trace = world.read(consumer);
    assert_eq!(
        trace.events(),
        [
            (begin_ns, EventType::TracingStarted(true)),
            (begin_ns, EventType::AllDataSourcesStarted(true)),
            (begin_ns + 100 * MS, EventType::FlushStarted(true)),
            (begin_ns + 200 * MS, EventType::FlushStarted(true)),
            (begin_ns + 250 * MS, EventType::TracingDisabled(true)),
            (world.now.boottime_ns, EventType::ReadTracingBuffersCompleted(true)),
        ]
    );
}

#[test]
fn other_sessions_are_noted_by_those_who_want_it() {
    let mut world = World::new();
    let builtin = BuiltinDataSource { enable_concurrent_session_events: Some(true), ..Default::default() };
    let (watcher, _) =
        world.enable(&TraceConfig { builtin_data_sources: Some(builtin), ..TraceConfig::default() });
    let (other, _) = world
        .enable(&TraceConfig { unique_session_name: Some("other".to_owned()), ..TraceConfig::default() });
    world.disable(other);
    let trace = world.read(watcher);
    let states = trace.packets.iter().filter_map(|packet| match &packet.data {
        Some(Data::ConcurrentSessionEvent(event)) => {
            assert_eq!((event.session_name(), event.session_id(), event.consumer_uid()), ("other", 2, 1000));
            Some(event.state.unwrap_or_default())
        }
        _ => None,
    });
    assert_eq!(states.collect::<Vec<_>>(), [2, 3, 1], "configured, started, disabled");
}

#[test]
fn producers_packets_are_stamped() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world, &one_source("src"));
    // The first read lists sequences, which gives them numbers; later ones get theirs when they are
    // read.
    world.read(consumer);
    world.write(producer, 9, target, &[packet("a"), packet("b")]).write(producer, 4, target, &[packet("c")]);
    let packets = world.read_batches(consumer);
    let of = |text: &str| {
        let plain = packet(text);
        packets.iter().find(|packet| packet.starts_with(&plain)).expect("there")[plain.len()..].to_vec()
    };
    // trusted_uid 77, trusted_packet_sequence_id 2, trusted_pid 1234; in this order, behind
    // everything else.
    assert_eq!(of("a"), [0x18, 77, 0x50, 2, 0xf8, 0x04, 0xd2, 0x09]);
    assert_eq!(of("b"), of("a"));
    assert_eq!(of("c"), [0x18, 77, 0x50, 3, 0xf8, 0x04, 0xd2, 0x09]);
}

#[test]
fn a_negative_uid_an_unknown_pid_and_another_machine() {
    let mut world = World::new();
    let identity =
        watershed_service::PeerIdentity { uid: -1, pid: None, machine_id: 5, machine_name: "vm".to_owned() };
    let producer = world.connect_as(watershed_service::ProducerHello { identity, ..crate::support::hello() });
    world.register(producer, "src");
    let (consumer, _) = world.enable(&TraceConfig { trace_all_machines: Some(true), ..one_source("src") });
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("far")]);
    let trace = world.read(consumer);
    let far = trace.saying("far");
    assert_eq!((trusted_uid(far), far.trusted_pid, far.machine_id), (Some(-1), None, Some(5)));
}

#[test]
fn packets_with_reserved_fields_are_dropped() {
    for number in watershed_service::RESERVED_FIELDS {
        let mut world = World::new();
        let (consumer, producer, target) = recording(&mut world, &one_source("src"));
        let mut forged = packet("forged");
        prost::encoding::uint32::encode(number, &1, &mut forged);
        world.write(producer, 1, target, &[packet("before"), forged, packet("after")]);
        let trace = world.read(consumer);
        assert_eq!(trace.texts(), ["before", "after"], "field {number}");
        assert_eq!(trace.stats().expect("statistics").invalid_packets(), 1);
        assert_eq!(trace.saying("after").previous_packet_dropped, None, "nothing was lost on the way");
    }
}

#[test]
fn packets_that_are_no_messages_are_dropped() {
    let cases: [(&str, Vec<u8>); 5] = [
        ("group", vec![0x0b, 0x0c]),
        ("varint of eleven bytes", [vec![0x40], vec![0x80; 10], vec![0]].concat()),
        ("ends in a tag", vec![0x80]),
        ("ends in a value", vec![0x0a, 5, 1]),
        ("length beyond 2^28", vec![0x0a, 0x80, 0x80, 0x80, 0x80, 0x01]),
    ];
    for (what, bytes) in cases {
        let mut world = World::new();
        let (consumer, producer, target) = recording(&mut world, &one_source("src"));
        world.write(producer, 1, target, &[bytes, packet("good")]);
        let trace = world.read(consumer);
        assert_eq!(trace.texts(), ["good"], "{what}");
        assert_eq!(trace.stats().expect("statistics").invalid_packets(), 1, "{what}");
    }
}

#[test]
fn fields_that_a_producer_may_write_pass() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world, &one_source("src"));
    let uuid = protos::TraceUuid { msb: Some(1), lsb: Some(2) };
    let clocks = protos::ClockSnapshot::default();
    let of = |data| protos::TracePacket { data: Some(data), ..Default::default() }.encode_to_vec();
    world.write(producer, 1, target, &[of(Data::TraceUuid(uuid)), of(Data::ClockSnapshot(clocks))]);
    let trace = world.read(consumer);
    let of_producer: Vec<_> = trace.packets.iter().filter(|packet| sequence_id(packet) == Some(2)).collect();
    assert_eq!(of_producer.len(), 2);
}

#[test]
fn loss_is_told_with_the_next_packet_of_the_sequence_and_once() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world, &one_source("src"));
    world.write(producer, 1, target, &[packet("zero")]);
    world.read(consumer);
    // Chunk 1 never arrives.
    let lost = world.producers.get_mut(&producer).expect("connected").chunk(1);
    drop(lost);
    world.write(producer, 2, target, &[packet("other")]);
    world.write(producer, 1, target, &[packet("two"), packet("three")]);
    let trace = world.read(consumer);
    assert_eq!(trace.saying("two").previous_packet_dropped(), 1 | 2, "present, read gap");
    assert_eq!(trace.saying("three").previous_packet_dropped, None);
    assert_eq!(trace.saying("other").previous_packet_dropped, None);
}

#[test]
fn loss_stays_pending_when_the_packet_that_carried_it_is_dropped() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world, &one_source("src"));
    world.write(producer, 1, target, &[packet("zero")]);
    world.read(consumer);
    drop(world.producers.get_mut(&producer).expect("connected").chunk(1));
    let invalid = vec![0x18, 1];
    world.write(producer, 1, target, std::slice::from_ref(&invalid));
    // Nothing good in this read: the loss waits over it.
    let trace = world.read(consumer);
    assert!(trace.texts().is_empty());
    world.write(producer, 1, target, &[invalid, packet("good"), packet("next")]);
    let trace = world.read(consumer);
    assert_eq!(trace.saying("good").previous_packet_dropped(), 1 | 2);
    assert_eq!(trace.saying("next").previous_packet_dropped, None);
}

#[test]
fn loss_that_the_writer_tells_is_kept_unless_the_service_knows_more() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world, &one_source("src"));
    let from_writer = |text: &str| {
        let mut bytes = packet(text);
        prost::encoding::uint32::encode(42, &(1 | 256), &mut bytes);
        bytes
    };
    world.write(producer, 1, target, &[from_writer("first")]);
    world.read(consumer);
    world.write(producer, 1, target, &[from_writer("second")]);
    let lost = world.producers.get_mut(&producer).expect("connected").chunk(1);
    drop(lost);
    world.write(producer, 1, target, &[from_writer("third")]);
    let trace = world.read(consumer);
    assert_eq!(trace.saying("second").previous_packet_dropped(), 1 | 256);
    let of_gap = LossReasons(1 | 2);
    assert_eq!(trace.saying("third").previous_packet_dropped(), of_gap.0);
}

#[test]
fn packets_over_several_chunks_are_one() {
    let mut world = World::new();
    let (consumer, producer, target) = recording(&mut world, &one_source("src"));
    let whole = packet(&"x".repeat(9000));
    let (head, rest) = whole.split_at(3000);
    let (middle, tail) = rest.split_at(4000);
    for (bytes, flags) in [
        (head, ChunkFlags::LAST_CONTINUES),
        (middle, ChunkFlags::FIRST_CONTINUES.with(ChunkFlags::LAST_CONTINUES)),
        (tail, ChunkFlags::FIRST_CONTINUES),
    ] {
        let chunk = world.producers.get_mut(&producer).expect("connected").chunk(1);
        let request = chunk.packet(bytes).flags(flags).move_to(target);
        world.commit(producer, request);
    }
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["x".repeat(9000)]);
}

#[test]
fn both_ways_of_reading_give_the_same() {
    let run = || {
        let mut world = World::new();
        let (consumer, producer, target) =
            recording(&mut world, &TraceConfig { buffers: vec![buffer(1024)], ..one_source("src") });
        for i in 0..100 {
            world.write(producer, 1, target, &[packet(&format!("{i} {}", "y".repeat(1500)))]);
        }
        (world, consumer)
    };
    let (mut world, consumer) = run();
    let framed = world.read(consumer);
    let (mut world, consumer) = run();
    let batches = world.read_batches(consumer);
    let decoded =
        batches.iter().map(|packet| protos::TracePacket::decode(&packet[..]).expect("a packet")).collect();
    assert_eq!(framed.packets, Trace { packets: decoded }.packets);
    assert_eq!(framed.texts().len(), 100);
}
