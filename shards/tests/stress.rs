//! Threads that come and go, migrate between CPUs, share shards and die in the middle of a commit,
//! while others read and clone. Every packet is numbered and checked once, in order, and the ledger
//! balances at the end.

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::numbered::{Seen, chunk};
use common::{Random, drain, next_bytes, parse, pools, read_in_pool, watched, write_packet};
use watershed_engine::{BufferConfig, ByteSource, ChunkInfo};
use watershed_shards::{Batch, CommitError, Committer, OwnedBytes, ShardedBuffer, ShardedConfig, Source};

fn buffer(size_bytes: usize, num_shards: usize, has_workers: bool) -> ShardedBuffer {
    let buffer = BufferConfig::ring(size_bytes);
    let config = ShardedConfig {
        buffer,
        num_shards: Some(num_shards),
        workers: common::workers(has_workers),
        queue_capacity: 16,
        ..ShardedConfig::ring(size_bytes)
    };
    ShardedBuffer::create(config).unwrap()
}

fn commit_all(committer: &mut Committer, chunks: &[(ChunkInfo, Vec<u8>)]) {
    let mut batch = Batch {
        chunks: chunks.iter().map(|(info, bytes)| (*info, Source::Borrowed(bytes.as_slice()))).collect(),
        ..Batch::default()
    };
    loop {
        match watched("commit", || committer.commit(&mut batch)) {
            Ok(()) => return,
            Err(CommitError::QueueFull(_)) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[cfg(target_os = "linux")]
fn migrate(random: &mut Random) {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if !cores.is_empty() {
        core_affinity::set_for_current(cores[random.below(cores.len() as u64) as usize]);
    }
}

#[cfg(not(target_os = "linux"))]
fn migrate(_random: &mut Random) {}

/// A source that kills the committing thread in the middle of the copy. Copies by other threads
/// succeed and are counted.
struct Deadly {
    bytes: Vec<u8>,
    of: thread::ThreadId,
    served: Arc<AtomicU64>,
}

impl ByteSource for Deadly {
    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        if thread::current().id() == self.of {
            // Without the panic's message: there would be hundreds.
            std::panic::resume_unwind(Box::new("dead"));
        }
        dst.copy_from_slice(&self.bytes[offset_bytes..][..dst.len()]);
        self.served.fetch_add(1, Ordering::Relaxed);
    }
}

/// Commits a whole chunk and then one that kills the thread while it copies. `written` counts what
/// gets into the buffer: the second one too if it was queued, since then another thread copies it.
fn die_in_mid_commit(
    buffer: &ShardedBuffer,
    whole: &(ChunkInfo, Vec<u8>),
    deadly: &(ChunkInfo, Vec<u8>),
    written: &Arc<AtomicU64>,
) {
    written.fetch_add(1, Ordering::Relaxed);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut committer = buffer.committer().unwrap();
            let bytes = deadly.1.clone();
            let deadly_source = Deadly { bytes, of: thread::current().id(), served: Arc::clone(written) };
            let source = Source::Owned(OwnedBytes::new(deadly_source));
            let mut batch = Batch {
                chunks: vec![(whole.0, Source::Borrowed(&whole.1)), (deadly.0, source)],
                ..Batch::default()
            };
            while let Err(CommitError::QueueFull(_)) = committer.commit(&mut batch) {
                thread::yield_now();
            }
        });
        let _ = thread.join();
    });
}

/// One thread: some writers of its own, batches of theirs, sometimes another CPU, sometimes a death
/// in the middle of a commit.
fn live(buffer: &ShardedBuffer, thread: u16, rounds: u32, written: &Arc<AtomicU64>) {
    let mut random = Random(u64::from(thread));
    let mut committer = buffer.committer().unwrap();
    let mut next_ids = [0u32; 6];
    for round in 0..rounds {
        let mut chunks = Vec::new();
        for _ in 0..1 + random.below(4) {
            let writer = random.below(6) as usize;
            chunks.push(chunk(thread.into(), writer as u16 + 1, next_ids[writer]));
            next_ids[writer] += 1;
        }
        written.fetch_add(chunks.len() as u64, Ordering::Relaxed);
        commit_all(&mut committer, &chunks);
        if round % 64 == 0 {
            migrate(&mut random);
        }
        if random.one_in(100) {
            let writer = random.below(6) as usize;
            let id = next_ids[writer];
            let chunks = [0, 1].map(|more| chunk(thread.into(), writer as u16 + 1, id + more));
            die_in_mid_commit(buffer, &chunks[0], &chunks[1], written);
            next_ids[writer] += 2;
        }
        if random.one_in(200) {
            // The thread ends and another one continues its sequences.
            drop(committer);
            committer = buffer.committer().unwrap();
        }
    }
}

