//! What the service's thread does while nobody asks it for anything.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use prost::Message as _;
use watershed_service::{DirectCommits, ProducerMemory, ScrapingMode, ServiceOptions, Shards, SystemInfo};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};
use watershed_wire::protos::commit_data_request::ChunksToMove;
use watershed_wire::protos::{
    CommitDataRequest, DataSourceConfig, DataSourceDescriptor, TraceConfig, trace_config,
};

use super::super::endpoint::QueueEndpoint;
use super::*;
use crate::endpoint::Endpoint as _;

const PAGE_BYTES: usize = 4096;
const MEMORY_BYTES: usize = 2 << 20;
/// Of 40 writers, over 16 shards: far more than the budget of a commit.
const CHUNKS: u32 = 200;

fn options(memory: &Arc<SharedMemory>) -> ServiceOptions {
    let memory = Arc::clone(memory);
    ServiceOptions {
        seed: 1,
        uid: 0,
        version: String::new(),
        system: SystemInfo::default(),
        scraping_by_default: false,
        huge_pages: watershed_service::HugePages::Advise,
        shards: Shards::Wanted(16),
        workers: None,
        memory: Box::new(move |_| Ok(Arc::clone(&memory))),
        read_pool: Box::new(|| None),
        never_waits: false,
        filter_clock: None,
    }
}

fn config() -> TraceConfig {
    let source = DataSourceConfig { name: Some("src".to_owned()), ..Default::default() };
    TraceConfig {
        buffers: vec![trace_config::BufferConfig { size_kb: Some(64 << 10), ..Default::default() }],
        data_sources: vec![trace_config::DataSource { config: Some(source), ..Default::default() }],
        ..Default::default()
    }
}

/// Writes a chunk of one packet, and says where it is.
fn chunk(smb: &Smb, i: u32) -> ChunksToMove {
    let chunk = smb.try_acquire(i as usize, PageLayout::Div1).unwrap();
    let (page, index) = (chunk.page() as u32, chunk.index() as u32);
    smb.write_payload(&chunk, 0, &[2, 0x40, 7]);
    let writer_id = 1 + (i % 40) as u16;
    let header = ChunkHeader { chunk_id: i / 40, writer_id, fragments: 1, flags: ChunkFlags::NONE };
    smb.write_header(&chunk, header);
    smb.complete(chunk).unwrap();
    ChunksToMove { page: Some(page), chunk: Some(index), target_buffer: Some(1), ..Default::default() }
}

#[test]
fn what_a_commit_leaves_is_done_while_nobody_asks_for_anything() {
    let memory = Arc::new(SharedMemory::anonymous(MEMORY_BYTES).unwrap());
    let smb = Smb::new(Arc::clone(&memory), PAGE_BYTES).unwrap();
    let shell = Shell::new(Service::new(options(&memory)), Box::new(|_| {}));
    let (requests, queue) = mpsc::channel();
    let thread = std::thread::spawn(move || shell.run(&queue));

    let hello = ProducerHello {
        page_size_hint_bytes: PAGE_BYTES,
        shm_size_hint_bytes: MEMORY_BYTES,
        scraping: ScrapingMode::Disabled,
        memory: ProducerMemory::FromService,
        ..Default::default()
    };
    let (reply, connected) = mpsc::channel();
    requests.send(Request::Connect { hello: Box::new(hello), reply }).unwrap();
    let producer_id = connected.recv().unwrap().unwrap();
    let call = |call| requests.send(Request::Producer(producer_id, call)).unwrap();
    let source = DataSourceDescriptor { name: Some("src".to_owned()), ..Default::default() };
    call(Call::Register(source.encode_to_vec()));
    let (reply, enabled) = mpsc::channel();
    let (config, notices) = (config().encode_to_vec(), Arc::default());
    let enable = Request::Enable { config, output: None, notices, requests: requests.clone(), reply };
    requests.send(enable).unwrap();
    enabled.recv().unwrap().unwrap();

    let chunks_to_move = (0..CHUNKS).map(|i| chunk(&smb, i)).collect();
    let endpoint = QueueEndpoint::new(producer_id, requests.clone(), DirectCommits::default());
    endpoint.commit_data(CommitDataRequest { chunks_to_move, ..Default::default() }, None);
    // Nothing else is asked for. The wait is a watchdog: it ends when all pages are free.
    let end = Instant::now() + Duration::from_secs(60);
    let in_use = || (0..smb.num_pages()).filter(|page| !smb.snapshot(*page).unwrap().is_free()).count();
    while in_use() > 0 && Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(in_use(), 0, "the producer has its chunks back");
    requests.send(Request::ShutDown).unwrap();
    thread.join().unwrap();
}
