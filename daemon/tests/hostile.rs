//! Peers that break the rules, beside others that keep them: the daemon lives, the others' traces
//! are whole, and what the broken ones had is given back.

mod support;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use prost::Message as _;
use support::{SOURCE, TestDaemon, config, num_descriptors, numbers_of, resident_kb, settle};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout};
use watershed_wire::framing::FRAME_SIZE_BYTES_MAX;
use watershed_wire::ipc::messages::DataSourceMessage;
use watershed_wire::ipc::{ConsumerMethod, Method as _, ProducerMethod, SERVICE_ID};
use watershed_wire::protos::commit_data_request::{ChunkToPatch, ChunksToMove, chunk_to_patch};
use watershed_wire::protos::ipc_frame::{InvokeMethod, Msg};
use watershed_wire::protos::{self, CommitDataRequest, IpcFrame};

/// A session of a good producer and a good consumer around something bad.
fn beside(num_workers: usize, bad: impl FnOnce(&TestDaemon)) -> Vec<String> {
    let daemon = TestDaemon::start(num_workers);
    let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
    let end = consumer.enable(&config());
    producer.serve_until(|producer| !producer.buffers.is_empty());
    (1..=100).for_each(|number| producer.write(1, number));
    bad(&daemon);
    (101..=200).for_each(|number| producer.write(1, number));
    assert!(consumer.flush_with(&mut producer), "nobody else is waited for");
    consumer.disable();
    assert_eq!(consumer.ended(end), None);
    let packets = consumer.read();
    // The first sequence of a session has the number 2.
    assert_eq!(numbers_of(&packets, 2), (1..=200).collect::<Vec<_>>(), "the good producer's trace is whole");
    daemon.log()
}

#[test]
fn bytes_that_are_no_frames() {
    let log = beside(1, |daemon| {
        let mut random = 1_u64;
        for round in 0..200 {
            let socket = if round % 2 == 0 { "producer" } else { "consumer" };
            let mut stream = UnixStream::connect(daemon.path(socket)).unwrap();
            let bytes: Vec<u8> = (0..round * 7)
                .map(|_| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    random as u8
                })
                .collect();
            // A frame of the right size with any content, and any bytes.
            let size = (bytes.len() as u32).to_le_bytes();
            let prefix = if round % 3 == 0 { &size[..] } else { &[] };
            // The daemon may have closed it in between.
            let _ = stream.write_all(prefix).and_then(|()| stream.write_all(&bytes));
        }
    });
    assert!(log.iter().any(|line| line.contains("closed: it sent a frame of")), "{log:?}");
}

#[test]
fn a_frame_that_is_too_long_ends_the_connection() {
    let log = beside(0, |daemon| {
        let mut client = daemon.producer().client;
        client.stream.set_nonblocking(false).unwrap();
        client.stream.write_all(&131_069_u32.to_le_bytes()).unwrap();
        client.stream.set_nonblocking(true).unwrap();
        assert!(client.is_closed());
    });
    let pid = format!("pid {}", std::process::id());
    assert!(log.iter().any(|line| line.contains("131069") && line.contains(&pid)), "{log:?}");
}

/// Requests whose numbers lie: pages, chunks, buffers, writers, patches, flushes, instances.
#[test]
fn commits_that_lie() {
    for num_workers in [0, 2] {
        beside(num_workers, |daemon| {
            let mut liar = daemon.producer();
            // The session takes it in: it has memory and a buffer then.
            liar.serve_until(|liar| !liar.buffers.is_empty());
            let buffer = liar.buffers[0];
            for lie in [0, 1, 13, 14, 63, 64, 65_535, 65_536, u32::MAX] {
                let place = ChunksToMove {
                    page: Some(lie),
                    chunk: Some(lie),
                    target_buffer: Some(buffer.wrapping_add(lie)),
                    ..Default::default()
                };
                let patch =
                    chunk_to_patch::Patch { offset: Some(lie), data: Some(vec![7; lie as usize % 9]) };
                let patches = ChunkToPatch {
                    target_buffer: Some(buffer),
                    writer_id: Some(lie),
                    chunk_id: Some(lie),
                    patches: vec![patch; 3],
                    has_more_patches: Some(lie % 2 == 0),
                };
                let by_message = ChunksToMove {
                    target_buffer: Some(buffer),
                    data: Some(vec![0xff; lie as usize % 70_000]),
                    ..Default::default()
                };
                liar.commit(CommitDataRequest {
                    chunks_to_move: vec![place, by_message],
                    chunks_to_patch: vec![patches],
                    flush_request_id: Some(lie.into()),
                });
                let id = Some(u64::from(lie));
                let started = protos::NotifyDataSourceStartedRequest { data_source_id: id };
                liar.client.tell(ProducerMethod::NotifyDataSourceStarted, &started);
                let stopped = protos::NotifyDataSourceStoppedRequest { data_source_id: id };
                liar.client.tell(ProducerMethod::NotifyDataSourceStopped, &stopped);
                let writer = protos::RegisterTraceWriterRequest {
                    trace_writer_id: Some(lie),
                    target_buffer: Some(lie),
                };
                liar.client.tell(ProducerMethod::RegisterTraceWriter, &writer);
            }
            liar.sync();
        });
    }
}

