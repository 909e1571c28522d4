//! What is queued while a shard is locked: who drains it, in which order, and how much at a time.

mod common;

use std::sync::Mutex;
use std::time::Duration;

use common::log::{Log, commit_all};
use common::{info, next_bytes, read_all, round_robin, wait_until, write_packet};
use watershed_engine::Packet;
use watershed_shards::{Batch, ShardedBuffer, ShardedConfig};

#[test]
fn a_spent_budget_leaves_the_rest_before_later_batches() {
    for batch_chunks in [1, 7, 32, 100] {
        let (buffer, log) = (round_robin(1, 4), Log::default());
        let mut committer = buffer.committer().unwrap();
        let stopped = buffer.stop_shard(0);
        let numbers: Vec<u32> = (0..100).collect();
        for batch in numbers.chunks(batch_chunks) {
            commit_all(&mut committer, batch.iter().map(|&number| log.chunk(number)).collect());
        }
        drop(stopped);
        assert_eq!(log.numbers(), [], "nothing has been drained");
        buffer.drain_once(0);
        assert_eq!(log.numbers(), numbers[..32], "batches of {batch_chunks}");
        commit_all(&mut committer, vec![log.chunk(100)]);
        assert_eq!(log.numbers(), numbers[..64], "a committer helps for one budget");
        assert_eq!(read_all(&buffer).len(), 101);
        assert!(log.numbers().into_iter().eq(0..=100), "batches of {batch_chunks}");
        assert_eq!(buffer.stats().chunks_committed_out_of_order, 0);
    }
}

/// What a spent budget leaves is done by whoever has nothing else to do, without another commit or
/// read.
#[test]
fn what_is_left_is_done_by_an_idle_thread() {
    let (buffer, log) = (round_robin(1, 4), Log::default());
    let mut committer = buffer.committer().unwrap();
    assert!(!buffer.drain_some(), "there is nothing");
    let stopped = buffer.stop_shard(0);
    commit_all(&mut committer, (0..200).map(|number| log.chunk(number)).collect());
    assert!(!buffer.drain_some(), "its owner is at work");
    drop(stopped);
    commit_all(&mut committer, vec![log.chunk(200)]);
    assert!(log.numbers().len() <= 64, "a committer helps for one budget");
    let mut before = log.numbers().len();
    while buffer.drain_some() {
        let now = log.numbers().len();
        assert!((before + 1..=before + 32).contains(&now), "{before} and {now}");
        before = now;
    }
    assert!(log.numbers().into_iter().eq(0..=200));
}

/// A committer that stops between its ticket and its push holds the cut back: nothing that others
/// commit meanwhile is below it. Whatever looks at the buffer drains none of that, beyond the
/// budget for which everybody helps.
#[test]
fn no_record_above_the_cut_is_drained() {
    type Operation = fn(&ShardedBuffer) -> u64;
    let operations: [(&str, Operation); 5] = [
        ("ledger", |buffer| buffer.ledger().written.chunks),
        ("stats", |buffer| buffer.stats().chunks_written),
        ("clone", |buffer| buffer.clone_read_only().unwrap().ledger().written.chunks),
        ("begin of a read", |buffer| buffer.read_pass(write_packet).unread_bytes().min(3)),
        ("memory", |buffer| 3 * (buffer.memory_usage_bytes() / buffer.size_bytes()) as u64),
    ];
    for (name, operation) in operations {
        let (buffer, log) = (round_robin(1, 4), Log::default());
        let [mut committer, mut late] = [(); 2].map(|()| buffer.committer().unwrap());
        let stopped = buffer.stop_shard(0);
        (0..3).for_each(|number| commit_all(&mut committer, vec![log.chunk(number)]));
        let ticket = late.stop_with_ticket();
        (3..200).for_each(|number| commit_all(&mut committer, vec![log.chunk(number)]));
        drop(stopped);
        assert_eq!(operation(&buffer), 3, "{name} sees what is below the cut");
        let drained = log.numbers();
        assert!(drained.len() <= 3 + 32, "{name}: {} chunks drained", drained.len());
        late.resume_with_ticket(ticket, &mut Batch::of_chunk(info(1, 2, 0, 1, 0), b"\x01.")).unwrap();
        assert_eq!(buffer.ledger().written.chunks, 201);
        assert!(log.numbers().into_iter().eq(0..200), "{name}: in order");
        assert_eq!(buffer.stats().chunks_committed_out_of_order, 0);
    }
}

