//! Writing: commits into a ring that overwrites.

use crate::measure::{Lap, LapResult, Options, Series, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use crate::suites::shards::team::{Writers, check_written as check_shards, exact_ring};
use crate::workload::feed::{self, Commit};
use crate::workload::rings::{
    CopyRing, SharedBytes, buffer, buffer_in, check_written, commit, commit_bytes, commit_slices, fed_bytes,
    mean_bytes, read_out,
};
use crate::workload::{SourceChunk, fragmented as fragmented_chunks, record_bytes, templates};
use std::hint::black_box;
use watershed_engine::{HugePages, TraceBuffer};

/// Commits of one lap, and the ring they go to.
pub(super) fn sizes(options: &Options) -> (usize, usize) {
    options.size((16_384, 64 << 20), (512, 256 << 10))
}

/// 16,384 commits a lap, one writer, mixed chunks.
pub(super) fn one_writer(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = templates::mixed(100);
    against_memcpy("write_one_writer", options, &chunks, || feed::one_writer(&chunks))
}

/// The same from slices that nobody else can change.
pub(super) fn one_writer_slices(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = templates::mixed(100);
    against("write_one_writer_slices", options, &chunks, || feed::one_writer(&chunks), commit_slices)
}

/// The same from a thousand writers in turns.
pub(super) fn thousand_writers(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = templates::mixed(100);
    against_memcpy("write_thousand_writers", options, &chunks, || feed::thousand_writers(&chunks))
}

/// One writer, whose every third packet spans 2 to 5 chunks.
pub(super) fn fragmented(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = fragmented_chunks::stream(100);
    against_memcpy("write_fragmented", options, &chunks, || feed::one_writer(&chunks))
}

/// One writer, whose chunks arrive in shuffled batches of 8.
pub(super) fn out_of_order(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = templates::mixed(100);
    against_memcpy("write_out_of_order", options, &chunks, || feed::out_of_order(&chunks))
}

pub(super) fn against_memcpy<'a, F: Iterator<Item = Commit<'a>>>(
    name: &str,
    options: &Options,
    chunks: &[SourceChunk],
    feed: impl Fn() -> F,
) -> Result<Measurement, WrongAnswer> {
    against(name, options, chunks, feed, commit)
}

/// Laps of commits into a ring that was filled before, against copies of the same chunks into plain
/// memory.
fn against<'a, F: Iterator<Item = Commit<'a>>>(
    name: &str,
    options: &Options,
    chunks: &[SourceChunk],
    feed: impl Fn() -> F,
    commit: fn(&mut TraceBuffer, &mut F, usize),
) -> Result<Measurement, WrongAnswer> {
    let (commits, ring_bytes) = sizes(options);
    let mut ours = buffer(ring_bytes)?;
    let mut plain = CopyRing::new(ring_bytes, HugePages::Advise)?;
    let (mut our_feed, mut plain_feed) = (feed(), feed());

    let warm_up = warm_up(ring_bytes, chunks);
    commit(&mut ours, &mut our_feed, warm_up);
    plain.copy_feed(&mut plain_feed, warm_up);

    let mut written = warm_up;
    let our_lap = || {
        let (lap, ()) = timed(commits as u64, || commit(&mut ours, &mut our_feed, commits));
        written += commits;
        let bytes = fed_bytes(feed(), written);
        check_written(&ours, written as u64, bytes)?;
        Ok(lap)
    };
    let plain_lap = || Ok(timed(commits as u64, || plain.copy_feed(&mut plain_feed, commits)).0);
    let [our_series, plain_series] = interleave(options, [Box::new(our_lap), Box::new(plain_lap)])?;

    check_newest_are_kept(&mut ours, feed(), written, ring_bytes)?;
    Ok(figure(name, &our_series, &plain_series, mean_bytes(chunks)))
}

/// Chunks of a batch.
const BATCH: usize = 8;

/// Laps of commits of eight chunks each into a buffer of one shard, against copies of the same
/// chunks.
pub(super) fn in_batches(
    name: &str,
    options: &Options,
    chunks: &[SourceChunk],
) -> Result<Measurement, WrongAnswer> {
    let (commits, ring_bytes) = sizes(options);
    let ours = exact_ring(ring_bytes, 1)?;
    let mut writers = Writers::new(&ours, chunks, 1, 1);
    let mut plain = CopyRing::new(ring_bytes, HugePages::Advise)?;
    let mut plain_feed = feed::one_writer(chunks);

    let warm_up = warm_up(ring_bytes, chunks).next_multiple_of(BATCH);
    writers.commit(warm_up, BATCH);
    plain.copy_feed(&mut plain_feed, warm_up);

    let mut written = warm_up;
    let our_lap = || {
        let (lap, ()) = timed(commits as u64, || writers.commit(commits, BATCH));
        written += commits;
        check_shards(&ours, written as u64).map(|()| lap)
    };
    let plain_lap = || Ok(timed(commits as u64, || plain.copy_feed(&mut plain_feed, commits)).0);
    let [our_series, plain_series] = interleave(options, [Box::new(our_lap), Box::new(plain_lap)])?;
    Ok(figure(name, &our_series, &plain_series, mean_bytes(chunks)))
}

/// Commits before the first timed one, for two laps of the ring: so every commit evicts and no page
/// is new.
pub(super) fn warm_up(ring_bytes: usize, chunks: &[SourceChunk]) -> usize {
    let bytes: usize = chunks.iter().map(|chunk| record_bytes(chunk.bytes.len())).sum();
    2 * ring_bytes * chunks.len() / bytes
}

/// Checks that the newest records are read out: at least the packets of the newest chunks that fit
/// the ring with one chunk to spare, at most those of one chunk more.
fn check_newest_are_kept<'a>(
    buffer: &mut TraceBuffer,
    feed: impl Iterator<Item = Commit<'a>>,
    written: usize,
    ring_bytes: usize,
) -> Result<(), WrongAnswer> {
    let listed = usize::try_from(buffer.ledger().listed.chunks).unwrap_or(0);
    let newest: Vec<Commit<'_>> = feed.take(written).skip(written - listed).collect();
    // Of a shuffled batch a chunk that is evicted takes along what comes before it in its sequence.
    let is_late =
        |pair: &[Commit<'_>]| pair[0].writer == pair[1].writer && pair[1].chunk_id < pair[0].chunk_id;
    let batch = if newest.windows(2).any(is_late) { 8 } else { 1 };
    // Wrapping leaves less than one chunk unused at the end, an eviction less than one at the
    // front.
    let kept_bytes: usize = newest.iter().map(|commit| record_bytes(commit.chunk.bytes.len())).sum();
    let largest = newest.iter().map(|commit| record_bytes(commit.chunk.bytes.len())).max().unwrap_or(0);
    if kept_bytes + (2 + batch) * largest < ring_bytes {
        return Err(format!("{listed} chunks of {kept_bytes} bytes are kept in {ring_bytes}"));
    }
    let begun: u64 = newest.iter().map(|commit| u64::from(commit.chunk.packets)).sum();
    let packets = read_out(buffer);
    // Of packets over several chunks one may lack its beginning, and one its end; of a shuffled
    // batch other chunks than the oldest may be overwritten.
    let slack = newest.iter().take(8).map(|commit| u64::from(commit.chunk.packets)).sum::<u64>() + 1;
    if packets + slack < begun || packets > begun + if batch == 1 { 0 } else { slack } {
        return Err(format!("{packets} packets are read, {begun} begin in the {listed} chunks kept"));
    }
    Ok(())
}

fn figure(name: &str, ours: &Series, plain: &Series, mean_chunk_bytes: f64) -> Measurement {
    let gib_per_s = |bytes: f64| bytes / ours.median() * 1e9 / f64::from(1 << 30);
    Measurement::ns_per("chunk", name, ours)
        .with("ratio_to_memcpy", ours.speedup_over(plain))
        .with("memcpy_ns", plain.median())
        .with("nominal_gib_per_s", gib_per_s(4096.0))
        .with("real_gib_per_s", gib_per_s(mean_chunk_bytes))
}

/// One writer, each commit from another address: 40,000 chunks, about 108 MB. Shared memory that
/// another core has written is as cold.
pub(super) fn cold_source(options: &Options) -> Result<Measurement, WrongAnswer> {
    from_cold("write_one_writer_cold_source", options, &templates::mixed(100), options.size(40_000, 1000))
}

/// Commits of one writer from a source of so many chunks, a multiple of the number of `chunks`, one
/// after the other in memory.
pub(super) fn from_cold(
    name: &str,
    options: &Options,
    chunks: &[SourceChunk],
    places: usize,
) -> Result<Measurement, WrongAnswer> {
    let (commits, ring_bytes) = sizes(options);
    let source = Source::new(chunks, places);
    let mut ours = buffer(ring_bytes)?;
    let mut plain = CopyRing::new(ring_bytes, HugePages::Advise)?;
    let (mut our_feed, mut plain_feed) = (source.feed(chunks), source.feed(chunks));
    let mut write = |count: usize| {
        for (chunk, bytes) in our_feed.by_ref().take(count) {
            commit_bytes(&mut ours, &chunk, &SharedBytes(bytes));
        }
        (ours.stats().chunks_written, ours.stats().abi_violations)
    };
    let mut copy = |count: usize| {
        for (_, bytes) in plain_feed.by_ref().take(count) {
            plain.copy(bytes);
        }
        black_box(&plain);
    };
    let warm_up = warm_up(ring_bytes, chunks);
    write(warm_up);
    copy(warm_up);
    let mut written = warm_up;
    let our_lap = || {
        let (lap, (taken, violations)) = timed(commits as u64, || write(commits));
        written += commits;
        expect("chunks_written", taken, written as u64)?;
        expect("abi_violations", violations, 0)?;
        Ok(lap)
    };
    let plain_lap = || Ok(timed(commits as u64, || copy(commits)).0);
    let [our_series, plain_series] = interleave(options, [Box::new(our_lap), Box::new(plain_lap)])?;
    Ok(figure(name, &our_series, &plain_series, mean_bytes(chunks)))
}

/// Many copies of the chunks, one after the other in memory.
struct Source {
    bytes: Vec<u8>,
    /// Where each copy starts.
    starts: Vec<usize>,
}

impl Source {
    fn new(chunks: &[SourceChunk], places: usize) -> Self {
        let mut source = Self { bytes: Vec::new(), starts: Vec::with_capacity(places) };
        for chunk in chunks.iter().cycle().take(places) {
            source.starts.push(source.bytes.len());
            source.bytes.extend(&chunk.bytes);
        }
        source
    }

    fn feed<'a>(&'a self, chunks: &'a [SourceChunk]) -> impl Iterator<Item = (Commit<'a>, &'a [u8])> {
        // The number of places is a multiple of the number of chunks, so both go round together.
        feed::one_writer(chunks).zip(self.starts.iter().cycle()).map(|(commit, start)| {
            let bytes = &self.bytes[*start..][..commit.chunk.bytes.len()];
            (commit, bytes)
        })
    }
}

