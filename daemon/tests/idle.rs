//! What an idle daemon does: nothing. In a program of its own, for it looks at all threads.

#![cfg(target_os = "linux")]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use support::{TestDaemon, config};
use watershed_wire::protos;

/// How often each of the daemon's threads has gone to sleep: once for each time that it woke up.
fn sleeps() -> BTreeMap<String, u64> {
    let mut sleeps = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // A thread may end in between.
        let status = task.and_then(|task| std::fs::read_to_string(task.path().join("status")));
        let Ok(status) = status else { continue };
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_default().trim().to_owned()
        };
        let name = value("Name:");
        if name.starts_with("daemon-loop") || name.starts_with("trace-") {
            *sleeps.entry(name).or_default() += value("voluntary_ctxt_switches:").parse::<u64>().unwrap();
        }
    }
    sleeps
}

#[test]
fn an_idle_session_wakes_nobody() {
    let daemon = TestDaemon::start(2);
    let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
    // Its own timers: a snapshot each second, and nothing else.
    let config = protos::TraceConfig {
        builtin_data_sources: Some(protos::trace_config::BuiltinDataSource {
            snapshot_interval_ms: Some(1000),
            ..Default::default()
        }),
        ..config()
    };
    consumer.enable(&config);
    producer.serve_until(|producer| !producer.buffers.is_empty());
    // Something has gone every way once.
    (1..=100).for_each(|number| producer.write(1, number));
    assert!(consumer.flush_with(&mut producer));
    assert!(consumer.read().len() >= 100);
    support::settle("a thread without a job ends", || !sleeps().contains_key("trace-waits"));
    std::thread::sleep(Duration::from_millis(500));
    let before = sleeps();
    std::thread::sleep(Duration::from_secs(4));
    let after = sleeps();
    assert!(before.contains_key("daemon-loop"), "{before:?}");
    assert!(!before.contains_key("trace-file"), "no session has a file: {before:?}");
    assert!(before.contains_key("trace-worker-0") && before.contains_key("trace-worker-1"), "{before:?}");
    for (name, before) in &before {
        assert!(is_loop_or_worker(name) || after[name] == *before, "{name} woke up");
    }
    // Four or five snapshots, each in one turn of whichever thread is the loop then.
    let woken = turns(&after) - turns(&before);
    assert!((3..=6).contains(&woken), "{woken} times in 4 s: {before:?}, {after:?}");
    a_commit_wakes_one_thread(&mut producer);
    a_reply_that_is_read_wakes_nobody(&mut producer);
    drop((producer, consumer));
    commits_that_follow_each_other_wake_nobody();
    files_have_threads_while_they_are_open(&daemon);
}

fn is_loop_or_worker(name: &str) -> bool {
    name == "daemon-loop" || name.starts_with("trace-worker")
}

/// How often any of those that take turns has gone to sleep.
fn turns(sleeps: &BTreeMap<String, u64>) -> u64 {
    sleeps.iter().filter(|(name, _)| is_loop_or_worker(name)).map(|(_, count)| count).sum()
}

/// The one that was the loop copies what was committed: no other one is woken for that.
fn a_commit_wakes_one_thread(producer: &mut support::Producer) {
    const COMMITS: u64 = 200;
    let smb = producer.smb.clone().unwrap();
    let is_free = || (0..smb.num_pages()).all(|page| smb.snapshot(page).unwrap().is_free());
    let before = turns(&sleeps());
    for number in 101..101 + COMMITS {
        producer.write(1, number);
        support::settle("the chunk is free", is_free);
        std::thread::sleep(Duration::from_millis(1));
    }
    let woken = turns(&sleeps()) - before;
    // Some, where the machine is busy, come before the last one has gone to sleep.
    assert!((COMMITS / 2..COMMITS * 3 / 2).contains(&woken), "{woken} times for {COMMITS} commits");
    producer.sync();
}

/// A call with a reply wakes one thread, once.
fn a_reply_that_is_read_wakes_nobody(producer: &mut support::Producer) {
    const CALLS: u64 = 200;
    let before = turns(&sleeps());
    for _ in 0..CALLS {
        producer.sync();
        std::thread::sleep(Duration::from_millis(1));
    }
    let woken = turns(&sleeps()) - before;
    assert!((CALLS / 2..CALLS * 3 / 2).contains(&woken), "{woken} times for {CALLS} calls");
}

/// Without workers, of which an event wakes one that waits beside the one that polls.
fn commits_that_follow_each_other_wake_nobody() {
    const COMMITS: u64 = 200;
    if std::thread::available_parallelism().unwrap().get() == 1 {
        return;
    }
    let daemon = TestDaemon::start(0);
    let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
    consumer.enable(&config());
    producer.serve_until(|producer| !producer.buffers.is_empty());
    let smb = producer.smb.clone().unwrap();
    let is_free = || (0..smb.num_pages()).all(|page| smb.snapshot(page).unwrap().is_free());
    let mut number = 0;
    // Other programs may take a CPU from either side for a while.
    support::settle("most commits wake nobody", || {
        let before = turns(&sleeps());
        for _ in 0..COMMITS {
            number += 1;
            producer.write(1, number);
            // Long enough for a thread to go to sleep.
            let written = Instant::now();
            while !is_free() || written.elapsed() < Duration::from_micros(60) {
                std::hint::spin_loop();
            }
        }
        producer.sync();
        turns(&sleeps()) - before < COMMITS / 2
    });
}

fn files_have_threads_while_they_are_open(daemon: &TestDaemon) {
    let num_threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            task.and_then(|task| std::fs::read_to_string(task.path().join("comm"))).unwrap_or_default()
        };
        tasks.map(name).filter(|name| name.trim() == "trace-file").count()
    };
    let into_file = |period_ms| protos::TraceConfig {
        write_into_file: Some(true),
        file_write_period_ms: Some(period_ms),
        ..config()
    };
    let enable = |period_ms| {
        let mut consumer = daemon.consumer();
        let end = consumer.enable_into(&into_file(period_ms), tempfile::tempfile().unwrap().into());
        consumer.state();
        (consumer, end)
    };
    let end = |(mut consumer, end): (support::Consumer, u64)| {
        consumer.disable();
        assert_eq!(consumer.ended(end), None);
    };
    let unused = enable(1 << 20);
    assert_eq!(num_threads(), 0, "nothing was to be written");
    let used = [enable(100), enable(100)];
    support::settle("each has one", || num_threads() == used.len());
    used.into_iter().for_each(end);
    support::settle("they end with their files", || num_threads() == 0);
    end(unused);
    support::settle("so does one that had little to do", || num_threads() == 0);
}
