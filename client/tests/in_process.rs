//! Whole sessions in one process: from a config to a trace that is read back.

#[path = "support/stopping.rs"]
mod stopping;

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prost::Message;
use stopping::Stopping;
use watershed_client::in_process::{
    Event, InProcess, InProcessOptions, Session, SessionEnd, Shards, Sink, StartError,
};
use watershed_client::producer::ProducerEvent;
use watershed_client::{Context, DataSource, DataSourceFactory, Stop, TraceWriter, Wake};
use watershed_wire::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_wire::protos::{
    DataSourceConfig, DataSourceDescriptor, TestEvent, TraceConfig, TracePacket, trace_packet,
};

const NAME: &str = "test.source";

/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(300);

/// What the test does inside an instance, and what an instance tells the test.
#[derive(Clone)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn add(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    fn calls(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

struct Factory {
    log: Log,
    /// Writers for the threads of the test.
    writers: Sender<TraceWriter>,
    stop: Stop,
}

struct Source {
    log: Log,
    writer: TraceWriter,
    count: u64,
    stop: Stop,
}

fn packet(counter: u64, text: &str) -> TracePacket {
    let event = TestEvent { counter: Some(counter), str: Some(text.to_owned()), ..Default::default() };
    TracePacket {
        timestamp: Some(counter + 1),
        data: Some(trace_packet::Data::ForTesting(event)),
        ..Default::default()
    }
}

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some(NAME.to_owned()),
            will_notify_on_start: Some(true),
            will_notify_on_stop: Some(true),
            handles_incremental_state_clear: Some(true),
            ..Default::default()
        }
    }

    fn check(&self, config: &DataSourceConfig) -> Result<(), String> {
        match config.legacy_config() {
            "refuse" => Err("legacy_config must not be \"refuse\"".to_owned()),
            _ => Ok(()),
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        self.log.add("setup");
        if cx.config().legacy_config() == "fail" {
            return Err("cannot".to_owned());
        }
        for _ in 0..4 {
            let _ = self.writers.send(cx.create_writer());
        }
        let writer = cx.create_writer();
        Ok(Box::new(Source { log: self.log.clone(), writer, count: 0, stop: self.stop }))
    }
}

impl DataSource for Source {
    fn start(&mut self, cx: &mut Context<'_>) -> Wake {
        self.log.add("start");
        match cx.config().legacy_config() {
            "quiet" => Wake::Never,
            "asks" => {
                let request = cx.poll_request();
                std::thread::spawn(move || request.raise());
                Wake::Never
            }
            _ => Wake::EveryNext(Duration::from_millis(5)),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Wake {
        if matches!(self.stop, Stop::Later(_)) && self.log.calls().contains(&"stop") {
            self.log.add("stopped");
            cx.stopped();
            return Wake::Never;
        }
        self.writer.write_message(&packet(self.count, "poll"));
        self.count += 1;
        if cx.config().legacy_config() == "asks" {
            self.log.add("polled");
            return Wake::Never;
        }
        Wake::EveryNext(Duration::from_millis(5))
    }

    fn flush(&mut self, _cx: &mut Context<'_>) {
        self.log.add("flush");
        self.writer.flush();
    }

    fn stop(&mut self, _cx: &mut Context<'_>) -> Stop {
        self.log.add("stop");
        self.writer.write_message(&packet(1000, "last"));
        self.stop
    }

    fn clear_incremental_state(&mut self, _cx: &mut Context<'_>) {
        self.log.add("clear");
    }
}

struct Setup {
    backend: InProcess,
    log: Log,
    writers: Receiver<TraceWriter>,
    events: Arc<Mutex<Vec<Event>>>,
}

fn backend() -> Setup {
    backend_that_stops(Stop::Done)
}

fn backend_that_stops(stop: Stop) -> Setup {
    backend_with(InProcessOptions::default(), stop)
}

fn backend_with(options: InProcessOptions, stop: Stop) -> Setup {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let told = events.clone();
    let on_event = move |event| told.lock().unwrap().push(event);
    let backend = InProcess::with_events(options, on_event).unwrap();
    let (sender, writers) = mpsc::channel();
    let log = Log::new();
    backend.register(Box::new(Factory { log: log.clone(), writers: sender, stop }));
    Setup { backend, log, writers, events }
}

fn config(source: &str, legacy: &str) -> TraceConfig {
    let config = DataSourceConfig {
        name: Some(source.to_owned()),
        legacy_config: Some(legacy.to_owned()),
        ..Default::default()
    };
    TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(4096), ..Default::default() }],
        data_sources: vec![SourceConfig { config: Some(config), ..Default::default() }],
        ..Default::default()
    }
}

