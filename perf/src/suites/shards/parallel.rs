//! Reading with a pool: what a second core brings, beside what it brings to a bare copy, or what
//! the writing alone takes.

use super::line;
use super::overhead::on_core;
use super::read::{Filled, into_blocks, read_all, verify};
use super::team::race_on;
use crate::measure::{Lap, LapResult, Options, Series, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use crate::workload::protobuf;
use crate::workload::rings::touched_pair;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cell::RefCell;
use std::fs::File;
use std::hint::black_box;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The thread that comes beside the calling one, as `record` has it on two cores.
fn pool() -> Result<ThreadPool, WrongAnswer> {
    ThreadPoolBuilder::new().num_threads(1).build().map_err(|error| error.to_string())
}

/// Two threads against one, into blocks in memory; and two against one that copy as many bytes into
/// blocks of their own.
pub(super) fn into_memory(options: &Options) -> Result<Measurement, WrongAnswer> {
    let options = &more_rounds(options);
    let chunks = protobuf::track_events(100);
    let mut filled = Filled::new(options, 2, &chunks)?;
    let pool = pool()?;
    let bytes = verify(options, &mut filled, Some(&pool))?;
    let filled = RefCell::new(filled);
    let all_lap = || into_blocks(options, &mut filled.borrow_mut(), Some(&pool), bytes);
    let one_lap =
        || mean_of_cores(&mut *filled.borrow_mut(), |filled| into_blocks(options, filled, None, bytes));
    let (source, _) = touched_pair(bytes as usize)?;
    let copies_lap = || Ok(copy(source.as_slice(), 0, 2));
    let copy_lap = || {
        let (first, second) = (copy(source.as_slice(), 0, 1), copy(source.as_slice(), 1, 1));
        Ok(mean(first, second))
    };
    let contest = interleave(
        options,
        [
            Box::new(all_lap),
            Box::new(one_lap),
            Box::new(copies_lap),
            Box::new(copy_lap),
            Box::new(line::lap(options)),
        ],
    )?;
    let all_rounds = speedup(&contest[0], &contest[1]);
    let [all, one, copies, one_copy, trip] = line::steady_rounds(contest);
    let (ours, copied) = (speedup(&all, &one), speedup(&copies, &one_copy));
    let of_memcpy = ours.values().iter().zip(copied.values()).map(|(ours, copied)| ours / copied);
    let of_memcpy = Series::new(of_memcpy.collect());
    Ok(Measurement::ratio("parallel_read_memory", &ours)
        .with("ns_per_packet", all.median())
        .with("serial_ns", one.median())
        .with("memcpy", copied.median())
        .with("of_memcpy", of_memcpy.median())
        .with("line_ns", trip.median())
        .with("all_rounds", all_rounds.median()))
}

/// The same into a file that lies in memory: blocks are written while others are extracted. And as
/// many bytes that are only written.
pub(super) fn into_file(options: &Options) -> Result<Measurement, WrongAnswer> {
    let options = &more_rounds(options);
    // A round has five laps of 50 milliseconds and more.
    let options = &Options { time_limit: 2 * options.time_limit, ..*options };
    let chunks = protobuf::track_events(100);
    let mut filled = Filled::new(options, 2, &chunks)?;
    let pool = pool()?;
    let bytes = verify(options, &mut filled, Some(&pool))?;
    let in_memory = Path::new("/dev/shm");
    let folder = if in_memory.is_dir() { in_memory.to_owned() } else { std::env::temp_dir() };
    let file = tempfile::tempfile_in(folder).map_err(|error| error.to_string())?;
    let both = RefCell::new((filled, file));
    let lap = |(filled, file): &mut (Filled<'_>, File), pool: Option<&ThreadPool>| {
        let packets = filled.fill(options)?;
        into_new_file(file, packets, bytes, |file| {
            read_all(&filled.buffer, pool, |pieces| pieces.write_to(file))
        })
    };
    let all_lap = || lap(&mut both.borrow_mut(), Some(&pool));
    let one_lap = || mean_of_cores(&mut *both.borrow_mut(), |both| lap(both, None));
    let block = vec![1; 1 << 20];
    let write_lap = || {
        mean_of_cores(&mut both.borrow_mut().1, |file| {
            into_new_file(file, bytes, bytes, |file| write_bytes(file, &block, bytes as usize))
        })
    };
    let contest = interleave(
        options,
        [Box::new(all_lap), Box::new(one_lap), Box::new(write_lap), Box::new(line::lap(options))],
    )?;
    let all_rounds = speedup(&contest[0], &contest[1]);
    let [all, one, written, trip] = line::steady_rounds(contest);
    let packets = both.borrow_mut().0.fill(options)?;
    Ok(Measurement::ratio("parallel_read_file", &speedup(&all, &one))
        .with("ns_per_packet", all.median())
        .with("serial_ns", one.median())
        .with("bare_write_ns", written.median() * bytes as f64 / packets as f64)
        .with("line_ns", trip.median())
        .with("all_rounds", all_rounds.median()))
}

/// A read of one round differs from that of another by a tenth and more, and so did the medians of
/// so few rounds.
fn more_rounds(options: &Options) -> Options {
    Options { rounds: options.rounds * 3, ..*options }
}

/// A lap that fills an empty file with so many bytes. What was in it before is thrown away untimed:
/// a session writes into a new one.
fn into_new_file(
    file: &mut File,
    units: u64,
    bytes: u64,
    fill: impl FnOnce(&mut File) -> std::io::Result<()>,
) -> LapResult {
    let fill_anew = || {
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        let (lap, result) = timed(units, || fill(file));
        result?;
        Ok((lap, file.metadata()?.len()))
    };
    match fill_anew().map_err(|error: std::io::Error| error.to_string())? {
        (lap, written) if written == bytes => Ok(lap),
        (_, written) => Err(format!("{written} bytes are written, not {bytes}")),
    }
}

fn write_bytes(file: &mut File, block: &[u8], bytes: usize) -> std::io::Result<()> {
    let whole = std::iter::repeat_n(block, bytes / block.len());
    whole.chain([&block[..bytes % block.len()]]).try_for_each(|part| file.write_all(part))
}

/// What one thread takes: on the one core and on the other, whose speeds differ, and neither is
/// what a second core is to be compared with.
fn mean_of_cores<T: Send>(subject: &mut T, lap: impl Fn(&mut T) -> LapResult + Sync) -> LapResult {
    let first = on_core(0, || lap(subject))?;
    let second = on_core(1, || lap(subject))?;
    Ok(mean(first, second))
}

fn mean(first: Lap, second: Lap) -> Lap {
    Lap { elapsed: (first.elapsed + second.elapsed) / 2, units: first.units }
}

/// Copies `source` into blocks that stay in the cache, by so many threads from core number
/// `first_rank` on, counted from the last: who is faster copies more.
fn copy(source: &[u8], first_rank: usize, num_threads: usize) -> Lap {
    const PIECE_BYTES: usize = 128 << 10;
    let next = AtomicUsize::new(0);
    // Relaxed: it only hands each piece out once.
    let next_piece = || source.chunks(PIECE_BYTES).nth(next.fetch_add(1, Ordering::Relaxed));
    let mut blocks = vec![vec![1; 4 * PIECE_BYTES]; num_threads];
    let work = |block: &mut Vec<u8>| {
        let mut turn = 0;
        while let Some(piece) = next_piece() {
            block[turn * PIECE_BYTES..][..piece.len()].copy_from_slice(piece);
            black_box(&*block);
            turn = (turn + 1) % 4;
        }
    };
    race_on(first_rank, source.len() as u64, &mut blocks, work)
}

/// How many times the time of all one takes, by round.
fn speedup(all: &Series, one: &Series) -> Series {
    Series::new(all.values().iter().zip(one.values()).map(|(all, one)| one / all).collect())
}
