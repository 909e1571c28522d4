//! What one event costs the thread that writes it: into the in-process service with a ring of 64
//! MiB.
//!
//! `cargo bench -p watershed-client` prints nanoseconds of wall time for one event, over all
//! threads; with `-- FILTER` only some, with `-- --batch-ms=N` chunks wait so long for others
//! before they are committed. As a test it runs a few events and checks that they arrive.

use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use prost::Message as _;
use watershed_client::in_process::{InProcess, InProcessOptions, Session, Sink};
use watershed_client::track_event::{self, Category};
use watershed_client::{Context, DataSource, DataSourceFactory, TraceWriter, Wake, clock, instant, slice};
use watershed_wire::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_wire::protos::{DataSourceConfig, DataSourceDescriptor, TraceConfig, TrackEventConfig};

const THREADS_MAX: usize = 4;

struct Writers(mpsc::Sender<TraceWriter>);

impl DataSourceFactory for Writers {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some("bench".to_owned()),
            will_notify_on_start: Some(true),
            ..Default::default()
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        (0..THREADS_MAX)
            .try_for_each(|_| self.0.send(cx.create_writer()))
            .map_err(|gone| gone.to_string())?;
        Ok(Box::new(Idle))
    }
}

struct Idle;

impl DataSource for Idle {
    fn start(&mut self, _cx: &mut Context<'_>) -> Wake {
        Wake::Never
    }
}

/// A backend with one session and writers for its threads.
fn start(policy: i32, batch: Option<Duration>) -> (InProcess, Session, Vec<TraceWriter>) {
    let (sender, writers) = mpsc::channel();
    let mut options = InProcessOptions::default();
    if let Some(batch) = batch {
        options.producer.arbiter.batch_commits_duration = batch;
    }
    let backend = InProcess::new(options).expect("a backend");
    backend.register(Box::new(Writers(sender)));
    backend.register(track_event::data_source());
    let events = TrackEventConfig { disabled_categories: vec!["off".to_owned()], ..Default::default() };
    let source = |name: &str| SourceConfig {
        config: Some(DataSourceConfig {
            name: Some(name.to_owned()),
            buffer_exhausted_policy: Some(policy),
            track_event_config: Some(events.clone()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(64 << 10), ..Default::default() }],
        data_sources: vec![source("bench"), source(track_event::NAME)],
        ..Default::default()
    };
    let session = backend.start_session(&config.encode_to_vec(), Sink::Buffers).expect("a session");
    assert!(session.wait_all_started(Duration::from_secs(5)));
    let writers = writers.try_iter().collect();
    (backend, session, writers)
}

/// An instant event with an interned name: timestamp, and a track event of type, track and name.
fn instant(writer: &mut TraceWriter, timestamp_ns: u64) {
    let mut packet = writer.new_packet();
    packet.varint(8, timestamp_ns);
    packet.nested(11).varint(9, 3).varint(11, 0x1234_5678_9ABC).varint(10, 7);
}

type Event = fn(&mut TraceWriter, u64);

static ON: Category = Category::new("on");
static OFF: Category = Category::new("off");

const EVENTS: [(&str, Event); 9] = [
    ("empty loop", |_, i| {
        std::hint::black_box(i);
    }),
    ("instant! that is disabled", |_, i| {
        instant!(OFF, "instant", i);
        std::hint::black_box(i);
    }),
    ("clock alone", |_, _| {
        std::hint::black_box(clock::boottime_ns());
    }),
    ("instant!", |_, _| instant!(ON, "instant")),
    ("slice!, integer and string", |_, i| {
        drop(slice!(ON, "slice", number = i, text = "a string of twenty b"));
    }),
    ("raw packet of 24 bytes", |writer, _| writer.write_packet(&[0x5A; 24])),
    ("instant, time given", instant),
    ("instant, clock read", |writer, _| instant(writer, clock::boottime_ns())),
    ("slice, integer and string", |writer, i| {
        let mut packet = writer.new_packet();
        packet.varint(8, clock::boottime_ns());
        let mut event = packet.nested(11);
        event.varint(9, 1).varint(11, 0x1234_5678_9ABC).varint(10, 7);
        event.nested(4).varint(1, 1).varint(3, i);
        event.nested(4).varint(1, 2).string(6, "a string of twenty b");
    }),
];

/// Nanoseconds of wall time for an event, and how many of them were dropped.
fn lap(
    event: Event,
    threads: usize,
    events_per_thread: u64,
    policy: i32,
    batch: Option<Duration>,
) -> (f64, u64) {
    let (backend, session, mut writers) = start(policy, batch);
    writers.truncate(threads);
    let barrier = Arc::new(Barrier::new(threads + 1));
    let workers: Vec<_> = writers
        .into_iter()
        .map(|mut writer| {
            let barrier = barrier.clone();
            std::thread::spawn(move || {
                // The first chunk, the image and the caches are not what is measured.
                (0..100).for_each(|i| event(&mut writer, i));
                barrier.wait();
                (0..events_per_thread).for_each(|i| event(&mut writer, i));
                barrier.wait();
            })
        })
        .collect();
    barrier.wait();
    let started = Instant::now();
    barrier.wait();
    let took = started.elapsed();
    workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
    session.stop();
    assert!(session.wait().error.is_none());
    let dropped = backend.arbiter_stats().packets_dropped;
    (took.as_nanos() as f64 / (threads as u64 * events_per_thread) as f64, dropped)
}

fn main() {
    let measure = std::env::args().any(|arg| arg == "--bench");
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let batch_ms = std::env::args().find_map(|arg| arg.strip_prefix("--batch-ms=")?.parse().ok());
    let batch = batch_ms.map(Duration::from_millis);
    let (laps, events) = if measure { (9, 400_000) } else { (1, 1000) };
    println!("{:<28} {:>7} {:>9} {:>9} {:>9}", "event", "threads", "ns, best", "median", "dropped");
    for (name, event) in EVENTS.into_iter().filter(|(name, _)| name.contains(&filter)) {
        for (threads, policy) in [(1, 1), (2, 1), (2, 3)] {
            let mut runs: Vec<_> = (0..laps).map(|_| lap(event, threads, events, policy, batch)).collect();
            runs.sort_by(|a, b| a.0.total_cmp(&b.0));
            let dropped: u64 = runs.iter().map(|run| run.1).sum();
            assert!(policy != 3 || dropped == 0, "writers that wait lose nothing");
            let waits = if policy == 3 { "+wait" } else { "" };
            println!(
                "{name:<28} {threads:>2}{waits:<5} {:>9.1} {:>9.1} {dropped:>9}",
                runs[0].0,
                runs[laps / 2].0
            );
        }
    }
}
