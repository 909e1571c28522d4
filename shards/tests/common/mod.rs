//! Chunks of several writers, and packets that can be compared.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod log;
pub(crate) mod numbered;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};
use watershed_engine::{
    ByteSource, ChunkFlags, ChunkId, ChunkInfo, ClientIdentity, Packet, ProducerId, WriterId,
};
use watershed_shards::{
    Batch, CommitError, Committer, Homes, OwnedBytes, PacketWriter, ReadPass, ShardedBuffer, ShardedConfig,
    Source, WorkerPool,
};
use watershed_smb::{ChunkFlags as SmbFlags, ChunkHeader, PageLayout, SharedMemory, Smb};

/// Random numbers that are the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What a thread is at, and since when.
type Doing = Arc<Mutex<Option<(&'static str, Instant)>>>;

/// No operation takes so long, however slow the machine is.
const WATCH_LIMIT: Duration = Duration::from_secs(60);

thread_local! {
    static DOING: Doing = {
        static THREADS: LazyLock<Mutex<Vec<Doing>>> = LazyLock::new(|| {
            thread::spawn(watch);
            Mutex::default()
        });
        fn watch() {
            loop {
                thread::sleep(Duration::from_secs(1));
                for doing in &*THREADS.lock().unwrap() {
                    if let Some((name, since)) = *doing.lock().unwrap()
                        && since.elapsed() > WATCH_LIMIT
                    {
                        eprintln!("{name} has not ended after {:?}", since.elapsed());
                        std::process::abort();
                    }
                }
            }
        }
        let doing = Doing::default();
        THREADS.lock().unwrap().push(Arc::clone(&doing));
        doing
    };
}

/// Runs an operation of a buffer under a watchdog, which ends the whole process: the threads of a
/// deadlock would never be joined.
pub(crate) fn watched<R>(name: &'static str, operation: impl FnOnce() -> R) -> R {
    let before = DOING.with(|doing| doing.lock().unwrap().replace((name, Instant::now())));
    let result = operation();
    DOING.with(|doing| *doing.lock().unwrap() = before);
    result
}

/// A packet as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) producer_id: u32,
    pub(crate) writer_id: u16,
    pub(crate) identity: ClientIdentity,
    pub(crate) loss: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Got {
    /// What [`write_packet`] makes of it.
    pub(crate) fn written_bytes(&self) -> usize {
        26 + self.bytes.len()
    }
}

pub(crate) fn got(packet: &Packet<'_>) -> Got {
    Got {
        producer_id: packet.producer_id.0,
        writer_id: packet.writer_id.0,
        identity: packet.identity,
        loss: packet.loss.0,
        bytes: packet.to_vec(),
    }
}

/// Packets travel through blocks as bytes: ids, losses, length, bytes.
pub(crate) fn write_packet(packet: &Packet<'_>, out: &mut Vec<u8>) -> bool {
    out.extend(packet.producer_id.0.to_le_bytes());
    out.extend(packet.writer_id.0.to_le_bytes());
    out.extend(packet.identity.uid.to_le_bytes());
    out.extend(packet.identity.pid.to_le_bytes());
    out.extend(packet.identity.machine_id.to_le_bytes());
    out.extend(packet.loss.0.to_le_bytes());
    out.extend((packet.size_bytes() as u32).to_le_bytes());
    packet.slices().iter().for_each(|slice| out.extend_from_slice(slice));
    true
}

pub(crate) fn parse(mut bytes: &[u8]) -> Vec<Got> {
    let mut list = Vec::new();
    let take = |bytes: &mut &[u8], len: usize| {
        let (front, rest) = bytes.split_at(len);
        *bytes = rest;
        front.to_vec()
    };
    let u32_of = |bytes: Vec<u8>| u32::from_le_bytes(bytes.try_into().unwrap());
    while !bytes.is_empty() {
        let u16_of = |bytes: Vec<u8>| u16::from_le_bytes(bytes.try_into().unwrap());
        let producer_id = u32_of(take(&mut bytes, 4));
        let writer_id = u16_of(take(&mut bytes, 2));
        let identity = ClientIdentity {
            uid: u32_of(take(&mut bytes, 4)) as i32,
            pid: u32_of(take(&mut bytes, 4)) as i32,
            machine_id: u32_of(take(&mut bytes, 4)),
        };
        let loss = u32_of(take(&mut bytes, 4));
        let len = u32_of(take(&mut bytes, 4)) as usize;
        list.push(Got { producer_id, writer_id, identity, loss, bytes: take(&mut bytes, len) });
    }
    list
}

/// The next pieces of a pass, about so many bytes, at least one run. None if nothing is left.
pub(crate) fn next_bytes<W: PacketWriter>(pass: &mut ReadPass<'_, W>, max_bytes: usize) -> Option<Vec<u8>> {
    let mut bytes = None;
    let _ = pass.write_up_to(max_bytes, |pieces| {
        pieces.write_to(bytes.insert(Vec::new())).expect("memory takes everything");
        Err(())
    });
    bytes
}

/// Everything that a pass has left, in small pieces.
pub(crate) fn drain<W: PacketWriter>(pass: &mut ReadPass<'_, W>) -> Vec<Got> {
    let pieces: Vec<Vec<u8>> = std::iter::from_fn(|| next_bytes(pass, 100_000)).collect();
    parse(&pieces.concat())
}

pub(crate) fn read_all(buffer: &ShardedBuffer) -> Vec<Got> {
    drain(&mut buffer.read_pass(write_packet))
}

/// The same with a pool.
pub(crate) fn read_in_pool(buffer: &ShardedBuffer, pool: Option<&ThreadPool>) -> Vec<Got> {
    let mut bytes = Vec::new();
    let mut pass = buffer.read_pass(write_packet).with_pool(pool);
    pass.write_all(|pieces| pieces.write_to(&mut bytes)).unwrap();
    parse(&bytes)
}

/// The header of a complete chunk. `flags` tell whether its first and last packets continue in its
/// neighbours.
pub(crate) fn info(producer: u32, writer: u16, id: u32, fragments: usize, flags: u8) -> ChunkInfo {
    ChunkInfo {
        producer_id_trusted: ProducerId(producer),
        writer_id: WriterId(writer),
        chunk_id: ChunkId(id),
        num_fragments: fragments as u16,
        flags: ChunkFlags(flags),
        complete: true,
        identity_trusted: ClientIdentity { uid: 1000, pid: producer.cast_signed(), machine_id: 0 },
    }
}

/// Fragments, each with its size before it.
pub(crate) fn payload(bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for body in bodies {
        let mut size = body.len();
        while size >= 0x80 {
            bytes.push(size as u8 | 0x80);
            size >>= 7;
        }
        bytes.push(size as u8);
        bytes.extend_from_slice(body);
    }
    bytes
}

/// Bytes that a batch owns.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl ByteSource for Bytes {
    fn size_bytes(&self) -> usize {
        self.0.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self.0[offset_bytes..][..dst.len()]);
    }
}

