//! `watershed inspect`, the real program in a fresh directory.

mod commands;
mod judged;
mod kernel;
mod timeline;
mod top;
mod trace;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use trace::{SECOND_NS, TraceBuilder, WALL_NS, clock, producer, service, stats};
use watershed_wire::protos::clock_snapshot::Clock;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::trace_stats::BufferStats;
use watershed_wire::protos::tracing_service_event::EventType;
use watershed_wire::protos::{
    ClockSnapshot, SysStats, TracePacket, TracePacketDefaults, TraceStats, TrackEvent,
};

struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        Bench { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_watershed"));
        command
            .args(args)
            .current_dir(&self.dir)
            .env_clear()
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}

/// Exit code, standard output and standard error.
fn parts(output: &Output) -> (i32, String, String) {
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout.clone()).unwrap(),
        String::from_utf8(output.stderr.clone()).unwrap(),
    )
}

/// The JSON of a trace, the exit code and standard error.
fn json_of(trace: &[u8]) -> (Value, i32, String) {
    let bench = Bench::new();
    bench.file("t.pftrace", trace);
    let (code, stdout, stderr) = parts(&bench.run(&["inspect", "--json", "t.pftrace"]));
    (serde_json::from_str(&stdout).unwrap(), code, stderr)
}

/// What a trace without damage gives.
#[track_caller]
fn fine(trace: &TraceBuilder) -> Value {
    let (json, code, stderr) = json_of(&trace.bytes);
    assert_eq!((code, &stderr[..]), (0, ""));
    json
}

#[test]
fn a_complete_trace() {
    let trace = TraceBuilder::complete();
    let json = fine(&trace);
    let size = trace.bytes.len();
    assert_eq!(
        json["file"],
        json!({"name": "t.pftrace", "read_bytes": size, "intact_bytes": size, "damage": null})
    );
    assert_eq!(json["format_version"], 1);
    assert_eq!(json["completeness"]["verdict"], "complete");
    assert_eq!(json["completeness"]["reasons"], json!([]));
    assert_eq!(json["completeness"]["final_flush"], "succeeded");
    assert_eq!(json["completeness"]["sync_markers"], 1);
    assert_eq!(json["losses"], json!([]));
    assert_eq!(
        json["time"],
        json!({
            "clock": "boottime",
            "first_ns": 100 * SECOND_NS,
            "last_ns": 103 * SECOND_NS,
            "duration_ns": 3 * SECOND_NS,
            "first_unix_ns": WALL_NS,
            "packets_unplaced": 0,
        })
    );
    let session = &json["session"];
    assert_eq!(session["uuid"], "ffffffffffffffff0000000000001234");
    assert_eq!(session["system"], "Linux 6.1.0 x86_64");
    assert_eq!(session["cpus"], 2);
    assert_eq!(session["data_sources"], json!(["linux.sys_stats"]));
    assert!(session["config"].as_str().unwrap().contains("size_kb: 64\n"));
}

#[test]
fn packets_by_kind() {
    let json = fine(&TraceBuilder::complete());
    let packets = &json["packets"];
    assert_eq!(packets["count"], TraceBuilder::complete().offsets.len());
    let kinds = packets["by_kind"].as_array().unwrap();
    let kind = |name: &str| kinds.iter().find(|kind| kind["kind"] == name).unwrap();
    assert_eq!(kind("sys_stats")["packets"], 3);
    assert_eq!(kind("sys_stats")["field"], 7);
    assert_eq!(kind("service_event")["packets"], 6);
    let bytes = |kind: &Value| kind["bytes"].as_u64().unwrap();
    assert!(kinds.is_sorted_by_key(|kind| std::cmp::Reverse(bytes(kind))));
    assert_eq!(kinds.iter().map(bytes).sum::<u64>(), bytes(packets));
}

#[test]
fn sequences_with_their_writers() {
    let json = fine(&TraceBuilder::complete());
    let sequences = json["sequences"].as_array().unwrap();
    assert_eq!(sequences.len(), 2);
    let mut producer = sequences[1].clone();
    assert!(producer["bytes"].take().as_u64().unwrap() > 0);
    assert_eq!(
        producer,
        json!({
            "id": 2,
            "machine_id": null,
            "uid": 1000,
            "pid": 4321,
            "process": "/usr/bin/probes",
            "producer_id": 7,
            "buffer": 0,
            "packets": 4,
            "bytes": null,
            "first_ns": 100 * SECOND_NS,
            "last_ns": 103 * SECOND_NS,
            "begins_here": true,
            "losses": 0,
            "loss_reasons": [],
        })
    );
    assert_eq!(sequences[0]["id"], 1);
    assert_eq!(sequences[0]["uid"], 0);
    assert_eq!(sequences[0]["pid"], Value::Null);
}

