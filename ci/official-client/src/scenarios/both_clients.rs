//! The official client and ours beside each other: both producers in two sessions at once, of which
//! each client's consumer holds one.

use crate::service::Service;
use crate::trace::Trace;
use crate::{config, consumer, own, producer};

/// Of each producer.
const THREADS: u64 = 4;
const PACKETS: u32 = 1_000;

pub(crate) fn run() {
    let service = Service::start();
    producer::start(4096);
    let our_producer = own::Producer::start(THREADS);
    let official = consumer::Session::record(&config::ring(64 << 10));
    let ours = own::Session::start(&config::ring(64 << 10));
    let writers = our_producer.writers().into_iter().zip(our_producer.writers());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            producer::in_threads(THREADS, |thread| {
                (0..PACKETS).for_each(|number| producer::numbered(thread, number));
            });
        });
        for (thread, (mut of_one, mut of_other)) in (THREADS..).zip(writers) {
            scope.spawn(move || {
                for number in 0..PACKETS {
                    let packet = own::numbered(thread, number);
                    of_one.write_message(&packet);
                    of_other.write_message(&packet);
                }
            });
        }
    });
    for trace in [official.finish(), ours.finish()] {
        Trace::assert_complete(&trace.numbered, 2 * THREADS, PACKETS);
        trace.assert_lossless();
        assert_eq!(trace.stats.flushes_failed(), 0, "{:?}", trace.stats);
    }
    service.stop();
}
