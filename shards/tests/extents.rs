//! Extents: who waits for one, who hands one over, and when they are free again.

mod common;

use std::sync::{Arc, Mutex};

use common::log::{Log, commit_all};
use common::{Bytes, info, owned, payload, read_all, round_robin, taken, watched};
use watershed_shards::{Batch, ShardedBuffer};
use watershed_smb::{SharedMemory, Smb};

/// A stopped shard has all extents: what is committed to another one waits, with the memory of its
/// chunks.
#[test]
fn a_batch_that_finds_no_extent_waits_for_one() {
    for is_shared in [false, true] {
        let buffer = round_robin(2, 4);
        let mut committer = buffer.committer().unwrap();
        let mut id = 0;
        let filling = payload(&[vec![7; 4000]]);
        while buffer.num_free_extents() > 0 {
            committer.commit_chunk(&info(1, 1, id, 1, 0), &filling).unwrap();
            id += 1;
        }
        let smb = Smb::new(Arc::new(SharedMemory::anonymous(3 * 4096).unwrap()), 4096).unwrap();
        let mut batch = Batch { memory: is_shared.then(|| smb.clone()), ..Batch::default() };
        for number in 0..3 {
            let bytes = payload(&[vec![b'0' + number as u8; 3]]);
            let source = match is_shared {
                true => taken(&smb, number as usize, 2, number, &bytes),
                false => owned(Bytes(bytes)),
            };
            batch.chunks.push((info(1, 2, number, 1, 0), source));
        }
        let stopped = buffer.stop_shard(0);
        committer.commit(&mut batch).unwrap();
        assert!(batch.is_empty() && batch.memory.is_none());
        drop(stopped);
        let read = read_all(&buffer);
        let of_second: Vec<&[u8]> =
            read.iter().filter(|got| got.writer_id == 2).map(|got| &got.bytes[..]).collect();
        assert_eq!(of_second, [b"000", b"111", b"222"]);
        assert!(read.iter().all(|got| got.writer_id == 1 || got.loss == 0));
        assert!(buffer.ledger().is_balanced());
        let memory = Arc::downgrade(smb.memory());
        drop(smb);
        assert!(memory.upgrade().is_none(), "the memory was dropped");
    }
}

/// All extents are in shard 0, and a chunk for shard 1 is queued. Whatever looks at all shards
/// needs an extent of the first before the second is drained.
#[test]
fn no_operation_holds_the_shard_whose_extent_it_waits_for() {
    type Operation = fn(&ShardedBuffer) -> u64;
    let operations: [(&str, Operation); 3] = [
        ("clone", |buffer| buffer.clone_read_only().unwrap().ledger().written.chunks),
        ("ledger", |buffer| buffer.ledger().written.chunks),
        ("read", |buffer| read_all(buffer).len() as u64),
    ];
    for (name, operation) in operations {
        let buffer = round_robin(2, 4);
        let mut committer = buffer.committer().unwrap();
        let mut written = 0;
        while buffer.num_free_extents() > 0 {
            committer.commit_chunk(&info(1, 1, written, 1, 0), &payload(&[vec![7; 4000]])).unwrap();
            written += 1;
        }
        let mut batch = Batch::of_chunk(info(1, 2, 0, 1, 0), b"\x01.");
        let stopped = [buffer.stop_shard(0), buffer.stop_shard(1)];
        committer.commit(&mut batch).unwrap();
        drop(stopped);
        assert!(watched(name, || operation(&buffer)) > 0);
        assert_eq!(buffer.ledger().written.chunks, u64::from(written) + 1);
    }
}

/// While a chunk is written to the shard that has all extents, one is committed to another shard.
/// The owner of the first hands an extent over when it unlocks, and then comes back for the second:
/// no other operation follows.
#[test]
fn whoever_hands_an_extent_over_drains_the_shard_that_waits_for_it() {
    for path in ["chunk", "batch", "several shards"] {
        let (buffer, log) = (round_robin(2, 4), Log::default());
        let mut committer = buffer.committer().unwrap();
        let mut id = 0;
        while buffer.num_free_extents() > 0 {
            committer.commit_chunk(&info(1, 1, id, 1, 0), &payload(&[vec![7; 4000]])).unwrap();
            id += 1;
        }
        let (other, inner) = (Mutex::new(buffer.committer()), log.clone());
        let also = move || {
            let Some(mut other) = other.lock().unwrap().take() else { return };
            let waiting = |number: u32| (info(1, 2, number, 1, 0), inner.chunk(number).1);
            match path {
                "chunk" => other.commit_chunk(&info(1, 2, 1, 1, 0), b"\x01.").unwrap(),
                "batch" => commit_all(&mut other, vec![waiting(1), waiting(2)]),
                _ => commit_all(&mut other, vec![waiting(1), (info(1, 3, 0, 1, 0), inner.chunk(3).1)]),
            }
            assert_eq!(inner.numbers(), [100], "there is no extent");
        };
        let (_, source) = log.chunk_with(100, also);
        commit_all(&mut committer, vec![(info(1, 1, id, 1, 0), source)]);
        let expected: &[u32] = match path {
            "chunk" => &[100],
            "batch" => &[100, 1, 2],
            _ => &[100, 1, 3],
        };
        let mut drained = log.numbers();
        drained[1..].sort_unstable();
        assert_eq!(drained, expected, "{path}");
        let of_second = read_all(&buffer).iter().filter(|got| got.writer_id == 2).count();
        assert_eq!(of_second, if path == "batch" { 2 } else { 1 }, "{path}");
    }
}

/// Extents whose records were all read are free again, except those that are being filled.
#[test]
fn extents_without_unread_records_are_free() {
    let buffer = round_robin(4, 4);
    let num_extents = buffer.num_free_extents();
    let mut committer = buffer.committer().unwrap();
    for round in 0..5 {
        for id in 0..100 {
            for writer in 1..=8 {
                let chunk = info(1, writer, 100 * round + id, 1, 0);
                committer.commit_chunk(&chunk, &payload(&[vec![writer as u8; 3000]])).unwrap();
            }
        }
        assert!(buffer.num_free_extents() < num_extents / 2);
        assert_eq!(read_all(&buffer).len(), 800, "nothing was evicted");
        assert!(buffer.num_free_extents() + 4 >= num_extents, "{} free", buffer.num_free_extents());
    }
}
