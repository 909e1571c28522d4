//! Files that are compressed while they are written: what that costs, and what it costs others.

use super::load::{Load, LoadRole, Written};
use super::trace::{Found, config, config_into_file};
use crate::measure::{Options, Series, WrongAnswer, cpu_time};
use crate::report::Measurement;
use crate::suites::processes::cpu_ns;
use crate::suites::processes::daemon::{RunningDaemon, Workers};
use crate::suites::processes::session::{check_nothing_refused, disable, enable, flushed_stats};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::time::{Duration, Instant};
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::CompressionConfig;
use watershed_wire::raw::Fields;

const RING: &str = "perf.ring";
const FILE: &str = "perf.file";
const RING_KB: u32 = 64 << 10;
const FILE_BUFFER_KB: u32 = 64 << 10;
const RING_BYTES_PER_S: u64 = 200_000_000;
/// What deflate can do on the side.
const FILE_BYTES_PER_S: u64 = 10_000_000;
/// The thread that writes the file, by its name. It ends with the session.
const THREAD: &str = "trace-file";
/// The level of the service, as of others of this format.
const DEFLATE_LEVEL: u32 = 6;

#[derive(Clone, Copy, PartialEq)]
enum Codec {
    None,
    Deflate,
    Zstd,
}

/// One run.
struct Run {
    of_ring: Written,
    of_file: Written,
    /// Of the daemon's thread that writes the file, and of the library for the same bytes.
    thread_s: f64,
    library_s: f64,
    /// What was compressed, and what came of it.
    bytes: u64,
    file_bytes: u64,
}

/// The CPU time of the thread that compresses over that of the library alone, and what is left of
/// another session's traffic.
pub(super) fn file(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let mut all: [Vec<Run>; 3] = Default::default();
    for _ in 0..options.rounds.min(5) {
        for (runs, codec) in all.iter_mut().zip([Codec::None, Codec::Deflate, Codec::Zstd]) {
            runs.push(run(codec, options)?);
        }
    }
    let [plain, deflate, zstd] = &all;
    let times =
        |runs: &[Run]| Series::new(runs.iter().map(|run| run.thread_s / run.library_s).collect::<Vec<_>>());
    let mb_per_s = |runs: &[Run]| {
        Series::new(runs.iter().map(|run| run.of_ring.gb_accepted() * 1e3 / run.of_ring.seconds).collect())
    };
    let lost = |runs: &[Run]| Series::new(runs.iter().map(|run| run.of_ring.loss_percent()).collect());
    let of_file = |runs: &[Run]| Series::new(runs.iter().map(|run| run.of_file.loss_percent()).collect());
    let size = |runs: &[Run]| {
        Series::new(runs.iter().map(|run| run.file_bytes as f64 / run.bytes as f64).collect::<Vec<_>>())
    };
    let beside = |runs: &[Run]| mb_per_s(runs).median() / mb_per_s(plain).median();
    let s_per_gb = |runs: &[Run]| {
        let of = |run: &Run| run.library_s / (run.bytes as f64 / 1e9);
        Series::new(runs.iter().map(of).collect()).median()
    };
    let result = Measurement::ratio(name, &times(deflate))
        .with("times_zstd", times(zstd).median())
        .with("of_ring_traffic_beside_deflate", beside(deflate))
        .with("of_ring_traffic_beside_zstd", beside(zstd))
        .with("percent_of_ring_lost_plain", lost(plain).median())
        .with("percent_of_ring_lost_deflate", lost(deflate).median())
        .with("percent_of_ring_lost_zstd", lost(zstd).median())
        .with("percent_of_file_lost_deflate", of_file(deflate).max())
        .with("percent_of_file_lost_zstd", of_file(zstd).max())
        .with("bytes_for_one_deflate", size(deflate).median())
        .with("bytes_for_one_zstd", size(zstd).median())
        .with("library_cpu_s_per_gb_deflate", s_per_gb(deflate))
        .with("library_cpu_s_per_gb_zstd", s_per_gb(zstd));
    Ok(Measurement { unit: "times".into(), ..result })
}

fn run(codec: Codec, options: &Options) -> Result<Run, WrongAnswer> {
    let text = |error: std::io::Error| error.to_string();
    let daemon = RunningDaemon::start(Workers::default())?;
    let mut ring = Load::start(LoadRole::four_threads(daemon.producer_socket(), RING))?;
    let role = LoadRole { has_content: true, ..LoadRole::four_threads(daemon.producer_socket(), FILE) };
    let mut into_file = Load::start(role)?;
    let (mut of_ring, mut of_file) = (daemon.consumer()?, daemon.consumer()?);
    let mut file = tempfile::tempfile_in("/dev/shm").map_err(text)?;
    enable(&mut of_ring, &config(RING, RING_KB), None)?;
    enable(&mut of_file, &with(codec), Some(file.try_clone().map_err(text)?))?;
    ring.arm()?;
    into_file.arm()?;
    let duration = options.size(Duration::from_secs(5), Duration::from_millis(300));
    into_file.begin(options.size(FILE_BYTES_PER_S, 2_000_000), duration)?;
    let of_ring_written = ring.write(options.size(RING_BYTES_PER_S, 20_000_000), duration)?;
    let mut written = into_file.end()?;
    check_nothing_refused(&flushed_stats(&mut of_file)?)?;
    let thread_s = all_thread_s(&daemon, &file)?;
    disable(&mut of_file)?;
    let stats = of_file.stats().map_err(|error| error.to_string())?;
    let file_bytes = file.metadata().map_err(text)?.len();
    file.rewind().map_err(text)?;
    let found = Found::in_file(file.try_clone().map_err(text)?)?;
    found.check(&written, &stats)?;
    found.count_lost(&mut written)?;
    // Beside the same traffic, which goes into a plain file.
    let (mut of_plain, plain) = (daemon.consumer()?, tempfile::tempfile_in("/dev/shm").map_err(text)?);
    enable(&mut of_plain, &with(Codec::None), Some(plain))?;
    into_file.arm()?;
    into_file.begin(options.size(FILE_BYTES_PER_S, 2_000_000), duration)?;
    ring.begin(options.size(RING_BYTES_PER_S, 20_000_000), duration)?;
    let (library_s, bytes) = library(codec, file)?;
    ring.end()?;
    into_file.end()?;
    disable(&mut of_plain)?;
    disable(&mut of_ring)?;
    Ok(Run { of_ring: of_ring_written, of_file: written, thread_s, library_s, bytes, file_bytes })
}

