//! A session's life with peers that speak the protocol by hand.

mod support;

use std::time::{Duration, Instant};

use support::{TestDaemon, config, numbers};
use watershed_wire::ipc::ConsumerMethod;
use watershed_wire::protos;

#[test]
fn a_session_from_the_first_call_to_the_last_packet() {
    for num_workers in [0, 1, 3] {
        let daemon = TestDaemon::start(num_workers);
        let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
        let end = consumer.enable(&config());
        producer.serve_until(|producer| !producer.buffers.is_empty());
        for number in 1..=500 {
            producer.write(1, number);
        }
        assert!(consumer.flush_with(&mut producer), "everybody has answered");
        // While it runs, and after it has ended.
        assert_eq!(numbers(&consumer.read()), (1..=500).collect::<Vec<_>>());
        producer.write(1, 501);
        producer.sync();
        consumer.disable();
        assert_eq!(consumer.ended(end), None);
        assert_eq!(numbers(&consumer.read()), [501]);
        let stats: protos::GetTraceStatsResponse =
            consumer.0.ask(ConsumerMethod::GetTraceStats, &protos::GetTraceStatsRequest {}).unwrap();
        let stats = stats.trace_stats.unwrap();
        assert_eq!((stats.chunks_discarded(), stats.buffer_stats[0].chunks_written()), (0, 501));
        assert!(daemon.log().is_empty(), "{:?}", daemon.log());
    }
}

/// Every chunk comes back to its producer, whether or not anybody reads.
#[test]
fn a_ring_takes_what_comes_though_nobody_reads() {
    for num_workers in [0, 2] {
        let daemon = TestDaemon::start(num_workers);
        let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
        let end = consumer.enable(&config());
        producer.serve_until(|producer| !producer.buffers.is_empty());
        let smb = producer.smb.clone().unwrap();
        for number in 1..=20_000 {
            producer.write(1 + (number % 3) as u16, number);
        }
        producer.sync();
        let started = Instant::now();
        while !(0..smb.num_pages()).all(|page| smb.snapshot(page).unwrap().is_free()) {
            assert!(started.elapsed() < Duration::from_secs(20), "all chunks come free");
            std::thread::yield_now();
        }
        consumer.disable();
        assert_eq!(consumer.ended(end), None);
        let read = numbers(&consumer.read());
        assert!(read.is_sorted() && read.last() == Some(&20_000), "the newest is there, in order");
    }
}

/// A read is longer than what a socket holds: it goes on as soon as its consumer has taken some,
/// not only when the consumer's time is over.
#[test]
fn a_read_goes_on_when_its_consumer_does() {
    let daemon = TestDaemon::start(1);
    let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
    consumer.enable(&config());
    producer.serve_until(|producer| !producer.buffers.is_empty());
    (1..=20_000).for_each(|number| producer.write(1, number));
    producer.sync();
    let read = consumer.0.call(ConsumerMethod::ReadBuffers, &protos::ReadBuffersRequest {});
    std::thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    assert_eq!(numbers(&consumer.read_of(read)).len(), 20_000);
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}

#[test]
fn what_a_config_asks_for_wrongly_is_said() {
    let daemon = TestDaemon::start(0);
    let mut consumer = daemon.consumer();
    let mut wrong = config();
    wrong.data_sources[0].config.as_mut().unwrap().target_buffer = Some(7);
    let end = consumer.enable(&wrong);
    let error = consumer.ended(end).expect("it fails");
    assert!(error.contains("target_buffer"), "{error}");
    // The connection goes on.
    let end = consumer.enable(&protos::TraceConfig { duration_ms: Some(20), ..config() });
    assert_eq!(consumer.ended(end), None);
    let mut other = daemon.consumer();
    let flush = other.flush();
    assert!(other.0.answer(flush).is_none(), "without a session there is nothing to flush");
}

#[test]
fn a_file_below_the_folder_gets_the_whole_trace() {
    for is_stopped in [false, true] {
        let mut daemon = TestDaemon::start(1);
        let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
        let path = daemon.path("trace");
        let output_path = Some(
            path.canonicalize()
                .unwrap_or_else(|_| path.parent().unwrap().canonicalize().unwrap().join("trace")),
        );
        let file = protos::TraceConfig {
            write_into_file: Some(true),
            output_path: output_path.map(|path| path.display().to_string()),
            ..config()
        };
        let end = consumer.enable(&file);
        producer.serve_until(|producer| !producer.buffers.is_empty());
        for number in 1..=100 {
            producer.write(1, number);
        }
        producer.sync();
        let trace = std::fs::read(&path).unwrap();
        if is_stopped {
            // The daemon's end completes it.
            daemon.stop();
        } else {
            consumer.disable();
            assert_eq!(consumer.ended(end), None);
        }
        let written = std::fs::read(&path).unwrap();
        assert!(written.len() > trace.len());
        let trace = <protos::Trace as prost::Message>::decode(&written[..]).unwrap();
        assert_eq!(numbers(&trace.packet), (1..=100).collect::<Vec<_>>());
        let elsewhere = protos::TraceConfig { output_path: Some("/tmp/elsewhere".to_owned()), ..file };
        if !is_stopped {
            let mut other = daemon.consumer();
            let end = other.enable(&elsewhere);
            let error = other.ended(end).expect("it fails");
            assert!(error.contains("only"), "{error}");
        }
    }
}

#[test]
fn the_state_says_who_is_there() {
    let daemon = TestDaemon::start(0);
    let (producer, mut consumer) = (daemon.producer(), daemon.consumer());
    let end =
        consumer.enable(&protos::TraceConfig { unique_session_name: Some("one".to_owned()), ..config() });
    let state = consumer.state();
    let [known] = &state.producers[..] else { panic!("{state:?}") };
    assert_eq!((known.name(), known.pid()), ("test", std::process::id().cast_signed()));
    let source = state.data_sources[0].ds_descriptor.as_ref().unwrap();
    assert_eq!(source.name(), support::SOURCE);
    let [session] = &state.tracing_sessions[..] else { panic!("{state:?}") };
    assert_eq!((session.state(), session.unique_session_name()), ("STARTED", "one"));
    assert_eq!(session.buffer_size_kb, [4096]);
    drop(producer);
    let started = Instant::now();
    while !consumer.state().producers.is_empty() {
        assert!(started.elapsed() < Duration::from_secs(20), "it has gone");
    }
    consumer.disable();
    assert_eq!(consumer.ended(end), None);
    // A consumer that goes takes its session with it.
    drop(consumer);
    let mut other = daemon.consumer();
    while other.state().num_sessions() > 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "its session has gone");
    }
}
