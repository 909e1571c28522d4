//! Telling who started this recording when it records: `--notify-fd`, and `--background-wait`,
//! whose parent reads our standard output.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::time::Duration;

use super::Args;
use crate::exit::Failure;

/// Data sources that take longer to start are not waited for.
const START_TIMEOUT: Duration = Duration::from_secs(1);
/// Likewise where somebody wants to know, as the perfetto command has it.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(30);

/// What is told, as one byte.
pub(super) const ALL_STARTED: u8 = 0;
const NOT_ALL_STARTED: u8 = 1;

/// How long this recording waits for its data sources to start.
pub(super) fn start_timeout(args: &Args) -> Duration {
    if Notify::is_wanted(args) { NOTIFY_TIMEOUT } else { START_TIMEOUT }
}

/// Somebody who waits. If nothing is told before this goes, then that not all have started.
pub(super) struct Notify(Option<File>);

impl Notify {
    pub(super) fn is_wanted(args: &Args) -> bool {
        args.perfetto.notify_fd().is_some()
    }

    /// A second descriptor of what the user passed: ours to close.
    pub(super) fn open(args: &Args) -> Result<Option<Notify>, Failure> {
        let Some(fd) = args.perfetto.notify_fd() else { return Ok(None) };
        let file = OpenOptions::new().write(true).open(format!("/proc/self/fd/{fd}"));
        let file = file.map_err(|error| {
            Failure::usage(format_args!("--notify-fd {fd} cannot be written, it has to be a pipe: {error}"))
        })?;
        Ok(Some(Notify(Some(file))))
    }

    pub(super) fn tell(mut self, all_started: bool) {
        self.write(if all_started { ALL_STARTED } else { NOT_ALL_STARTED });
    }

    fn write(&mut self, told: u8) {
        // Who does not wait any more need not know.
        let _ = self.0.take().map(|mut file| file.write_all(&[told]));
    }
}

impl Drop for Notify {
    fn drop(&mut self) {
        self.write(NOT_ALL_STARTED);
    }
}
