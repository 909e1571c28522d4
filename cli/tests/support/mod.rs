//! Runs the program in a directory of its own.
#![expect(dead_code, reason = "not every test file uses everything")]

pub(crate) mod tracefs;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use prost::Message as _;
use rustix::process::{Pid, Signal, kill_process};
use watershed_wire::protos::{Trace, TracePacket};

/// A fresh directory that goes with the test, and one for sockets: a service of the machine's is
/// nothing to a test.
pub(crate) struct Dir(tempfile::TempDir, tempfile::TempDir);

/// A run that has ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A run that goes on.
pub(crate) struct Running(Child);

impl Dir {
    pub(crate) fn new() -> Self {
        let [dir, sockets] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
        Dir(dir, sockets)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(name), content).expect("the directory is ours");
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("the directory is ours");
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn record(&self, args: &[&str]) -> Ended {
        self.spawn(args).wait()
    }

    pub(crate) fn record_with_input(&self, args: &[&str], input: &[u8]) -> Ended {
        self.spawn_with_input(args, input).wait()
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Running {
        self.spawn_with_input(args, b"")
    }

    pub(crate) fn spawn_with_input(&self, args: &[&str], input: &[u8]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_watershed"));
        self.start(command.arg("record").args(args), input)
    }

    /// Starts a daemon and waits until it can be connected to.
    pub(crate) fn daemon(&self) -> Running {
        let daemon = self.program(&["daemon", "--workers", "1"]);
        wait_until("the daemon listens", || self.program(&["query"]).wait().code == Some(0));
        daemon
    }

    /// Starts `watershed probes` and waits until its data sources are offered.
    pub(crate) fn probes(&self) -> Running {
        let probes = self.program(&["probes"]);
        wait_until("data sources are offered", || {
            self.program(&["query"]).wait().stdout.contains("linux.process_stats")
        });
        probes
    }

    /// Runs any of the program's commands.
    pub(crate) fn program(&self, args: &[&str]) -> Running {
        self.start(Command::new(env!("CARGO_BIN_EXE_watershed")).args(args), b"")
    }

    /// Where the socket of producers or consumers is.
    pub(crate) fn socket(&self, peer: &str) -> PathBuf {
        self.1.path().join(peer)
    }

    /// Runs a line of shell with the program as `$0`.
    pub(crate) fn shell(&self, script: &str) -> Ended {
        self.start(Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_watershed")]), b"").wait()
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.path().join(name).exists()
    }

    /// Size of a file, 0 if there is none.
    pub(crate) fn size(&self, name: &str) -> u64 {
        fs::metadata(self.0.path().join(name)).map_or(0, |metadata| metadata.len())
    }

    /// A named pipe that is full and never read: the first byte that is written into it waits for
    /// ever.
    pub(crate) fn full_pipe(&self, name: &str) -> fs::File {
        let path = self.0.path().join(name);
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
        // Read and write, so that opening does not wait for the other end; filling it must not wait
        // either.
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let options = fs::OpenOptions::new().read(true).write(true).custom_flags(nonblocking).to_owned();
        let mut pipe = options.open(path).expect("the pipe is ours");
        for size_bytes in [4096, 1] {
            while pipe.write(&[0; 4096][..size_bytes]).is_ok() {}
        }
        pipe
    }

    fn start(&self, command: &mut Command, input: &[u8]) -> Running {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        piped.env("PERFETTO_PRODUCER_SOCK_NAME", self.socket("producer"));
        piped.env("PERFETTO_CONSUMER_SOCK_NAME", self.socket("consumer"));
        let mut child = piped.current_dir(self.0.path()).spawn().expect("the program starts");
        child.stdin.take().expect("piped").write_all(input).expect("the program reads");
        Running(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Has ended, unless the test failed or it is a daemon.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub(crate) fn child(&self) -> &Child {
        &self.0
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    /// Waits until the program has its own way with this signal: earlier, it would just be killed.
    pub(crate) fn wait_until_it_catches(&self, signal: Signal) {
        let bit = 1_u64 << (signal.as_raw() - 1);
        wait_until("the signal is caught", || {
            let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it runs");
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
            u64::from_str_radix(caught.trim(), 16).expect("a mask") & bit != 0
        });
    }

    /// Standard output, to be read while it runs.
    pub(crate) fn stdout(&mut self) -> std::process::ChildStdout {
        self.0.stdout.take().expect("piped")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("it is ours").is_none()
    }

    pub(crate) fn wait(&mut self) -> Ended {
        // Both pipes hold more than the program ever writes, so one after the other is no deadlock.
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let code = self.0.wait().expect("it is ours").code();
        if let Some(mut pipe) = self.0.stdout.take() {
            pipe.read_to_string(&mut stdout).expect("text");
        }
        self.0.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        Ended { code, stdout, stderr }
    }
}

/// Waits for something that happens soon on an idle machine, and still happens on a busy one.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(300), "not within five minutes: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The packets of a trace file, which must be whole.
pub(crate) fn packets(file: &[u8]) -> Vec<TracePacket> {
    Trace::decode(file).expect("a valid trace").packet
}

/// A trace as far as it has events of the kernel that are not written compactly.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TraceOfEvents {
    #[prost(message, repeated, tag = "1")]
    pub(crate) packet: Vec<PacketOfEvents>,
}

/// A packet of it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PacketOfEvents {
    #[prost(message, optional, tag = "1")]
    pub(crate) bundle: Option<BundleOfEvents>,
}

/// Events of one CPU.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BundleOfEvents {
    #[prost(uint32, tag = "1")]
    pub(crate) cpu: u32,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(crate) event: Vec<Vec<u8>>,
}
