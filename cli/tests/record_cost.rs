//! What a recording costs while the machine compiles, and whether it loses anything then. Takes 12
//! s, so it is asked for:
//!
//! `cargo test --release -p watershed --test record_cost -- --ignored --nocapture`

#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use support::{Dir, packets};
use watershed_wire::protos::trace_packet::Data;

const TIME: Duration = Duration::from_secs(10);
/// Of one core, with the default config.
const CPU_PERCENT_MAX: f64 = 2.0;
const LATE_MAX: Duration = Duration::from_millis(500);

#[test]
#[ignore = "takes 12 s, and its limits are those of a release build"]
fn ten_seconds_under_a_compile_load() {
    let dir = Dir::new();
    let over = AtomicBool::new(false);
    let (cpu, took, stderr) = std::thread::scope(|scope| {
        for core in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let over = &over;
            scope.spawn(move || compile_until(over, core));
        }
        let measured = record(&dir);
        over.store(true, Ordering::Relaxed);
        measured
    });
    let percent = cpu.as_secs_f64() / took.as_secs_f64() * 100.0;
    let late = took.saturating_sub(TIME);
    println!("{}", stderr.trim_end());
    println!("{percent:.2} % of a core, back {} ms after the time was up", late.as_millis());

    assert!(stderr.contains("no data lost"), "{stderr}");
    let told: Vec<String> = packets(&dir.read("t.pftrace"))
        .into_iter()
        .filter_map(|packet| match packet.data {
            Some(Data::ProcessTree(tree)) => Some(tree.processes),
            _ => None,
        })
        .flatten()
        .map(|process| process.cmdline.join(" "))
        .collect();
    assert!(
        told.iter().any(|line| line.contains("--crate-name load")),
        "the compilers are in the process tree"
    );
    assert!(percent < CPU_PERCENT_MAX, "{percent:.2} % of a core");
    assert!(late < LATE_MAX, "{late:?}");
}

/// CPU time, time and standard error of a recording with the default config.
fn record(dir: &Dir) -> (Duration, Duration, String) {
    let started = Instant::now();
    let mut run = dir.spawn(&["-t", "10s", "-o", "t.pftrace"]);
    let pid = Pid::from_child(run.child());
    // Ended, but not yet waited for: /proc still has it.
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).expect("it is our child");
    let took = started.elapsed();
    let cpu = cpu_time(run.child());
    (cpu, took, run.wait().stderr)
}

fn cpu_time(child: &Child) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("not waited for");
    // User and system time are the 12th and 13th field after the name; Linux counts them in
    // hundredths of a second.
    let fields: Vec<&str> = stat[stat.rfind(')').expect("a name")..].split(' ').collect();
    let ticks: u64 =
        fields[12].parse::<u64>().expect("a number") + fields[13].parse::<u64>().expect("a number");
    Duration::from_millis(ticks * 10)
}

fn compile_until(over: &AtomicBool, core: usize) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let source: String = (0..400)
        .map(|i| format!("pub fn f{i}(x: u64) -> String {{ format!(\"{{:?}}\", x + {i}) }}\n"))
        .collect();
    fs::write(dir.path().join("load.rs"), source).expect("the directory is ours");
    while !over.load(Ordering::Relaxed) {
        assert!(compile(dir.path(), core), "rustc compiles");
    }
}

fn compile(dir: &Path, core: usize) -> bool {
    let mut rustc = Command::new("rustc");
    rustc.args(["--crate-type", "lib", "-O", "--edition", "2024", "--crate-name"]).arg(format!("load{core}"));
    let rustc = rustc.arg("load.rs").current_dir(dir).stderr(Stdio::null());
    rustc.status().is_ok_and(|status| status.success())
}
