//! What the suite asks for: lines `KIND THREADS WARM EACH` on standard input.

use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A loop of so many events.
pub(crate) type Events = fn(u64);

/// For every line each thread does WARM events and then, timed, EACH. The line in answer has the
/// nanoseconds of a thread's EACH events, the mean of the threads, and what `end` says of the lap.
pub(crate) fn serve(
    events: impl Fn(&str) -> Option<Events>,
    mut end: impl FnMut() -> Result<u64, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[kind, threads, warm, each] = words.as_slice() else {
            return Err("a line is KIND THREADS WARM EACH".into());
        };
        let run = events(kind).ok_or_else(|| format!("no kind of events: {kind:?}"))?;
        let took = race(threads.parse()?, run, warm.parse()?, each.parse()?)?;
        println!("{} {}", took.as_nanos(), end()?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// The threads warm up, wait for each other and run: the mean of their times.
fn race(threads: u32, run: Events, warm: u64, each: u64) -> Result<Duration, Box<dyn Error>> {
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
