//! Having a buffer: making one of many shards, keeping it, copying it, and many sequences in it.

use super::overhead::percent_more;
use super::sets::{Sets, options_for_sets};
use super::team::{Writers, alone, check_written, exact_ring};
use crate::measure::{Lap, LapResult, Options, Series, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use crate::workload::rings::touched_pair;
use crate::workload::{SourceChunk, templates};
use std::convert::Infallible;
use std::hint::black_box;
use std::time::Duration;
use watershed_engine::mem::{Region, page_size_bytes};
use watershed_engine::{ChunkFlags, ChunkId, ChunkInfo, HugePages, Packet, ProducerId, WriterId};
use watershed_shards::{Batch, Committer, ShardedBuffer, ShardedConfig, Source};

/// The least that gives each of 1024 shards its eight extents.
const MANY: (usize, usize) = (1 << 30, 1024);

/// Creation of a buffer of 1024 shards; and of buffers as `record` makes them, for which the size
/// must not matter.
pub(super) fn create(options: &Options) -> Result<Measurement, WrongAnswer> {
    let laps = [MANY, (1 << 20, 1), (4 << 30, 2)]
        .map(|(size_bytes, num_shards)| move || create_lap(options.size(16, 1), size_bytes, num_shards));
    let [many, small, large] = interleave(options, laps.map(|lap| Box::new(lap) as _))?;
    Ok(Measurement::microseconds("create_1024_shards", &many)
        .with("us_1mb", small.median() / 1e3)
        .with("us_4gb", large.median() / 1e3))
}

fn create_lap(count: u64, size_bytes: usize, num_shards: usize) -> LapResult {
    let config = ShardedConfig { num_shards: Some(num_shards), ..ShardedConfig::ring(size_bytes) };
    let mut elapsed = Duration::ZERO;
    for _ in 0..count {
        let config = config.clone();
        let (lap, made) = timed(1, || ShardedBuffer::create(config));
        elapsed += lap.elapsed;
        let made = made.map_err(|error| error.to_string())?;
        let layout = made.report().layout;
        if layout.num_shards != num_shards || made.ledger().written.chunks != 0 {
            return Err(format!("a new buffer is {layout:?} and has {:?}", made.ledger()));
        }
        if num_shards > 1 && made.num_free_extents() != layout.num_extents {
            return Err("a new buffer has not all of its extents".into());
        }
    }
    Ok(Lap { elapsed, units: count })
}

/// Memory that the process has more for each untouched shard.
pub(super) fn memory(options: &Options) -> Result<Measurement, WrongAnswer> {
    let count = options.size(32, 2);
    let mut kept = Vec::new();
    let mut samples = Vec::new();
    for _ in 0..options.size(8, 1) {
        let before = resident_bytes()?;
        for _ in 0..count {
            kept.push(exact_ring(MANY.0, MANY.1)?);
        }
        // What is there and not seen is the accuracy of the figure: a page for all of them.
        let bytes = resident_bytes()?.saturating_sub(before).max(4096);
        samples.push(bytes as f64 / (count * MANY.1) as f64);
    }
    drop(kept);
    Ok(Measurement {
        unit: "bytes/shard".into(),
        ..Measurement::ratio("idle_1024_shards", &Series::new(samples))
    })
}

fn resident_bytes() -> Result<usize, WrongAnswer> {
    let text =
        std::fs::read_to_string("/proc/self/statm").map_err(|error| format!("/proc/self/statm: {error}"))?;
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    Ok(pages.ok_or("/proc/self/statm has no resident pages")? * page_size_bytes())
}

/// A clone of a full buffer of eight shards, its own mapping included, against a copy between two
/// regions that are there; and a new mapping of which each page is touched by one thread: the
/// system's part of a clone.
pub(super) fn clone(options: &Options) -> Result<Measurement, WrongAnswer> {
    let full = Full::new(options)?;
    let ring_bytes = full.buffer.size_bytes();
    let (source, mut target) = touched_pair(ring_bytes)?;

    let clone_lap = || -> LapResult {
        let (lap, copy) = timed(1, || full.buffer.clone_read_only());
        full.check(&copy.map_err(|error| error.to_string())?).map(|()| lap)
    };
    let plain_lap = || -> LapResult {
        let (lap, ()) = timed(1, || {
            target.as_mut_slice().copy_from_slice(source.as_slice());
            black_box(target.as_slice());
        });
        Ok(lap)
    };
    let touch = || {
        let mut region = Region::map(ring_bytes, HugePages::Advise)?;
        region.as_mut_slice().iter_mut().step_by(page_size_bytes()).for_each(|byte| *byte = 1);
        Ok::<Region, std::io::Error>(region)
    };
    let touch_lap = || -> LapResult {
        let (lap, region) = timed(1, touch);
        region.map(|_| lap).map_err(|error| error.to_string())
    };
    // Of memory that a virtual machine has not used of late its host takes the pages back, and
    // wants milliseconds for each huge page that is touched then. A few laps' worth of pages are
    // made to be there.
    let warm: Result<Vec<Region>, std::io::Error> = (0..8).map(|_| touch()).collect();
    drop(warm.map_err(|error| error.to_string())?);
    let [ours, plain, touched] =
        interleave(options, [Box::new(clone_lap), Box::new(plain_lap), Box::new(touch_lap)])?;
    Ok(Measurement::microseconds("clone_64mb", &ours)
        .with("ratio_to_memcpy", ours.speedup_over(&plain))
        .with("memcpy_us", plain.median() / 1e3)
        .with("touch_us", touched.median() / 1e3))
}

/// For how long a clone of a full buffer of eight shards holds them, against a copy of as many
/// bytes by one thread, an extent at a time, between regions that are there.
pub(super) fn clone_hold(options: &Options) -> Result<Measurement, WrongAnswer> {
    let full = Full::new(options)?;
    let bytes = full.buffer.ledger().listed.bytes as usize;
    let extent_bytes = full.buffer.report().layout.extent_bytes;
    let (source, mut target) = touched_pair(full.buffer.size_bytes())?;
    let hold_lap = || -> LapResult {
        let copy = full.buffer.clone_read_only().map_err(|error| error.to_string())?;
        full.check(&copy).map(|()| Lap { elapsed: copy.report().held, units: 1 })
    };
    let plain_lap = || -> LapResult {
        let (lap, ()) = timed(1, || {
            let from = source.as_slice()[..bytes].chunks(extent_bytes);
            from.zip(target.as_mut_slice().chunks_mut(extent_bytes))
                .for_each(|(from, to)| to[..from.len()].copy_from_slice(from));
            black_box(target.as_slice());
        });
        Ok(lap)
    };
    let [ours, plain] = interleave(options, [Box::new(hold_lap), Box::new(plain_lap)])?;
    Ok(Measurement::microseconds("clone_hold", &ours)
        .with("ratio_to_memcpy", ours.speedup_over(&plain))
        .with("memcpy_us", plain.median() / 1e3))
}

/// A full buffer of eight shards.
struct Full {
    buffer: ShardedBuffer,
    packets: u64,
}

impl Full {
    fn new(options: &Options) -> Result<Full, WrongAnswer> {
        let ring_bytes = options.size(64 << 20, 8 << 20);
        let chunks = templates::mixed(100);
        let buffer = exact_ring(ring_bytes, 8)?;
        for cpu in 0..8 {
            let mut writers = Writers::new(&buffer, &chunks, 1 + cpu as u16, 1);
            writers.committer.set_cpu(Some(cpu));
            writers.commit(ring_bytes / 1024 / 8, 1);
        }
        let packets = count_packets(&buffer.clone_read_only().map_err(|error| error.to_string())?);
        Ok(Full { buffer, packets })
    }

    fn check(&self, copy: &ShardedBuffer) -> Result<(), WrongAnswer> {
        match (count_packets(copy), self.packets) {
            (packets, expected) if packets == expected => Ok(()),
            (packets, expected) => {
                Err(format!("{packets} packets are in the clone, {expected} in the buffer"))
            }
        }
    }
}

fn count_packets(buffer: &ShardedBuffer) -> u64 {
    let mark = |_: &Packet<'_>, out: &mut Vec<u8>| {
        out.push(1);
        true
    };
    let mut packets = 0;
    let Ok(()) = buffer.read_pass(mark).write_all(|pieces| -> Result<(), Infallible> {
        packets += pieces.size_bytes() as u64;
        Ok(())
    });
    packets
}

