//! A daemon with the data sources of this machine, in a folder of its own, and commands for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::process::Process;

pub(crate) struct Service {
    folder: tempfile::TempDir,
    daemon: Process,
    probes: Option<Process>,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Service {
    pub(crate) fn start() -> Service {
        let mut service = Service::without_probes();
        service.start_probes();
        service
    }

    /// Nobody offers anything.
    pub(crate) fn without_probes() -> Service {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = start(folder.path(), &["daemon", "--workers", "1"]);
        daemon.wait_for("listening for producers on");
        Service { folder, daemon, probes: None }
    }

    pub(crate) fn start_probes(&mut self) {
        let mut probes = start(self.folder.path(), &["probes"]);
        probes.wait_for("connected to");
        self.probes = Some(probes);
        self.wait_until("data sources are there", |service| {
            let state = command(service.folder.path(), &["query"]).output().unwrap();
            String::from_utf8_lossy(&state.stdout).contains("linux.process_stats")
        });
    }

    /// Ends the daemon.
    pub(crate) fn stop(&mut self) {
        self.daemon.signal(Signal::TERM);
        self.daemon.code();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, line: &str) -> Ended {
        let args: Vec<&str> = line.split_whitespace().collect();
        let output = command(self.folder.path(), &args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Runs a command that must succeed.
    pub(crate) fn ok(&self, line: &str) {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    }

    /// Starts a command.
    pub(crate) fn spawn(&self, line: &str) -> Process {
        let args: Vec<&str> = line.split_whitespace().collect();
        start(self.folder.path(), &args)
    }

    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&Service) -> bool) {
        let started = Instant::now();
        while !is_so(self) {
            assert!(started.elapsed() < Duration::from_secs(300), "not within five minutes: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How many packets with readings a trace has, which must be whole.
    pub(crate) fn readings_in(&self, name: &str) -> usize {
        use prost::Message as _;
        let bytes = std::fs::read(self.path(name)).unwrap();
        let trace = watershed_wire::protos::Trace::decode(&bytes[..]).expect("a valid trace");
        let has_readings = |packet: &&watershed_wire::protos::TracePacket| {
            matches!(packet.data, Some(watershed_wire::protos::trace_packet::Data::SysStats(_)))
        };
        trace.packet.iter().filter(has_readings).count()
    }
}

fn start(folder: &Path, args: &[&str]) -> Process {
    Process::start(&mut command(folder, args))
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watershed"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command.env("PERFETTO_PRODUCER_SOCK_NAME", folder.join("producer"));
    command.env("PERFETTO_CONSUMER_SOCK_NAME", folder.join("consumer"));
    command
}

/// A config that reads this machine every 100 ms, with `more` in it.
pub(crate) fn config(more: &str) -> String {
    format!(
        "buffers {{ size_kb: 4096 }}
         data_sources {{ config {{ name: \"linux.sys_stats\" sys_stats_config {{ meminfo_period_ms: 100 }} }} }}
         {more}"
    )
}
