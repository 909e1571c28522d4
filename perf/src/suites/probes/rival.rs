//! Perfetto's `traced` and `traced_probes`, where their programs are found.
//!
//! ```text
//!   suite ── start ──> watershed-perf peer          (a process group of its own)
//!                        ├── traced                 private sockets
//!                        └── traced_probes          the kernel's top-level buffer
//!     ─ end of input ─>  ends both, then that buffer is as it was before
//! ```

use super::top_buffer::TopBuffer;
use crate::measure::WrongAnswer;
use crate::suites::processes::{Process, Role, say};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use watershed_client::consumer::{Consumer, ConsumerOptions, Trust};
use watershed_probes::FTRACE_NAME;
use watershed_shell::address::Address;

/// The variable that names the folder of both programs.
pub(super) const FOLDER_VARIABLE: &str = "WATERSHED_PERFETTO";
/// How long both may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// Both programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Programs {
    traced: PathBuf,
    traced_probes: PathBuf,
}

impl Programs {
    /// Those of the folder that the environment names, else of `PATH`; `None` where `PATH` has not
    /// both. A folder that is named must have them.
    pub(super) fn find() -> Result<Option<Programs>, WrongAnswer> {
        match std::env::var_os(FOLDER_VARIABLE) {
            Some(folder) => Self::in_folder(Path::new(&folder)).map(Some),
            None => Ok(Self::in_path(&std::env::var_os("PATH").unwrap_or_default())),
        }
    }

    fn in_folder(folder: &Path) -> Result<Programs, WrongAnswer> {
        let program = |name: &str| {
            let path = folder.join(name);
            let missing = || format!("{FOLDER_VARIABLE}: there is no program {}", path.display());
            path.is_file().then(|| path.clone()).ok_or_else(missing)
        };
        Ok(Programs { traced: program("traced")?, traced_probes: program("traced_probes")? })
    }

    fn in_path(path: &OsStr) -> Option<Programs> {
        let program = |name: &str| {
            std::env::split_paths(path).map(|folder| folder.join(name)).find(|path| path.is_file())
        };
        Some(Programs { traced: program("traced")?, traced_probes: program("traced_probes")? })
    }
}

/// The process that starts both programs, and ends them whatever becomes of the suite.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PerfettoRole {
    programs: Programs,
}

/// What that process says once the data sources are there.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Ready {
    traced: i32,
    traced_probes: i32,
    /// Where the sockets are.
    folder: PathBuf,
}

impl PerfettoRole {
    pub(in crate::suites) fn play(self) -> Result<(), String> {
        // Both are dropped last, after the programs have ended.
        let _top_buffer = TopBuffer::keep()?;
        let sockets = tempfile::tempdir().map_err(|error| error.to_string())?;
        let folder = sockets.path().to_owned();
        let mut traced = Running::start(&self.programs.traced, &folder)?;
        let mut probes = Running::start(&self.programs.traced_probes, &folder)?;
        wait_for_ftrace(&folder, [&mut traced, &mut probes])?;
        say(&Ready { traced: traced.pid(), traced_probes: probes.pid(), folder })?;
        std::io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(|error| error.to_string())
    }
}

fn wait_for_ftrace(folder: &Path, mut programs: [&mut Running; 2]) -> Result<(), WrongAnswer> {
    let started = Instant::now();
    let has_ftrace = || -> Result<bool, WrongAnswer> {
        let state = connect(folder)?.query_state(false).map_err(|error| error.to_string())?;
        Ok(state.data_sources.iter().any(|source| source.name() == FTRACE_NAME))
    };
    loop {
        programs.iter_mut().try_for_each(|program| program.check())?;
        match has_ftrace() {
            Ok(true) => return Ok(()),
            Ok(false) | Err(_) if started.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(false) => return Err("traced_probes does not offer linux.ftrace".to_owned()),
            Err(error) => return Err(format!("traced: {error}")),
        }
    }
}

/// A program that ends with this value.
struct Running {
    program: PathBuf,
    child: Child,
}

impl Running {
    fn start(program: &Path, sockets: &Path) -> Result<Running, WrongAnswer> {
        let mut command = Command::new(program);
        command
            .env("PERFETTO_PRODUCER_SOCK_NAME", sockets.join("producer"))
            .env("PERFETTO_CONSUMER_SOCK_NAME", consumer_socket(sockets))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        Ok(Running { program: program.to_owned(), child })
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn check(&mut self) -> Result<(), WrongAnswer> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("{}: {status}", self.program.display())),
            Err(error) => Err(format!("{}: {error}", self.program.display())),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // At SIGTERM they clean up no more than that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both programs, running.
pub(super) struct Perfetto {
    _process: Process,
    ready: Ready,
}

impl Perfetto {
    pub(super) fn start(programs: &Programs) -> Result<Perfetto, WrongAnswer> {
        let role = Role::Perfetto(PerfettoRole { programs: programs.clone() });
        let mut process = Process::start(&role)?;
        let ready = process.answer().map_err(|error| format!("traced and traced_probes: {error}"))?;
        Ok(Perfetto { _process: process, ready })
    }

    pub(super) fn traced_pid(&self) -> i32 {
        self.ready.traced
    }

    pub(super) fn traced_probes_pid(&self) -> i32 {
        self.ready.traced_probes
    }

    pub(super) fn consumer(&self) -> Result<Consumer, WrongAnswer> {
        connect(&self.ready.folder)
    }
}

fn consumer_socket(folder: &Path) -> PathBuf {
    folder.join("consumer")
}

fn connect(folder: &Path) -> Result<Consumer, WrongAnswer> {
    let options = ConsumerOptions { trust: Trust::Anybody, ..ConsumerOptions::default() };
    Consumer::connect(&Address::Path(consumer_socket(folder)), &options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_in_the_folder_that_is_named_or_in_the_path() {
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let path = std::env::join_paths([first.path(), second.path()]).unwrap();
        std::fs::write(first.path().join("traced"), "").unwrap();
        assert_eq!(Programs::in_path(&path), None);
        let missing = Programs::in_folder(first.path()).unwrap_err();
        assert!(missing.ends_with("/traced_probes") && missing.starts_with(FOLDER_VARIABLE), "{missing}");

        std::fs::write(second.path().join("traced_probes"), "").unwrap();
        let found = Programs {
            traced: first.path().join("traced"),
            traced_probes: second.path().join("traced_probes"),
        };
        assert_eq!(Programs::in_path(&path), Some(found));
        assert_eq!(Programs::in_path(OsStr::new("")), None);
    }

    #[test]
    fn a_program_that_ends_is_an_error_at_once_and_none_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let [mut ends, mut stays] =
            ["false", "yes"].map(|name| Running::start(Path::new(name), folder.path()).unwrap());
        let error = wait_for_ftrace(folder.path(), [&mut ends, &mut stays]).unwrap_err();
        assert!(error.contains("false: exit status: 1"), "{error}");
        let process = PathBuf::from(format!("/proc/{}", stays.pid()));
        assert!(process.exists());
        drop(stays);
        assert!(!process.exists());
    }
}
