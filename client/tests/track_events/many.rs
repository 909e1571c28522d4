//! Many events of several threads, into a file: each is there once.

use std::sync::atomic::{AtomicUsize, Ordering};

use prost::Message as _;
use watershed_client::in_process::{InProcess, Sink};
use watershed_client::track_event::Category;
use watershed_client::{instant, slice};
use watershed_wire::protos::TraceConfig;

use crate::{WATCHDOG, backend, config, on_thread, only, reader, start, stop};

static MANY: Category = Category::new("many");

const THREADS: u64 = 4;
/// Five events for each number: two slices and what is in them. 500,000 for ten million events.
const NUMBERS: u64 = 10_000;
/// `buffer_exhausted_policy: BUFFER_EXHAUSTED_STALL_THEN_DROP`.
const STALL_THEN_DROP: i32 = 3;

fn work(numbers: u64) {
    for number in 0..numbers {
        let _outer = slice!(MANY, "outer", number);
        let _inner = slice!(MANY, "inner");
        instant!(MANY, "inside", number, text = "a text");
    }
}

/// Writers that wait lose nothing. `WATERSHED_NUMBERS=500000` for more of them, and with
/// `WATERSHED_KEEP=FILE` the trace is kept, for another reader.
#[test]
fn every_event_is_in_the_file() {
    let numbers = std::env::var("WATERSHED_NUMBERS").map_or(NUMBERS, |numbers| numbers.parse().unwrap());
    let backend: InProcess = backend();
    let mut config: TraceConfig = config(only(&["many"]));
    config.write_into_file = Some(true);
    config.file_write_period_ms = Some(100);
    let source = config.data_sources[0].config.as_mut().unwrap();
    source.buffer_exhausted_policy = Some(STALL_THEN_DROP);
    // What the file's period cannot keep up with is for the writers to wait for.
    config.buffers[0].size_kb = Some(512 << 10);
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::var_os("WATERSHED_KEEP").map_or(folder.path().join("trace"), Into::into);
    let file = std::fs::File::create(&path).unwrap();
    let session = backend.start_session(&config.encode_to_vec(), Sink::File(file)).unwrap();
    assert!(session.wait_all_started(WATCHDOG));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || on_thread(&format!("many {thread}"), || work(numbers)));
        }
    });
    // The flush of the end itself has five seconds only.
    assert!(session.flush_and_wait(WATCHDOG));
    session.stop();
    let end = session.wait_timeout(WATCHDOG).expect("it ends");
    assert!(end.error.is_none() && end.write_error.is_none(), "{end:?}");
    let trace = reader::read(&std::fs::read(&path).unwrap());
    assert_eq!((trace.num_losses, trace.num_unreadable), (0, 0));
    for thread in 0..THREADS {
        let name = format!("many {thread}");
        let inside = trace.on(&name).into_iter().filter(|event| event.name == "inside");
        let numbers_read = inside.map(|event| event.args[0].clone());
        assert!(numbers_read.eq((0..numbers).map(|number| format!("number={number}"))), "{name}");
        assert_eq!(trace.nesting(&name), "outer(inner())".repeat(numbers as usize));
    }
    let num_dropped = backend.arbiter_stats().packets_dropped;
    assert_eq!(num_dropped, 0);
}

/// Two threads that are the first to use a category, at the same moment: both are heard.
#[test]
fn the_first_events_of_a_category_are_there() {
    const CATEGORIES: usize = 2_000;
    const RACING: usize = 2;
    let backend = backend();
    let session = start(&backend, only(&["first"]));
    let categories: Vec<&'static Category> =
        (0..CATEGORIES).map(|_| &*Box::leak(Box::new(Category::new("first")))).collect();
    let num_arrived = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..RACING {
            scope.spawn(|| {
                for (number, category) in categories.iter().enumerate() {
                    // Who waits must not sleep, or it comes too late for the other's first use.
                    num_arrived.fetch_add(1, Ordering::Relaxed);
                    while num_arrived.load(Ordering::Relaxed) < (number + 1) * RACING {
                        std::hint::spin_loop();
                    }
                    instant!(category, "first");
                }
            });
        }
    });
    let trace = stop(&session);
    assert_eq!((trace.num_losses, trace.num_unreadable), (0, 0));
    let num_events = trace.events.iter().filter(|event| event.category == "first").count();
    assert_eq!(num_events, CATEGORIES * RACING);
}
