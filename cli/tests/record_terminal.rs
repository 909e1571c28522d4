//! `watershed record` on a terminal: what Ctrl-C does when a command is recorded.

#[path = "support/mod.rs"]
mod support;

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use support::{Dir, packets, wait_until};
use watershed_wire::protos::trace_packet::Data;

/// A recording whose terminal is ours.
struct OnTerminal {
    /// What is typed goes in here.
    terminal: File,
    program: Child,
}

impl OnTerminal {
    /// Starts the program as the leader of a session on a new terminal, with all it starts in the
    /// terminal's foreground.
    fn record(dir: &Dir, args: &[&str]) -> OnTerminal {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("it is ours");
        unlockpt(&terminal).expect("it is ours");
        let path = ptsname(&terminal, Vec::new()).expect("it is ours").into_string().expect("plain text");
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlags::NOCTTY.bits().cast_signed());
        let stdin = options.open(path).expect("the other end");
        // `setsid` makes its standard input the terminal of the new session; so no code that is
        // unsafe has to run here between fork and exec.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_watershed"), "record", "-o", "t.pftrace"]).args(args);
        command.current_dir(dir.path()).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
        let program = command.spawn().expect("setsid is there");
        OnTerminal { terminal: File::from(terminal), program }
    }

    fn ctrl_c(&mut self) {
        self.terminal.write_all(b"\x03").expect("the terminal takes it");
    }

    fn is_running(&mut self) -> bool {
        self.program.try_wait().expect("it is ours").is_none()
    }

    fn code(&mut self) -> Option<i32> {
        self.program.wait().expect("it is ours").code()
    }
}

/// The terminal tells everybody in its foreground. A command that left it is told by nobody: what
/// it hears here would come from `record`.
#[test]
fn ctrl_c_is_not_passed_on() {
    let dir = Dir::new();
    // It ends by itself, should this test fail.
    let script = "trap 'touch told' INT; touch ready; \
                  for i in $(seq 600); do [ -e end ] && break; sleep 0.05; done; exit 3";
    let mut run = OnTerminal::record(&dir, &["--", "setsid", "sh", "-c", script]);
    wait_until("the command is ready", || dir.has("ready"));
    run.ctrl_c();
    thread::sleep(Duration::from_millis(500));
    assert!(run.is_running(), "the command goes on, and so does its recording");
    dir.write("end", "");
    assert_eq!(run.code(), Some(130));
    assert_eq!(dir.files(), ["end", "ready", "t.pftrace"]);
}

#[test]
fn the_end_of_the_command_is_recorded() {
    let dir = Dir::new();
    let script = "trap 'echo told >> told; sleep 0.8; touch end; exit 3' INT; touch ready; \
                  for i in $(seq 600); do sleep 0.05; done";
    let mut run = OnTerminal::record(&dir, &["--", "sh", "-c", script]);
    wait_until("the command is ready", || dir.has("ready"));
    let typed_ns = boottime_ns();
    run.ctrl_c();
    assert_eq!(run.code(), Some(130));
    assert_eq!(dir.files(), ["end", "ready", "t.pftrace", "told"], "it ended by itself");
    assert_eq!(dir.read("told"), b"told\n");
    let packets = packets(&dir.read("t.pftrace"));
    let readings = packets.iter().filter(|packet| matches!(packet.data, Some(Data::SysStats(_))));
    let last_ns = readings.map(|packet| packet.timestamp()).max().expect("readings");
    assert!(last_ns > typed_ns + 800_000_000, "the last reading comes after the command's end");
}

#[test]
fn the_second_ctrl_c_ends_at_once() {
    let dir = Dir::new();
    // It ends by itself, should this test fail.
    let script = "trap '' INT; touch ready; \
                  for i in $(seq 6000); do [ -e end ] && break; sleep 0.05; done; touch ended";
    let mut run = OnTerminal::record(&dir, &["--", "sh", "-c", script]);
    wait_until("the command is ready", || dir.has("ready"));
    run.ctrl_c();
    thread::sleep(Duration::from_millis(500));
    assert!(run.is_running(), "the command took no notice");
    // Again and again: on a busy machine two that come close together are one.
    wait_until("it ends", || {
        run.ctrl_c();
        thread::sleep(Duration::from_millis(50));
        !run.is_running()
    });
    assert_eq!(run.code(), Some(130));
    assert!(!dir.has("ended"), "the command is not waited for");
    dir.write("end", "");
}

fn boottime_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
