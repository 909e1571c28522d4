//! What the kernel did, against what is known that it did: needs root and a kernel with tracefs.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use prost::Message as _;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use support::TraceOfEvents;
use support::tracefs::{field, recording, tracefs};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{FtraceEventBundle, FtraceStats, Trace};

const HANDOVERS: usize = 1_000;
/// Of a hundred events of a thread, those that the kernel may leave out of its own ring without
/// counting them as lost. Linux 6.18 in a Firecracker guest does: the text that tracefs itself
/// shows has switches from a thread that was never switched to, most of them next to idle. What
/// the kernel hands out is in the trace to the last event, which is compared without tolerance.
const LEFT_OUT_PERCENT_MAX: usize = 5;
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

fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// One of two threads that hand a token back and forth.
struct Player {
    tid: i32,
    cpu: usize,
    /// Right before and right after each hand-over, by CLOCK_BOOTTIME.
    handed_over: Vec<(u64, u64)>,
    cpu_time_ns: u64,
}

fn cpu_time_ns(tid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// What the kernel counts: how often a thread gave up its CPU or lost it.
fn switches(tid: i32) -> usize {
    let status = fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
    counts.map(|line| line.split_whitespace().next_back().unwrap().parse::<usize>().unwrap()).sum()
}

/// Until the thread is off its CPU and waits for that socket: a token that is handed to a thread
/// that has not fallen asleep yet wakes nobody. The state in `stat` says too early that it does.
fn wait_until_asleep(tid: i32, socket: RawFd) {
    let path = format!("/proc/self/task/{tid}/syscall");
    let argument = format!("{socket:#x}");
    while fs::read_to_string(&path).unwrap().split(' ').nth(1) != Some(&argument) {}
}

fn play(
    cpu: usize,
    begins: bool,
    mut token: UnixStream,
    peer_socket: RawFd,
    tids: &mpsc::Sender<i32>,
    peer: &mpsc::Receiver<i32>,
) -> Player {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
    let tid = gettid().as_raw_nonzero().get();
    tids.send(tid).unwrap();
    let peer = peer.recv().unwrap();
    let mut handed_over = Vec::with_capacity(HANDOVERS);
    for turn in 0..HANDOVERS {
        if !(begins && turn == 0) {
            token.read_exact(&mut [0]).unwrap();
        }
        wait_until_asleep(peer, peer_socket);
        let before = boottime_ns();
        token.write_all(&[1]).unwrap();
        handed_over.push((before, boottime_ns()));
    }
    if begins {
        token.read_exact(&mut [0]).unwrap();
    }
    Player { tid, cpu, handed_over, cpu_time_ns: cpu_time_ns(tid) }
}

/// Two players on two CPUs, a thread that sleeps by timer, and a program that is started.
struct Workload {
    players: [Player; 2],
    /// Threads that compute for a while: ids and their own times.
    computing: Vec<(i32, u64)>,
    /// A thread that sleeps by timer: id, and how often it has been switched away from.
    sleeper: (i32, usize),
    child: u32,
    /// The threads live as long as these: who is gone before its events are read has its name from
    /// them alone.
    _alive: Vec<mpsc::Sender<()>>,
}

/// A thread that lives on when it has done its work.
struct Named<T>(mpsc::Receiver<T>);

impl<T: Send + 'static> Named<T> {
    fn start(
        name: &str,
        alive: &mut Vec<mpsc::Sender<()>>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Self {
        let (done, result) = mpsc::channel();
        let (lives_on, until_dropped) = mpsc::channel::<()>();
        alive.push(lives_on);
        let body = move || {
            done.send(work()).unwrap();
            let _ = until_dropped.recv();
        };
        thread::Builder::new().name(name.to_owned()).spawn(body).unwrap();
        Named(result)
    }

    fn result(self) -> T {
        self.0.recv().unwrap()
    }
}

fn run_workload(cpus: [usize; 2]) -> Workload {
    let mut alive = Vec::new();
    let (a, b) = UnixStream::pair().unwrap();
    let (socket_a, socket_b) = (a.as_raw_fd(), b.as_raw_fd());
    let (tid_a, of_a) = mpsc::channel();
    let (tid_b, of_b) = mpsc::channel();
    let ping = Named::start("ping", &mut alive, move || play(cpus[0], true, a, socket_b, &tid_a, &of_b));
    let pong = Named::start("pong", &mut alive, move || play(cpus[1], false, b, socket_a, &tid_b, &of_a));
    let sleeper = Named::start("by-timer", &mut alive, || {
        (0..100).for_each(|_| thread::sleep(Duration::from_millis(1)));
        let tid = gettid().as_raw_nonzero().get();
        (tid, switches(tid))
    });
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());
    let players = [ping, pong].map(Named::result);
    // After them: a thread is charged less where others are charged from their waking on.
    let computing = (0..5).map(|_| Named::start("computes", &mut alive, compute).result()).collect();
    Workload { players, computing, sleeper: sleeper.result(), child: pid, _alive: alive }
}

