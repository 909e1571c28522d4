//! `watershed inspect --top` on traces made by hand, whose answers are known.

mod threads;

use prost::Message as _;
use serde_json::{Value, json};
use watershed_wire::framing::append_packet;
use watershed_wire::protos::ftrace_event_bundle::CompactSched;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{FtraceEventBundle, ProcessTree, TracePacket, process_tree};

use crate::trace::{TraceBuilder, producer};
use crate::{Bench, parts};

/// States as the kernel writes them.
const RUNNABLE: i64 = 0;
const PREEMPTED: i64 = 0x100;
const SLEEPS: i64 = 1;
const UNINTERRUPTIBLE: i64 = 2;
const DEAD: i64 = 0x10;
/// A waking out of a timer.
const FROM_INTERRUPT: u32 = 0x08;

/// At what time which thread was left in which state for which other one.
type Switch = (u64, i32, i64, i32);
/// At what time who woke whom, with the kernel's flags.
type Waking = (u64, i32, i32, u32);

fn name_of(tid: i32) -> String {
    if tid == 0 { "swapper/0".to_owned() } else { format!("thread-{tid}") }
}

/// The columns of a bundle, times as differences.
fn compact(switches: &[Switch], wakings: &[Waking]) -> CompactSched {
    let mut columns = CompactSched::default();
    let mut name = |tid| {
        let name = name_of(tid);
        let known = columns.intern_table.iter().position(|known| *known == name);
        known.unwrap_or_else(|| {
            columns.intern_table.push(name);
            columns.intern_table.len() - 1
        }) as u32
    };
    let switch_names = switches.iter().map(|switch| name(switch.3)).collect();
    let waking_names = wakings.iter().map(|waking| name(waking.2)).collect();
    let deltas = |times: Vec<u64>| {
        let before = [0].into_iter().chain(times.clone());
        times.iter().zip(before).map(|(time, before)| time.wrapping_sub(before)).collect()
    };
    CompactSched {
        switch_timestamp: deltas(switches.iter().map(|switch| switch.0).collect()),
        switch_prev_state: switches.iter().map(|switch| switch.2).collect(),
        switch_next_pid: switches.iter().map(|switch| switch.3).collect(),
        switch_next_prio: vec![120; switches.len()],
        switch_next_comm_index: switch_names,
        waking_timestamp: deltas(wakings.iter().map(|waking| waking.0).collect()),
        waking_pid: wakings.iter().map(|waking| waking.2).collect(),
        waking_target_cpu: vec![0; wakings.len()],
        waking_prio: vec![120; wakings.len()],
        waking_comm_index: waking_names,
        waking_common_flags: wakings.iter().map(|waking| waking.3).collect(),
        ..columns
    }
}

pub(crate) fn bundle(cpu: u32, switches: &[Switch], wakings: &[Waking]) -> FtraceEventBundle {
    let compact_sched = Some(compact(switches, wakings));
    FtraceEventBundle { cpu: Some(cpu), compact_sched, ..Default::default() }
}

pub(crate) fn packet(bundle: FtraceEventBundle) -> TracePacket {
    TracePacket { timestamp: None, ..producer(3, 0, Data::FtraceEvents(bundle)) }
}

