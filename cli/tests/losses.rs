//! What `watershed record` and `watershed inspect` say when not everything is in the file.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use support::{Dir, packets, wait_until};

/// A hundred readings a second, and a file with room for one: even on a machine that is too busy
/// for more there are two, at the start and at the end.
const SMALL_FILE: &str = r#"
    buffers { size_kb: 4096 }
    data_sources { config { name: "linux.sys_stats"
        sys_stats_config { vmstat_period_ms: 10 meminfo_period_ms: 10 } } }
    write_into_file: true max_file_size_bytes: 2500
"#;

/// The first line of `inspect` without the file's name.
fn verdict(dir: &Dir, name: &str) -> String {
    let inspected = dir.shell(&format!("exec \"$0\" inspect {name}"));
    assert_eq!(inspected.code, Some(0), "{}", inspected.stderr);
    inspected.stdout.lines().next().expect("a headline")[name.len() + 2..].to_owned()
}

/// At its first write, or only when the time is over.
#[test]
fn a_file_that_is_full_says_what_it_had_no_room_for() {
    let dir = Dir::new();
    for (time, period_ms) in [("1h", 500), ("1s", 3_600_000)] {
        let config = format!("{SMALL_FILE} file_write_period_ms: {period_ms}");
        let run = dir.record_with_input(&["-c", "-", "-t", time, "-o", "t.pftrace"], config.as_bytes());
        assert_eq!(run.code, Some(1), "{}", run.stderr);
        assert!(!run.stderr.contains("no data lost"), "{}", run.stderr);
        for part in [
            "\n  lost: the last ",
            "\n  lost: the trace's own end and its statistics, ",
            "because t.pftrace was full: max_file_size_bytes is 2500",
        ] {
            assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
        }
        assert!(dir.size("t.pftrace") < 2500);
        assert!(!packets(&dir.read("t.pftrace")).is_empty());
        let verdict = verdict(&dir, "t.pftrace");
        assert!(verdict.starts_with("INCOMPLETE, ") && !verdict.contains("no data lost"), "{verdict}");
        let inspected = dir.shell("exec \"$0\" inspect t.pftrace").stdout;
        assert!(inspected.contains("of the 2500 that max_file_size_bytes allows"), "{inspected}");
    }
}

/// The command goes on, and its code is not what the caller has to know.
#[test]
fn a_file_that_is_full_before_the_command_ends() {
    let dir = Dir::new();
    let config = format!("{SMALL_FILE} file_write_period_ms: 100");
    let script = "for i in $(seq 1200); do [ -e full ] && break; sleep 0.05; done; touch ended";
    let args = ["-c", "-", "-o", "t.pftrace", "--", "sh", "-c", script];
    let mut run = dir.spawn_with_input(&args, config.as_bytes());
    wait_until("the file is written", || dir.size("t.pftrace") > 0);
    // Full it is some readings later, and if the machine is busy, when the command has ended.
    std::thread::sleep(Duration::from_millis(500));
    assert!(run.is_running(), "it waits for the command");
    dir.write("full", "");
    let run = run.wait();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("t.pftrace was full") && dir.has("ended"), "{}", run.stderr);
}

#[test]
fn a_buffer_that_refuses_says_so() {
    let dir = Dir::new();
    let config = r#"buffers { size_kb: 16 fill_policy: DISCARD }
        data_sources { config { name: "linux.sys_stats" sys_stats_config {
            vmstat_period_ms: 10 meminfo_period_ms: 10 } } }"#;
    // As long as it takes for a dozen readings, by how busy the machine is.
    let refuses = |time: &&str| {
        let run = dir.record_with_input(&["-c", "-", "-t", time, "-o", "t.pftrace"], config.as_bytes());
        assert_eq!(run.code, Some(0), "as its config says: {}", run.stderr);
        run.stderr.contains("refused, the buffer was full (buffer 0)") && !run.stderr.contains("no data lost")
    };
    assert!(["1s", "10s", "100s"].iter().any(refuses));
    assert_eq!(verdict(&dir, "t.pftrace"), "complete, DATA WAS LOST");
}

