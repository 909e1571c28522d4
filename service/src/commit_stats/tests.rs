//! What commits of a session may meet: a shard that fails, or that another thread has.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use prost::Message as _;
use watershed_engine::{HugePages, ProducerId};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};
use watershed_wire::protos::commit_data_request::ChunksToMove;
use watershed_wire::protos::{
    CommitDataRequest, DataSourceConfig, DataSourceDescriptor, Trace, TraceConfig, trace_config,
};

use super::*;
use crate::limits::PENDING_STATS_MAX;
use crate::{
    ClockReadings, ConsumerEvent, ConsumerId, Output, OutputFile, PeerIdentity, ProducerCommand,
    ProducerHello, ProducerMemory, ReadProgress, ServiceOptions, Shards, SystemInfo,
};

const WRITERS: u16 = 2;

fn service(never_waits: bool) -> Service {
    Service::new(ServiceOptions {
        seed: 1,
        uid: 0,
        version: String::new(),
        system: SystemInfo::default(),
        scraping_by_default: false,
        shards: Shards::Wanted(2),
        huge_pages: HugePages::Advise,
        workers: None,
        memory: Box::new(|size_bytes| SharedMemory::anonymous(size_bytes).map(Arc::new)),
        read_pool: Box::new(|| None),
        never_waits,
        filter_clock: None,
    })
}

fn config() -> TraceConfig {
    let source = DataSourceConfig { name: Some("src".to_owned()), ..Default::default() };
    TraceConfig {
        buffers: vec![trace_config::BufferConfig { size_kb: Some(16 << 10), ..Default::default() }],
        data_sources: vec![trace_config::DataSource { config: Some(source), ..Default::default() }],
        ..Default::default()
    }
}

/// A chunk of each writer, in a message: one packet with the time `chunk_id`.
fn commit(service: &mut Service, producer_id: ProducerId, chunk_id: u8) {
    let chunk = |writer_id: u16| {
        let data = [&[chunk_id, 0, 0, 0][..], &writer_id.to_le_bytes(), &[1, 0, 2, 0x40, chunk_id]].concat();
        ChunksToMove { data: Some(data), target_buffer: Some(1), ..Default::default() }
    };
    let chunks_to_move = (1..=WRITERS).map(chunk).collect();
    let request = CommitDataRequest { chunks_to_move, ..Default::default() };
    assert!(service.handle_commit_data(producer_id, &request));
}

fn warnings(service: &mut Service) -> Vec<Warning> {
    let outputs = std::iter::from_fn(|| service.poll_output());
    let warning = |output| if let Output::Warning(warning) = output { Some(warning) } else { None };
    outputs.filter_map(warning).collect()
}

/// A service with a producer and a session.
fn recording(hello: ProducerHello) -> (Service, ProducerId, ConsumerId, SessionId) {
    recording_with(service(false), hello, &config())
}

fn recording_with(
    mut service: Service,
    hello: ProducerHello,
    config: &TraceConfig,
) -> (Service, ProducerId, ConsumerId, SessionId) {
    let now = ClockReadings::default();
    let producer_id = service.handle_producer_connect(hello).unwrap().producer_id;
    let source = DataSourceDescriptor { name: Some("src".to_owned()), ..Default::default() };
    service.handle_register_data_source(producer_id, &source.encode_to_vec(), &now);
    let consumer_id = service.handle_consumer_connect(PeerIdentity::default()).unwrap();
    let config = config.encode_to_vec();
    let session_id = service.handle_enable_tracing(consumer_id, &config, OutputFile::None, &now).unwrap();
    (service, producer_id, consumer_id, session_id)
}

#[test]
fn what_a_locked_shard_leaves_is_done_when_nothing_else_is() {
    let hello = ProducerHello { shm_size_hint_bytes: 2 << 20, ..Default::default() };
    let (mut service, producer_id, ..) = recording(hello);
    let memory = std::iter::from_fn(|| service.poll_output()).find_map(|output| match output {
        Output::Producer(_, ProducerCommand::SetupTracing { memory, page_size_bytes }) => {
            Some(Smb::new(memory?, page_size_bytes).unwrap())
        }
        _ => None,
    });
    let smb = memory.expect("the producer gets memory");
    let chunk = |chunk_id| {
        let chunk = smb.try_acquire(0, PageLayout::Div1).unwrap();
        let header = ChunkHeader { chunk_id, writer_id: 1, fragments: 0, flags: ChunkFlags::NONE };
        smb.write_header(&chunk, header);
        let (page, index) = (Some(chunk.page() as u32), Some(chunk.index() as u32));
        smb.complete(chunk).unwrap();
        ChunksToMove { page, chunk: index, target_buffer: Some(1), ..Default::default() }
    };
    let request = |chunk_ids: Range<u32>| CommitDataRequest {
        chunks_to_move: chunk_ids.map(chunk).collect(),
        ..Default::default()
    };
    let num_in_use = || (0..smb.num_pages()).filter(|page| !smb.snapshot(*page).unwrap().is_free()).count();

    let buffer = Arc::clone(&service.buffers.iter().next().unwrap().trace);
    let held = [0, 1].map(|shard| buffer.stop_shard(shard));
    assert!(service.handle_commit_data(producer_id, &request(0..200)));
    assert_eq!(num_in_use(), 200, "the commit has not waited");
    drop(held);
    assert!(service.handle_commit_data(producer_id, &request(200..201)));
    let left = num_in_use();
    assert!(left > 100, "a commit does what its budget allows: {left} chunks are left");
    while service.handle_idle() {}
    assert_eq!(num_in_use(), 0, "the producer has them back");
}

