//! What the daemon costs: the time of a commit, its wake-ups, its memory, the start of a session.

use super::by_hand::ByHand;
use super::load::{Load, LoadRole};
use super::trace::config;
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::suites::processes::daemon::{RunningDaemon, Service, Workers};
use crate::suites::processes::session::{disable, enable};
use crate::suites::processes::{cpu_ns, private_bytes, wakeups};
use std::time::Duration;

const ONE: &str = "perf.one";
const CROWD: &str = "perf.crowd";
const RING_KB: u32 = 16 << 10;

/// From a chunk's CommitData to its being free: with an idle daemon, and beside other producers.
pub(super) fn commit_to_free(
    name: &str,
    ours: Workers,
    options: &Options,
) -> Result<Measurement, WrongAnswer> {
    let of = |sorted: &[f64], part: f64| sorted[((sorted.len() - 1) as f64 * part) as usize];
    let figures = |result: Measurement, end: &str, alone: &[f64], beside: &[f64]| {
        result
            .with(&format!("us_p999{end}"), of(alone, 0.999) / 1e3)
            .with(&format!("us_beside_100{end}"), of(beside, 0.5) / 1e3)
            .with(&format!("us_beside_100_p999{end}"), of(beside, 0.999) / 1e3)
    };
    let all = of_all(ours, |service| {
        Ok((latencies(service, 0, options)?, latencies(service, options.size(100, 3), options)?))
    })?;
    let (alone, beside) = &all[0];
    let result = figures(Measurement::microseconds(name, &Series::new(alone.clone())), "", alone, beside);
    Ok(match all.get(1) {
        Some((alone, beside)) => {
            figures(result.with("us_traced", of(alone, 0.5) / 1e3), "_traced", alone, beside)
        }
        None => result.without("us_traced"),
    })
}

/// What is measured of ours, and then of Perfetto's where it is found.
fn of_all<T>(
    ours: Workers,
    measure: impl Fn(&Service) -> Result<T, WrongAnswer>,
) -> Result<Vec<T>, WrongAnswer> {
    Service::all(ours)?.iter().map(measure).collect()
}

/// Sorted, in nanoseconds.
fn latencies(service: &Service, num_others: usize, options: &Options) -> Result<Vec<f64>, WrongAnswer> {
    let daemon = service.start()?;
    let mut others = None;
    let mut of_others = daemon.consumer()?;
    let num_commits = options.size(10_000, 50);
    if num_others > 0 {
        let role = LoadRole {
            num_producers: num_others,
            num_writers: 1,
            num_threads: 1,
            shm_size_bytes: 256 << 10,
            chunks_per_commit: 0,
            ..LoadRole::four_threads(daemon.producer_socket(), CROWD)
        };
        let mut load = Load::start(role)?;
        enable(&mut of_others, &config(CROWD, RING_KB), None)?;
        load.arm()?;
        let duration = options.size(Duration::from_secs(10), Duration::from_millis(500));
        load.begin(num_others as u64 * 1_000_000, duration)?;
        others = Some(load);
    }
    let mut producer = ByHand::connect(&daemon.producer_socket(), ONE)?;
    producer.sync()?;
    let mut consumer = daemon.consumer()?;
    enable(&mut consumer, &config(ONE, RING_KB), None)?;
    producer.wait_for_session()?;
    let mut ns = Vec::with_capacity(num_commits);
    for _ in 0..num_commits {
        ns.push(producer.commit_to_free()?.as_nanos() as f64);
        // So that all have gone to sleep.
        std::thread::sleep(Duration::from_micros(300));
    }
    if let Some(mut load) = others {
        load.end()?;
    }
    ns.sort_by(f64::total_cmp);
    Ok(ns)
}

/// Wake-ups of a daemon with a session that has nothing to do.
pub(super) fn idle(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let all = of_all(Workers::default(), |service| idle_each_second(service, options))?;
    let (woken, cpu_us) = all[0];
    let result = Measurement::ratio(name, &Series::new(vec![woken])).with("cpu_us_per_s", cpu_us);
    let result = Measurement { unit: "wake-ups/s".into(), noise: 0.0, ..result };
    Ok(match all.get(1) {
        Some((woken, cpu_us)) => result.with("traced", *woken).with("cpu_us_per_s_traced", *cpu_us),
        None => result.without("traced"),
    })
}

