//! What one thread pays for the shards, and what a queued chunk pays for its way.

use super::sets::{Sets, options_for_sets};
use super::team::{Feed, Writers, alone, check_written, exact_ring, info};
use crate::measure::{Lap, LapResult, Options, Series, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use crate::workload::rings::{buffer, check_written as check_engine, fed_bytes};
use crate::workload::{SourceChunk, feed, templates};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use watershed_engine::{ByteSource, ChunkInfo, TraceBuffer};
use watershed_shards::{Batch, ShardedBuffer, ShardedConfig, Source};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, Payload, ReadToken, Reads, SharedMemory, Smb};

/// One thread and one writer: two shards of 64 MiB, and the bare engine with as much.
pub(super) fn single_thread(options: &Options) -> Result<Measurement, WrongAnswer> {
    let (ring_bytes, commits) = options.size((64 << 20, 32_768), (2 << 20, 512));
    let chunks = templates::mixed(100);
    let warm_up = 2 * ring_bytes / 1024;
    let mut singles = Sets::new(|| InShards::new(ring_bytes, &chunks, 1, warm_up))?;
    let mut batches = Sets::new(|| InShards::new(ring_bytes, &chunks, 8, warm_up))?;
    let mut engines = Sets::new(|| InEngine::new(ring_bytes, &chunks, warm_up))?;
    let [ours, in_batches, engine] = interleave(
        &options_for_sets(options),
        [
            Box::new(|| singles.turn().lap(commits)),
            Box::new(|| batches.turn().lap(commits)),
            Box::new(|| engines.turn().lap(commits)),
        ],
    )?;
    let percent = percent_more(&ours, &engine);
    Ok(Measurement::percent("single_thread_overhead", &percent)
        .with("ns", ours.median())
        .with("engine_ns", engine.median())
        .with("percent_in_batches_of_8", percent_more(&in_batches, &engine).median()))
}

/// A sharded buffer and its writer, who commits so many chunks at once.
struct InShards<'a> {
    buffer: ShardedBuffer,
    writers: Writers<'a>,
    batch: usize,
    committed: usize,
}

impl<'a> InShards<'a> {
    fn new(
        ring_bytes: usize,
        chunks: &'a [SourceChunk],
        batch: usize,
        warm_up: usize,
    ) -> Result<InShards<'a>, WrongAnswer> {
        let buffer = exact_ring(ring_bytes, 2)?;
        let writers = Writers::new(&buffer, chunks, 1, 1);
        let mut made = InShards { buffer, writers, batch, committed: 0 };
        made.lap(warm_up)?;
        Ok(made)
    }

    fn lap(&mut self, commits: usize) -> LapResult {
        let batch = self.batch;
        let lap = alone(commits as u64, &mut self.writers, |writers| writers.commit(commits, batch));
        self.committed += commits;
        check_written(&self.buffer, self.committed as u64).map(|()| lap)
    }
}

/// The bare engine, from the same feed, so that the difference is the buffers'.
struct InEngine<'a> {
    subject: (TraceBuffer, Feed<'a>),
    chunks: &'a [SourceChunk],
    committed: usize,
}

impl<'a> InEngine<'a> {
    fn new(
        ring_bytes: usize,
        chunks: &'a [SourceChunk],
        warm_up: usize,
    ) -> Result<InEngine<'a>, WrongAnswer> {
        let subject = (buffer(ring_bytes)?, Feed::new(chunks, 1, 1));
        let mut made = InEngine { subject, chunks, committed: 0 };
        made.lap(warm_up)?;
        Ok(made)
    }

    fn lap(&mut self, commits: usize) -> LapResult {
        let lap = alone(commits as u64, &mut self.subject, |(buffer, feed)| {
            for _ in 0..commits {
                let (info, bytes) = feed.next();
                let _ = black_box(buffer.copy_chunk_untrusted(&info, &bytes));
            }
        });
        self.committed += commits;
        let fed = fed_bytes(feed::one_writer(self.chunks), self.committed);
        check_engine(&self.subject.0, self.committed as u64, fed).map(|()| lap)
    }
}

