//! What the kernel did, against what is known that it did: needs root and a kernel with tracefs.

mod recorded;
mod reference;
#[path = "../support/mod.rs"]
mod support;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use recorded::{Event, Recorded, cpu_time_ns, read};
use reference::{Known, Reference};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, gettid, sched_getaffinity};
use support::tracefs::{recording, tracefs};
use workload::{HANDOVERS, Load, Player, Workload, boottime_ns, run_workload};

/// What a thread does after it has read its own time: it waits for the end.
const TAIL_NS: u64 = 2_000_000;
const CONFIG: &str = r#"
buffers { size_kb: 65536 }
data_sources { config { name: "linux.ftrace" ftrace_config {
  ftrace_events: "sched/sched_switch"
  ftrace_events: "sched_waking"
  ftrace_events: "sched/sched_process_exec"
  ftrace_events: "task/task_newtask"
  ftrace_events: "task/task_rename"
  buffer_size_kb: 4096
  drain_period_ms: 250
} } }
data_sources { config { name: "linux.process_stats" process_stats_config {
  scan_all_processes_on_start: true record_thread_names: true } } }
"#;

/// Time that the hypervisor took from all CPUs so far, or interrupts; the kernel may leave both out
/// of a thread's time, and scheduling events do not.
fn taken_ns() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let columns = stat.lines().next().unwrap().split_whitespace();
    let ticks: u64 = columns.skip(6).take(3).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    ticks * tick_ns()
}

/// What /proc/stat counts in.
fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second()
}

fn record(path: &Path, dir: &Path, root: &Path) -> Child {
    let config = dir.join("config.txt");
    fs::write(&config, CONFIG).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_watershed"));
    child.args(["record", "--no-daemon", "-c"]).arg(config).arg("-o").arg(path).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    let started = Instant::now();
    while recording(child.id(), root, "sched/sched_switch").is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "it did not start");
        thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn every_hand_over_is_in_the_trace() {
    let Some(root) = tracefs() else { return };
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).take(2).collect();
    let &[first, second] = &cpus[..] else {
        eprintln!("one CPU only, nothing was tested");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.pftrace");
    let _load = Load::start(2);
    let mut recording = record(&path, dir.path(), &root);
    let reference = Reference::start(&root);
    let before_ns = taken_ns();
    let workload = run_workload([first, second]);
    // Each CPU's figure may be a tick behind.
    let taken_of_cpus_ns = taken_ns() - before_ns + 2 * tick_ns();
    // The threads of the workload wait for the end.
    thread::sleep(Duration::from_millis(20));
    let until_ns = boottime_ns();
    thread::sleep(Duration::from_millis(20));
    let known = reference.stop();
    kill_process(Pid::from_child(&recording), Signal::INT).unwrap();
    recording.wait().unwrap();
    let mut said = String::new();
    recording.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("no data lost"), "{said}");

    let recorded = read(&path);
    let slack_ns = |kernel_ns: u64| kernel_ns / 100 + taken_of_cpus_ns + TAIL_NS;
    check_stats(&recorded);
    check_same(&recorded, &known, &workload, until_ns, slack_ns);
    let [ping, pong] = &workload.players;
    check_handovers(&recorded, &known, ping, pong, "pong");
    check_handovers(&recorded, &known, pong, ping, "ping");
    let naps = recorded.switches.iter().filter(|s| s.tid == workload.sleeper.0).count();
    let counted = workload.sleeper.1;
    assert!(counted > 50 && naps <= counted + 5, "{naps} of {counted}");
    let is_whole = known.is_whole();
    if is_whole {
        check_times(&recorded, &workload, slack_ns);
    }
    check_names(&recorded, &known, &workload);
    check_top(&path, &recorded, &known, &workload, is_whole.then_some(&slack_ns));
}

/// What the trace and the kernel's text say of each thread of the workload is the same, to the last
/// event: where it was switched to and woken, and how long it ran.
fn check_same(
    recorded: &Recorded,
    known: &Known,
    workload: &Workload,
    until_ns: u64,
    slack_ns: impl Fn(u64) -> u64,
) {
    let until = |events: &[Event]| -> Vec<Event> {
        events.iter().filter(|event| event.at_ns <= until_ns).cloned().collect()
    };
    let of = |events: &[Event], tid: i32| -> Vec<(u32, String)> {
        events.iter().filter(|event| event.tid == tid).map(|event| (event.cpu, event.name.clone())).collect()
    };
    for tid in workload.tids().into_iter().chain([workload.child as i32]) {
        let kinds = [
            ("switches", &recorded.switches, &known.switches),
            ("wakings", &recorded.wakings, &known.wakings),
        ];
        for (kind, traced, by_kernel) in kinds {
            let (traced, by_kernel) = (of(&until(traced), tid), of(&until(by_kernel), tid));
            eprintln!(
                "{} {kind} of {tid} in the trace, {} by the kernel's text",
                traced.len(),
                by_kernel.len()
            );
            assert_eq!(traced, by_kernel, "{kind} of {tid}");
        }
        let traced_ns = cpu_time_ns(&until(&recorded.switches), tid);
        let kernel_ns = cpu_time_ns(&until(&known.switches), tid);
        assert!(traced_ns.abs_diff(kernel_ns) <= slack_ns(kernel_ns), "{traced_ns} {kernel_ns}");
    }
}

