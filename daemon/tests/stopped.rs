//! A thread that stops while it owns a shard, as one that has lost its core: the loop goes on.

mod support;

use std::time::Duration;

use prost::Message as _;
use support::{Producer, TestDaemon, config, numbers};
use watershed_shards::while_stopped;

use watershed_wire::ipc::ConsumerMethod;
use watershed_wire::protos;

/// No other buffer of this process has it.
const SIZE_KB: u32 = 9 << 10;

fn of_size() -> protos::TraceConfig {
    let buffer = protos::trace_config::BufferConfig { size_kb: Some(SIZE_KB), ..Default::default() };
    protos::TraceConfig { buffers: vec![buffer], ..config() }
}

/// The writers' homes are both shards of the buffer.
fn write(producer: &mut Producer, numbers: std::ops::RangeInclusive<u64>) {
    numbers.for_each(|number| producer.write(1 + (number % 2) as u16, number));
    producer.sync();
}

/// Who asks for statistics waits for the shard, nobody else does, and what was committed before is
/// in the answer, in the order of the questions.
#[test]
fn statistics_wait_for_a_shard_and_the_loop_does_not() {
    for shard in [0, 1] {
        let daemon = TestDaemon::start(1);
        let (mut producer, mut consumer, mut other) =
            (daemon.producer(), daemon.consumer(), daemon.consumer());
        consumer.enable(&of_size());
        producer.serve_until(|producer| !producer.buffers.is_empty());
        write(&mut producer, 1..=10);
        let get_stats = protos::GetTraceStatsRequest {};
        let asked = while_stopped((SIZE_KB as usize) << 10, shard, || {
            write(&mut producer, 11..=20);
            let first = consumer.0.call(ConsumerMethod::GetTraceStats, &get_stats);
            assert_eq!(other.state().num_sessions_started(), 1, "another one is answered");
            write(&mut producer, 21..=30);
            let second = consumer.0.call(ConsumerMethod::GetTraceStats, &get_stats);
            other.state();
            [first, second]
        });
        let written = asked.map(|request_id| {
            let (reply, _) = consumer.0.answer(request_id).expect("it has a session");
            let stats = protos::GetTraceStatsResponse::decode(&reply[..]).unwrap().trace_stats.unwrap();
            stats.buffer_stats[0].chunks_written()
        });
        assert!((20..=30).contains(&written[0]) && written[1] == 30, "{written:?}");
        write(&mut producer, 31..=40);
        assert!(consumer.flush_with(&mut producer));
        assert_eq!(numbers(&consumer.read()), (1..=40).collect::<Vec<_>>());
    }
}

/// The same of a consumer that goes: the shard is not left locked for it.
#[test]
fn who_asked_and_has_gone_is_not_waited_for() {
    const OTHER_SIZE_KB: u32 = 10 << 10;
    let mut config = of_size();
    config.buffers[0].size_kb = Some(OTHER_SIZE_KB);
    let daemon = TestDaemon::start(1);
    let (mut producer, mut consumer, mut other) = (daemon.producer(), daemon.consumer(), daemon.consumer());
    consumer.enable(&config);
    producer.serve_until(|producer| !producer.buffers.is_empty());
    write(&mut producer, 1..=10);
    let smb = producer.smb.clone().unwrap();
    while_stopped((OTHER_SIZE_KB as usize) << 10, 0, || {
        write(&mut producer, 11..=20);
        consumer.0.call(ConsumerMethod::GetTraceStats, &protos::GetTraceStatsRequest {});
        let detach = protos::DetachRequest { key: Some("left".to_owned()) };
        consumer.0.ask::<protos::DetachResponse>(ConsumerMethod::Detach, &detach).expect("it is detached");
        drop(consumer);
        // The loop learns of it in one of these turns.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            other.state();
        }
    });
    write(&mut producer, 21..=30);
    support::settle("workers go on", || {
        (0..smb.num_pages()).all(|page| smb.snapshot(page).unwrap().is_free())
    });
}