/// The same in both commands, however the recording ends.
#[test]
fn nothing_lost_is_said_by_both() {
    let dir = Dir::new();
    for (args, code) in [
        (&["-t", "200ms"][..], 0),
        (&["--", "sleep", "0.2"], 0),
        (&["-t", "200ms", "--", "sh", "-c", "sleep 0.3; exit 5"], 5),
    ] {
        let run = dir.record(&[&["-o", "t.pftrace"], args].concat());
        assert_eq!(run.code, Some(code), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(", no data lost\n"), "{args:?}: {}", run.stderr);
        assert_eq!(verdict(&dir, "t.pftrace"), "complete, no data lost", "{args:?}");
    }
}

#[test]
fn recordings_in_one_file_are_judged_one_by_one() {
    let dir = Dir::new();
    let record = "\"$0\" record -t 200ms -o - >> t";
    let run = dir.shell(&format!("{record} && {record}"));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(verdict(&dir, "t"), "2 sessions, complete, no data lost");

    dir.write("small.pbtxt", format!("{SMALL_FILE} file_write_period_ms: 500"));
    let run = dir.shell(&format!("\"$0\" record -c small.pbtxt -o - >> t; {record}; exec \"$0\" inspect t"));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let parts = run.stdout.lines().filter_map(|line| line.strip_prefix("session ")?.split_once(": "));
    let headlines: Vec<&str> = parts.filter_map(|(_, headline)| headline.split(", ").next()).collect();
    assert_eq!(headlines, ["complete", "complete", "INCOMPLETE", "complete"], "{}", run.stdout);
    assert!(run.stdout.starts_with("t: 4 sessions, INCOMPLETE, "), "{}", run.stdout);
    assert!(run.stdout.contains("  session 3: no end: "), "{}", run.stdout);
}

#[test]
fn a_summary_for_programs() {
    let dir = Dir::new();
    let run = dir.record(&["--no-daemon", "--json", "-o", "t.pftrace", "--", "true"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let summary: serde_json::Value = serde_json::from_str(&run.stdout).expect("one document");
    assert_eq!(
        (&summary["file"], summary["bytes"].as_u64()),
        (&"t.pftrace".into(), Some(dir.size("t.pftrace")))
    );
    assert_eq!(summary["packets"].as_u64(), Some(packets(&dir.read("t.pftrace")).len() as u64));
    assert_eq!(summary["losses"].as_array().map(Vec::len), Some(0), "{summary}");
    assert!(!run.stderr.contains("no data lost"), "it is said once: {}", run.stderr);

    let config = format!("{SMALL_FILE} file_write_period_ms: 500");
    let run = dir.record_with_input(&["--json", "-c", "-", "-t", "1h", "-o", "u.pftrace"], config.as_bytes());
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let summary: serde_json::Value = serde_json::from_str(&run.stdout).expect("one document");
    assert!(summary["losses"][0].as_str().unwrap().contains("max_file_size_bytes"), "{summary}");

    let run = dir.record(&["--json", "-o", "-"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
}

#[test]
fn a_summary_comes_behind_what_the_command_writes() {
    let dir = Dir::new();
    // The time is up long before the command is.
    let command = "until [ -s t ]; do sleep 0.05; done; sleep 0.3; echo x";
    let run = dir.record(&["--no-daemon", "-t", "200ms", "-o", "t", "--json", "--", "sh", "-c", command]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let [first, second] = run.stdout.lines().collect::<Vec<_>>()[..] else { panic!("{}", run.stdout) };
    assert!(first == "x" && second.starts_with("{\"file\":\"t\""), "{}", run.stdout);
    // What cannot be written is told.
    let run = dir.shell("exec \"$0\" record --no-daemon -t 100ms -o t --json >/dev/full");
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("cannot write the result: "), "{}", run.stderr);
}