fn with(codec: Codec) -> TraceConfig {
    let compression = match codec {
        Codec::None => None,
        Codec::Deflate => Some(CompressionConfig { deflate: Some(Default::default()), zstd: None }),
        Codec::Zstd => Some(CompressionConfig { deflate: None, zstd: Some(Default::default()) }),
    };
    TraceConfig { compression, ..config_into_file(FILE, FILE_BUFFER_KB) }
}

/// CPU time of the thread, once it has written everything that was flushed: the file grows by no
/// more than the statistics that a session writes at rest, and the thread does not work on a part.
fn all_thread_s(daemon: &RunningDaemon, file: &File) -> Result<f64, WrongAnswer> {
    /// Some of the periods in which the file is written.
    const LOOK: Duration = Duration::from_millis(350);
    /// Statistics of a session at rest are some hundred bytes; a part of what was flushed is more.
    const GROWTH_BYTES_MAX: u64 = 1 << 10;
    /// Of a look: a part that is compressed takes all of it.
    const BUSY_SHARE_MAX: f64 = 0.2;
    const TRIES: usize = 100;
    let look = || {
        let ns = cpu_ns(daemon.pid())?.get(THREAD).copied();
        let thread_s =
            ns.map(|ns| ns as f64 / 1e9).ok_or_else(|| format!("the daemon has no thread {THREAD}"))?;
        let file_bytes = file.metadata().map_err(|error| error.to_string())?.len();
        Ok::<_, WrongAnswer>((thread_s, file_bytes))
    };
    let (mut before_s, mut before_bytes) = look()?;
    for _ in 0..TRIES {
        std::thread::sleep(LOOK);
        let (now_s, now_bytes) = look()?;
        let is_idle = now_s - before_s < LOOK.as_secs_f64() * BUSY_SHARE_MAX;
        if is_idle && now_bytes.saturating_sub(before_bytes) <= GROWTH_BYTES_MAX {
            return Ok(now_s);
        }
        (before_s, before_bytes) = (now_s, now_bytes);
    }
    Err(format!("the daemon's thread {THREAD} does not come to rest"))
}

/// CPU time of the library for what a file holds, part by part, as fast as these were written, and
/// how many bytes that is. Every packet of the file must hold others, if it is compressed.
fn library(codec: Codec, mut file: File) -> Result<(f64, u64), WrongAnswer> {
    let mut trace = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut trace)).map_err(|error| error.to_string())?;
    if codec == Codec::None {
        return Ok((1.0, trace.len() as u64));
    }
    let (mut sum, mut bytes, began) = (Duration::ZERO, 0, Instant::now());
    for packet in Fields::new(&trace) {
        let packet = packet.map_err(|error| error.to_string())?.value.bytes().unwrap_or_default();
        let content = Fields::new(packet).next().and_then(Result::ok).and_then(|field| field.value.bytes());
        // As the service does: what a thread has in the caches is gone when it has waited.
        let due = Duration::from_secs_f64(bytes as f64 / FILE_BYTES_PER_S as f64);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let part = codec.unpack(content.ok_or("a packet that holds no others")?)?;
        let before = cpu_time();
        std::hint::black_box(codec.pack(&part)?);
        sum += cpu_time() - before;
        bytes += part.len() as u64;
    }
    Ok((sum.as_secs_f64(), bytes))
}

impl Codec {
    fn pack(self, part: &[u8]) -> Result<Vec<u8>, WrongAnswer> {
        match self {
            Codec::None => Ok(part.to_vec()),
            Codec::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(DEFLATE_LEVEL));
                encoder.write_all(part).and_then(|()| encoder.finish()).map_err(|error| error.to_string())
            }
            Codec::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                Ok(ruzstd::encoding::compress_to_vec(part, level))
            }
        }
    }

    fn unpack(self, content: &[u8]) -> Result<Vec<u8>, WrongAnswer> {
        let mut part = Vec::new();
        match self {
            Codec::None => Ok(0),
            Codec::Deflate => flate2::read::ZlibDecoder::new(content).read_to_end(&mut part),
            Codec::Zstd => ruzstd::decoding::StreamingDecoder::new(content)
                .map_err(|error| error.to_string())?
                .read_to_end(&mut part),
        }
        .map_err(|error| error.to_string())?;
        Ok(part)
    }
}
