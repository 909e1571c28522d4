//! What a session costs whose events do not happen.

use super::PERIOD_MS;
use super::roles::start_probes;
use super::trace::config;
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::suites::processes::daemon::{RunningDaemon, Workers};
use crate::suites::processes::session::{disable, enable, flushed_stats};
use crate::suites::processes::{cpu_ns, wakeups};
use std::time::Duration;

/// Nobody is killed for want of memory while this is measured.
const EVENTS: [&str; 1] = ["oom/mark_victim"];

/// Wake-ups of all threads of the probes, for each period: one is expected.
pub(super) fn idle(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let daemon = RunningDaemon::start(Workers::default())?;
    let probes = start_probes(daemon.producer_socket())?;
    let mut consumer = daemon.consumer()?;
    let file = tempfile::tempfile_in("/dev/shm").map_err(|error| error.to_string())?;
    enable(&mut consumer, &config(&EVENTS), Some(file))?;
    // Once the data sources have answered this they have started.
    flushed_stats(&mut consumer)?;
    std::thread::sleep(Duration::from_millis(500));
    let cpu = || Ok::<u64, WrongAnswer>(cpu_ns(probes.pid())?.values().sum());
    let (woken_before, cpu_before) = (wakeups(probes.pid())?, cpu()?);
    let seconds = options.size(10, 1);
    std::thread::sleep(Duration::from_secs(seconds));
    let woken = (wakeups(probes.pid())? - woken_before) as f64;
    let cpu_us = (cpu()? - cpu_before) as f64 / 1e3;
    disable(&mut consumer)?;
    let periods = seconds as f64 * 1e3 / f64::from(PERIOD_MS);
    let result = Measurement::ratio(name, &Series::new(vec![woken / periods]))
        .with("cpu_us_per_s", cpu_us / seconds as f64);
    Ok(Measurement { unit: "wake-ups/period".into(), noise: 0.0, ..result })
}
