//! The command that is recorded: started, waited for, its end passed on.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::process::Signal;

use crate::exit::Failure;
use crate::signals::Received;

/// How long a command is given to get its name. One that has ended has none any more, and all of
/// this is spent for it.
const NAME_TIMEOUT: Duration = Duration::from_millis(50);

/// A command that runs, with our standard input, output and error.
pub(super) struct Running {
    child: Child,
    started: Instant,
}

/// Sends signals to the command and to no other process, however long it has ended.
pub(super) struct CommandHandle {
    started: Instant,
    /// `None` on kernels before 5.3, and on Android.
    process: Option<OwnedFd>,
}

impl Running {
    pub(super) fn start(command: &[OsString]) -> Result<Self, Failure> {
        let (program, args) = command.split_first().expect("called with a command");
        let child = Command::new(program).args(args).spawn().map_err(|error| {
            let message = format!("cannot run {}: {error}", program.display());
            match error.kind() {
                io::ErrorKind::NotFound => Failure::command_not_found(message),
                _ => Failure::failed(message),
            }
        })?;
        Ok(Running { child, started: Instant::now() })
    }

    /// Waits until the system knows the command's arguments. The kernel lets us go on as soon as
    /// the new program has memory of its own, which is before it has written them there: a scan
    /// that is quicker finds a process without a name.
    pub(super) fn wait_for_name(&self) {
        let path = format!("/proc/{}/cmdline", self.child.id());
        let started = Instant::now();
        let is_nameless = || fs::read(&path).is_ok_and(|arguments| arguments.is_empty());
        while is_nameless() && started.elapsed() < NAME_TIMEOUT {
            thread::sleep(Duration::from_micros(200));
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn handle(&self) -> CommandHandle {
        CommandHandle { started: self.started, process: process_handle(&self.child) }
    }

    /// Waits in a thread and calls `on_end` with how it ended.
    pub(super) fn watch(
        mut self,
        on_end: impl FnOnce(io::Result<ExitStatus>) + Send + 'static,
    ) -> io::Result<()> {
        thread::Builder::new().name("command".into()).spawn(move || on_end(self.child.wait()))?;
        Ok(())
    }
}

impl CommandHandle {
    /// Passes on a signal that was sent to this process alone, so that the command gets it once. A
    /// terminal told the command too, if it was running by then. False if the command cannot be
    /// told; to one that has ended there is nothing to tell.
    pub(super) fn signal(&self, signal: Received) -> bool {
        if signal.from_terminal && signal.at >= self.started {
            return true;
        }
        let (Some(process), Some(named)) = (&self.process, Signal::from_named_raw(signal.number)) else {
            return false;
        };
        send(process, named);
        true
    }
}

#[cfg(target_os = "linux")]
fn process_handle(child: &Child) -> Option<OwnedFd> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()
}

/// Android forbids the call to most processes.
#[cfg(not(target_os = "linux"))]
fn process_handle(_child: &Child) -> Option<OwnedFd> {
    None
}

/// To one that has ended there is nothing to send.
#[cfg(target_os = "linux")]
fn send(process: &OwnedFd, signal: Signal) {
    let _ = rustix::process::pidfd_send_signal(process, signal);
}

#[cfg(not(target_os = "linux"))]
fn send(_process: &OwnedFd, _signal: Signal) {}

/// The code as a shell would see it: 128 + n for a command that signal n killed.
pub(super) fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(number)) => 128_u8.saturating_add(number as u8),
        (None, None) => 1,
    }
}
