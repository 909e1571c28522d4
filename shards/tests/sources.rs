//! The sources of chunks, with one committing thread.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Bytes, info, next_bytes, owned, payload, read_all, round_robin, taken, write_packet};
use watershed_engine::{ByteSource, SharedBytes};
use watershed_shards::{Batch, CommitError, Committer, ShardedBuffer, ShardedConfig, Source};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};

/// A chunk that is still being written is copied as it is at the commit, also if it is queued, and
/// remains its writer's.
#[test]
fn a_scraped_chunk_is_copied_before_the_commit_returns() {
    for waits in [false, true] {
        let buffer = round_robin(1, 16);
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

/// Chunks that were taken for reading are copied from the batch's memory, at once or out of a
/// queue, also for two shards, and freed.
#[test]
fn taken_chunks_are_copied_from_the_memory_of_their_batch_and_freed() {
    for (waits, num_shards) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let buffer = round_robin(num_shards, 16);
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
        assert_eq!(batch.chunks.len(), 4, "the batch is unchanged");
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
        assert!(memory.upgrade().is_none(), "the memory was dropped");
    }
}

/// Commits a chunk that was taken for reading.
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

/// Memory lives as long as chunks in it are queued, also when its producer has gone, and not longer
/// than the drain in which they are done: in whatever order batches of several memories come, and
/// however many in one drain.
#[test]
fn memories_of_queued_batches_go_when_their_chunks_are_done() {
    for batches in [&[0, 0, 1, 0, 1, 1, 2][..], &[0; 200], &[0, 1].repeat(70)] {
        let buffer = round_robin(1, 16);
        let mut committer = buffer.committer().unwrap();
        let smbs =
            [(); 3].map(|()| Smb::new(Arc::new(SharedMemory::anonymous(64 * 4096).unwrap()), 4096).unwrap());
        // The homes are known, so that batches are queued by the fastest path.
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
        assert!(memories.iter().all(|memory| memory.upgrade().is_none()), "all memories were dropped");
    }
}

/// Runs of chunks in shared memory that are longer than a budget and than an extent, of two writers
/// of one shard, with another source among them: all come out in order, and all are freed.
#[test]
fn runs_go_on_after_whatever_interrupts_them() {
    const CHUNKS: u32 = 150;
    let body = |n: u32| [&n.to_le_bytes()[..], &[7; 3900]].concat();
    for case in 0..2 * 2 * 3 {
        let (num_shards, waits, odd) = (case % 2 + 1, case / 2 % 2 == 1, case / 4);
        let buffer = round_robin(num_shards, 16);
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
        assert!(memory.upgrade().is_none(), "the memory was dropped");
    }
}

/// A read in small pieces that commits overtake gives the same whether chunks are committed one by
/// one or in runs, directly or out of a queue.
#[test]
fn a_read_beside_runs_gives_what_it_gives_beside_single_chunks() {
    let history = |in_runs: bool, waits: bool| {
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
            if in_runs {
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
            bytes.extend(next_bytes(&mut pass, 30_000).into_iter().flatten());
        }
        bytes.extend(read_all(&buffer).into_iter().flat_map(|packet| packet.bytes));
        bytes
    };
    let expected = history(false, false);
    for (in_runs, waits) in [(false, true), (true, false), (true, true)] {
        assert!(history(in_runs, waits) == expected, "{in_runs}, {waits}");
    }
}

/// A source that contradicts itself: other bytes than its size says, and a size that grows.
struct Liar {
    size_bytes: usize,
    grows_by: usize,
    asked: AtomicUsize,
    bytes: Vec<u8>,
    is_shared: bool,
}

impl ByteSource for Liar {
    fn size_bytes(&self) -> usize {
        self.size_bytes + self.grows_by * self.asked.fetch_add(1, Ordering::Relaxed)
    }

    fn copy_range(&self, _offset_bytes: usize, dst: &mut [u8]) {
        dst.fill(1);
    }

    fn stable_bytes(&self) -> Option<&[u8]> {
        (!self.is_shared && self.grows_by == 0).then_some(&self.bytes)
    }

    fn shared_bytes(&self) -> Option<SharedBytes<'_>> {
        self.is_shared.then(|| self.bytes.as_slice().into())
    }
}

/// Whatever a source says of itself, it is safe code: not a byte of another chunk changes.
#[test]
fn a_source_that_contradicts_itself_harms_nobody_else() {
    // 2,000 bytes in each of 450 fragments: more than several extents.
    let long = payload(&vec![vec![7; 2000]; 450]);
    for (size_bytes, grows_by, is_shared) in [
        (10, 0, false),
        (10, 0, true),
        (3000, 0, false),
        (3000, 0, true),
        (10, 9000, false),
        (65_000, 500, false),
    ] {
        let buffer = round_robin(4, 16);
        let mut committer = buffer.committer().unwrap();
        let body = |writer: u16, id: u32| [&[writer as u8, id as u8][..], &[5; 3000]].concat();
        for id in 0..200 {
            for writer in 1..=4 {
                let chunk = info(1, writer, id, 1, 0);
                committer.commit_chunk(&chunk, &payload(&[body(writer, id)])).unwrap();
            }
            let bytes = long.clone();
            let liar = Liar { size_bytes, grows_by, asked: AtomicUsize::new(0), bytes, is_shared };
            let fragments = if is_shared { 100 } else { 450 };
            let chunks = vec![(info(2, 1, id, fragments, 0), owned(liar))];
            let mut batch = Batch { chunks, ..Batch::default() };
            committer.commit(&mut batch).unwrap();
        }
        buffer.check().unwrap();
        let honest = read_all(&buffer).into_iter().filter(|packet| packet.producer_id == 1);
        let expected = (0..200).flat_map(|id| (1..=4).map(move |writer| (writer, id)));
        assert!(
            honest.map(|packet| packet.bytes).eq(expected.map(|(writer, id)| body(writer, id))),
            "{size_bytes}, {grows_by}, {is_shared}"
        );
    }
}

#[test]
fn sequences_get_their_shards_round_robin() {
    let buffer = round_robin(4, 16);
    let mut committer = buffer.committer().unwrap();
    for writer in 1..=8 {
        committer.commit_chunk(&info(1, writer, 0, 1, 0), &payload(&[b"packet".to_vec()])).unwrap();
    }
    let chunks: Vec<u64> = buffer.shard_stats().iter().map(|(stats, _)| stats.chunks_written).collect();
    assert_eq!(chunks, [2; 4]);
}