#[test]
fn buffers_with_fill() {
    let json = fine(&TraceBuilder::complete());
    assert_eq!(
        json["buffers"],
        json!([{
            "index": 0,
            "name": "main",
            "fill_policy": "ring_buffer",
            "size_bytes": 65536,
            "written_bytes": 16384,
            "fill_percent": 25.0,
            "wraps": 0,
            "read_bytes": 16384,
            "overwritten_bytes": 0,
            "chunks_written": 4,
            "chunks_read": 4,
            "chunks_overwritten": 0,
            "chunks_discarded": 0,
            "patches_failed": 0,
            "abi_violations": 0,
            "writer_packet_losses": 0,
        }])
    );
}

#[test]
fn losses_have_causes() {
    let lossy = TraceStats {
        buffer_stats: vec![BufferStats {
            buffer_size: Some(65536),
            bytes_written: Some(200_000),
            write_wrap_count: Some(3),
            chunks_overwritten: Some(17),
            trace_writer_packet_loss: Some(2),
            ..Default::default()
        }],
        invalid_packets: Some(5),
        ..stats()
    };
    let sys_stats = || Data::SysStats(SysStats::default());
    let trace = TraceBuilder::default()
        .beginning()
        .data()
        .packet(TracePacket {
            previous_packet_dropped: Some(1 | 64),
            ..producer(2, 103 * SECOND_NS, sys_stats())
        })
        // A ring that begins in the middle: not missing in this trace.
        .packet(TracePacket {
            previous_packet_dropped: Some(1 | 64),
            ..producer(3, 103 * SECOND_NS, sys_stats())
        })
        .end(lossy);
    let json = fine(&trace);
    let losses: Vec<(&str, &Value, u64)> = json["losses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|loss| (loss["cause"].as_str().unwrap(), &loss["buffer"], loss["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        losses,
        [
            ("chunks_overwritten", &json!(0), 17),
            ("trace_writer_packet_loss", &json!(0), 2),
            ("invalid_packets", &Value::Null, 5),
            ("sequence_packet_loss", &Value::Null, 1),
        ]
    );
    assert_eq!(json["completeness"]["verdict"], "complete");
    assert_eq!(json["sequences"][1]["losses"], 1);
    assert_eq!(json["sequences"][1]["loss_reasons"], json!(["overwrite"]));
    assert_eq!(json["sequences"][2]["losses"], 0);
    assert_eq!(json["buffers"][0]["fill_percent"], 100.0);
}

/// The reasons of a trace that is not complete.
#[track_caller]
fn incomplete(trace: &TraceBuilder) -> String {
    let json = fine(trace);
    assert_eq!(json["completeness"]["verdict"], "incomplete");
    json["completeness"]["reasons"].to_string()
}

#[test]
fn a_trace_without_an_end() {
    let trace = TraceBuilder::default().beginning().data();
    assert!(incomplete(&trace).contains("tracing_disabled is missing"));
}

#[test]
fn a_trace_that_was_not_read_to_its_end() {
    let read = EventType::ReadTracingBuffersCompleted(true);
    let trace = TraceBuilder::default()
        .beginning()
        .event(101 * SECOND_NS, read)
        .event(102 * SECOND_NS, EventType::TracingDisabled(true));
    assert!(incomplete(&trace).contains("read_tracing_buffers_completed is missing"));
}

#[test]
fn a_trace_without_a_beginning() {
    let trace = TraceBuilder::default().data().end(stats());
    assert!(incomplete(&trace).contains("tracing_started is missing"));
}

#[test]
fn a_failed_final_flush() {
    let failed = TraceStats { final_flush_outcome: Some(2), ..stats() };
    let trace = TraceBuilder::default().beginning().data().end(failed);
    assert!(incomplete(&trace).contains("final flush failed"));
}

#[test]
fn traces_of_other_tools_are_not_judged() {
    let json = fine(&TraceBuilder::default().data());
    assert_eq!(json["completeness"]["verdict"], "unknown");
    assert_eq!(json["completeness"]["has_statistics"], false);
}

#[test]
fn a_truncated_trace_gives_everything_before_the_damage() {
    let whole = TraceBuilder::complete();
    let last = *whole.offsets.last().unwrap();
    let (json, code, stderr) = json_of(&whole.bytes[..whole.bytes.len() - 1]);
    assert_eq!(code, 1);
    assert!(stderr.contains(&format!("t.pftrace is damaged at byte {last}: a packet of")), "{stderr}");
    assert_eq!(json["file"]["damage"]["offset_bytes"], last);
    assert_eq!(json["file"]["intact_bytes"], last);
    assert_eq!(json["packets"]["count"], whole.offsets.len() - 1);
    assert_eq!(json["completeness"]["verdict"], "incomplete");
}

