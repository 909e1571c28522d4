//! A producer and a consumer of this library with the real daemon, which runs in a thread.
#![cfg(target_os = "linux")]

#[path = "../track_events/reader.rs"]
mod reader;
mod short_programs;
mod startup;
mod track_events;

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prost::Message as _;
use watershed_client::consumer::{Consumer, ConsumerError, ConsumerOptions, FLUSH_AT_STOP, Wait};
use watershed_client::remote::{Reconnect, RemoteEvent, RemoteOptions, RemoteProducer};
use watershed_client::{Context, DataSource, DataSourceFactory, Stop, TraceWriter, Wake};
use watershed_daemon::{Daemon, DaemonError, DaemonOptions, Stopper};
use watershed_service::{Shards, SystemInfo};
use watershed_shell::address::Address;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_wire::protos::trace_packet::OptionalTrustedPacketSequenceId::TrustedPacketSequenceId;
use watershed_wire::protos::{DataSourceConfig, DataSourceDescriptor, TraceConfig, TracePacket};

/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(300);
const NAME: &str = "test.source";

struct Running {
    folder: tempfile::TempDir,
    stopper: Stopper,
    thread: JoinHandle<Result<(), DaemonError>>,
}

fn socket(folder: &tempfile::TempDir, peer: &str) -> Address {
    Address::Path(folder.path().join(peer))
}

impl Running {
    fn start(folder: tempfile::TempDir) -> Self {
        let options = DaemonOptions {
            producer_sockets: vec![socket(&folder, "producer")],
            consumer_socket: socket(&folder, "consumer"),
            permissions: None,
            version: "Perfetto v58.0-test".to_owned(),
            system: SystemInfo::default(),
            shards: Shards::Wanted(1),
            num_workers: 1,
            pin_workers: false,
            huge_pages: watershed_service::HugePages::Advise,
            output_folder: None,
        };
        let daemon = Daemon::new(options, |_| {}).unwrap();
        Running { folder, stopper: daemon.stopper(), thread: std::thread::spawn(|| daemon.run()) }
    }

    fn stop(self) -> tempfile::TempDir {
        self.stopper.stop();
        self.thread.join().unwrap().unwrap();
        self.folder
    }

    /// A consumer with a session that records the data source.
    fn session(&self) -> Consumer {
        self.session_of(NAME)
    }