#[test]
fn a_shard_that_fails_is_told() {
    let hello = ProducerHello { memory: ProducerMemory::Emulated, ..Default::default() };
    let (mut service, producer_id, consumer_id, session_id) = recording(hello);
    let now = ClockReadings::default();
    commit(&mut service, producer_id, 1);
    assert_eq!((service.commit_stats().poisoned, warnings(&mut service)), (Poisoned::default(), vec![]));
    let buffer = service.buffers.iter().next().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| buffer.trace.panic_in_shard(0))).is_err());
    commit(&mut service, producer_id, 2);
    let warning = Warning::ShardPoisoned { session_id, index: 0, num_shards: 1 };
    assert_eq!(warnings(&mut service), [warning], "when the first chunk is refused");
    commit(&mut service, producer_id, 3);

    service.note_producer_wait(5);
    service.note_producer_wait(7);
    service.handle_disable_tracing(consumer_id, &now);
    let mut trace = Vec::new();
    while service.read_framed(consumer_id, &mut trace, &now) == ReadProgress::More {}
    let trace = Trace::decode(&trace[..]).unwrap();
    // The service's own are later, or have no time.
    let times = trace.packet.iter().map(|packet| packet.timestamp()).filter(|time| (1..4).contains(time));
    assert_eq!(times.collect::<Vec<_>>(), [1, 2, 3]);
    let is_stats = |data| match data {
        watershed_wire::protos::trace_packet::Data::TraceStats(stats) => Some(stats),
        _ => None,
    };
    let stats = trace.packet.into_iter().filter_map(|packet| packet.data).find_map(is_stats).unwrap();
    let buffer = stats.buffer_stats[0];
    // One was there, two were refused.
    assert_eq!((buffer.shards_poisoned, buffer.chunks_lost_in_poisoned_shards), (Some(1), Some(3)));
    let commits = stats.commit_stats.unwrap();
    assert_eq!((commits.producer_waits, commits.producer_wait_ns_sum), (Some(2), Some(12)));
    assert_eq!((commits.producer_wait_ns_max, commits.worker_turns), (Some(7), None));
    assert_eq!(service.commit_stats().poisoned, Poisoned { shards: 1, chunks: 3 });
    assert_eq!(warnings(&mut service), [], "once");
    service.handle_free_buffers(consumer_id, &now);
    assert_eq!(service.commit_stats().poisoned, Poisoned::default(), "of the buffers that there are");
}

fn told(service: &mut Service) -> Vec<Option<u64>> {
    let outputs = std::iter::from_fn(|| service.poll_output());
    let written = |output| match output {
        Output::Consumer(_, ConsumerEvent::TraceStats(stats)) => {
            Some(stats.map(|stats| stats.buffer_stats[0].chunks_written()))
        }
        _ => None,
    };
    outputs.filter_map(written).collect()
}

/// Without workers the core goes on by itself, a budget a turn, and answers in order.
#[test]
fn statistics_wait_for_a_shard_and_are_told_in_order() {
    let hello = ProducerHello { memory: ProducerMemory::Emulated, ..Default::default() };
    let (mut service, producer_id, consumer_id, session_id) = recording(hello);
    let now = ClockReadings::default();
    let buffer = Arc::clone(&service.buffers.iter().next().unwrap().trace);
    (0..100).for_each(|id| commit(&mut service, producer_id, id));
    assert_eq!(told(&mut service), []);
    {
        let _held = buffer.stop_shard(0);
        (100..120).for_each(|id| commit(&mut service, producer_id, id));
        assert!((0..PENDING_STATS_MAX).all(|_| service.handle_get_trace_stats(consumer_id)));
        assert!(!service.handle_get_trace_stats(consumer_id), "it waits for too many");
        commit(&mut service, producer_id, 120);
        service.handle_timeout(&now);
        assert_eq!(told(&mut service), [], "not yet");
        assert_eq!(service.poll_timeout().wait_ns(&now), Some(0), "nobody tells when it goes on");
    }
    let mut all = Vec::new();
    for _ in 0..10 {
        service.handle_timeout(&now);
        all.extend(told(&mut service));
    }
    assert_eq!(all.len(), PENDING_STATS_MAX);
    // The first was begun before the last commit.
    assert!(all.is_sorted() && all[0] >= Some(240) && all[1..].iter().all(|written| *written == Some(242)));
    assert!(!service.waits_for_shards());

    let held = buffer.stop_shard(0);
    commit(&mut service, producer_id, 121);
    assert!(service.handle_get_trace_stats(consumer_id) && service.handle_get_trace_stats(consumer_id));
    service.handle_free_buffers(consumer_id, &now);
    assert_eq!(service.session_state(session_id), None);
    assert_eq!(told(&mut service), [None, None], "there is no session any more");
    assert!(!service.waits_for_shards() && !service.handle_get_trace_stats(consumer_id));
    drop(held);
}

