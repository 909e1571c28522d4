//! Sequences that leave and come back: all that is unread of one is in one shard, whatever
//! committers remember.

mod common;

use std::sync::Arc;

use common::{commit_batch, info, payload, read_all};
use watershed_engine::{ChunkInfo, ProducerId, WriterId};
use watershed_shards::{Batch, Committer, Homes, ShardedBuffer, ShardedConfig, Source};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};

/// A buffer of two shards, and committers for the CPUs of both.
fn buffer() -> (ShardedBuffer, [Committer; 2]) {
    let config = ShardedConfig { num_shards: Some(2), ..ShardedConfig::ring(4 << 20) };
    let buffer = ShardedBuffer::create(config).unwrap();
    assert_eq!(buffer.report().layout.num_shards, 2);
    let committers = [0, 1].map(|cpu| {
        let mut committer = buffer.committer().unwrap();
        committer.set_cpu(Some(cpu));
        committer
    });
    (buffer, committers)
}

/// How many chunks each shard has got.
fn written(buffer: &ShardedBuffer) -> Vec<u64> {
    buffer.shard_stats().iter().map(|(stats, _)| stats.chunks_written).collect()
}

fn body(id: u32) -> Vec<u8> {
    payload(&[id.to_le_bytes().to_vec()])
}

fn commit(committer: &mut Committer, id: u32) {
    committer.commit_chunk(&info(1, 1, id, 1, 0), &body(id)).unwrap();
}

/// Two chunks in one batch, of one writer or of two.
fn commit_two(committer: &mut Committer, writers: [u16; 2], ids: [u32; 2]) {
    let bodies = ids.map(body);
    let chunk = |n: usize| (info(1, writers[n], ids[n], 1, 0), Source::Borrowed(&bodies[n][..]));
    committer.commit(&mut Batch { chunks: vec![chunk(0), chunk(1)], ..Batch::default() }).unwrap();
}

/// A chunk in shared memory that was taken for reading.
fn commit_shared(committer: &mut Committer, id: u32) {
    let smb = Smb::new(Arc::new(SharedMemory::anonymous(4096).unwrap()), 4096).unwrap();
    let chunk = smb.try_acquire(0, PageLayout::Div1).unwrap();
    let header = ChunkHeader { chunk_id: id, writer_id: 1, fragments: 1, flags: ChunkFlags::NONE };
    smb.write_header(&chunk, header);
    smb.write_payload(&chunk, 0, &body(id));
    smb.complete(chunk).unwrap();
    let token = smb.try_begin_read(0, 0).unwrap().detach();
    let chunks = vec![(info(1, 1, id, 1, 0), Source::Shared(token))];
    committer.commit(&mut Batch { memory: Some(smb), chunks, ..Batch::default() }).unwrap();
}

/// Producer 1 has ended and all was read.
fn end(buffer: &ShardedBuffer, committer: &mut Committer) {
    committer.commit(&mut Batch { ended_producers: vec![ProducerId(1)], ..Batch::default() }).unwrap();
    read_all(buffer);
    // Every owner of a shard releases the homes of sequences that have left.
    buffer.ledger();
}

/// Sequences whose numbers differ in the upper half only are told apart, and leave alone.
#[test]
fn a_sequence_is_known_until_it_has_ended_and_was_read() {
    let (buffer, [mut committer, _]) = buffer();
    let producers = [1, 1 + (1 << 16)].map(ProducerId);
    let known = |buffer: &ShardedBuffer| producers.map(|id| buffer.has_sequence(id, WriterId(1)));
    assert_eq!(known(&buffer), [false, false]);
    commit(&mut committer, 0);
    assert_eq!(known(&buffer), [true, false]);
    committer.commit_chunk(&info(producers[1].0, 1, 0, 1, 0), &body(0)).unwrap();
    end(&buffer, &mut committer);
    assert_eq!(known(&buffer), [false, true]);
}