    fn session_of(&self, source: &str) -> Consumer {
        let config = TraceConfig {
            buffers: vec![BufferConfig { size_kb: Some(4096), ..Default::default() }],
            data_sources: vec![SourceConfig {
                config: Some(DataSourceConfig { name: Some(source.to_owned()), ..Default::default() }),
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut consumer =
            Consumer::connect(&socket(&self.folder, "consumer"), &ConsumerOptions::default()).unwrap();
        consumer.enable_tracing(&config.encode_to_vec(), None).unwrap();
        consumer
    }
}

/// The numbers that were written, in the order of the trace, when the session has been stopped.
fn finish(mut consumer: Consumer) -> Vec<u64> {
    assert!(consumer.flush(WATCHDOG, FLUSH_AT_STOP).unwrap(), "the producer answers");
    consumer.disable().unwrap();
    assert_eq!(consumer.wait_end(Some(WATCHDOG)).unwrap(), Wait::Ended { error: None });
    let mut numbers = Vec::new();
    consumer
        .read_packets(|packet| {
            let packet = TracePacket::decode(packet).unwrap();
            // Sequence 1 is the service's.
            let by_service = packet.optional_trusted_packet_sequence_id == Some(TrustedPacketSequenceId(1));
            numbers.extend(packet.timestamp.filter(|_| !by_service));
            Ok(())
        })
        .unwrap();
    numbers
}

/// Gives the test a writer for each instance.
struct Factory(&'static str, Sender<TraceWriter>);

struct Source;

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor { name: Some(self.0.to_owned()), ..Default::default() }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let given = self.1.send(cx.create_writer());
        given.map_err(|_| "nobody wants it".to_owned())?;
        Ok(Box::new(Source))
    }
}

impl DataSource for Source {
    fn start(&mut self, _: &mut Context<'_>) -> Wake {
        Wake::Never
    }

    fn stop(&mut self, _: &mut Context<'_>) -> Stop {
        Stop::Done
    }
}

struct Program {
    producer: RemoteProducer,
    events: Receiver<RemoteEvent>,
    writers: Receiver<TraceWriter>,
}

impl Program {
    fn start(daemon: &Running) -> Self {
        Self::start_with(&daemon.folder, false)
    }

    fn start_with(folder: &tempfile::TempDir, own_memory: bool) -> Self {
        let mut options = RemoteOptions::for_sockets(vec![socket(folder, "producer")]);
        options.own_memory = own_memory;
        let step = Duration::from_millis(1);
        options.reconnect = Reconnect::Growing { step, longest: step };
        Self::start_as(options)
    }

    fn start_as(options: RemoteOptions) -> Self {
        let (tell, events) = mpsc::channel();
        let producer = RemoteProducer::connect(options, move |event| drop(tell.send(event))).unwrap();
        let (to_test, writers) = mpsc::channel();
        producer.register(Box::new(Factory(NAME, to_test)));
        Program { producer, events, writers }
    }

    fn wait_connected(&self) {
        let is_connected = |event: &RemoteEvent| matches!(event, RemoteEvent::Connected { .. });
        while !is_connected(&self.events.recv_timeout(WATCHDOG).expect("it connects")) {}
        assert!(self.producer.sync(WATCHDOG), "its data source is known");
    }

    fn writer(&self) -> TraceWriter {
        self.writers.recv_timeout(WATCHDOG).expect("an instance")
    }
}

/// A packet with a number, and more bytes than a chunk has if it is large.
fn packet(number: u64, is_large: bool) -> Vec<u8> {
    let mut packet = TracePacket { timestamp: Some(number), ..Default::default() }.encode_to_vec();
    if is_large {
        // A field that no schema has, of 10000 bytes.
        packet.extend([0x82, 0xf1, 0x04, 0x90, 0x4e]);
        packet.extend([7; 10_000]);
    }
    packet
}

#[test]
fn everything_starts_anew_with_a_new_daemon() {
    let mut daemon = Running::start(tempfile::tempdir().unwrap());
    let program = Program::start(&daemon);
    for life in 1..=3 {
        program.wait_connected();
        let session = daemon.session();
        let mut writer = program.writer();
        (0..100).for_each(|number| writer.write_packet(&packet(number, number % 10 == 0)));
        writer.flush();
        assert_eq!(finish(session), (0..100).collect::<Vec<_>>(), "life {life}");

        // A session that the end of the daemon interrupts.
        let mut interrupted = daemon.session();
        let mut writer = program.writer();
        writer.write_packet(&packet(1, false));
        let folder = daemon.stop();
        let ended = interrupted.wait_end(Some(WATCHDOG));
        assert!(matches!(ended, Ok(Wait::Ended { .. }) | Err(ConsumerError::Gone(_))), "{ended:?}");
        let is_over = |event: &RemoteEvent| matches!(event, RemoteEvent::Disconnected { .. });
        while !is_over(&program.events.recv_timeout(WATCHDOG).expect("it is told")) {}
        // Nobody takes it any more, and nobody is disturbed by it.
        (0..100).for_each(|number| writer.write_packet(&packet(number, true)));
        assert_eq!(program.producer.stats().connections, life);
        daemon = Running::start(folder);
    }
    program.wait_connected();
    drop(program);
    daemon.stop();
}

/// Runs `child` in a forked process, and waits for its end. Gives its exit code.
fn in_child(child: impl FnOnce()) -> Option<i32> {
    // SAFETY: the child runs nothing but `child` and `_exit`. It allocates, which the C library
    // allows after a fork of a program with threads; it takes no lock that another thread may hold.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        child();
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(0) };
    }
    let started = Instant::now();
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == 0 {
        if started.elapsed() > WATCHDOG {
            // SAFETY: the child is ours, and nobody has waited for it.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

/// A child has neither the memory nor the threads, and must not speak on the parent's connection.
#[test]
fn a_forked_child_writes_nothing() {
    let daemon = Running::start(tempfile::tempdir().unwrap());
    let program = Program::start(&daemon);
    program.wait_connected();
    let session = daemon.session();
    let mut writer = program.writer();
    writer.write_packet(&packet(1, false));
    // A packet that is open at the fork, over two chunks already.
    let mut open = writer.new_packet();
    open.varint(8, 2).bytes(9_999, &[7; 5_000]);
    let mut nested = open.nested(9_998);
    nested.bytes(1, &[7; 100]);
    let producer = &program.producer;
    let mut of_child = Some(nested);
    let code = in_child(|| {
        // The values of the parent are copies here; dropped as by a program that knows of nothing.
        let mut nested = of_child.take().unwrap();
        nested.bytes(2, &[7; 9_000]);
        drop(nested);
        producer.activate_triggers(&["child".to_owned()]);
        assert!(!producer.sync(WATCHDOG));
        assert_eq!(producer.stats(), watershed_client::remote::RemoteStats::default());
    });
    assert_eq!(code, Some(0));
    drop(of_child);
    drop(open);
    let code = in_child(|| {
        for number in 100..200 {
            writer.write_packet(&packet(number, number % 2 == 0));
        }
        writer.flush();
        let (tell, told) = mpsc::channel();
        writer.flush_with(Box::new(move || tell.send(()).unwrap()));
        assert!(told.try_recv().is_ok(), "as a writer that discards");
    });
    assert_eq!(code, Some(0));
    writer.write_packet(&packet(3, true));
    let (mut writer, mut program) = (Some(writer), Some(program));
    let code = in_child(|| {
        drop(writer.take());
        drop(program.take());
    });
    assert_eq!(code, Some(0), "dropped in a child");
    let mut writer = writer.unwrap();
    writer.write_packet(&packet(4, false));
    writer.flush();
    assert_eq!(finish(session), [1, 2, 3, 4]);
    drop((writer, program));
    daemon.stop();
}
