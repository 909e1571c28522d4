//! The kernel's tracing instances as `watershed record` uses them: needs root and tracefs.

mod support;

use std::collections::{BTreeSet, HashMap};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use prost::Message as _;
use rustix::process::Signal;
use support::tracefs::{asks, field, is_on, made_by, recording, tracefs};
use support::{Dir, Running, TraceOfEvents, wait_until};
use watershed_wire::protos::Trace;
use watershed_wire::protos::trace_packet::Data;

fn config(events: &[&str]) -> String {
    let events: String = events.iter().map(|event| format!("ftrace_events: \"{event}\" ")).collect();
    format!(
        "buffers {{ size_kb: 4096 }} data_sources {{ config {{ name: \"linux.ftrace\"
        ftrace_config {{ {events} drain_period_ms: 50 }} }} }}"
    )
}

fn start(dir: &Dir, place: &str, events: &[&str]) -> Running {
    dir.write(&format!("{place}.txt"), config(events));
    let how = if dir.socket("consumer").exists() { "--daemon" } else { "--no-daemon" };
    dir.spawn(&[how, "-c", &format!("{place}.txt"), "-o", place])
}

#[test]
fn nothing_is_left_of_a_killed_recorder() {
    let Some(root) = tracefs() else { return };
    let dir = Dir::new();
    let mut killed = start(&dir, "killed", &["sched/sched_switch"]);
    let pid = killed.child().id();
    wait_until("it records", || recording(pid, &root, "sched/sched_switch").is_some());
    killed.signal(Signal::KILL);
    killed.wait();
    // The kernel stops what nobody holds any more, where it has the option for an instance.
    wait_until("its instance stops", || {
        made_by(pid, &root)
            .iter()
            .all(|instance| !is_on(instance) || !instance.join("options/disable_on_free").exists())
    });
    let mut next = start(&dir, "next", &["sched/sched_switch"]);
    let next_pid = next.child().id();
    wait_until("it records", || recording(next_pid, &root, "sched/sched_switch").is_some());
    assert_eq!(made_by(pid, &root), [] as [&Path; 0], "the next one removes it");
    next.signal(Signal::INT);
    let next = next.wait();
    assert!(next.stderr.contains("no data lost"), "{}", next.stderr);
    assert_eq!(made_by(next_pid, &root), [] as [&Path; 0]);
}

/// What a trace has of the kernel's events.
#[derive(Debug, Default, PartialEq)]
struct Found {
    switches: bool,
    wakings: bool,
    /// Events that are not written compactly.
    others: bool,
}

fn found(bytes: &[u8]) -> Found {
    let mut found = Found::default();
    for packet in Trace::decode(bytes).unwrap().packet {
        if let Some(Data::FtraceEvents(bundle)) = packet.data {
            let compact = bundle.compact_sched.unwrap_or_default();
            found.switches |= !compact.switch_timestamp.is_empty();
            found.wakings |= !compact.waking_timestamp.is_empty();
        }
    }
    let bundles = TraceOfEvents::decode(bytes).unwrap().packet.into_iter().filter_map(|p| p.bundle);
    found.others = bundles.flat_map(|bundle| bundle.event).next().is_some();
    found
}

#[test]
fn sessions_share_an_instance_and_get_what_each_asked_for() {
    let Some(root) = tracefs() else { return };
    let dir = Dir::new();
    let _daemon = dir.daemon();
    let probes = dir.probes();
    let pid = probes.child().id();
    let mut first = start(&dir, "first", &["sched/sched_switch"]);
    wait_until("the first records", || recording(pid, &root, "sched/sched_switch").is_some());
    // Alone it is not written compactly: that needs the switches.
    let mut second = start(&dir, "second", &["sched/sched_waking"]);
    wait_until("the second records too", || {
        made_by(pid, &root).iter().any(|instance| asks(instance, "sched/sched_waking"))
    });
    assert_eq!(made_by(pid, &root).len(), 1, "they share one");
    second.signal(Signal::INT);
    let ended = second.wait();
    assert!(ended.stderr.contains("no data lost"), "{}", ended.stderr);
    wait_until("only the first's events are left", || {
        made_by(pid, &root)
            .iter()
            .any(|instance| !asks(instance, "sched/sched_waking") && asks(instance, "sched/sched_switch"))
    });
    first.signal(Signal::INT);
    let ended = first.wait();
    assert!(ended.stderr.contains("no data lost"), "{}", ended.stderr);
    wait_until("the instance is removed", || made_by(pid, &root).is_empty());
    let switches = Found { switches: true, ..Found::default() };
    assert_eq!(found(&dir.read("first")), switches);
    let wakings = Found { others: true, ..Found::default() };
    assert_eq!(found(&dir.read("second")), wakings);
}

