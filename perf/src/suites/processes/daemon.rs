//! The daemon, in a process of its own.

use super::{Process, Role, say};
use crate::measure::WrongAnswer;
use serde::{Deserialize, Serialize};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use watershed_client::consumer::{Consumer, ConsumerOptions, Trust};
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

fn producer_socket(folder: &Path) -> PathBuf {
    folder.join("producer")
}

fn consumer_socket(folder: &Path) -> PathBuf {
    folder.join("consumer")
}

/// A running daemon with sockets in a folder of its own.
pub(in crate::suites) struct RunningDaemon {
    process: Process,
    folder: tempfile::TempDir,
}

impl RunningDaemon {
    pub(in crate::suites) fn start(workers: Workers) -> Result<RunningDaemon, WrongAnswer> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let role = DaemonRole {
            folder: folder.path().to_owned(),
            num_workers: workers.number,
            pin_workers: workers.pinned,
        };
        Ok(RunningDaemon { process: Process::start_ready(&Role::Daemon(role))?, folder })
    }

    pub(in crate::suites) fn pid(&self) -> i32 {
        self.process.pid()
    }

    pub(in crate::suites) fn producer_socket(&self) -> PathBuf {
        producer_socket(self.folder.path())
    }

    pub(in crate::suites) fn consumer(&self) -> Result<Consumer, WrongAnswer> {
        let address = Address::Path(consumer_socket(self.folder.path()));
        let options = ConsumerOptions { trust: Trust::Anybody, ..ConsumerOptions::default() };
        Consumer::connect(&address, &options).map_err(|error| error.to_string())
    }
}
