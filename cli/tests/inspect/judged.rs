//! What `watershed inspect` makes of sessions in one file, of counters that are not the trace's,
//! and of statistics that are older than its end.

use serde_json::{Value, json};
use watershed_wire::protos::trace_config::{BufferConfig, buffer_config::FillPolicy};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::trace_stats::{BufferStats, CommitStats};
use watershed_wire::protos::tracing_service_event::{DataSources, EventType, data_sources};
use watershed_wire::protos::{ClockSnapshot, SysStats, TraceConfig, TracePacket, TraceStats, TraceUuid};

use super::trace::{SECOND_NS, TraceBuilder, clock, producer, service, stats};
use super::{Bench, fine, json_of, parts};

/// The first line of the tables.
fn headline(trace: &TraceBuilder) -> String {
    let bench = Bench::new();
    bench.file("t", &trace.bytes);
    let (_, stdout, _) = parts(&bench.run(&["inspect", "t"]));
    stdout.lines().next().expect("a headline").to_owned()
}

/// Verdicts of the sessions, and where they begin.
fn sessions(json: &Value) -> Vec<(&str, u64)> {
    let of = |session: &'_ Value| session["offset_bytes"].as_u64().unwrap();
    let sessions = json["sessions"].as_array().expect("several").iter();
    sessions.map(|one| (one["completeness"]["verdict"].as_str().unwrap(), of(one))).collect()
}

/// A complete session of a machine that has been up for five seconds.
fn of_another_boot() -> TraceBuilder {
    TraceBuilder::default()
        .service(Data::ClockSnapshot(ClockSnapshot {
            clocks: vec![clock(6, 5 * SECOND_NS), clock(3, SECOND_NS)],
            primary_trace_clock: Some(6),
        }))
        .service(Data::TraceConfig(TraceConfig::default()))
        .service(Data::TraceUuid(TraceUuid { msb: Some(7), lsb: Some(8) }))
        .event(5 * SECOND_NS, EventType::TracingStarted(true))
        .packet(TracePacket {
            timestamp_clock_id: Some(3),
            ..producer(2, 3 * SECOND_NS, Data::SysStats(SysStats::default()))
        })
        .end(stats())
}

#[test]
fn sessions_in_one_file_have_a_verdict_each() {
    let (whole, cut) = (TraceBuilder::complete(), TraceBuilder::default().beginning().data());
    let trace = whole.clone().append(&cut).append(&of_another_boot());
    let json = fine(&trace);
    let (second, third) = (whole.bytes.len() as u64, (whole.bytes.len() + cut.bytes.len()) as u64);
    assert_eq!(sessions(&json), [("complete", 0), ("incomplete", second), ("complete", third)]);
    let completeness = &json["completeness"];
    assert_eq!((&completeness["verdict"], &completeness["sync_markers"]), (&json!("incomplete"), &json!(2)));
    let reasons = ["session 2: no end: the event tracing_disabled is missing"];
    assert_eq!(completeness["reasons"], json!(reasons));
    assert_eq!(json["packets"]["count"], trace.offsets.len());
    // Each with its own clocks and its own sequences, though they have the same number.
    let sequence = |number: usize| &json["sessions"][number]["sequences"][1];
    assert_eq!(sequence(1)["last_ns"], 103 * SECOND_NS);
    assert_eq!((&sequence(2)["last_ns"], &sequence(2)["packets"]), (&json!(7 * SECOND_NS), &json!(1)));
    let of = |name: &str| -> Vec<u64> {
        json[name].as_array().unwrap().iter().map(|row| row["session"].as_u64().unwrap()).collect()
    };
    assert_eq!((of("sequences"), of("buffers")), (vec![1, 1, 2, 2, 3, 3], vec![1, 2, 3]));
    assert_eq!(headline(&trace), "t: 3 sessions, INCOMPLETE, no statistics of losses");
    assert_eq!(headline(&whole.clone().append(&of_another_boot())), "t: 2 sessions, complete, no data lost");
}

