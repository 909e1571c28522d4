//! What a pool of workers does with what one thread hands to it, as the daemon's loop does.

use super::team::{check_written, info, race_on};
use crate::measure::{Contestant, Lap, LapResult, Options, Series, WrongAnswer, interleave_all};
use crate::report::Measurement;
use crate::workload::rings::CopyRing;
use crate::workload::templates::{Shape, filled};
use crate::workload::{CHUNK_PAYLOAD_BYTES, SourceChunk};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use watershed_engine::{BufferConfig, HugePages};
use watershed_shards::{
    Batch, CommitError, Committer, Homes, ShardedBuffer, ShardedConfig, Source, WorkerPool,
};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};

/// Workers of the pools, as far as the machine has cores for them and for the thread that feeds.
const WORKERS: [usize; 3] = [1, 4, 15];
/// Of the ring, for each worker.
const SHARD_BYTES: usize = 32 << 20;
/// Producers for each worker, with one writer each: a worker that is done with one shard finds
/// something in another.
const PRODUCERS: usize = 4;
const PAGE_BYTES: usize = 4096;
/// Chunks of one commit.
const BATCH: usize = 32;
/// As in the service, both.
const PAGES_AHEAD: usize = 8;
const QUEUE_CAPACITY: usize = 256;

/// Pools of 1, 4 and 15 workers, and as many threads that only copy. The value is what the most
/// workers do in the time in which one does 1.
pub(super) fn scaling(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let cores = core_affinity::get_core_ids().map_or(1, |ids| ids.len());
    let (possible, missing): (Vec<usize>, Vec<usize>) =
        WORKERS.into_iter().partition(|&workers| workers == 1 || workers < cores);
    let chunks = filled(&Shape::full(CHUNK_PAYLOAD_BYTES, 50..=500));
    // All shared memory of a producer in one lap: nobody waits for a chunk.
    let smb_bytes = options.size(8 << 20, 1 << 20);
    let feeding: Vec<_> = possible.iter().map(|_| Rc::new(RefCell::new(Vec::new()))).collect();
    let mut contestants: Vec<Contestant<'_>> = Vec::new();
    for (&workers, feed_ns) in possible.iter().zip(&feeding) {
        let (mut pool, feed_ns) = (Pool::new(workers, smb_bytes, &chunks, options)?, Rc::clone(feed_ns));
        contestants.push(Box::new(move || {
            let lap = pool.lap()?;
            feed_ns.borrow_mut().push(pool.fed.as_nanos() as f64 / lap.units as f64);
            Ok(lap)
        }));
        contestants.push(copies(workers, smb_bytes, &chunks)?);
    }
    let contest = interleave_all(options, contestants)?;
    let scaling = |one: &Series, many: &Series| one.by_round(many, |one, many| one / many);
    let most = &contest[contest.len() - 2];
    let mut result = Measurement::ratio(name, &scaling(&contest[0], most));
    for ((workers, feed_ns), pair) in possible.iter().zip(feeding).zip(contest.chunks(2)) {
        let (ours, memcpy) = (scaling(&contest[0], &pair[0]), scaling(&contest[1], &pair[1]));
        let mb_per_s = CHUNK_PAYLOAD_BYTES as f64 * 1e3 / pair[0].median();
        result = result
            .with(&format!("mb_per_s_{workers}"), mb_per_s)
            .with(&format!("ratio_{workers}"), ours.median())
            .with(&format!("memcpy_{workers}"), memcpy.median())
            .with(&format!("of_memcpy_{workers}"), ours.by_round(&memcpy, |a, b| a / b).median())
            .with(&format!("feed_ns_{workers}"), Series::new(feed_ns.take()).median());
    }
    Ok(missing.iter().fold(result, |result, workers| result.without(&format!("ratio_{workers}"))))
}

/// Threads that copy as many chunks, each from memory of its own.
fn copies<'a>(
    workers: usize,
    smb_bytes: usize,
    chunks: &'a [SourceChunk],
) -> Result<Contestant<'a>, WrongAnswer> {
    let num_pages = PRODUCERS * smb_bytes / PAGE_BYTES;
    let copier = || -> Result<Copier, WrongAnswer> {
        let pages = chunks.iter().cycle().take(num_pages).flat_map(|chunk| {
            let mut page = chunk.bytes.clone();
            page.resize(PAGE_BYTES, 0);
            page
        });
        Ok(Copier { ring: CopyRing::new(SHARD_BYTES, HugePages::Advise)?, source: pages.collect() })
    };
    let mut copiers = (0..workers).map(|_| copier()).collect::<Result<Vec<_>, _>>()?;
    // Every page is there before anything counts.
    race_on(0, 1, &mut copiers, Copier::copy);
    let units = (workers * num_pages) as u64;
    Ok(Box::new(move || Ok(race_on(0, units, &mut copiers, Copier::copy))))
}

/// Two of them lie side by side and must not share a cache line.
#[repr(align(128))]
struct Copier {
    ring: CopyRing,
    source: Vec<u8>,
}

impl Copier {
    fn copy(&mut self) {
        for page in self.source.chunks_exact(PAGE_BYTES) {
            self.ring.copy(&page[..CHUNK_PAYLOAD_BYTES]);
        }
    }
}

/// A buffer with its workers, and the producers that fill it.
struct Pool {
    buffer: ShardedBuffer,
    committer: Committer,
    producers: Vec<Producer>,
    written: u64,
    /// What the last lap took the thread that feeds, without its waiting for room.
    fed: Duration,
}

