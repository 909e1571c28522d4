//! `watershed record` beside others who trace, and beside a writer that is quicker than the period:
//! needs root and tracefs.

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use support::tracefs::{field, made_by, recording, tracefs};
use support::{Dir, Running, TraceOfEvents, wait_until};

/// The kernel has one top-level buffer.
static TOP: Mutex<()> = Mutex::new(());

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

fn is_free(root: &Path) -> bool {
    let is_free = read(root.join("set_event")).is_empty() && read(root.join("current_tracer")) == "nop\n";
    if !is_free {
        eprintln!("somebody uses the top-level buffer of this machine, nothing was tested");
    }
    is_free
}

/// Events of the kernel's top-level buffer that somebody else records.
struct SomebodyElse(PathBuf);

impl SomebodyElse {
    fn begin(root: &Path) -> Self {
        fs::write(root.join("events/oom/mark_victim/enable"), "1").unwrap();
        Self(root.join("events/oom/mark_victim/enable"))
    }
}

impl Drop for SomebodyElse {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, "0");
    }
}

/// An instance of somebody else, with an event in its memory that nobody has read; removed again.
struct Theirs(PathBuf);

impl Theirs {
    fn record(root: &Path) -> Self {
        let theirs = Self(root.join(format!("instances/other-{}", std::process::id())));
        fs::create_dir(&theirs.0).unwrap();
        fs::write(theirs.0.join("events/task/task_newtask/enable"), "1").unwrap();
        assert!(std::process::Command::new("true").status().unwrap().success());
        assert!(theirs.events() > 0);
        fs::write(theirs.0.join("tracing_on"), "0").unwrap();
        theirs
    }

    fn events(&self) -> usize {
        read(self.0.join("trace")).matches("task_newtask:").count()
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn start(dir: &Dir, name: &str, ftrace_config: &str) -> Running {
    let config = format!(
        "buffers {{ size_kb: 16384 }} data_sources {{ config {{ name: \"linux.ftrace\"
        ftrace_config {{ {ftrace_config} }} }} }}"
    );
    dir.write(&format!("{name}.txt"), config);
    dir.spawn(&["--no-daemon", "-c", &format!("{name}.txt"), "-o", name])
}

/// Thread and text of each `print` event of a trace.
fn prints(bytes: &[u8]) -> Vec<(u64, String)> {
    use prost::Message as _;
    let bundles = TraceOfEvents::decode(bytes).unwrap().packet.into_iter().filter_map(|p| p.bundle);
    let events = bundles.flat_map(|bundle| bundle.event);
    let print = |event: &Vec<u8>| {
        let (_, print) = field(event, 3)?;
        Some((field(event, 2)?.0, String::from_utf8(field(&print, 2)?.1).unwrap()))
    };
    events.filter_map(|event| print(&event)).collect()
}

