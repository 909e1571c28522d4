//! What is said of a recording that has ended, and the exit code.

use std::io;
use std::time::Duration;

use watershed_wire::config::TraceConfig;

use super::Args;
use super::end::End;
use super::output::{Output, Written};
use super::summary::{self, Summary};
use crate::exit::{Exit, Failure};

/// A line on standard error.
pub(super) fn say(message: &dyn std::fmt::Display) {
    eprintln!("watershed: {message}");
}

pub(super) fn warn(message: &dyn std::fmt::Display) {
    eprintln!("watershed: warning: {message}");
}

/// What is said of a recording.
#[derive(Default)]
pub(super) struct Reported {
    /// What went wrong, if something did.
    pub(super) failure: Option<String>,
    /// The summary, if it is wanted so: it comes behind what the command writes.
    pub(super) json: Option<String>,
}

/// One trace that has ended.
pub(super) struct Recorded<'a> {
    pub(super) output: &'a Output,
    pub(super) written: &'a Written,
    pub(super) time: Duration,
    pub(super) end: &'a End,
    /// Packets that writers of this process gave up.
    pub(super) dropped: u64,
}

impl Recorded<'_> {
    /// Prints the summary, unless it is wanted as JSON.
    pub(super) fn report(&self, config: &TraceConfig, args: &Args) -> Reported {
        let (end, tally, path) = (self.end, self.written.tally(), self.output.path());
        if let (Some(error), None, 0) = (&end.error, &end.write_error, tally.bytes) {
            self.output.remove_if_new();
            let failure = format!("the recording failed, nothing is in {}: {error}", path.display());
            return Reported { failure: Some(failure), json: None };
        }
        let losses = summary::losses(config.view(), end, self.dropped, &tally);
        let is_lossy = !losses.is_empty();
        let summary = Summary { path, trigger: None, time: self.time, tally: &tally, losses };
        let json = args.json.then(|| serde_json::to_string(&summary).expect("numbers and texts"));
        if json.is_none() {
            eprintln!("{summary}");
        }
        let path = path.display();
        let failure = match end {
            End { write_error: Some(error), .. } => Some(format!("writing {path} failed: {error}")),
            End { error: Some(error), .. } => Some(format!("the recording failed: {error}")),
            End { left_out: Some(_), .. } => Some(format!(
                "the recording ended because {path} was full: max_file_size_bytes is {}",
                config.view().max_file_size_bytes()
            )),
            _ if is_lossy && args.fail_on_loss => Some("the trace does not have everything".to_owned()),
            _ => None,
        };
        Reported { failure, json }
    }
}

/// The exit code: what went wrong comes first, then the `signal` that ended the recording, then the
/// code of the `command`.
pub(super) fn exit(
    failure: Option<String>,
    signal: Option<i32>,
    command: Option<io::Result<u8>>,
    args: &Args,
) -> Result<Exit, Failure> {
    if let Some(failure) = failure {
        return Err(Failure::failed(failure));
    }
    match (signal, command) {
        (Some(number), _) => Ok(Exit::Signal(number as u8)),
        (None, Some(Ok(code))) => Ok(Exit::Command(code)),
        (None, Some(Err(error))) => {
            let program = args.command.first().map(|p| p.display().to_string()).unwrap_or_default();
            Err(Failure::failed(format_args!("cannot wait for {program}: {error}")))
        }
        (None, None) => Ok(Exit::Done),
    }
}