/// A session's file waits for the shard: its first step tells of the sequences, and its last one of
/// everything. Nobody else waits.
#[test]
fn a_file_waits_for_a_shard_and_the_loop_does_not() {
    const FILE_SIZE_KB: u32 = 11 << 10;
    let mut config = of_size();
    config.buffers[0].size_kb = Some(FILE_SIZE_KB);
    (config.write_into_file, config.file_write_period_ms) = (Some(true), Some(1 << 20));
    let mut daemon = TestDaemon::start(1);
    let (mut producer, mut consumer, mut other) = (daemon.producer(), daemon.consumer(), daemon.consumer());
    let path = daemon.path("trace");
    let end = consumer.enable_into(&config, std::fs::File::create(&path).unwrap().into());
    producer.serve_until(|producer| !producer.buffers.is_empty());
    write(&mut producer, 1..=10);
    while_stopped((FILE_SIZE_KB as usize) << 10, 0, || {
        write(&mut producer, 11..=20);
        consumer.disable();
        producer.serve_now();
        for number in 21..=30 {
            other.state();
            write(&mut producer, number..=number);
        }
    });
    producer.serve_now();
    assert_eq!(consumer.ended(end), None);
    let trace = protos::Trace::decode(&std::fs::read(&path).unwrap()[..]).unwrap();
    assert_eq!(numbers(&trace.packet), (1..=30).collect::<Vec<_>>());
    let stats = trace.packet.iter().rev().find_map(|packet| match &packet.data {
        Some(protos::trace_packet::Data::TraceStats(stats)) => Some(stats),
        _ => None,
    });
    assert_eq!(stats.expect("they come last").buffer_stats[0].chunks_written(), 30);
    daemon.stop();
}

/// Who reads waits for the shard, nobody else does, not even another one who reads; and everything
/// that was committed before comes once and in order.
#[test]
fn a_read_waits_for_a_shard_and_the_loop_does_not() {
    const READ_SIZE_KB: u32 = 12 << 10;
    for shard in [0, 1] {
        let mut stopped_config = of_size();
        stopped_config.buffers[0].size_kb = Some(READ_SIZE_KB);
        let daemon = TestDaemon::start(1);
        let (mut producer, mut consumer, mut other) =
            (daemon.producer(), daemon.consumer(), daemon.consumer());
        consumer.enable(&stopped_config);
        producer.serve_until(|producer| producer.buffers.len() == 1);
        write(&mut producer, 1..=10);
        other.enable(&config());
        producer.serve_until(|producer| producer.buffers.len() == 2);
        let buffers = producer.buffers.clone();
        write(&mut producer, 100..=110);
        // Told of its sequences once: what waits from now on is the read itself.
        assert_eq!(numbers(&consumer.read()), (1..=10).collect::<Vec<_>>());
        let read = while_stopped((READ_SIZE_KB as usize) << 10, shard, || {
            producer.buffers.truncate(1);
            write(&mut producer, 11..=20);
            let read = consumer.0.call(ConsumerMethod::ReadBuffers, &protos::ReadBuffersRequest {});
            producer.buffers.clone_from(&buffers);
            for number in 111..=120 {
                assert_eq!(other.state().num_sessions_started(), 2, "another one is answered");
                write(&mut producer, number..=number);
            }
            assert_eq!(numbers(&other.read()), (100..=120).collect::<Vec<_>>());
            assert!(consumer.0.try_next().is_none(), "the shard is waited for");
            read
        });
        assert_eq!(numbers(&consumer.read_of(read)), (11..=20).collect::<Vec<_>>());
    }
}

/// A consumer goes while a thread waits for its read: what it did not get the next one gets.
#[test]
fn what_is_read_for_one_that_has_gone_is_not_lost() {
    const LEFT_SIZE_KB: u32 = 13 << 10;
    let mut config = of_size();
    config.buffers[0].size_kb = Some(LEFT_SIZE_KB);
    let daemon = TestDaemon::start(1);
    let (mut producer, mut consumer, mut other) = (daemon.producer(), daemon.consumer(), daemon.consumer());
    consumer.enable(&config);
    producer.serve_until(|producer| !producer.buffers.is_empty());
    write(&mut producer, 1..=10);
    assert_eq!(numbers(&consumer.read()).len(), 10);
    while_stopped((LEFT_SIZE_KB as usize) << 10, 0, || {
        write(&mut producer, 11..=20);
        consumer.0.call(ConsumerMethod::ReadBuffers, &protos::ReadBuffersRequest {});
        other.state();
        let detach = protos::DetachRequest { key: Some("left".to_owned()) };
        consumer.0.ask::<protos::DetachResponse>(ConsumerMethod::Detach, &detach).expect("it is detached");
        drop(consumer);
        let attach = protos::AttachRequest { key: Some("left".to_owned()) };
        other.0.ask::<protos::AttachResponse>(ConsumerMethod::Attach, &attach).expect("it is there");
    });
    write(&mut producer, 21..=30);
    assert_eq!(numbers(&other.read()), (11..=30).collect::<Vec<_>>());
}
