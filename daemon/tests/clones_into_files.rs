//! Clones that the daemon writes into the caller's file (`CloneSession` with `into_file`), over the
//! sockets: whatever the caller hands over, or whenever it goes, others are served and nothing is
//! left of it.

mod support;

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use prost::Message as _;
use support::{Consumer, Peer, Producer, config, numbers, settle};
use watershed_daemon::Daemon;
use watershed_wire::ipc::{ConsumerMethod, Event};
use watershed_wire::protos::clone_session_request::Selector;
use watershed_wire::protos::{self, CloneSessionRequest, CloneSessionResponse};

/// What the ring of the session that is cloned has.
const PACKETS: u64 = 3_000;
/// Above the shared memory of 256 KiB, for which a limit on files holds too, and below what a clone
/// with many packets has.
const FILE_BLOCKS_MAX: &str = "700";

/// What a started process does. As a test of its own it does nothing.
#[test]
fn peer() {
    let Some((_, folder)) = support::role() else { return };
    Daemon::new(support::options(&folder, 1), |_| {}).unwrap().run().unwrap();
}

/// A daemon in a process of its own, so that its descriptors can be counted, with a session that
/// records one producer.
struct World {
    folder: tempfile::TempDir,
    daemon: Peer,
    producer: Producer,
    original: Consumer,
    end: u64,
    /// Of the daemon, with these two peers.
    descriptors: usize,
}

impl World {
    fn start() -> World {
        World::start_with(Command::new(std::env::current_exe().unwrap()))
    }

    fn start_with(daemon: Command) -> World {
        let folder = tempfile::tempdir().unwrap();
        let daemon = Peer::start_with(daemon, "daemon", folder.path());
        for socket in ["producer", "consumer"] {
            settle("it listens", || UnixStream::connect(folder.path().join(socket)).is_ok());
        }
        let mut producer = Producer::connect(folder.path());
        let mut original = Consumer::connect(folder.path());
        let end = original.enable(&config());
        producer.serve_until(|producer| !producer.buffers.is_empty());
        let mut world = World { folder, daemon, producer, original, end, descriptors: 0 };
        // The connections that only looked whether somebody listens are gone, too.
        world.original.state();
        settle("the number of descriptors does not change", || {
            let before = world.descriptors;
            world.descriptors = world.held();
            std::thread::sleep(Duration::from_millis(20));
            before == world.descriptors
        });
        world
    }

    fn write(&mut self, numbers: std::ops::RangeInclusive<u64>) {
        numbers.for_each(|number| self.producer.write(1, number));
        self.producer.sync();
    }

    fn held(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.daemon.pid())).unwrap().count()
    }

    fn consumer(&self) -> Consumer {
        Consumer::connect(self.folder.path())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// The answer to a clone of the session; `None` if the connection was closed.
    fn answer(&mut self, consumer: &mut Consumer, request_id: u64) -> Option<CloneSessionResponse> {
        let mut answer = None;
        settle("the daemon answers", || {
            self.producer.serve_now();
            match consumer.0.try_next() {
                Some(Some(Event::Reply { request_id: of, reply, .. })) if of == request_id => {
                    answer = Some(CloneSessionResponse::decode(&reply[..]).unwrap());
                    true
                }
                closed_or_other => matches!(closed_or_other, Some(None)),
            }
        });
        answer
    }

    /// A clone into a file, and what the service says.
    fn clone_into(&mut self, file: OwnedFd) -> (Consumer, CloneSessionResponse) {
        let mut consumer = self.consumer();
        let request_id = ask(&mut consumer, self.session_id(), Some(file));
        let reply = self.answer(&mut consumer, request_id).expect("it is not disconnected");
        (consumer, reply)
    }

    fn session_id(&mut self) -> u64 {
        self.original.state().tracing_sessions[0].id()
    }

    /// Nothing is left of those who cloned: no session, no descriptor. The original records on.
    fn check_and_end(mut self, written: u64) {
        settle("no descriptor is left", || {
            self.producer.serve_now();
            self.held() == self.descriptors
        });
        let sessions = self.original.state().tracing_sessions;
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        self.write(written + 1..=written + 1);
        self.original.disable();
        assert_eq!(self.original.ended(self.end), None);
        assert_eq!(numbers(&self.original.read()), (1..=written + 1).collect::<Vec<_>>());
    }
}

