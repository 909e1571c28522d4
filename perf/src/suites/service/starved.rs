//! Loss where the daemon gets the processor now and then only, as on a phone under load.
//!
//! ```text
//!   daemon:   |----- stopped 30 ms -----|-- runs 10 ms --|----- stopped ...
//!   writers:  fill the shared memory, then drop: what exceeds it is lost and no more
//! ```

use super::load::{Load, LoadRole, Written};
use super::packets::memory_bytes_per_byte;
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
    let mut ratios = Vec::new();
    let mut curve = Vec::new();
    for (size, shm_size_bytes) in SIZES {
        for &rate in rates {
            let point = Point::measure(shm_size_bytes, rate, options)?;
            curve.push((format!("percent_{size}_at_{rate}"), point.written.loss_percent()));
            curve.push((format!("percent_{size}_at_{rate}_expected"), point.expected_percent()));
            // Where nothing exceeds the memory there is nothing to compare with.
            if point.excess_bytes > 0.0 {
                ratios.push(point.written.bytes_dropped as f64 / point.excess_bytes);
            }
        }
    }
    if ratios.is_empty() {
        ratios.push(1.0);
    }
    let worst = Series::new(vec![Series::new(ratios).max()]);
    let result = Measurement { unit: "times".into(), ..Measurement::ratio(name, &worst) };
    Ok(curve.into_iter().fold(result, |result, (name, value)| result.with(&name, value)))
}

/// One rate with one size of memory.
struct Point {
    written: Written,
    /// What writers wrote while the daemon was stopped, less the memory, over all stops.
    excess_bytes: f64,
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
        let room_bytes = shm_size_bytes as f64 / memory_bytes_per_byte();
        let excess = stops.iter().map(|stop| (rate * stop.as_secs_f64() - room_bytes).max(0.0));
        Ok(Point { written, excess_bytes: excess.sum() })
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
