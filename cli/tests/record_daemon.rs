//! `watershed record` with a tracing service in another process: the real daemon and the real
//! probes, each a process of its own.

#[path = "support/mod.rs"]
mod support;

use indicatif::HumanCount;
use std::os::unix::fs::PermissionsExt as _;

use prost::Message as _;
use rustix::process::Signal;
use support::{Dir, Ended, packets, wait_until};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{Trace, TracePacket};

const USED: &str = "watershed: recording with the tracing service on ";

const CONFIG: &str = r#"
    buffers { size_kb: 4096 }
    data_sources { config { name: "linux.sys_stats"
        sys_stats_config { stat_period_ms: 50 stat_counters: STAT_FORK_COUNT } } }
"#;

fn into_file(more: &str) -> Vec<u8> {
    format!("{CONFIG} write_into_file: true file_write_period_ms: 100 {more}").into_bytes()
}

fn num_readings(packets: &[TracePacket]) -> usize {
    packets.iter().filter(|packet| matches!(packet.data, Some(Data::SysStats(_)))).count()
}

fn has_processes(packets: &[TracePacket]) -> bool {
    packets.iter().any(|packet| matches!(packet.data, Some(Data::ProcessTree(_))))
}

#[track_caller]
fn assert_code(run: &Ended, code: i32) {
    assert_eq!(run.code, Some(code), "{}", run.stderr);
}

#[test]
fn a_service_that_runs_is_used() {
    let dir = Dir::new();
    let _daemon = dir.daemon();
    let _probes = dir.probes();
    for args in [&["-t", "600ms", "-o", "t"][..], &["--daemon", "-t", "600ms", "-o", "t"]] {
        let run = dir.record(args);
        assert_code(&run, 0);
        let lines: Vec<&str> = run.stderr.lines().collect();
        let [used, summary] = lines[..] else { panic!("{}", run.stderr) };
        let socket = dir.socket("consumer").display().to_string();
        assert!(used.starts_with(&format!("{USED}{socket}, Perfetto v")), "{used}");
        assert!(summary.starts_with("t: ") && summary.ends_with("no data lost"), "{summary}");
        let packets = packets(&dir.read("t"));
        assert!(num_readings(&packets) >= 2 && has_processes(&packets));
        let inspected = dir.shell("exec \"$0\" inspect t");
        assert!(inspected.stdout.contains("complete, no data lost"), "{}", inspected.stdout);
    }
    let run = dir.record(&["-t", "100ms", "--shards", "2", "-o", "t"]);
    assert_code(&run, 0);
    assert!(run.stderr.contains("--shards is not used"), "{}", run.stderr);
    let run = dir.record(&["--no-daemon", "-t", "300ms", "-o", "own"]);
    assert_code(&run, 0);
    assert!(run.stderr.starts_with("own: "), "{}", run.stderr);
    assert!(has_processes(&packets(&dir.read("own"))));
}

#[test]
fn a_service_that_must_be_there() {
    let dir = Dir::new();
    let run = dir.record(&["--daemon", "-t", "1s", "-o", "t"]);
    assert_code(&run, 1);
    assert!(run.stderr.contains("no tracing service") && run.stderr.contains("watershed daemon"));
    let run = dir.record(&["--socket", "nowhere", "-t", "1s", "-o", "t"]);
    assert_code(&run, 1);
    assert!(run.stderr.contains("nowhere"), "{}", run.stderr);
    for args in [
        &["--daemon", "--no-daemon"][..],
        &["--socket", "s", "--no-daemon"],
        &["--daemon", "--shards", "2"],
        &["--socket", "localhost:1"],
    ] {
        assert_code(&dir.record(args), 2);
    }
    assert_eq!(dir.files(), [""; 0]);
    let run = dir.record(&["-v", "-t", "100ms", "-o", "t"]);
    assert_code(&run, 0);
    assert!(run.stderr.contains("recording within this process"), "{}", run.stderr);
}

/// In `/tmp` anybody can put a socket where the service has its own.
#[test]
fn a_service_that_cannot_be_used() {
    let dir = Dir::new();
    let _daemon = dir.daemon();
    let producers = dir.socket("producer").display().to_string();
    let run = dir.record(&["--socket", &producers, "-t", "1s", "-o", "t"]);
    assert_code(&run, 1);
    assert!(run.stderr.contains("is it the socket of the producers?"), "{}", run.stderr);
    assert_eq!(dir.files(), [""; 0]);

    let socket = dir.socket("consumer");
    let refusal = if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&socket, Some(12_345), None).unwrap();
        "is not trusted: it belongs to uid 12345"
    } else {
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o000)).unwrap();
        "Permission denied"
    };
    let run = dir.record(&["-t", "100ms", "-o", "t"]);
    assert_code(&run, 0);
    assert!(run.stderr.contains(refusal) && run.stderr.contains("recording without it"), "{}", run.stderr);
    assert!(run.stderr.contains("t: ") && !run.stderr.contains(USED), "{}", run.stderr);
    assert!(has_processes(&packets(&dir.read("t"))), "by this process");
    let run = dir.record(&["--daemon", "-t", "100ms", "-o", "u"]);
    assert_code(&run, 1);
    assert!(run.stderr.contains(refusal), "{}", run.stderr);
    assert_eq!(dir.files(), ["t"]);
}