fn ask(consumer: &mut Consumer, session_id: u64, file: Option<OwnedFd>) -> u64 {
    let request = CloneSessionRequest {
        selector: Some(Selector::SessionId(session_id)),
        into_file: Some(true),
        ..Default::default()
    };
    match file {
        Some(file) => consumer.0.call_with(ConsumerMethod::CloneSession, &request, file),
        None => consumer.0.call(ConsumerMethod::CloneSession, &request),
    }
}

fn numbers_in(path: &Path) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    numbers(&protos::Trace::decode(&bytes[..]).expect("whole packets").packet)
}

#[test]
fn a_clone_is_in_the_file_and_not_to_be_read() {
    let mut world = World::start();
    world.write(1..=PACKETS);
    let file = File::create_new(world.path("clone")).unwrap();
    let (mut consumer, reply) = world.clone_into(file.into());
    assert_eq!((reply.success(), reply.was_write_into_file()), (true, true), "{reply:?}");
    // It is answered when all is written.
    assert_eq!(numbers_in(&world.path("clone")), (1..=PACKETS).collect::<Vec<_>>());
    assert_eq!(numbers(&consumer.read()), [0; 0]);
    consumer.free();
    // The connection can do it again.
    let file = OpenOptions::new().write(true).truncate(true).open(world.path("clone")).unwrap();
    let id = world.session_id();
    let request_id = ask(&mut consumer, id, Some(file.into()));
    assert!(world.answer(&mut consumer, request_id).unwrap().success());
    assert_eq!(numbers_in(&world.path("clone")), (1..=PACKETS).collect::<Vec<_>>());
    drop(consumer);
    world.check_and_end(PACKETS);
}

/// As a service that does not know the field: the clone is read.
#[test]
fn without_a_descriptor_it_is_read() {
    let mut world = World::start();
    world.write(1..=PACKETS);
    let (mut consumer, id) = (world.consumer(), world.session_id());
    let request_id = ask(&mut consumer, id, None);
    let reply = world.answer(&mut consumer, request_id).unwrap();
    assert_eq!((reply.success(), reply.was_write_into_file()), (true, false), "{reply:?}");
    assert_eq!(numbers(&consumer.read()), (1..=PACKETS).collect::<Vec<_>>());
    drop(consumer);
    world.check_and_end(PACKETS);
}

/// Descriptors belong to calls in the order of their coming. Who sends more than calls take is
/// disconnected, and what it sent is closed.
#[test]
fn of_several_descriptors_the_first_is_taken() {
    let mut world = World::start();
    world.write(1..=10);
    let file = |name: &str| OwnedFd::from(File::create_new(world.path(name)).unwrap());
    let (first, others) = (file("first"), ["a", "b", "c", "d", "e"].map(file));
    let (mut consumer, id) = (world.consumer(), world.session_id());
    // Queries take none: theirs is there for the clone.
    let query = protos::QueryServiceStateRequest::default();
    consumer.0.call_with(ConsumerMethod::QueryServiceState, &query, first);
    let [a, others @ ..] = others;
    let request_id = ask(&mut consumer, id, Some(a));
    assert!(world.answer(&mut consumer, request_id).unwrap().was_write_into_file());
    assert_eq!(numbers_in(&world.path("first")), (1..=10).collect::<Vec<_>>());
    assert!(numbers_in(&world.path("a")).is_empty());
    for fd in others {
        consumer.0.call_with(ConsumerMethod::QueryServiceState, &query, fd);
    }
    assert!(consumer.0.is_closed(), "five that no call takes");
    world.check_and_end(10);
}

#[test]
fn files_that_cannot_be_written() {
    let mut world = World::start();
    world.write(1..=PACKETS);
    let read_only = || File::open("/dev/null").unwrap().into();
    let closed_pipe = || std::io::pipe().unwrap().1.into();
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap().into();
    let folder = || File::open("/").unwrap().into();
    let kinds: [(&str, &dyn Fn() -> OwnedFd); 4] =
        [("read-only", &read_only), ("closed pipe", &closed_pipe), ("full", &full), ("folder", &folder)];
    for (kind, file) in kinds {
        let (mut consumer, reply) = world.clone_into(file());
        assert!(!reply.success(), "{kind}: {reply:?}");
        assert!(reply.error().contains("writing the trace file failed"), "{kind}: {reply:?}");
        // It is as before the call: the same consumer clones into a file that takes it.
        let path = world.path(kind);
        let good = File::create(&path).unwrap();
        let id = world.session_id();
        let request_id = ask(&mut consumer, id, Some(good.into()));
        let reply = world.answer(&mut consumer, request_id).unwrap();
        assert!(reply.success(), "{kind}: {reply:?}");
        assert_eq!(numbers_in(&path), (1..=PACKETS).collect::<Vec<_>>(), "{kind}");
    }
    world.check_and_end(PACKETS);
}