/// However much others have queued, and wherever: one commit does no more of it than a budget.
#[test]
fn a_commit_helps_others_for_one_budget() {
    const WRITERS: u16 = 4;
    let chunk = |log: &Log, writer: u16, id: u32| {
        let (_, source) = log.chunk(u32::from(writer) << 16 | id);
        (info(1, writer, id, 1, 0), source)
    };
    for case in ["its shard was unlocked", "its queue is full", "while it wrote", "noted in all shards"] {
        let (buffer, log) = (round_robin(WRITERS.into(), 4), Log::default());
        let mut committer = buffer.committer().unwrap();
        let mut others = buffer.committer().unwrap();
        (1..=WRITERS).for_each(|writer| commit_all(&mut committer, vec![chunk(&log, writer, 0)]));
        let (per_batch, num_batches) = if case == "its queue is full" { (1, 256) } else { (7, 30) };
        let mut queue = move |log: &Log, writer: u16| {
            for batch in 0..num_batches {
                let ids = 1 + batch * per_batch..1 + (batch + 1) * per_batch;
                commit_all(&mut others, ids.map(|id| chunk(log, writer, id)).collect());
            }
        };
        let next = (per_batch * num_batches) + 1;
        let done = if case == "while it wrote" {
            let (queue, queued) = (Mutex::new(queue), log.clone());
            let (_, source) = log.chunk_with(0, move || (queue.lock().unwrap())(&queued, 1));
            let before = log.numbers().len();
            commit_all(&mut committer, vec![(info(1, 1, next, 1, 0), source)]);
            log.numbers().len() - before
        } else {
            let writers = if case == "noted in all shards" { 1..=WRITERS } else { 1..=1 };
            for writer in writers {
                let stopped = buffer.stop_shard(usize::from(writer) - 1);
                queue(&log, writer);
                drop(stopped);
                if case == "noted in all shards" {
                    buffer.drain_once(usize::from(writer) - 1);
                }
            }
            let before = log.numbers().len();
            commit_all(&mut committer, vec![chunk(&log, 1, next)]);
            log.numbers().len() - before
        };
        assert!((32..=33).contains(&done), "{case}: {done} chunks in one commit");
        // What is left is done by others, a budget at a time; here nobody reads.
        let mut last = log.numbers().len();
        for id in 1.. {
            commit_all(&mut committer, vec![chunk(&log, 2, next + id)]);
            let now = log.numbers().len();
            assert!(now - last <= 33, "{case}: {} chunks in one commit", now - last);
            if now - last == 1 {
                break;
            }
            last = now;
        }
        let committed = log.numbers().len() as u64;
        assert_eq!(buffer.ledger().written.chunks, committed, "{case}: nothing was left");
    }
}

/// Commits a chunk once, from inside a source or a reader, while its shard is locked.
fn commit_once(buffer: &ShardedBuffer, log: &Log, number: u32) -> impl Fn() + Send + Sync + use<> {
    let (committer, log) = (Mutex::new(buffer.committer()), log.clone());
    move || {
        if let Some(mut committer) = committer.lock().unwrap().take() {
            commit_all(&mut committer, vec![log.chunk(number)]);
            assert!(!log.numbers().contains(&number), "the shard is locked, so it is queued");
        }
    }
}

#[test]
fn an_owner_drains_what_was_queued_meanwhile() {
    // The writer's home is known, or is not.
    for is_known in [true, false] {
        let (buffer, log) = (round_robin(1, 4), Log::default());
        let mut committer = buffer.committer().unwrap();
        if is_known {
            commit_all(&mut committer, vec![log.chunk(0)]);
        }
        let also = commit_once(&buffer, &log, 2);
        commit_all(&mut committer, vec![log.chunk_with(1, also)]);
        let expected = if is_known { vec![0, 1, 2] } else { vec![1, 2] };
        assert_eq!(log.numbers(), expected);
        assert_eq!(read_all(&buffer).len(), expected.len());
    }
}

#[test]
fn a_reader_drains_what_was_queued_meanwhile() {
    let (buffer, log) = (round_robin(2, 4), Log::default());
    commit_all(&mut buffer.committer().unwrap(), vec![log.chunk(0)]);
    let also = commit_once(&buffer, &log, 1);
    let mut pass = buffer.read_pass(|packet: &Packet<'_>, out: &mut Vec<u8>| {
        also();
        write_packet(packet, out)
    });
    assert!(next_bytes(&mut pass, 1).is_some());
    assert_eq!(log.numbers(), [0, 1], "it was drained after the unlock");
    assert!(next_bytes(&mut pass, 1).is_none(), "it is behind the cut");
    drop(pass);
    assert_eq!(read_all(&buffer).len(), 1);
}

#[test]
fn a_worker_is_asked_for_each_time() {
    let workers = common::workers(true);
    let config =
        ShardedConfig { num_shards: Some(2), workers: workers.clone(), ..ShardedConfig::ring(4 << 20) };
    let (buffer, log) = (ShardedBuffer::create(config).unwrap(), Log::default());
    let mut committer = buffer.committer().unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    for number in 0..5 {
        let done = Mutex::new(done.clone());
        let also = move || done.lock().unwrap().send(number).unwrap();
        commit_all(&mut committer, vec![log.chunk_with(number, also)]);
        assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(number));
        wait_until("the workers have done all", || workers.as_ref().unwrap().is_idle());
    }
}
