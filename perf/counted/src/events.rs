//! Events of a program: what one costs the thread that writes it, with a session in process.

use crate::EVENTS;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use tracing::Dispatch;
use tracing_subscriber::layer::SubscriberExt as _;
use watershed_client::in_process::{InProcess, InProcessOptions, Session, Sink};
use watershed_client::track_event::{self, Category};
use watershed_client::{Arbiter, ArbiterOptions, Done, Endpoint, ExhaustedPolicy, TraceWriter, Waker};
use watershed_client::{instant, slice};
use watershed_smb::{SharedMemory, Smb};
use watershed_wire::Encode as _;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource};
use watershed_wire::protos::{CommitDataRequest, DataSourceConfig, TraceConfig, TrackEventConfig};

static ON: Category = Category::new("on");
static OFF: Category = Category::new("off");

/// A thread that has written its first events.
pub struct Writing {
    events: fn(u64),
    _backend: InProcess,
    _session: Session,
}

impl Writing {
    /// Instant events with a static name.
    pub fn instants() -> Self {
        Self::new(|count| (0..count).for_each(|_| instant!(ON, "instant")))
    }

    /// Slices with an integer and a text, both ends.
    pub fn slices() -> Self {
        Self::new(|count| {
            (0..count).for_each(|i| drop(slice!(ON, "slice", number = i, text = "a string of twenty b")));
        })
    }

    /// Instant events that no session wants.
    pub fn disabled() -> Self {
        Self::new(|count| (0..count).for_each(|_| instant!(OFF, "instant")))
    }

    fn new(events: fn(u64)) -> Self {
        let backend = InProcess::new(InProcessOptions::default()).expect("a backend");
        backend.register(track_event::data_source());
        let session = backend.start_session(&config().encode_to_vec(), Sink::Buffers).expect("a session");
        assert!(session.wait_all_started(Duration::from_secs(300)), "the session starts");
        events(EVENTS);
        Self { events, _backend: backend, _session: session }
    }

    /// The counted part. Returns itself, so that the session's end is not counted.
    pub fn run(self) -> Self {
        (self.events)(black_box(EVENTS));
        self
    }
}

/// Spans of `tracing` with the fields of [`Writing::slices`], through the layer.
pub struct Spans {
    dispatch: Dispatch,
    _writing: Writing,
}

impl Spans {
    /// A thread that has written its first ones.
    pub fn new() -> Self {
        let writing = Writing::new(|_| ());
        let dispatch = Dispatch::new(tracing_subscriber::registry().with(watershed_client::layer()));
        Self { dispatch, _writing: writing }.run()
    }

    /// The counted part.
    pub fn run(self) -> Self {
        tracing::dispatcher::with_default(&self.dispatch, || {
            for number in 0..black_box(EVENTS) {
                let text = "a string of twenty b";
                tracing::info_span!(target: "on", "slice", number, text).in_scope(|| ());
            }
        });
        self
    }
}

impl Default for Spans {
    fn default() -> Self {
        Self::new()
    }
}

/// Times are counted in seconds: valgrind makes all else of them different in each run.
fn config() -> TraceConfig {
    let events = TrackEventConfig {
        enabled_categories: vec!["on".into()],
        disabled_categories: vec!["*".into()],
        timestamp_unit_multiplier: Some(1_000_000_000),
        ..Default::default()
    };
    let source = DataSourceConfig {
        name: Some(track_event::NAME.into()),
        track_event_config: Some(events),
        ..Default::default()
    };
    TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(8 << 10), ..Default::default() }],
        data_sources: vec![DataSource { config: Some(source), ..Default::default() }],
        ..Default::default()
    }
}

/// A writer whose memory is full, and a service that never gets to run.
pub struct Dropping {
    writer: TraceWriter,
    _arbiter: Arbiter,
}

const PAGE_BYTES: usize = 4096;
const PACKET: [u8; 24] = [0x5A; 24];

impl Dropping {
    /// All pages of 1 MiB are full, and the writer has found that out.
    pub fn full() -> Self {
        let memory = SharedMemory::create(256 * PAGE_BYTES).expect("memory");
        let smb = Smb::new(Arc::new(memory), PAGE_BYTES).expect("a memory of pages");
        smb.publish_free_epoch();
        let arbiter = Arbiter::new(smb, Arc::new(Stalled), Box::new(Stalled), ArbiterOptions::default());
        let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
        while arbiter.stats().packets_dropped < 10 {
            writer.write_packet(&PACKET);
        }
        Self { writer, _arbiter: arbiter }
    }

    /// The counted part.
    pub fn run(mut self) -> Self {
        (0..black_box(EVENTS)).for_each(|_| self.writer.write_packet(&PACKET));
        self
    }
}

struct Stalled;

impl Endpoint for Stalled {
    fn register_data_source(&self, _: &[u8]) {}
    fn update_data_source(&self, _: &[u8]) {}
    fn unregister_data_source(&self, _: &str) {}
    fn register_trace_writer(&self, _: u16, _: u16) {}
    fn unregister_trace_writer(&self, _: u16) {}
    fn commit_data(&self, _: CommitDataRequest, _: Option<Done>) {}
    fn data_source_started(&self, _: u64) {}
    fn data_source_stopped(&self, _: u64) {}
    fn activate_triggers(&self, _: &[String]) {}
    fn sync(&self, _: Done) {}
}

impl Waker for Stalled {
    fn wake(&self, _: Duration) {}
}
