//! Statistics that nobody waits for: what they tell of a shard that is busy, and who goes on.

mod common;

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use common::log::{Log, commit_all};
use common::{info, round_robin, wait_until};
use watershed_engine::ChunkInfo;
use watershed_shards::{Batch, ShardedBuffer, ShardedConfig, Source, Statistics, StatsPass, WorkerPool};

/// Without workers the caller drains itself, for one budget a call.
#[test]
fn a_call_drains_for_one_budget() {
    let (buffer, log) = (round_robin(1, 4), Log::default());
    let mut committer = buffer.committer().unwrap();
    let mut pass;
    {
        let _stopped = buffer.stop_shard(0);
        commit_all(&mut committer, (0..100).map(|number| log.chunk(number)).collect());
        pass = buffer.begin_statistics();
        assert!(pass.try_finish().is_none(), "its owner is at work");
    }
    let mut calls = 0;
    let statistics = loop {
        let before = log.numbers().len();
        let finished = pass.try_finish();
        assert!(log.numbers().len() <= before + 32, "{before} and {}", log.numbers().len());
        calls += 1;
        if let Some(statistics) = finished {
            break statistics;
        }
    };
    assert_eq!((calls, statistics.buffer.chunks_written), (4, 100));
    assert_eq!(statistics, buffer.statistics());
    drop(pass);
    commit_all(&mut committer, vec![log.chunk(100)]);
    assert_eq!(log.numbers().len(), 101, "the shard is free");
}

fn with_workers() -> (ShardedBuffer, Receiver<()>) {
    let workers = WorkerPool::with_threads(2);
    let (tell, told) = mpsc::channel();
    workers.on_ready(move || tell.send(()).unwrap());
    let config =
        ShardedConfig { num_shards: Some(3), workers: Some(workers), ..ShardedConfig::ring(4 << 20) };
    (ShardedBuffer::create(config).unwrap(), told)
}

fn commit(buffer: &ShardedBuffer, writer: u16, chunk_ids: std::ops::Range<u32>) {
    let mut committer = buffer.committer().unwrap();
    committer.set_cpu(Some(usize::from(writer)));
    let chunk =
        |id| -> (ChunkInfo, Source<'_>) { (info(1, 1 + writer, id, 1, 0), Source::Borrowed(b"\x01.")) };
    committer.commit(&mut Batch { chunks: chunk_ids.map(chunk).collect(), ..Batch::default() }).unwrap();
}

/// Tries again each time that it is told, and no more often.
fn finish(pass: &mut StatsPass, told: &Receiver<()>) -> Statistics {
    loop {
        told.recv_timeout(Duration::from_secs(20)).expect("who waits is told");
        if let Some(statistics) = pass.try_finish() {
            return statistics;
        }
    }
}

/// Where there are workers, these drain and tell.
#[test]
fn workers_drain_and_tell() {
    let (buffer, told) = with_workers();
    for id in 0..3 {
        let stopped: Vec<_> = (0..3).map(|shard| buffer.stop_worker(shard)).collect();
        (0..3).for_each(|writer| commit(&buffer, writer, 100 * id..100 * (id + 1)));
        let mut pass = buffer.begin_statistics();
        assert!(pass.try_finish().is_none(), "nothing is drained by who asks");
        // Behind the cut.
        commit(&buffer, 0, 1000 + id..1001 + id);
        drop(stopped);
        let written = finish(&mut pass, &told).buffer.chunks_written;
        let before = u64::from(300 * (id + 1) + id);
        assert!(written == before || written == before + 1, "{written} and {before}");
    }
    wait_until("nothing is told without need", || told.recv_timeout(Duration::from_millis(20)).is_err());
}

/// A shard that another thread has locked is left to who asks, in the end.
#[test]
fn a_locked_shard_is_left_to_who_asks() {
    let (buffer, told) = with_workers();
    (0..3).for_each(|writer| commit(&buffer, writer, 0..1));
    wait_until("workers are done", || buffer.statistics().buffer.chunks_written == 3);
    let stopped = buffer.stop_shard(1);
    let (mut pass, mut other) = (buffer.begin_statistics(), buffer.begin_statistics());
    assert!(pass.try_finish().is_none() && other.try_finish().is_none() && pass.try_finish().is_none());
    assert!(told.try_recv().is_err());
    drop(stopped);
    commit(&buffer, 1, 1..2);
    told.recv_timeout(Duration::from_secs(20)).expect("its owner tells");
    drop(other);
    // Another one may have waited by the same bit. A worker may have been faster then.
    assert!((3..=4).contains(&finish(&mut pass, &told).buffer.chunks_written));
}

#[test]
fn who_gives_up_leaves_the_shard_to_workers() {
    for is_unlocked_before in [false, true] {
        let ((buffer, told), log) = (with_workers(), Log::default());
        let mut committer = buffer.committer().unwrap();
        committer.set_cpu(Some(0));
        commit_all(&mut committer, vec![log.chunk(0)]);
        wait_until("a worker comes", || log.numbers() == [0]);
        let mut stopped = Some(buffer.stop_shard(0));
        let mut pass = buffer.begin_statistics();
        assert!(pass.try_finish().is_none());
        commit_all(&mut committer, vec![log.chunk(1)]);
        if is_unlocked_before {
            stopped = None;
            told.recv_timeout(Duration::from_secs(20)).expect("its owner tells");
            assert_eq!(log.numbers(), [0], "the shard is kept for who asks");
        }
        drop(pass);
        drop(stopped);
        commit_all(&mut committer, vec![log.chunk(2)]);
        wait_until("a worker comes", || log.numbers() == [0, 1, 2]);
    }
}

/// Beside threads that commit all the time it comes to its end.
#[test]
fn busy_shards_do_not_starve_who_asks() {
    let (buffer, told) = with_workers();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..3 {
            let (buffer, is_over) = (&buffer, &is_over);
            scope.spawn(move || {
                let mut committer = buffer.committer().unwrap();
                committer.set_cpu(Some(usize::from(writer)));
                for id in 0.. {
                    if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    let chunk = (info(1, 1 + writer, id, 1, 0), Source::Borrowed(b"\x01." as &[u8]));
                    let mut batch = Batch { chunks: vec![chunk], ..Batch::default() };
                    if committer.commit(&mut batch).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
        wait_until("there is something", || buffer.statistics().buffer.chunks_written > 100);
        let mut last = 0;
        for _ in 0..200 {
            let mut pass = buffer.begin_statistics();
            let statistics = pass.try_finish().unwrap_or_else(|| finish(&mut pass, &told));
            assert!(statistics.buffer.chunks_written >= last);
            last = statistics.buffer.chunks_written;
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(buffer.statistics().buffer.chunks_written > 0);
}
