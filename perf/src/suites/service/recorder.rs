//! A flight recorder: a ring that programs write into all the time, and that nobody reads.

use super::load::{Load, LoadRole};
use super::trace::config;
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::suites::processes::daemon::{RunningDaemon, Workers};
use crate::suites::processes::session::{check_nothing_refused, disable, enable, flushed_stats};
use crate::suites::processes::{cpu_ns, wakeups};
use std::time::Duration;
use watershed_client::consumer::Consumer;
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::observable_events::Type;
use watershed_wire::protos::trace_config::TriggerConfig;
use watershed_wire::protos::trace_config::trigger_config::{Trigger, TriggerMode};

const SOURCE: &str = "perf.recorder";
const RING_KB: u32 = 256 << 10;
const BYTES_PER_S: u64 = 20_000_000;
/// A week.
const TIMEOUT_MS: u32 = 7 * 24 * 3600 * 1000;

/// What part of a core the daemon takes, and how often it wakes up when nobody writes.
pub(super) fn flight_recorder(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let daemon = RunningDaemon::start(Workers::default())?;
    let role = LoadRole { chunks_per_commit: 0, ..LoadRole::four_threads(daemon.producer_socket(), SOURCE) };
    let mut load = Load::start(role)?;
    let mut consumer = daemon.consumer()?;
    consumer.observe_events(&[Type::CloneTriggerHit]).map_err(|error| error.to_string())?;
    enable(&mut consumer, &recorder(), None)?;
    load.arm()?;
    let rate = options.size(BYTES_PER_S, 2_000_000);
    // Until the ring has gone round: then each chunk overwrites others.
    let round = Duration::from_secs_f64(f64::from(RING_KB) * 1024.0 / BYTES_PER_S as f64);
    let mut written = load.write(rate, options.size(round, Duration::from_millis(200)))?;
    let seconds = options.size(5, 1);
    let mut percent = Vec::new();
    for _ in 0..options.rounds.min(3) {
        let before_ns = sum_ns(&daemon)?;
        let lap = load.write(rate, Duration::from_secs(seconds))?;
        percent.push((sum_ns(&daemon)? - before_ns) as f64 / 1e9 / lap.seconds * 100.0);
        written.add(&lap);
    }
    check_whole(&mut consumer, options)?;
    let (woken, cpu_us_per_s) = idle(&daemon, options)?;
    disable(&mut consumer)?;
    Ok(Measurement::percent(name, &Series::new(percent))
        .with("percent_lost", written.loss_percent())
        .with("idle_wakeups_per_s", woken)
        .with("idle_cpu_us_per_s", cpu_us_per_s))
}

/// As `watershed flightrecorder --on-trigger` makes it.
fn recorder() -> TraceConfig {
    let trigger = Trigger { name: Some("perf".to_owned()), ..Default::default() };
    TraceConfig {
        builtin_data_sources: None,
        trigger_config: Some(TriggerConfig {
            trigger_mode: Some(TriggerMode::CloneSnapshot.into()),
            triggers: vec![trigger],
            trigger_timeout_ms: Some(TIMEOUT_MS),
            ..Default::default()
        }),
        ..config(SOURCE, RING_KB)
    }
}

/// The service has refused nothing, and the ring was full, as it is in a recorder.
fn check_whole(consumer: &mut Consumer, options: &Options) -> Result<(), WrongAnswer> {
    let stats = flushed_stats(consumer)?;
    check_nothing_refused(&stats)?;
    let overwritten = stats.buffer_stats.first().map_or(0, |buffer| buffer.chunks_overwritten());
    match options.full_size && overwritten == 0 {
        true => Err("the ring has not gone round".to_owned()),
        false => Ok(()),
    }
}

/// Wake-ups of all threads, and their CPU time, while nobody writes.
fn idle(daemon: &RunningDaemon, options: &Options) -> Result<(f64, f64), WrongAnswer> {
    // Until the daemon has made the memory ready that comes next.
    std::thread::sleep(Duration::from_millis(500));
    let (woken_before, cpu_before_ns) = (wakeups(daemon.pid())?, sum_ns(daemon)?);
    let seconds = options.size(20, 1);
    std::thread::sleep(Duration::from_secs(seconds));
    let woken = (wakeups(daemon.pid())? - woken_before) as f64 / seconds as f64;
    let cpu_us = (sum_ns(daemon)? - cpu_before_ns) as f64 / 1e3 / seconds as f64;
    Ok((woken, cpu_us))
}

fn sum_ns(daemon: &RunningDaemon) -> Result<u64, WrongAnswer> {
    Ok(cpu_ns(daemon.pid())?.values().sum())
}
