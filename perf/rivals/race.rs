//! Threads that race, for all rivals: each is a workspace of its own, which takes this file in.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A loop of so many events.
pub(crate) type Events = fn(u64);

/// The threads warm up, wait for each other and run: the mean of their times.
pub(crate) fn race(threads: u32, run: Events, warm: u64, each: u64) -> Result<Duration, Box<dyn Error>> {
    let ready = AtomicU32::new(0);
    let times: Option<Duration> = std::thread::scope(|scope| {
        let work = || {
            run(warm);
            // Nothing is published by it: the threads only wait for each other.
            ready.fetch_add(1, Ordering::Relaxed);
            while ready.load(Ordering::Relaxed) < threads {
                std::thread::yield_now();
            }
            let start = Instant::now();
            run(each);
            start.elapsed()
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().ok()).sum()
    });
    Ok(times.ok_or("a thread panicked")? / threads)
}
