//! Scheduling events at a rate that fills the kernel's ring many times.

use super::roles::{PingPong, start_probes};
use super::trace::{Found, config};
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::suites::processes::daemon::{RunningDaemon, Workers};
use crate::suites::processes::session::{check_nothing_refused, disable, enable, flushed_stats};
use crate::suites::processes::{MachineTicks, Process, cpu_ns};
use std::fs::File;
use std::time::{Duration, Instant};

const EVENTS: [&str; 2] = ["sched/sched_switch", "sched/sched_waking"];

struct Run {
    found: Found,
    probes_ns: u64,
    daemon_ns: u64,
    seconds: f64,
    steal_percent: f64,
}

impl Run {
    fn per_event(&self, sum: u64) -> f64 {
        sum as f64 / self.found.events as f64
    }

    fn lost_percent(&self) -> f64 {
        self.found.lost as f64 / (self.found.events + self.found.lost) as f64 * 100.0
    }
}

/// CPU time of the probes for each event that is in the file.
pub(super) fn ping_pong(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let duration = options.size(Duration::from_secs(4), Duration::from_millis(300));
    let runs = (0..options.rounds.min(5)).map(|_| run(duration)).collect::<Result<Vec<_>, WrongAnswer>>()?;
    let series = |value: &dyn Fn(&Run) -> f64| Series::new(runs.iter().map(value).collect());
    let cost = series(&|run| run.per_event(run.probes_ns));
    Ok(Measurement::ns_per("event", name, &cost)
        .with("percent_lost", series(&Run::lost_percent).max())
        .with("whole_runs", runs.iter().filter(|run| run.found.lost == 0).count() as f64)
        .with("bytes_per_event", series(&|run| run.per_event(run.found.bytes)).median())
        .with("ns_daemon", series(&|run| run.per_event(run.daemon_ns)).median())
        .with("events_per_s", series(&|run| run.found.events as f64 / run.seconds).median())
        .with("steal_percent", series(&|run| run.steal_percent).median()))
}

fn run(duration: Duration) -> Result<Run, WrongAnswer> {
    let daemon = RunningDaemon::start(Workers::default())?;
    let probes = start_probes(daemon.producer_socket())?;
    let mut players = PingPong::start()?;
    let mut consumer = daemon.consumer()?;
    let file = tempfile::tempfile_in("/dev/shm").map_err(|error| error.to_string())?;
    let kept = File::try_clone(&file).map_err(|error| error.to_string())?;
    enable(&mut consumer, &config(&EVENTS), Some(kept))?;
    // Once the data sources have answered this they have started.
    flushed_stats(&mut consumer)?;
    let cpu = || -> Result<(u64, u64), WrongAnswer> { Ok((sum_ns(&probes)?, sum_ns_of(daemon.pid())?)) };
    let (before, ticks, started) = (cpu()?, MachineTicks::now(), Instant::now());
    players.play(duration)?;
    let seconds = started.elapsed().as_secs_f64();
    check_nothing_refused(&flushed_stats(&mut consumer)?)?;
    disable(&mut consumer)?;
    let after = cpu()?;
    let steal_percent = MachineTicks::now().steal_percent_since(ticks);
    let found = Found::in_file(file)?;
    match found.events {
        0 => Err("the trace has no scheduling events".to_owned()),
        _ => Ok(Run {
            found,
            probes_ns: after.0 - before.0,
            daemon_ns: after.1 - before.1,
            seconds,
            steal_percent,
        }),
    }
}

fn sum_ns(process: &Process) -> Result<u64, WrongAnswer> {
    sum_ns_of(process.pid())
}

fn sum_ns_of(pid: i32) -> Result<u64, WrongAnswer> {
    Ok(cpu_ns(pid)?.values().sum())
}