fn start(backend: &InProcess, config: &TraceConfig, sink: Sink) -> Result<Session, StartError> {
    backend.start_session(&config.encode_to_vec(), sink)
}

fn decode(trace: &[u8]) -> Vec<TracePacket> {
    watershed_wire::reader::packets(trace)
        .map(|packet| TracePacket::decode(&packet.expect("no damage")[..]).unwrap())
        .collect()
}

/// Texts and counters of the test events, by sequence; checks that nothing was lost.
fn events(packets: &[TracePacket]) -> BTreeMap<u32, Vec<(String, u64)>> {
    let mut sequences: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for packet in packets {
        let Some(trace_packet::Data::ForTesting(event)) = &packet.data else { continue };
        assert_eq!(packet.previous_packet_dropped.unwrap_or(0), 0);
        let sequence = sequences.entry(sequence_id(packet)).or_default();
        assert_eq!(packet.first_packet_on_sequence.unwrap_or(false), sequence.is_empty());
        sequence.push((event.str().to_owned(), event.counter()));
    }
    sequences
}

fn sequence_id(packet: &TracePacket) -> u32 {
    use trace_packet::OptionalTrustedPacketSequenceId::TrustedPacketSequenceId as Id;
    let Some(Id(id)) = packet.optional_trusted_packet_sequence_id else {
        panic!("no sequence id: {packet:?}")
    };
    id
}

fn read_file(file: &mut std::fs::File) -> Vec<u8> {
    let mut trace = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut trace).unwrap();
    trace
}

fn ended_well(end: &SessionEnd) {
    assert!(end.error.is_none() && end.write_error.is_none(), "{end:?}");
}

#[test]
fn a_session_from_config_to_file() {
    let mut file = tempfile::tempfile().unwrap();
    let Setup { backend, log, .. } = backend();
    assert_eq!(backend.data_source_names(), [NAME]);
    let session = start(&backend, &config(NAME, ""), Sink::File(file.try_clone().unwrap())).unwrap();
    assert!(session.wait_all_started(WATCHDOG));
    std::thread::sleep(Duration::from_millis(400));
    assert!(session.wait_timeout(Duration::from_millis(1)).is_none(), "it goes on until it is told");
    session.stop();
    let end = session.wait();
    ended_well(&end);
    assert!(!end.flush_failed);
    let trace = read_file(&mut file);
    assert_eq!(trace.len() as u64, end.bytes_written);
    let packets = decode(&trace);
    let sequences = events(&packets);
    let [events] = &*sequences.values().collect::<Vec<_>>() else {
        panic!("one writer wrote: {sequences:?}")
    };
    let (last, polled) = events.split_last().unwrap();
    assert_eq!(*last, ("last".to_owned(), 1000));
    assert!(!polled.is_empty());
    assert!(polled.iter().zip(0..).all(|(event, i)| *event == ("poll".to_owned(), i)), "{polled:?}");
    assert!(packets.iter().any(|packet| matches!(packet.data, Some(trace_packet::Data::ClockSnapshot(_)))));
    assert!(packets.iter().any(|packet| matches!(packet.data, Some(trace_packet::Data::TraceConfig(_)))));
    assert_eq!(log.calls(), ["setup", "start", "flush", "stop"]);
    let stats = end.stats.as_ref().unwrap();
    assert_eq!(stats.buffer_stats[0].trace_writer_packet_loss(), 0);
    assert_eq!(backend.arbiter_stats().packets_dropped, 0);
}

#[test]
fn packets_of_threads_arrive_in_order_with_every_nested_size() {
    [1, 2, 8].into_iter().for_each(threads_write_into);
}

