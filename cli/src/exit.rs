//! Exit codes, in one place.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | failed, or the input was damaged |
//! | 2 | the command line or the config is wrong; nothing was done |
//! | 3 | a gate's limit is broken |
//! | 4 | a gate refused to judge |
//! | 127 | the command to record does not exist |
//! | 128 + n | ended by signal n, after what was recorded had been saved |

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The table above for `--help`.
pub(crate) const HELP: &str = "Exit codes: 0 done, 1 failed or damaged input, 2 wrong usage or config, \
                               127 command not found, 128+n ended by signal n; \
                               `record -- COMMAND` passes the command's own code on.";

/// How a command ended without having to explain itself on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// The code of a command that was run on the user's behalf.
    Command(u8),
    /// Signal number; 128 + n on the outside.
    Signal(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => ExitCode::SUCCESS,
            Exit::Command(code) => ExitCode::from(code),
            Exit::Signal(number) => ExitCode::from(128_u8.saturating_add(number)),
        }
    }
}

/// Why a command could not do what it was asked, for standard error.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// The world or the input is at fault: exit code 1.
    pub(crate) fn failed(message: impl Display) -> Self {
        Failure { message: message.to_string(), code: 1 }
    }

    /// The command line or the config is at fault, nothing was done: exit code 2.
    pub(crate) fn usage(message: impl Display) -> Self {
        Failure { message: message.to_string(), code: 2 }
    }

    /// There is no such command to run, in the code that shells have for it: exit code 127.
    pub(crate) fn command_not_found(message: impl Display) -> Self {
        Failure { message: message.to_string(), code: 127 }
    }

    /// Prints the reason to standard error and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        // When standard error is gone too there is nobody left to tell; the code still tells.
        let _ = writeln!(io::stderr(), "watershed: {}", self.message);
        ExitCode::from(self.code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// For results on standard output: a reader that has closed the pipe (`| head`) wants no more and
/// is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::failed(format_args!("cannot write the result: {error}"))
    }
}

/// Takes `BrokenPipe` as "the reader has seen enough".
pub(crate) fn printed(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
