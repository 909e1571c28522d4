//! Eight threads write into one session: small track events, then packets over many chunks.

use crate::consumer::Session;
use crate::service::Service;
use crate::trace::Trace;
use crate::{config, producer};

const THREADS: u64 = 8;
/// Less than the shared memory in all: the library has no reason to drop one.
const TRACK_EVENTS: u32 = 2_000;
/// Many times the shared memory: the library waits for space.
const PACKETS: u32 = 1_000;

pub(crate) fn run() {
    let service = Service::start();
    producer::start(4096);
    let mut session = Session::record(&config::ring(64 << 10));
    producer::in_threads(THREADS, |thread| {
        for number in 0..TRACK_EVENTS {
            producer::track_event(thread, number, None);
        }
    });
    assert!(session.flush(), "the producer answers a flush");
    producer::in_threads(THREADS, |thread| {
        for number in 0..PACKETS {
            producer::numbered(thread, number);
        }
    });
    assert!(session.flush(), "the producer answers a flush");
    let trace = session.finish();
    Trace::assert_complete(&trace.track_events, THREADS, TRACK_EVENTS);
    Trace::assert_complete(&trace.numbered, THREADS, PACKETS);
    trace.assert_lossless();
    let patches: u64 = trace.stats.buffer_stats.iter().map(|buffer| buffer.patches_succeeded()).sum();
    assert_ne!(patches, 0, "packets over several chunks are patched");
    assert_eq!(trace.stats.flushes_failed(), 0, "{:?}", trace.stats);
    service.stop();
}
