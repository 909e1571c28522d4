//! Loss where the daemon gets the processor now and then only, as on a phone under load.
//!
//! ```text
//!   daemon:   |----- stopped 30 ms -----|-- runs 10 ms --|----- stopped ...
//!   writers:  fill the shared memory, then drop: what exceeds it is lost and no more
//! ```
//!
//! When a stop begins, each writer has a chunk that it has begun to fill: half of it on average.
//! What is in there was written before, and no service can free it. The ratio to what exceeds the
//! memory without these is reported beside the result.

use super::load::{Load, LoadRole, Written};
use super::packets::{CHUNK_PAYLOAD_BYTES, memory_bytes_per_byte};
use super::trace::{Found, config};
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::suites::processes::daemon::{RunningDaemon, Workers};
use crate::suites::processes::session::{check_nothing_refused, disable, enable, flushed_stats};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SOURCE: &str = "perf.starved";
const RING_KB: u32 = 64 << 10;
const STOPPED: Duration = Duration::from_millis(30);
const CONTINUED: Duration = Duration::from_millis(10);
const SIZES: [(&str, usize); 2] = [("512k", 512 << 10), ("4m", 4 << 20)];
const RATES_MB_PER_S: [u64; 7] = [5, 20, 50, 100, 200, 350, 500];

/// Loss over what had to be lost, at worst, of all rates and sizes; and the curve.
pub(super) fn loss_vs_rate(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let rates = options.size(&RATES_MB_PER_S[..], &[5, 100]);
    let (mut ratios, mut ratios_of_free) = (vec![], vec![]);
    let mut curve = Vec::new();
    for (size, shm_size_bytes) in SIZES {
        for &rate in rates {
            let point = Point::measure(shm_size_bytes, rate, options)?;
            curve.push((format!("percent_{size}_at_{rate}"), point.written.loss_percent()));
            curve.push((format!("percent_{size}_at_{rate}_expected"), point.expected_percent()));
            let dropped_bytes = point.written.bytes_dropped as f64;
            // Where nothing exceeds the memory there is nothing to compare with.
            if point.excess_bytes > 0.0 {
                ratios.push(dropped_bytes / point.excess_bytes);
            }
            if point.excess_of_free_bytes > 0.0 {
                ratios_of_free.push(dropped_bytes / point.excess_of_free_bytes);
            }
        }
    }
    let max = |ratios: Vec<f64>| if ratios.is_empty() { 1.0 } else { Series::new(ratios).max() };
    let worst = Series::new(vec![max(ratios)]);
    let result = Measurement { unit: "times".into(), ..Measurement::ratio(name, &worst) }
        .with("of_free_memory", max(ratios_of_free));
    Ok(curve.into_iter().fold(result, |result, (name, value)| result.with(&name, value)))
}

/// One rate with one size of memory.
struct Point {
    written: Written,
    /// What writers wrote while the daemon was stopped, less the memory, over all stops.
    excess_bytes: f64,
    /// The same, less the memory that they had not begun to fill before.
    excess_of_free_bytes: f64,
}

impl Point {
    fn measure(shm_size_bytes: usize, mb_per_s: u64, options: &Options) -> Result<Point, WrongAnswer> {
        let daemon = RunningDaemon::start(Workers::default())?;
        // What waits for others of its commit is not free either: so none does.
        let role = LoadRole {
            shm_size_bytes,
            chunks_per_commit: 1,
            ..LoadRole::four_threads(daemon.producer_socket(), SOURCE)
        };
        let begun_bytes = role.num_writers as f64 * CHUNK_PAYLOAD_BYTES as f64 / 2.0;
        let mut load = Load::start(role)?;
        let mut consumer = daemon.consumer()?;
        enable(&mut consumer, &config(SOURCE, RING_KB), None)?;
        load.arm()?;
        let duration = options.size(Duration::from_secs(2), Duration::from_millis(200));
        load.begin(mb_per_s * 1_000_000, duration)?;
        let is_over = AtomicBool::new(false);
        let (written, stops) = std::thread::scope(|scope| {
            let stops = scope.spawn(|| stop_and_go(daemon.pid(), &is_over));
            let written = load.end();
            is_over.store(true, Ordering::Relaxed);
            (written, stops.join().expect("it does not panic"))
        });
        let (written, stops) = (written?, stops?);
        check_nothing_refused(&flushed_stats(&mut consumer)?)?;
        disable(&mut consumer)?;
        Found::in_buffers(&mut consumer)?.check_gaps_are_told()?;
        let rate = written.bytes as f64 / written.seconds;
        let excess_of = |room_bytes: f64| -> f64 {
            let room_bytes = room_bytes / memory_bytes_per_byte();
            stops.iter().map(|stop| (rate * stop.as_secs_f64() - room_bytes).max(0.0)).sum()
        };
        let whole_bytes = shm_size_bytes as f64;
        Ok(Point {
            written,
            excess_bytes: excess_of(whole_bytes),
            excess_of_free_bytes: excess_of(whole_bytes - begun_bytes),
        })
    }

    fn expected_percent(&self) -> f64 {
        self.excess_bytes / self.written.bytes.max(1) as f64 * 100.0
    }
}

/// Stops a process and lets it go on until it is over. Says how long each stop was.
fn stop_and_go(pid: i32, is_over: &AtomicBool) -> Result<Vec<Duration>, WrongAnswer> {
    let pid = Pid::from_raw(pid).ok_or("no such process")?;
    let send = |signal| kill_process(pid, signal).map_err(|error| error.to_string());
    let mut stops = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let start = Instant::now();
        send(Signal::STOP)?;
        std::thread::sleep(STOPPED);
        send(Signal::CONT)?;
        stops.push(start.elapsed());
        std::thread::sleep(CONTINUED);
    }
    Ok(stops)
}