#[test]
fn corrupt_bytes_stop_the_pass_where_they_are() {
    let whole = TraceBuilder::complete();
    for index in [3, 9, 14] {
        let offset = whole.offsets[index];
        let mut bytes = whole.bytes.clone();
        bytes[offset] = 0xff;
        let (json, code, stderr) = json_of(&bytes);
        assert_eq!(code, 1);
        assert!(stderr.contains(&format!("byte {offset}: expected a packet")), "{stderr}");
        assert_eq!(json["packets"]["count"], index);
    }
    // The frame is whole, the fields in it are not.
    let offset = whole.bytes.len();
    let (json, code, stderr) = json_of(&whole.clone().raw(&[0x0a, 2, 0x3a, 9]).bytes);
    assert_eq!(code, 1);
    assert!(stderr.contains(&format!("byte {offset}: a packet with a field of 9 bytes")), "{stderr}");
    assert_eq!(json["packets"]["count"], whole.offsets.len());
}

#[test]
fn packets_whose_contents_are_garbage_are_counted_and_passed_over() {
    let garbage = TraceBuilder::default().packet(TracePacket::default()).raw(&[
        // Field 35, trace_stats, with two bytes that are no message.
        0x0a, 5, 0x9a, 0x02, 2, 0xff, 0xff,
    ]);
    let offset = garbage.offsets[1];
    let (json, code, stderr) = json_of(&garbage.raw(&TraceBuilder::complete().bytes).bytes);
    assert_eq!(code, 1);
    let named =
        format!("t.pftrace has 1 packet whose contents cannot be decoded, the first at byte {offset}\n");
    assert_eq!(stderr, format!("watershed: {named}"));
    assert_eq!(json["completeness"]["undecodable_packets"], 1);
    assert_eq!(json["completeness"]["undecodable_offset_bytes"], offset);
    let reasons = json["completeness"]["reasons"].to_string();
    assert!(reasons.contains(&format!("the first at byte {offset}")), "{reasons}");
    assert_eq!(json["packets"]["count"], TraceBuilder::complete().offsets.len() + 2);
}

#[test]
fn what_is_no_trace() {
    let bench = Bench::new();
    for (bytes, message) in [
        (&b""[..], "is no trace: it is empty"),
        (b"{\"traceEvents\": []}", "is no trace: byte 0: expected a packet (0x0a), found 0x7b"),
        (b"\x1f\x8b\x08", "is no trace: its gzip data is damaged"),
        (b"\x28\xb5\x2f\xfd", "is no trace: its zstd data is damaged"),
    ] {
        bench.file("t", bytes);
        let (code, stdout, stderr) = parts(&bench.run(&["inspect", "t"]));
        assert_eq!((code, &stdout[..]), (1, ""));
        assert!(stderr.contains(message), "{stderr}");
    }
    let (code, _, stderr) = parts(&bench.run(&["inspect", "missing"]));
    assert_eq!(code, 1);
    assert!(stderr.starts_with("watershed: cannot read missing: No such file"), "{stderr}");
    let (code, _, stderr) = parts(&bench.run(&["inspect", "."]));
    assert_eq!(code, 1);
    assert!(stderr.contains("cannot read .: Is a directory"), "{stderr}");
}

#[test]
fn compressed_files() {
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let bench = Bench::new();
    let trace = TraceBuilder::complete().bytes;
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&trace).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = compress_to_vec(&trace[..], CompressionLevel::Fastest);
    bench.file("plain", &trace);
    let (_, expected, _) = parts(&bench.run(&["inspect", "plain", "--json"]));
    for (name, bytes) in [("gzip", gzip), ("zstd", zstd)] {
        bench.file(name, &bytes);
        let (code, stdout, stderr) = parts(&bench.run(&["inspect", name, "--json"]));
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(stdout.replace(name, "plain"), expected);
        // Half of one is no success.
        bench.file("half", &bytes[..bytes.len() - 6]);
        let (code, _, stderr) = parts(&bench.run(&["inspect", "half"]));
        assert_eq!(code, 1);
        assert!(stderr.contains("data is damaged") || stderr.contains("is damaged at"), "{stderr}");
    }
}