#[test]
fn texts_of_programs_come_from_the_top_level_buffer() {
    let Some(root) = tracefs() else { return };
    let _alone = TOP.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !is_free(&root) {
        return;
    }
    let state = || ["trace_clock", "tracing_on", "buffer_size_kb"].map(|file| read(root.join(file)));
    let before = state();
    let dir = Dir::new();
    let config = "ftrace_events: \"ftrace/print\" ftrace_events: \"sched/sched_switch\" drain_period_ms: 50
        print_filter { rules { prefix: \"no \" allow: false } }";
    let mut recorder = start(&dir, "texts", config);
    let pid = recorder.child().id();
    wait_until("it records", || {
        // The top-level buffer is on while nobody uses it, too; its clock is another one then.
        let is_used = read(root.join("trace_clock")).contains("[boot]");
        let is_on = read(root.join("tracing_on")) == "1\n";
        recording(pid, &root, "sched/sched_switch").is_some() && is_used && is_on
    });
    let marker = |text: &str| fs::write(root.join("trace_marker"), text).unwrap();
    let texts = ["B|1|draw\n", "a text with an umlaut: \u{fc}\n", "no thanks\n"];
    texts.iter().for_each(|text| marker(text));
    recorder.signal(Signal::INT);
    let ended = recorder.wait();
    assert!(ended.stderr.contains("no data lost"), "{}", ended.stderr);
    let tid = gettid().as_raw_nonzero().get() as u64;
    let found: Vec<_> = prints(&dir.read("texts")).into_iter().filter(|(of, _)| *of == tid).collect();
    assert_eq!(found, texts[..2].iter().map(|text| (tid, text.to_string())).collect::<Vec<_>>());
    assert_eq!(state(), before, "it is as it was");
    assert_eq!(made_by(pid, &root), [] as [&Path; 0]);
}

#[test]
fn what_others_trace_is_left_alone() {
    let Some(root) = tracefs() else { return };
    let _alone = TOP.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !is_free(&root) {
        return;
    }
    let _somebody_else = SomebodyElse::begin(&root);
    let theirs = Theirs::record(&root);
    let state = || {
        let of_top = ["trace_clock", "tracing_on", "set_event"].map(|file| read(root.join(file)));
        let of_other = ["trace_clock", "tracing_on", "set_event"].map(|file| read(theirs.0.join(file)));
        (of_top, of_other, theirs.events())
    };
    let before = state();

    let dir = Dir::new();
    let config = "ftrace_events: \"ftrace/print\" ftrace_events: \"sched/sched_switch\" drain_period_ms: 50";
    let mut recorder = start(&dir, "beside", config);
    let pid = recorder.child().id();
    wait_until("it records", || recording(pid, &root, "sched/sched_switch").is_some());
    assert_eq!(state(), before);
    recorder.signal(Signal::INT);
    let ended = recorder.wait();
    assert_eq!(state(), before);
    let words = "ftrace/print is not recorded: the kernel's top-level buffer is in use by somebody else \
                 (it records oom:mark_victim)";
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
    assert!(ended.stderr.contains("no data lost"), "the rest is recorded: {}", ended.stderr);
}

/// Two threads of one CPU that wake each other until they are told to end. Now and then they pause:
/// two that never do may keep the kernel's own threads off that CPU for minutes, and who makes an
/// instance of tracefs waits for these.
fn ping_pong(is_over: &AtomicBool) {
    const ROUNDS: usize = 1000;
    const PAUSE: Duration = Duration::from_millis(1);
    let allowed = sched_getaffinity(None).unwrap();
    let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
    let mut only = CpuSet::new();
    only.set(cpu);
    let ((mut from_pong, mut to_ping), (mut from_ping, mut to_pong)) =
        (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sched_setaffinity(None, &only).unwrap();
            while from_ping.read_exact(&mut [0]).is_ok() && to_ping.write_all(&[1]).is_ok() {}
        });
        sched_setaffinity(None, &only).unwrap();
        // Relaxed: nothing is published by it.
        while !is_over.load(Ordering::Relaxed) {
            for _ in 0..ROUNDS {
                to_pong.write_all(&[1]).unwrap();
                from_pong.read_exact(&mut [0]).unwrap();
            }
            std::thread::sleep(PAUSE);
        }
        drop(to_pong);
    });
}

/// Ends a [`ping_pong`], also when the test has failed.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Events that were read from an instance so far.
fn events_read(instance: &Path) -> u64 {
    let cpus = fs::read_dir(instance.join("per_cpu")).unwrap().flatten();
    let of_cpu = |cpu: fs::DirEntry| -> u64 {
        // In one call: what the kernel gives for the next one is of another moment.
        let mut bytes = [0; 4096];
        let size = fs::File::open(cpu.path().join("stats")).unwrap().read(&mut bytes).unwrap();
        let stats = std::str::from_utf8(&bytes[..size]).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("read events: "));
        line.unwrap().trim().parse().unwrap()
    };
    cpus.map(of_cpu).sum()
}

/// No scheduling event takes less than 36 bytes of the 2 MiB that a CPU has here.
const EVENTS_OF_A_FILL: u64 = (2 << 20) / 36;
/// So often it must be read; in a minute and a half there are a flush each 30 s and two periods.
const FILLS: u64 = 16;

#[test]
fn a_full_buffer_is_read_before_its_period_is_over() {
    let Some(root) = tracefs() else { return };
    let release = rustix::system::uname().release().to_str().unwrap().to_owned();
    let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(6), Some(9)) {
        eprintln!("Linux {release} does not wake who waits for a fill level, nothing was tested");
        return;
    }
    let dir = Dir::new();
    // A minute is the longest period.
    let config = "ftrace_events: \"sched/sched_switch\" ftrace_events: \"sched/sched_waking\"
        buffer_size_kb: 2048 drain_period_ms: 60000";
    let mut recorder = start(&dir, "full", config);
    let pid = recorder.child().id();
    let mut instance = None;
    wait_until("it records", || {
        instance = recording(pid, &root, "sched/sched_switch");
        instance.is_some()
    });
    let (instance, is_over, began) = (instance.unwrap(), AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| ping_pong(&is_over));
        let _ends = OnDrop(&is_over);
        let is_read = || events_read(&instance) > FILLS * EVENTS_OF_A_FILL;
        wait_until("it is read", || is_read() || began.elapsed().as_secs() > 90);
    });
    let read = events_read(&instance);
    assert!(read > FILLS * EVENTS_OF_A_FILL, "{read} events: nobody reads before the period is over");
    recorder.signal(Signal::INT);
    recorder.wait();
    assert!(dir.size("full") > 0);
}