/// Chunks whose bytes are anything, and whose headers change while they are read.
#[test]
fn memory_that_changes_while_it_is_read() {
    for num_workers in [0, 2] {
        beside(num_workers, |daemon| {
            let mut liar = daemon.producer();
            liar.serve_until(|liar| !liar.buffers.is_empty());
            let smb = liar.smb.clone().unwrap();
            let target_buffer = Some(liar.buffers[0]);
            for round in 0..2_000_u32 {
                let Ok(chunk) = smb.try_acquire(0, PageLayout::Div4) else {
                    std::thread::yield_now();
                    continue;
                };
                let bytes: Vec<u8> =
                    (0..chunk.payload_size_bytes()).map(|i| (i as u32 * round) as u8).collect();
                smb.write_payload(&chunk, 0, &bytes);
                let fragments = (round % 1024) as u16;
                let flags = ChunkFlags::from_bits(round as u8 & 7);
                let header = |writer_id| ChunkHeader { chunk_id: round / 2, writer_id, fragments, flags };
                smb.write_header(&chunk, header(round as u16));
                let place = ChunksToMove {
                    page: Some(chunk.page() as u32),
                    chunk: Some(chunk.index() as u32),
                    target_buffer,
                    ..Default::default()
                };
                smb.complete(chunk).unwrap();
                // The same place twice: once it is complete, then it is not.
                let chunks_to_move = vec![place.clone(), place];
                liar.commit(CommitDataRequest { chunks_to_move, ..Default::default() });
            }
            liar.sync();
        });
    }
}

#[test]
fn floods_are_bounded() {
    let log = beside(0, |daemon| {
        let mut flood = daemon.producer();
        for number in 0..3_000 {
            let name = Some(format!("{number}.{}", "x".repeat(200)));
            let descriptor = protos::DataSourceDescriptor { name, ..Default::default() };
            let request = DataSourceMessage::new(descriptor.encode_to_vec());
            flood.client.tell(ProducerMethod::RegisterDataSource, &request);
        }
        flood.sync();
        let known = daemon.consumer().state().data_sources.len();
        assert!(known <= 1025, "{known} data sources are known");
    });
    assert!(log.iter().any(|line| line.contains("too many data sources")), "{log:?}");
}

