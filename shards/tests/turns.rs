//! What waits at a shard while somebody has it: who does it, in what order, how much at a time, and that nothing stays.

mod common;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::{Bytes, info, owned, payload, read_all, write_packet};
use watershed_engine::{ByteSource, ChunkId, ChunkInfo, Packet, Patch, ProducerId, WriterId};
use watershed_shards::{Batch, Committer, Homes, PatchSet, ShardedBuffer, ShardedConfig, Source};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};

fn buffer(num_shards: usize) -> ShardedBuffer {
    let config =
        ShardedConfig { num_shards: Some(num_shards), homes: Homes::InTurn, ..ShardedConfig::ring(4 << 20) };
    let buffer = ShardedBuffer::create(config).unwrap();
    assert_eq!(buffer.report().cutting.num_shards, num_shards);
    buffer
}

/// The numbers of chunks in the order in which they were copied.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    fn numbers(&self) -> Vec<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A chunk of writer 1 of producer 1 whose packet is its number.
    fn chunk(&self, number: u32) -> (ChunkInfo, Source<'static>) {
        self.chunk_that(number, || ())
    }

    /// The same; who copies it does something else as well.
    fn chunk_that(
        &self,
        number: u32,
        also: impl Fn() + Send + Sync + 'static,
    ) -> (ChunkInfo, Source<'static>) {
        let bytes = payload(&[number.to_le_bytes().to_vec()]);
        (info(1, 1, number, 1, 0), owned(Logged { log: self.clone(), number, bytes, also }))
    }
}

struct Logged<F> {
    log: Log,
    number: u32,
    bytes: Vec<u8>,
    also: F,
}

impl<F: Fn()> ByteSource for Logged<F> {
    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        self.log.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
        (self.also)();
        dst.copy_from_slice(&self.bytes[offset_bytes..][..dst.len()]);
    }
}

fn commit(committer: &mut Committer, chunks: Vec<(ChunkInfo, Source<'_>)>) {
    let mut batch = Batch { chunks, ..Batch::default() };
    committer.commit(&mut batch).unwrap();
    assert!(batch.is_empty());
}

#[test]
fn a_turn_ends_and_what_comes_then_waits_behind_what_is_left() {
    for batch_chunks in [1, 7, 32, 100] {
        let (buffer, log) = (buffer(1), Log::default());
        let mut committer = buffer.committer().unwrap();
        let stopped = buffer.stop_shard(0);
        let numbers: Vec<u32> = (0..100).collect();
        for batch in numbers.chunks(batch_chunks) {
            commit(&mut committer, batch.iter().map(|&number| log.chunk(number)).collect());
        }
        drop(stopped);
        assert_eq!(log.numbers(), [], "nobody has looked");
        buffer.take_turn(0);
        assert_eq!(log.numbers(), numbers[..32], "batches of {batch_chunks}");
        commit(&mut committer, vec![log.chunk(100)]);
        assert!(log.numbers().into_iter().eq(0..=100), "batches of {batch_chunks}");
        assert_eq!(buffer.stats().chunks_committed_out_of_order, 0);
        assert_eq!(read_all(&buffer).len(), 101);
    }
}

/// A committer in a source, or in a reader, which commits a chunk once while somebody else has its shard.
fn commit_once(buffer: &ShardedBuffer, log: &Log, number: u32) -> impl Fn() + Send + Sync + use<> {
    let (committer, log) = (Mutex::new(buffer.committer()), log.clone());
    move || {
        if let Some(mut committer) = committer.lock().unwrap().take() {
            commit(&mut committer, vec![log.chunk(number)]);
            assert!(!log.numbers().contains(&number), "the shard is taken, so it waits");
        }
    }
}

#[test]
fn who_gives_a_shard_back_does_what_was_queued_meanwhile() {
    // The writer's home is known, or is not.
    for is_known in [true, false] {
        let (buffer, log) = (buffer(1), Log::default());
        let mut committer = buffer.committer().unwrap();
        if is_known {
            commit(&mut committer, vec![log.chunk(0)]);
        }
        let also = commit_once(&buffer, &log, 2);
        commit(&mut committer, vec![log.chunk_that(1, also)]);
        let expected = if is_known { vec![0, 1, 2] } else { vec![1, 2] };
        assert_eq!(log.numbers(), expected);
        assert_eq!(read_all(&buffer).len(), expected.len());
    }
}

#[test]
fn a_reader_does_what_was_queued_while_it_had_the_shard() {
    let (buffer, log) = (buffer(2), Log::default());
    commit(&mut buffer.committer().unwrap(), vec![log.chunk(0)]);
    let also = commit_once(&buffer, &log, 1);
    let mut pass = buffer.read_pass(|packet: &Packet<'_>, out: &mut Vec<u8>| {
        also();
        write_packet(packet, out)
    });
    assert!(pass.next_pieces(1).is_some());
    assert_eq!(log.numbers(), [0, 1], "it was done when the shard was given back");
    assert!(pass.next_pieces(1).is_none(), "and is behind the cut");
    drop(pass);
    assert_eq!(read_all(&buffer).len(), 1);
}

