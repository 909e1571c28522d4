//! A thread that stops while it owns a shard, as one that has lost its core: the loop goes on.

mod support;

use std::time::Duration;

use prost::Message as _;
use support::{Consumer, Producer, TestDaemon, config, numbers};
use watershed_shards::while_stopped;

use watershed_wire::ipc::ConsumerMethod;
use watershed_wire::protos;

/// No other buffer of this process has it.
const SIZE_KB: u32 = 9 << 10;

fn of_size() -> protos::TraceConfig {
    let buffer = protos::trace_config::BufferConfig { size_kb: Some(SIZE_KB), ..Default::default() };
    protos::TraceConfig { buffers: vec![buffer], ..config() }
}

fn of_size_kb(size_kb: u32) -> protos::TraceConfig {
    let mut config = of_size();
    config.buffers[0].size_kb = Some(size_kb);
    config
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
    let daemon = TestDaemon::start(1);
    let (mut producer, mut consumer, mut other) = (daemon.producer(), daemon.consumer(), daemon.consumer());
    consumer.enable(&of_size_kb(OTHER_SIZE_KB));
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
    let mut config = of_size_kb(FILE_SIZE_KB);
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
        let daemon = TestDaemon::start(1);
        let (mut producer, mut consumer, mut other) =
            (daemon.producer(), daemon.consumer(), daemon.consumer());
        consumer.enable(&of_size_kb(READ_SIZE_KB));
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
    let daemon = TestDaemon::start(1);
    let (mut producer, mut consumer, mut other) = (daemon.producer(), daemon.consumer(), daemon.consumer());
    consumer.enable(&of_size_kb(LEFT_SIZE_KB));
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

/// Neither the memory of a clone nor its copy is waited for by anybody but the clone.
#[test]
fn a_clone_waits_for_a_shard_and_the_loop_does_not() {
    const CLONED_SIZE_KB: u32 = 14 << 10;
    for is_flushed in [false, true] {
        let daemon = TestDaemon::start(1);
        let (mut producer, mut consumer, mut other, mut third) =
            (daemon.producer(), daemon.consumer(), daemon.consumer(), daemon.consumer());
        let end = consumer.enable(&of_size_kb(CLONED_SIZE_KB));
        producer.serve_until(|producer| !producer.buffers.is_empty());
        write(&mut producer, 1..=10);
        let request = support::of_only_session(&mut other);
        let ask = |other: &mut Consumer| other.0.call(ConsumerMethod::CloneSession, &request);
        let asked = is_flushed.then(|| ask(&mut other));
        let flush = is_flushed.then(|| producer.wait_for_flush());
        let asked = while_stopped((CLONED_SIZE_KB as usize) << 10, 0, || {
            let asked = asked.unwrap_or_else(|| ask(&mut other));
            flush.into_iter().for_each(|flush| producer.commit(flush));
            for number in 11..=30 {
                assert_eq!(third.state().num_sessions(), 1, "another one is answered");
                write(&mut producer, number..=number);
            }
            assert!(other.0.try_next().is_none(), "the shard is waited for");
            asked
        });
        let clone = support::cloned(&mut other, &mut producer, asked);
        assert!(clone.success(), "{clone:?}");
        let cloned = numbers(&other.read());
        assert_eq!(cloned, (1..=cloned.len() as u64).collect::<Vec<_>>());
        let least = if is_flushed { 10 } else { 30 };
        assert!(cloned.len() >= least, "{cloned:?}");
        consumer.disable();
        producer.serve_now();
        assert_eq!(consumer.ended(end), None);
        assert_eq!(numbers(&consumer.read()), (1..=30).collect::<Vec<_>>());
    }
}

/// A buffer that is handed over or emptied has another one in its place: nobody waits for it.
#[test]
fn clones_that_copy_nothing_do_not_wait_for_a_shard() {
    const REPLACED_SIZE_KB: u32 = 15 << 10;
    for clears in [false, true] {
        let mut config = of_size_kb(REPLACED_SIZE_KB);
        match clears {
            true => config.buffers[0].clear_before_clone = Some(true),
            false => config.buffers[0].transfer_on_clone = Some(true),
        }
        let daemon = TestDaemon::start(1);
        let (mut producer, mut consumer, mut other) =
            (daemon.producer(), daemon.consumer(), daemon.consumer());
        consumer.enable(&config);
        producer.serve_until(|producer| !producer.buffers.is_empty());
        write(&mut producer, 1..=10);
        while_stopped((REPLACED_SIZE_KB as usize) << 10, 0, || {
            write(&mut producer, 11..=20);
            let clone = support::clone(&mut other, &mut producer);
            assert!(clone.success(), "{clone:?}");
            write(&mut producer, 21..=30);
        });
        let cloned = if clears { 0..0 } else { 1..21 };
        assert_eq!(numbers(&other.read()), cloned.collect::<Vec<_>>());
        assert_eq!(numbers(&consumer.read()), (21..=30).collect::<Vec<_>>());
    }
}

/// Memory of this process that has addresses.
fn mapped_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<usize>().unwrap() << 12
}

/// Who gives a session up does not wait for the shard; its memory goes when that is free.
#[test]
fn the_end_of_a_session_does_not_wait_for_a_shard() {
    const ENDED_SIZE_KB: u32 = 1 << 20;
    const ENDED_BYTES: usize = (ENDED_SIZE_KB as usize) << 10;
    for disconnects in [false, true] {
        let daemon = TestDaemon::start(1);
        let (mut producer, mut consumer, mut other) =
            (daemon.producer(), daemon.consumer(), daemon.consumer());
        consumer.enable(&of_size_kb(ENDED_SIZE_KB));
        producer.serve_until(|producer| !producer.buffers.is_empty());
        write(&mut producer, 1..=10);
        let smb = producer.smb.clone().unwrap();
        let consumer = while_stopped(ENDED_BYTES, 0, || {
            write(&mut producer, 11..=20);
            let mut consumer = Some(consumer);
            if disconnects {
                consumer = None;
            } else if let Some(consumer) = &mut consumer {
                consumer.free();
            }
            support::settle("the session is gone", || other.state().num_sessions() == 0);
            assert!(mapped_bytes() > ENDED_BYTES, "its memory waits");
            consumer
        });
        support::settle("its memory is given back", || mapped_bytes() < ENDED_BYTES);
        let is_free = || (0..smb.num_pages()).all(|page| smb.snapshot(page).unwrap().is_free());
        support::settle("chunks that were queued are free", is_free);
        drop(consumer);
    }
}
