//! A service that keeps what it is given, and a reader of it that shares no code with the crate.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use watershed_client::{Arbiter, ArbiterOptions, Done, Endpoint, Waker};
use watershed_smb::{ChunkFlags, SharedMemory, Smb};
use watershed_wire::protos::CommitDataRequest;

/// One chunk as the service copied it.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub fragments: u16,
    pub flags: ChunkFlags,
    pub payload: Vec<u8>,
    pub target_buffer: u32,
    /// As the service knows it: cleared by the last patch.
    pub needs_patching: bool,
}

#[derive(Default)]
struct Inbox {
    waiting: VecDeque<(CommitDataRequest, Option<Done>)>,
    /// By writer, then chunk id.
    chunks: BTreeMap<u16, BTreeMap<u32, Chunk>>,
    registered: Vec<(u16, u16)>,
    unregistered: Vec<u16>,
    requests: Vec<CommitDataRequest>,
}

/// The service's side of one connection. It works inside the call, unless it is stalled.
pub struct FakeService {
    pub smb: Smb,
    inbox: Mutex<Inbox>,
    stalled: AtomicBool,
}

impl FakeService {
    pub fn new(pages: usize, page_size_bytes: usize) -> Arc<Self> {
        Self::over(SharedMemory::create(pages * page_size_bytes).unwrap(), page_size_bytes)
    }

    pub fn over(memory: SharedMemory, page_size_bytes: usize) -> Arc<Self> {
        let smb = Smb::new(Arc::new(memory), page_size_bytes).unwrap();
        Arc::new(Self { smb, inbox: Mutex::default(), stalled: AtomicBool::new(false) })
    }

    pub fn arbiter(self: &Arc<Self>, options: ArbiterOptions) -> Arbiter {
        Arbiter::new(self.smb.clone(), self.clone(), Box::new(NoWaker), options)
    }

    /// From now on requests wait, as they do when the service does not get to run.
    pub fn stall(&self) {
        self.stalled.store(true, Ordering::SeqCst);
    }

    pub fn resume(&self) {
        self.stalled.store(false, Ordering::SeqCst);
        let mut inbox = self.inbox.lock().unwrap();
        while let Some((request, done)) = inbox.waiting.pop_front() {
            self.process(&mut inbox, request, done);
        }
    }

    fn process(&self, inbox: &mut Inbox, request: CommitDataRequest, done: Option<Done>) {
        for place in &request.chunks_to_move {
            let chunk =
                self.smb.try_begin_read(place.page() as usize, place.chunk() as usize).expect("complete");
            let header = chunk.header();
            let mut payload = vec![0; chunk.payload().size_bytes()];
            chunk.payload().copy_range(0, &mut payload);
            let copied = Chunk {
                fragments: header.fragments,
                flags: header.flags,
                payload,
                target_buffer: place.target_buffer(),
                needs_patching: header.flags.contains(ChunkFlags::NEEDS_PATCHING),
            };
            let before = inbox.chunks.entry(header.writer_id).or_default().insert(header.chunk_id, copied);
            assert!(before.is_none(), "a chunk id was used twice");
            chunk.release().unwrap();
        }
        for group in &request.chunks_to_patch {
            let writer = inbox.chunks.get_mut(&(group.writer_id() as u16)).expect("a known writer");
            let chunk = writer.get_mut(&group.chunk_id()).expect("a known chunk");
            assert!(chunk.needs_patching, "a patch for a chunk that needs none");
            assert!(group.patches.len() <= 1024);
            for patch in &group.patches {
                let at = patch.offset() as usize;
                assert_eq!(chunk.payload[at..at + 4], [0; 4], "a placeholder is zero");
                chunk.payload[at..at + 4].copy_from_slice(patch.data());
            }
            chunk.needs_patching = group.has_more_patches();
        }
        inbox.requests.push(request);
        if let Some(done) = done {
            done();
        }
    }

    /// Requests that were processed so far, and forgets them.
    pub fn take_requests(&self) -> Vec<CommitDataRequest> {
        std::mem::take(&mut self.inbox.lock().unwrap().requests)
    }

    pub fn registered(&self) -> Vec<(u16, u16)> {
        self.inbox.lock().unwrap().registered.clone()
    }

    pub fn unregistered(&self) -> Vec<u16> {
        self.inbox.lock().unwrap().unregistered.clone()
    }

    pub fn chunks(&self, writer_id: u16) -> BTreeMap<u32, Chunk> {
        self.inbox.lock().unwrap().chunks.get(&writer_id).cloned().unwrap_or_default()
    }

