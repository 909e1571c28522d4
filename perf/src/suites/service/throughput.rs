//! How much goes through: into a ring, into a file, beside a file that is stuck.

use super::load::{Load, LoadRole, SHM_SIZE_BYTES, Written};
use super::packets::memory_bytes_per_byte;
use super::trace::{Found, config, config_into_file};
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::suites::processes::daemon::{RunningDaemon, Service, Workers};
use crate::suites::processes::pauses::PauseWatch;
use crate::suites::processes::session::{check_nothing_refused, disable, enable, flushed_stats};
use crate::suites::processes::{MachineTicks, cpu_ns, cpu_ns_with_ended};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{PipeReader, Read as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const RING_KB: u32 = 64 << 10;
/// What a file's buffer has to hold: some tenths of a second.
const FILE_BUFFER_KB: u32 = 256 << 10;
const RING: &str = "perf.ring";
const FILE: &str = "perf.file";

/// Threads that were there only for a time: that of a file.
const ENDED: &str = "ended";

/// One run.
struct Run {
    written: Written,
    /// The daemon's, by thread; [`ENDED`] are those that have ended.
    cpu_ns: BTreeMap<String, u64>,
    steal_percent: f64,
    /// Of the machine; `None`: not measured.
    pauses: Option<Vec<Duration>>,
}

impl Run {
    /// Measures what `write` writes.
    fn measure(
        daemon: &RunningDaemon,
        write: impl FnOnce() -> Result<Written, WrongAnswer>,
    ) -> Result<Run, WrongAnswer> {
        let pid = daemon.pid();
        let watch = PauseWatch::start();
        let (before, all_before_ns, ticks) = (cpu_ns(pid)?, cpu_ns_with_ended(pid)?, MachineTicks::now());
        let written = write()?;
        let steal_percent = MachineTicks::now().steal_percent_since(ticks);
        let (mut cpu_ns, all_ns) = (cpu_ns(pid)?, cpu_ns_with_ended(pid)? - all_before_ns);
        for (thread, ns) in &mut cpu_ns {
            *ns = ns.saturating_sub(before.get(thread).copied().unwrap_or(0));
        }
        let live_ns = cpu_ns.values().sum();
        cpu_ns.insert(ENDED.to_owned(), all_ns.saturating_sub(live_ns));
        let pauses = watch.map(PauseWatch::end).transpose()?;
        Ok(Run { written, cpu_ns, steal_percent, pauses })
    }

    /// What is written while a CPU is away and exceeds the shared memory, at most: no program can
    /// take it, if it is the CPU on which the daemon runs.
    fn paused_excess_bytes(&self) -> Option<f64> {
        let bytes_per_s = self.written.bytes as f64 / self.written.seconds;
        let room_bytes = SHM_SIZE_BYTES as f64 / memory_bytes_per_byte();
        let excess = |pause: &Duration| (bytes_per_s * pause.as_secs_f64() - room_bytes).max(0.0);
        self.pauses.as_ref().map(|pauses| pauses.iter().map(excess).sum())
    }

    fn longest_pause_ms(&self) -> Option<f64> {
        let longest = |pauses: &Vec<Duration>| pauses.iter().max().map_or(0.0, Duration::as_secs_f64);
        self.pauses.as_ref().map(longest).map(|seconds| seconds * 1e3)
    }

    /// Whether nothing is lost beyond what the machine's pauses explain.
    fn is_explained(&self) -> bool {
        self.written.bytes_dropped as f64 <= self.paused_excess_bytes().unwrap_or(0.0)
    }

    fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_ns.values().sum::<u64>() as f64 / 1e9 / self.written.gb_accepted()
    }
}

/// What the machine's pauses were, and what they explain.
fn with_pauses(result: Measurement, runs: &[Run]) -> Measurement {
    let all = |value: &dyn Fn(&Run) -> Option<f64>| runs.iter().map(value).collect::<Option<Vec<f64>>>();
    let longest_ms = all(&Run::longest_pause_ms);
    let excess_percent =
        all(&|run| run.paused_excess_bytes().map(|bytes| bytes / run.written.bytes as f64 * 100.0));
    let (Some(longest_ms), Some(excess_percent)) = (longest_ms, excess_percent) else { return result };
    let explained = runs.iter().filter(|run| run.is_explained()).count();
    result
        .with("longest_pause_ms", Series::new(longest_ms).median())
        .with("paused_excess_percent", Series::new(excess_percent).median())
        .with("explained_runs", explained as f64)
}

fn duration(options: &Options) -> Duration {
    options.size(Duration::from_secs(10), Duration::from_millis(200))
}

