//! From writers through shared memory into a trace buffer and out of it again: whatever is flushed,
//! scraped, patched, dropped and read in between, each packet comes out once, in order, and each
//! loss is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use watershed_client::{Arbiter, ArbiterOptions, Done, Endpoint, ExhaustedPolicy, TraceWriter, Waker};
use watershed_engine::{
    BufferConfig, ByteSource, ChunkFlags, ChunkId, ChunkInfo, ClientIdentity, LossReasons, Patch, ProducerId,
    TraceBuffer, WriterId,
};
use watershed_smb::{ChunkHeader, PageLayout, Payload, SharedMemory, Smb};
use watershed_wire::protos::CommitDataRequest;

const PRODUCER: ProducerId = ProducerId(7);

/// A service that is one buffer.
struct OneBuffer {
    smb: Smb,
    buffer: Mutex<TraceBuffer>,
}

struct Source<'a>(Payload<'a>);

impl ByteSource for Source<'_> {
    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        self.0.copy_range(offset_bytes, dst);
    }

    #[inline]
    fn shared_bytes(&self) -> Option<watershed_engine::SharedBytes<'_>> {
        self.0.shared_bytes()
    }
}

fn info(header: ChunkHeader, complete: bool) -> ChunkInfo {
    ChunkInfo {
        producer_id_trusted: PRODUCER,
        identity_trusted: ClientIdentity { uid: 1, pid: 2, machine_id: 0 },
        writer_id: WriterId(header.writer_id),
        chunk_id: ChunkId(header.chunk_id),
        num_fragments: header.fragments,
        flags: ChunkFlags(header.flags.bits()),
        complete,
    }
}

impl OneBuffer {
    fn new(pages: usize, buffer_bytes: usize) -> Arc<Self> {
        let memory = Arc::new(SharedMemory::anonymous(pages * 4096).unwrap());
        let buffer = TraceBuffer::create(&BufferConfig::ring(buffer_bytes)).unwrap();
        Arc::new(Self { smb: Smb::new(memory, 4096).unwrap(), buffer: Mutex::new(buffer) })
    }

    fn scrape(&self) {
        let mut buffer = self.buffer.lock().unwrap();
        for chunk in self.smb.scrape() {
            // A refusal is an answer too: an old chunk, for example.
            let _ = buffer
                .copy_chunk_untrusted(&info(chunk.header(), chunk.is_complete()), &Source(chunk.payload()));
        }
    }

    /// What can be read: writer, loss, packet.
    fn read(&self) -> Vec<(u16, LossReasons, Vec<u8>)> {
        let mut buffer = self.buffer.lock().unwrap();
        buffer.begin_read();
        let mut packets = Vec::new();
        while let Some(packet) = buffer.read_next() {
            assert_eq!(packet.producer_id, PRODUCER);
            packets.push((packet.writer_id.0, packet.loss, packet.to_vec()));
        }
        packets
    }
}

impl Endpoint for OneBuffer {
    fn register_data_source(&self, _descriptor: &[u8]) {}
    fn update_data_source(&self, _descriptor: &[u8]) {}
    fn unregister_data_source(&self, _name: &str) {}
    fn register_trace_writer(&self, _writer_id: u16, _target_buffer: u16) {}

    fn unregister_trace_writer(&self, writer_id: u16) {
        self.buffer.lock().unwrap().end_writer(PRODUCER, WriterId(writer_id));
    }

