//! The consumer side against a daemon that runs in this process, on sockets in a fresh folder.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use prost::Message as _;
use watershed_client::consumer::{
    ConnectError, Consumer, ConsumerError, ConsumerOptions, FLUSH_AT_STOP, Wait,
};
use watershed_daemon::{Daemon, DaemonOptions, Stopper};
use watershed_shell::address::Address;
use watershed_shell::machine;
use watershed_wire::framing::append_packet;
use watershed_wire::protos::observable_events::Type;
use watershed_wire::protos::trace_config::BufferConfig;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{Trace, TraceConfig};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A daemon on sockets of its own; stopped when it goes.
struct Served {
    folder: tempfile::TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = DaemonOptions {
            producer_sockets: vec![Address::Path(folder.path().join("producer"))],
            consumer_socket: Address::Path(folder.path().join("consumer")),
            permissions: None,
            version: machine::service_version(),
            system: machine::system_info(),
            shards: machine::default_shards(),
            num_workers: 1,
            pin_workers: false,
            huge_pages: watershed_service::HugePages::Advise,
            output_folder: None,
        };
        let daemon = Daemon::new(options, |_| {}).unwrap();
        let stopper = daemon.stopper();
        let thread = thread::spawn(move || daemon.run().unwrap());
        Served { folder, stopper, thread: Some(thread) }
    }

    fn socket(&self, name: &str) -> Address {
        Address::Path(self.path(name))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn connect(&self) -> Consumer {
        let options = ConsumerOptions { reply_timeout: LONG, ..ConsumerOptions::default() };
        Consumer::connect(&self.socket("consumer"), &options).unwrap()
    }

    fn stop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

fn config() -> TraceConfig {
    let buffer = BufferConfig { size_kb: Some(1024), ..Default::default() };
    TraceConfig { buffers: vec![buffer], ..Default::default() }
}

fn read(consumer: &mut Consumer) -> Trace {
    let mut trace = Vec::new();
    let keep = |packet: &[u8]| {
        append_packet(&mut trace, &[packet]);
        Ok(())
    };
    consumer.read_packets(keep).unwrap();
    Trace::decode(&trace[..]).unwrap()
}

fn has(trace: &Trace, is_it: impl Fn(&Data) -> bool) -> bool {
    trace.packet.iter().any(|packet| packet.data.as_ref().is_some_and(&is_it))
}

fn ended(error: Option<&str>) -> Wait {
    Wait::Ended { error: error.map(str::to_owned) }
}

#[test]
fn a_session_from_its_config_to_its_packets() {
    let served = Served::new();
    let mut consumer = served.connect();
    assert_eq!(consumer.capabilities().unwrap().has_query_capabilities, Some(true));
    consumer.observe_events(&[Type::AllDataSourcesStarted]).unwrap();
    let config =
        TraceConfig { deferred_start: Some(true), unique_session_name: Some("mine".to_owned()), ..config() };
    consumer.enable_tracing(&config.encode_to_vec(), None).unwrap();
    let state = consumer.query_state(true).unwrap();
    assert_eq!(state.tracing_sessions[0].state(), "CONFIGURED");
    assert!(!consumer.flush(LONG, FLUSH_AT_STOP).unwrap(), "it does not run yet");

    consumer.start().unwrap();
    let state = served.connect().query_state(false).unwrap();
    assert!(state.tracing_service_version().starts_with("Perfetto v"));
    let session = &state.tracing_sessions[0];
    assert_eq!((session.state(), session.unique_session_name()), ("STARTED", "mine"));
    let events = consumer.next_events(LONG).unwrap().unwrap();
    assert_eq!(events.all_data_sources_started, Some(true));
    assert_eq!(consumer.next_events(Duration::ZERO).unwrap(), None);

    assert!(consumer.flush(LONG, FLUSH_AT_STOP).unwrap());
    assert_eq!(consumer.wait_end(Some(Duration::ZERO)).unwrap(), Wait::TimedOut);
    consumer.disable().unwrap();
    assert_eq!(consumer.wait_end(Some(LONG)).unwrap(), ended(None));
    assert_eq!(consumer.stats().unwrap().buffer_stats.len(), 1);
    let trace = read(&mut consumer);
    assert!(has(&trace, |data| matches!(data, Data::TraceConfig(c) if c.unique_session_name() == "mine")));
    assert!(has(&trace, |data| matches!(data, Data::SystemInfo(_))));
    consumer.free().unwrap();
    assert!(matches!(consumer.stats(), Err(ConsumerError::Failed { .. })), "there is no session");
    assert!(served.connect().query_state(true).unwrap().tracing_sessions.is_empty());
}

#[test]
fn the_service_writes_the_file_and_ends_the_session() {
    let served = Served::new();
    let mut consumer = served.connect();
    let config = TraceConfig { write_into_file: Some(true), duration_ms: Some(20), ..config() };
    let file = File::options().read(true).write(true).create_new(true).open(served.path("trace")).unwrap();
    consumer.enable_tracing(&config.encode_to_vec(), Some(file.try_clone().unwrap())).unwrap();
    assert_eq!(consumer.wait_end(Some(LONG)).unwrap(), ended(None));
    let (mut file, mut trace) = (file, Vec::new());
    file.rewind().unwrap();
    file.read_to_end(&mut trace).unwrap();
    let trace = Trace::decode(&trace[..]).unwrap();
    assert!(has(&trace, |data| matches!(data, Data::TraceStats(_))));
}

#[test]
fn a_refusal_is_the_end_with_the_reason() {
    let served = Served::new();
    let mut consumer = served.connect();
    let refused = TraceConfig {
        write_into_file: Some(true),
        output_path: Some("/somewhere/else".to_owned()),
        ..config()
    };
    consumer.enable_tracing(&refused.encode_to_vec(), None).unwrap();
    let Wait::Ended { error: Some(error) } = consumer.wait_end(Some(LONG)).unwrap() else { panic!() };
    assert!(error.contains("output_path"), "{error}");
    // The connection is as good as before.
    consumer.enable_tracing(&config().encode_to_vec(), None).unwrap();
    assert_eq!(consumer.query_state(true).unwrap().tracing_sessions.len(), 1);
}

#[test]
fn a_wait_can_be_woken_from_another_thread() {
    let served = Served::new();
    let mut consumer = served.connect();
    consumer.enable_tracing(&config().encode_to_vec(), None).unwrap();
    let handle = consumer.wake_handle();
    let waker = thread::spawn(move || {
        handle.wake();
        handle.wake();
    });
    assert_eq!(consumer.wait_end(Some(LONG)).unwrap(), Wait::Woken);
    waker.join().unwrap();
    // Both wakes may have been one by then; what is left does not disturb a call.
    consumer.disable().unwrap();
    while consumer.wait_end(Some(LONG)).unwrap() == Wait::Woken {}
}

#[test]
fn what_ends_the_connection_is_said() {
    let mut served = Served::new();
    let mut consumer = served.connect();
    consumer.enable_tracing(&config().encode_to_vec(), None).unwrap();
    served.stop();
    let mut last = consumer.wait_end(Some(LONG));
    if matches!(last, Ok(Wait::Ended { .. })) {
        last = consumer.wait_end(Some(LONG));
    }
    assert!(matches!(last, Err(ConsumerError::Gone(_))), "{last:?}");
    assert!(matches!(consumer.query_state(false), Err(ConsumerError::Gone(_))));
}

#[test]
fn a_config_that_does_not_fit_is_not_sent() {
    let served = Served::new();
    let mut consumer = served.connect();
    let result = consumer.enable_tracing(&vec![0; 200 << 10], None);
    assert!(matches!(result, Err(ConsumerError::NotSent(_))));
    consumer.query_state(false).unwrap();
}

#[test]
fn nobody_there() {
    let served = Served::new();
    let connect = |address: &Address| Consumer::connect(address, &ConsumerOptions::default()).unwrap_err();
    assert!(matches!(connect(&served.socket("none")), ConnectError::NotRunning { .. }));
    assert!(matches!(connect(&Address::Abstract("watershed-none".into())), ConnectError::NotRunning { .. }));
    fs::write(served.path("file"), "").unwrap();
    assert!(matches!(connect(&served.socket("file")), ConnectError::NotRunning { .. }));
    let of_producers = connect(&served.socket("producer"));
    assert!(
        matches!(of_producers, ConnectError::NoService { error: ConsumerError::NoConsumerPort, .. }),
        "{of_producers}"
    );
}

#[test]
fn a_service_that_says_nothing_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let address = Address::Path(folder.path().join("silent"));
    let _listener = address.listen().unwrap();
    let options = ConsumerOptions { reply_timeout: Duration::from_millis(20), ..ConsumerOptions::default() };
    let started = Instant::now();
    let error = Consumer::connect(&address, &options).unwrap_err();
    assert!(matches!(error, ConnectError::NoService { error: ConsumerError::NoAnswer, .. }), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(20));
}
