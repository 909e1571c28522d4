//! Two sessions record the same producer; one consumer leaves in the middle.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::consumer::Session;
use crate::service::Service;
use crate::trace::Trace;
use crate::{config, producer};

const THREADS: u64 = 4;
const PACKETS: u32 = 200;

pub(crate) fn run() {
    let service = Service::start();
    producer::start(0);
    let mut stays = Session::record(&config::ring(16 << 10));
    write(0);
    let leaves = Session::start(&config::ring(16 << 10));
    write(1);
    let mut read = Session::start(&config::ring(16 << 10));
    write(2);
    assert!(read.flush(), "the producer answers a flush");
    read.stop();
    // It has what was written between its start and its end.
    let trace = read.read();
    assert_steps(&trace, 2..3);
    trace.assert_lossless();
    assert_eq!(trace.stats.tracing_sessions(), 3);
    drop(read);
    // Threads write while the consumer leaves.
    std::thread::scope(|scope| {
        scope.spawn(|| write(3));
        drop(leaves);
    });
    write(4);
    assert!(stays.flush(), "the producer answers a flush");
    let trace = stays.finish();
    assert_steps(&trace, 0..5);
    assert_eq!(trace.loss_flags, 0);
    assert_eq!(trace.stats.tracing_sessions(), 1, "the other sessions were freed");
    assert_eq!(trace.stats.total_buffers(), 1, "and their buffers");
    service.stop();
}

fn write(step: u32) {
    producer::in_threads(THREADS, |thread| {
        for number in 0..PACKETS {
            producer::numbered(thread, step * PACKETS + number);
        }
    });
}

/// The trace has all that was written in these steps, and nothing else.
fn assert_steps(trace: &Trace, steps: Range<u32>) {
    let mut writers = BTreeMap::new();
    for events in trace.numbered.values() {
        let (thread, first) = (events[0].thread, events[0].number);
        let numbers = events.iter().map(|event| (event.thread, event.number));
        let wanted = (first..first + PACKETS).map(|number| (thread, number));
        assert!(numbers.eq(wanted), "thread {thread} from {first} has {events:?}");
        *writers.entry(first / PACKETS).or_insert(0) += 1;
        assert_eq!(first % PACKETS, 0, "thread {thread} begins with {first}");
    }
    assert!(writers.into_iter().eq(steps.map(|step| (step, THREADS))));
}
