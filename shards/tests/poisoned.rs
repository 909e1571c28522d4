//! A shard whose engine has panicked: what it had is given up and counted, what comes for it too,
//! reads say so, and the other shards go on.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{info, payload, read_all, watched, write_packet};
use watershed_engine::Packet;
use watershed_shards::{Batch, CommitError, Committer, ShardedBuffer, ShardedConfig, Source};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};

const SHARDS: usize = 4;

fn buffer(has_workers: bool) -> ShardedBuffer {
    let config = ShardedConfig { num_shards: Some(SHARDS), has_workers, ..ShardedConfig::ring(4 << 20) };
    let buffer = ShardedBuffer::create(config).unwrap();
    assert_eq!(buffer.report().layout.num_shards, SHARDS);
    buffer
}

/// Commits a chunk of 1000 bytes whose writer has its home with this CPU.
fn commit(committer: &mut Committer, writer: usize, cpu: usize, id: u32) {
    committer.set_cpu(Some(cpu));
    let chunk = info(1, writer as u16, id, 1, 0);
    let bytes = payload(&[vec![writer as u8; 1000]]);
    loop {
        match watched("commit", || committer.commit_chunk(&chunk, &bytes)) {
            Ok(()) => return,
            Err(CommitError::QueueFull(_)) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn poisoned(buffer: &ShardedBuffer) -> Vec<usize> {
    watched("begin of a read", || buffer.read_pass(write_packet).poisoned().to_vec())
}

fn panics(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

#[test]
fn a_shard_that_panicked_refuses_and_counts_and_the_others_go_on() {
    for has_workers in [false, true] {
        let buffer = buffer(has_workers);
        let mut committer = buffer.committer().unwrap();
        for id in 0..10 {
            (0..SHARDS).for_each(|cpu| commit(&mut committer, 1 + cpu, cpu, id));
        }
        // Nearly all memory is the shard's that will panic.
        let mut id = 10;
        while watched("stats", || buffer.stats().chunks_overwritten) == 0 {
            (0..100).for_each(|_| {
                commit(&mut committer, 2, 1, {
                    id += 1;
                    id
                })
            });
        }
        assert_eq!((poisoned(&buffer), buffer.num_free_extents()), (vec![], 0));
        let before = buffer.shard_stats()[1].1;
        assert!(panics(|| buffer.panic_in_shard(1)));

        let (stats, ledger) = buffer.shard_stats()[1];
        assert!(ledger.is_balanced() && ledger.written == before.written, "{ledger:?}");
        assert_eq!((ledger.damaged, ledger.listed.chunks), (before.listed, 0));
        assert!(buffer.num_free_extents() > 20, "others get its memory");
        for id in 10..20 {
            (0..SHARDS)
                .for_each(|cpu| commit(&mut committer, 1 + cpu, cpu, if cpu == 1 { 1 << 20 } else { id }));
        }
        assert_eq!(buffer.shard_stats()[1].0.chunks_discarded, stats.chunks_discarded + 10);
        let copy = buffer.clone_read_only().unwrap();
        let read = read_all(&buffer);
        assert_eq!(read.len(), 20 * (SHARDS - 1));
        assert!(read.iter().all(|got| got.writer_id != 2 && got.loss == 0));
        assert_eq!((poisoned(&buffer), poisoned(&copy)), (vec![1], vec![1]));
        assert_eq!(read_all(&copy), read);

        // A new sequence gets another home, and one shard may use the memory of all.
        for id in 0..10_000 {
            commit(&mut committer, 100, 1, id);
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
    commit(&mut buffer.committer().unwrap(), 1, 0, 0);
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
    let buffer = ShardedBuffer::create_with_sink(config, Box::new(sink)).unwrap();
    let mut committer = buffer.committer().unwrap();
    let smb = Smb::new(Arc::new(SharedMemory::anonymous(64 * 4096).unwrap()), 4096).unwrap();
    let mut batch = |from: u32| {
        let chunks = (0..CHUNKS).map(|page| {
            let chunk = smb.try_acquire(page as usize, PageLayout::Div1).unwrap();
            let header =
                ChunkHeader { chunk_id: from + page, writer_id: 1, fragments: 1, flags: ChunkFlags::NONE };
            smb.write_header(&chunk, header);
            smb.write_payload(&chunk, 0, &payload(&[vec![7; 3900]]));
            smb.complete(chunk).unwrap();
            let token = smb.try_begin_read(page as usize, 0).unwrap().detach();
            (info(1, 1, from + page, 1, 0), Source::Shared(token))
        });
        let mut batch = Batch { memory: Some(smb.clone()), chunks: chunks.collect(), ..Batch::default() };
        committer.commit(&mut batch).unwrap();
    };
    batch(0);
    let stopped = buffer.stop_shard(0);
    batch(CHUNKS);
    drop(stopped);
    is_armed.store(true, Ordering::Relaxed);
    assert!(panics(|| _ = buffer.ledger()), "the thread that drains the queue evicts");
    let ledger = buffer.ledger();
    assert!(ledger.is_balanced() && ledger.listed.chunks == 0, "{ledger:?}");
    assert!((0..64).all(|page| smb.snapshot(page).unwrap().is_free()));
    batch(2 * CHUNKS);
    assert_eq!(buffer.stats().chunks_discarded, 2 * u64::from(CHUNKS) - 1, "{:?}", buffer.stats());
    assert_eq!((read_all(&buffer), poisoned(&buffer)), (vec![], vec![0]));
}