/// Wake-ups and microseconds of CPU time.
fn idle_each_second(service: &Service, options: &Options) -> Result<(f64, f64), WrongAnswer> {
    let daemon = service.start()?;
    let mut load = Load::start(LoadRole::idle(daemon.producer_socket(), ONE))?;
    let mut consumer = daemon.consumer()?;
    enable(&mut consumer, &config(ONE, RING_KB), None)?;
    load.arm()?;
    load.write(1_000_000, Duration::from_millis(100))?;
    // Until the daemon has made the memory ready that comes next, and that thread has ended.
    std::thread::sleep(Duration::from_millis(1500));
    let (before, cpu_before) = (wakeups(daemon.pid())?, sum_ns(&daemon)?);
    let seconds = options.size(10, 1);
    std::thread::sleep(Duration::from_secs(seconds));
    let woken = (wakeups(daemon.pid())? - before) as f64 / seconds as f64;
    let cpu_us = (sum_ns(&daemon)? - cpu_before) as f64 / 1e3 / seconds as f64;
    Ok((woken, cpu_us))
}

/// Memory of the daemon for each producer, beside the shared memory.
pub(super) fn thousand_producers(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let all = of_all(Workers::default(), |service| bytes_each(service, options.size(1000, 20)))?;
    let (connected, in_session) = all[0];
    let result = Measurement::ratio(name, &Series::new(vec![connected])).with("bytes_in_session", in_session);
    let result = Measurement { unit: "bytes/producer".into(), ..result };
    Ok(match all.get(1) {
        Some((connected, in_session)) => {
            result.with("traced", *connected).with("bytes_in_session_traced", *in_session)
        }
        None => result.without("traced"),
    })
}

/// For each producer: connected, and in a session.
fn bytes_each(service: &Service, num_producers: u32) -> Result<(f64, f64), WrongAnswer> {
    let daemon = service.start()?;
    let before = private_bytes(daemon.pid())?;
    let mut producers = (0..num_producers)
        .map(|_| ByHand::connect(&daemon.producer_socket(), CROWD))
        .collect::<Result<Vec<_>, _>>()?;
    producers.iter_mut().try_for_each(ByHand::sync)?;
    let connected = private_bytes(daemon.pid())?;
    let mut consumer = daemon.consumer()?;
    enable(&mut consumer, &config(CROWD, RING_KB), None)?;
    producers.iter_mut().try_for_each(ByHand::wait_for_session)?;
    let in_session = private_bytes(daemon.pid())?;
    let each = |bytes: u64| bytes.saturating_sub(before) as f64 / f64::from(num_producers);
    Ok((each(connected), each(in_session)))
}

/// CPU time of the daemon for the start and the end of a session with producers in processes of
/// their own.
pub(super) fn start_stop(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let all = of_all(Workers::default(), |service| start_stop_laps(service, options))?;
    let result = Measurement::microseconds(name, &all[0]);
    Ok(match all.get(1) {
        Some(theirs) => result.with("us_traced", theirs.median() / 1e3),
        None => result.without("us_traced"),
    })
}

/// In nanoseconds.
fn start_stop_laps(service: &Service, options: &Options) -> Result<Series, WrongAnswer> {
    let daemon = service.start()?;
    let role = LoadRole::idle(daemon.producer_socket(), CROWD);
    let mut producers = Load::start_all(&role, options.size(100, 3))?;
    let mut laps = Vec::new();
    for _ in 0..options.size(7, 1) {
        let mut consumer = daemon.consumer()?;
        let before = sum_ns(&daemon)?;
        enable(&mut consumer, &config(CROWD, RING_KB), None)?;
        producers.iter_mut().try_for_each(Load::arm)?;
        disable(&mut consumer)?;
        consumer.free().map_err(|error| error.to_string())?;
        laps.push((sum_ns(&daemon)? - before) as f64);
    }
    Ok(Series::new(laps))
}

fn sum_ns(daemon: &RunningDaemon) -> Result<u64, WrongAnswer> {
    Ok(cpu_ns(daemon.pid())?.values().sum())
}