/// Against the times that the kernel charges the threads with.
fn check_times(recorded: &Recorded, workload: &Workload, slack_ns: impl Fn(u64) -> u64) {
    // A switch that the kernel leaves out takes a slice, of up to the whole time, from a thread and
    // gives it to nobody that is looked at here: no thread has more than its own time, and the one
    // that lost least has all of it.
    let traced = |tid| recorded.cpu_time_ns(tid);
    let computing = &workload.computing;
    assert!(computing.iter().all(|&(tid, kernel_ns)| traced(tid) <= kernel_ns + slack_ns(kernel_ns)));
    let whole = computing.iter().max_by_key(|&&(tid, kernel_ns)| traced(tid) as i64 - kernel_ns as i64);
    let &(tid, kernel_ns) = whole.expect("there are five");
    check_time("computes", traced(tid), 0, kernel_ns, slack_ns(kernel_ns));
    let [ping, pong] = &workload.players;
    for (player, name) in [(ping, "ping"), (pong, "pong")] {
        let traced_ns = recorded.cpu_time_ns(player.tid);
        let waking_ns = recorded.waking_time_ns(player.tid);
        check_time(name, traced_ns, waking_ns, player.cpu_time_ns, slack_ns(player.cpu_time_ns));
    }
}

/// What `inspect --top` says of the same trace. Times are judged by the kernel's own if there is
/// `slack_ns`.
fn check_top(
    path: &Path,
    recorded: &Recorded,
    known: &Known,
    workload: &Workload,
    slack_ns: Option<&impl Fn(u64) -> u64>,
) {
    let mut inspect = Command::new(env!("CARGO_BIN_EXE_watershed"));
    let output = inspect.args(["inspect", "--top", "--json"]).arg(path).output().unwrap();
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let top = &report["scheduling"];
    let row_of = |tid: i32| {
        let rows = top["threads"].as_array().unwrap();
        rows.iter().find(|row| row["tid"] == tid).unwrap_or_else(|| panic!("no row of {tid}"))
    };
    let ns = |tid: i32, state: &str| row_of(tid)[format!("{state}_ns")].as_u64().unwrap();
    // Switches that contradict each other give time to nobody.
    for tid in workload.tids() {
        assert!(ns(tid, "running") <= recorded.cpu_time_ns(tid));
    }
    for &(tid, _) in &workload.computing {
        let row = row_of(tid);
        assert_eq!((&row["name"], &row["pid"]), (&"computes".into(), &std::process::id().into()));
    }
    let [ping, pong] = &workload.players;
    if let Some(slack_ns) = slack_ns {
        let most_ns = |&(tid, kernel_ns): &(i32, u64)| ns(tid, "running") as i64 - kernel_ns as i64;
        let &(tid, kernel_ns) = workload.computing.iter().max_by_key(|thread| most_ns(thread)).unwrap();
        check_time("computes, by --top", ns(tid, "running"), 0, kernel_ns, slack_ns(kernel_ns));
        for player in [ping, pong] {
            let (traced_ns, lacking_ns) = (ns(player.tid, "running"), ns(player.tid, "unknown"));
            check_time(
                "player, by --top",
                traced_ns,
                recorded.waking_time_ns(player.tid) + lacking_ns,
                player.cpu_time_ns,
                slack_ns(player.cpu_time_ns),
            );
        }
        // A hundred times a millisecond by timer; what is not in the trace is missing here too.
        let slept_ns = ns(workload.sleeper.0, "interruptible") + ns(workload.sleeper.0, "unknown");
        assert!(slept_ns >= 90_000_000, "{slept_ns}");
    }
    let wakings = |waker: &str, waker_tid: Option<i32>, tid: i32| {
        let rows = top["wakers"].as_array().unwrap().iter();
        let is_it = |row: &&serde_json::Value| {
            row["waker"] == waker
                && row["waker_tid"].as_i64() == waker_tid.map(i64::from)
                && row["tid"] == tid
        };
        rows.filter(is_it).map(|row| row["wakings"].as_u64().unwrap()).sum::<u64>() as usize
    };
    for (from, to) in [(ping, pong), (pong, ping)] {
        // Who ran is known from the switches: where one was left out, the waker is another one.
        let least = known.wakings_by(from.tid, to.tid);
        let all = recorded.wakings.iter().filter(|waking| waking.tid == to.tid).count();
        let handed_over = wakings("thread", Some(from.tid), to.tid);
        eprintln!("{handed_over} wakings of {} by {}, {least} to {all}", to.tid, from.tid);
        assert!((least..=all).contains(&handed_over), "{handed_over} of {least} to {all}");
    }
    let by_timer = wakings("interrupt", None, workload.sleeper.0);
    assert_eq!(by_timer, known.wakings_by_interrupts(workload.sleeper.0));
}

