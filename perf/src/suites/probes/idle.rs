//! What a session costs whose events do not happen.

use super::PERIOD_MS;
use super::recorders::{Recorders, Whose, rival};
use super::trace::config;
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::suites::processes::session::{disable, enable, flushed_stats};
use crate::suites::processes::wakeups;
use std::time::Duration;

/// Nobody is killed for want of memory while this is measured.
const EVENTS: [&str; 1] = ["oom/mark_victim"];

/// Wake-ups of all threads of the probes, for each period: one is expected.
pub(super) fn idle(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let seconds = options.size(10, 1);
    let ours = run(Whose::Ours, seconds)?;
    let result = Measurement::ratio(name, &Series::new(vec![ours.wakeups]));
    let result = Measurement { unit: "wake-ups/period".into(), noise: 0.0, ..result }
        .with("cpu_us_per_s", ours.cpu_us_per_s);
    let Some(programs) = rival()? else { return Ok(result.without("ratio_to_traced_probes")) };
    let theirs = run(Whose::Theirs(&programs), seconds)?;
    Ok(result
        .with("ratio_to_traced_probes", theirs.wakeups / ours.wakeups)
        .with("wakeups_traced_probes", theirs.wakeups)
        .with("cpu_us_per_s_traced_probes", theirs.cpu_us_per_s))
}

struct Run {
    /// In each period.
    wakeups: f64,
    cpu_us_per_s: f64,
}

fn run(whose: Whose<'_>, seconds: u64) -> Result<Run, WrongAnswer> {
    let mut recorders = Recorders::start(whose)?;
    let file = tempfile::tempfile_in("/dev/shm").map_err(|error| error.to_string())?;
    enable(&mut recorders.consumer, &config(&EVENTS, None), Some(file))?;
    // Once the data sources have answered this they have started.
    flushed_stats(&mut recorders.consumer)?;
    std::thread::sleep(Duration::from_millis(500));
    let (woken_before, cpu_before_ns) = (wakeups(recorders.probes_pid())?, recorders.probes_ns()?);
    std::thread::sleep(Duration::from_secs(seconds));
    let woken = (wakeups(recorders.probes_pid())? - woken_before) as f64;
    let cpu_us = (recorders.probes_ns()? - cpu_before_ns) as f64 / 1e3;
    disable(&mut recorders.consumer)?;
    let periods = seconds as f64 * 1e3 / f64::from(PERIOD_MS);
    Ok(Run { wakeups: woken / periods, cpu_us_per_s: cpu_us / seconds as f64 })
}
