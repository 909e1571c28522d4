//! Two threads whose sequences have their home in one shard.

use super::team::{Writers, check_written, exact_ring, race, warm_race};
use crate::measure::{LapResult, Options, WrongAnswer, interleave};
use crate::report::Measurement;
use crate::workload::templates;

/// Two threads commit chunk by chunk to a buffer of one shard, against one that commits as many to
/// another. What a thread cannot write itself it hands over, and the other one writes it.
pub(super) fn two(options: &Options) -> Result<Measurement, WrongAnswer> {
    let ring_bytes = options.size(64 << 20, 2 << 20);
    let chunks = templates::mixed(100);
    let (alone, shared) = (exact_ring(ring_bytes, 1)?, exact_ring(ring_bytes, 1)?);
    let mut one = [Writers::new(&alone, &chunks, 1, 1)];
    let mut pair = [Writers::new(&shared, &chunks, 1, 1), Writers::new(&shared, &chunks, 2, 1)];
    let commit = |count: usize| move |writers: &mut Writers<'_>| writers.commit(count, 1);
    // Every commit evicts before anything counts.
    let fill = 2 * ring_bytes / 1024;
    race(1, &mut one, commit(fill));
    race(1, &mut pair, commit(fill));
    let (commits, warm_up) = options.size((8192, 512), (512, 8));
    let (mut written_alone, mut written) = (fill, 2 * fill);
    let one_lap = || -> LapResult {
        let lap = warm_race(0, 2 * commits as u64, &mut one, commit(warm_up), commit(2 * commits));
        written_alone += warm_up + 2 * commits;
        check_written(&alone, written_alone as u64).map(|()| lap)
    };
    let pair_lap = || -> LapResult {
        let lap = warm_race(0, 2 * commits as u64, &mut pair, commit(warm_up), commit(commits));
        written += 2 * (warm_up + commits);
        check_written(&shared, written as u64).map(|()| lap)
    };
    let [single, both] = interleave(options, [Box::new(one_lap), Box::new(pair_lap)])?;
    Ok(Measurement::ns_per("chunk", "write_two_in_one_shard", &both)
        .with("ratio_to_one_thread", both.speedup_over(&single))
        .with("one_thread_ns", single.median()))
}