fn threads_write_into(num_shards: usize) {
    const PACKETS: u64 = 3000;
    let mut file = tempfile::tempfile().unwrap();
    let options = InProcessOptions { shards: Shards::Wanted(num_shards), ..InProcessOptions::default() };
    let Setup { backend, writers, events, .. } = backend_with(options, Stop::Done);
    let mut config = config(NAME, "quiet");
    // All waits, no drops.
    config.data_sources[0].config.as_mut().unwrap().buffer_exhausted_policy = Some(3);
    config.buffers[0].size_kb = Some(64 * 1024);
    let session = start(&backend, &config, Sink::File(file.try_clone().unwrap())).unwrap();
    assert!(session.wait_all_started(WATCHDOG));
    let text = |thread: u64, i: u64| {
        "x".repeat((i * 37 + thread * 101) as usize % 900 + 9000 * usize::from(i % 500 == 7))
    };
    let threads: Vec<_> = writers
        .try_iter()
        .zip(0_u64..)
        .map(|(mut writer, thread)| {
            std::thread::spawn(move || {
                for i in 0..PACKETS {
                    let mut packet = writer.new_packet();
                    packet.varint(8, i + 1);
                    let mut event = packet.nested(900);
                    event.varint(3, i).string(1, &format!("{thread}"));
                    event.nested(5).string(4, &text(thread, i));
                }
            })
        })
        .collect();
    assert_eq!(threads.len(), 4);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    session.stop();
    ended_well(&session.wait());
    let packets = decode(&read_file(&mut file));
    let mut seen = BTreeMap::<u64, u64>::new();
    for packet in &packets {
        let Some(trace_packet::Data::ForTesting(event)) = &packet.data else { continue };
        let Ok(thread) = event.str().parse::<u64>() else { continue };
        let next = seen.entry(thread).or_default();
        assert_eq!(event.counter(), *next);
        assert_eq!(event.payload.as_ref().unwrap().single_string(), text(thread, *next));
        assert_eq!(packet.previous_packet_dropped.unwrap_or(0), 0);
        *next += 1;
    }
    assert_eq!(seen.into_values().collect::<Vec<_>>(), [PACKETS; 4], "{num_shards} shards");
    let events = events.lock().unwrap();
    assert!(events.is_empty(), "the buffer has all its shards: {events:?}");
    assert_eq!(backend.arbiter_stats().violations, 0);
}

#[test]
fn another_thread_asks_for_a_poll() {
    let Setup { backend, log, .. } = backend();
    let session = start(&backend, &config(NAME, "asks"), Sink::Buffers).unwrap();
    let started = Instant::now();
    while !log.calls().contains(&"polled") {
        assert!(started.elapsed() < WATCHDOG);
        std::thread::sleep(Duration::from_millis(1));
    }
    session.stop();
    ended_well(&session.wait());
}

