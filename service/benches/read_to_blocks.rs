//! What a packet costs on its way out: read from the ring, validated, stamped, framed into a block
//! of 1 MiB.
//!
//! `cargo bench -p watershed-service --bench read_to_blocks`: nanoseconds a packet over a 64 MiB
//! ring of packets of 50 to 500 bytes that are valid protobuf, beside a copy of the same bytes. It
//! checks that every packet came out.

use std::sync::Arc;
use std::time::Instant;

use prost::Message;
use watershed_service::{
    ClockReadings, ConsumerId, OutputFile, PeerIdentity, ProducerHello, ProducerMemory, ReadProgress,
    Service, ServiceOptions, Shards, SystemInfo,
};
use watershed_smb::SharedMemory;
use watershed_wire::protos;
use watershed_wire::protos::commit_data_request::ChunksToMove;

/// Laps unless a number is given as an argument.
const LAPS: usize = 9;
const BUFFER_KB: u32 = 64 * 1024;
const WRITERS: u16 = 16;
/// Large enough to fill the ring, and not to go round.
const CHUNKS: u32 = 16_000;

/// A timestamp and an event that takes the rest.
fn packet(size_bytes: usize) -> Vec<u8> {
    let mut packet = vec![0x40];
    prost::encoding::encode_varint(1_700_000_000_000_000_000, &mut packet);
    let event_bytes = size_bytes - packet.len() - 3;
    packet.extend([0x5a, (event_bytes & 0x7f) as u8 | 0x80, (event_bytes >> 7) as u8]);
    packet.resize(size_bytes, b'-');
    packet
}

/// The bytes of a chunk with its header, and how many packets are in it.
fn chunk(random: &mut fastrand::Rng, writer_id: u16, chunk_id: u32) -> (Vec<u8>, u16) {
    let mut payload = Vec::new();
    let mut packets = 0;
    loop {
        let size_bytes = random.usize(50..500);
        if payload.len() + 2 + size_bytes > 4080 {
            break;
        }
        payload.extend([(size_bytes & 0x7f) as u8 | 0x80, (size_bytes >> 7) as u8]);
        payload.extend(packet(size_bytes));
        packets += 1;
    }
    let header = [&chunk_id.to_le_bytes()[..], &writer_id.to_le_bytes(), &u16::to_le_bytes(packets)].concat();
    ([header, payload].concat(), packets)
}

fn filled() -> (Service, ConsumerId, u64) {
    let mut service = Service::new(ServiceOptions {
        seed: 1,
        uid: 0,
        version: "Perfetto v58.0-bench".to_owned(),
        system: SystemInfo::default(),
        scraping_by_default: false,
        huge_pages: watershed_service::HugePages::Advise,
        shards: Shards::Wanted(1),
        workers: None,
        memory: Box::new(|size_bytes| SharedMemory::anonymous(size_bytes).map(Arc::new)),
        read_pool: Box::new(|| None),
        never_waits: false,
        filter_clock: None,
    });
    let now = ClockReadings::default();
    let identity = PeerIdentity { uid: 1000, pid: Some(12_345), ..PeerIdentity::default() };
    let hello = ProducerHello { identity, memory: ProducerMemory::Emulated, ..ProducerHello::default() };
    let producer = service.handle_producer_connect(hello).expect("let in").producer_id;
    let source = protos::DataSourceDescriptor { name: Some("src".to_owned()), ..Default::default() };
    service.handle_register_data_source(producer, &source.encode_to_vec(), &now);
    let consumer = service.handle_consumer_connect(PeerIdentity::default()).expect("let in");
    let config = protos::TraceConfig {
        buffers: vec![protos::trace_config::BufferConfig { size_kb: Some(BUFFER_KB), ..Default::default() }],
        data_sources: vec![protos::trace_config::DataSource {
            config: Some(protos::DataSourceConfig { name: source.name, ..Default::default() }),
            ..Default::default()
        }],
        ..Default::default()
    };
    service
        .handle_enable_tracing(consumer, &config.encode_to_vec(), OutputFile::None, &now)
        .expect("the config is accepted");
    let mut random = fastrand::Rng::with_seed(42);
    let mut packets = 0;
    for i in 0..CHUNKS {
        let writer_id = (i % u32::from(WRITERS)) as u16 + 1;
        let (data, in_chunk) = chunk(&mut random, writer_id, i / u32::from(WRITERS));
        packets += u64::from(in_chunk);
        let entry = ChunksToMove { target_buffer: Some(1), data: Some(data), ..Default::default() };
        let request = protos::CommitDataRequest { chunks_to_move: vec![entry], ..Default::default() };
        assert!(service.handle_commit_data(producer, &request));
    }
    (service, consumer, packets)
}

fn main() {
    let laps = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(LAPS);
    let mut read_ns = Vec::new();
    let mut copy_ns = Vec::new();
    let mut block = Vec::with_capacity(2 << 20);
    // The first lap warms up.
    for _ in 0..=laps {
        let (mut service, consumer, packets) = filled();
        let now = ClockReadings::default();
        let (mut written_bytes, mut done) = (0, false);
        let begin = Instant::now();
        while !done {
            block.clear();
            done = service.read_framed(consumer, &mut block, &now) == ReadProgress::Done;
            written_bytes += block.len();
        }
        read_ns.push(begin.elapsed().as_nanos() as f64 / packets as f64);

        let stats = service.trace_stats(consumer).expect("a session");
        assert_eq!(stats.buffer_stats[0].chunks_read(), u64::from(CHUNKS), "everything was read");
        assert_eq!((stats.invalid_packets(), stats.buffer_stats[0].chunks_overwritten()), (0, 0));

        let source = vec![1_u8; written_bytes];
        let begin = Instant::now();
        for part in source.chunks(1 << 20) {
            block.clear();
            block.extend_from_slice(std::hint::black_box(part));
        }
        copy_ns.push(begin.elapsed().as_nanos() as f64 / packets as f64);
    }
    for (name, samples) in [("read_to_blocks", &mut read_ns), ("memcpy of the same", &mut copy_ns)] {
        samples.remove(0);
        samples.sort_by(f64::total_cmp);
        println!(
            "{name}: {:.1} ns a packet (median of {laps}, {:.1} to {:.1})",
            samples[laps / 2],
            samples[0],
            samples[laps - 1]
        );
    }
}