/// What a session lost is not made good by the next one.
#[test]
fn losses_are_those_of_each_session() {
    let lossy = TraceStats {
        buffer_stats: vec![BufferStats { chunks_overwritten: Some(4), ..Default::default() }],
        ..stats()
    };
    let first = TraceBuilder::default().beginning().data().end(lossy);
    let trace = first.append(&TraceBuilder::complete());
    let json = fine(&trace);
    let losses: Vec<_> = json["losses"].as_array().unwrap().iter().map(|loss| &loss["session"]).collect();
    assert_eq!(losses, [1]);
    assert_eq!(json["sessions"][1]["losses"], json!([]));
    assert_eq!(headline(&trace), "t: 2 sessions, complete, DATA WAS LOST");
}

#[test]
fn a_loss_is_a_failure_where_that_is_asked_for() {
    let lossy = TraceStats {
        buffer_stats: vec![BufferStats { chunks_overwritten: Some(4), ..Default::default() }],
        ..stats()
    };
    let bench = Bench::new();
    for (end, expected) in [(stats(), 0), (lossy, 1)] {
        bench.file("t", &TraceBuilder::default().beginning().data().end(end).bytes);
        let (code, _, stderr) = parts(&bench.run(&["inspect", "t", "--fail-on-loss"]));
        assert_eq!(code, expected, "{stderr}");
        assert_eq!(parts(&bench.run(&["inspect", "t"])).0, 0);
    }
}

/// Memory does not grow with the file.
#[test]
fn more_sessions_than_are_told_apart() {
    let one = TraceBuilder::default().beginning().end(stats());
    let trace = (0..1003).fold(TraceBuilder::default(), |trace, _| trace.append(&one));
    let json = fine(&trace);
    assert_eq!((sessions(&json).len(), &json["completeness"]["verdict"]), (1000, &json!("unknown")));
    assert!(json["completeness"]["reasons"].to_string().contains("session 1000 is all that follow"));
    assert_eq!(json["packets"]["count"], trace.offsets.len());
}

#[test]
fn counts_since_the_service_began_are_not_of_this_trace() {
    let busy = TraceStats { chunks_discarded: Some(3), patches_discarded: Some(2), ..stats() };
    let trace = TraceBuilder::default().beginning().data().end(busy);
    let json = fine(&trace);
    assert_eq!(json["losses"], json!([]));
    assert_eq!(json["since_service_began"], json!({"chunks_discarded": 3, "patches_discarded": 2}));
    assert_eq!(headline(&trace), "t: complete, no data lost");
}

#[test]
fn a_service_without_workers_has_no_turns_of_them() {
    let commits = |commit_stats: &CommitStats| {
        let stats = TraceStats { commit_stats: Some(*commit_stats), ..stats() };
        fine(&TraceBuilder::default().beginning().data().end(stats))["since_service_began"]["commits"].take()
    };
    let mut stats = CommitStats { handed_back: Some(1), producer_waits: Some(2), ..Default::default() };
    let mut expected = json!({
        "handed_back": 1, "producer_waits": 2, "producer_wait_ns_sum": 0, "producer_wait_ns_max": 0,
        "worker_turns": null, "latency_ns_sum": null, "latency_ns_max": null,
    });
    assert_eq!(commits(&stats), expected);
    (stats.worker_turns, stats.latency_ns_sum, stats.latency_ns_max) = (Some(0), Some(4), Some(3));
    for (name, number) in [("worker_turns", 0), ("latency_ns_sum", 4), ("latency_ns_max", 3)] {
        expected[name] = json!(number);
    }
    assert_eq!(commits(&stats), expected);
}

/// A ring counts late commits of what was read; a DISCARD buffer counts what it refused.
#[test]
fn refused_chunks_are_lost_where_the_buffer_ends() {
    let refused = TraceStats {
        buffer_stats: vec![BufferStats { chunks_discarded: Some(3), ..Default::default() }],
        ..stats()
    };
    let ring = TraceBuilder::default().beginning().data().end(refused.clone());
    assert_eq!(headline(&ring), "t: complete, no data lost");
    let buffer = BufferConfig { fill_policy: Some(FillPolicy::Discard.into()), ..Default::default() };
    let config = TraceConfig { buffers: vec![buffer], ..Default::default() };
    let discard = TraceBuilder::default()
        .service(Data::TraceConfig(config))
        .event(SECOND_NS, EventType::TracingStarted(true))
        .end(refused);
    assert_eq!(headline(&discard), "t: complete, DATA WAS LOST");
}