/// The first commits into new memory, in huge pages and in ordinary ones.
pub(super) fn first_lap(options: &Options) -> Result<Measurement, WrongAnswer> {
    let (_, ring_bytes) = sizes(options);
    let chunks = templates::mixed(100);
    // As many as fit without evicting anything.
    let commits = ring_bytes / 4096;
    let expected_bytes = fed_bytes(feed::one_writer(&chunks), commits);

    // A virtual machine's host may have to find memory for a huge page at its first touch, so as
    // much is mapped, touched and unmapped before.
    let mut warm = CopyRing::new(ring_bytes, HugePages::Advise)?;
    warm.copy_feed(&mut feed::one_writer(&chunks), commits);
    drop(warm);

    let lap_in = |huge_pages: HugePages| -> LapResult {
        let mut fresh = buffer_in(ring_bytes, huge_pages)?;
        let mut feed = feed::one_writer(&chunks);
        let (lap, ()) = timed(commits as u64, || commit(&mut fresh, &mut feed, commits));
        check_written(&fresh, commits as u64, expected_bytes)?;
        Ok(lap)
    };
    let plain_lap_in = |huge_pages: HugePages| -> LapResult {
        let mut fresh = CopyRing::new(ring_bytes, huge_pages)?;
        let mut feed = feed::one_writer(&chunks);
        let (lap, ()): (Lap, ()) = timed(commits as u64, || fresh.copy_feed(&mut feed, commits));
        Ok(lap)
    };
    let [huge, small, plain, plain_small] = interleave(
        options,
        [
            Box::new(|| lap_in(HugePages::Advise)),
            Box::new(|| lap_in(HugePages::No)),
            Box::new(|| plain_lap_in(HugePages::Advise)),
            Box::new(|| plain_lap_in(HugePages::No)),
        ],
    )?;
    Ok(figure("first_lap", &huge, &plain, mean_bytes(&chunks))
        .with("ratio_to_4k_pages", huge.speedup_over(&small))
        .with("memcpy_ratio_to_4k_pages", plain.speedup_over(&plain_small)))
}

fn expect(what: &str, got: u64, expected: u64) -> Result<(), WrongAnswer> {
    if got == expected { Ok(()) } else { Err(format!("{what} is {got}, not {expected}")) }
}
