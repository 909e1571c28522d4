//! Scheduling events at a rate that fills the kernel's ring many times.

use super::recorders::{Recorders, Whose, rival};
use super::roles::PingPong;
use super::trace::{Found, config};
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::suites::processes::MachineTicks;
use crate::suites::processes::session::{check_nothing_refused, disable, enable, flushed_stats};
use std::fs::File;
use std::time::{Duration, Instant};

const EVENTS: [&str; 2] = ["sched/sched_switch", "sched/sched_waking"];

#[derive(Clone)]
struct Run {
    found: Found,
    probes_ns: u64,
    service_ns: u64,
    seconds: f64,
    steal_percent: f64,
}

impl Run {
    fn per_event(&self, sum: u64) -> f64 {
        sum as f64 / self.found.events as f64
    }

    fn probes_ns_each(&self) -> f64 {
        self.per_event(self.probes_ns)
    }

    fn service_ns_each(&self) -> f64 {
        self.per_event(self.service_ns)
    }

    fn bytes_each(&self) -> f64 {
        self.per_event(self.found.bytes)
    }

    fn lost_percent(&self) -> f64 {
        let lost = self.found.lost();
        lost as f64 / (self.found.events + lost) as f64 * 100.0
    }
}

/// Who records, and how full the kernel's ring is when it is read before its period is over: ours
/// has a default for that, `traced_probes` reads by its period alone.
#[derive(Clone, Copy)]
struct Contestant<'a> {
    whose: Whose<'a>,
    drain_percent: Option<u32>,
}

/// CPU time of the probes for each event that is in the file.
pub(super) fn ping_pong(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let duration = options.size(Duration::from_secs(4), Duration::from_millis(300));
    let programs = rival()?;
    let mut contestants = vec![Contestant { whose: Whose::Ours, drain_percent: None }];
    for drain_percent in [None, Some(50)] {
        contestants.extend(
            programs.as_ref().map(|theirs| Contestant { whose: Whose::Theirs(theirs), drain_percent }),
        );
    }
    let mut runs = vec![Vec::new(); contestants.len()];
    for round in 0..options.rounds.min(5) {
        for turn in 0..contestants.len() {
            // None is always the one that runs first.
            let who = (round + turn) % contestants.len();
            runs[who].push(run(contestants[who], duration)?);
        }
    }
    let result = ours(name, &runs[0]);
    Ok(match &runs[1..] {
        [theirs, by_fill] => beside(beside(result, &runs[0], "", theirs), &runs[0], "_by_fill", by_fill),
        _ => result.without("ratio_to_traced_probes").without("ratio_to_traced"),
    })
}

fn series(runs: &[Run], value: impl Fn(&Run) -> f64) -> Series {
    Series::new(runs.iter().map(value).collect())
}

fn whole(runs: &[Run]) -> f64 {
    runs.iter().filter(|run| run.found.lost() == 0).count() as f64
}

fn ours(name: &str, runs: &[Run]) -> Measurement {
    Measurement::ns_per("event", name, &series(runs, Run::probes_ns_each))
        .with("percent_lost", series(runs, Run::lost_percent).max())
        .with("whole_runs", whole(runs))
        .with("bytes_per_event", series(runs, Run::bytes_each).median())
        .with("ns_daemon", series(runs, Run::service_ns_each).median())
        .with("events_per_s", series(runs, |run| run.found.events as f64 / run.seconds).median())
        .with("steal_percent", series(runs, |run| run.steal_percent).median())
}

/// Adds the figures of a rival, under names that end so.
fn beside(result: Measurement, ours: &[Run], end: &str, theirs: &[Run]) -> Measurement {
    let ratio = |value: fn(&Run) -> f64| series(ours, value).speedup_over(&series(theirs, value));
    let median = |value: fn(&Run) -> f64| series(theirs, value).median();
    let figures = [
        ("ratio_to_traced_probes", ratio(Run::probes_ns_each)),
        ("ns_traced_probes", median(Run::probes_ns_each)),
        ("ratio_to_traced", ratio(Run::service_ns_each)),
        ("ns_traced", median(Run::service_ns_each)),
        ("bytes_per_event_traced_probes", median(Run::bytes_each)),
        ("percent_lost_traced_probes", series(theirs, Run::lost_percent).max()),
        ("whole_runs_traced_probes", whole(theirs)),
    ];
    figures.iter().fold(result, |result, (name, value)| result.with(&format!("{name}{end}"), *value))
}

fn run(contestant: Contestant<'_>, duration: Duration) -> Result<Run, WrongAnswer> {
    let mut recorders = Recorders::start(contestant.whose)?;
    let mut players = PingPong::start()?;
    let file = tempfile::tempfile_in("/dev/shm").map_err(|error| error.to_string())?;
    let kept = File::try_clone(&file).map_err(|error| error.to_string())?;
    let config = config(&EVENTS, contestant.drain_percent);
    enable(&mut recorders.consumer, &config, Some(kept))?;
    // Once the data sources have answered this they have started.
    flushed_stats(&mut recorders.consumer)?;
    let before = (recorders.probes_ns()?, recorders.service_ns()?);
    let (ticks, started) = (MachineTicks::now(), Instant::now());
    players.play(duration)?;
    let seconds = started.elapsed().as_secs_f64();
    let stats = flushed_stats(&mut recorders.consumer)?;
    disable(&mut recorders.consumer)?;
    let after = (recorders.probes_ns()?, recorders.service_ns()?);
    let steal_percent = MachineTicks::now().steal_percent_since(ticks);
    let found = Found::in_file(file)?;
    // What a rival refuses or leaves out is a figure of it.
    if contestant.whose == Whose::Ours {
        check_nothing_refused(&stats)?;
        found.check_whole()?;
    }
    match found.events {
        0 => Err("the trace has no scheduling events".to_owned()),
        _ => Ok(Run {
            found,
            probes_ns: after.0 - before.0,
            service_ns: after.1 - before.1,
            seconds,
            steal_percent,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(events: u64, overwritten: u64, probes_ns: u64) -> Run {
        let found = Found { events, overwritten, missing: 0, bytes: 8 * events };
        Run { found, probes_ns, service_ns: events, seconds: 1.0, steal_percent: 0.0 }
    }

    #[test]
    fn figures_of_a_rival_are_its_own() {
        let ours = [run(100, 0, 5_000), run(100, 0, 4_000)];
        let theirs = [run(90, 10, 9_000), run(100, 0, 12_000)];
        let of_ours = super::ours("row", &ours);
        let row = beside(of_ours, &ours, "_x", &theirs);
        // By round: 100 over 50 and 120 over 40.
        assert_eq!(row.extra["ratio_to_traced_probes_x"], 2.5);
        assert_eq!((row.value, row.extra["ns_traced_probes_x"]), (45.0, 110.0));
        assert_eq!((row.extra["percent_lost"], row.extra["percent_lost_traced_probes_x"]), (0.0, 10.0));
        assert_eq!((row.extra["whole_runs"], row.extra["whole_runs_traced_probes_x"]), (2.0, 1.0));
        assert_eq!(
            (row.extra["ratio_to_traced_x"], row.extra["bytes_per_event_traced_probes_x"]),
            (1.0, 8.0)
        );
    }
}