/// When the kernel made the task of that number.
fn made_at_ns(bytes: &[u8], pid: u64) -> Option<u64> {
    const TASK_NEWTASK: u32 = 235;
    let bundles = TraceOfEvents::decode(bytes).unwrap().packet.into_iter().filter_map(|p| p.bundle);
    let made = bundles.flat_map(|bundle| bundle.event).filter(|event| {
        let (_, about) = field(event, TASK_NEWTASK).unwrap_or_default();
        field(&about, 1).is_some_and(|(tid, _)| tid == pid)
    });
    made.map(|event| field(&event, 1).unwrap().0).next()
}

/// A reader of traces takes what it hears of a process before its `task_newtask` for another one
/// that had the number.
#[test]
fn a_command_is_marked_when_the_kernel_has_made_its_process() {
    if tracefs().is_none() {
        return;
    }
    let dir = Dir::new();
    dir.write("config.txt", config(&["task/task_newtask"]));
    let run = dir.record(&["--no-daemon", "-c", "config.txt", "-o", "t", "--", "sleep", "0.05"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let bytes = dir.read("t");
    let packets = Trace::decode(&bytes[..]).unwrap().packet;
    let marks: Vec<_> = packets
        .iter()
        .filter(|packet| matches!(packet.data, Some(Data::TrackDescriptor(_) | Data::TrackEvent(_))))
        .collect();
    let pid = marks.iter().find_map(|packet| match &packet.data {
        Some(Data::TrackDescriptor(track)) => track.process.as_ref().map(|process| process.pid()),
        _ => None,
    });
    let made_ns = made_at_ns(&bytes, pid.unwrap() as u64).expect("the process is made while recording");
    assert_eq!(marks.len(), 4, "process, track, begin and end");
    for mark in marks {
        assert!(made_ns < mark.timestamp(), "{made_ns}: {mark:?}");
    }
}

/// Fields of `FtraceEvent`.
const WORKQUEUE_EXECUTE_START: u32 = 58;
const GENERIC_FIRST: u32 = 65_536;

/// What the kernel's workers began to do, by the names of the functions.
fn begun_work(bytes: &[u8]) -> BTreeSet<String> {
    let events = TraceOfEvents::decode(bytes).unwrap().packet;
    let mut symbols = HashMap::new();
    let mut begun = BTreeSet::new();
    for (packet, events) in Trace::decode(bytes).unwrap().packet.into_iter().zip(events) {
        let Some(bundle) = events.bundle else { continue };
        if packet.sequence_flags() == 1 {
            symbols.clear();
        }
        for symbol in packet.interned_data.unwrap_or_default().kernel_symbols {
            symbols.insert(symbol.iid(), String::from_utf8(symbol.str().to_vec()).unwrap());
        }
        for event in bundle.event {
            assert_eq!(field(&event, GENERIC_FIRST), None, "an event without a message of its own");
            if let Some((_, start)) = field(&event, WORKQUEUE_EXECUTE_START) {
                begun.insert(symbols[&field(&start, 2).unwrap().0].clone());
            }
        }
    }
    begun
}

#[test]
fn work_of_the_kernel_is_named_by_its_function() {
    let Some(root) = tracefs() else { return };
    let dir = Dir::new();
    let mut recorder = dir.spawn(&["--no-daemon", "-o", "t", "workqueue/workqueue_execute_start"]);
    let pid = recorder.child().id();
    wait_until("it records", || recording(pid, &root, "workqueue/workqueue_execute_start").is_some());
    // What is typed at a terminal is passed on by a worker.
    let mut terminal = OpenOptions::new().read(true).write(true).open("/dev/ptmx").unwrap();
    terminal.write_all(b"x").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    recorder.signal(Signal::INT);
    let ended = recorder.wait();
    assert!(ended.stderr.contains("no data lost"), "{}", ended.stderr);
    let begun = begun_work(&dir.read("t"));
    assert!(begun.contains("flush_to_ldisc"), "{begun:?}");
}