/// The kernel's own figure is within 1% of the trace's, plus what was taken from the CPUs. Where a
/// thread preempts another the kernel may charge it from its waking on (it saves a look at the
/// clock between the waking and the switch), which is what `waking_ns` is for.
fn check_time(name: &str, traced_ns: u64, waking_ns: u64, kernel_ns: u64, slack_ns: u64) {
    eprintln!("{name}: {traced_ns} ns in the trace, {kernel_ns} in schedstat, within {slack_ns}");
    assert!(traced_ns <= kernel_ns + slack_ns && kernel_ns <= traced_ns + waking_ns + slack_ns, "{name}");
}

/// Each time `from` handed over, `to` was woken by `from`'s CPU meanwhile, and then ran on its own;
/// or the kernel's text does not have it either.
fn check_handovers(recorded: &Recorded, known: &Known, from: &Player, to: &Player, name: &str) {
    let of = |events: &[Event]| events.iter().filter(|e| e.tid == to.tid).cloned().collect::<Vec<_>>();
    let (wakings, switches) = (of(&recorded.wakings), of(&recorded.switches));
    let by_text = of(&known.wakings);
    let mut left_out = 0;
    for &(before, after) in &from.handed_over {
        let woken = wakings.iter().find(|w| (before..=after).contains(&w.at_ns) && w.cpu == from.cpu as u32);
        let Some(woken) = woken else {
            // Whole microseconds, rounded down.
            let is_meanwhile = |w: &&Event| w.at_ns >= before && w.at_ns + 1_000 <= after;
            let event = by_text.iter().find(is_meanwhile);
            assert!(event.is_none(), "{event:?} of {name} is not in the trace");
            left_out += 1;
            continue;
        };
        assert_eq!(woken.name, name);
        if let Some(ran) = switches.iter().find(|s| s.at_ns > woken.at_ns) {
            assert_eq!((ran.cpu, ran.name.as_str()), (to.cpu as u32, name));
        }
    }
    eprintln!("{name}: {} of {HANDOVERS} hand-overs are in the trace", HANDOVERS - left_out);
    assert!(left_out < HANDOVERS * 9 / 10, "the kernel left out nearly all, or their times are wrong");
}

fn check_names(recorded: &Recorded, known: &Known, workload: &Workload) {
    let own = std::process::id() as i32;
    for (tid, name) in [
        (workload.players[0].tid, "ping"),
        (workload.players[1].tid, "pong"),
        (workload.sleeper.0, "by-timer"),
    ] {
        assert!(recorded.threads.contains(&(tid, own, name.to_owned())), "{name}");
    }
    let nameless: Vec<_> = recorded.switches.iter().filter(|s| s.name.is_empty()).collect();
    assert!(nameless.is_empty(), "{nameless:?}");
    // The program that was started ran under its own name.
    let child = workload.child as i32;
    let of_child = |executed: &[(i32, String)]| -> Vec<String> {
        executed.iter().filter(|(tid, _)| *tid == child).map(|(_, program)| program.clone()).collect()
    };
    let programs = of_child(&recorded.executed);
    assert_eq!(programs, of_child(&known.executed));
    assert!(programs.iter().all(|program| program.ends_with("/true")), "{programs:?}");
    check_started(recorded, known, workload, child);
}

/// Who started whom.
fn check_started(recorded: &Recorded, known: &Known, workload: &Workload, child: i32) {
    let threads = workload.tids();
    // The trace has them by CPU, so that their order says nothing.
    let of_test = |started: &[(i32, i32, bool)]| -> BTreeSet<(i32, i32, bool)> {
        let is_ours = |(_, tid, _): &&(i32, i32, bool)| threads.contains(tid) || *tid == child;
        started.iter().filter(is_ours).copied().collect()
    };
    let ours = of_test(&recorded.started);
    eprintln!("{} of {} starts are in the trace", ours.len(), threads.len() + 1);
    assert_eq!(ours, of_test(&known.started), "started in the trace, and by the kernel's text");
    let test = gettid().as_raw_nonzero().get();
    for (by, tid, is_thread) in ours {
        assert_eq!((by, is_thread), (test, tid != child), "who started {tid}");
    }
}

fn check_stats(recorded: &Recorded) {
    let [start, end] = &recorded.stats[recorded.stats.len() - 2..] else { panic!("no statistics") };
    assert!(start.unknown_ftrace_events.is_empty() && start.failed_ftrace_events.is_empty(), "{start:?}");
    assert!(end.ftrace_parse_errors.is_empty());
    let handed_out = end.cpu_stats.iter().map(|cpu| (cpu.cpu() as u32, cpu.read_events()));
    let handed_out: BTreeMap<_, _> = handed_out.filter(|&(_, count)| count > 0).collect();
    assert_eq!(recorded.told, handed_out, "what the kernel handed out, by CPU, is in the trace");
    for (start, end) in start.cpu_stats.iter().zip(&end.cpu_stats) {
        assert_eq!((start.overrun(), end.overrun()), (0, 0));
        assert_eq!(end.commit_overrun() + end.dropped_events(), 0);
    }
}
