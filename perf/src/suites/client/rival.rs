//! Rivals with the same events, each a program of its own.

use super::events::{Counts, Kind};
use super::tally::Outcome;
use super::trace::Contents;
use crate::measure::{Lap, LapResult, Options, WrongAnswer};
use crate::suites::rival::RivalProgram;
use std::time::Duration;
use tempfile::NamedTempFile;

const PERFETTO_SDK: &str = "target/rivals/release/watershed-rival-perfetto-events";
const TRACING_PERFETTO: &str = "target/rivals/release/watershed-rival-tracing-perfetto";
const LTTNG_UST: &str = "target/rivals/release/watershed-rival-lttng";
/// Bytes of one of its events without fields, at least.
const LTTNG_HEAD: u64 = 4;
/// Of both events of a slice: an integer, and a text with its end.
const LTTNG_SLICE: u64 = 2 * LTTNG_HEAD + 8 + 21;
const FASTRACE: &str = "target/rivals/release/watershed-rival-fastrace";

/// A running program that writes traces of Perfetto's format.
pub(super) struct Rival {
    path: &'static str,
    /// It does so many times fewer events than ours.
    fewer: u64,
    program: RivalProgram,
    /// It replaces the contents with each lap's trace.
    trace: NamedTempFile,
}

impl Rival {
    /// Starts perfetto-sdk; `None` where it was not built.
    pub(super) fn start() -> Result<Option<Rival>, WrongAnswer> {
        Self::start_program(PERFETTO_SDK, 1)
    }

    /// Starts tracing-perfetto, whose only kind is spans, each of which takes long; `None` where it
    /// was not built.
    pub(super) fn start_tracing() -> Result<Option<Rival>, WrongAnswer> {
        Self::start_program(TRACING_PERFETTO, 10)
    }

    fn start_program(path: &'static str, fewer: u64) -> Result<Option<Rival>, WrongAnswer> {
        let trace = NamedTempFile::new().map_err(|error| error.to_string())?;
        let program = RivalProgram::start(path, [trace.path()])?;
        Ok(program.map(|program| Rival { path, fewer, program, trace }))
    }

    /// One of its sessions, in which so many threads run its loop.
    pub(super) fn lap(
        &mut self,
        kind: Kind,
        threads: u64,
        options: &Options,
    ) -> Result<Outcome, WrongAnswer> {
        let counts = kind.counts(threads, options).fewer(self.fewer);
        let (elapsed, _) = ask(&mut self.program, kind, threads, counts)?;
        let trace = std::fs::read(self.trace.path()).map_err(|error| error.to_string())?;
        let (written, contents) = (counts.written(kind, threads), Contents::of(&trace)?);
        contents.check(written, kind.has_ends(), None).map_err(|error| format!("{}: {error}", self.path))?;
        let lap = Lap { elapsed, units: threads * counts.each };
        Ok(Outcome { lap, cpu_ns: None, written, contents })
    }
}

/// fastrace, whose only kind is slices. It writes no trace, but counts what reaches its reporter.
pub(super) struct Fastrace(RivalProgram);

impl Fastrace {
    /// Starts it; `None` where it was not built.
    pub(super) fn start() -> Result<Option<Fastrace>, WrongAnswer> {
        Ok(RivalProgram::start(FASTRACE, [""; 0])?.map(Fastrace))
    }

    /// One lap of a thread.
    pub(super) fn lap(&mut self, options: &Options) -> LapResult {
        let counts = Kind::Slice.counts(1, options);
        let (elapsed, reported) = ask(&mut self.0, Kind::Slice, 1, counts)?;
        let written = counts.written(Kind::Slice, 1);
        if reported == written {
            Ok(Lap { elapsed, units: counts.each })
        } else {
            Err(format!("{FASTRACE}: {reported} of {written} spans were reported"))
        }
    }
}

/// LTTng-UST, with the events of perfetto-sdk's program, and a daemon of its own. It writes no
/// trace that we read, but says how many bytes it has recorded.
pub(super) struct Lttng(RivalProgram);

impl Lttng {
    /// Starts it; `None` where it was not built, or where there is no `lttng-sessiond`.
    pub(super) fn start() -> Result<Option<Lttng>, WrongAnswer> {
        let Some(mut program) = RivalProgram::start(LTTNG_UST, [""; 0])? else { return Ok(None) };
        let counts = Counts { warm: 0, each: 1 };
        let is_there = ask(&mut program, Kind::Empty, 1, counts).is_ok();
        Ok(is_there.then_some(Lttng(program)))
    }

    /// One of its sessions, in which so many threads run its loop.
    pub(super) fn lap(&mut self, kind: Kind, threads: u64, options: &Options) -> LapResult {
        let counts = kind.counts(threads, options);
        let (elapsed, bytes) = ask(&mut self.0, kind, threads, counts)?;
        let bytes_min =
            counts.written(kind, threads) * if kind == Kind::Slice { LTTNG_SLICE } else { LTTNG_HEAD };
        if bytes >= bytes_min {
            Ok(Lap { elapsed, units: threads * counts.each })
        } else {
            Err(format!("{LTTNG_UST}: {bytes} bytes were recorded, of {bytes_min} at least"))
        }
    }
}

/// Asks for a lap: its time, and what the program says of it.
fn ask(
    program: &mut RivalProgram,
    kind: Kind,
    threads: u64,
    counts: Counts,
) -> Result<(Duration, u64), WrongAnswer> {
    let line = format!("{} {threads} {} {}", kind.name(), counts.warm, counts.each);
    program.ask(&line, time_and_number)
}

/// An answer: nanoseconds and a number, which perfetto-sdk's program does not have.
fn time_and_number(answer: &str) -> Result<(Duration, u64), WrongAnswer> {
    let numbers: Result<Vec<u64>, _> = answer.split_whitespace().map(str::parse).collect();
    match numbers.as_deref() {
        Ok(&[nanoseconds]) => Ok((Duration::from_nanos(nanoseconds), 0)),
        Ok(&[nanoseconds, number]) => Ok((Duration::from_nanos(nanoseconds), number)),
        _ => Err(format!("no answer: {answer:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_time_and_maybe_a_number() {
        assert_eq!(time_and_number("1500\n"), Ok((Duration::from_nanos(1500), 0)));
        assert_eq!(time_and_number("15 3\n"), Ok((Duration::from_nanos(15), 3)));
        assert!(["", "1 2 3", "15 x"].iter().all(|answer| time_and_number(answer).is_err()));
    }
}