#[test]
fn a_flush_brings_out_what_idle_threads_have_written() {
    let Setup { backend, writers, .. } = backend();
    let session = start(&backend, &config(NAME, "quiet"), Sink::Buffers).unwrap();
    assert!(session.wait_all_started(WATCHDOG));
    let mut writer = writers.recv().unwrap();
    writer.write_message(&packet(0, "not flushed by its owner"));
    assert!(session.flush_and_wait(WATCHDOG));
    let mut trace = Vec::new();
    while session.read(&mut trace) {}
    let sequences = events(&decode(&trace));
    assert_eq!(sequences.into_values().next().unwrap(), [("not flushed by its owner".to_owned(), 0)]);
    // The chunk is committed as a whole later; the packet must not come twice.
    writer.write_message(&packet(1, "second"));
    drop(writer);
    session.stop();
    ended_well(&session.wait());
    let mut trace = Vec::new();
    while session.read(&mut trace) {}
    let texts: Vec<_> = decode(&trace)
        .into_iter()
        .filter_map(|packet| match packet.data {
            Some(trace_packet::Data::ForTesting(event)) => event.str,
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["second", "last"]);
}

/// Writers in turns, of which each has freed its page when it takes the next one: none looks into
/// another one's.
#[test]
fn each_writer_keeps_to_its_page() {
    const CHUNKS: u64 = 100;
    let Setup { backend, writers, .. } = backend();
    let session = start(&backend, &config(NAME, "quiet"), Sink::Buffers).unwrap();
    assert!(session.wait_all_started(WATCHDOG));
    let mut writers: Vec<TraceWriter> = (0..4).map(|_| writers.recv().unwrap()).collect();
    // Three nearly fill a chunk.
    let text = "x".repeat(1300);
    for counter in 0..3 * CHUNKS {
        writers.iter_mut().for_each(|writer| writer.write_message(&packet(counter, &text)));
    }
    let taken = backend.arbiter_stats().chunks_acquired;
    assert!(taken >= 3 * CHUNKS, "{taken} chunks");
    let in_vain: u64 = writers.iter().map(TraceWriter::full_pages).sum();
    // The service may hold one for a moment.
    assert!(in_vain < CHUNKS / 4, "looked into {in_vain} pages in vain for {taken} chunks");
    drop(writers);
    session.stop();
    ended_well(&session.wait());
}

#[test]
fn a_session_ends_by_itself_and_writes_at_intervals() {
    struct Blocks(Arc<Mutex<Vec<Vec<u8>>>>);
    impl Write for Blocks {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push(bytes.to_vec());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let blocks: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let Setup { backend, .. } = backend();
    let mut config = config(NAME, "");
    config.duration_ms = Some(450);
    config.write_into_file = Some(true);
    config.file_write_period_ms = Some(100);
    let session = start(&backend, &config, Sink::writer(Blocks(blocks.clone()))).unwrap();
    let end = session.wait_timeout(WATCHDOG).expect("the duration is over");
    ended_well(&end);
    let blocks = blocks.lock().unwrap();
    assert!(blocks.iter().filter(|block| !block.is_empty()).count() >= 2, "{}", blocks.len());
    blocks.iter().for_each(|block| drop(decode(block)));
    let trace = blocks.concat();
    assert_eq!(trace.len() as u64, end.bytes_written);
    let sequences = events(&decode(&trace));
    assert_eq!(sequences.values().next().unwrap().last().unwrap().0, "last");
}

#[test]
fn configs_that_cannot_be_honoured_are_refused() {
    let Setup { backend, log, .. } = backend();
    let refused = start(&backend, &config(NAME, "refuse"), Sink::Buffers).unwrap_err();
    assert_eq!(refused.to_string(), "data source \"test.source\": legacy_config must not be \"refuse\"");
    let mut no_buffer = config(NAME, "");
    no_buffer.data_sources[0].config.as_mut().unwrap().target_buffer = Some(7);
    assert!(matches!(start(&backend, &no_buffer, Sink::Buffers), Err(StartError::Config(_))));
    assert!(matches!(backend.start_session(&[0xFF, 0xFF], Sink::Buffers), Err(StartError::Config(_))));
    assert!(log.calls().is_empty());
    // Nothing is left behind: there is no limit on how often one may try.
    for _ in 0..100 {
        assert!(start(&backend, &no_buffer, Sink::Buffers).is_err());
    }
    start(&backend, &config(NAME, "quiet"), Sink::Buffers).unwrap();
}

#[test]
fn an_instance_that_cannot_be_made_holds_nothing_up() {
    let Setup { backend, events, .. } = backend();
    let session = start(&backend, &config(NAME, "fail"), Sink::Buffers).unwrap();
    assert!(session.wait_all_started(WATCHDOG));
    let failed = ProducerEvent::SetupFailed { name: NAME.to_owned(), reason: "cannot".to_owned() };
    assert!(matches!(&events.lock().unwrap()[..], [Event::Producer(event)] if *event == failed));
    session.stop();
    let end = session.wait();
    ended_well(&end);
    assert!(!end.flush_failed);
}

#[test]
fn a_source_may_stop_later() {
    let Setup { backend, log, .. } = backend_that_stops(Stop::Later(Wake::After(Duration::from_millis(50))));
    let session = start(&backend, &config(NAME, "quiet"), Sink::Buffers).unwrap();
    assert!(session.wait_all_started(WATCHDOG));
    let stopping = Instant::now();
    session.stop();
    ended_well(&session.wait());
    assert!(stopping.elapsed() >= Duration::from_millis(50), "it is waited for");
    assert_eq!(log.calls().last(), Some(&"stopped"));
}

#[test]
fn incremental_state_is_cleared_at_intervals() {
    let Setup { backend, log, .. } = backend();
    let mut config = config(NAME, "quiet");
    config.incremental_state_config =
        Some(watershed_wire::protos::trace_config::IncrementalStateConfig { clear_period_ms: Some(20) });
    let session = start(&backend, &config, Sink::Buffers).unwrap();
    let deadline = Instant::now() + WATCHDOG;
    while log.calls().iter().filter(|call| **call == "clear").count() < 3 {
        assert!(Instant::now() < deadline, "{:?}", log.calls());
        std::thread::sleep(Duration::from_millis(5));
    }
    session.stop();
    ended_well(&session.wait());
}

#[test]
fn a_sink_that_fails_ends_the_session_with_its_error() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for into_file in [false, true] {
        let Setup { backend, .. } = backend();
        let mut config = config(NAME, "");
        config.write_into_file = Some(into_file);
        config.file_write_period_ms = into_file.then_some(100);
        let session = start(&backend, &config, Sink::writer(Full)).unwrap();
        if into_file {
            // On a slow machine it may be over before it is seen to have started.
            let _ = session.wait_all_started(WATCHDOG);
        } else {
            assert!(session.wait_all_started(WATCHDOG));
            session.stop();
        }
        let end = session.wait_timeout(WATCHDOG).expect("it ends by itself");
        assert_eq!(end.write_error.as_ref().unwrap().kind(), io::ErrorKind::StorageFull);
        assert_eq!((end.bytes_written, end.error.is_some()), (0, into_file));
    }
}

#[test]
fn a_file_named_by_the_config_is_made_and_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let Setup { backend, .. } = backend();
    let mut config = config(NAME, "");
    config.duration_ms = Some(50);
    config.write_into_file = Some(true);
    config.output_path = Some(path.to_str().unwrap().to_owned());
    let session = start(&backend, &config, Sink::Buffers).unwrap();
    let end = session.wait();
    ended_well(&end);
    assert_eq!(decode(&std::fs::read(&path).unwrap()).is_empty(), end.bytes_written == 0);
    assert!(end.bytes_written > 0);
    let error = start(&backend, &config, Sink::Buffers).unwrap_err().to_string();
    assert!(error.contains("output_path"), "{error}");
}