    fn commit_data(&self, request: CommitDataRequest, done: Option<Done>) {
        let mut buffer = self.buffer.lock().unwrap();
        for place in &request.chunks_to_move {
            let chunk =
                self.smb.try_begin_read(place.page() as usize, place.chunk() as usize).expect("complete");
            let _ = buffer.copy_chunk_untrusted(&info(chunk.header(), true), &Source(chunk.payload()));
            chunk.release().expect("nobody tampers here");
        }
        for group in &request.chunks_to_patch {
            let patches: Vec<_> = group
                .patches
                .iter()
                .map(|patch| Patch {
                    offset_untrusted: patch.offset(),
                    data: patch.data().try_into().expect("four bytes"),
                })
                .collect();
            let (writer_id, chunk_id) = (WriterId(group.writer_id() as u16), ChunkId(group.chunk_id()));
            buffer.try_patch(PRODUCER, writer_id, chunk_id, &patches, group.has_more_patches());
        }
        drop(buffer);
        if let Some(done) = done {
            done();
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

#[derive(Clone, Debug)]
enum Step {
    /// By writer: a packet of about this size, flat or with open messages around.
    Write {
        writer: usize,
        size: usize,
        depth: usize,
    },
    /// Returns the writer's chunk.
    Flush(usize),
    /// Sends what has been returned.
    Commit,
    Scrape,
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![4 => 0_usize..200, 2 => 0_usize..3000, 1 => 0_usize..15_000];
    prop_oneof![
        8 => (0_usize..3, size, 0_usize..5).prop_map(|(writer, size, depth)| Step::Write { writer, size, depth }),
        2 => (0_usize..3).prop_map(Step::Flush),
        3 => Just(Step::Commit),
        2 => Just(Step::Scrape),
        2 => Just(Step::Read),
    ]
}

/// Writes packet `number`: `depth` messages (field 2) around a field 1 with the number and a field
/// 3 with `size` bytes.
fn write(writer: &mut TraceWriter, number: u64, size: usize, depth: usize) {
    fn fields(message: &mut watershed_client::MessageWriter<'_>, number: u64, size: usize, depth: usize) {
        if depth == 0 {
            message.fixed64(1, number).bytes(3, &vec![number as u8 | 0x80; size]);
        } else {
            fields(&mut message.nested(2), number, size, depth - 1);
        }
    }
    fields(&mut writer.new_packet(), number, size, depth);
}

fn varint(bytes: &[u8]) -> (u64, &[u8]) {
    let len = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let value = bytes[..len].iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7F));
    (value, &bytes[len..])
}

/// Checks a packet and returns its number, and whether its writer says that packets were lost
/// before it.
fn check(mut packet: &[u8], first: bool, expected: impl Fn(u64) -> (usize, usize)) -> (u64, bool) {
    if first {
        packet = packet.strip_prefix(&[0xB8, 0x05, 0x01]).expect("the first packet says so");
    }
    let told = packet.strip_prefix(&[0xD0, 0x02, 0x81, 0x02]);
    packet = told.unwrap_or(packet);
    let mut depth = 0;
    while packet[0] == 0x12 {
        let (size, inner) = varint(&packet[1..]);
        assert_eq!(size as usize, inner.len(), "a nested size is exact");
        (packet, depth) = (inner, depth + 1);
    }
    let (number, rest) = packet.split_first_chunk::<9>().unwrap();
    let number = u64::from_le_bytes(number[1..].try_into().unwrap());
    let (size, body) = varint(&rest[1..]);
    assert_eq!((size as usize, depth), expected(number), "packet {number}");
    assert!(body.len() == size as usize && body.iter().all(|byte| *byte == number as u8 | 0x80));
    (number, told.is_some())
}

fn run(steps: &[Step], pages: usize, layout: PageLayout, direct_patching: bool, policy: ExhaustedPolicy) {
    let service = OneBuffer::new(pages, 16 << 20);
    let options = ArbiterOptions { layout, direct_patching, ..Default::default() };
    let arbiter = Arbiter::new(service.smb.clone(), service.clone(), Box::new(NoWaker), options);
    arbiter.set_producer_thread();
    let mut writers: Vec<_> = (0..3).map(|_| arbiter.create_writer(1, policy)).collect();
    // By writer: sizes and depths of all packets by number; numbers of those that were not dropped.
    let mut written = vec![Vec::new(); 3];
    let mut kept = vec![Vec::new(); 3];
    let mut read = Vec::new();
    for step in steps {
        match *step {
            Step::Write { writer, size, depth } => {
                let dropped = writers[writer].packets_dropped();
                let number = written[writer].len() as u64;
                write(&mut writers[writer], number, size, depth);
                written[writer].push((size, depth));
                if writers[writer].packets_dropped() == dropped {
                    kept[writer].push(number);
                }
            }
            Step::Flush(writer) => writers[writer].flush(),
            Step::Commit => arbiter.flush_commits(),
            Step::Scrape => service.scrape(),
            Step::Read => read.extend(service.read()),
        }
    }
    let ids: Vec<_> = writers.iter().map(TraceWriter::writer_id).collect();
    // A writer whose last packets were dropped ends with one that says so. It has room: the other
    // two hold a chunk each at most.
    for (i, writer) in writers.iter_mut().enumerate() {
        writer.flush();
        arbiter.flush_commits();
        let number = written[i].len() as u64;
        write(writer, number, 1, 0);
        written[i].push((1, 0));
        kept[i].push(number);
    }
    drop(writers);
    arbiter.flush_commits();
    read.extend(service.read());
    assert_eq!(arbiter.stats().violations, 0);
    let mut buffer = service.buffer.lock().unwrap();
    let stats = buffer.stats();
    assert_eq!(
        (stats.abi_violations, stats.patches_failed, stats.chunks_overwritten),
        (0, 0, 0),
        "{stats:?}"
    );
    buffer.check().unwrap();

    for (i, id) in ids.into_iter().enumerate() {
        let mut last = None;
        let mut numbers = Vec::new();
        for (_, loss, packet) in read.iter().filter(|(writer, ..)| *writer == id) {
            let (number, told) = check(packet, last.is_none(), |number| written[i][number as usize]);
            let lost = number != last.map_or(0, |last| last + 1);
            assert_eq!(told, lost, "writer {id}, packet {number} behind {last:?}: what the writer says");
            assert!(lost || loss.is_empty(), "writer {id}, packet {number}: {loss:?} and nothing was lost");
            numbers.push(number);
            last = Some(number);
        }
        assert_eq!(numbers, kept[i], "writer {id}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_by_writers_that_wait(
        steps in prop::collection::vec(step(), 1..80),
        pages in 4_usize..12,
        layout in prop::sample::select(&PageLayout::PARTITIONED[..]),
        direct_patching in any::<bool>(),
    ) {
        run(&steps, pages, layout, direct_patching, ExhaustedPolicy::StallThenDrop);
    }

    #[test]
    fn what_is_dropped_is_told(
        steps in prop::collection::vec(step(), 1..80),
        pages in 3_usize..6,
        layout in prop::sample::select(&PageLayout::PARTITIONED[..]),
        direct_patching in any::<bool>(),
    ) {
        run(&steps, pages, layout, direct_patching, ExhaustedPolicy::Drop);
    }
}