#[test]
fn a_pipe_is_a_file_too() {
    let mut world = World::start();
    world.write(1..=PACKETS);
    let (mut read, write) = std::io::pipe().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        read.read_to_end(&mut bytes).unwrap();
        protos::Trace::decode(&bytes[..]).unwrap().packet
    });
    let (consumer, reply) = world.clone_into(write.into());
    assert!(reply.was_write_into_file(), "{reply:?}");
    drop(consumer);
    // Ends when the daemon has closed it.
    assert_eq!(numbers(&reader.join().unwrap()), (1..=PACKETS).collect::<Vec<_>>());
    world.check_and_end(PACKETS);
}

/// A limit on the size of files is met as a full disk is: by a write of a part, and an error.
#[test]
fn a_full_disk_leaves_whole_packets() {
    let mut limited = Command::new("sh");
    limited.args(["-c", r#"trap "" XFSZ; ulimit -f "$0"; exec "$@""#, FILE_BLOCKS_MAX]);
    limited.arg(std::env::current_exe().unwrap());
    let mut world = World::start_with(limited);
    // Some 17 bytes each in the file.
    const MANY: u64 = 60_000;
    world.write(1..=MANY);
    let file = File::create_new(world.path("clone")).unwrap();
    let (consumer, reply) = world.clone_into(file.into());
    assert!(!reply.success() && reply.error().contains("writing the trace file failed"), "{reply:?}");
    let written = numbers_in(&world.path("clone"));
    assert!(!written.is_empty(), "the producer's packets");
    assert_eq!(written, (1..=written.len() as u64).collect::<Vec<_>>());
    drop(consumer);
    world.check_and_end(MANY);
}

/// While its data sources are asked, and while its file stalls.
#[test]
fn a_caller_that_goes_leaves_nothing() {
    let mut world = World::start();
    world.write(1..=PACKETS);
    let id = world.session_id();
    for _ in 0..5 {
        let mut consumer = world.consumer();
        let file = tempfile::tempfile().unwrap();
        ask(&mut consumer, id, Some(file.into()));
        drop(consumer);
    }
    // Others are served meanwhile, also with clones.
    let (read, write) = std::io::pipe().unwrap();
    let mut stalls = world.consumer();
    ask(&mut stalls, id, Some(write.into()));
    let mut other = world.consumer();
    let request_id = ask(&mut other, id, None);
    let reply = world.answer(&mut other, request_id).unwrap();
    assert!(reply.success(), "{reply:?}");
    assert_eq!(numbers(&other.read()), (1..=PACKETS).collect::<Vec<_>>());
    drop(other);
    drop(stalls);
    assert_eq!(world.original.state().tracing_sessions[0].id(), id, "it answers");
    drop(read);
    world.check_and_end(PACKETS);
}

/// The room of a file in memory is asked for while data sources are flushed, and what was not
/// needed is given back: also by a clone that nobody wants any more.
#[test]
fn room_is_there_before_the_clone() {
    use std::os::unix::fs::MetadataExt as _;
    let mut world = World::start();
    world.write(1..=PACKETS);
    let id = world.session_id();
    let held = |file: &File| file.metadata().map(|found| (found.len(), found.blocks() * 512)).unwrap();
    for is_wanted in [true, false] {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        let mut consumer = world.consumer();
        let request_id = ask(&mut consumer, id, Some(file.try_clone().unwrap().into()));
        // The producer has not answered the flush.
        settle("room is asked for", || held(&file).1 >= PACKETS * 10);
        assert_eq!(held(&file).0, 0, "nothing is written");
        if is_wanted {
            assert!(world.answer(&mut consumer, request_id).unwrap().was_write_into_file());
            let (len, blocks_bytes) = held(&file);
            assert!(len > PACKETS * 10 && blocks_bytes < len + (64 << 10), "{len} {blocks_bytes}");
        }
        drop(consumer);
        if !is_wanted {
            settle("the room is given back", || {
                world.producer.serve_now();
                held(&file) == (0, 0)
            });
        }
    }
    world.check_and_end(PACKETS);
}