#[test]
fn standard_input() {
    let bench = Bench::new();
    let mut child = bench.command(&["inspect", "-", "--json"]).stdin(Stdio::piped()).spawn().unwrap();
    let trace = TraceBuilder::complete();
    child.stdin.take().unwrap().write_all(&trace.bytes).unwrap();
    let (code, stdout, _) = parts(&child.wait_with_output().unwrap());
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(code, 0);
    assert_eq!(json["file"]["name"], "standard input");
    assert_eq!(json["packets"]["count"], trace.offsets.len());
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let bench = Bench::new();
    bench.file("t", &TraceBuilder::complete().bytes);
    let mut child = bench.command(&["inspect", "t"]).spawn().unwrap();
    drop(child.stdout.take());
    let (code, _, stderr) = parts(&child.wait_with_output().unwrap());
    assert_eq!((code, &stderr[..]), (0, ""));
}

/// Track events of the client libraries: a private clock that counts up, named by the sequence's
/// defaults.
#[test]
fn private_clocks_are_placed() {
    let snapshot = ClockSnapshot {
        clocks: vec![
            clock(6, 105 * SECOND_NS),
            Clock { is_incremental: Some(true), unit_multiplier_ns: Some(1000), ..clock(64, 0) },
        ],
        primary_trace_clock: None,
    };
    let event = |microseconds| producer(4, microseconds, Data::TrackEvent(TrackEvent::default()));
    let trace = TraceBuilder::complete()
        .packet(TracePacket {
            timestamp: None,
            trace_packet_defaults: Some(TracePacketDefaults {
                timestamp_clock_id: Some(64),
                ..Default::default()
            }),
            ..producer(4, 0, Data::ClockSnapshot(snapshot))
        })
        .packet(event(1_000_000))
        .packet(event(2_000_000))
        .packet(TracePacket { timestamp_clock_id: Some(99), ..event(1) });
    let json = fine(&trace);
    let sequence = &json["sequences"][2];
    assert_eq!(sequence["first_ns"], 106 * SECOND_NS);
    assert_eq!(sequence["last_ns"], 108 * SECOND_NS);
    assert_eq!(json["time"]["last_ns"], 108 * SECOND_NS);
    assert_eq!(json["time"]["packets_unplaced"], 1);
}

#[test]
fn text_of_a_complete_trace() {
    let bench = Bench::new();
    bench.file("t.pftrace", &TraceBuilder::complete().bytes);
    let (code, stdout, stderr) = parts(&bench.run(&["inspect", "t.pftrace"]));
    assert_eq!((code, &stderr[..]), (0, ""));
    let golden = include_str!("complete.txt");
    assert_eq!(stdout, golden, "{stdout}");
}

#[test]
fn text_of_a_damaged_and_lossy_trace() {
    let bench = Bench::new();
    let lossy = TraceStats {
        buffer_stats: vec![BufferStats { chunks_overwritten: Some(3), ..Default::default() }],
        ..stats()
    };
    let trace = TraceBuilder::default().beginning().data().end(lossy).raw(b"garbage");
    let offset = *trace.offsets.last().unwrap();
    bench.file("t.pftrace", &trace.bytes);
    let (code, stdout, stderr) = parts(&bench.run(&["inspect", "t.pftrace"]));
    assert_eq!(code, 1);
    assert!(stdout.starts_with("t.pftrace: INCOMPLETE, DATA WAS LOST\n"), "{stdout}");
    assert!(stdout.contains("lost: buffer 0: 3 chunks were overwritten"), "{stdout}");
    assert_eq!(
        stderr,
        format!("watershed: t.pftrace is damaged at byte {offset}: expected a packet (0x0a), found 0x67\n")
    );
}

#[test]
fn names_in_a_trace_do_not_steer_the_terminal() {
    let bench = Bench::new();
    let mut trace = TraceBuilder::default().beginning();
    let mut packet = service(Data::ProcessTree(Default::default()));
    if let Some(Data::ProcessTree(tree)) = &mut packet.data {
        tree.processes.push(watershed_wire::protos::process_tree::Process {
            pid: Some(4321),
            cmdline: vec!["evil\x1b]0;owned\x07".to_owned()],
            ..Default::default()
        });
    }
    trace = trace.packet(packet).packet(producer(2, 1, Data::SysStats(SysStats::default())));
    bench.file("t", &trace.bytes);
    let (_, stdout, _) = parts(&bench.run(&["inspect", "t"]));
    assert!(stdout.contains("evil"), "{stdout}");
    assert!(!stdout.contains('\x1b'), "{stdout:?}");
}

#[test]
fn verbose_shows_the_config() {
    let bench = Bench::new();
    bench.file("t", &TraceBuilder::complete().bytes);
    let (_, stdout, _) = parts(&bench.run(&["inspect", "--verbose", "t"]));
    assert!(stdout.contains("Config\n  buffers {\n    size_kb: 64\n"), "{stdout}");
}