/// A producer that never reads its commands is given up, and its flushes with it.
#[test]
fn a_producer_that_does_not_read_is_closed() {
    let daemon = TestDaemon::start(0);
    let mut stuck = daemon.producer();
    let mut consumer = daemon.consumer();
    let end = consumer.enable(&config());
    stuck.serve_until(|producer| !producer.buffers.is_empty());
    // Each session is two commands with the whole config, more than a socket holds.
    let mut large = config();
    large.data_sources[0].config.as_mut().unwrap().legacy_config = Some("x".repeat(100_000));
    let mut others: Vec<_> = (0..3).map(|_| daemon.consumer()).collect();
    for other in &mut others {
        other.enable(&large);
    }
    let started = Instant::now();
    while !daemon.log().iter().any(|line| line.contains("did not take what was sent to it for 10 ms")) {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", daemon.log());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(consumer.state().producers.is_empty());
    consumer.disable();
    assert_eq!(consumer.ended(end), None);
}

/// A consumer that does not read what it asked for keeps nobody waiting, and costs little memory.
#[test]
fn a_consumer_that_does_not_read_waits_alone() {
    beside(1, |daemon| {
        let (mut producer, mut lazy) = (daemon.producer(), daemon.consumer());
        let end = lazy.enable(&config());
        producer.serve_until(|producer| producer.buffers.len() == 2);
        for number in 0..900 {
            producer.write(2, 2_000_000 + number);
        }
        producer.sync();
        lazy.disable();
        assert_eq!(lazy.ended(end), None);
        for _ in 0..100 {
            lazy.0.call(ConsumerMethod::QueryServiceState, &protos::QueryServiceStateRequest::default());
            lazy.0.call(ConsumerMethod::ReadBuffers, &protos::ReadBuffersRequest {});
        }
        // Others are served meanwhile; the lazy one gets its answers when it reads them.
        assert_eq!(daemon.consumer().state().num_sessions(), 2);
    });
}

/// Connections come and go, in the middle of anything, beside one that stays.
/// `WATERSHED_RECONNECTS=65535` for more: ids of producers have sixteen bits.
#[test]
fn peers_that_go_leave_nothing() {
    let rounds = std::env::var("WATERSHED_RECONNECTS").map_or(500, |rounds| rounds.parse().unwrap());
    let daemon = TestDaemon::start(1);
    let (mut stays, mut reader) = (daemon.producer(), daemon.consumer());
    let end = reader.enable(&config());
    stays.serve_until(|producer| !producer.buffers.is_empty());
    let mut numbers = Vec::new();
    let before = num_descriptors();
    let mut resident_before_kb = 0;
    for round in 0..rounds {
        let mut consumer = daemon.consumer();
        if round % 3 > 0 {
            consumer.enable(&config());
        }
        let mut producer = daemon.producer();
        if round % 3 == 2 {
            producer.serve_until(|producer| !producer.buffers.is_empty());
            producer.write(1, 1);
        }
        stays.write(1, round + 1);
        if round % 2 == 0 {
            drop(consumer);
            drop(producer);
        } else {
            drop(producer);
            drop(consumer);
        }
        // It is recorded in each session, and writes into its first one.
        stays.serve_now();
        stays.buffers.truncate(1);
        let state = || {
            let state = daemon.consumer().state();
            state.producers.len() == 1 && state.num_sessions() == 1
        };
        // At most fifteen sessions may live; and ids come back only when they are free.
        if round % 10 == 9 {
            settle("all others have gone", state);
            stays.serve_now();
            stays.buffers.truncate(1);
            numbers.extend(numbers_of(&reader.read(), 2));
        }
        if round == 99 {
            resident_before_kb = resident_kb();
        }
    }
    settle("descriptors are closed", || num_descriptors() <= before + 8);
    let grown_kb = resident_kb().saturating_sub(resident_before_kb);
    println!("{rounds} rounds: {grown_kb} KiB more than after 100");
    // Of short-lived writers a bounded number is remembered, however many there were.
    assert!(grown_kb <= 32 * 1024, "{grown_kb} KiB were kept");
    assert!(reader.flush_with(&mut stays), "nobody else is waited for");
    reader.disable();
    assert_eq!(reader.ended(end), None);
    numbers.extend(numbers_of(&reader.read(), 2));
    assert_eq!(numbers, (1..=rounds).collect::<Vec<u64>>(), "who stays loses nothing");
}

#[test]
fn a_descriptor_too_long_for_a_reply_is_told_in_the_log() {
    let daemon = TestDaemon::start(0);
    // Numbers of producers of two bytes.
    (0..128).for_each(|_| drop(daemon.producer()));
    let mut producer = daemon.producer();
    let mut descriptor =
        protos::DataSourceDescriptor { name: Some("long".to_owned()), ..Default::default() }.encode_to_vec();
    // As long as a client lets it be, whatever its numbers are: 33 beside the arguments, 4 in them.
    let unknown_bytes = FRAME_SIZE_BYTES_MAX - 33 - 4 - descriptor.len() - 5;
    prost::encoding::bytes::encode(1000, &vec![0; unknown_bytes], &mut descriptor);
    let request = DataSourceMessage::new(descriptor);
    let registered: Option<protos::RegisterDataSourceResponse> =
        producer.client.ask(ProducerMethod::RegisterDataSource, &request);
    assert!(registered.is_some());
    let state = daemon.consumer().state();
    let descriptors = state.data_sources.iter().filter_map(|source| source.ds_descriptor.as_ref());
    let names: Vec<&str> = descriptors.map(|descriptor| descriptor.name()).collect();
    assert!(names.contains(&SOURCE) && !names.contains(&"long"), "{names:?}");
    let line = "1 entries are in no reply to QueryServiceState: each is too long for a frame";
    assert_eq!(daemon.log().iter().filter(|told| *told == line).count(), 1, "{:?}", daemon.log());
}

/// A config that fills its frame does not fit one of a command, which has more beside it.
#[test]
fn a_config_too_long_for_a_command_closes_no_producer() {
    let log = beside(0, |daemon| {
        let frame_of = |size_bytes| {
            let mut config = config();
            config.data_sources[0].config.as_mut().unwrap().legacy_config = Some("x".repeat(size_bytes));
            let mut args = Vec::new();
            prost::encoding::message::encode(1, &config, &mut args);
            let call = InvokeMethod {
                service_id: Some(SERVICE_ID),
                method_id: Some(ConsumerMethod::EnableTracing.id()),
                args_proto: Some(args),
                ..Default::default()
            };
            let msg = Some(Msg::MsgInvokeMethod(call));
            IpcFrame { request_id: Some(1), msg, ..Default::default() }.encode_to_vec()
        };
        // As short as a client can have it around its config.
        let beside_bytes = frame_of(FRAME_SIZE_BYTES_MAX - 1000).len() - (FRAME_SIZE_BYTES_MAX - 1000);
        let frame = frame_of(FRAME_SIZE_BYTES_MAX - beside_bytes);
        assert_eq!(frame.len(), FRAME_SIZE_BYTES_MAX);
        let mut stream = daemon.consumer().0.stream;
        stream.set_nonblocking(false).unwrap();
        stream.write_all(&(frame.len() as u32).to_le_bytes()).unwrap();
        stream.write_all(&frame).unwrap();
        settle("the session is enabled", || daemon.log().iter().any(|line| line.contains("a frame of")));
    });
    // Its set-up and its start.
    let left_out = log.iter().filter(|line| line.contains(": a command is left out: it is a frame of"));
    assert_eq!(left_out.count(), 2, "{log:?}");
}
