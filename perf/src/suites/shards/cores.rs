//! As many threads as there are cores, each with a shard of its own, against as many that copy.

use super::scaling::Copier;
use super::team::{Writers, check_written, exact_ring, race, warm_race};
use crate::measure::{Contestant, Options, Series, WrongAnswer, interleave_all};
use crate::report::Measurement;
use crate::workload::rings::CopyRing;
use crate::workload::{SourceChunk, templates};
use watershed_engine::HugePages;

/// Threads of each contest, as far as the machine has cores for them.
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
/// Of the ring, for each thread.
const SHARD_BYTES: usize = 32 << 20;
/// Chunks of one commit.
const BATCH: usize = 8;

/// What 2, 4, 8 and 16 threads do in the time in which one does 1, beside the same ratio of a bare
/// copy. The value is that of the most threads.
pub(super) fn scaling(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let cores = core_affinity::get_core_ids().map_or(1, |ids| ids.len());
    let (possible, missing): (Vec<usize>, Vec<usize>) =
        THREADS.into_iter().partition(|&threads| threads <= cores);
    let chunks = templates::mixed(100);
    let mut contestants: Vec<Contestant<'_>> = Vec::new();
    for &threads in &possible {
        contestants.push(committers(threads, &chunks, options)?);
        contestants.push(copiers(threads, &chunks, options)?);
    }
    let contest = interleave_all(options, contestants)?;
    let scaling = |threads: usize, one: &Series, many: &Series| {
        one.by_round(many, |one, many| threads as f64 * one / many)
    };
    let all = possible.iter().zip(contest.chunks(2)).map(|(&threads, pair)| {
        let ours = scaling(threads, &contest[0], &pair[0]);
        let memcpy = scaling(threads, &contest[1], &pair[1]);
        (threads, pair[0].median(), ours, memcpy)
    });
    let all: Vec<_> = all.collect();
    let mut result = Measurement::ratio(name, &all.last().expect("one thread at least").2);
    for (threads, ns, ours, memcpy) in &all {
        let of_memcpy = ours.by_round(memcpy, |ours, memcpy| ours / memcpy);
        result = result
            .with(&format!("ns_{threads}"), *ns)
            .with(&format!("ratio_{threads}"), ours.median())
            .with(&format!("memcpy_{threads}"), memcpy.median())
            .with(&format!("of_memcpy_{threads}"), of_memcpy.median());
    }
    Ok(missing.iter().fold(result, |result, threads| result.without(&format!("ratio_{threads}"))))
}

/// Commits of a lap, and those that warm up before.
fn lap_commits(options: &Options) -> (usize, usize) {
    options.size((8192, 512), (512, 8))
}

fn committers<'a>(
    threads: usize,
    chunks: &'a [SourceChunk],
    options: &Options,
) -> Result<Contestant<'a>, WrongAnswer> {
    let shard_bytes = options.size(SHARD_BYTES, 2 << 20);
    let ring = exact_ring(threads * shard_bytes, threads)?;
    let mut writers: Vec<_> =
        (0..threads).map(|rank| Writers::new(&ring, chunks, rank as u16 + 1, 1)).collect();
    let commit = |count: usize| move |writers: &mut Writers<'_>| writers.commit(count, BATCH);
    // Every page is there and every commit evicts before anything counts.
    let mut written = 2 * shard_bytes / 1024;
    race(1, &mut writers, commit(written));
    let (commits, warm_up) = lap_commits(options);
    Ok(Box::new(move || {
        let lap = warm_race(0, commits as u64, &mut writers, commit(warm_up), commit(commits));
        written += warm_up + commits;
        check_written(&ring, (threads * written) as u64).map(|()| lap)
    }))
}

fn copiers<'a>(
    threads: usize,
    chunks: &'a [SourceChunk],
    options: &Options,
) -> Result<Contestant<'a>, WrongAnswer> {
    let shard_bytes = options.size(SHARD_BYTES, 2 << 20);
    let copier = || -> Result<Copier<'a>, WrongAnswer> {
        Ok(Copier::new(CopyRing::new(shard_bytes, HugePages::Advise)?, chunks))
    };
    let mut copiers = (0..threads).map(|_| copier()).collect::<Result<Vec<_>, _>>()?;
    let copy = |count: usize| move |copier: &mut Copier<'_>| copier.copy(count);
    race(1, &mut copiers, copy(2 * shard_bytes / 1024));
    let (commits, warm_up) = lap_commits(options);
    Ok(Box::new(move || Ok(warm_race(0, commits as u64, &mut copiers, copy(warm_up), copy(commits)))))
}
