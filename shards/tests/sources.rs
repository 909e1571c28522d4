//! Where chunks come from, for buffers of one thread.

mod common;

use std::sync::Arc;

use common::{Bytes, info, owned, payload, read_all, write_packet};
use watershed_shards::{Batch, CommitError, Committer, Homes, ShardedBuffer, ShardedConfig, Source};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};

fn ring(num_shards: usize) -> ShardedBuffer {
    let config =
        ShardedConfig { num_shards: Some(num_shards), homes: Homes::InTurn, ..ShardedConfig::ring(16 << 20) };
    ShardedBuffer::create(config).unwrap()
}

/// A chunk that is still being written is taken as it is at the commit, also where it has to wait in a queue, and stays its writer's.
#[test]
fn a_scraped_chunk_is_copied_before_the_commit_returns() {
    for waits in [false, true] {
        let buffer = ring(1);
        let mut committer = buffer.committer().unwrap();
        let smb = Smb::new(Arc::new(SharedMemory::anonymous(4096).unwrap()), 4096).unwrap();
        let chunk = smb.try_acquire(0, PageLayout::Div1).unwrap();
        let bytes = payload(&[b"first".to_vec(), b"second".to_vec()]);
        smb.write_payload(&chunk, 0, &bytes);
        smb.write_header(
            &chunk,
            ChunkHeader { chunk_id: 0, writer_id: 1, fragments: 2, flags: ChunkFlags::NONE },
        );
        let stopped = waits.then(|| buffer.stop_shard(0));
        let found = smb.scrape().next().unwrap();
        assert!(!found.is_complete());
        let mut info = info(1, 1, 0, 2, 0);
        info.complete = false;
        let mut batch = Batch { chunks: vec![(info, Source::Scraped(found.payload()))], ..Batch::default() };
        committer.commit(&mut batch).unwrap();
        smb.write_payload(&chunk, 0, &[0xff; 64]);
        drop(stopped);
        let read = read_all(&buffer);
        assert_eq!(read.iter().map(|packet| &packet.bytes[..]).collect::<Vec<_>>(), [b"first"], "{waits}");
        smb.complete(chunk).expect("its writer still has it");
    }
}

/// Chunks that were taken for reading are copied from the memory that the batch names, at once or out of a queue, also of two shards, and freed.
#[test]
fn taken_chunks_are_copied_from_the_memory_of_their_batch_and_freed() {
    for (waits, num_shards) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let buffer = ring(num_shards);
        let mut committer = buffer.committer().unwrap();
        let smb = Smb::new(Arc::new(SharedMemory::anonymous(4096).unwrap()), 4096).unwrap();
        let mut batch = Batch::default();
        for writer in 1..=4 {
            let chunk = smb.try_acquire(0, PageLayout::Div4).unwrap();
            let place = (chunk.page(), chunk.index());
            let header =
                ChunkHeader { chunk_id: 0, writer_id: writer, fragments: 1, flags: ChunkFlags::NONE };
            smb.write_header(&chunk, header);
            smb.write_payload(&chunk, 0, &payload(&[vec![b'0' + writer as u8; 3]]));
            smb.complete(chunk).unwrap();
            let token = smb.try_begin_read(place.0, place.1).unwrap().detach();
            batch.chunks.push((info(1, writer, 0, 1, 0), Source::Shared(token)));
        }
        assert_eq!(committer.commit(&mut batch), Err(CommitError::NoMemory));
        assert_eq!(batch.chunks.len(), 4, "nothing was done");
        batch.memory = Some(smb.clone());
        let stopped = waits.then(|| buffer.stop_shard(num_shards - 1));
        committer.commit(&mut batch).unwrap();
        assert!(batch.is_empty() && batch.memory.is_none());
        drop(stopped);
        let read = read_all(&buffer);
        let bodies = read.iter().map(|packet| &packet.bytes[..]).collect::<Vec<_>>();
        assert_eq!(bodies, [b"111", b"222", b"333", b"444"], "{waits}, {num_shards}");
        assert!(
            smb.try_acquire(0, PageLayout::Div1).is_ok(),
            "all chunks are free, so the page can be cut anew"
        );
        let memory = Arc::downgrade(smb.memory());
        drop(smb);
        assert!(memory.upgrade().is_none(), "nobody keeps the memory");
    }
}