pub(crate) fn owned(source: impl ByteSource + Send + Sync + 'static) -> Source<'static> {
    Source::Owned(OwnedBytes::new(source))
}

/// Pools for reads and clones: none, and with as many threads as come beside the calling one.
pub(crate) fn pools() -> [Option<&'static ThreadPool>; 3] {
    static POOLS: LazyLock<[ThreadPool; 2]> = LazyLock::new(|| {
        [1, 3].map(|threads| ThreadPoolBuilder::new().num_threads(threads).build().unwrap())
    });
    [None, Some(&POOLS[0]), Some(&POOLS[1])]
}

/// Commits a batch, again where a queue is full. Returns how many chunks were refused.
pub(crate) fn commit_batch(committer: &mut Committer, batch: &mut Batch<'_>) -> usize {
    loop {
        match watched("commit", || committer.commit(batch)) {
            Ok(()) => return 0,
            Err(CommitError::Poisoned(chunks)) => return chunks,
            Err(CommitError::QueueFull(_)) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A writer's packet in shared memory, alone in its page, taken for reading.
pub(crate) fn shared_chunk(
    smb: &Smb,
    page: usize,
    (producer, writer, id): (u32, u16, u32),
    body: Vec<u8>,
) -> (ChunkInfo, Source<'static>) {
    let source = taken(smb, page, writer, id, &payload(&[body]));
    (info(producer, writer, id, 1, 0), source)
}

pub(crate) fn shared_memory(pages: usize) -> Smb {
    Smb::new(Arc::new(SharedMemory::anonymous(pages * 4096).unwrap()), 4096).unwrap()
}

pub(crate) fn is_free(smb: &Smb, pages: usize) -> bool {
    (0..pages).all(|page| smb.snapshot(page).unwrap().is_free())
}

/// Commits a chunk of 1000 bytes whose writer has its home with this CPU. Whether it was taken.
pub(crate) fn commit_at(committer: &mut Committer, writer: usize, cpu: usize, id: u32) -> bool {
    committer.set_cpu(Some(cpu));
    let bytes = payload(&[vec![writer as u8; 1000]]);
    let mut batch = Batch::of_chunk(info(1, writer as u16, id, 1, 0), &bytes);
    let refused = commit_batch(committer, &mut batch);
    assert!(batch.is_empty() && refused < 2);
    refused == 0
}

pub(crate) fn panics(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

/// Workers of a buffer, as many as most tests have shards.
pub(crate) fn workers(wanted: bool) -> Option<WorkerPool> {
    wanted.then(|| WorkerPool::with_threads(4))
}

/// A ring of so many shards, which sequences get in turn.
pub(crate) fn round_robin(num_shards: usize, mb: usize) -> ShardedBuffer {
    let homes = Homes::RoundRobin;
    let config = ShardedConfig { num_shards: Some(num_shards), homes, ..ShardedConfig::ring(mb << 20) };
    let buffer = ShardedBuffer::create(config).unwrap();
    assert_eq!(buffer.report().layout.num_shards, num_shards);
    buffer
}

/// A chunk of one writer that was taken for reading, alone in its page.
pub(crate) fn taken(smb: &Smb, page: usize, writer: u16, chunk_id: u32, payload: &[u8]) -> Source<'static> {
    let chunk = smb.try_acquire(page, PageLayout::Div1).unwrap();
    let header = ChunkHeader { chunk_id, writer_id: writer, fragments: 1, flags: SmbFlags::NONE };
    smb.write_header(&chunk, header);
    smb.write_payload(&chunk, 0, payload);
    smb.complete(chunk).unwrap();
    Source::Shared(smb.try_begin_read(page, 0).unwrap().detach())
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < WATCH_LIMIT, "{what}");
        thread::yield_now();
    }
}