fn scale() -> u32 {
    std::env::var("WATERSHED_STRESS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

/// Everything that is asked of a buffer, against itself.
fn look_at_all(buffer: &ShardedBuffer) {
    assert!(buffer.ledger().is_balanced());
    let list = buffer.shard_stats();
    assert_eq!(list.len(), buffer.report().layout.num_shards);
    list.iter().for_each(|(_, ledger)| assert!(ledger.is_balanced()));
    let bytes_written = buffer.stats().bytes_written;
    assert!(buffer.stats().bytes_written >= bytes_written);
    assert!(buffer.has_data() || buffer.ledger().written.chunks == 0);
    assert!(buffer.memory_usage_bytes() >= buffer.size_bytes());
    assert!(buffer.writer_stats().is_sorted_by_key(|stats| (stats.producer_id, stats.writer_id)));
    assert!(buffer.extracted_bytes() < 64 << 20);
}

/// A buffer with work in its queues, of a committer that is gone.
fn half_used(num_shards: usize, has_workers: bool) -> ShardedBuffer {
    let buffer = buffer(num_shards << 20, num_shards, has_workers);
    let stopped = buffer.stop_shard(0);
    let mut committer = buffer.committer().unwrap();
    for id in 0..8 {
        commit_all(&mut committer, &[chunk(1, 1 + id % 5, u32::from(id / 5))]);
    }
    drop(stopped);
    buffer
}

fn stress(num_shards: usize, size_bytes: usize, has_workers: bool) -> ShardedBuffer {
    let buffer = buffer(size_bytes, num_shards, has_workers);
    let (written, is_over) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
    let seen = Mutex::new(Seen::default());
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut passes = 0;
            while !is_over.load(Ordering::Acquire) {
                let pool = pools()[passes / 3 % 3];
                let mut pass = watched("read_pass", || buffer.read_pass(write_packet)).with_pool(pool);
                // Some passes are written by several threads, some in pieces, some given up in the
                // middle.
                let mut bytes = next_bytes(&mut pass, 10_000).unwrap_or_default();
                if passes % 3 == 0 {
                    pass.write_all(|pieces| pieces.write_to(&mut bytes)).unwrap();
                }
                let mut list = parse(&bytes);
                if passes % 3 == 2 {
                    list.extend(drain(&mut pass));
                }
                drop(pass);
                let mut seen = seen.lock().unwrap();
                list.iter().for_each(|got| seen.check(got));
                passes += 1;
                thread::sleep(Duration::from_millis(1));
            }
        });
        scope.spawn(|| {
            for pool in pools().into_iter().cycle() {
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                // Every other time the memory is made ready before.
                let memory = pool.map(|_| watched("clone's memory", || buffer.clone_memory()).unwrap());
                let copy = watched("clone", || buffer.clone_in_memory(buffer.cut(), memory)).unwrap();
                let mut of_copy = HashMap::new();
                for got in read_in_pool(&copy, pool) {
                    let text = String::from_utf8_lossy(&got.bytes).into_owned();
                    let number: u64 = text.split('/').nth(2).unwrap().parse().unwrap();
                    let last = of_copy.insert((got.producer_id, got.writer_id), number);
                    assert!(last.is_none_or(|last| last < number), "order in a copy");
                }
                copy.check().unwrap();
                thread::sleep(Duration::from_millis(3));
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                watched("statistics", || look_at_all(&buffer));
                // A buffer with extents that is freed while others are at work, and work is queued.
                watched("free", || drop(half_used(num_shards, has_workers)));
                thread::sleep(Duration::from_millis(1));
            }
        });
        let writers: Vec<_> = (1..=6)
            .map(|thread| {
                let (buffer, written) = (&buffer, &written);
                scope.spawn(move || live(buffer, thread, scale(), written))
            })
            .collect();
        writers.into_iter().for_each(|thread| thread.join().unwrap());
        is_over.store(true, Ordering::Release);
        reader.join().unwrap();
    });
    let mut seen = seen.into_inner().unwrap();
    let mut rest = Vec::new();
    buffer.read_pass(write_packet).write_all(|pieces| pieces.write_to(&mut rest)).unwrap();
    parse(&rest).iter().for_each(|got| seen.check(got));
    let ledger = buffer.ledger();
    assert!(ledger.is_balanced(), "{ledger:?}");
    assert_eq!(ledger.written.chunks, written.load(Ordering::Relaxed));
    assert_eq!(ledger.listed.chunks, 0, "everything was read or evicted");
    assert_eq!(buffer.extracted_bytes(), 0);
    buffer.check().unwrap();
    if ledger.overwritten.chunks == 0 {
        for (key, next) in &seen.0 {
            assert_eq!(next % 5, 0, "{key:?}: the last chunk came whole");
        }
    }
    buffer
}

#[test]
fn nothing_is_lost_when_nothing_is_evicted() {
    for num_shards in [1, 2, 8] {
        let buffer = stress(num_shards, 64 << 20, false);
        assert_eq!(buffer.ledger().overwritten.chunks, 0);
    }
}

#[test]
fn evictions_are_reported_as_losses() {
    for num_shards in [1, 4] {
        let buffer = stress(num_shards, 4 << 20, false);
        assert_eq!(buffer.report().layout.num_shards, num_shards);
    }
}

#[test]
fn workers_lose_nothing() {
    stress(4, 64 << 20, true);
    stress(4, 4 << 20, true);
}
