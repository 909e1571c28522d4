//! Calls that look at a whole buffer while others commit: what they cost the caller.
//!
//! A call drains up to its cut and no further, so it has an end however much is committed. What it
//! costs is its thread's own CPU time. Its wall time is mostly that of threads that wait for a
//! core, so that of a bare loop of as much CPU time is told beside it.

use super::team::{Writers, exact_ring};
use crate::measure::{Options, Series, WrongAnswer, cpu_time};
use crate::report::Measurement;
use crate::workload::templates;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use watershed_engine::Packet;
use watershed_shards::ShardedBuffer;

const COMMITTERS: u16 = 4;

/// The statistics.
pub(super) fn stats(options: &Options) -> Result<Measurement, WrongAnswer> {
    beside("beside_stats", options, |buffer| {
        buffer.stats();
        Ok(())
    })
}

/// The start of a read.
pub(super) fn read_start(options: &Options) -> Result<Measurement, WrongAnswer> {
    let drop_packet = |_: &Packet<'_>, _: &mut Vec<u8>| false;
    beside("beside_read_start", options, |buffer| {
        drop(buffer.read_pass(drop_packet));
        Ok(())
    })
}

/// A clone, whose copy is of 4 MiB.
pub(super) fn clone(options: &Options) -> Result<Measurement, WrongAnswer> {
    beside("beside_clone", options, |buffer| buffer.clone_read_only().map(drop).map_err(|e| e.to_string()))
}

/// What a call cost.
#[derive(Clone, Copy)]
struct Cost {
    cpu: Duration,
    wall: Duration,
}

fn cost(call: impl FnOnce() -> Result<(), WrongAnswer>) -> Result<Cost, WrongAnswer> {
    let (cpu, wall) = (cpu_time(), Instant::now());
    call()?;
    Ok(Cost { wall: wall.elapsed(), cpu: cpu_time() - cpu })
}

/// Calls in turns with bare loops, beside threads that commit all the time into a small ring.
fn beside(
    name: &str,
    options: &Options,
    call: impl Fn(&ShardedBuffer) -> Result<(), WrongAnswer>,
) -> Result<Measurement, WrongAnswer> {
    let chunks = templates::mixed(100);
    let buffer = exact_ring(4 << 20, COMMITTERS.into())?;
    let is_over = AtomicBool::new(false);
    let (mut calls, mut loops) = (Vec::new(), Vec::new());
    let result = std::thread::scope(|scope| {
        for n in 0..COMMITTERS {
            let mut writers = Writers::new(&buffer, &chunks, 1 + n, 1);
            writers.committer.set_cpu(Some(n.into()));
            let is_over = &is_over;
            // Relaxed: it only ends the load.
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    writers.commit(8, 1);
                }
            });
        }
        let mut measure = || {
            let (start, mut spent) = (Instant::now(), Duration::ZERO);
            while calls.len() < options.size(20_000, 20) && start.elapsed() < options.time_limit {
                calls.push(cost(|| call(&buffer))?);
                spent += calls[calls.len() - 1].cpu;
                let mean = spent / calls.len() as u32;
                let bare = || {
                    spin(mean);
                    Ok(())
                };
                loops.push(cost(bare)?);
            }
            Ok(())
        };
        let result = measure();
        is_over.store(true, Ordering::Relaxed);
        result
    });
    result.map(|()| measurement(name, &calls, &loops))
}

/// Works for so much CPU time.
fn spin(time: Duration) {
    let start = cpu_time();
    while cpu_time() - start < time {
        std::hint::spin_loop();
    }
}

fn measurement(name: &str, calls: &[Cost], loops: &[Cost]) -> Measurement {
    let us = |costs: &[Cost], what: fn(&Cost) -> Duration| {
        let mut us: Vec<f64> = costs.iter().map(|cost| what(cost).as_secs_f64() * 1e6).collect();
        us.sort_unstable_by(f64::total_cmp);
        us
    };
    let at = |sorted: &[f64], part: f64| sorted[((sorted.len() - 1) as f64 * part).round() as usize];
    let (cpu, wall) = (us(calls, |cost| cost.cpu), us(calls, |cost| cost.wall));
    let bare = us(loops, |cost| cost.wall);
    let series = Series::new(cpu.iter().map(|us| us * 1e3).collect());
    Measurement::microseconds(name, &series)
        .with("cpu_us_p999", at(&cpu, 0.999))
        .with("wall_us", at(&wall, 0.5))
        .with("wall_us_p999", at(&wall, 0.999))
        .with("bare_wall_us", at(&bare, 0.5))
        .with("bare_wall_us_p999", at(&bare, 0.999))
}
