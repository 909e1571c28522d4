//! A daemon in a process of its own, which is killed while it writes a file, or whose disk is full:
//! the file has what the completed periods wrote, whole packets without a hole, and nothing else.
//! `WATERSHED_KILLS=1000` for more of them.

mod support;

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use prost::Message as _;
use support::{Consumer, Peer, Producer, config, numbers};
use watershed_daemon::Daemon;
use watershed_wire::protos::{TraceConfig, TracePacket, trace_config::CompressionConfig};

/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(300);

/// What a started process does. As a test of its own it does nothing.
#[test]
fn peer() {
    let Some((role, folder)) = support::role() else { return };
    if role == "daemon" {
        Daemon::new(support::options(&folder, 1), |_| {}).unwrap().run().unwrap();
    } else {
        // Ends by a panic when the daemon is gone.
        let mut producer = Producer::connect(&folder);
        producer.serve_until(|producer| !producer.buffers.is_empty());
        for number in 1.. {
            producer.write(1, number);
            producer.serve_now();
        }
    }
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// A daemon with a producer that writes on and on, and a session into a file.
struct Recording {
    folder: tempfile::TempDir,
    daemon: Peer,
    consumer: Consumer,
    /// The request that is answered when the session has ended.
    end: u64,
    _producer: Peer,
}

impl Recording {
    fn start(daemon: Command, compression: Option<CompressionConfig>) -> Recording {
        let folder = tempfile::tempdir().unwrap();
        let daemon = Peer::start_with(daemon, "daemon", folder.path());
        let started = Instant::now();
        for socket in ["producer", "consumer"] {
            while UnixStream::connect(folder.path().join(socket)).is_err() {
                assert!(started.elapsed() < WATCHDOG, "the daemon does not listen");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let producer = Peer::start("producer", folder.path());
        let mut consumer = Consumer::connect(folder.path());
        let config = TraceConfig {
            write_into_file: Some(true),
            file_write_period_ms: Some(100),
            compression,
            ..config()
        };
        let file = File::create(folder.path().join("trace")).unwrap();
        let end = consumer.enable_into(&config, file.into());
        Recording { folder, daemon, consumer, end, _producer: producer }
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("trace")).unwrap()
    }
}

/// The number of packets of the producer, which must be the first ones; at most the last packet of
/// the file may be cut.
fn check(bytes: &[u8]) -> usize {
    let packets: Vec<_> = watershed_wire::reader::packets(bytes).map_while(Result::ok).collect();
    let packets: Vec<_> = packets.iter().map(|packet| TracePacket::decode(&packet[..]).unwrap()).collect();
    let numbers = numbers(&packets);
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    numbers.len()
}

#[test]
fn a_killed_daemon_leaves_what_it_wrote() {
    let num_kills = std::env::var("WATERSHED_KILLS").map_or(12, |kills| kills.parse().unwrap());
    let (mut random, mut cut) = (1_u64, 0);
    for kill in 0..num_kills {
        let deflate = CompressionConfig { deflate: Some(Default::default()), ..Default::default() };
        let zstd = CompressionConfig { zstd: Some(Default::default()), ..Default::default() };
        let compression = [None, None, Some(deflate), Some(zstd)][kill % 4].take();
        let mut recording = Recording::start(this_program(), compression);
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let started = Instant::now();
        // After the producer's first packets have been written, some time within two periods.
        while check(&recording.bytes()) == 0 {
            assert!(started.elapsed() < WATCHDOG, "nothing of the producer is written");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros((random >> 33) % 200_000));
        let before = recording.bytes();
        recording.daemon.kill();
        let bytes = recording.bytes();
        assert!(bytes.starts_with(&before), "kill {kill}: what was written stays");
        assert!(check(&bytes) > 0, "kill {kill}: the producer's packets");
        cut += usize::from(watershed_wire::reader::packets(&bytes).any(|packet| packet.is_err()));
    }
    println!("{num_kills} kills, {cut} files with a cut packet");
}

#[test]
fn a_disk_that_is_full_leaves_whole_packets() {
    // A limit on the size of files is met as a full disk is: by a write of a part, and an error.
    // It also holds for memory files, so that it lies above the shared memory of 256 KiB.
    for blocks in [700, 1033] {
        let mut limited = Command::new("sh");
        limited.args(["-c", r#"trap "" XFSZ; ulimit -f "$0"; exec "$@""#]);
        limited.arg(blocks.to_string()).arg(std::env::current_exe().unwrap());
        let mut recording = Recording::start(limited, None);
        let error = recording.consumer.ended(recording.end).expect("it fails");
        assert!(error.contains("writing the trace file failed"), "{error}");
        let bytes = recording.bytes();
        assert!(check(&bytes) > 0, "the producer's packets");
        assert!(watershed_wire::reader::packets(&bytes).all(|packet| packet.is_ok()), "whole packets");
        // The daemon lives, and records on.
        recording.consumer.free();
        let end = recording.consumer.enable(&config());
        recording.consumer.disable();
        assert_eq!(recording.consumer.ended(end), None);
    }
}
