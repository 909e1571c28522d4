//! What the suite asks for: lines `KIND THREADS WARM EACH` on standard input.

#[path = "../../race.rs"]
mod race;

use std::error::Error;
use std::io::{BufRead, Write};

pub(crate) use race::Events;
use race::race;

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
