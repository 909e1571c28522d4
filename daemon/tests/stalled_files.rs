//! Files that take nothing: other sessions' files and clones are written all the same, and a stop
//! does not wait for ever.

mod support;

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use prost::Message as _;
use support::{Consumer, Producer, TestDaemon, config, numbers, settle};
use watershed_wire::ipc::{ConsumerMethod, Event};
use watershed_wire::protos::clone_session_request::Selector;
use watershed_wire::protos::{self, CloneSessionRequest, CloneSessionResponse};

/// More than a pipe holds.
const PACKETS: u64 = 8_000;
const RING: &str = "ring";

fn into_file() -> protos::TraceConfig {
    protos::TraceConfig { write_into_file: Some(true), file_write_period_ms: Some(100), ..config() }
}

fn pipe() -> (File, OwnedFd) {
    let (read, write) = std::io::pipe().unwrap();
    (OwnedFd::from(read).into(), write.into())
}

fn numbers_in(bytes: &[u8]) -> Vec<u64> {
    numbers(&protos::Trace::decode(bytes).expect("whole packets").packet)
}

fn numbers_of(path: &Path) -> Vec<u64> {
    numbers_in(&std::fs::read(path).unwrap())
}

fn read_all(mut file: File) -> Vec<u64> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    numbers_in(&bytes)
}

/// A session that writes into `file`, and the index of its buffer in `producer.buffers`.
fn enable_into(daemon: &TestDaemon, producer: &mut Producer, file: OwnedFd) -> (Consumer, u64, u32) {
    let mut consumer = daemon.consumer();
    let num_before = producer.buffers.len();
    let end = consumer.enable_into(&into_file(), file);
    producer.serve_until(|producer| producer.buffers.len() > num_before);
    (consumer, end, *producer.buffers.last().unwrap())
}

fn write(producer: &mut Producer, buffer: u32, numbers: std::ops::RangeInclusive<u64>) {
    producer.buffers.push(buffer);
    numbers.for_each(|number| producer.write(1, number));
    producer.sync();
    producer.buffers.pop();
}

/// Asks for a clone of the ring into the file.
fn ask_for_clone(consumer: &mut Consumer, file: OwnedFd) -> u64 {
    let selector = Some(Selector::UniqueSessionName(RING.to_owned()));
    let request = CloneSessionRequest { selector, into_file: Some(true), ..Default::default() };
    consumer.0.call_with(ConsumerMethod::CloneSession, &request, file)
}

fn is_cloned(consumer: &mut Consumer, producer: &mut Producer, request_id: u64) -> bool {
    producer.serve_now();
    match consumer.0.try_next() {
        Some(Some(Event::Reply { request_id: of, reply, .. })) if of == request_id => {
            CloneSessionResponse::decode(&reply[..]).unwrap().was_write_into_file()
        }
        _ => false,
    }
}

#[test]
fn other_files_and_clones_go_on() {
    for num_workers in [0, 2] {
        let daemon = TestDaemon::start(num_workers);
        let mut producer = daemon.producer();
        let (slow_read, slow_write) = pipe();
        let (mut slow, slow_end, slow_buffer) = enable_into(&daemon, &mut producer, slow_write);
        let path = daemon.path("fast");
        let file = File::create(&path).unwrap();
        let (mut fast, fast_end, fast_buffer) = enable_into(&daemon, &mut producer, file.into());
        let mut of_ring = daemon.consumer();
        of_ring.enable(&protos::TraceConfig { unique_session_name: Some(RING.to_owned()), ..config() });
        producer.serve_until(|producer| producer.buffers.len() == 3);
        let ring_buffer = producer.buffers[2];
        write(&mut producer, slow_buffer, 1..=PACKETS);
        write(&mut producer, ring_buffer, 1..=PACKETS);
        // Both pipes are full before long.
        let (clone_read, clone_write) = pipe();
        let mut slow_clone = daemon.consumer();
        let slow_request = ask_for_clone(&mut slow_clone, clone_write);
        let until = Instant::now() + Duration::from_millis(400);
        settle("the slow files stall", || {
            assert!(!is_cloned(&mut slow_clone, &mut producer, slow_request), "nobody reads it");
            Instant::now() > until
        });

        write(&mut producer, fast_buffer, 1..=PACKETS);
        settle("a period's data is in the file", || std::fs::metadata(&path).unwrap().len() > PACKETS);
        let mut fast_clone = daemon.consumer();
        let clone_path = daemon.path("clone");
        let request_id = ask_for_clone(&mut fast_clone, File::create(&clone_path).unwrap().into());
        settle("the other clone is made", || is_cloned(&mut fast_clone, &mut producer, request_id));
        assert_eq!(numbers_of(&clone_path), (1..=PACKETS).collect::<Vec<_>>());
        fast.disable();
        assert_eq!(fast.ended(fast_end), None);
        assert_eq!(numbers_of(&path), (1..=PACKETS).collect::<Vec<_>>(), "{num_workers} workers");

        let slow_clone_reader = std::thread::spawn(move || read_all(clone_read));
        settle("the slow clone is made", || is_cloned(&mut slow_clone, &mut producer, slow_request));
        slow.disable();
        let slow_reader = std::thread::spawn(move || read_all(slow_read));
        assert_eq!(slow.ended(slow_end), None);
        for reader in [slow_reader, slow_clone_reader] {
            assert_eq!(reader.join().unwrap(), (1..=PACKETS).collect::<Vec<_>>(), "{num_workers} workers");
        }
    }
}

/// A stop completes the files that can be completed, and says what is left.
#[test]
fn a_stop_does_not_wait_for_ever() {
    let mut daemon = TestDaemon::start(1);
    let mut producer = daemon.producer();
    let (read, pipe_write) = pipe();
    let (_slow, _, slow_buffer) = enable_into(&daemon, &mut producer, pipe_write);
    let path = daemon.path("fast");
    let file = File::create(&path).unwrap();
    let (_fast, _, fast_buffer) = enable_into(&daemon, &mut producer, file.into());
    write(&mut producer, slow_buffer, 1..=PACKETS);
    std::thread::sleep(Duration::from_millis(300));
    write(&mut producer, slow_buffer, PACKETS + 1..=2 * PACKETS);
    write(&mut producer, fast_buffer, 1..=PACKETS);
    let started = Instant::now();
    daemon.stop();
    let elapsed = started.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(30)).contains(&elapsed), "{elapsed:?}");
    assert_eq!(numbers_of(&path), (1..=PACKETS).collect::<Vec<_>>(), "the other file is whole");
    let left: Vec<String> =
        daemon.log().into_iter().filter(|line| line.contains("writing the trace file failed")).collect();
    assert!(left.len() == 1 && left[0].contains("it took nothing for 10 s"), "{left:?}");
    // In a process that goes on, the thread ends when the file takes something again: what it was
    // given is a part of the trace.
    let taken = read_all(read);
    assert!(taken.len() < 2 * PACKETS as usize, "what came later was not written");
    assert_eq!(taken, (1..=taken.len() as u64).collect::<Vec<_>>());
}
