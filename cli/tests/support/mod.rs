//! Runs the program in a directory of its own.
#![expect(dead_code, reason = "not every test file uses everything")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use prost::Message as _;
use rustix::process::{Pid, Signal, kill_process};
use watershed_wire::protos::{Trace, TracePacket};

/// A fresh directory that goes with the test.
pub(crate) struct Dir(tempfile::TempDir);

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
        Dir(tempfile::tempdir().expect("a temporary directory"))
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

    /// Runs a line of shell with the program as `$0`.
    pub(crate) fn shell(&self, script: &str) -> Ended {
        self.start(Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_watershed")]), b"").wait()
    }

    /// A named pipe that is open for reading and never read.
    pub(crate) fn unread_pipe(&self, name: &str) -> fs::File {
        let path = self.0.path().join(name);
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo runs").success());
        // Read and write, so that opening does not wait for the other end.
        fs::OpenOptions::new().read(true).write(true).open(path).expect("the pipe is ours")
    }

    fn start(&self, command: &mut Command, input: &[u8]) -> Running {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.current_dir(self.0.path()).spawn().expect("the program starts");
        child.stdin.take().expect("piped").write_all(input).expect("the program reads");
        Running(child)
    }
}

impl Running {
    pub(crate) fn child(&self) -> &Child {
        &self.0
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("it is ours").is_none()
    }

    pub(crate) fn wait(&mut self) -> Ended {
        // Both pipes hold more than the program ever writes, so one after the other is no deadlock.
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let code = self.0.wait().expect("it is ours").code();
        self.0.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
        self.0.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        Ended { code, stdout, stderr }
    }
}

/// The packets of a trace file, which must be whole.
pub(crate) fn packets(file: &[u8]) -> Vec<TracePacket> {
    Trace::decode(file).expect("a valid trace").packet
}