/// A chunk that was taken for reading in new memory, committed by a batch that has the only reference to it.
fn queue_one(committer: &mut Committer, smb: &Smb, page: usize, writer: u16, chunk_id: u32) {
    let chunk = smb.try_acquire(page, PageLayout::Div4).unwrap();
    let place = (chunk.page(), chunk.index());
    let header = ChunkHeader { chunk_id, writer_id: writer, fragments: 1, flags: ChunkFlags::NONE };
    smb.write_header(&chunk, header);
    smb.write_payload(&chunk, 0, &payload(&[vec![b'0' + writer as u8; 3]]));
    smb.complete(chunk).unwrap();
    let token = smb.try_begin_read(place.0, place.1).unwrap().detach();
    let chunks = vec![(info(1, writer, chunk_id, 1, 0), Source::Shared(token))];
    let mut batch = Batch { memory: Some(smb.clone()), chunks, ..Batch::default() };
    committer.commit(&mut batch).unwrap();
    assert!(batch.is_empty() && batch.memory.is_none());
}

/// Memory stays as long as chunks in it wait, also when its producer has gone, and not longer than the turn in which they are done: in whatever
/// order batches of several memories come, and however many to a turn.
#[test]
fn memories_of_queued_batches_go_when_their_chunks_are_done() {
    for batches in [&[0, 0, 1, 0, 1, 1, 2][..], &[0; 200], &[0, 1].repeat(70)] {
        let buffer = ring(1);
        let mut committer = buffer.committer().unwrap();
        let smbs =
            [(); 3].map(|()| Smb::new(Arc::new(SharedMemory::anonymous(64 * 4096).unwrap()), 4096).unwrap());
        // The writers are known, so that what is queued goes the short way.
        for (which, smb) in smbs.iter().enumerate() {
            queue_one(&mut committer, smb, 63, which as u16 + 1, 0);
        }
        let stopped = buffer.stop_shard(0);
        let mut next_ids = [1; 3];
        for (at, &which) in batches.iter().enumerate() {
            queue_one(&mut committer, &smbs[which], at / 4, which as u16 + 1, next_ids[which]);
            next_ids[which] += 1;
        }
        let memories = smbs.each_ref().map(|smb| Arc::downgrade(smb.memory()));
        let waiting = [0, 1, 2].map(|which| batches.contains(&which));
        drop(smbs);
        assert_eq!(memories.each_ref().map(|memory| memory.upgrade().is_some()), waiting);
        drop(stopped);
        assert_eq!(read_all(&buffer).len(), batches.len() + 3);
        assert!(memories.iter().all(|memory| memory.upgrade().is_none()), "nobody keeps a memory");
    }
}

/// A chunk of one packet that was taken for reading, alone in its page.
fn taken(smb: &Smb, page: usize, writer: u16, chunk_id: u32, payload: &[u8]) -> Source<'static> {
    let chunk = smb.try_acquire(page, PageLayout::Div1).unwrap();
    smb.write_header(
        &chunk,
        ChunkHeader { chunk_id, writer_id: writer, fragments: 1, flags: ChunkFlags::NONE },
    );
    smb.write_payload(&chunk, 0, payload);
    smb.complete(chunk).unwrap();
    Source::Shared(smb.try_begin_read(page, 0).unwrap().detach())
}

