//! What the kernel lost, as `watershed inspect` tells it: marks of bundles, and the kernel's own
//! counters.

use serde_json::{Value, json};
use watershed_wire::protos::ftrace_stats::Phase;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{FtraceCpuStats, FtraceEventBundle, FtraceStats, TracePacket, TraceStats};

use super::trace::{SECOND_NS, TraceBuilder, producer, stats};
use super::{Bench, fine, parts};

fn bundle(cpu: u32, is_lossy: bool) -> TracePacket {
    let lost_events = is_lossy.then_some(true);
    let bundle = FtraceEventBundle { cpu: Some(cpu), lost_events, ..Default::default() };
    producer(3, 102 * SECOND_NS, Data::FtraceEvents(bundle))
}

fn first(packet: TracePacket) -> TracePacket {
    TracePacket { first_packet_on_sequence: Some(true), ..packet }
}

/// The counters `overrun`, `commit_overrun` and `dropped_events` of CPUs 0 and 1.
fn counters(phase: Phase, of: [[u64; 3]; 2]) -> TracePacket {
    let cpu_stats = (0..).zip(of).map(|(cpu, [overrun, commit_overrun, dropped_events])| FtraceCpuStats {
        cpu: Some(cpu),
        overrun: Some(overrun),
        commit_overrun: Some(commit_overrun),
        dropped_events: Some(dropped_events),
        ..Default::default()
    });
    let stats =
        FtraceStats { phase: Some(phase.into()), cpu_stats: cpu_stats.collect(), ..Default::default() };
    producer(3, 103 * SECOND_NS, Data::FtraceStats(stats))
}

fn trace(packets: impl IntoIterator<Item = TracePacket>) -> TraceBuilder {
    packets.into_iter().fold(TraceBuilder::default().beginning(), TraceBuilder::packet).end(stats())
}

/// Cause, count and CPUs of each loss.
fn losses(trace: &TraceBuilder) -> Value {
    let json = fine(trace);
    let row = |loss: &Value| json!([loss["cause"], loss["count"], loss["cpus"]]);
    json["losses"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn bundles_tell_of_lost_events() {
    let trace = trace([first(bundle(0, true)), bundle(1, false), bundle(1, true), bundle(0, true)]);
    let cpus = json!([{"cpu": 0, "count": 2}, {"cpu": 1, "count": 1}]);
    assert_eq!(losses(&trace), json!([["lost_events", 3, cpus]]));
    let bench = Bench::new();
    bench.file("t", &trace.bytes);
    let (code, text, _) = parts(&bench.run(&["inspect", "t"]));
    assert_eq!((code, text.lines().next()), (0, Some("t: complete, DATA WAS LOST")));
    let line = "  lost: 3 times events of the kernel are missing: they were not read in time (lost_events)\n";
    assert!(text.contains(line), "{text}");
    let (code, _, stderr) = parts(&bench.run(&["inspect", "--fail-on-loss", "t"]));
    assert_eq!((code, &stderr[..]), (1, "watershed: t tells of 1 kinds of loss\n"));
}

/// Where the beginning is overwritten, a CPU's first bundle tells of what was before the trace.
#[test]
fn what_was_lost_before_the_trace_is_not_missing_in_it() {
    let packets = [bundle(0, true), bundle(1, true)];
    assert_eq!(losses(&trace(packets.clone())), json!([]));
    let later = trace(packets.into_iter().chain([bundle(1, true)]));
    assert_eq!(losses(&later), json!([["lost_events", 1, [{"cpu": 1, "count": 1}]]]));
    let begin = counters(Phase::StartOfTrace, [[0; 3]; 2]);
    let end = counters(Phase::EndOfTrace, [[9; 3]; 2]);
    assert_eq!(losses(&trace([bundle(0, false), begin, end])), json!([]));
}

#[test]
fn counters_tell_of_what_no_bundle_tells() {
    let begin = || counters(Phase::StartOfTrace, [[5, 0, 1], [7, 2, 0]]);
    let end = || counters(Phase::EndOfTrace, [[5, 3, 1], [107, 2, 4]]);
    let found = losses(&trace([first(bundle(0, false)), begin(), end()]));
    let expected = json!([
        ["overrun", 100, [{"cpu": 1, "count": 100}]],
        ["commit_overrun", 3, [{"cpu": 0, "count": 3}]],
        ["dropped_events", 4, [{"cpu": 1, "count": 4}]],
    ]);
    assert_eq!(found, expected);
    // Written at each flush: the last ones have all that was lost.
    assert_eq!(losses(&trace([first(begin()), begin(), begin(), end()])), expected);
    // What was lost before the recording nobody asked for.
    assert_eq!(losses(&trace([first(end())])), json!([]));
}

/// What is in the kernel's memory when a flush ends is read by what follows it, or was not asked
/// for.
#[test]
fn events_that_nobody_read() {
    let mut end = counters(Phase::EndOfTrace, [[0; 3]; 2]);
    let Some(Data::FtraceStats(counted)) = &mut end.data else { unreachable!() };
    counted.cpu_stats[1].entries = Some(70);
    let beginning = || TraceBuilder::default().beginning().packet(first(end.clone()));
    assert_eq!(losses(&beginning().end(stats())), json!([]));
    let failed = TraceStats { final_flush_outcome: Some(2), ..stats() };
    assert_eq!(losses(&beginning().end(failed)), json!([["unread_events", 70, [{"cpu": 1, "count": 70}]]]));
}

#[test]
fn cpus_of_machines_are_told_apart() {
    let elsewhere = |packet| TracePacket { machine_id: Some(7), ..packet };
    let trace = trace([first(bundle(0, true)), elsewhere(bundle(0, true)), elsewhere(bundle(0, true))]);
    let cpus = json!([{"cpu": 0, "count": 1}, {"machine_id": 7, "cpu": 0, "count": 2}]);
    assert_eq!(losses(&trace), json!([["lost_events", 3, cpus]]));
}