/// How much more time `ours` takes than `theirs`, by round.
pub(super) fn percent_more(ours: &Series, theirs: &Series) -> Series {
    let pairs = ours.values().iter().zip(theirs.values());
    Series::new(pairs.map(|(ours, theirs)| (ours / theirs - 1.0) * 100.0).collect())
}

/// Chunks that wait in the queue before they are taken, and how often that is done in a lap.
const HANDED: usize = 256;
const TURNS: usize = 16;
/// Overwritten by the lap that warms up, and in the cache.
const SMALL_RING: usize = 128 << 10;

/// The time of a small chunk from shared memory that goes through a shard's queue, `batch` to an
/// item, less the time of the bare engine for it, which frees as many chunks together as are in a
/// batch: announcement, ticket, home, queue, ownership, and the reference to the memory that a
/// queued batch carries along. Put and taken on one core, where the memory of queue and chunk is at
/// hand.
pub(super) fn hand_off(name: &str, batch: usize, options: &Options) -> Result<Measurement, WrongAnswer> {
    let pages = Pages::new(HANDED.div_ceil(14))?;
    let config =
        ShardedConfig { num_shards: Some(1), queue_capacity: HANDED, ..ShardedConfig::ring(SMALL_RING) };
    let sharded = ShardedBuffer::create(config).map_err(|error| error.to_string())?;
    let mut committer = sharded.committer().ok_or("no committer")?;
    let mut bare = buffer(SMALL_RING)?;
    let mut reads = Reads::new();
    reads.take_up(pages.smb.clone());
    let (mut handed, mut passed) = (0, 0);
    let mut queue = || -> LapResult {
        let mut batches = pages.batches(handed, batch)?;
        let (lap, result) = timed(HANDED as u64, || {
            let held = sharded.stop_shard(0);
            let result = batches.iter_mut().try_for_each(|batch| committer.commit(batch));
            drop(held);
            // Whoever looks at a shard drains it first.
            (result, sharded.ledger())
        });
        result.0.map_err(|error| error.to_string())?;
        handed += HANDED as u32;
        check_written(&sharded, handed.into()).map(|()| lap)
    };
    let mut pass = || -> LapResult {
        let chunks = pages.chunks(passed)?;
        let mut commit = |info: &ChunkInfo, payload: Payload<'_>| {
            let _ = black_box(bare.copy_chunk_untrusted(info, &InPage(payload)));
        };
        let (lap, ()) = timed(HANDED as u64, || match batch {
            1 => {
                chunks.into_iter().for_each(|(info, token)| commit(&info, pages.smb.attach(token).payload()))
            }
            _ => chunks.chunks(batch).for_each(|chunks| {
                for (info, token) in chunks {
                    reads.attach(token).into_iter().for_each(|chunk| commit(info, chunk.payload()));
                }
                reads.free();
            }),
        });
        passed += HANDED as u32;
        match bare.stats().chunks_written {
            written if written == u64::from(passed) => Ok(lap),
            written => Err(format!("{written} chunks are written, not {passed}")),
        }
    };
    let contest = Both(|| turns(&mut queue), || turns(&mut pass));
    let [queued, direct] = on_a_core(move || contest.run(options))?;
    let costs = queued.values().iter().zip(direct.values()).map(|(queued, direct)| queued - direct).collect();
    Ok(Measurement::ns_per("chunk", name, &Series::new(costs))
        .with("queued_ns", queued.median())
        .with("engine_ns", direct.median()))
}

/// One lap out of many short ones.
fn turns(lap: &mut impl FnMut() -> LapResult) -> LapResult {
    let mut sum = Lap { elapsed: Duration::ZERO, units: 0 };
    for _ in 0..TURNS {
        let Lap { elapsed, units } = lap()?;
        sum = Lap { elapsed: sum.elapsed + elapsed, units: sum.units + units };
    }
    Ok(sum)
}