/// Rows of chunks in shared memory that are longer than a turn and than an extent, of two writers of one shard, with a chunk from elsewhere among
/// them: all come out in order, and all are freed.
#[test]
fn rows_go_on_behind_whatever_interrupts_them() {
    const CHUNKS: u32 = 150;
    let body = |n: u32| [&n.to_le_bytes()[..], &[7; 3900]].concat();
    for case in 0..2 * 2 * 3 {
        let (num_shards, waits, odd) = (case % 2 + 1, case / 2 % 2 == 1, case / 4);
        let buffer = ring(num_shards);
        let mut committer = buffer.committer().unwrap();
        let smb = Smb::new(Arc::new(SharedMemory::anonymous(256 * 4096).unwrap()), 4096).unwrap();
        for writer in 1..=3 {
            queue_one(&mut committer, &smb, 255, writer, 0);
        }
        let elsewhere = payload(&[body(40)]);
        let mut batch = Batch { memory: Some(smb.clone()), ..Batch::default() };
        for n in 1..=CHUNKS {
            let (writer, id) = (if n % 2 == 0 { 1 } else { 3 }, n.div_ceil(2));
            let source = match odd {
                1 if n == 40 => owned(Bytes(elsewhere.clone())),
                2 if n == 40 => Source::Borrowed(&elsewhere),
                _ => taken(&smb, n as usize, writer, id, &payload(&[body(n)])),
            };
            batch.chunks.push((info(1, writer, id, 1, 0), source));
        }
        let stopped =
            waits.then(|| (0..num_shards).map(|shard| buffer.stop_shard(shard)).collect::<Vec<_>>());
        committer.commit(&mut batch).unwrap();
        assert!(batch.is_empty() && batch.memory.is_none());
        drop(stopped);
        let read = read_all(&buffer);
        let numbers =
            read[3..].iter().map(|packet| u32::from_le_bytes(packet.bytes[..4].try_into().unwrap()));
        assert!(numbers.eq(1..=CHUNKS), "{num_shards}, {waits}, {odd}");
        assert!((0..256).all(|page| smb.snapshot(page).unwrap().is_free()), "{num_shards}, {waits}, {odd}");
        let memory = Arc::downgrade(smb.memory());
        drop(smb);
        assert!(memory.upgrade().is_none(), "nobody keeps the memory");
    }
}

/// Whether chunks are committed one by one or in rows, directly or out of a queue: a read in small pieces that is overtaken by them gives the same.
#[test]
fn a_read_goes_on_beside_rows_as_it_does_beside_single_chunks() {
    let history = |in_rows: bool, waits: bool| {
        let config = ShardedConfig { num_shards: Some(1), ..ShardedConfig::ring(1 << 20) };
        let buffer = ShardedBuffer::create(config).unwrap();
        let mut committer = buffer.committer().unwrap();
        let smb = Smb::new(Arc::new(SharedMemory::anonymous(64 * 4096).unwrap()), 4096).unwrap();
        let mut bytes = Vec::new();
        for round in 0..40 {
            let bodies: Vec<_> =
                (0..60).map(|n| payload(&[vec![round as u8; 1000 + 45 * (n + round) % 2900]])).collect();
            let chunk = |n: usize| info(1, n as u16 % 2 + 1, ((n + 60 * round) / 2) as u32, 1, 0);
            let stopped = waits.then(|| buffer.stop_shard(0));
            if in_rows {
                let chunks = bodies.iter().enumerate().map(|(n, body)| {
                    let info = chunk(n);
                    (info, taken(&smb, n, info.writer_id.0, info.chunk_id.0, body))
                });
                let mut batch =
                    Batch { memory: Some(smb.clone()), chunks: chunks.collect(), ..Batch::default() };
                committer.commit(&mut batch).unwrap();
            } else {
                for (n, body) in bodies.iter().enumerate() {
                    committer.commit_chunk(&chunk(n), body).unwrap();
                }
            }
            drop(stopped);
            let mut pass = buffer.read_pass(write_packet);
            let pieces = pass.next_pieces(30_000);
            pieces
                .into_iter()
                .for_each(|pieces| pieces.iter().for_each(|piece| bytes.extend_from_slice(piece)));
        }
        bytes.extend(read_all(&buffer).into_iter().flat_map(|packet| packet.bytes));
        bytes
    };
    let expected = history(false, false);
    for (in_rows, waits) in [(false, true), (true, false), (true, true)] {
        assert!(history(in_rows, waits) == expected, "{in_rows}, {waits}");
    }
}

#[test]
fn sequences_get_their_shards_in_turn() {
    let buffer = ring(4);
    let mut committer = buffer.committer().unwrap();
    for writer in 1..=8 {
        committer.commit_chunk(&info(1, writer, 0, 1, 0), &payload(&[b"packet".to_vec()])).unwrap();
    }
    let chunks: Vec<u64> = buffer.shard_stats().iter().map(|(stats, _)| stats.chunks_written).collect();
    assert_eq!(chunks, [2; 4]);
}