#[test]
fn sessions_run_side_by_side() {
    let Setup { backend, .. } = backend();
    let sessions: Vec<_> =
        (0..3).map(|_| start(&backend, &config(NAME, ""), Sink::Buffers).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(60));
    for session in &sessions {
        session.stop();
        ended_well(&session.wait());
        let mut trace = Vec::new();
        while session.read(&mut trace) {}
        let sequences = events(&decode(&trace));
        assert_eq!(sequences.len(), 1, "each session has its own instance");
    }
}

#[test]
fn the_end_of_the_backend_ends_its_sessions() {
    let Setup { backend, .. } = backend();
    let session = start(&backend, &config(NAME, ""), Sink::Buffers).unwrap();
    let waiting = std::thread::spawn({
        let session = session.clone();
        move || session.wait()
    });
    std::thread::sleep(Duration::from_millis(20));
    drop(backend);
    assert_eq!(waiting.join().unwrap().error.as_deref(), Some("the tracing service has ended"));
    // And all the rest answers at once.
    session.flush();
    session.stop();
    assert!(!session.flush_and_wait(Duration::from_secs(60)));
    assert!(session.stats().is_none() && !session.read(&mut Vec::new()));
}

#[test]
fn a_session_that_is_dropped_is_over() {
    let Setup { backend, log, .. } = backend();
    drop(start(&backend, &config(NAME, "quiet"), Sink::Buffers).unwrap());
    let deadline = Instant::now() + WATCHDOG;
    while log.calls().last() != Some(&"stop") {
        assert!(Instant::now() < deadline, "{:?}", log.calls());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// While the service's thread writes to a slow file, nothing that the program repeats makes its
/// queue longer and longer, and nothing is lost by that.
#[test]
fn what_waits_for_the_service_is_bounded() {
    const REPEATED: u64 = 1000;
    /// As many as the queue takes, one that is being made, and answers.
    const COMMITS_MAX: u64 = 256 + 8;

    let Setup { backend, writers, .. } = backend();
    let mut config = config(NAME, "");
    config.write_into_file = Some(true);
    config.file_write_period_ms = Some(100);
    let (entered, writing) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let session = start(&backend, &config, Sink::writer(Stopping { entered, released })).unwrap();
    let mut writer = writers.recv_timeout(WATCHDOG).expect("a writer for the test");
    writing.recv_timeout(WATCHDOG).expect("the file is written");

    let before = backend.arbiter_stats().commits;
    let (done, all_done) = mpsc::channel();
    for _ in 0..REPEATED {
        session.flush();
        let done = done.clone();
        writer.flush_with(Box::new(move || done.send(()).unwrap()));
        // The producer's thread has been awake in between.
        let _ = backend.arbiter_stats();
    }
    (0..REPEATED).for_each(|_| session.stop());
    let commits = backend.arbiter_stats().commits - before;
    assert!((200..=COMMITS_MAX).contains(&commits), "{commits} commits wait");

    drop(release);
    (0..REPEATED).for_each(|_| all_done.recv_timeout(WATCHDOG).expect("each flush of the writer is over"));
    let end = session.wait_timeout(WATCHDOG).expect("it was stopped");
    let flushes = end.stats.as_ref().expect("statistics").flushes_requested();
    // Before each write, one for all that the program asked for, and the last one.
    assert!((2..50).contains(&flushes), "{flushes} flushes");
}
