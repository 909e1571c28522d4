//! Recordings whose triggers each make a trace of its own: `FILE.0`, `FILE.1` and so on. What the
//! session has recorded by a trigger is cloned; the session itself is never read.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use watershed_wire::config::TraceConfig;

use super::Args;
use super::end::End;
use super::report::{Reported, warn};
use super::summary::{self, Summary};
use super::tally::Tally;
use crate::exit::{Failure, printed};
use crate::sessions::clone;
use crate::text::{counted, printable};

/// Names of the files, by the number of the trigger.
#[derive(Debug, Clone)]
pub(super) struct Numbered {
    base: PathBuf,
    /// Whether files that are there may go.
    replaces: bool,
}

impl Numbered {
    /// As the arguments or the config name them. Finds out now whether files can be created there:
    /// the first trigger may be far off.
    pub(super) fn new(args: &Args, config: &TraceConfig) -> Result<Self, Failure> {
        let of_config = config.view().output_path.as_ref().map(PathBuf::from);
        let Some(base) = args.out.clone().or(of_config) else {
            return Err(Failure::usage(
                "the config has triggers that make a trace each: name the files FILE.0, FILE.1 and so on with -o FILE",
            ));
        };
        if base == Path::new("-") {
            return Err(Failure::usage("-o -: the config has triggers that make a trace each; name a file"));
        }
        let files = Numbered { base, replaces: !args.perfetto.no_clobber };
        clone::check_place(&files.path(0)?)?;
        Ok(files)
    }

    /// # Errors
    ///
    /// The file is there already, and may not be replaced.
    pub(super) fn path(&self, number: u64) -> Result<PathBuf, Failure> {
        let path = self.name(number);
        match !self.replaces && path.exists() {
            true => {
                Err(Failure::failed(format_args!("{} is there already, and --no-clobber", path.display())))
            }
            false => Ok(path),
        }
    }

    fn name(&self, number: u64) -> PathBuf {
        let mut name: OsString = self.base.clone().into();
        name.push(format!(".{number}"));
        name.into()
    }
}

/// What has become of a trigger.
pub(super) struct Taken {
    pub(super) trigger: String,
    pub(super) result: Result<Trace, Failure>,
}

/// A trace that was written for a trigger.
pub(super) struct Trace {
    pub(super) path: PathBuf,
    /// Since the recording began.
    pub(super) time: Duration,
    pub(super) tally: Tally,
    pub(super) end: End,
}

/// Tells of each trace when it is written, and of all at the end.
#[derive(Debug, Default)]
pub(super) struct Report {
    written: u64,
    failed: u64,
    lossy: u64,
    /// Why the traces' lines of JSON could not be written.
    unprinted: Option<Failure>,
}

impl Report {
    pub(super) fn take(&mut self, taken: &Taken, config: &TraceConfig, args: &Args) {
        let trace = match &taken.result {
            Ok(trace) => trace,
            Err(failure) => {
                self.failed += 1;
                return warn(&format_args!(
                    "no trace for trigger \"{}\": {failure}",
                    printable(&taken.trigger)
                ));
            }
        };
        self.written += 1;
        let losses = summary::losses(config.view(), &trace.end, 0, &trace.tally);
        self.lossy += u64::from(!losses.is_empty());
        let (path, time, tally) = (trace.path.as_path(), trace.time, &trace.tally);
        let summary = Summary { path, trigger: Some(&taken.trigger), time, tally, losses };
        match args.json {
            false => eprintln!("{summary}"),
            true => {
                let line = serde_json::to_string(&summary).expect("numbers and texts");
                if let Err(failure) = printed(writeln!(io::stdout(), "{line}")) {
                    self.unprinted.get_or_insert(failure);
                }
            }
        }
    }

    /// The recording has ended.
    pub(super) fn close(&mut self, files: &Numbered, args: &Args, time: Duration, end: &End) -> Reported {
        eprintln!("{}", self.closing(files, time));
        if !end.not_offered.is_empty() {
            eprintln!("  lost: {}", summary::not_offered(end));
        }
        let all = self.written + self.failed;
        let is_lossy = args.fail_on_loss && (self.lossy > 0 || !end.not_offered.is_empty());
        let failure = match &end.error {
            Some(error) => Some(format!("the recording failed: {error}")),
            None if self.failed > 0 => Some(format!("{} of {all} traces could not be written", self.failed)),
            None if is_lossy && self.lossy > 0 => {
                Some(format!("{} of {all} traces do not have everything", self.lossy))
            }
            None if is_lossy => Some("nobody offered all data sources of the config".to_owned()),
            None => self.unprinted.take().map(|failure| failure.to_string()),
        };
        Reported { failure, json: None }
    }

    fn closing(&self, files: &Numbered, time: Duration) -> String {
        let (all, seconds) = (self.written + self.failed, time.as_secs_f64());
        let first = files.name(0);
        let written = match (self.written, all) {
            (_, 0) => return format!("no trigger came within {seconds:.1} s, nothing was written"),
            (0, _) => "no trace".to_owned(),
            (_, 1) => format!("1 trace in {}", first.display()),
            (number, _) => {
                let last = files.name(all - 1);
                format!("{} in {} to {}", counted(number, "trace"), first.display(), last.display())
            }
        };
        let failed = if self.failed == 0 { String::new() } else { format!(", {} failed", self.failed) };
        format!("{} in {seconds:.1} s: {written}{failed}", counted(all, "trigger"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_came_is_said_at_the_end() {
        let files = Numbered { base: "d/t.pftrace".into(), replaces: true };
        for (written, failed, said) in [
            (0, 0, "no trigger came within 1.5 s, nothing was written"),
            (1, 0, "1 trigger in 1.5 s: 1 trace in d/t.pftrace.0"),
            (0, 1, "1 trigger in 1.5 s: no trace, 1 failed"),
            (1, 1, "2 triggers in 1.5 s: 1 trace in d/t.pftrace.0 to d/t.pftrace.1, 1 failed"),
            (3, 0, "3 triggers in 1.5 s: 3 traces in d/t.pftrace.0 to d/t.pftrace.2"),
        ] {
            let report = Report { written, failed, ..Report::default() };
            assert_eq!(report.closing(&files, Duration::from_millis(1500)), said);
        }
    }

    #[test]
    fn files_that_are_there_stay_if_that_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("t");
        std::fs::write(folder.path().join("t.1"), "precious").unwrap();
        let mut files = Numbered { base, replaces: false };
        assert_eq!(files.path(0).unwrap(), folder.path().join("t.0"));
        assert!(files.path(1).unwrap_err().to_string().contains("--no-clobber"));
        files.replaces = true;
        assert_eq!(files.path(1).unwrap(), folder.path().join("t.1"));
    }
}