    /// What a reader makes of the chunks of a writer: whole packets, in order.
    pub fn packets(&self, writer_id: u16) -> Vec<Read> {
        read(&self.chunks(writer_id))
    }
}

impl Endpoint for FakeService {
    fn register_data_source(&self, _descriptor: &[u8]) {}
    fn update_data_source(&self, _descriptor: &[u8]) {}
    fn unregister_data_source(&self, _name: &str) {}

    fn register_trace_writer(&self, writer_id: u16, target_buffer: u16) {
        self.inbox.lock().unwrap().registered.push((writer_id, target_buffer));
    }

    fn unregister_trace_writer(&self, writer_id: u16) {
        self.inbox.lock().unwrap().unregistered.push(writer_id);
    }

    fn commit_data(&self, request: CommitDataRequest, done: Option<Done>) {
        let mut inbox = self.inbox.lock().unwrap();
        if self.stalled.load(Ordering::SeqCst) {
            inbox.waiting.push_back((request, done));
        } else {
            self.process(&mut inbox, request, done);
        }
    }

    fn data_source_started(&self, _instance_id: u64) {}
    fn data_source_stopped(&self, _instance_id: u64) {}
    fn activate_triggers(&self, _names: &[String]) {}

    fn sync(&self, done: Done) {
        done();
    }
}

struct NoWaker;

impl Waker for NoWaker {
    fn wake(&self, _delay: Duration) {}
}

/// Waits for what other threads do.
pub fn wait_until(mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(300), "not within five minutes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One packet as the reader found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub bytes: Vec<u8>,
    /// A packet before this one was cut off by the drop marker, or could not be put together.
    pub cut_before: bool,
}

/// Reads the fragments of one chunk the plain way; `None` stands for the drop marker.
pub fn fragments(chunk: &Chunk) -> Vec<Option<&[u8]>> {
    let mut rest = &chunk.payload[..];
    let mut found = Vec::new();
    for _ in 0..chunk.fragments {
        let (size, header) = varint(rest).expect("a size in the chunk");
        rest = &rest[header..];
        if size == 0x0FFF_FFFF {
            found.push(None);
            break;
        }
        let (body, after) = rest.split_at(size as usize);
        found.push(Some(body));
        rest = after;
    }
    assert!(found.len() == usize::from(chunk.fragments) || found.last() == Some(&None));
    found
}

pub fn read(chunks: &BTreeMap<u32, Chunk>) -> Vec<Read> {
    let mut packets = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    let mut cut = false;
    for (expected, (&id, chunk)) in (0..).zip(chunks) {
        assert_eq!(id, expected, "chunk ids have no gaps");
        assert!(!chunk.needs_patching, "all patches have come");
        let fragments = fragments(chunk);
        let last = fragments.len().wrapping_sub(1);
        for (i, fragment) in fragments.into_iter().enumerate() {
            let continues = i == 0 && chunk.flags.contains(ChunkFlags::FIRST_CONTINUES);
            assert_eq!(open.is_some(), continues, "a continuation has its begin");
            let mut packet = open.take().unwrap_or_default();
            let Some(body) = fragment else {
                assert!(!chunk.flags.contains(ChunkFlags::LAST_CONTINUES));
                cut = true;
                continue;
            };
            packet.extend_from_slice(body);
            if i == last && chunk.flags.contains(ChunkFlags::LAST_CONTINUES) {
                open = Some(packet);
            } else if !packet.is_empty() {
                // An empty fragment fills the slot that was counted in advance; an empty packet
                // looks the same.
                packets.push(Read { bytes: packet, cut_before: std::mem::take(&mut cut) });
            }
        }
    }
    assert!(open.is_none(), "the last packet is whole");
    packets
}

/// Value and length.
pub fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7F) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, i + 1));
        }
    }
    None
}

pub const FIRST_PACKET: [u8; 3] = [0xB8, 0x05, 0x01];
pub const LOSS: [u8; 4] = [0xD0, 0x02, 0x81, 0x02];

/// Takes off what the writer puts in front of a packet: (first on sequence, after a loss, what was
/// written).
pub fn split_prefix(mut packet: &[u8]) -> (bool, bool, &[u8]) {
    let mut take = |prefix: &[u8]| match packet.strip_prefix(prefix) {
        Some(rest) => {
            packet = rest;
            true
        }
        None => false,
    };
    let first = take(&FIRST_PACKET);
    let loss = take(&LOSS);
    (first, loss, packet)
}

/// Bytes that cannot be taken for a prefix of the writer's, different for each `seed`.
pub fn body(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| 0x20 | ((seed.wrapping_mul(31) + i * 7) % 97) as u8 & 0x5F).collect()
}