/// 100,000 sequences against one, and against a thousand.
pub(super) fn sequences(options: &Options) -> Result<Measurement, WrongAnswer> {
    let (ring_bytes, commits, most) = options.size((64 << 20, 32_768, 100_000), (4 << 20, 512, 4_000));
    let chunks = templates::mixed(100);
    // Every sequence is known and the ring has gone round.
    let warm_up = 2 * most + 2 * ring_bytes / 1024;
    let crowds = |size| Sets::new(|| Crowd::new(ring_bytes, &chunks, size, warm_up));
    let (mut all, mut some, mut one) = (crowds(most)?, crowds(1000)?, crowds(1)?);
    let beside = all.turn().buffer.memory_usage_bytes() - ring_bytes;
    let bound = ring_bytes / 2 + 200 * most;
    if beside > bound {
        return Err(format!("{most} sequences take {beside} bytes beside the ring, more than {bound}"));
    }
    let [with_all, with_some, with_one] = interleave(
        &options_for_sets(options),
        [
            Box::new(|| all.turn().lap(commits)),
            Box::new(|| some.turn().lap(commits)),
            Box::new(|| one.turn().lap(commits)),
        ],
    )?;
    Ok(Measurement::percent("sequences_100k", &percent_more(&with_all, &with_one))
        .with("ns", with_all.median())
        .with("one_ns", with_one.median())
        .with("percent_more_than_1000", percent_more(&with_all, &with_some).median())
        .with("bytes_beside_per_sequence", beside as f64 / most as f64))
}