impl Pool {
    fn new(
        num_workers: usize,
        smb_bytes: usize,
        chunks: &[SourceChunk],
        options: &Options,
    ) -> Result<Pool, WrongAnswer> {
        let size_bytes = num_workers * options.size(SHARD_BYTES, 2 << 20);
        let buffer = ShardedBuffer::create(ShardedConfig {
            num_shards: Some(num_workers),
            page_bytes: PAGE_BYTES,
            buffer: BufferConfig::ring(size_bytes),
            workers: Some(WorkerPool::with_threads(num_workers)),
            queue_capacity: QUEUE_CAPACITY,
            homes: Homes::RoundRobin,
            ..ShardedConfig::ring(size_bytes)
        });
        let buffer = buffer.map_err(|error| error.to_string())?;
        let committer = buffer.committer().ok_or("no committer")?;
        let producer = |number: usize| Producer::new(number as u16 + 1, smb_bytes, chunks);
        let producers = (0..PRODUCERS * num_workers).map(producer).collect::<Result<_, _>>()?;
        let mut pool = Pool { buffer, committer, producers, written: 0, fed: Duration::ZERO };
        // Every page is there and every commit evicts before anything counts.
        (0..3).try_for_each(|_| pool.lap().map(drop))?;
        Ok(pool)
    }

    /// All chunks of all producers, which are written before, each by one of as many threads as
    /// there are workers. Lasts until all are free again.
    fn lap(&mut self) -> LapResult {
        let written = std::thread::scope(|scope| {
            let start = |some| scope.spawn(move || write_all(some));
            let threads: Vec<_> = self.producers.chunks_mut(PRODUCERS).map(start).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("it ends"))
        });
        written?;
        let (start, mut waited, mut batch) = (Instant::now(), Duration::ZERO, Batch::default());
        for first in (0..self.producers[0].smb.num_pages()).step_by(BATCH) {
            for producer in &self.producers {
                producer.take(first, &mut batch)?;
                while let Err(error) = self.committer.commit(&mut batch) {
                    let CommitError::QueueFull(_) = error else { return Err(error.to_string()) };
                    let since = Instant::now();
                    std::thread::yield_now();
                    waited += since.elapsed();
                }
            }
        }
        self.fed = start.elapsed() - waited;
        while !self.producers.iter().all(Producer::is_free) {
            std::hint::spin_loop();
        }
        let elapsed = start.elapsed();
        let units = self.producers.iter().map(|producer| producer.smb.num_pages() as u64).sum();
        self.written += units;
        check_written(&self.buffer, self.written).map(|()| Lap { elapsed, units })
    }
}

fn write_all(producers: &mut [Producer]) -> Result<(), WrongAnswer> {
    producers.iter_mut().try_for_each(Producer::write)
}

/// Shared memory whose chunks one writer fills, a page each. Their bytes are written once and stay.
struct Producer {
    smb: Smb,
    chunk: SourceChunk,
    number: u16,
    next_id: u32,
}

impl Producer {
    fn new(number: u16, smb_bytes: usize, chunks: &[SourceChunk]) -> Result<Producer, WrongAnswer> {
        let memory = SharedMemory::anonymous(smb_bytes).map_err(|error| error.to_string())?;
        let smb = Smb::new(Arc::new(memory), PAGE_BYTES).map_err(|error| error.to_string())?;
        let chunk = chunks[usize::from(number) % chunks.len()].clone();
        for page in 0..smb.num_pages() {
            let writing = smb.try_acquire(page, PageLayout::Div1).map_err(|error| error.to_string())?;
            smb.write_payload(&writing, 0, &chunk.bytes);
            smb.abandon(writing).map_err(|error| error.to_string())?;
        }
        Ok(Producer { smb, chunk, number, next_id: 0 })
    }

    /// Completes every chunk.
    fn write(&mut self) -> Result<(), WrongAnswer> {
        for page in 0..self.smb.num_pages() {
            let chunk = self.smb.try_acquire(page, PageLayout::Div1).map_err(|error| error.to_string())?;
            let (chunk_id, writer_id, fragments) = (self.next_id, self.number, self.chunk.fragments);
            let header = ChunkHeader { chunk_id, writer_id, fragments, flags: ChunkFlags::default() };
            self.smb.write_header(&chunk, header);
            self.smb.complete(chunk).map_err(|error| error.to_string())?;
            self.next_id += 1;
        }
        Ok(())
    }

    /// Takes some chunks for reading, as the service does for a commit.
    fn take(&self, first_page: usize, batch: &mut Batch<'_>) -> Result<(), WrongAnswer> {
        batch.memory = Some(self.smb.clone());
        batch.reserve_chunks(BATCH);
        (first_page..).take(PAGES_AHEAD).for_each(|page| self.smb.prefetch_page(page));
        for page in first_page..first_page + BATCH {
            self.smb.prefetch_page(page + PAGES_AHEAD);
            let chunk = self.smb.try_begin_read(page, 0).map_err(|error| error.to_string())?;
            let info = info(self.number, chunk.header().chunk_id, &self.chunk);
            batch.chunks.push((info, Source::Shared(chunk.detach())));
        }
        Ok(())
    }

    /// Whether all chunks are free. They are freed in their order.
    fn is_free(&self) -> bool {
        self.smb.snapshot(self.smb.num_pages() - 1).is_some_and(|page| page.is_free())
    }
}