/// Chunks of one writer, each with a packet whose time is the number of the chunk.
fn commit_all(service: &mut Service, producer_id: ProducerId, numbers: Range<u32>) {
    for number in numbers {
        let packet =
            watershed_wire::protos::TracePacket { timestamp: Some(number.into()), ..Default::default() };
        let data = [&number.to_le_bytes()[..], &[1, 0, 1, 0], &packet.encode_length_delimited_to_vec()];
        let chunk = ChunksToMove { data: Some(data.concat()), target_buffer: Some(1), ..Default::default() };
        let request = CommitDataRequest { chunks_to_move: vec![chunk], ..Default::default() };
        assert!(service.handle_commit_data(producer_id, &request));
    }
}

fn times_of(service: &mut Service, consumer_id: ConsumerId) -> Vec<u64> {
    let mut trace = Vec::new();
    while service.read_framed(consumer_id, &mut trace, &ClockReadings::default()) == ReadProgress::More {}
    let packets = Trace::decode(&trace[..]).unwrap().packet;
    packets.iter().map(|packet| packet.timestamp()).filter(|time| *time > 0).collect()
}

/// Batches for which a queue has no room wait, and the service for none of them: a read and a clone
/// that was flushed go on when those have been committed that came before. Each comes once, in the
/// clone or in the original.
#[test]
fn reads_and_clones_go_on_when_what_waited_has_found_room() {
    let (mut config, now) = (config(), ClockReadings::default());
    config.buffers[0].transfer_on_clone = Some(true);
    config.builtin_data_sources = Some(trace_config::BuiltinDataSource {
        disable_clock_snapshotting: Some(true),
        disable_trace_config: Some(true),
        disable_system_info: Some(true),
        disable_service_events: Some(true),
        ..Default::default()
    });
    let hello = ProducerHello { memory: ProducerMemory::Emulated, ..Default::default() };
    let (mut service, producer_id, consumer_id, session_id) = recording_with(service(true), hello, &config);
    let buffer = Arc::clone(&service.buffers.iter().next().unwrap().trace);
    let held = [0, 1].map(|shard| buffer.stop_shard(shard));
    commit_all(&mut service, producer_id, 1..300);
    assert!(service.has_waiting(), "more than a queue holds");
    assert!(matches!(service.begin_read(consumer_id, &now), crate::ReadBegun::Later));
    let other = service.handle_consumer_connect(PeerIdentity::default()).unwrap();
    let request = crate::CloneRequest {
        source: crate::CloneSource::Session(session_id),
        for_bugreport: false,
        skip_filter: false,
        trigger: None,
        into_file: false,
    };
    service.handle_clone_session(other, request, false, &now).unwrap();
    let flush = std::iter::from_fn(|| service.poll_output()).find_map(|output| match output {
        Output::Producer(_, ProducerCommand::Flush { request_id, .. }) => Some(request_id),
        _ => None,
    });
    let flush_request_id = flush.map(|flush_id| flush_id.0);
    let flushed = CommitDataRequest { flush_request_id, ..Default::default() };
    assert!(service.handle_commit_data(producer_id, &flushed));
    commit_all(&mut service, producer_id, 300..310);
    service.handle_timeout(&now);
    assert!(service.poll_output().is_none(), "both wait");
    drop(held);
    let mut events = Vec::new();
    while events.len() < 2 {
        assert!(service.poll_timeout().wait_ns(&now).is_some(), "it is to be gone on with");
        service.handle_timeout(&now);
        while service.handle_idle() {}
        events.extend(std::iter::from_fn(|| service.poll_output()).filter_map(|output| match output {
            Output::Consumer(consumer_id, event) => Some((consumer_id, event)),
            _ => None,
        }));
    }
    assert!(events.contains(&(consumer_id, ConsumerEvent::ReadReady)), "{events:?}");
    let is_clone = |event: &_| matches!(event, ConsumerEvent::Cloned { result: Ok(_), .. });
    assert!(events.iter().any(|(of, event)| *of == other && is_clone(event)), "{events:?}");
    let (cloned, left) = (times_of(&mut service, other), times_of(&mut service, consumer_id));
    assert!(cloned.len() >= 299, "all that was there before the flush was over");
    assert_eq!([cloned, left].concat(), (1..310).collect::<Vec<u64>>());
}