/// For a fifth of a second of the thread's own time. Returns its id and that time.
fn compute() -> (i32, u64) {
    let own_ns = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    while own_ns() < 200_000_000 {
        std::hint::black_box((0..10_000_u64).sum::<u64>());
    }
    let tid = gettid().as_raw_nonzero().get();
    (tid, cpu_time_ns(tid))
}

/// Every CPU is busy with something that gives way to everybody.
struct Load(Vec<Child>);

impl Load {
    fn start(cpus: usize) -> Self {
        let spin =
            || Command::new("nice").args(["-n", "19", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        Load((0..cpus).map(|_| spin()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A switch or a waking, as far as the test looks at it.
#[derive(Clone, Debug)]
struct Event {
    at_ns: u64,
    cpu: u32,
    tid: i32,
    name: String,
}

#[derive(Default)]
struct Recorded {
    switches: Vec<Event>,
    wakings: Vec<Event>,
    /// Threads by id: process and name.
    threads: Vec<(i32, i32, String)>,
    processes: Vec<(i32, Vec<String>)>,
    stats: Vec<FtraceStats>,
    /// Events by CPU, and how many those were that came before the last statistics.
    counts: BTreeMap<u32, u64>,
    told: BTreeMap<u32, u64>,
    bundles: Vec<FtraceEventBundle>,
    /// New threads: who started it, its id, and whether it is one of the starter's process.
    started: Vec<(i32, i32, bool)>,
    /// Programs that were started, by thread.
    executed: Vec<(i32, String)>,
}

/// Fields of `FtraceEvent`, and the flag of a clone that makes a thread.
const TASK_NEWTASK: u32 = 235;
const SCHED_PROCESS_EXEC: u32 = 237;
const CLONE_THREAD: u64 = 0x10000;

fn read(path: &Path) -> Recorded {
    let bytes = fs::read(path).unwrap();
    let trace = Trace::decode(&bytes[..]).unwrap();
    let events = TraceOfEvents::decode(&bytes[..]).unwrap();
    let mut recorded = Recorded::default();
    for (packet, events) in trace.packet.into_iter().zip(events.packet) {
        if let Some(bundle) = events.bundle {
            *recorded.counts.entry(bundle.cpu).or_default() += bundle.event.len() as u64;
            bundle.event.iter().for_each(|event| recorded.add_other(event));
        }
        match packet.data {
            Some(Data::FtraceEvents(bundle)) => recorded.add(bundle),
            Some(Data::FtraceStats(stats)) => {
                recorded.stats.push(stats);
                recorded.told = recorded.counts.clone();
            }
            Some(Data::ProcessTree(tree)) => {
                let threads = tree.threads.iter().map(|t| (t.tid(), t.tgid(), t.name().to_owned()));
                recorded.threads.extend(threads);
                recorded.processes.extend(tree.processes.iter().map(|p| (p.pid(), p.cmdline.clone())));
            }
            _ => {}
        }
    }
    recorded.switches.sort_by_key(|event| event.at_ns);
    recorded.wakings.sort_by_key(|event| event.at_ns);
    recorded
}

impl Recorded {
    /// An event that is not written compactly.
    fn add_other(&mut self, event: &[u8]) {
        let current = field(event, 2).unwrap().0 as i32;
        if let Some((_, task)) = field(event, TASK_NEWTASK) {
            let flags = field(&task, 3).unwrap().0;
            self.started.push((current, field(&task, 1).unwrap().0 as i32, flags & CLONE_THREAD != 0));
        }
        if let Some((_, exec)) = field(event, SCHED_PROCESS_EXEC) {
            let program = String::from_utf8(field(&exec, 1).unwrap().1).unwrap();
            self.executed.push((field(&exec, 2).unwrap().0 as i32, program));
        }
    }

    fn add(&mut self, bundle: FtraceEventBundle) {
        assert!(!bundle.lost_events() && bundle.error.is_empty(), "{:?}", bundle.error);
        let compact = bundle.compact_sched.clone().unwrap_or_default();
        let events = |times: &[u64], tids: &[i32], names: &[u32]| -> Vec<Event> {
            assert!(times.len() == tids.len() && times.len() == names.len());
            let mut at_ns = 0_u64;
            let rows = times.iter().zip(tids).zip(names);
            rows.map(|((delta, &tid), &name)| {
                at_ns = at_ns.wrapping_add(*delta);
                let name = compact.intern_table[name as usize].clone();
                Event { at_ns, cpu: bundle.cpu(), tid, name }
            })
            .collect()
        };
        let c = &compact;
        self.switches.extend(events(&c.switch_timestamp, &c.switch_next_pid, &c.switch_next_comm_index));
        self.wakings.extend(events(&c.waking_timestamp, &c.waking_pid, &c.waking_comm_index));
        let count = c.switch_timestamp.len() + c.waking_timestamp.len();
        *self.counts.entry(bundle.cpu()).or_default() += count as u64;
        self.bundles.push(bundle);
    }

    /// Time on all CPUs together.
    fn cpu_time_ns(&self, tid: i32) -> u64 {
        let mut total = 0;
        let cpus = self.switches.iter().map(|s| s.cpu).max().unwrap_or(0);
        for cpu in 0..=cpus {
            let of_cpu: Vec<_> = self.switches.iter().filter(|s| s.cpu == cpu).collect();
            let slices = of_cpu.windows(2).filter(|pair| pair[0].tid == tid);
            total += slices.map(|pair| pair[1].at_ns - pair[0].at_ns).sum::<u64>();
        }
        total
    }
}

impl Recorded {
    /// Time between each waking of a thread and the moment when it ran.
    fn waking_time_ns(&self, tid: i32) -> u64 {
        let wakings = self.wakings.iter().filter(|w| w.tid == tid).map(|w| (w.at_ns, false));
        let switches = self.switches.iter().filter(|s| s.tid == tid).map(|s| (s.at_ns, true));
        let mut events: Vec<_> = wakings.chain(switches).collect();
        events.sort_unstable();
        let ran = events.windows(2).filter(|pair| !pair[0].1 && pair[1].1);
        ran.map(|pair| pair[1].0 - pair[0].0).sum()
    }
}

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
    let before_ns = taken_ns();
    let workload = run_workload([first, second]);
    // Each CPU's figure may be a tick behind.
    let taken_of_cpus_ns = taken_ns() - before_ns + 2 * tick_ns();
    kill_process(Pid::from_child(&recording), Signal::INT).unwrap();
    recording.wait().unwrap();
    let mut said = String::new();
    recording.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("no data lost"), "{said}");

    let recorded = read(&path);
    check_stats(&recorded);
    let [ping, pong] = &workload.players;
    check_handovers(&recorded, ping, pong, "pong");
    check_handovers(&recorded, pong, ping, "ping");
    // A switch that the kernel leaves out takes a slice, of up to the whole time, from a thread and
    // gives it to nobody that is looked at here: no thread has more than its own time, and the one
    // that lost least has all of it.
    let traced = |tid| recorded.cpu_time_ns(tid);
    let slack_ns = |kernel_ns: u64| kernel_ns / 100 + taken_of_cpus_ns + TAIL_NS;
    let computing = &workload.computing;
    assert!(computing.iter().all(|&(tid, kernel_ns)| traced(tid) <= kernel_ns + slack_ns(kernel_ns)));
    let whole = computing.iter().max_by_key(|&&(tid, kernel_ns)| traced(tid) as i64 - kernel_ns as i64);
    let &(tid, kernel_ns) = whole.expect("there are five");
    check_time("computes", traced(tid), 0, kernel_ns, slack_ns(kernel_ns));
    for (player, name) in [(ping, "ping"), (pong, "pong")] {
        let traced_ns = recorded.cpu_time_ns(player.tid);
        let waking_ns = recorded.waking_time_ns(player.tid);
        check_time(name, traced_ns, waking_ns, player.cpu_time_ns, slack_ns(player.cpu_time_ns));
    }
    let naps = recorded.switches.iter().filter(|s| s.tid == workload.sleeper.0).count();
    let counted = workload.sleeper.1;
    let least = counted - counted * LEFT_OUT_PERCENT_MAX / 100;
    assert!(counted > 50 && (least..=counted + 5).contains(&naps), "{naps} of {counted}");
    check_names(&recorded, &workload);
    check_top(&path, &recorded, &workload, slack_ns);
}

/// What `inspect --top` says of the same trace.
fn check_top(path: &Path, recorded: &Recorded, workload: &Workload, slack_ns: impl Fn(u64) -> u64) {
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
    for &(tid, kernel_ns) in &workload.computing {
        assert!(ns(tid, "running") <= kernel_ns + slack_ns(kernel_ns));
        assert_eq!(
            (&row_of(tid)["name"], &row_of(tid)["pid"]),
            (&"computes".into(), &std::process::id().into())
        );
    }
    let most_ns = |&(tid, kernel_ns): &(i32, u64)| ns(tid, "running") as i64 - kernel_ns as i64;
    let &(tid, kernel_ns) = workload.computing.iter().max_by_key(|thread| most_ns(thread)).unwrap();
    check_time("computes, by --top", ns(tid, "running"), 0, kernel_ns, slack_ns(kernel_ns));
    let [ping, pong] = &workload.players;
    for player in [ping, pong] {
        // Switches that contradict each other give time to nobody.
        assert!(ns(player.tid, "running") <= recorded.cpu_time_ns(player.tid));
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
    let wakings = |waker: &str, waker_tid: Option<i32>, tid: i32| {
        let rows = top["wakers"].as_array().unwrap().iter();
        let is_it = |row: &&serde_json::Value| {
            row["waker"] == waker
                && row["waker_tid"].as_i64() == waker_tid.map(i64::from)
                && row["tid"] == tid
        };
        rows.filter(is_it).map(|row| row["wakings"].as_u64().unwrap()).sum::<u64>() as usize
    };
    let least = HANDOVERS - HANDOVERS * LEFT_OUT_PERCENT_MAX / 100;
    for (from, to) in [(ping, pong), (pong, ping)] {
        // Threads that look into /proc at once wake each other for that too.
        let all = recorded.wakings.iter().filter(|waking| waking.tid == to.tid).count();
        let handed_over = wakings("thread", Some(from.tid), to.tid);
        assert!((least..=all).contains(&handed_over), "{handed_over} of {all}");
    }
    let by_timer = wakings("interrupt", None, workload.sleeper.0);
    assert!(by_timer >= 80, "{by_timer}");
}

/// The kernel's own figure is within 1% of the trace's, plus what was taken from the CPUs. Where a
/// thread preempts another the kernel may charge it from its waking on (it saves a look at the
/// clock between the waking and the switch), which is what `waking_ns` is for.
fn check_time(name: &str, traced_ns: u64, waking_ns: u64, kernel_ns: u64, slack_ns: u64) {
    eprintln!("{name}: {traced_ns} ns in the trace, {kernel_ns} in schedstat, within {slack_ns}");
    assert!(traced_ns <= kernel_ns + slack_ns && kernel_ns <= traced_ns + waking_ns + slack_ns, "{name}");
}

/// Each time `from` handed over, `to` was woken by `from`'s CPU meanwhile, and then ran on its own.
fn check_handovers(recorded: &Recorded, from: &Player, to: &Player, name: &str) {
    let of = |events: &[Event]| events.iter().filter(|e| e.tid == to.tid).cloned().collect::<Vec<_>>();
    let (wakings, switches) = (of(&recorded.wakings), of(&recorded.switches));
    let mut missed = Vec::new();
    for &(before, after) in &from.handed_over {
        let woken = wakings.iter().find(|w| (before..=after).contains(&w.at_ns) && w.cpu == from.cpu as u32);
        let Some(woken) = woken else {
            missed.push((before, after));
            continue;
        };
        assert_eq!(woken.name, name);
        let ran = switches.iter().find(|s| s.at_ns > woken.at_ns).expect("it was woken, so it ran");
        assert_eq!((ran.cpu, ran.name.as_str()), (to.cpu as u32, name));
    }
    eprintln!("{name}: {} of {HANDOVERS} hand-overs are in the trace", HANDOVERS - missed.len());
    assert!(missed.len() <= HANDOVERS * LEFT_OUT_PERCENT_MAX / 100, "no waking of {name} in {missed:?}");
}

fn check_names(recorded: &Recorded, workload: &Workload) {
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
    let ran = recorded.switches.iter().chain(&recorded.wakings).any(|s| s.tid == workload.child as i32);
    assert!(ran, "the child never ran");
    let child = workload.child as i32;
    let is_true = |(tid, program): &(i32, String)| *tid == child && program.ends_with("/true");
    assert!(recorded.executed.iter().any(is_true), "{:?}", recorded.executed);
    check_started(recorded, workload, child);
}

/// Who started whom, of those that the kernel did not leave out: most of them.
fn check_started(recorded: &Recorded, workload: &Workload, child: i32) {
    let of_players = workload.players.iter().map(|player| player.tid);
    let of_computing = workload.computing.iter().map(|&(tid, _)| tid);
    let threads: Vec<i32> = of_players.chain(of_computing).chain([workload.sleeper.0]).collect();
    let test = gettid().as_raw_nonzero().get();
    let ours = recorded.started.iter().filter(|(_, tid, _)| threads.contains(tid) || *tid == child);
    let ours: Vec<_> = ours.collect();
    assert!(ours.len() > threads.len() / 2, "{ours:?}");
    for &&(by, tid, is_thread) in &ours {
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