#[test]
fn a_committer_that_knows_an_old_home_finds_the_new_one() {
    let commits: [fn(&mut Committer); 4] = [
        |committer| commit(committer, 2),
        |committer| commit_two(committer, [1, 1], [2, 3]),
        |committer| commit_two(committer, [2, 1], [2, 3]),
        |committer| commit_shared(committer, 2),
    ];
    for (case, commit_again) in (0..2 * commits.len()).map(|case| (case, commits[case / 2])) {
        let (buffer, [mut first, mut second]) = buffer();
        commit_two(&mut first, [2, 1], [0, 0]);
        commit(&mut first, 1);
        assert_eq!(written(&buffer), [3, 0]);
        end(&buffer, &mut second);
        commit_two(&mut second, [2, 1], [0, 1]);
        assert_eq!(written(&buffer), [3, 2], "the homes were chosen again");
        // The old home may be locked: then a chunk for it would be queued.
        let stopped = (case % 2 == 1).then(|| buffer.stop_shard(0));
        commit_again(&mut first);
        drop(stopped);
        assert_eq!(written(&buffer)[0], 3, "nothing came to the old home, case {case}");
        assert!(read_all(&buffer).iter().all(|got| got.loss == 0 || got.bytes[0] > 1), "case {case}");
    }
}

/// A home is removed when no committer can be about to push to it. If the sequence comes back
/// before, it keeps the home.
#[test]
fn a_sequence_that_comes_back_while_it_leaves_stays() {
    let (buffer, [mut first, mut second]) = buffer();
    commit(&mut first, 0);
    let mut slow = buffer.committer().unwrap();
    slow.set_cpu(Some(1));
    // A committer that has a ticket may have looked for a home.
    let ticket = slow.stop_with_ticket();
    end(&buffer, &mut first);
    commit(&mut second, 0);
    let bytes = body(0);
    slow.resume_with_ticket(ticket, &mut Batch::of_chunk(info(2, 1, 0, 1, 0), &bytes)).unwrap();
    buffer.ledger();
    commit(&mut second, 1);
    assert_eq!(written(&buffer), [3, 1], "all of the sequence is in its old home");
    assert!(read_all(&buffer).iter().all(|got| got.loss == 0));
}

/// In the place of another buffer, also one of fewer shards, a sequence's home has what is
/// remembered of it. What was queued in the other one counts.
#[test]
fn a_buffer_that_takes_the_place_of_another_goes_on_with_its_sequences() {
    for (num_shards, has_workers) in [(4, false), (4, true), (1, false), (3, true)] {
        let ring = |num_shards| ShardedConfig {
            num_shards: Some(num_shards),
            homes: Homes::RoundRobin,
            workers: common::workers(has_workers),
            ..ShardedConfig::ring(4 << 20)
        };
        let [old, new] = [4, num_shards].map(|num_shards| ShardedBuffer::create(ring(num_shards)).unwrap());
        let commit = |buffer: &ShardedBuffer, bodies: &[u8], complete: bool| {
            let bytes = payload(&bodies.iter().map(|body| vec![*body]).collect::<Vec<_>>());
            // Of a chunk that is not complete the last fragment is still being written.
            let num_fragments = bodies.len() + usize::from(!complete);
            let info = |writer| ChunkInfo { complete, ..info(1, writer, 7, num_fragments, 0) };
            let chunks = (1..=40).map(|writer| (info(writer), Source::Borrowed(&bytes[..]))).collect();
            let mut committer = buffer.committer().unwrap();
            assert_eq!(commit_batch(&mut committer, &mut Batch { chunks, ..Batch::default() }), 0);
        };
        commit(&old, &[1, 2], false);
        new.remember_from(&old);
        assert!(!new.has_data() && new.has_sequence(ProducerId(1), WriterId(40)));
        commit(&new, &[1, 2, 3], true);
        let read = |buffer| read_all(buffer).into_iter().map(|got| (got.loss, got.bytes)).collect::<Vec<_>>();
        assert_eq!(read(&new), vec![(0, vec![3]); 40], "{num_shards} shards, workers: {has_workers}");
        assert_eq!(read(&old).len(), 80);
    }
}