/// Five runs, or fewer if fewer rounds are asked for.
fn runs(
    name: &str,
    options: &Options,
    run: impl Fn() -> Result<Run, WrongAnswer>,
) -> Result<Measurement, WrongAnswer> {
    let runs = (0..options.rounds.min(5)).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    Ok(figures(name, &runs))
}

/// As many runs of each service, in turns.
fn contest(
    name: &str,
    ours: Workers,
    options: &Options,
    run: impl Fn(&Service) -> Result<Run, WrongAnswer>,
) -> Result<Measurement, WrongAnswer> {
    let services = Service::all(ours)?;
    let mut runs: Vec<Vec<Run>> = services.iter().map(|_| Vec::new()).collect();
    for round in 0..options.rounds.min(5) {
        for turn in 0..services.len() {
            // None is always the one that runs first.
            let who = (round + turn) % services.len();
            runs[who].push(run(&services[who])?);
        }
    }
    let result = figures(name, &runs[0]);
    Ok(match runs.get(1) {
        Some(theirs) => beside(result, &runs[0], theirs),
        None => result.without("percent_traced").without("ratio_to_traced"),
    })
}

fn series(runs: &[Run], value: impl Fn(&Run) -> f64) -> Series {
    Series::new(runs.iter().map(value).collect())
}

fn whole(runs: &[Run]) -> f64 {
    runs.iter().filter(|run| run.written.bytes_dropped == 0).count() as f64
}

fn loss_percent(run: &Run) -> f64 {
    run.written.loss_percent()
}

fn figures(name: &str, runs: &[Run]) -> Measurement {
    let mut result = Measurement::percent(name, &series(runs, loss_percent))
        .with("whole_runs", whole(runs))
        .with("cpu_s_per_gb", series(runs, Run::cpu_s_per_gb).median())
        .with("mb_per_s", series(runs, |run| run.written.mb_per_s()).median())
        .with("steal_percent", series(runs, |run| run.steal_percent).median());
    for thread in runs[0].cpu_ns.keys() {
        let of_thread = series(runs, |run| {
            run.cpu_ns.get(thread).copied().unwrap_or(0) as f64 / 1e9 / run.written.gb_accepted()
        });
        result = result.with(&format!("cpu_s_per_gb_{thread}"), of_thread.median());
    }
    with_pauses(result, runs)
}

/// Adds a rival's loss, and its CPU time for what it took, also as a ratio to ours.
fn beside(result: Measurement, ours: &[Run], theirs: &[Run]) -> Measurement {
    let cpu = series(theirs, Run::cpu_s_per_gb);
    result
        .with("percent_traced", series(theirs, loss_percent).median())
        .with("whole_runs_traced", whole(theirs))
        .with("cpu_s_per_gb_traced", cpu.median())
        .with("ratio_to_traced", series(ours, Run::cpu_s_per_gb).speedup_over(&cpu))
}

/// Into a ring.
pub(super) fn ring(name: &str, workers: Workers, options: &Options) -> Result<Measurement, WrongAnswer> {
    contest(name, workers, options, |service| {
        let daemon = service.start()?;
        let mut load = Load::start(LoadRole::four_threads(daemon.producer_socket(), RING))?;
        let mut consumer = daemon.consumer()?;
        enable(&mut consumer, &config(RING, RING_KB), None)?;
        load.arm()?;
        let run =
            Run::measure(&daemon, || load.write(options.size(1_000_000_000, 20_000_000), duration(options)))?;
        let stats = flushed_stats(&mut consumer)?;
        disable(&mut consumer)?;
        let found = Found::in_buffers(&mut consumer)?;
        // What a rival refuses or does not tell is its own matter.
        if service.is_ours() {
            check_nothing_refused(&stats)?;
            found.check_gaps_are_told()?;
        }
        if found.packets == 0 { Err("the ring is empty".to_owned()) } else { Ok(run) }
    })
}

