//! Track events as fast as four threads can: the library drops what its shared memory cannot hold,
//! and the trace must say so.

use crate::consumer::Session;
use crate::service::Service;
use crate::trace::{Event, Trace};
use crate::{config, producer};

const THREADS: u64 = 4;
const EVENTS: u32 = 20_020;
/// One event in a thousand is large.
const LARGE_EVERY: u32 = 1_000;
const LARGE_SIZE_BYTES: usize = 9 << 10;

/// One burst, with shared memory of the default size or the config's.
pub(crate) fn run(shm_size_kb: Option<u32>) {
    let service = Service::start();
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
    service.stop();
    let losses = Losses::of(&trace);
    let all = THREADS * u64::from(EVENTS);
    println!(
        "burst: {} of {all} events, {} gaps, {} of them flagged, {} writers without their last \
         events, writer losses in the statistics {}, written in {} ms",
        losses.arrived,
        losses.gaps,
        losses.flagged,
        losses.tails,
        trace.writer_losses(),
        took.as_millis(),
    );
    assert_eq!(losses.gaps, losses.flagged, "each gap is reported where it is: {:?}", trace.stats);
    assert!(losses.tails == 0 || trace.writer_losses() > 0, "lost ends are counted");
    if losses.arrived == all {
        trace.assert_lossless();
    }
    let overwritten: u64 = trace.stats.buffer_stats.iter().map(|buffer| buffer.chunks_overwritten()).sum();
    assert_eq!(overwritten, 0, "the ring holds all of it");
}

/// What does not follow each other.
#[derive(Debug, Default)]
struct Losses {
    arrived: u64,
    /// Places in a writer's events, also before its first one, where some are missing.
    gaps: usize,
    /// Those with a packet behind them that says so.
    flagged: usize,
    /// Writers whose last events are missing.
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
                self.flagged += usize::from(event.after_loss);
            }
            next = event.number + 1;
        }
        self.arrived += events.len() as u64;
        self.tails += usize::from(next < EVENTS);
    }
}
