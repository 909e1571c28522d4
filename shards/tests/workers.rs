//! One pool of workers and several buffers: who drains what, and what ends when.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{info, payload, read_all, shared_chunk, wait_until};
use watershed_shards::{Batch, CommitError, Homes, ShardedBuffer, ShardedConfig, Source, WorkerPool};
use watershed_smb::{SharedMemory, Smb};

const PAGES: usize = 64;

fn buffer(workers: &WorkerPool) -> ShardedBuffer {
    ShardedBuffer::create(ShardedConfig {
        num_shards: Some(3),
        workers: Some(workers.clone()),
        queue_capacity: 4,
        ..ShardedConfig::ring(4 << 20)
    })
    .unwrap()
}

fn memory() -> Smb {
    Smb::new(Arc::new(SharedMemory::anonymous(PAGES * 4096).unwrap()), 4096).unwrap()
}

/// What workers did is timed, from the commit on.
#[test]
fn turns_of_workers_are_counted() {
    let workers = WorkerPool::with_threads(1);
    let (buffer, smb) = (buffer(&workers), memory());
    assert_eq!(workers.stats().turns, 0);
    let mut committer = buffer.committer().unwrap();
    let started = Instant::now();
    for id in 0..3 {
        let chunk = shared_chunk(&smb, 0, (1, 1, id), vec![7; 100]);
        let mut batch = Batch { memory: Some(smb.clone()), chunks: vec![chunk], ..Batch::default() };
        committer.commit(&mut batch).unwrap();
        wait_until("the chunk comes free", || smb.snapshot(0).unwrap().is_free());
    }
    wait_until("turns are counted", || workers.stats().turns > 0);
    let stats = workers.stats();
    assert!(stats.turns <= 3 && stats.latency_sum > Duration::ZERO, "{stats:?}");
    assert!(stats.latency_max <= started.elapsed(), "{stats:?}");
}

/// A worker whose budget ends notes what is left while it owns the shard, and another one may come
/// for the note before the unlock: then nobody may forget the shard. Its producer waits for chunks,
/// so nothing is pushed after it.
#[test]
fn what_a_budget_leaves_is_done_by_whoever_is_free() {
    const BATCH: usize = 32;
    let workers = WorkerPool::with_threads(4);
    let buffer = ShardedBuffer::create(ShardedConfig {
        num_shards: Some(4),
        workers: Some(workers),
        homes: Homes::RoundRobin,
        ..ShardedConfig::ring(8 << 20)
    })
    .unwrap();
    let mut committer = buffer.committer().unwrap();
    let memories: Vec<Smb> = (0..16).map(|_| memory()).collect();
    for turn in 0..2000 {
        let pages = (turn * BATCH..).take(BATCH).map(|page| page % PAGES);
        for (producer, smb) in (1..).zip(&memories) {
            let last = pages.clone().last().unwrap();
            wait_until("chunks come free", || smb.snapshot(last).unwrap().is_free());
            let chunk = |(at, page)| {
                let id = (turn * BATCH + at) as u32;
                shared_chunk(smb, page, (producer, 1, id), vec![7; 3000])
            };
            let chunks = pages.clone().enumerate().map(chunk).collect();
            let mut batch = Batch { memory: Some(smb.clone()), chunks, ..Batch::default() };
            while let Err(error) = committer.commit(&mut batch) {
                assert!(matches!(error, CommitError::QueueFull(_)), "{error}");
                thread::yield_now();
            }
        }
    }
    let all_free = |smb: &Smb| (0..PAGES).all(|page| smb.snapshot(page).unwrap().is_free());
    wait_until("all chunks are free", || memories.iter().all(all_free));
}

/// Chunks come free though nobody reads and the committer does not come back.
#[test]
fn one_pool_drains_all_buffers() {
    for num_workers in [1, 3] {
        let workers = WorkerPool::with_threads(num_workers);
        let buffers: Vec<ShardedBuffer> = (0..3).map(|_| buffer(&workers)).collect();
        thread::scope(|scope| {
            for (producer, buffer) in (1..).zip(&buffers) {
                scope.spawn(move || {
                    let (smb, mut committer) = (memory(), buffer.committer().unwrap());
                    for id in 0..500 {
                        let page = id as usize % PAGES;
                        wait_until("a chunk comes free", || smb.snapshot(page).unwrap().is_free());
                        committer.set_cpu(Some(id as usize % 3));
                        let writer = 1 + id as u16 % 3;
                        let chunk = shared_chunk(&smb, page, (producer, writer, id / 3), vec![7; 100]);
                        let mut batch =
                            Batch { memory: Some(smb.clone()), chunks: vec![chunk], ..Batch::default() };
                        while let Err(error) = committer.commit(&mut batch) {
                            assert!(matches!(error, CommitError::QueueFull(_)), "{error}");
                            thread::yield_now();
                        }
                    }
                    wait_until("all chunks are free", || {
                        (0..PAGES).all(|page| smb.snapshot(page).unwrap().is_free())
                    });
                });
            }
        });
        for buffer in &buffers {
            assert_eq!(read_all(buffer).len(), 500);
        }
    }
}

