//! Which thread a number is, and which process it belongs to.

use serde_json::{Value, json};

use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{ProcessTree, TracePacket, process_tree};

use super::{
    DEAD, PlainEvent, PlainNewtask, RUNNABLE, SLEEPS, bundle, event, name_of, packet, plain, plain_packet,
    scheduling, tree,
};
use crate::trace::{TraceBuilder, producer};

/// In `task_newtask.clone_flags`.
const CLONE_THREAD: u64 = 0x1_0000;

/// Thread `by` makes `tid`.
fn made(at: u64, by: i32, tid: i32, clone_flags: u64) -> PlainEvent {
    let newtask = Some(PlainNewtask { pid: tid, comm: name_of(tid), clone_flags });
    PlainEvent { newtask, ..event(at, by) }
}

/// The processes of the threads.
fn pids<const N: usize>(found: &Value, tids: [i32; N]) -> [Value; N] {
    let threads = found["threads"].as_array().unwrap();
    tids.map(|tid| threads.iter().find(|thread| thread["tid"] == tid).unwrap()["pid"].clone())
}

/// A recorder writes one CPU's events after the other's, and trees at its own times.
#[test]
fn processes_that_are_told_later() {
    // 41 makes 42, which makes 43; 10 makes 12, and 13 makes 44. Nobody says whose 13 is.
    let runs = [(5_000, 0, RUNNABLE, 42), (6_000, 42, SLEEPS, 43), (7_000, 43, SLEEPS, 44)];
    let runs = [&runs[..], &[(8_000, 44, SLEEPS, 12), (9_000, 12, SLEEPS, 13)]].concat();
    let threads = [(2_000, 41, 42), (3_000, 42, 43), (3_500, 13, 44), (4_000, 10, 12)];
    let threads = threads.map(|(at, by, tid)| made(at, by, tid, CLONE_THREAD));
    let last = [threads.to_vec(), plain(&runs, &[])].concat();
    let first = vec![made(1_000, 10, 41, 0)];
    let trace = plain_packet(plain_packet(TraceBuilder::default(), 1, last), 0, first).packet(tree());
    let found = scheduling(&trace);
    assert_eq!(pids(&found, [42, 43, 12]), [41, 41, 10].map(|pid| json!(pid)));
    assert_eq!(pids(&found, [13, 44]), [Value::Null, Value::Null]);
}

/// What is known of a thread says whose its maker and the other threads are that it made.
#[test]
fn processes_that_are_told_of_one_of_their_threads() {
    let runs = [(5_000, 0, RUNNABLE, 50), (6_000, 50, SLEEPS, 51), (7_000, 51, SLEEPS, 50)];
    // The tree says that 30 is of process 10.
    let threads = [(1_000, 50, 30), (2_000, 50, 51)].map(|(at, by, tid)| made(at, by, tid, CLONE_THREAD));
    let events = [threads.to_vec(), plain(&runs, &[])].concat();
    let found = scheduling(&plain_packet(TraceBuilder::default(), 0, events).packet(tree_at(4_500)));
    assert_eq!(pids(&found, [50, 51]), [json!(10), json!(10)]);
}

/// A number that was a thread's is another process's later, or the other way round.
#[test]
fn numbers_that_are_used_again() {
    let runs = [(5_000, 0, RUNNABLE, 50), (6_000, 50, SLEEPS, 51), (7_000, 51, SLEEPS, 50)];
    let makings = [(50, CLONE_THREAD), (10, 0)];
    for (order, expected) in [([0, 1], [Value::Null, json!(51)]), ([1, 0], [json!(51), Value::Null])] {
        let makings = order.map(|index| makings[index]).into_iter().zip([1_000, 4_000]);
        let makings = makings.map(|((by, clone_flags), at)| made(at, by, 51, clone_flags)).collect();
        let events = [makings, plain(&runs, &[])].concat();
        let found = scheduling(&plain_packet(TraceBuilder::default(), 0, events));
        let lives = lives(&found, 51);
        assert_eq!([0, 1].map(|life: usize| lives[life]["pid"].clone()), expected);
        // Nobody knows when the first ended.
        let times = ["runnable_ns", "unknown_ns", "running_ns"];
        assert_eq!(times.map(|time| lives[0][time].clone()), [0, 3_000, 0]);
        assert_eq!(times.map(|time| lives[1][time].clone()), [2_000, 0, 1_000]);
    }
}

/// The rows of a number, the first life first.
fn lives(found: &Value, tid: i32) -> Vec<Value> {
    let threads = found["threads"].as_array().unwrap().iter();
    let mut lives: Vec<_> = threads.filter(|thread| thread["tid"] == tid).cloned().collect();
    lives.sort_by_key(|row| row["life"].as_u64());
    lives
}

/// What is told before and after a life is not about it.
#[test]
fn lives_of_which_nobody_told() {
    let runs = [(1_000, 0, RUNNABLE, 10), (2_000, 10, DEAD, 0), (3_000, 0, RUNNABLE, 10)];
    let runs = [&runs[..], &[(4_000, 10, DEAD, 0), (5_000, 0, RUNNABLE, 10)]].concat();
    let trees = [1_500, 5_500].map(tree_at);
    let trace = trees.into_iter().fold(TraceBuilder::default(), TraceBuilder::packet);
    let found = scheduling(&plain_packet(trace, 0, plain(&runs, &[])));
    let processes: Vec<_> = lives(&found, 10).iter().map(|life| life["process"].clone()).collect();
    assert_eq!(json!(processes), json!(["/usr/bin/worker", null, "/usr/bin/worker"]));
}

