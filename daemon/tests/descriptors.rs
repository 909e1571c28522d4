//! A daemon that may have few descriptors: connections that it has none for wait until some come
//! free, and are accepted then.

mod support;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::{Consumer, Peer};
use watershed_daemon::Daemon;

/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(60);

/// What a started process does. As a test of its own it does nothing.
#[test]
fn peer() {
    let Some((_, folder)) = support::role() else { return };
    let mut log = OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
    let daemon = Daemon::new(support::options(&folder, 1), move |line| writeln!(log, "{line}").unwrap());
    daemon.unwrap().run().unwrap();
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < WATCHDOG, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// CPU time of all threads of a process.
fn cpu_time(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_task = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
    };
    Duration::from_nanos(tasks.map(|task| of_task(task.unwrap().path())).sum())
}

#[test]
fn who_waits_is_accepted_when_others_leave() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let daemon = Peer::start_with(command, "daemon", folder.path());
    let socket = folder.path().join("consumer");
    wait_until("it does not listen", || UnixStream::connect(&socket).is_ok());

    let mut consumer = Consumer::connect(folder.path());
    let mut idle: Vec<_> = (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    let refusals = || log().matches("cannot accept a connection").count();
    wait_until("it has descriptors for all", || refusals() != 0);
    let path = folder.path().to_owned();
    let waiting = thread::spawn(move || Consumer::connect(&path).state());

    // It serves those whom it has, and does not spin.
    let (before, started) = (cpu_time(daemon.pid()), Instant::now());
    while started.elapsed() < Duration::from_millis(400) {
        consumer.state();
        thread::sleep(Duration::from_millis(100));
    }
    let used = cpu_time(daemon.pid()) - before;
    assert!(used < started.elapsed() / 2, "{used:?}");
    assert!(!waiting.is_finished());
    assert_eq!(refusals(), 1, "told once: {}", log());

    // Nobody else connects from now on.
    idle.truncate(10);
    waiting.join().expect("it is accepted and answered");
    consumer.state();
}