/// What is queued when a buffer is dropped is given back; the pool goes on with the others, and
/// ends with the last that has it.
#[test]
fn a_pool_outlives_its_buffers_and_buffers_their_pool() {
    let workers = WorkerPool::with_threads(2);
    let (first, second) = (buffer(&workers), buffer(&workers));
    let smb = memory();
    let commit = |buffer: &ShardedBuffer, page: usize, id: u32| {
        let chunk = shared_chunk(&smb, page, (1, 1, id), vec![7; 100]);
        let mut batch = Batch { memory: Some(smb.clone()), chunks: vec![chunk], ..Batch::default() };
        buffer.committer().unwrap().commit(&mut batch).unwrap();
    };
    let stopped = (0..3).map(|shard| first.stop_worker(shard)).collect::<Vec<_>>();
    commit(&first, 0, 0);
    wait_until("the workers have looked and left it", || workers.is_idle());
    assert!(!smb.snapshot(0).unwrap().is_free(), "no worker may come");
    drop(stopped);
    wait_until("a worker comes", || smb.snapshot(0).unwrap().is_free());
    let stopped = (0..3).map(|shard| first.stop_worker(shard)).collect::<Vec<_>>();
    commit(&first, 1, 1);
    // As if the workers were busy elsewhere when it is dropped.
    std::mem::forget(stopped);
    drop(first);
    assert!(smb.snapshot(1).unwrap().is_free(), "a dropped buffer gives its chunks back");

    drop(workers);
    commit(&second, 2, 0);
    wait_until("the pool is there as long as a buffer", || smb.snapshot(2).unwrap().is_free());
    drop(second);
}

/// A thread is asked for, however long none was and whichever buffer comes.
#[test]
fn a_buffer_that_comes_later_is_served() {
    let workers = WorkerPool::with_threads(1);
    assert_eq!(workers.num_workers(), 1);
    for _ in 0..3 {
        let (smb, buffer) = (memory(), buffer(&workers));
        wait_until("the worker has done all", || workers.is_idle());
        let mut committer = buffer.committer().unwrap();
        let chunk = shared_chunk(&smb, 0, (1, 1, 0), vec![7; 100]);
        committer
            .commit(&mut Batch { memory: Some(smb.clone()), chunks: vec![chunk], ..Batch::default() })
            .unwrap();
        wait_until("the chunk comes free", || smb.snapshot(0).unwrap().is_free());
        let bytes = payload(&[vec![1; 10]]);
        committer.commit_chunk(&info(1, 2, 0, 1, 0), &bytes).unwrap();
        assert_eq!(read_all(&buffer).len(), 2);
    }
}

/// A committer that finds a queue full sleeps until it is told, and is told each time: by workers
/// or by whoever else drains.
#[test]
fn who_waits_for_room_is_told() {
    for num_workers in [1, 3] {
        let workers = WorkerPool::with_threads(num_workers);
        let (tell, told) = mpsc::channel();
        workers.on_room(move || tell.send(()).unwrap());
        let buffer = buffer(&workers);
        let mut committer = buffer.committer().unwrap();
        let is_done = AtomicBool::new(false);
        let mut waits = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    buffer.drain();
                    thread::yield_now();
                }
            });
            // Until there was enough to see.
            for number in 0.. {
                if number == 20_000 && waits > 100 || number == 2_000_000 {
                    break;
                }
                committer.set_cpu(Some(number % 3));
                let chunk =
                    (info(1, 1 + number as u16 % 3, number as u32 / 3, 1, 0), Source::Borrowed(b"\x01."));
                let mut batch = Batch { chunks: vec![chunk], ..Batch::default() };
                while committer.commit(&mut batch).is_err() {
                    buffer.want_room();
                    if committer.commit(&mut batch).is_ok() {
                        break;
                    }
                    waits += 1;
                    told.recv_timeout(Duration::from_secs(20)).expect("who waits is told");
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
        assert!(waits > 0, "a queue of four batches was never full");
    }
}