/// Many sequences in turns, one chunk each, by one thread.
struct Crowd<'a> {
    buffer: ShardedBuffer,
    committer: Committer,
    chunks: &'a [SourceChunk],
    size: usize,
    at: usize,
}

/// Writers of one producer.
const WRITERS: usize = 25_000;

impl<'a> Crowd<'a> {
    fn new(
        ring_bytes: usize,
        chunks: &'a [SourceChunk],
        size: usize,
        warm_up: usize,
    ) -> Result<Crowd<'a>, WrongAnswer> {
        let buffer = exact_ring(ring_bytes, 2)?;
        let committer = buffer.committer().ok_or("no committer")?;
        let mut made = Crowd { buffer, committer, chunks, size, at: 0 };
        made.lap(warm_up)?;
        Ok(made)
    }

    fn lap(&mut self, commits: usize) -> LapResult {
        let lap = alone(commits as u64, self, |crowd| crowd.commit(commits));
        check_written(&self.buffer, self.at as u64).map(|()| lap)
    }

    fn commit(&mut self, count: usize) {
        let mut batch = Batch::default();
        for _ in 0..count {
            let (who, chunk_id) = (self.at % self.size, self.at / self.size);
            let chunk = &self.chunks[self.at % self.chunks.len()];
            self.at += 1;
            let info = ChunkInfo {
                producer_id_trusted: ProducerId(1 + (who / WRITERS) as u32),
                writer_id: WriterId(1 + (who % WRITERS) as u16),
                chunk_id: ChunkId(chunk_id as u32),
                num_fragments: chunk.fragments,
                flags: ChunkFlags(chunk.flags),
                complete: true,
                ..ChunkInfo::default()
            };
            batch.chunks.push((info, Source::Borrowed(&chunk.bytes)));
            self.committer.commit(&mut batch).expect("nobody holds a shard for long");
        }
    }
}
