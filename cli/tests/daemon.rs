//! `watershed daemon`, `probes` and `query` as processes of their own.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use process::Process;
use rustix::process::Signal;

#[path = "support/process.rs"]
mod process;

fn start(folder: &Path, args: &[&str]) -> Process {
    Process::start(&mut command(folder, args))
}

fn stop(mut process: Process) -> Option<i32> {
    process.signal(Signal::TERM);
    process.code()
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watershed"));
    command.args(args).current_dir(folder);
    command.env("PERFETTO_PRODUCER_SOCK_NAME", folder.join("producer"));
    command.env("PERFETTO_CONSUMER_SOCK_NAME", folder.join("consumer"));
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

#[test]
fn probes_are_offered_to_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut daemon = start(folder, &["daemon", "--workers", "1"]);
    daemon.wait_for("listening for producers on");
    let mut probes = start(folder, &["probes"]);
    probes.wait_for("connected to");
    let started = Instant::now();
    let text = loop {
        let output = run(folder, &["query"]);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        if text.contains("linux.process_stats") {
            break text;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{text}");
    };
    assert!(text.starts_with("Perfetto v58.0-watershed") && text.contains("watershed.probes"), "{text}");
    let output = run(folder, &["query", "--json"]);
    let state: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(state["data_sources"][0]["name"], "linux.sys_stats");
    assert_eq!(state["data_sources"][0]["producer_name"], "watershed.probes");
    assert_eq!(state["producers"][0]["pid"], probes.child.id());

    daemon.signal(Signal::USR1);
    daemon.wait_for("status: 1 producers, 0 sessions; 0 turns of workers");

    // A second one leaves the first alone.
    let second = run(folder, &["daemon"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8(second.stderr).unwrap().contains("is running already"));
    assert_eq!(stop(probes), Some(0));
    assert_eq!(stop(daemon), Some(0));
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "the sockets are removed");
}

/// Each command at the socket that is for the other.
#[test]
fn the_wrong_socket_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut daemon = start(folder, &["daemon"]);
    daemon.wait_for("listening for producers on");
    for (args, words) in [
        (&["query", "--socket", "producer"][..], "is it the socket of the producers?"),
        (&["probes", "--no-reconnect", "--socket", "consumer"], "is it the socket of the consumers?"),
    ] {
        let output = run(folder, args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(stop(daemon), Some(0));
}

#[test]
fn where_there_is_no_service_it_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for args in [&["query"][..], &["probes", "--no-reconnect"]] {
        let output = run(folder, args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("watershed daemon") && text.contains(&folder.display().to_string()), "{text}");
    }
    for args in [
        &["query", "--socket", "localhost:1"][..],
        &["daemon", "--set-socket-permissions", "x"],
        &["daemon", "--workers", "-1"],
        &["daemon", "--allow-output-path", "/nowhere"],
    ] {
        assert_eq!(run(folder, args).status.code(), Some(2), "{args:?}");
    }
}
