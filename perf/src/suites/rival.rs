//! Rivals in C++, which are programs of their own: `ci/rivals` builds them. Such a program waits
//! for a line, does a lap, and answers with a line, so its laps alternate with ours.

use crate::measure::WrongAnswer;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running program, and its output.
pub(super) struct RivalProgram {
    path: &'static str,
    child: Child,
    /// Closed first, which ends the program.
    laps: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl RivalProgram {
    /// Starts it; `None` where it was not built. `path` is where `ci/rivals` leaves it, from the
    /// repository's root.
    pub(super) fn start(
        path: &'static str,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Option<Self>, WrongAnswer> {
        if !Path::new(path).is_file() {
            return Ok(None);
        }
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("{path}: {error}"))?;
        let (laps, answers) = (child.stdin.take(), child.stdout.take().expect("piped"));
        Ok(Some(Self { path, child, laps, answers: BufReader::new(answers) }))
    }

    /// Asks for a lap. Its answer is read by `read`, whose errors get the program's name.
    pub(super) fn ask<T>(
        &mut self,
        line: &str,
        read: impl FnOnce(&str) -> Result<T, WrongAnswer>,
    ) -> Result<T, WrongAnswer> {
        let mut answer = String::new();
        let asked = writeln!(self.laps.as_mut().expect("open until the drop"), "{line}");
        asked
            .and_then(|()| self.answers.read_line(&mut answer))
            .map_err(|error| error.to_string())
            .and_then(|_| read(&answer))
            .map_err(|error| format!("{}: {error}", self.path))
    }
}

impl Drop for RivalProgram {
    fn drop(&mut self) {
        drop(self.laps.take());
        let _ = self.child.wait();
    }
}