/// The same events one by one, as messages of their own.
#[derive(Clone, PartialEq, prost::Message)]
struct PlainPacket {
    #[prost(message, optional, tag = "1")]
    bundle: Option<PlainBundle>,
    #[prost(uint32, tag = "10")]
    sequence_id: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PlainBundle {
    #[prost(uint32, tag = "1")]
    cpu: u32,
    #[prost(message, repeated, tag = "2")]
    event: Vec<PlainEvent>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PlainEvent {
    #[prost(uint64, optional, tag = "1")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "2")]
    pid: Option<u32>,
    #[prost(message, optional, tag = "4")]
    switch: Option<PlainSwitch>,
    #[prost(message, optional, tag = "20")]
    waking: Option<PlainWaking>,
    #[prost(message, optional, tag = "114")]
    wakeup_new: Option<PlainWaking>,
    #[prost(message, optional, tag = "235")]
    newtask: Option<PlainNewtask>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PlainSwitch {
    #[prost(string, tag = "1")]
    prev_comm: String,
    #[prost(int32, tag = "2")]
    prev_pid: i32,
    #[prost(int64, tag = "4")]
    prev_state: i64,
    #[prost(string, tag = "5")]
    next_comm: String,
    #[prost(int32, tag = "6")]
    next_pid: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PlainWaking {
    #[prost(string, tag = "1")]
    comm: String,
    #[prost(int32, tag = "2")]
    pid: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PlainNewtask {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "2")]
    comm: String,
    #[prost(uint64, tag = "3")]
    clone_flags: u64,
}

fn event(at: u64, current: i32) -> PlainEvent {
    PlainEvent { timestamp: Some(at), pid: Some(current.cast_unsigned()), ..Default::default() }
}

fn plain(switches: &[Switch], wakings: &[Waking]) -> Vec<PlainEvent> {
    let switches = switches.iter().map(|&(at, prev, prev_state, next)| PlainEvent {
        switch: Some(PlainSwitch {
            prev_comm: name_of(prev),
            prev_pid: prev,
            prev_state,
            next_comm: name_of(next),
            next_pid: next,
        }),
        ..event(at, prev)
    });
    let wakings = wakings.iter().map(|&(at, waker, pid, _)| PlainEvent {
        waking: Some(PlainWaking { comm: name_of(pid), pid }),
        ..event(at, waker)
    });
    let mut events: Vec<PlainEvent> = switches.chain(wakings).collect();
    events.sort_by_key(|event| event.timestamp);
    events
}

fn plain_packet(trace: TraceBuilder, cpu: u32, event: Vec<PlainEvent>) -> TraceBuilder {
    let packet = PlainPacket { bundle: Some(PlainBundle { cpu, event }), sequence_id: 3 };
    let mut bytes = Vec::new();
    append_packet(&mut bytes, &[&packet.encode_to_vec()]);
    trace.raw(&bytes)
}

/// Threads 10 and 30 on CPU 0, woken by 20 on CPU 1.
const CPU_0: [Switch; 6] = [
    (1_000, 0, RUNNABLE, 10),
    (2_000, 10, SLEEPS, 0),
    (4_000, 0, RUNNABLE, 10),
    (6_000, 10, PREEMPTED, 30),
    (7_000, 30, UNINTERRUPTIBLE, 0),
    (9_000, 0, RUNNABLE, 10),
];
const CPU_1: [Switch; 2] = [(1_000, 0, RUNNABLE, 20), (10_000, 20, SLEEPS, 0)];
const WAKINGS: [Waking; 2] = [(3_000, 20, 10, 0), (5_000, 20, 30, 0)];

fn tree() -> TracePacket {
    let tree = ProcessTree {
        processes: vec![process_tree::Process {
            pid: Some(10),
            cmdline: vec!["/usr/bin/worker".to_owned()],
            ..Default::default()
        }],
        threads: vec![process_tree::Thread {
            tid: Some(30),
            tgid: Some(10),
            name: Some("earlier name".to_owned()),
            ..Default::default()
        }],
        ..Default::default()
    };
    producer(2, 0, Data::ProcessTree(tree))
}

/// The report's `scheduling`.
#[track_caller]
fn scheduling(trace: &TraceBuilder) -> Value {
    let bench = Bench::new();
    bench.file("t.pftrace", &trace.bytes);
    let (code, stdout, stderr) = parts(&bench.run(&["inspect", "--top", "--json", "t.pftrace"]));
    assert_eq!((code, &stderr[..]), (0, ""));
    serde_json::from_str::<Value>(&stdout).unwrap()["scheduling"].take()
}

/// Of a thread: running, runnable, interruptible, uninterruptible, unknown.
#[track_caller]
fn times(scheduling: &Value, tid: i32) -> [u64; 5] {
    let threads = scheduling["threads"].as_array().unwrap();
    let thread = threads.iter().find(|thread| thread["tid"] == tid).unwrap();
    ["running", "runnable", "interruptible", "uninterruptible", "unknown"]
        .map(|state| thread[format!("{state}_ns")].as_u64().unwrap())
}

#[track_caller]
fn check_known(scheduling: &Value) {
    assert_eq!(times(scheduling, 10), [4_000, 4_000, 1_000, 0, 0]);
    assert_eq!(times(scheduling, 20), [9_000, 0, 0, 0, 0]);
    assert_eq!(times(scheduling, 30), [1_000, 1_000, 0, 3_000, 0]);
    let cpus = scheduling["cpus"].as_array().unwrap();
    let of_cpu = |cpu: &Value| ["busy_ns", "idle_ns", "unknown_ns", "switches"].map(|name| cpu[name].clone());
    assert_eq!(of_cpu(&cpus[0]), [5_000, 4_000, 0, 6]);
    assert_eq!(of_cpu(&cpus[1]), [9_000, 0, 0, 2]);
    assert_eq!(scheduling["duration_ns"], 9_000);
    assert_eq!((&scheduling["switches"], &scheduling["wakings"]), (&json!(8), &json!(2)));
    let gaps = scheduling["gaps"].as_object().unwrap();
    assert!(gaps.values().all(|count| *count == 0), "{gaps:?}");
    // Most on CPUs first, and the process has the times of its threads.
    let row =
        |row: &Value| [&row["pid"], &row["name"], &row["threads"], &row["running_ns"]].map(Value::clone);
    let processes: Vec<_> = scheduling["processes"].as_array().unwrap().iter().map(row).collect();
    assert_eq!(json!(processes), json!([[null, null, 1, 9_000], [10, "/usr/bin/worker", 2, 5_000]]));
    let thread = &scheduling["threads"].as_array().unwrap()[2];
    assert_eq!((&thread["name"], &thread["pid"]), (&json!("thread-30"), &json!(10)));
}

#[test]
fn known_times_in_columns() {
    // The later CPU first: a recorder reads one after the other.
    let trace = TraceBuilder::default()
        .packet(packet(bundle(1, &CPU_1, &WAKINGS)))
        .packet(packet(bundle(0, &CPU_0, &[])))
        .packet(tree());
    let found = scheduling(&trace);
    check_known(&found);
    let wakers = found["wakers"].as_array().unwrap();
    assert_eq!(
        wakers[1],
        json!({"waker": "thread", "waker_tid": 20, "waker_life": 0, "waker_name": "thread-20",
            "tid": 30, "life": 0, "name": "thread-30", "wakings": 1})
    );
}

#[test]
fn known_times_one_by_one() {
    let trace = plain_packet(TraceBuilder::default(), 1, plain(&CPU_1, &WAKINGS));
    let trace = plain_packet(trace, 0, plain(&CPU_0, &[])).packet(tree());
    check_known(&scheduling(&trace));
}

#[test]
fn long_names_of_the_kernel_are_cut() {
    let mut events = plain(&CPU_0, &[]);
    for switch in events.iter_mut().filter_map(|event| event.switch.as_mut()) {
        for name in [&mut switch.prev_comm, &mut switch.next_comm] {
            name.push_str(&"x".repeat(100));
        }
    }
    let found = scheduling(&plain_packet(TraceBuilder::default(), 0, events));
    let names: Vec<_> = found["threads"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    assert_eq!(json!(names), json!(["thread-10xxxxxxx", "thread-30xxxxxxx"]));
}

#[test]
fn who_woke_whom_most() {
    let wakings = [
        (1_500, 20, 10, 0),
        (2_500, 20, 10, 0),
        // Its CPU runs 20, which has nothing to do with it.
        (3_500, 20, 10, FROM_INTERRUPT),
        // The CPU is idle then.
        (11_000, 0, 30, 0),
        (12_000, 0, 30, 0),
        (13_000, 0, 30, 0),
    ];
    let trace = TraceBuilder::default().packet(packet(bundle(1, &CPU_1, &wakings)));
    let found = scheduling(&trace);
    let rows = found["wakers"].as_array().unwrap().iter();
    let rows: Vec<_> =
        rows.map(|row| json!([row["waker"], row["waker_tid"], row["tid"], row["wakings"]])).collect();
    assert_eq!(
        json!(rows),
        json!([["idle", null, 30, 3], ["thread", 20, 10, 2], ["interrupt", null, 10, 1]])
    );
}

#[test]
fn a_thread_that_is_woken_on_its_way_to_sleep_did_not_sleep() {
    let switches =
        [(1_000, 0, RUNNABLE, 10), (2_000, 10, SLEEPS, 11), (5_000, 11, DEAD, 10), (6_000, 10, SLEEPS, 0)];
    let wakings = [(1_999, 20, 10, FROM_INTERRUPT)];
    let found = scheduling(&TraceBuilder::default().packet(packet(bundle(0, &switches, &wakings))));
    assert_eq!(times(&found, 10), [2_000, 3_000, 0, 0, 0]);
    // One that has ended waits for nothing.
    assert_eq!(times(&found, 11), [3_000, 0, 0, 0, 0]);
    // Without wakings nobody can tell.
    let found = scheduling(&TraceBuilder::default().packet(packet(bundle(0, &switches, &[]))));
    assert_eq!(times(&found, 10), [2_000, 0, 3_000, 0, 0]);
}

#[test]
fn new_threads_belong_to_processes() {
    const CLONE_THREAD: u64 = 0x1_0000;
    let made = |at, tid: i32, clone_flags| PlainEvent {
        newtask: Some(PlainNewtask { pid: tid, comm: name_of(tid), clone_flags }),
        ..event(at, 10)
    };
    let mut events = plain(&[(1_000, 0, RUNNABLE, 10), (4_000, 10, SLEEPS, 41), (5_000, 41, DEAD, 42)], &[]);
    events.extend([made(2_000, 41, CLONE_THREAD), made(3_000, 42, 0)]);
    let wakeup_new = Some(PlainWaking { comm: name_of(42), pid: 42 });
    events.push(PlainEvent { wakeup_new, ..event(3_100, 10) });
    let trace = plain_packet(TraceBuilder::default().packet(tree()), 0, events);
    let found = scheduling(&trace);
    assert_eq!((times(&found, 41), times(&found, 42)), ([1_000, 2_000, 0, 0, 0], [0, 2_000, 0, 0, 0]));
    let pid = |tid| {
        let threads = found["threads"].as_array().unwrap();
        threads.iter().find(|thread| thread["tid"] == tid).unwrap()["pid"].clone()
    };
    assert_eq!((pid(41), pid(42)), (json!(10), json!(42)));
    // Wakings by the maker are none.
    assert_eq!(found["wakers"], json!([]));
}

/// Events of CPU 0 from 2,000 to 5,000 are missing; CPU 1 has all.
fn lossy(second: FtraceEventBundle, dropped: u32) -> TraceBuilder {
    let first = bundle(0, &[(1_000, 0, RUNNABLE, 10), (2_000, 10, SLEEPS, 11)], &[]);
    let second = TracePacket { previous_packet_dropped: Some(dropped), ..packet(second) };
    TraceBuilder::default()
        .packet(packet(first))
        .packet(packet(bundle(1, &[(1_000, 0, RUNNABLE, 20), (6_000, 20, SLEEPS, 0)], &[])))
        .packet(second)
}

fn second(previous_end: u64) -> FtraceEventBundle {
    let previous_bundle_end_timestamp = Some(previous_end);
    FtraceEventBundle { previous_bundle_end_timestamp, ..bundle(0, &[(5_000, 12, SLEEPS, 10)], &[]) }
}

#[test]
fn what_was_lost_is_unknown() {
    let lost_by_kernel = FtraceEventBundle { lost_events: Some(true), ..second(2_000) };
    let without_end = FtraceEventBundle { previous_bundle_end_timestamp: None, ..second(0) };
    for (bundle, dropped) in [(lost_by_kernel, 0), (second(4_500), 0), (second(4_500), 1), (without_end, 1)] {
        let found = scheduling(&lossy(bundle, dropped));
        assert_eq!(found["gaps"]["losses"], 1);
        assert_eq!(found["gaps"]["lossy_ns"], 3_000);
        assert_eq!(times(&found, 10), [2_000, 0, 0, 0, 3_000]);
        // It ran when the loss began, and was not heard of again.
        assert_eq!(times(&found, 11), [0, 0, 0, 0, 4_000]);
        assert_eq!(times(&found, 20), [5_000, 0, 0, 0, 0]);
        let cpu = &found["cpus"].as_array().unwrap()[0];
        assert_eq!([&cpu["busy_ns"], &cpu["unknown_ns"]], [2_000, 3_000]);
    }
    // A packet was lost, and this CPU had no events in it.
    let found = scheduling(&lossy(second(2_000), 1));
    assert_eq!(found["gaps"]["losses"], 0);
    assert_eq!((times(&found, 10), times(&found, 11)), ([2_000, 0, 3_000, 0, 0], [3_000, 0, 1_000, 0, 0]));
}

#[test]
fn contradictions_are_counted() {
    // 10 runs on CPU 1 at 2,000 and was never switched away from on CPU 0; 13 is switched away from
    // and never ran.
    let trace = plain_packet(TraceBuilder::default(), 0, plain(&[(1_000, 0, RUNNABLE, 10)], &[]));
    let trace = plain_packet(trace, 1, plain(&[(2_000, 0, RUNNABLE, 10), (3_000, 13, SLEEPS, 0)], &[]));
    let found = scheduling(&trace);
    assert_eq!(found["gaps"]["contradictions"], 2);
    assert_eq!((times(&found, 10), times(&found, 13)), ([0, 0, 0, 0, 2_000], [0, 0, 0, 0, 0]));
    let bench = Bench::new();
    bench.file("t.pftrace", &trace.bytes);
    let (_, text, _) = parts(&bench.run(&["inspect", "--top", "t.pftrace"]));
    assert!(text.contains("2 switches before which others are missing"), "{text}");
    assert!(text.contains("no sched_waking in this trace"), "{text}");
}

#[test]
fn only_one_recorder_counts() {
    // The same threads' numbers, later and under other names.
    let foreign = |cpu| {
        let mut bundle =
            bundle(cpu, &CPU_0.map(|(at, prev, state, next)| (at + 9_000, prev, state, next)), &[]);
        bundle.compact_sched.as_mut().unwrap().intern_table.iter_mut().for_each(|name| name.push('x'));
        bundle
    };
    let trace = TraceBuilder::default()
        .packet(TracePacket { machine_id: Some(7), ..packet(foreign(0)) })
        .packet(packet(bundle(0, &CPU_0, &WAKINGS)))
        .packet(TracePacket { machine_id: Some(7), ..packet(foreign(0)) })
        .packet(producer(4, 0, Data::FtraceEvents(foreign(0))))
        .packet(packet(foreign(1 << 20)));
    let found = scheduling(&trace);
    assert_eq!((&found["switches"], &found["gaps"]["bundles_passed_over"]), (&json!(6), &json!(4)));
    let names: Vec<_> = found["threads"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    assert_eq!(json!(names), json!(["thread-10", "thread-30"]));
}

#[test]
fn tables_and_their_rows() {
    let trace = TraceBuilder::default()
        .packet(packet(bundle(1, &CPU_1, &WAKINGS)))
        .packet(packet(bundle(0, &CPU_0, &[])))
        .packet(tree());
    let bench = Bench::new();
    bench.file("t.pftrace", &trace.bytes);
    let run = |args: &[&str]| parts(&bench.run(&[&["inspect", "--top", "t.pftrace"], args].concat()));
    let (code, text, _) = run(&[]);
    assert_eq!(code, 0);
    let row = |begin: &str| text.lines().find(|line| line.trim_start().starts_with(begin)).unwrap();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(row("worker")), "worker 10 2 0.005 ms 55.6% 0.005 ms 0.004 ms 0.003 ms 0.000 ms 4");
    assert_eq!(
        words(row("thread-30")),
        "thread-30 worker 30 0.001 ms 11.1% 0.001 ms 0.003 ms 0.003 ms 0.000 ms 1"
    );
    assert!(text.contains("8 switches, 2 wakings") && !text.contains("more ("), "{text}");
    assert!(!text.contains("packets of"), "only scheduling: {text}");
    let (_, text, _) = run(&["--limit", "1"]);
    assert!(text.contains("... and 2 more (--verbose or --json shows all)"), "{text}");
    assert!(!text.contains("thread-30"), "{text}");
    let (_, text, _) = run(&["--limit", "1", "--verbose"]);
    assert!(text.contains("thread-30"), "{text}");
    assert_eq!(run(&["--limit", "0"]).0, 2);
    assert_eq!(parts(&bench.run(&["inspect", "--limit", "3", "t.pftrace"])).0, 2);
}

#[test]
fn a_trace_without_scheduling_says_so() {
    let bench = Bench::new();
    bench.file("t.pftrace", &TraceBuilder::complete().bytes);
    let (code, text, stderr) = parts(&bench.run(&["inspect", "--top", "t.pftrace"]));
    assert_eq!((code, &stderr[..]), (0, ""));
    assert!(text.contains("no scheduling in this trace: it needs events sched/sched_switch"), "{text}");
    let found = scheduling(&TraceBuilder::complete());
    assert_eq!((&found["switches"], &found["threads"]), (&json!(0), &json!([])));
}

#[test]
fn sessions_have_their_own() {
    let session = || TraceBuilder::complete().packet(packet(bundle(0, &CPU_0, &[])));
    let trace = session().append(&session());
    let bench = Bench::new();
    bench.file("t.pftrace", &trace.bytes);
    let (code, stdout, _) = parts(&bench.run(&["inspect", "--top", "--json", "t.pftrace"]));
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &report["scheduling"]), (0, &Value::Null));
    for session in report["sessions"].as_array().unwrap() {
        assert_eq!(session["scheduling"]["switches"], 6);
    }
    let (_, text, _) = parts(&bench.run(&["inspect", "--top", "t.pftrace"]));
    assert_eq!(text.matches("6 switches, 0 wakings").count(), 2, "{text}");
}

#[test]
fn nonsense_is_no_reason_to_fall() {
    let mut wild = compact(&CPU_0, &WAKINGS);
    wild.switch_prev_state.truncate(2);
    wild.waking_comm_index = vec![u32::MAX; 2];
    wild.waking_common_flags.clear();
    wild.switch_timestamp = vec![u64::MAX, 5, 0, u64::MAX, 7, 1 << 63];
    let wild = FtraceEventBundle {
        compact_sched: Some(wild),
        previous_bundle_end_timestamp: Some(u64::MAX),
        lost_events: Some(true),
        ..Default::default()
    };
    let trace = TraceBuilder::default()
        .packet(packet(bundle(0, &CPU_0, &WAKINGS)))
        .packet(packet(wild.clone()))
        .packet(packet(wild))
        .packet(packet(bundle(
            0,
            &[(0, -1, -1, -1), (1, i32::MIN, i64::MIN, i32::MAX)],
            &[(0, 0, -5, 0xff)],
        )));
    let found = scheduling(&trace);
    assert!(found["switches"].as_u64().unwrap() > 6);
}
