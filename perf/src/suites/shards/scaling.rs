//! Two threads against one, against two threads that only copy, and against two with a buffer each.

use super::line;
use super::team::{Writers, check_written, exact_ring, race, warm_race};
use crate::measure::{Lap, LapResult, Options, Series, WrongAnswer, interleave};
use crate::report::Measurement;
use crate::workload::feed;
use crate::workload::rings::CopyRing;
use crate::workload::{SourceChunk, templates};
use std::cell::{Cell, RefCell};
use watershed_engine::HugePages;
use watershed_shards::ShardedBuffer;

/// Rounds for each that is asked for: laps are short.
const ROUNDS_FOR_ONE: usize = 3;

/// One contest: sizes, and chunks in one commit.
struct Course {
    name: &'static str,
    shard_bytes: usize,
    commits: usize,
    batch: usize,
}

/// Two threads, each with 32 MiB, eight chunks a commit.
pub(super) fn two(options: &Options) -> Result<Measurement, WrongAnswer> {
    let shard_bytes = options.size(32 << 20, 2 << 20);
    against_memcpy(options, &Course { name: "scaling_two", shard_bytes, commits: 8192, batch: 8 })
}

/// The same with every chunk committed by itself.
pub(super) fn two_single(options: &Options) -> Result<Measurement, WrongAnswer> {
    let shard_bytes = options.size(32 << 20, 2 << 20);
    against_memcpy(options, &Course { name: "scaling_two_single", shard_bytes, commits: 8192, batch: 1 })
}

/// Commits of a lap where all memory is in the cores' caches. At the end of a lap one thread is
/// alone and takes over memory of the other's shard, which gets it back in the next: in a small
/// buffer, and a short lap, that is as much as what the two cost each other.
const CACHED_COMMITS: usize = 32_768;

/// Two threads, each with 1 MiB, which stays in its core's cache.
pub(super) fn two_cached(options: &Options) -> Result<Measurement, WrongAnswer> {
    against_memcpy(
        options,
        &Course { name: "scaling_two_cached", shard_bytes: 1 << 20, commits: CACHED_COMMITS, batch: 8 },
    )
}

/// The same with every chunk committed by itself.
pub(super) fn two_cached_single(options: &Options) -> Result<Measurement, WrongAnswer> {
    let name = "scaling_two_cached_single";
    against_memcpy(options, &Course { name, shard_bytes: 1 << 20, commits: CACHED_COMMITS, batch: 1 })
}

fn against_memcpy(options: &Options, course: &Course) -> Result<Measurement, WrongAnswer> {
    let chunks = templates::mixed(100);
    let rings = [exact_ring(course.shard_bytes, 1)?, exact_ring(course.shard_bytes, 1)?];
    let large = exact_ring(2 * course.shard_bytes, 2)?;
    let mut singles = [Writers::new(&rings[0], &chunks, 1, 1), Writers::new(&rings[1], &chunks, 2, 1)];
    let mut pair = [Writers::new(&large, &chunks, 1, 1), Writers::new(&large, &chunks, 2, 1)];
    let copy_ring = || CopyRing::new(course.shard_bytes, HugePages::Advise);
    let mut copies = [Copier::new(copy_ring()?, &chunks), Copier::new(copy_ring()?, &chunks)];

    // Every page is there and every commit evicts before anything counts.
    let fill = 2 * course.shard_bytes / 1024 / 8 * 8;
    let commit = |count: usize| move |writers: &mut Writers<'_>| writers.commit(count, course.batch);
    race(1, &mut singles, commit(fill));
    race(1, &mut pair, commit(fill));
    race(1, &mut copies, |copier| copier.copy(fill));

    // Short laps, so that those which are compared follow each other closely: each first brings its
    // memory back into the cache.
    let (commits, warm_up) = options.size((course.commits, 512), (512, 8));
    let units = commits as u64;
    // One after the other, and both at once.
    let (singles, written) = (RefCell::new(singles), Cell::new(fill));
    let check_rings = || {
        written.set(written.get() + warm_up + commits);
        rings.iter().try_for_each(|ring| check_written(ring, written.get() as u64))
    };
    let single_lap = || {
        let lap = mean_of_cores(|rank| {
            let member = &mut singles.borrow_mut()[rank..=rank];
            warm_race(rank, units, member, commit(warm_up), commit(commits))
        });
        check_rings().map(|()| lap)
    };
    let apart_lap = || {
        let lap = warm_race(0, units, &mut *singles.borrow_mut(), commit(warm_up), commit(commits));
        check_rings().map(|()| lap)
    };
    let mut in_large = 2 * fill;
    let pair_lap = || {
        let together = |writers: &mut Writers<'_>| commit_into_one(writers, commits, course.batch);
        let lap = warm_race(0, units, &mut pair, commit(warm_up), together);
        in_large += 2 * (warm_up + commits);
        check_written(&large, in_large as u64).map(|()| lap)
    };
    let copies = RefCell::new(copies);
    let copy = |count: usize| move |copier: &mut Copier<'_>| copier.copy(count);
    let one_copy_lap = || {
        Ok(mean_of_cores(|rank| {
            warm_race(rank, units, &mut copies.borrow_mut()[rank..=rank], copy(warm_up), copy(commits))
        }))
    };
    let copies_lap = || Ok(warm_race(0, units, &mut *copies.borrow_mut(), copy(warm_up), copy(commits)));
    let options = Options { rounds: options.rounds * ROUNDS_FOR_ONE, ..*options };
    let contest = interleave(
        &options,
        [
            Box::new(single_lap),
            Box::new(pair_lap),
            Box::new(apart_lap),
            Box::new(one_copy_lap),
            Box::new(copies_lap),
            Box::new(line::lap(&options)),
        ],
    )?;
    let all_rounds = scaling(&contest[0], &contest[1]);
    let [one, two, separate, one_copy, two_copies, trip] = line::steady_rounds(contest);
    let shards = large.shard_stats();
    if options.full_size && shards.iter().any(|(stats, _)| stats.chunks_written < in_large as u64 / 3) {
        return Err(format!("both threads went to one shard: {shards:?}"));
    }
    let (ours, copied) = (scaling(&one, &two), scaling(&one_copy, &two_copies));
    let of_memcpy = ratios(&ours, &copied);
    // What the two lose by having one buffer: the same threads on the same cores do the same work
    // beside each other.
    let of_apart = ratios(&separate, &two);
    Ok(Measurement::ratio(course.name, &ours)
        .with("of_memcpy", of_memcpy.median())
        .with("of_memcpy_noise", of_memcpy.noise())
        .with("memcpy", copied.median())
        .with("of_apart", of_apart.median())
        .with("of_apart_noise", of_apart.noise())
        .with("apart", scaling(&one, &separate).median())
        .with("one_ns", one.median())
        .with("two_ns", two.median())
        .with("memcpy_ns", one_copy.median())
        .with("line_ns", trip.median())
        .with("all_rounds", all_rounds.median()))
}

