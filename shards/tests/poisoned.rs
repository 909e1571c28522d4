//! A shard whose engine has panicked: what it had is given up and counted, commits to it are
//! refused, reads say so, and the other shards go on.

mod common;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    commit_at, commit_batch, info, is_free, panics, payload, read_all, shared_chunk, shared_memory, watched,
    write_packet,
};
use watershed_engine::Packet;
use watershed_shards::{Batch, Committer, Poisoned, ShardedBuffer, ShardedConfig};

const SHARDS: usize = 4;

fn buffer(has_workers: bool) -> ShardedBuffer {
    let config = ShardedConfig {
        num_shards: Some(SHARDS),
        workers: common::workers(has_workers),
        ..ShardedConfig::ring(4 << 20)
    };
    let buffer = ShardedBuffer::create(config).unwrap();
    assert_eq!(buffer.report().layout.num_shards, SHARDS);
    buffer
}

fn poisoned(buffer: &ShardedBuffer) -> Vec<usize> {
    watched("begin of a read", || drop(buffer.read_pass(write_packet)));
    assert_eq!(buffer.num_poisoned() as usize, buffer.poisoned_list().len());
    buffer.poisoned_list()
}

#[test]
fn a_shard_that_panicked_refuses_and_counts_and_the_others_go_on() {
    for has_workers in [false, true] {
        let buffer = buffer(has_workers);
        let mut committer = buffer.committer().unwrap();
        for id in 0..10 {
            (0..SHARDS).for_each(|cpu| assert!(commit_at(&mut committer, 1 + cpu, cpu, id)));
        }
        // Nearly all memory is the shard's that will panic.
        let mut id = 10;
        while watched("stats", || buffer.stats().chunks_overwritten) == 0 {
            for _ in 0..100 {
                id += 1;
                commit_at(&mut committer, 2, 1, id);
            }
        }
        assert_eq!((poisoned(&buffer), buffer.num_free_extents()), (vec![], 0));
        assert_eq!(buffer.poisoned(), Poisoned::default());
        let before = buffer.shard_stats()[1].1;
        assert!(panics(|| buffer.panic_in_shard(1)));

        let (stats, ledger) = buffer.shard_stats()[1];
        assert!(ledger.is_balanced() && ledger.written == before.written, "{ledger:?}");
        assert_eq!((ledger.damaged, ledger.listed.chunks), (before.listed, 0));
        assert!(buffer.num_free_extents() > 20, "others get its memory");
        for id in 10..20 {
            for cpu in 0..SHARDS {
                let is_taken = commit_at(&mut committer, 1 + cpu, cpu, if cpu == 1 { 1 << 20 } else { id });
                assert_eq!(is_taken, cpu != 1);
            }
        }
        assert_eq!(buffer.shard_stats()[1].0.chunks_discarded, stats.chunks_discarded + 10);
        let copy = buffer.clone_read_only().unwrap();
        let read = read_all(&buffer);
        assert_eq!(read.len(), 20 * (SHARDS - 1));
        assert!(read.iter().all(|got| got.writer_id != 2 && got.loss == 0));
        assert_eq!((poisoned(&buffer), poisoned(&copy)), (vec![1], vec![1]));
        let lost = Poisoned { shards: 1, chunks: before.listed.chunks + 10 };
        assert_eq!((buffer.poisoned(), copy.poisoned()), (lost, lost));
        assert_eq!(read_all(&copy), read);

        // A new sequence gets another home, and one shard may use the memory of all.
        for id in 0..10_000 {
            assert!(commit_at(&mut committer, 100, 1, id));
        }
        let ledger = buffer.ledger();
        assert!(ledger.is_balanced() && ledger.listed.bytes > 3 << 20, "{ledger:?}");
        assert_eq!(buffer.shard_stats()[1].1.listed.chunks, 0);
        buffer.check().unwrap();
    }
}

/// A thread that dies of something else may still use a buffer while it unwinds.
#[test]
fn a_panic_elsewhere_poisons_nothing() {
    struct CommitsAtTheEnd<'a>(&'a ShardedBuffer, Committer);

    impl Drop for CommitsAtTheEnd<'_> {
        fn drop(&mut self) {
            let bytes = payload(&[b"the end".to_vec()]);
            self.1.commit(&mut Batch::of_chunk(info(1, 1, 1, 1, 0), &bytes)).unwrap();
            assert_eq!(self.0.ledger().written.chunks, 2);
        }
    }
    let buffer = buffer(false);
    commit_at(&mut buffer.committer().unwrap(), 1, 0, 0);
    assert!(panics(|| {
        let _last = CommitsAtTheEnd(&buffer, buffer.committer().unwrap());
        resume_unwind(Box::new("elsewhere"));
    }));
    assert_eq!((read_all(&buffer).len(), poisoned(&buffer)), (2, vec![]));
}

/// A sink is called in the middle of an eviction. The rest of the batch in which it panics is
/// discarded, and its chunks are freed.
#[test]
fn chunks_that_were_queued_for_a_shard_that_panics_are_freed() {
    const CHUNKS: u32 = 60;
    let is_armed = Arc::new(AtomicBool::new(false));
    let sink = {
        let is_armed = Arc::clone(&is_armed);
        move |_: &Packet<'_>| match is_armed.swap(false, Ordering::Relaxed) {
            true => resume_unwind(Box::new("broken")),
            false => false,
        }
    };
    let config = ShardedConfig { num_shards: Some(1), ..ShardedConfig::ring(128 << 10) };
    let buffer = ShardedBuffer::create(config).unwrap();
    buffer.set_sink(Box::new(sink));
    let mut committer = buffer.committer().unwrap();
    let smb = shared_memory(64);
    let mut batch = |from: u32, refused: usize| {
        let chunks =
            (0..CHUNKS).map(|page| shared_chunk(&smb, page as usize, (1, 1, from + page), vec![7; 3900]));
        let mut batch = Batch { memory: Some(smb.clone()), chunks: chunks.collect(), ..Batch::default() };
        assert_eq!(commit_batch(&mut committer, &mut batch), refused);
    };
    batch(0, 0);
    let stopped = buffer.stop_shard(0);
    batch(CHUNKS, 0);
    drop(stopped);
    is_armed.store(true, Ordering::Relaxed);
    assert!(panics(|| _ = buffer.ledger()), "the thread that drains the queue evicts");
    let ledger = buffer.ledger();
    assert!(ledger.is_balanced() && ledger.listed.chunks == 0, "{ledger:?}");
    assert!(is_free(&smb, 64));
    batch(2 * CHUNKS, CHUNKS as usize);
    assert!(is_free(&smb, 64));
    assert_eq!(buffer.stats().chunks_discarded, 2 * u64::from(CHUNKS) - 1, "{:?}", buffer.stats());
    assert_eq!((read_all(&buffer), poisoned(&buffer)), (vec![], vec![0]));
}
