//! perfetto-sdk with the same events.

use super::events::Kind;
use super::tally::Outcome;
use super::trace::Contents;
use crate::measure::{Lap, Options, WrongAnswer};
use crate::suites::rival::RivalProgram;
use std::time::Duration;
use tempfile::NamedTempFile;

const PROGRAM: &str = "target/rivals/release/watershed-rival-perfetto-events";

/// The running program.
pub(super) struct Rival {
    program: RivalProgram,
    /// It replaces the contents with each lap's trace.
    trace: NamedTempFile,
}

impl Rival {
    /// Starts it; `None` where it was not built.
    pub(super) fn start() -> Result<Option<Rival>, WrongAnswer> {
        let trace = NamedTempFile::new().map_err(|error| error.to_string())?;
        let program = RivalProgram::start(PROGRAM, [trace.path()])?;
        Ok(program.map(|program| Rival { program, trace }))
    }

    /// One of its sessions, in which so many threads run its loop.
    pub(super) fn lap(
        &mut self,
        kind: Kind,
        threads: u64,
        options: &Options,
    ) -> Result<Outcome, WrongAnswer> {
        let counts = kind.counts(threads, options);
        let line = format!("{} {threads} {} {}", kind.name(), counts.warm, counts.each);
        let elapsed = self.program.ask(&line, time_of)?;
        let trace = std::fs::read(self.trace.path()).map_err(|error| error.to_string())?;
        let (written, contents) = (kind.written(threads, options), Contents::of(&trace)?);
        contents.check(written, kind == Kind::Slice, None).map_err(|error| format!("{PROGRAM}: {error}"))?;
        let lap = Lap { elapsed, units: threads * counts.each };
        Ok(Outcome { lap, cpu_ns: None, written, contents })
    }
}

fn time_of(answer: &str) -> Result<Duration, WrongAnswer> {
    let nanoseconds = answer.trim().parse().map_err(|_| format!("no answer: {answer:?}"))?;
    Ok(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_time() {
        assert_eq!(time_of("1500\n"), Ok(Duration::from_nanos(1500)));
        assert!(time_of("").is_err() && time_of("15 00").is_err());
    }
}