/// Thread 61 of process 60 ends; then the number is that of another process, and ends again.
#[test]
fn threads_of_one_number_have_their_own_rows() {
    let tell = |at, name: &str, pid| {
        let process = process_tree::Process {
            pid: Some(pid),
            cmdline: vec![format!("/usr/bin/{name}")],
            ..Default::default()
        };
        let threads = (pid != 61).then(|| process_tree::Thread {
            tid: Some(61),
            tgid: Some(pid),
            ..Default::default()
        });
        let threads = threads.into_iter().collect();
        let tree = ProcessTree { processes: vec![process], threads, ..Default::default() };
        producer(2, at, Data::ProcessTree(tree))
    };
    let runs = [(1_000, 0, RUNNABLE, 61), (3_000, 61, DEAD, 10), (5_000, 10, SLEEPS, 61)];
    let runs = [&runs[..], &[(6_000, 61, DEAD, 0)]].concat();
    for has_newtask in [false, true] {
        let made = has_newtask.then(|| made(4_000, 10, 61, 0));
        let mut events =
            [made.into_iter().collect(), plain(&runs, &[(2_000, 61, 10, 0), (4_500, 10, 61, 0)])].concat();
        events.sort_by_key(|event| event.timestamp);
        let trace =
            TraceBuilder::default().packet(tell(5_500, "later", 61)).packet(tell(1_500, "earlier", 60));
        let found = scheduling(&plain_packet(trace, 0, events));
        let row = |row: &Value| {
            json!([
                row["pid"],
                row["process"],
                row["running_ns"],
                row["runnable_ns"],
                row["interruptible_ns"]
            ])
        };
        let found_lives: Vec<_> = lives(&found, 61).iter().map(row).collect();
        let runnable = if has_newtask { 1_000 } else { 500 };
        let expected =
            json!([[60, "/usr/bin/earlier", 2_000, 0, 0], [61, "/usr/bin/later", 1_000, runnable, 0]]);
        assert_eq!(json!(found_lives), expected);
        let wakers = found["wakers"].as_array().unwrap().iter();
        let wakers: Vec<_> =
            wakers.map(|row| json!([row["waker_tid"], row["waker_life"], row["tid"], row["life"]])).collect();
        assert_eq!(json!(wakers), json!([[10, 0, 61, 1], [61, 0, 10, 0]]));
        assert_eq!(found["gaps"]["contradictions"], 0);
        let processes = found["processes"].as_array().unwrap().iter();
        let processes: Vec<_> =
            processes.map(|row| json!([row["pid"], row["name"], row["threads"]])).collect();
        assert_eq!(
            json!(processes),
            json!([[null, null, 1], [60, "/usr/bin/earlier", 1], [61, "/usr/bin/later", 1]])
        );
    }
}

/// In columns a switch does not say whom it ends, and the kernel leaves switches out.
#[test]
fn an_end_that_is_only_concluded() {
    let runs =
        [(1_000, 0, RUNNABLE, 70), (2_000, 70, DEAD, 0), (4_000, 0, RUNNABLE, 70), (5_000, 70, SLEEPS, 0)];
    let run = |second: Option<&str>| {
        let mut first = bundle(0, &runs[..2], &[]);
        let mut last = bundle(0, &runs[2..], &[]);
        if let Some(name) = second {
            let names = &mut last.compact_sched.as_mut().unwrap().intern_table;
            *names.iter_mut().find(|known| *known == "thread-70").unwrap() = name.to_owned();
        }
        first.compact_sched.as_mut().unwrap().switch_prev_state[1] = DEAD;
        let found = scheduling(&TraceBuilder::default().packet(packet(first)).packet(packet(last)));
        let row = |row: &Value| json!([row["name"], row["running_ns"], row["unknown_ns"]]);
        let lives: Vec<_> = lives(&found, 70).iter().map(row).collect();
        (json!(lives), found["gaps"]["contradictions"].clone())
    };
    assert_eq!(run(None), (json!([["thread-70", 2_000, 2_000]]), json!(1)));
    let others = json!([["thread-70", 1_000, 0], ["other", 1_000, 0]]);
    assert_eq!(run(Some("other")), (others, json!(0)));
}

/// A switch to the thread that runs: another one ran meanwhile, whose end it is.
#[test]
fn a_switch_that_is_missing() {
    let runs = [(1_000, 0, RUNNABLE, 70), (2_000, 70, DEAD, 70), (4_000, 70, SLEEPS, 0)];
    let found = scheduling(&TraceBuilder::default().packet(packet(bundle(0, &runs, &[]))));
    assert_eq!((lives(&found, 70).len(), &found["gaps"]["contradictions"]), (1, &json!(1)));
    assert_eq!(super::times(&found, 70), [2_000, 0, 0, 0, 1_000]);
}

/// [`tree`] of some time.
fn tree_at(at: u64) -> TracePacket {
    TracePacket { timestamp: Some(at), ..tree() }
}

/// A tree may come before the events of a time that it is about.
#[test]
fn trees_that_come_first_are_believed() {
    let runs = [(5_000, 0, RUNNABLE, 30), (6_000, 30, SLEEPS, 50), (7_000, 50, SLEEPS, 30)];
    let events = [vec![made(1_000, 50, 30, CLONE_THREAD)], plain(&runs, &[])].concat();
    let found = scheduling(&plain_packet(TraceBuilder::default().packet(tree_at(4_500)), 0, events));
    assert_eq!(pids(&found, [30, 50]), [json!(10), json!(10)]);
}