#[test]
fn what_nobody_offers_is_named() {
    let dir = Dir::new();
    let _daemon = dir.daemon();
    let run = dir.record(&["-t", "100ms", "-o", "t"]);
    assert_code(&run, 0);
    // Before them the events of the kernel, where they may be recorded.
    let names = "\"linux.sys_stats\", \"linux.process_stats\", \"linux.system_info\" to this service; \
                 `watershed probes` would";
    assert!(
        run.stderr.contains("warning: nobody offers \"linux.") && run.stderr.contains(names),
        "{}",
        run.stderr
    );
    let other = r#"buffers { size_kb: 64 } data_sources { config { name: "x" } } duration_ms: 50"#;
    let run = dir.record_with_input(&["-c", "-", "-o", "t"], other.as_bytes());
    assert_code(&run, 0);
    assert!(
        run.stderr.contains("nobody offers \"x\" to this service yet; known are: none"),
        "{}",
        run.stderr
    );
    let none = dir.record_with_input(&["-c", "-", "-o", "u"], b"buffers { size_kb: 64 }");
    assert_code(&none, 2);
    assert_eq!(dir.files(), ["t"]);
}

#[test]
fn a_config_that_the_service_refuses() {
    let dir = Dir::new();
    let _daemon = dir.daemon();
    dir.write("old", "precious");
    for more in ["", "write_into_file: true file_write_period_ms: 100"] {
        let config = format!(
            "buffers {{ size_kb: 64 }} {more}
            data_sources {{ config {{ name: \"linux.sys_stats\" target_buffer: 3 }} }}"
        );
        for out in ["old", "new"] {
            let run = dir.record_with_input(&["-c", "-", "-o", out], config.as_bytes());
            assert_code(&run, 2);
            assert!(run.stderr.contains("watershed: config: ") && run.stderr.contains("buffer"));
        }
    }
    let long = format!("{CONFIG} unique_session_name: \"{}\"", "x".repeat(200 << 10));
    assert_code(&dir.record_with_input(&["-c", "-", "-o", "new"], long.as_bytes()), 2);
    assert_eq!(dir.files(), ["old"]);
    assert_eq!(dir.read("old"), b"precious");
}

#[test]
fn the_service_writes_the_file() {
    let dir = Dir::new();
    let _daemon = dir.daemon();
    let _probes = dir.probes();
    // Longer than the trace will be: all of it goes, and only when the service has said yes.
    dir.write("t", vec![b'x'; 4 << 20]);
    let mut run = dir.spawn_with_input(&["-c", "-", "-t", "1h", "-o", "t"], &into_file(""));
    wait_until("the old content is gone", || dir.size("t") < 4 << 20);
    let mut size = 0;
    for _ in 0..3 {
        wait_until("the file grows during the recording", || dir.size("t") > size);
        size = dir.size("t");
    }
    run.signal(Signal::INT);
    let run = run.wait();
    assert_code(&run, 130);
    let trace = packets(&dir.read("t"));
    assert!(num_readings(&trace) >= 2);
    let counted = format!("{} packets from", HumanCount(trace.len() as u64));
    assert!(run.stderr.contains(&counted) && run.stderr.contains("no data lost"), "{}", run.stderr);

    // An output that it cannot be given.
    let mut run = dir.spawn_with_input(&["-c", "-", "-t", "500ms", "-o", "-"], &into_file(""));
    let mut trace = Vec::new();
    std::io::Read::read_to_end(&mut run.stdout(), &mut trace).unwrap();
    let run = run.wait();
    assert_code(&run, 0);
    let trace = packets(&trace);
    assert!(num_readings(&trace) >= 2);
    assert!(
        run.stderr.contains(&format!("{} packets from", HumanCount(trace.len() as u64))),
        "{}",
        run.stderr
    );

    let named = into_file("output_path: \"named\"");
    assert_code(&dir.record_with_input(&["-c", "-", "-t", "300ms"], &named), 0);
    assert!(!packets(&dir.read("named")).is_empty(), "made here, with the user's rights");
    assert_eq!(dir.files(), ["named", "t"]);
}

#[test]
fn a_file_that_is_full() {
    let dir = Dir::new();
    let _daemon = dir.daemon();
    let _probes = dir.probes();
    // Readings of some KiB, so that it does not take long.
    let config = CONFIG.replace("stat_period_ms", "vmstat_period_ms: 50 stat_period_ms");
    let config = format!(
        "{config} write_into_file: true file_write_period_ms: 100 flush_period_ms: 100 max_file_size_bytes: 20000"
    );
    for out in ["t", "-"] {
        let mut run = dir.spawn_with_input(&["-c", "-", "-t", "1h", "-o", out], config.as_bytes());
        let mut trace = Vec::new();
        std::io::Read::read_to_end(&mut run.stdout(), &mut trace).unwrap();
        let run = run.wait();
        assert_code(&run, 1);
        let words = "was full: max_file_size_bytes is 20000";
        assert!(run.stderr.contains(words) && run.stderr.contains("lost: "), "{}", run.stderr);
        let trace = if out == "t" { dir.read("t") } else { trace };
        assert!(trace.len() <= 20_000 && num_readings(&packets(&trace)) > 0);
    }
    // What the service itself cannot write ends the session with its words.
    let run = dir.record_with_input(&["-c", "-", "-t", "1h", "-o", "/dev/full"], &into_file(""));
    assert_code(&run, 1);
    assert!(run.stderr.contains("/dev/full") && run.stderr.contains("No space left"), "{}", run.stderr);
}

#[test]
fn a_service_that_dies_meanwhile() {
    let dir = Dir::new();
    let daemon = dir.daemon();
    let _probes = dir.probes();
    let config = into_file("flush_period_ms: 100");
    let mut run = dir.spawn_with_input(&["-c", "-", "-t", "1h", "-o", "file"], &config);
    let mut ring = dir.spawn(&["-t", "1h", "-o", "ring"]);
    let readings = || Trace::decode(&dir.read("file")[..]).is_ok_and(|t| num_readings(&t.packet) > 0);
    wait_until("something is written", || dir.has("file") && readings());
    wait_until("both record", || {
        dir.program(&["query"]).wait().stdout.contains("2 sessions, 2 of them started")
    });
    daemon.signal(Signal::KILL);
    let run = run.wait();
    assert_code(&run, 1);
    assert!(run.stderr.contains("the recording failed: the tracing service is gone"), "{}", run.stderr);
    let trace = packets(&dir.read("file"));
    assert!(num_readings(&trace) > 0, "what came is kept");
    assert!(
        run.stderr.contains(&format!("{} packets from", HumanCount(trace.len() as u64))),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("lost: unknown"), "{}", run.stderr);
    let ring = ring.wait();
    assert_code(&ring, 1);
    let words = "the recording failed, nothing is in ring: the tracing service is gone";
    assert!(ring.stderr.contains(words), "{}", ring.stderr);
    assert_eq!(dir.files(), ["file"]);
}

/// The daemon is killed and started again: what offered data sources offers them to the next one.
#[test]
fn probes_come_back_to_a_new_service() {
    let dir = Dir::new();
    let mut daemon = dir.daemon();
    let mut probes = dir.probes();
    for _ in 0..2 {
        daemon.signal(Signal::KILL);
        daemon.wait();
        daemon = dir.daemon();
        wait_until("data sources are offered again", || {
            dir.program(&["query"]).wait().stdout.contains("linux.process_stats")
        });
        let run = dir.record(&["--daemon", "-t", "300ms", "-o", "t"]);
        assert_code(&run, 0);
        assert!(run.stderr.contains("no data lost"), "{}", run.stderr);
        assert!(num_readings(&packets(&dir.read("t"))) >= 2);
    }
    probes.signal(Signal::TERM);
    assert_code(&probes.wait(), 0);
}

#[test]
fn commands_and_signals() {
    let dir = Dir::new();
    let _daemon = dir.daemon();
    let _probes = dir.probes();
    let run = dir.record_with_input(&["-o", "t", "--", "sh", "-c", "cat; exit 7"], b"in\n");
    assert_code(&run, 7);
    assert_eq!(run.stdout, "in\n");
    let trace = packets(&dir.read("t"));
    assert!(num_readings(&trace) >= 2, "the data sources had started: {}", run.stderr);
    let run = dir.record(&["-o", "none", "--", "./no-such-command"]);
    assert_code(&run, 127);
    assert_eq!(dir.files(), ["t"]);

    let run = dir.spawn(&["-t", "1h", "-o", "t"]);
    wait_until("it records", || dir.program(&["query"]).wait().stdout.contains("1 sessions, 1 of them"));
    run.signal(Signal::TERM);
    let run = { run }.wait();
    assert_code(&run, 143);
    assert!(run.stderr.contains("no data lost"), "{}", run.stderr);
    assert!(num_readings(&packets(&dir.read("t"))) >= 2);
    let state = dir.program(&["query"]).wait().stdout;
    assert!(state.contains("0 sessions"), "the service has given it up: {state}");
}
