//! Track events as fast as four threads can: the library drops what its shared memory cannot hold,
//! and the trace must say so.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::consumer::Session;
use crate::service::Service;
use crate::trace::{Event, Trace};
use crate::{config, producer, wait_until};

const THREADS: u64 = 4;
const EVENTS: u32 = 20_020;
const ALL: u64 = THREADS * EVENTS as u64;
/// One event in a thousand is large.
const LARGE_EVERY: u32 = 1_000;
const LARGE_SIZE_BYTES: usize = 9 << 10;
/// Bits of `previous_packet_dropped`: a chunk is missing (2), damaged (4) or overwritten (64).
const OF_SERVICE: u32 = 2 | 4 | 64;

/// One burst, with shared memory of the default size or the config's.
pub(crate) fn run(shm_size_kb: Option<u32>) {
    let service = Service::start();
    let (losses, trace) = burst(shm_size_kb);
    service.stop();
    assert_eq!(losses.gaps, losses.flagged, "each gap is reported where it is: {:?}", trace.stats);
    assert_eq!(losses.of_service, 0, "the library dropped them, not the service: {losses:?}");
    if losses.arrived == ALL {
        trace.assert_lossless();
    }
    let overwritten: u64 = trace.stats.buffer_stats.iter().map(|buffer| buffer.chunks_overwritten()).sum();
    assert_eq!(overwritten, 0, "the ring holds all of it");
}

/// One burst into a service that is a process of its own, Perfetto's or ours. What it reports is
/// its own matter.
pub(crate) fn run_beside(program: &str, args: &[&str]) {
    let service = Command::new(program).args(args).stdin(Stdio::null()).spawn().expect("it starts");
    let service = Killed(service);
    wait_until("the service listens", || {
        ["PRODUCER", "CONSUMER"].iter().all(|peer| {
            let socket = std::env::var(format!("PERFETTO_{peer}_SOCK_NAME")).expect("the test sets it");
            Path::new(&socket).exists()
        })
    });
    burst(None);
    drop(service);
}

/// Killed with the value.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints what came of it.
fn burst(shm_size_kb: Option<u32>) -> (Losses, Trace) {
    producer::start(0);
    let config = config::ring(64_000);
    let config = match shm_size_kb {
        Some(size_kb) => config::with_shared_memory(config, size_kb),
        None => config,
    };
    let session = Session::record(&config);
    let filler = "x".repeat(LARGE_SIZE_BYTES);
    let started = std::time::Instant::now();
    producer::in_threads(THREADS, |thread| {
        for number in 0..EVENTS {
            let is_large = number % LARGE_EVERY == LARGE_EVERY - 1;
            producer::track_event(thread, number, is_large.then_some(&filler));
        }
    });
    let took = started.elapsed();
    let trace = session.finish();
    let losses = Losses::of(&trace);
    println!(
        "burst: {} of {ALL} events, {} gaps, {} of them flagged, {} writers without their last \
         events, writer losses in the statistics {}, written in {} ms",
        losses.arrived,
        losses.gaps,
        losses.flagged,
        losses.tails,
        trace.writer_losses(),
        took.as_millis(),
    );
    (losses, trace)
}

/// What does not follow each other.
#[derive(Debug, Default)]
struct Losses {
    arrived: u64,
    /// Places in a writer's events, also before its first one, where some are missing.
    gaps: usize,
    /// Those with a packet behind them that says so.
    flagged: usize,
    /// Those where the service says that chunks had gone missing.
    of_service: usize,
    /// Writers whose last events are missing. That can be in no trace where the library had ended
    /// a chunk with a whole event: it marks a chunk only when it drops the rest of an event, and
    /// has no next event to say it with.
    tails: usize,
}

impl Losses {
    fn of(trace: &Trace) -> Losses {
        let mut losses = Losses::default();
        let mut threads = Vec::new();
        for events in trace.track_events.values() {
            threads.push(events[0].thread);
            losses.add_writer(events);
        }
        threads.sort_unstable();
        threads.dedup();
        assert_eq!(threads.len(), trace.track_events.len(), "a writer for each thread");
        // A thread of which nothing arrived.
        losses.tails += THREADS as usize - threads.len();
        losses
    }

    fn add_writer(&mut self, events: &[Event]) {
        let mut next = 0;
        for event in events {
            assert!(event.number >= next, "event {event:?} comes after event {next}");
            if event.number > next {
                self.gaps += 1;
                self.flagged += usize::from(event.loss_bits != 0);
                self.of_service += usize::from(event.loss_bits & OF_SERVICE != 0);
            }
            next = event.number + 1;
        }
        self.arrived += events.len() as u64;
        self.tails += usize::from(next < EVENTS);
    }
}