/// Into a file in memory. The time ends with the file. What the system alone does with such a file
/// stands beside it.
pub(super) fn file(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let bare = (0..3).map(|_| BareWrite::measure(options)).collect::<Result<Vec<_>, _>>()?;
    let result = contest(name, Workers::default(), options, |service| {
        let daemon = service.start()?;
        let mut load = Load::start(LoadRole::four_threads(daemon.producer_socket(), FILE))?;
        let mut consumer = daemon.consumer()?;
        let file = tempfile::tempfile_in("/dev/shm").map_err(|error| error.to_string())?;
        let kept = File::try_clone(&file).map_err(|error| error.to_string())?;
        enable(&mut consumer, &config_into_file(FILE, FILE_BUFFER_KB), Some(kept))?;
        load.arm()?;
        let mut run = Run::measure(&daemon, || {
            let written = load.write(file_bytes_per_s(options), duration(options))?;
            let stats = flushed_stats(&mut consumer)?;
            if service.is_ours() {
                check_nothing_refused(&stats)?;
            }
            disable(&mut consumer)?;
            Ok(written)
        })?;
        // The position is shared with the daemon's descriptor.
        let mut file = file;
        std::io::Seek::rewind(&mut file).map_err(|error| error.to_string())?;
        let found = Found::in_file(file)?;
        if service.is_ours() {
            let stats = consumer.stats().map_err(|error| error.to_string())?;
            found.check(&run.written, &stats)?;
        }
        found.count_lost(&mut run.written)?;
        Ok(run)
    })?;
    let of_bare = |value: fn(&BareWrite) -> f64| Series::new(bare.iter().map(value).collect()).median();
    Ok(result
        .with("bare_write_s_per_gb", of_bare(|bare| bare.s_per_gb))
        .with("bare_write_late_ms", of_bare(|bare| bare.late_ms)))
}

/// What the system alone does.
struct BareWrite {
    s_per_gb: f64,
    late_ms: f64,
}

impl BareWrite {
    /// One thread writes into a file in memory as much as a run, at its rate, in blocks as large as
    /// the daemon's, and nothing else. Where the host gives memory only when it is touched, that
    /// may be more than it can do: then it is late.
    fn measure(options: &Options) -> Result<BareWrite, WrongAnswer> {
        let block = vec![1; 1 << 20];
        let mut file = tempfile::tempfile_in("/dev/shm").map_err(|error| error.to_string())?;
        let (mut taken, mut late, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
        let started = Instant::now();
        while bytes < (file_bytes_per_s(options) as f64 * duration(options).as_secs_f64()) as u64 {
            let due = Duration::from_secs_f64(bytes as f64 / file_bytes_per_s(options) as f64);
            std::thread::sleep(due.saturating_sub(started.elapsed()));
            let begun = Instant::now();
            std::io::Write::write_all(&mut file, &block).map_err(|error| error.to_string())?;
            (taken, bytes) = (taken + begun.elapsed(), bytes + block.len() as u64);
            late = late.max(started.elapsed().saturating_sub(due));
        }
        Ok(BareWrite {
            s_per_gb: taken.as_secs_f64() / (bytes as f64 / 1e9),
            late_ms: late.as_secs_f64() * 1e3,
        })
    }
}

fn file_bytes_per_s(options: &Options) -> u64 {
    options.size(500_000_000, 20_000_000)
}

/// Into a ring, while the file of another session takes nothing for half a second, time and again.
pub(super) fn ring_beside_stalled_file(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let stall = options.size(Duration::from_millis(500), Duration::from_millis(50));
    runs(name, options, || {
        let daemon = RunningDaemon::start(Workers::default())?;
        let mut ring = Load::start(LoadRole::four_threads(daemon.producer_socket(), RING))?;
        let mut stalled = Load::start(LoadRole::four_threads(daemon.producer_socket(), FILE))?;
        let (mut of_ring, mut of_file) = (daemon.consumer()?, daemon.consumer()?);
        let (out, sink) = std::io::pipe().map_err(|error| error.to_string())?;
        let reader = std::thread::spawn(move || read_with_stalls(out, stall));
        enable(&mut of_file, &config_into_file(FILE, RING_KB), Some(File::from(OwnedFd::from(sink))))?;
        enable(&mut of_ring, &config(RING, RING_KB), None)?;
        stalled.arm()?;
        ring.arm()?;
        let run = Run::measure(&daemon, || {
            stalled.begin(options.size(20_000_000, 2_000_000), duration(options))?;
            let written = ring.write(options.size(500_000_000, 20_000_000), duration(options))?;
            stalled.end()?;
            Ok(written)
        })?;
        check_nothing_refused(&flushed_stats(&mut of_ring)?)?;
        disable(&mut of_ring)?;
        disable(&mut of_file)?;
        drop((of_file, daemon));
        let read_bytes =
            reader.join().map_err(|_| "the file's reader panicked")?.map_err(|error| error.to_string())?;
        if read_bytes == 0 { Err("the file is empty".to_owned()) } else { Ok(run) }
    })
}

/// Reads a pipe to its end, by turns for as long as it stalls. Says how much there was.
fn read_with_stalls(mut out: PipeReader, stall: Duration) -> std::io::Result<u64> {
    let (mut bytes, mut sum) = (vec![0; 1 << 20], 0);
    loop {
        std::thread::sleep(stall);
        let awake = Instant::now();
        while awake.elapsed() < stall {
            match out.read(&mut bytes)? {
                0 => return Ok(sum),
                size_bytes => sum += size_bytes as u64,
            }
        }
    }
}