/// What each of two threads does with the buffer that they share.
#[cfg(not(feature = "planted-contention"))]
fn commit_into_one(writers: &mut Writers<'_>, commits: usize, batch: usize) {
    writers.commit(commits, batch);
}

/// The same with what shards are there to avoid: a lock that both need for each commit.
#[cfg(feature = "planted-contention")]
fn commit_into_one(writers: &mut Writers<'_>, commits: usize, batch: usize) {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    for _ in 0..commits / batch {
        let _turn = TURN.lock();
        writers.commit(batch, batch);
    }
}

/// `a` over `b`, by round.
fn ratios(a: &Series, b: &Series) -> Series {
    Series::new(a.values().iter().zip(b.values()).map(|(a, b)| a / b).collect())
}

/// A member alone on the first core and another on the second: the mean, since two cores are hardly
/// equal in their way to the memory. Each runs where it runs in the race of both.
fn mean_of_cores(mut lap: impl FnMut(usize) -> Lap) -> Lap {
    let (first, second) = (lap(0), lap(1));
    Lap { elapsed: (first.elapsed + second.elapsed) / 2, units: first.units }
}

/// What two threads do in the time in which one does 1, by round.
fn scaling(one: &Series, two: &Series) -> Series {
    Series::new(one.values().iter().zip(two.values()).map(|(one, two)| 2.0 * one / two).collect())
}

/// A thread that only copies. Two of them lie side by side and must not share a cache line.
#[repr(align(128))]
pub(super) struct Copier<'a> {
    ring: CopyRing,
    feed: Box<dyn Iterator<Item = feed::Commit<'a>> + Send + 'a>,
}

impl<'a> Copier<'a> {
    pub(super) fn new(ring: CopyRing, chunks: &'a [SourceChunk]) -> Copier<'a> {
        Copier { ring, feed: Box::new(feed::one_writer(chunks)) }
    }

    pub(super) fn copy(&mut self, count: usize) {
        self.ring.copy_feed(&mut self.feed, count);
    }
}

/// Two threads with 128 writers each: 64 shards against two.
pub(super) fn many_shards(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = templates::mixed(100);
    let (many, few) = (exact_ring(64 << 20, 64)?, exact_ring(64 << 20, 2)?);
    let mut in_many = [Writers::new(&many, &chunks, 1, 128), Writers::new(&many, &chunks, 129, 128)];
    let mut in_few = [Writers::new(&few, &chunks, 1, 128), Writers::new(&few, &chunks, 129, 128)];
    // Four writers of each CPU that a large machine would have.
    for (rank, writers) in in_many.iter_mut().enumerate() {
        for cpu in 0..32 {
            writers.committer.set_cpu(Some(rank * 32 + cpu));
            writers.commit(4, 1);
        }
        writers.committer.set_cpu(None);
    }
    let used = many.shard_stats().iter().filter(|(stats, _)| stats.chunks_written != 0).count();
    if used != 64 {
        return Err(format!("{used} of 64 shards are used"));
    }
    let fill = options.size(65_536, 1024);
    let commit = |count: usize| move |writers: &mut Writers<'_>| writers.commit(count, 8);
    race(1, &mut in_many, commit(fill));
    race(1, &mut in_few, commit(fill));
    // Short laps, and the mean of the threads' own times, as in the contests above: what takes a
    // core away for a moment hits one of them.
    let (commits, warm_up) = options.size((8192, 512), (512, 8));
    let lap = |buffer: &ShardedBuffer, written: &mut usize, members: &mut [Writers<'_>; 2]| -> LapResult {
        let lap = warm_race(0, commits as u64, members, commit(warm_up), commit(commits));
        *written += 2 * (warm_up + commits);
        check_written(buffer, *written as u64).map(|()| lap)
    };
    let (mut sum_many, mut sum_few) = (256 + 2 * fill, 2 * fill);
    let options = Options { rounds: options.rounds * ROUNDS_FOR_ONE, ..*options };
    let [with_64, with_2] = interleave(
        &options,
        [
            Box::new(|| lap(&many, &mut sum_many, &mut in_many)),
            Box::new(|| lap(&few, &mut sum_few, &mut in_few)),
        ],
    )?;
    let ratios = with_64.values().iter().zip(with_2.values()).map(|(many, few)| few / many).collect();
    Ok(Measurement::ratio("scaling_64_shards", &Series::new(ratios))
        .with("ns_with_64", with_64.median())
        .with("ns_with_2", with_2.median()))
}
