//! What is queued while a shard is locked: who drains it, in which order, how much at a time, and
//! that nothing stays queued.

mod common;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::{Bytes, info, next_bytes, owned, payload, read_all, watched, write_packet};
use watershed_engine::{ByteSource, ChunkId, ChunkInfo, Packet, Patch, ProducerId, WriterId};
use watershed_shards::{Batch, Committer, Homes, PatchSet, ShardedBuffer, ShardedConfig, Source};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};

fn buffer(num_shards: usize) -> ShardedBuffer {
    let config = ShardedConfig {
        num_shards: Some(num_shards),
        homes: Homes::RoundRobin,
        ..ShardedConfig::ring(4 << 20)
    };
    let buffer = ShardedBuffer::create(config).unwrap();
    assert_eq!(buffer.report().layout.num_shards, num_shards);
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
        self.chunk_with(number, || ())
    }

    /// The same; its copy calls `also`.
    fn chunk_with(
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
fn a_spent_budget_leaves_the_rest_before_later_batches() {
    for batch_chunks in [1, 7, 32, 100] {
        let (buffer, log) = (buffer(1), Log::default());
        let mut committer = buffer.committer().unwrap();
        let stopped = buffer.stop_shard(0);
        let numbers: Vec<u32> = (0..100).collect();
        for batch in numbers.chunks(batch_chunks) {
            commit(&mut committer, batch.iter().map(|&number| log.chunk(number)).collect());
        }
        drop(stopped);
        assert_eq!(log.numbers(), [], "nothing has been drained");
        buffer.drain_once(0);
        assert_eq!(log.numbers(), numbers[..32], "batches of {batch_chunks}");
        commit(&mut committer, vec![log.chunk(100)]);
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
    let (buffer, log) = (buffer(1), Log::default());
    let mut committer = buffer.committer().unwrap();
    assert!(!buffer.drain_some(), "there is nothing");
    let stopped = buffer.stop_shard(0);
    commit(&mut committer, (0..200).map(|number| log.chunk(number)).collect());
    assert!(!buffer.drain_some(), "its owner is at work");
    drop(stopped);
    commit(&mut committer, vec![log.chunk(200)]);
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
    let operations: [(&str, Operation); 6] = [
        ("ledger", |buffer| buffer.ledger().written.chunks),
        ("stats", |buffer| buffer.stats().chunks_written),
        ("has_data", |buffer| 3 * u64::from(buffer.has_data())),
        ("clone", |buffer| buffer.clone_read_only().unwrap().ledger().written.chunks),
        ("begin of a read", |buffer| buffer.read_pass(write_packet).unread_bytes().min(3)),
        ("memory", |buffer| 3 * (buffer.memory_usage_bytes() / buffer.size_bytes()) as u64),
    ];
    for (name, operation) in operations {
        let (buffer, log) = (buffer(1), Log::default());
        let [mut committer, mut late] = [(); 2].map(|()| buffer.committer().unwrap());
        let stopped = buffer.stop_shard(0);
        (0..3).for_each(|number| commit(&mut committer, vec![log.chunk(number)]));
        let ticket = late.stop_with_ticket();
        (3..200).for_each(|number| commit(&mut committer, vec![log.chunk(number)]));
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
        let (buffer, log) = (buffer(WRITERS.into()), Log::default());
        let mut committer = buffer.committer().unwrap();
        let mut others = buffer.committer().unwrap();
        (1..=WRITERS).for_each(|writer| commit(&mut committer, vec![chunk(&log, writer, 0)]));
        let (per_batch, num_batches) = if case == "its queue is full" { (1, 256) } else { (7, 30) };
        let mut queue = move |log: &Log, writer: u16| {
            for batch in 0..num_batches {
                let ids = 1 + batch * per_batch..1 + (batch + 1) * per_batch;
                commit(&mut others, ids.map(|id| chunk(log, writer, id)).collect());
            }
        };
        let next = (per_batch * num_batches) + 1;
        let done = if case == "while it wrote" {
            let (queue, queued) = (Mutex::new(queue), log.clone());
            let (_, source) = log.chunk_with(0, move || (queue.lock().unwrap())(&queued, 1));
            let before = log.numbers().len();
            commit(&mut committer, vec![(info(1, 1, next, 1, 0), source)]);
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
            commit(&mut committer, vec![chunk(&log, 1, next)]);
            log.numbers().len() - before
        };
        assert!((32..=33).contains(&done), "{case}: {done} chunks in one commit");
        // What is left is done by others, a budget at a time; here nobody reads.
        let mut last = log.numbers().len();
        for id in 1.. {
            commit(&mut committer, vec![chunk(&log, 2, next + id)]);
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
            commit(&mut committer, vec![log.chunk(number)]);
            assert!(!log.numbers().contains(&number), "the shard is locked, so it is queued");
        }
    }
}

#[test]
fn an_owner_drains_what_was_queued_meanwhile() {
    // The writer's home is known, or is not.
    for is_known in [true, false] {
        let (buffer, log) = (buffer(1), Log::default());
        let mut committer = buffer.committer().unwrap();
        if is_known {
            commit(&mut committer, vec![log.chunk(0)]);
        }
        let also = commit_once(&buffer, &log, 2);
        commit(&mut committer, vec![log.chunk_with(1, also)]);
        let expected = if is_known { vec![0, 1, 2] } else { vec![1, 2] };
        assert_eq!(log.numbers(), expected);
        assert_eq!(read_all(&buffer).len(), expected.len());
    }
}

#[test]
fn a_reader_drains_what_was_queued_meanwhile() {
    let (buffer, log) = (buffer(2), Log::default());
    commit(&mut buffer.committer().unwrap(), vec![log.chunk(0)]);
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
fn a_parked_worker_is_woken() {
    let config =
        ShardedConfig { num_shards: Some(2), workers: common::workers(true), ..ShardedConfig::ring(4 << 20) };
    let (buffer, log) = (ShardedBuffer::create(config).unwrap(), Log::default());
    let mut committer = buffer.committer().unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    for number in 0..5 {
        let done = Mutex::new(done.clone());
        let also = move || done.lock().unwrap().send(number).unwrap();
        commit(&mut committer, vec![log.chunk_with(number, also)]);
        assert_eq!(is_done.recv_timeout(Duration::from_secs(20)), Ok(number));
        // Long enough for the worker to park.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A stopped shard has all extents: what is committed to another one waits, with the memory of its
/// chunks.
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
        assert!(memory.upgrade().is_none(), "the memory was dropped");
    }
}

/// All extents are in shard 0, and a chunk for shard 1 is queued. Whatever looks at all shards
/// needs an extent of the first before the second is drained.
#[test]
fn no_operation_holds_the_shard_whose_extent_it_waits_for() {
    type Operation = fn(&ShardedBuffer) -> u64;
    let operations: [(&str, Operation); 4] = [
        ("clone", |buffer| buffer.clone_read_only().unwrap().ledger().written.chunks),
        ("ledger", |buffer| buffer.ledger().written.chunks),
        ("has_data", |buffer| u64::from(buffer.has_data())),
        ("read", |buffer| read_all(buffer).len() as u64),
    ];
    for (name, operation) in operations {
        let buffer = buffer(2);
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
        let (buffer, log) = (buffer(2), Log::default());
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
                "batch" => commit(&mut other, vec![waiting(1), waiting(2)]),
                _ => commit(&mut other, vec![waiting(1), (info(1, 3, 0, 1, 0), inner.chunk(3).1)]),
            }
            assert_eq!(inner.numbers(), [100], "there is no extent");
        };
        let (_, source) = log.chunk_with(100, also);
        commit(&mut committer, vec![(info(1, 1, id, 1, 0), source)]);
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

/// A chunk that was taken for reading, alone in its page.
fn taken(smb: &Smb, page: usize, chunk_id: u32, payload: &[u8]) -> Source<'static> {
    let chunk = smb.try_acquire(page, PageLayout::Div1).unwrap();
    let header = ChunkHeader { chunk_id, writer_id: 2, fragments: 1, flags: ChunkFlags::NONE };
    smb.write_header(&chunk, header);
    smb.write_payload(&chunk, 0, payload);
    smb.complete(chunk).unwrap();
    Source::Shared(smb.try_begin_read(page, 0).unwrap().detach())
}

/// A buffer that is dropped with work queued: producers get their chunks back, also of a batch that
/// was begun, that has other sources, or whose committer lives on.
#[test]
fn a_dropped_buffer_frees_the_chunks_in_its_queues() {
    const PAGES: usize = 48;
    for (is_mixed, num_drains, keeps_committer) in
        [(false, 0, false), (false, 1, true), (true, 0, true), (true, 1, false)]
    {
        let buffer = buffer(1);
        let mut committer = buffer.committer().unwrap();
        let smb = Smb::new(Arc::new(SharedMemory::anonymous(PAGES * 4096).unwrap()), 4096).unwrap();
        let stopped = buffer.stop_shard(0);
        for batch in 0..4 {
            let pages = batch * PAGES / 4..(batch + 1) * PAGES / 4;
            let chunks = pages.map(|page| {
                (info(1, 2, page as u32, 1, 0), taken(&smb, page, page as u32, &payload(&[vec![7; 9]])))
            });
            let mut batch = Batch { memory: Some(smb.clone()), chunks: chunks.collect(), ..Batch::default() };
            if is_mixed {
                batch.chunks.push((info(1, 3, 0, 1, 0), Source::Borrowed(b"\x01.")));
            }
            committer.commit(&mut batch).unwrap();
        }
        drop(stopped);
        (0..num_drains).for_each(|_| buffer.drain_once(0));
        let acquire_all = || std::iter::from_fn(|| smb.try_acquire(0, PageLayout::Div1).ok()).count();
        let freed_by_drain = acquire_all();
        assert!((num_drains..=32 * num_drains).contains(&freed_by_drain), "{freed_by_drain}");
        let kept = keeps_committer.then_some(committer);
        drop(buffer);
        assert_eq!(freed_by_drain + acquire_all(), PAGES);
        drop(kept);
        let memory = Arc::downgrade(smb.memory());
        drop(smb);
        assert!(memory.upgrade().is_none(), "the memory was dropped");
    }
}

/// Chunks in shared memory for two shards, in a batch that also ends a writer: a share for each,
/// with the memory.
#[test]
fn shares_for_several_shards_have_the_memory() {
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
    assert!(memory.upgrade().is_none(), "the memory was dropped");
}

/// Patches are queued with the chunks of their batch, also where chunks alone would be queued by a
/// faster path.
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
    // The second time, the committer knows the home.
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

/// Extents whose records were all read are free again, except those that are being filled.
#[test]
fn extents_without_unread_records_are_free() {
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