#[test]
fn a_worker_that_sleeps_is_woken() {
    let config = ShardedConfig { num_shards: Some(2), has_workers: true, ..ShardedConfig::ring(4 << 20) };
    let (buffer, log) = (ShardedBuffer::create(config).unwrap(), Log::default());
    let mut committer = buffer.committer().unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    for number in 0..5 {
        let done = Mutex::new(done.clone());
        let also = move || done.lock().unwrap().send(number).unwrap();
        commit(&mut committer, vec![log.chunk_that(number, also)]);
        assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(number));
        // More than long enough to go to sleep.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All extents are at a shard that is stopped: what is committed to another one waits, with the memory that its chunks are in.
#[test]
fn a_batch_that_finds_no_extent_waits_for_one() {
    for is_shared in [false, true] {
        let buffer = buffer(2);
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
                true => taken(&smb, number as usize, number, &bytes),
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
        assert!(memory.upgrade().is_none(), "nobody keeps the memory");
    }
}

/// A chunk that was taken for reading, alone in its page.
fn taken(smb: &Smb, page: usize, chunk_id: u32, payload: &[u8]) -> Source<'static> {
    let chunk = smb.try_acquire(page, PageLayout::Div1).unwrap();
    let header = ChunkHeader { chunk_id, writer_id: 2, fragments: 1, flags: ChunkFlags::NONE };
    smb.write_header(&chunk, header);
    smb.write_payload(&chunk, 0, payload);
    smb.complete(chunk).unwrap();
    Source::Shared(smb.try_begin_read(page, 0).unwrap().detach())
}

/// Shared chunks of two shards in one batch that also says that a writer has ended: parts for both, each with the memory.
#[test]
fn parts_for_several_shards_have_the_memory() {
    let buffer = buffer(2);
    let mut committer = buffer.committer().unwrap();
    let smb = Smb::new(Arc::new(SharedMemory::anonymous(4 * 4096).unwrap()), 4096).unwrap();
    let chunks = (0..4_u16).map(|n| {
        let writer = 1 + n % 2;
        let source = taken(&smb, n.into(), (n / 2).into(), &payload(&[vec![b'0' + n as u8; 3]]));
        (info(1, writer, (n / 2).into(), 1, 0), source)
    });
    let mut batch = Batch {
        memory: Some(smb.clone()),
        chunks: chunks.collect(),
        ended_writers: vec![(ProducerId(1), WriterId(1))],
        ..Batch::default()
    };
    committer.commit(&mut batch).unwrap();
    assert!(buffer.shard_stats().iter().all(|(stats, _)| stats.chunks_written == 2));
    let bodies: Vec<Vec<u8>> = read_all(&buffer).into_iter().map(|got| got.bytes).collect();
    assert_eq!(bodies, [b"000", b"111", b"222", b"333"]);
    let memory = Arc::downgrade(smb.memory());
    drop((batch, smb));
    assert!(memory.upgrade().is_none(), "nobody keeps the memory");
}

/// What comes with chunks in a batch waits with them, also where chunks alone would go a shorter way.
#[test]
fn patches_wait_with_the_chunks_of_their_batch() {
    const WAITS_FOR_PATCHES: u8 = 4;
    let buffer = buffer(1);
    let mut committer = buffer.committer().unwrap();
    let smb = Smb::new(Arc::new(SharedMemory::anonymous(3 * 4096).unwrap()), 4096).unwrap();
    let mut commit = |id: u32, flags: u8, patches: Vec<PatchSet>| {
        let source = taken(&smb, id as usize, id, &payload(&[b"....".to_vec()]));
        let chunks = vec![(info(1, 2, id, 1, flags), source)];
        let mut batch = Batch { memory: Some(smb.clone()), chunks, patches, ..Batch::default() };
        committer.commit(&mut batch).unwrap();
        assert!(batch.is_empty() && batch.memory.is_none());
    };
    // The second time the committer knows where they go.
    (0..2).for_each(|id| commit(id, 0, Vec::new()));
    let stopped = buffer.stop_shard(0);
    let patches = PatchSet {
        producer_id_trusted: ProducerId(1),
        writer_id: WriterId(2),
        chunk_id: ChunkId(2),
        patches: vec![Patch { offset_untrusted: 1, data: *b"done" }],
        other_patches_pending: false,
    };
    commit(2, WAITS_FOR_PATCHES, vec![patches]);
    drop(stopped);
    let bodies: Vec<Vec<u8>> = read_all(&buffer).into_iter().map(|got| got.bytes).collect();
    assert_eq!(bodies, [b"....", b"....", b"done"]);
    assert_eq!(buffer.stats().patches_succeeded, 1);
}

/// Extents whose records were all read are free again, but for those that are being filled.
#[test]
fn what_was_read_gives_its_extents_back() {
    let buffer = buffer(4);
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