#[test]
fn statistics_of_an_earlier_moment_do_not_speak_of_the_end() {
    let cut = TraceBuilder::default().beginning().service(Data::TraceStats(stats())).data();
    assert_eq!(headline(&cut), "t: INCOMPLETE, no loss known");
    let mut without_last = TraceBuilder::default().beginning().service(Data::TraceStats(stats())).data();
    without_last = without_last.end(stats());
    let last = without_last.offsets.pop().expect("packets");
    without_last.bytes.truncate(last);
    assert_eq!(headline(&without_last), "t: complete, no loss known");
}

/// A session that its consumer stops has no outcome of the last flush, but the names of who was
/// late.
#[test]
fn a_consumers_last_flush_that_was_late() {
    let slow = || {
        let name = |text: &str| Some(text.to_owned());
        let source = data_sources::DataSource { producer_name: name("p"), data_source_name: name("s") };
        EventType::LastFlushSlowDataSources(DataSources { data_source: vec![source] })
    };
    let stopped = TraceStats { final_flush_outcome: None, ..stats() };
    let flush = |trace: TraceBuilder| trace.event(103 * SECOND_NS, EventType::FlushStarted(true));
    let late = flush(TraceBuilder::default().beginning().data()).event(103 * SECOND_NS, slow());
    let end = |trace: TraceBuilder| {
        trace
            .event(104 * SECOND_NS, EventType::TracingDisabled(true))
            .event(104 * SECOND_NS, EventType::ReadTracingBuffersCompleted(true))
            .service(Data::TraceStats(stopped.clone()))
    };
    let json = fine(&end(late.clone()));
    assert!(json["completeness"]["reasons"].to_string().contains("the final flush failed"), "{json:#}");
    assert_eq!(fine(&end(flush(late)))["completeness"]["verdict"], "complete", "the next one brought it");
}

/// A flush that failed in the middle lost nothing if the last one did not.
#[test]
fn an_earlier_flush_that_failed() {
    let failed = TraceStats { flushes_failed: Some(2), ..stats() };
    let trace = TraceBuilder::default().beginning().data().end(failed.clone());
    assert_eq!(headline(&trace), "t: complete, no data lost");
    let nobody_knows = TraceStats { final_flush_outcome: None, ..failed };
    let trace = TraceBuilder::default().beginning().data().end(nobody_knows);
    assert_eq!(headline(&trace), "t: complete, DATA WAS LOST");
}

/// Of any kind that the schema has, whether this program needs what is in it or not.
#[test]
fn garbled_packets_are_named_with_their_place() {
    let whole = TraceBuilder::complete();
    let offset = whole.bytes.len();
    for garbled in [
        // sys_stats with a field that ends after it; trace_packet_defaults that are no message.
        &[0x0a, 5, 0x3a, 3, 0x0a, 9, 0][..],
        &[0x0a, 5, 0xda, 0x03, 2, 0xff, 0xff],
    ] {
        let trace = whole.clone().raw(garbled).packet(service(Data::SysStats(SysStats::default())));
        let (json, code, stderr) = json_of(&trace.bytes);
        assert_eq!(code, 1, "{stderr}");
        let place = format!("cannot be decoded, the first at byte {offset}\n");
        assert!(
            stderr.starts_with("watershed: t.pftrace has 1 packet ") && stderr.ends_with(&place),
            "{stderr}"
        );
        assert_eq!(json["completeness"]["undecodable_offset_bytes"], offset);
        assert_eq!(json["packets"]["count"], trace.offsets.len());
    }
    // Both: what is garbled, and where the file is cut.
    let (_, code, stderr) = json_of(&whole.raw(&[0x0a, 5, 0x3a, 3, 0x0a, 9, 0]).raw(b"x").bytes);
    assert_eq!(code, 1);
    let (cut, garbled) = (format!("damaged at byte {}", offset + 7), format!("first at byte {offset}"));
    assert!(stderr.contains(&cut) && stderr.contains(&garbled), "{stderr}");
}
