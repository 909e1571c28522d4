//! The daemon goes in the middle of a session and comes back: the producer finds it by itself.

use crate::consumer::Session;
use crate::service::Service;
use crate::trace::Trace;
use crate::{config, producer, wait_until};

const THREADS: u64 = 2;
const PACKETS: u32 = 300;

pub(crate) fn run() {
    // Before there is a daemon: the library waits for it in the background.
    producer::start(0);
    let mut service = Service::start();
    record();
    for _ in 0..2 {
        let session = Session::record(&config::ring(4096));
        producer::numbered(0, 0);
        service.stop();
        wait_until("the library knows that the daemon has gone", || !producer::is_recorded());
        drop(session);
        service = Service::start();
        record();
    }
    service.stop();
}

fn record() {
    let session = Session::record(&config::ring(16 << 10));
    producer::in_threads(THREADS, |thread| {
        for number in 0..PACKETS {
            producer::numbered(thread, number);
        }
    });
    let trace = session.finish();
    Trace::assert_complete(&trace.numbered, THREADS, PACKETS);
    trace.assert_lossless();
    assert_eq!(trace.stats.tracing_sessions(), 1);
}