/// Two laps that go to another thread together.
pub(super) struct Both<A, B>(pub(super) A, pub(super) B);

impl<A: FnMut() -> LapResult, B: FnMut() -> LapResult> Both<A, B> {
    pub(super) fn run(self, options: &Options) -> Result<[Series; 2], WrongAnswer> {
        interleave(options, [Box::new(self.0), Box::new(self.1)])
    }
}

/// Pages of shared memory whose small chunks are taken for reading again and again.
struct Pages {
    smb: Smb,
    chunk: SourceChunk,
}

const PAGE_BYTES: usize = 4096;

impl Pages {
    fn new(count: usize) -> Result<Pages, WrongAnswer> {
        let memory = SharedMemory::anonymous(count * PAGE_BYTES).map_err(|error| error.to_string())?;
        let smb = Smb::new(Arc::new(memory), PAGE_BYTES).map_err(|error| error.to_string())?;
        // Copying is next to nothing.
        let bytes = [3, b'a', b'b', b'c'].repeat(4);
        Ok(Pages { smb, chunk: SourceChunk { bytes, fragments: 4, packets: 4, flags: 0 } })
    }

    /// Chunks as a producer left them and the service took them.
    fn chunks(&self, first_id: u32) -> Result<Vec<(ChunkInfo, ReadToken)>, WrongAnswer> {
        let chunk = |n: usize| {
            let chunk_id = first_id.wrapping_add(n as u32);
            let token = self.take(n / 14, chunk_id).map_err(|refused| refused.to_string())?;
            Ok((info(1, chunk_id, &self.chunk), token))
        };
        (0..HANDED).map(chunk).collect()
    }

    /// The same in batches, each with a reference to the memory.
    fn batches(&self, first_id: u32, batch: usize) -> Result<Vec<Batch<'static>>, WrongAnswer> {
        let mut batches: Vec<Batch<'static>> = Vec::new();
        for (n, (info, token)) in self.chunks(first_id)?.into_iter().enumerate() {
            if n % batch == 0 {
                batches.push(Batch { memory: Some(self.smb.clone()), ..Batch::default() });
            }
            let chunks = &mut batches.last_mut().ok_or("a batch of nothing")?.chunks;
            chunks.push((info, Source::Shared(token)));
        }
        Ok(batches)
    }

    fn take(&self, page: usize, chunk_id: u32) -> Result<ReadToken, Box<dyn std::error::Error>> {
        let chunk = self.smb.try_acquire(page, PageLayout::Div14)?;
        let place = (chunk.page(), chunk.index());
        let fragments = self.chunk.fragments;
        let flags = ChunkFlags::default();
        self.smb.write_header(&chunk, ChunkHeader { chunk_id, writer_id: 1, fragments, flags });
        self.smb.write_payload(&chunk, 0, &self.chunk.bytes);
        self.smb.complete(chunk)?;
        Ok(self.smb.try_begin_read(place.0, place.1)?.detach())
    }
}

/// A chunk in shared memory as the engine takes it.
struct InPage<'a>(watershed_smb::Payload<'a>);

impl ByteSource for InPage<'_> {
    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        self.0.copy_range(offset_bytes, dst);
    }

    #[inline]
    fn shared_bytes(&self) -> Option<watershed_engine::SharedBytes<'_>> {
        self.0.shared_bytes()
    }
}

/// Runs `work` on a thread that is pinned to the last core.
pub(super) fn on_a_core<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    on_core(0, work)
}

/// Runs `work` on a thread that is pinned to core number `rank`, counted from the last.
pub(super) fn on_core<T: Send>(rank: usize, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let cores = core_affinity::get_core_ids().unwrap_or_default();
            cores.iter().rev().cycle().nth(rank).copied().map(core_affinity::set_for_current);
            work()
        });
        thread.join().expect("the work ends")
    })
}
