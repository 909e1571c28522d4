//! A clone of a ring into a file in memory, while four threads go on writing into it.

use super::by_hand::ByHand;
use super::load::{Load, LoadRole, Written};
use super::trace::{Found, config};
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::suites::processes::daemon::{RunningDaemon, Workers};
use crate::suites::processes::session::{check_nothing_refused, disable, enable, flushed_stats};
use std::fs::File;
use std::io::{BufWriter, Seek as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use watershed_client::consumer::CloneOf;
use watershed_wire::framing::Preamble;
use watershed_wire::protos::TraceConfig;

const RING: &str = "perf.ring";
const ONE: &str = "perf.one";
const RING_KB: u32 = 64 << 10;
const OF_ONE_KB: u32 = 16 << 10;
const BYTES_PER_S: u64 = 200_000_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two clones.
const PAUSE: Duration = Duration::from_millis(500);

/// Clones of one run, and what was written meanwhile.
struct Run {
    written: Written,
    clones: Vec<Times>,
    /// Of a chunk of another session, in nanoseconds: while clones were made, and all the time.
    to_free_ns: Vec<f64>,
}

/// A clone whose file is looked at when nobody writes any more: that takes a core for longer than
/// the clone.
struct Clone {
    file: File,
    times: Times,
}

/// What a clone took.
struct Times {
    bytes: u64,
    /// Until the service had it, and until the file had all of it.
    made: Duration,
    written: Duration,
    /// Writing as many bytes into such a file, and nothing else.
    bare: Duration,
}

impl Clone {
    fn checked(mut self) -> Result<Times, WrongAnswer> {
        // The position is shared with the daemon's descriptor.
        self.file.rewind().map_err(|error| error.to_string())?;
        let found = Found::in_file(self.file)?;
        found.check_gaps_are_told()?;
        match found.packets {
            0 => Err("the clone is empty".to_owned()),
            _ => Ok(self.times),
        }
    }
}

/// The time of a clone over that of writing its bytes.
pub(super) fn under_load(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let runs = (0..options.rounds.min(5)).map(|_| run(options)).collect::<Result<Vec<_>, _>>()?;
    let clones = || runs.iter().flat_map(|run| &run.clones);
    let of = |value: fn(&Times) -> f64| Series::new(clones().map(value).collect());
    let mut to_free: Vec<f64> = runs.iter().flat_map(|run| run.to_free_ns.iter().copied()).collect();
    to_free.sort_by(f64::total_cmp);
    let part = |part: f64| to_free[((to_free.len() - 1) as f64 * part) as usize] / 1e3;
    let loss = Series::new(runs.iter().map(|run| run.written.loss_percent()).collect());
    let whole = runs.iter().filter(|run| run.written.bytes_dropped == 0).count();
    let times = of(|clone| clone.written.as_secs_f64() / clone.bare.as_secs_f64());
    let result = Measurement::ratio(name, &times)
        .with("percent_lost", loss.max())
        .with("whole_runs", whole as f64)
        .with("us_to_clone", of(|clone| clone.made.as_secs_f64() * 1e6).median())
        .with("us_to_file", of(|clone| clone.written.as_secs_f64() * 1e6).median())
        .with("us_bare_write", of(|clone| clone.bare.as_secs_f64() * 1e6).median())
        .with("us_commit_to_free", part(0.5))
        .with("us_commit_to_free_p999", part(0.999))
        .with("us_commit_to_free_max", part(1.0))
        .with("mb_of_clone", of(|clone| clone.bytes as f64 / 1e6).median());
    Ok(Measurement { unit: "times".into(), ..result })
}

fn run(options: &Options) -> Result<Run, WrongAnswer> {
    let daemon = RunningDaemon::start(Workers::default())?;
    let mut load = Load::start(LoadRole::four_threads(daemon.producer_socket(), RING))?;
    let mut consumer = daemon.consumer()?;
    let named = TraceConfig { unique_session_name: Some(RING.to_owned()), ..config(RING, RING_KB) };
    enable(&mut consumer, &named, None)?;
    load.arm()?;
    let mut producer = ByHand::connect(&daemon.producer_socket(), ONE)?;
    producer.sync()?;
    let mut of_one = daemon.consumer()?;
    enable(&mut of_one, &config(ONE, OF_ONE_KB), None)?;
    producer.wait_for_session()?;

    let rate = options.size(BYTES_PER_S, 20_000_000);
    let duration = options.size(Duration::from_secs(5), Duration::from_millis(500));
    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    load.begin(rate, duration)?;
    let (clones, to_free_ns) = std::thread::scope(|scope| {
        let commits = scope.spawn(|| commits(producer, &is_over));
        let mut clones = Vec::new();
        // When the ring has gone round.
        std::thread::sleep(options.size(Duration::from_secs(1), Duration::from_millis(100)));
        while started.elapsed() + PAUSE / 2 < duration {
            clones.push(clone(&daemon));
            std::thread::sleep(options.size(PAUSE, Duration::from_millis(20)));
        }
        // Relaxed: it publishes nothing.
        is_over.store(true, Ordering::Relaxed);
        (clones, commits.join().expect("it does not panic"))
    });
    let written = load.end()?;
    check_nothing_refused(&flushed_stats(&mut consumer)?)?;
    disable(&mut consumer)?;
    let clones = clones.into_iter().collect::<Result<Vec<_>, _>>()?;
    let clones = clones.into_iter().map(Clone::checked).collect::<Result<_, _>>()?;
    Ok(Run { written, clones, to_free_ns: to_free_ns? })
}

/// Commits chunks one by one until it is over.
fn commits(mut producer: ByHand, is_over: &AtomicBool) -> Result<Vec<f64>, WrongAnswer> {
    let mut ns = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        ns.push(producer.commit_to_free()?.as_nanos() as f64);
        std::thread::sleep(Duration::from_micros(300));
    }
    Ok(ns)
}

/// As `watershed clone` does it.
fn clone(daemon: &RunningDaemon) -> Result<Clone, WrongAnswer> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let file = tempfile::tempfile_in("/dev/shm").map_err(|error| text(&error))?;
    let mut consumer = daemon.consumer()?;
    let handle = file.try_clone().map_err(|error| text(&error))?;
    let start = Instant::now();
    let of = CloneOf::Name(RING.to_owned());
    let cloned = consumer.clone_session(&of, None, handle, PATIENCE).map_err(|error| text(&error))?;
    let made = start.elapsed();
    let mut out = BufWriter::new(file);
    if !cloned.is_in_file {
        let read = consumer.read_packets(|packet| {
            out.write_all(Preamble::new(packet.len()).as_bytes())?;
            out.write_all(packet)
        });
        read.map_err(|error| text(&error))?;
    }
    let file = out.into_inner().map_err(|error| error.to_string())?;
    let written = start.elapsed();
    let bytes = file.metadata().map_err(|error| text(&error))?.len();
    Ok(Clone { file, times: Times { bytes, made, written, bare: bare_write(bytes)? } })
}

/// How long one thread takes to write so many bytes into a file in memory.
fn bare_write(bytes: u64) -> Result<Duration, WrongAnswer> {
    let block = vec![1; 1 << 20];
    let mut file: File = tempfile::tempfile_in("/dev/shm").map_err(|error| error.to_string())?;
    let (start, mut left) = (Instant::now(), bytes as usize);
    while left > 0 {
        let now = left.min(block.len());
        file.write_all(&block[..now]).map_err(|error| error.to_string())?;
        left -= now;
    }
    Ok(start.elapsed())
}
