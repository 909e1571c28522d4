//! Track events of several threads through the daemon's sockets.

use prost::Message as _;
use watershed_client::consumer::{Consumer, ConsumerOptions, FLUSH_AT_STOP, Wait};
use watershed_client::remote::RemoteOptions;
use watershed_client::track_event::{self, Category};
use watershed_client::{instant, slice};
use watershed_wire::protos::trace_config::{BufferConfig, DataSource};
use watershed_wire::protos::{DataSourceConfig, DataSourceDescriptor, TraceConfig, TrackEventCategory};

use crate::{Program, Running, WATCHDOG, reader, socket};

static WORK: Category = Category::new("work").with_tags(&["slow"]);

const THREADS: u64 = 4;
const SLICES: u64 = 20_000;
/// `buffer_exhausted_policy: BUFFER_EXHAUSTED_STALL_THEN_DROP`.
const STALL_THEN_DROP: i32 = 3;

fn session(daemon: &Running) -> Consumer {
    let events = watershed_wire::protos::TrackEventConfig {
        enabled_tags: vec!["slow".to_owned()],
        ..Default::default()
    };
    let config = DataSourceConfig {
        name: Some(track_event::NAME.to_owned()),
        track_event_config: Some(events),
        buffer_exhausted_policy: Some(STALL_THEN_DROP),
        ..Default::default()
    };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(64 << 10), ..Default::default() }],
        data_sources: vec![DataSource { config: Some(config), ..Default::default() }],
        ..Default::default()
    };
    let socket = socket(&daemon.folder, "consumer");
    let mut consumer = Consumer::connect(&socket, &ConsumerOptions::default()).unwrap();
    consumer.enable_tracing(&config.encode_to_vec(), None).unwrap();
    consumer
}

pub(crate) fn finish(mut consumer: Consumer) -> reader::Trace {
    assert!(consumer.flush(WATCHDOG, FLUSH_AT_STOP).unwrap());
    consumer.disable().unwrap();
    assert_eq!(consumer.wait_end(Some(WATCHDOG)).unwrap(), Wait::Ended { error: None });
    let mut trace = Vec::new();
    consumer
        .read_packets(|packet| {
            trace.push(0x0a);
            prost::encoding::encode_varint(packet.len() as u64, &mut trace);
            trace.extend_from_slice(packet);
            Ok(())
        })
        .unwrap();
    reader::read(&trace)
}

/// What the service lists.
fn categories(daemon: &Running) -> Vec<TrackEventCategory> {
    let mut watcher =
        Consumer::connect(&socket(&daemon.folder, "consumer"), &ConsumerOptions::default()).unwrap();
    let state = watcher.query_state(false).unwrap();
    let descriptors = state
        .data_sources
        .iter()
        .map(|source| DataSourceDescriptor::decode(&source.ds_descriptor().unwrap()[..]).unwrap());
    let categories = descriptors.filter_map(|descriptor| descriptor.track_event_descriptor);
    categories.flat_map(|descriptor| descriptor.available_categories).collect()
}

/// Its first event makes a category known, when the service has its descriptor already.
#[test]
fn a_category_that_comes_later_is_listed() {
    static LATER: Category = Category::new("later").with_tags(&["slow"]);
    let daemon = Running::start(tempfile::tempdir().unwrap());
    let program = Program::start_as(RemoteOptions::for_sockets(vec![socket(&daemon.folder, "producer")]));
    program.producer.register(track_event::data_source());
    program.wait_connected();
    assert!(program.producer.sync(WATCHDOG));
    let listed = || categories(&daemon).into_iter().filter(|category| category.name() == "later");
    assert_eq!(listed().count(), 0);
    instant!(LATER, "first");
    let started = std::time::Instant::now();
    while listed().count() == 0 {
        assert!(started.elapsed() < WATCHDOG, "the service is told");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(listed().all(|category| category.tags == ["slow"]));
}

/// Writers that wait: everything is there, on the thread that did it, and nests.
#[test]
fn every_event_of_every_thread_arrives() {
    let daemon = Running::start(tempfile::tempdir().unwrap());
    track_event::register_categories(&[&WORK]);
    let program = Program::start_as(RemoteOptions::for_sockets(vec![socket(&daemon.folder, "producer")]));
    program.producer.register(track_event::data_source());
    program.wait_connected();
    let categories = categories(&daemon);
    assert!(categories.iter().any(|category| category.name() == "work" && category.tags == ["slow"]));

    let session = session(&daemon);
    let started = std::time::Instant::now();
    while !WORK.is_enabled() {
        assert!(started.elapsed() < WATCHDOG, "the session starts");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let work = |thread: u64| {
        for number in 0..SLICES {
            let _outer = slice!(WORK, "outer", number, thread);
            instant!(WORK, "inside", number);
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let builder = std::thread::Builder::new().name(format!("worker {thread}"));
            builder.spawn_scoped(scope, move || work(thread)).unwrap();
        }
    });
    let trace = finish(session);
    assert_eq!((trace.num_losses, trace.num_unreadable), (0, 0));
    for thread in 0..THREADS {
        let events = trace.on(&format!("worker {thread}"));
        let numbers: Vec<_> =
            events.iter().filter(|event| event.name == "inside").map(|event| event.args[0].clone()).collect();
        assert_eq!(numbers, (0..SLICES).map(|number| format!("number={number}")).collect::<Vec<_>>());
        assert_eq!(trace.nesting(&format!("worker {thread}")), "outer()".repeat(SLICES as usize));
        assert!(events.iter().all(|event| event.sequence == events[0].sequence));
    }
}

/// Events from before there is a daemon, in the session that comes for them.
#[test]
fn a_program_traces_from_its_start_on() {
    static EARLY: Category = Category::new("early");
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start_with(&folder, true);
    program.producer.register(track_event::data_source());
    let config = DataSourceConfig { name: Some(track_event::NAME.to_owned()), ..Default::default() };
    program.producer.trace_startup(config.clone(), WATCHDOG).unwrap();
    instant!(EARLY, "before the daemon");
    let daemon = Running::start(folder);
    program.wait_connected();
    let session = daemon.session_of(track_event::NAME);
    let mut watcher =
        Consumer::connect(&socket(&daemon.folder, "consumer"), &ConsumerOptions::default()).unwrap();
    let started = std::time::Instant::now();
    while watcher.query_state(true).unwrap().num_sessions_started() == 0 {
        assert!(started.elapsed() < WATCHDOG, "the session starts");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    instant!(EARLY, "in the session");
    let trace = finish(session);
    let early = trace.events.iter().filter(|event| event.category == "early");
    assert_eq!(early.map(|event| &*event.name).collect::<Vec<_>>(), ["before the daemon", "in the session"]);
    assert_eq!(trace.num_losses, 0);
}
