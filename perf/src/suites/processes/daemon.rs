//! The daemon, in a process of its own, and Perfetto's in its place.

use super::perfetto::{TracedReady, TracedRole, connect, consumer_socket, find, not_found, producer_socket};
use super::{Process, Role, say};
use crate::measure::WrongAnswer;
use serde::{Deserialize, Serialize};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use watershed_client::consumer::Consumer;
use watershed_daemon::{Daemon, DaemonOptions};
use watershed_service::{HugePages, SystemInfo};
use watershed_shell::address::Address;
use watershed_shell::machine::{default_shards, service_version};

/// How the daemon is started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonRole {
    /// Where its sockets are.
    folder: PathBuf,
    num_workers: usize,
    pin_workers: bool,
}

/// How many workers there are, and whether each stays on one CPU.
#[derive(Clone, Copy, Debug)]
pub(in crate::suites) struct Workers {
    pub(in crate::suites) number: usize,
    pub(in crate::suites) pinned: bool,
}

impl Default for Workers {
    /// As `watershed daemon` chooses them.
    fn default() -> Self {
        let number = match std::thread::available_parallelism().map_or(1, usize::from) {
            1 => 0,
            num_cpus => num_cpus - 1,
        };
        Workers { number, pinned: false }
    }
}

impl DaemonRole {
    pub(in crate::suites) fn play(self) -> Result<(), String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let options = DaemonOptions {
            producer_sockets: vec![Address::Path(producer_socket(&self.folder))],
            consumer_socket: Address::Path(consumer_socket(&self.folder)),
            permissions: None,
            version: service_version(),
            system: SystemInfo::default(),
            shards: default_shards(),
            num_workers: self.num_workers,
            pin_workers: self.pin_workers,
            huge_pages: HugePages::Advise,
            output_folder: None,
        };
        let daemon =
            Daemon::new(options, |line| eprintln!("daemon: {line}")).map_err(|error| text(&error))?;
        let stopper = daemon.stopper();
        std::thread::spawn(move || {
            // Nothing is said to it: the end is what it waits for.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            stopper.stop();
        });
        say(&"ready")?;
        daemon.run().map_err(|error| text(&error))
    }
}

/// Whose service is measured.
#[derive(Clone, Debug)]
pub(in crate::suites) enum Service {
    Ours(Workers),
    /// Perfetto's program.
    Traced(PathBuf),
}

impl Service {
    /// Ours, and `traced` where it is found.
    pub(in crate::suites) fn all(ours: Workers) -> Result<Vec<Service>, WrongAnswer> {
        static SAID: std::sync::Once = std::sync::Once::new();
        let traced = find(["traced"])?.map(|[program]| Service::Traced(program));
        if traced.is_none() {
            SAID.call_once(|| eprintln!("traced is not measured: {}", not_found()));
        }
        Ok(std::iter::once(Service::Ours(ours)).chain(traced).collect())
    }

    pub(in crate::suites) fn is_ours(&self) -> bool {
        matches!(self, Service::Ours(_))
    }

    pub(in crate::suites) fn start(&self) -> Result<RunningDaemon, WrongAnswer> {
        match self {
            Service::Ours(workers) => RunningDaemon::start(*workers),
            Service::Traced(program) => RunningDaemon::start_traced(program),
        }
    }
}

/// A running service with sockets in a folder of its own.
pub(in crate::suites) struct RunningDaemon {
    /// Serves, or has started the one that does.
    _process: Process,
    pid: i32,
    folder: PathBuf,
    /// That folder, if it is to be removed by this process.
    _folder: Option<tempfile::TempDir>,
}

impl RunningDaemon {
    /// Ours.
    pub(in crate::suites) fn start(workers: Workers) -> Result<RunningDaemon, WrongAnswer> {
        let own = tempfile::tempdir().map_err(|error| error.to_string())?;
        let folder = own.path().to_owned();
        let role =
            DaemonRole { folder: folder.clone(), num_workers: workers.number, pin_workers: workers.pinned };
        let process = Process::start_ready(&Role::Daemon(role))?;
        Ok(RunningDaemon { pid: process.pid(), _process: process, folder, _folder: Some(own) })
    }

    fn start_traced(program: &Path) -> Result<RunningDaemon, WrongAnswer> {
        let mut process = Process::start(&Role::Traced(TracedRole { program: program.to_owned() }))?;
        let ready: TracedReady = process.answer().map_err(|error| format!("traced: {error}"))?;
        Ok(RunningDaemon { _process: process, pid: ready.pid, folder: ready.folder, _folder: None })
    }

    pub(in crate::suites) fn pid(&self) -> i32 {
        self.pid
    }

    pub(in crate::suites) fn producer_socket(&self) -> PathBuf {
        producer_socket(&self.folder)
    }

    pub(in crate::suites) fn consumer(&self) -> Result<Consumer, WrongAnswer> {
        connect(&self.folder)
    }
}
