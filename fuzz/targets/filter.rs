//! Filter programs, and packets that pass through them: the service refuses a program or keeps to
//! it, and what comes out is a trace.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use watershed_service::{
    ClockReadings, HugePages, Output, OutputFile, PeerIdentity, ProducerCommand, ProducerHello,
    ProducerMemory, ReadProgress, Service, ServiceOptions, Shards, SystemInfo,
};
use watershed_smb::SharedMemory;
use watershed_wire::protos::commit_data_request::ChunksToMove;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource, TraceFilter};
use watershed_wire::protos::{self, TraceConfig};
use watershed_wire::raw::Fields;

fn service() -> Service {
    Service::new(ServiceOptions {
        seed: 1,
        uid: 0,
        version: "Perfetto v58.0-fuzz".to_owned(),
        system: SystemInfo::default(),
        scraping_by_default: false,
        shards: Shards::Wanted(1),
        huge_pages: HugePages::Advise,
        workers: None,
        memory: Box::new(|size_bytes| SharedMemory::anonymous(size_bytes).map(Arc::new)),
        read_pool: Box::new(|| None),
        never_waits: false,
        filter_clock: None,
    })
}

/// Lower half of FNV-1a with 64 bits over the words of a program.
fn checksum(words: &[u32]) -> u32 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        as u32
}

/// The input as words of a program with its right checksum, so that the checksum stops nobody.
fn program(bytes: &[u8]) -> Vec<u8> {
    let words: Vec<u32> = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) | pair.get(1).map_or(0, |high| u32::from(*high)) << 8)
        .collect();
    let mut bytecode = Vec::new();
    for word in words.iter().chain([&checksum(&words)]) {
        prost::encoding::encode_varint(u64::from(*word), &mut bytecode);
    }
    bytecode
}

fuzz_target!(|input: (Vec<u8>, Vec<u8>, bool)| {
    let (filter, packet, is_raw) = input;
    let bytecode = if is_raw { filter } else { program(&filter) };
    let source = protos::DataSourceConfig { name: Some("src".to_owned()), ..Default::default() };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(64), ..Default::default() }],
        data_sources: vec![DataSource { config: Some(source), ..Default::default() }],
        trace_filter: Some(TraceFilter { bytecode: Some(bytecode), ..Default::default() }),
        ..Default::default()
    };
    let (mut service, now) = (service(), ClockReadings::default());
    let hello = ProducerHello { memory: ProducerMemory::Emulated, ..Default::default() };
    let producer = service.handle_producer_connect(hello).expect("there is room").producer_id;
    let descriptor = protos::DataSourceDescriptor { name: Some("src".to_owned()), ..Default::default() };
    service.handle_register_data_source(producer, &descriptor.encode_to_vec(), &now);
    let consumer = service.handle_consumer_connect(PeerIdentity::default()).expect("there is room");
    if service.handle_enable_tracing(consumer, &config.encode_to_vec(), OutputFile::None, &now).is_err() {
        return;
    }
    let mut target_buffer = None;
    while let Some(output) = service.poll_output() {
        if let Output::Producer(_, ProducerCommand::SetupDataSource { config, .. }) = output {
            target_buffer = protos::DataSourceConfig::decode(&config[..]).expect("a config").target_buffer;
        }
    }
    // One chunk with one fragment of writer 1.
    let mut chunk = vec![0, 0, 0, 0, 1, 0, 1, 0];
    prost::encoding::encode_varint(packet.len() as u64, &mut chunk);
    chunk.extend_from_slice(&packet);
    let moved = ChunksToMove { data: Some(chunk), target_buffer, ..Default::default() };
    let request = protos::CommitDataRequest { chunks_to_move: vec![moved], ..Default::default() };
    assert!(service.handle_commit_data(producer, &request));
    let mut trace = Vec::new();
    while service.read_framed(consumer, &mut trace, &now) == ReadProgress::More {}
    for field in Fields::new(&trace) {
        let field = field.expect("a trace is a message");
        assert_eq!(field.number, 1, "of packets");
        assert!(Fields::new(field.value.bytes().expect("a packet")).all(|field| field.is_ok()));
    }
});
