//! Each scenario in a process of its own, with sockets of its own, and ended when it takes too
//! long.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
/// How often a burst is repeated.
const BURSTS: usize = 10;

/// The scenarios.
const PROGRAM: &str = env!("CARGO_BIN_EXE_watershed-official-client");

/// Runs a scenario to its end, and returns what it printed.
fn run(args: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder for the sockets");
    let output = folder.path().join("output");
    let file = std::fs::File::create(&output).expect("a file for the output");
    let mut child = Command::new(PROGRAM)
        .args(args)
        .env("PERFETTO_PRODUCER_SOCK_NAME", folder.path().join("producer"))
        .env("PERFETTO_CONSUMER_SOCK_NAME", folder.path().join("consumer"))
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("a second descriptor"))
        .stderr(file)
        .spawn()
        .expect("it starts");
    let status = wait(&mut child);
    let text = printed(&output);
    match status {
        Some(status) => assert!(status.success(), "{args:?}: {status}\n{text}"),
        None => panic!("{args:?} was ended after {LIMIT:?}\n{text}"),
    }
    text
}

fn printed(output: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(output).expect("the output")).into_owned()
}

/// Waits for the child to end; ends one that takes too long.
fn wait(child: &mut Child) -> Option<ExitStatus> {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    None
}

#[test]
fn eight_threads_lose_nothing() {
    run(&["threads"]);
}

#[test]
fn a_file_is_written_by_its_path() {
    run(&["file"]);
}

#[test]
fn producers_come_back_to_a_new_daemon() {
    run(&["reconnect"]);
}

#[test]
fn both_clients_record_each_other() {
    run(&["both-clients"]);
}

#[test]
fn a_consumer_that_leaves_does_not_disturb_another() {
    run(&["two-sessions"]);
}

#[test]
fn what_a_killed_producer_committed_is_kept() {
    print!("{}", run(&["killed-producer"]));
}

#[test]
fn the_session_of_a_killed_consumer_ends() {
    run(&["killed-consumer"]);
}

#[test]
fn a_trigger_of_the_producer_stops_a_session() {
    run(&["trigger-stops"]);
}

#[test]
fn a_trigger_of_the_producer_starts_a_session() {
    run(&["trigger-starts"]);
}

#[test]
fn a_trigger_of_the_producer_is_told_and_the_session_cloned() {
    run(&["trigger-clones"]);
}

#[test]
fn a_session_of_the_consumer_is_cloned_by_name() {
    run(&["cloned"]);
}

#[test]
fn a_session_without_consumer_records_the_producer() {
    run(&["detached"]);
}

/// Whether the library drops depends on the machine; whether that is reported does not.
#[test]
fn each_loss_of_a_burst_is_reported() {
    for shm_size_kb in ["256", "1024"] {
        let args: &[&str] = if shm_size_kb == "256" { &["burst"] } else { &["burst", shm_size_kb] };
        let mut without_loss = 0;
        for _ in 0..BURSTS {
            let text = run(args);
            let line = text.lines().find(|line| line.starts_with("burst: ")).expect("its figures");
            println!("shared memory of {shm_size_kb} KB: {line}");
            without_loss += usize::from(line.starts_with("burst: 80080 of 80080 "));
        }
        println!("shared memory of {shm_size_kb} KB: {without_loss} of {BURSTS} bursts without loss");
    }
}

/// With the library's own shared memory, in turns, so that both meet the same machine. Each service
/// is a process of its own.
#[test]
#[ignore = "needs Perfetto's traced: WATERSHED_PERFETTO=DIR, as ci/peer has it"]
fn a_burst_loses_no_more_than_with_traced() {
    let folder = std::env::var("WATERSHED_PERFETTO").expect("the folder of Perfetto's programs");
    let traced = format!("{folder}/traced");
    let services = [("ours", vec![PROGRAM, "daemon"]), ("traced", vec![traced.as_str()])];
    let mut lost = [Vec::new(), Vec::new()];
    for _ in 0..BURSTS {
        for (lost, (whose, command)) in lost.iter_mut().zip(&services) {
            let text = run(&[&["burst-beside"], &command[..]].concat());
            let line = text.lines().find(|line| line.starts_with("burst: ")).expect("its figures");
            println!("{whose}: {line}");
            let arrived = line.split(' ').nth(1).and_then(|number| number.parse::<u64>().ok());
            lost.push(80_080 - arrived.expect("a number of events"));
        }
    }
    lost.iter_mut().for_each(|lost| lost.sort_unstable());
    let [ours, theirs] = lost.map(|lost| lost[BURSTS / 2]);
    println!("lost of 80080 events, median of {BURSTS} bursts: ours {ours}, traced {theirs}");
    assert!(ours <= theirs);
}
