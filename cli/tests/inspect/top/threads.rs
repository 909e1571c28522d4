//! Which process a thread belongs to, where no process tree names the thread.

use serde_json::{Value, json};

use super::{
    PlainEvent, PlainNewtask, RUNNABLE, SLEEPS, event, name_of, plain, plain_packet, scheduling, tree,
};
use crate::trace::TraceBuilder;

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
    let found = scheduling(&plain_packet(TraceBuilder::default(), 0, events).packet(tree()));
    assert_eq!(pids(&found, [50, 51]), [json!(10), json!(10)]);
}

/// A number that was a thread's is another process's later.
#[test]
fn numbers_that_are_used_again() {
    let runs = [(5_000, 0, RUNNABLE, 50), (6_000, 50, SLEEPS, 51), (7_000, 51, SLEEPS, 50)];
    let makings = [(50, CLONE_THREAD), (10, 0)];
    for (order, expected) in [([0, 1], json!(51)), ([1, 0], Value::Null)] {
        let makings = order.map(|index| makings[index]).into_iter().zip([1_000, 4_000]);
        let makings = makings.map(|((by, clone_flags), at)| made(at, by, 51, clone_flags)).collect();
        let events = [makings, plain(&runs, &[])].concat();
        let found = scheduling(&plain_packet(TraceBuilder::default(), 0, events));
        assert_eq!(pids(&found, [50, 51]), [Value::Null, expected]);
    }
}

/// A tree may come before the events of a time that it is about.
#[test]
fn trees_that_come_first_are_believed() {
    let runs = [(5_000, 0, RUNNABLE, 30), (6_000, 30, SLEEPS, 50), (7_000, 50, SLEEPS, 30)];
    let events = [vec![made(1_000, 50, 30, CLONE_THREAD)], plain(&runs, &[])].concat();
    let found = scheduling(&plain_packet(TraceBuilder::default().packet(tree()), 0, events));
    assert_eq!(pids(&found, [30, 50]), [json!(10), json!(10)]);
}
