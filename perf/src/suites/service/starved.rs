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
use crate::suites::processes::daemon::{Service, Workers};
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
    let services = Service::all(Workers::default())?;
    let mut curves: Vec<Vec<Point>> = services.iter().map(|_| Vec::new()).collect();
    let rates = options.size(&RATES_MB_PER_S[..], &[5, 100]);
    for (_, shm_size_bytes) in SIZES {
        for &rate in rates {
            for (service, curve) in services.iter().zip(&mut curves) {
                curve.push(Point::measure(service, shm_size_bytes, rate, options)?);
            }
        }
    }
    let worst = Series::new(vec![worst(&curves[0], |point| point.excess_bytes)]);
    let result = Measurement { unit: "times".into(), ..Measurement::ratio(name, &worst) }
        .with("of_free_memory", self::worst(&curves[0], |point| point.excess_of_free_bytes));
    let places = SIZES.iter().flat_map(|(size, _)| rates.iter().map(move |rate| format!("{size}_at_{rate}")));
    let result = places.clone().zip(&curves[0]).fold(result, |result, (place, point)| {
        result
            .with(&format!("percent_{place}"), point.written.loss_percent())
            .with(&format!("percent_{place}_expected"), point.expected_percent())
    });
    let Some(theirs) = curves.get(1) else { return Ok(result.without("times_traced")) };
    let result = result.with("times_traced", self::worst(theirs, |point| point.excess_bytes));
    Ok(places.zip(theirs).fold(result, |result, (place, point)| {
        result.with(&format!("percent_{place}_traced"), point.written.loss_percent())
    }))
}

/// Loss over what exceeds the memory, where anything does: else there is nothing to compare with.
fn worst(curve: &[Point], excess_bytes: impl Fn(&Point) -> f64) -> f64 {
    let exceeded = curve.iter().filter(|point| excess_bytes(point) > 0.0);
    exceeded
        .map(|point| point.written.bytes_dropped as f64 / excess_bytes(point))
        .reduce(f64::max)
        .unwrap_or(1.0)
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
    fn measure(
        service: &Service,
        shm_size_bytes: usize,
        mb_per_s: u64,
        options: &Options,
    ) -> Result<Point, WrongAnswer> {
        let daemon = service.start()?;
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
        let stats = flushed_stats(&mut consumer)?;
        disable(&mut consumer)?;
        let found = Found::in_buffers(&mut consumer)?;
        if service.is_ours() {
            check_nothing_refused(&stats)?;
            found.check_gaps_are_told()?;
        }
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
