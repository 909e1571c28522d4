//! Perfetto's programs, where they are found, and its service as a rival of the daemon.
//!
//! ```text
//!   suite ── start ──> watershed-perf peer          (a process group of its own)
//!                        └── traced                 private sockets
//!     ─ end of input ─>  ends it, whatever has become of the suite
//! ```

use super::say;
use crate::measure::WrongAnswer;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use watershed_client::consumer::{Consumer, ConsumerOptions, Trust};
use watershed_shell::address::Address;

/// The variable that names the folder of the programs.
const FOLDER_VARIABLE: &str = "WATERSHED_PERFETTO";
/// How long they may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// The programs of these names: those of the folder that the environment names, else of `PATH`;
/// `None` where `PATH` has not all of them. A folder that is named must have them.
pub(in crate::suites) fn find<const N: usize>(names: [&str; N]) -> Result<Option<[PathBuf; N]>, WrongAnswer> {
    match std::env::var_os(FOLDER_VARIABLE) {
        Some(folder) => in_folder(Path::new(&folder), names).map(Some),
        None => Ok(in_path(&std::env::var_os("PATH").unwrap_or_default(), names)),
    }
}

fn in_folder<const N: usize>(folder: &Path, names: [&str; N]) -> Result<[PathBuf; N], WrongAnswer> {
    let found = names.map(|name| folder.join(name));
    match found.iter().find(|path| !path.is_file()) {
        Some(missing) => Err(format!("{FOLDER_VARIABLE}: there is no program {}", missing.display())),
        None => Ok(found),
    }
}

fn in_path<const N: usize>(path: &OsStr, names: [&str; N]) -> Option<[PathBuf; N]> {
    let program =
        |name: &str| std::env::split_paths(path).map(|folder| folder.join(name)).find(|path| path.is_file());
    let found: Vec<PathBuf> = names.iter().map(|name| program(name)).collect::<Option<_>>()?;
    found.try_into().ok()
}

/// What to say where a program is not found.
pub(in crate::suites) fn not_found() -> String {
    format!("it is not in PATH, and {FOLDER_VARIABLE} names no folder that has it")
}

/// A program that ends with this value.
pub(in crate::suites) struct Running {
    program: PathBuf,
    child: Child,
}

impl Running {
    /// Starts it, with its sockets in this folder.
    pub(in crate::suites) fn start(program: &Path, sockets: &Path) -> Result<Running, WrongAnswer> {
        let mut command = Command::new(program);
        command
            .env("PERFETTO_PRODUCER_SOCK_NAME", producer_socket(sockets))
            .env("PERFETTO_CONSUMER_SOCK_NAME", consumer_socket(sockets))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        Ok(Running { program: program.to_owned(), child })
    }

    pub(in crate::suites) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// An error if it has ended.
    pub(in crate::suites) fn check(&mut self) -> Result<(), WrongAnswer> {
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

pub(super) fn producer_socket(folder: &Path) -> PathBuf {
    folder.join("producer")
}

pub(super) fn consumer_socket(folder: &Path) -> PathBuf {
    folder.join("consumer")
}

/// A consumer of the service whose sockets are in this folder.
pub(in crate::suites) fn connect(folder: &Path) -> Result<Consumer, WrongAnswer> {
    let options = ConsumerOptions { trust: Trust::Anybody, ..ConsumerOptions::default() };
    Consumer::connect(&Address::Path(consumer_socket(folder)), &options).map_err(|error| error.to_string())
}

/// Tries until it answers; `running` must go on meanwhile.
pub(in crate::suites) fn wait_until<T>(
    running: &mut [&mut Running],
    mut answer: impl FnMut() -> Result<T, WrongAnswer>,
) -> Result<T, WrongAnswer> {
    let started = Instant::now();
    loop {
        running.iter_mut().try_for_each(|program| program.check())?;
        match answer() {
            Err(_) if started.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(50)),
            answer => return answer,
        }
    }
}

/// The process that starts `traced`, and ends it whatever becomes of the suite.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TracedRole {
    pub(super) program: PathBuf,
}

/// What that process says once `traced` can be connected to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TracedReady {
    pub(super) pid: i32,
    /// Where the sockets are.
    pub(super) folder: PathBuf,
}

impl TracedRole {
    pub(in crate::suites) fn play(self) -> Result<(), String> {
        let sockets = tempfile::tempdir().map_err(|error| error.to_string())?;
        let folder = sockets.path().to_owned();
        // Dropped first.
        let mut traced = Running::start(&self.program, &folder)?;
        let pid = traced.pid();
        wait_until(&mut [&mut traced], || connect(&folder))?;
        say(&TracedReady { pid, folder })?;
        std::io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_in_the_folder_that_is_named_or_in_the_path() {
        const NAMES: [&str; 2] = ["traced", "traced_probes"];
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let path = std::env::join_paths([first.path(), second.path()]).unwrap();
        std::fs::write(first.path().join("traced"), "").unwrap();
        assert_eq!(in_path(&path, NAMES), None);
        let missing = in_folder(first.path(), NAMES).unwrap_err();
        assert!(missing.ends_with("/traced_probes") && missing.starts_with(FOLDER_VARIABLE), "{missing}");

        std::fs::write(second.path().join("traced_probes"), "").unwrap();
        let found = [first.path().join("traced"), second.path().join("traced_probes")];
        assert_eq!(in_path(&path, NAMES), Some(found));
        assert_eq!(in_path(OsStr::new(""), NAMES), None);
    }

    #[test]
    fn a_program_that_ends_is_an_error_at_once_and_none_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let [mut ends, mut stays] =
            ["false", "yes"].map(|name| Running::start(Path::new(name), folder.path()).unwrap());
        let error = wait_until(&mut [&mut ends, &mut stays], || connect(folder.path())).unwrap_err();
        assert!(error.contains("false: exit status: 1"), "{error}");
        let process = PathBuf::from(format!("/proc/{}", stays.pid()));
        assert!(process.exists());
        drop(stays);
        assert!(!process.exists());
    }
}
