//! Files that are slow: neither the loop nor other sessions wait for them.

mod support;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use support::{TestDaemon, config, numbers};
use watershed_wire::protos;

fn into_file() -> protos::TraceConfig {
    protos::TraceConfig { write_into_file: Some(true), file_write_period_ms: Some(100), ..config() }
}

/// A pipe that nobody reads is the slowest file there is.
fn pipe() -> (File, OwnedFd) {
    let (read, write) = std::io::pipe().unwrap();
    (OwnedFd::from(read).into(), write.into())
}

fn read_all(mut file: File) -> std::thread::JoinHandle<Vec<protos::TracePacket>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        <protos::Trace as prost::Message>::decode(&bytes[..]).unwrap().packet
    })
}

#[test]
fn a_file_that_stalls_stops_nobody() {
    for num_workers in [0, 2] {
        let daemon = TestDaemon::start(num_workers);
        let (mut producer, mut consumer, mut other) =
            (daemon.producer(), daemon.consumer(), daemon.consumer());
        let (read, write) = pipe();
        let end = consumer.enable_into(&into_file(), write);
        producer.serve_until(|producer| !producer.buffers.is_empty());
        let other_end = other.enable(&config());
        producer.serve_until(|producer| producer.buffers.len() == 2);
        let [slow, fast] = producer.buffers[..] else { panic!("two buffers") };
        // More than the pipe holds: its writer is stuck before long.
        for number in 1..=8_000 {
            producer.buffers.push(slow);
            producer.write(1, number);
        }
        std::thread::sleep(Duration::from_millis(300));
        let started = Instant::now();
        for number in 8_001..=12_000 {
            producer.buffers.push(if number % 2 == 0 { slow } else { fast });
            producer.write(1 + (number % 2) as u16, number);
        }
        producer.sync();
        assert_eq!(other.state().num_sessions(), 2);
        assert!(other.flush_with(&mut producer), "a flush is answered");
        let odd: Vec<u64> = (8_001..=12_000).filter(|number| number % 2 == 1).collect();
        assert_eq!(numbers(&other.read()), odd);
        other.disable();
        assert_eq!(other.ended(other_end), None);
        // Of 20 s that a peer waits here; the file has not moved all the time.
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        consumer.disable();
        let reader = read_all(read);
        assert_eq!(consumer.ended(end), None);
        let expected: Vec<u64> = (1..=12_000).filter(|number| *number <= 8_000 || number % 2 == 0).collect();
        let mut written = numbers(&reader.join().unwrap());
        written.sort_unstable();
        assert_eq!(written, expected, "with {num_workers} workers");
    }
}

/// What is under way when the daemon is stopped is completed, and what came after its begin.
#[test]
fn a_stop_waits_for_a_file_that_stalls() {
    let mut daemon = TestDaemon::start(1);
    let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
    let (read, write) = pipe();
    consumer.enable_into(&into_file(), write);
    producer.serve_until(|producer| !producer.buffers.is_empty());
    (1..=8_000).for_each(|number| producer.write(1, number));
    producer.sync();
    std::thread::sleep(Duration::from_millis(300));
    (8_001..=9_000).for_each(|number| producer.write(1, number));
    producer.sync();
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        read_all(read).join().unwrap()
    });
    daemon.stop();
    assert_eq!(numbers(&reader.join().unwrap()), (1..=9_000).collect::<Vec<_>>());
}

/// An error of the file ends its session, and no other one.
#[test]
fn a_file_that_fails_ends_its_session() {
    let daemon = TestDaemon::start(1);
    let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
    let (read, write) = pipe();
    let end = consumer.enable_into(&into_file(), write);
    producer.serve_until(|producer| !producer.buffers.is_empty());
    drop(read);
    producer.write(1, 1);
    let error = consumer.ended(end).expect("it fails");
    assert!(error.contains("writing the trace file failed"), "{error}");
    assert!(daemon.log().iter().any(|line| line.contains("writing the trace file failed")));
    consumer.free();
    let end = consumer.enable(&config());
    consumer.disable();
    assert_eq!(consumer.ended(end), None, "the next session of the same consumer");
}

#[test]
fn files_are_compressed_as_the_config_says() {
    use protos::trace_config::CompressionConfig;
    let deflate = CompressionConfig { deflate: Some(Default::default()), ..Default::default() };
    let zstd = CompressionConfig { zstd: Some(Default::default()), ..Default::default() };
    let daemon = TestDaemon::start(1);
    for (name, compression) in [("deflate", deflate), ("zstd", zstd)] {
        let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
        let file = File::create(daemon.path(name)).unwrap();
        let config = protos::TraceConfig { compression: Some(compression), ..into_file() };
        let end = consumer.enable_into(&config, file.into());
        producer.serve_until(|producer| !producer.buffers.is_empty());
        (1..=5_000).for_each(|number| producer.write(1, number));
        producer.sync();
        consumer.disable();
        assert_eq!(consumer.ended(end), None);
        let bytes = std::fs::read(daemon.path(name)).unwrap();
        let wrappers = <protos::Trace as prost::Message>::decode(&bytes[..]).unwrap().packet;
        assert_eq!(numbers(&wrappers), [0; 0], "{name}: all is compressed");
        let decode = |packet: Vec<u8>| <protos::TracePacket as prost::Message>::decode(&packet[..]).unwrap();
        let packets = watershed_wire::reader::packets(&bytes).map(|packet| decode(packet.unwrap()));
        let packets: Vec<_> = packets.collect();
        assert_eq!(numbers(&packets), (1..=5_000).collect::<Vec<_>>());
    }
    assert!(daemon.log().iter().all(|line| !line.contains("compression")), "{:?}", daemon.log());
}

#[test]
fn a_level_that_there_is_not_is_told() {
    use protos::trace_config::CompressionConfig;
    use protos::trace_config::compression_config::Zstd;
    for (level, is_told) in [(1, false), (19, true)] {
        let daemon = TestDaemon::start(0);
        let mut consumer = daemon.consumer();
        let zstd = CompressionConfig { zstd: Some(Zstd { level: Some(level) }), ..Default::default() };
        let config = protos::TraceConfig { compression: Some(zstd), ..into_file() };
        let end = consumer.enable_into(&config, tempfile::tempfile().unwrap().into());
        consumer.disable();
        assert_eq!(consumer.ended(end), None);
        let words = "compression.zstd.level is not supported, the fastest level is used";
        assert_eq!(daemon.log().iter().any(|line| line.contains(words)), is_told, "{:?}", daemon.log());
    }
}
