//! The daemon in a thread, at the sockets that the environment names.

use std::path::PathBuf;
use std::thread::JoinHandle;

use watershed_daemon::{Daemon, DaemonError, DaemonOptions, Stopper};
use watershed_shell::{address, machine};

pub(crate) struct Service {
    stopper: Stopper,
    thread: JoinHandle<Result<(), DaemonError>>,
}

impl Service {
    pub(crate) fn start() -> Service {
        Service::start_with(None)
    }

    /// `output_folder`: below it configs may make files.
    pub(crate) fn start_with(output_folder: Option<PathBuf>) -> Service {
        let options = DaemonOptions {
            producer_sockets: address::producer_sockets().expect("the environment names sockets"),
            consumer_socket: address::consumer_socket().expect("the environment names a socket"),
            permissions: None,
            version: machine::service_version(),
            system: machine::system_info(),
            shards: machine::default_shards(),
            num_workers: 1,
            pin_workers: false,
            huge_pages: watershed_daemon::HugePages::Advise,
            output_folder,
        };
        let daemon = Daemon::new(options, |line| eprintln!("daemon: {line}")).expect("it starts");
        Service { stopper: daemon.stopper(), thread: std::thread::spawn(|| daemon.run()) }
    }

    pub(crate) fn stop(self) {
        self.stopper.stop();
        self.thread.join().expect("it does not panic").expect("it runs until it is stopped");
    }
}

/// The daemon alone, until the process is killed.
pub(crate) fn serve() {
    let service = Service::start();
    service.thread.join().expect("it does not panic").expect("it serves");
}

/// What the daemon holds for its peers, as far as this process does not hold it itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) descriptors: usize,
    pub(crate) shared_mappings: usize,
}

pub(crate) fn held() -> Held {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux");
    Held {
        descriptors: std::fs::read_dir("/proc/self/fd").expect("Linux").count(),
        shared_mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
    }
}
