//! Memory that a producer brings: what it wrote before there was a service is in it.

mod support;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use prost::Message as _;
use support::{Client, Producer, SOURCE, TestDaemon, config, numbers};
use watershed_smb::{SharedMemory, Smb};
use watershed_wire::ipc::messages::{Command, GetAsyncCommandResponse};
use watershed_wire::ipc::{Event, ProducerMethod};
use watershed_wire::protos;

const SIZE_BYTES: usize = 64 * 4096;

/// Connects with memory. Whether the daemon uses it.
fn connect(daemon: &TestDaemon, memory: OwnedFd) -> (Client<ProducerMethod>, bool) {
    let mut client = Client::connect(&daemon.path("producer"));
    let hello = protos::InitializeConnectionRequest {
        producer_name: Some("test".to_owned()),
        shared_memory_page_size_hint_bytes: Some(4096),
        shared_memory_size_hint_bytes: Some(SIZE_BYTES as u32),
        producer_provided_shmem: Some(true),
        ..Default::default()
    };
    let request_id = client.call_with(ProducerMethod::InitializeConnection, &hello, memory);
    let (reply, _) = client.answer(request_id).expect("it is accepted");
    let welcome = protos::InitializeConnectionResponse::decode(&reply[..]).unwrap();
    client.call(ProducerMethod::GetAsyncCommand, &protos::GetAsyncCommandRequest {});
    (client, welcome.using_shmem_provided_by_producer())
}

/// The trace of a session with this producer, which writes the numbers up to 2000: many times what
/// its memory holds.
fn record(daemon: &TestDaemon, mut producer: Producer) -> Vec<u64> {
    producer.register(SOURCE);
    let mut consumer = daemon.consumer();
    let end = consumer.enable(&config());
    producer.serve_until(|producer| !producer.buffers.is_empty());
    (1..=2000).for_each(|number| producer.write(1, number));
    assert!(consumer.flush_with(&mut producer), "everybody has answered");
    consumer.disable();
    assert_eq!(consumer.ended(end), None);
    numbers(&consumer.read())
}

#[test]
fn sealed_memory_is_used() {
    for num_workers in [0, 2] {
        let daemon = TestDaemon::start(num_workers);
        let memory = SharedMemory::create(SIZE_BYTES).unwrap();
        let fd = memory.fd().unwrap().try_clone_to_owned().unwrap();
        let (mut client, is_used) = connect(&daemon, fd);
        assert!(is_used);
        // SetupTracing comes before any session, without a descriptor.
        loop {
            let Event::Reply { method: ProducerMethod::GetAsyncCommand, reply, .. } = client.next().unwrap()
            else {
                continue;
            };
            let command = GetAsyncCommandResponse::decode(&reply[..]).unwrap().cmd.unwrap();
            assert!(matches!(command, Command::SetupTracing(_)));
            break;
        }
        assert!(client.fds.is_empty());
        let smb = Smb::new(Arc::new(memory), 4096).unwrap();
        let producer = Producer { client, smb: Some(smb), buffers: Vec::new(), next_chunk_id: 0 };
        assert_eq!(record(&daemon, producer), (1..=2000).collect::<Vec<_>>());
        assert!(!daemon.log().iter().any(|line| line.contains("memory")), "{:?}", daemon.log());
    }
}

/// Its owner could truncate a file that is not sealed, and the daemon would be ended by the system.
#[test]
fn other_memory_is_not_used() {
    let daemon = TestDaemon::start(1);
    let file = tempfile::tempfile().unwrap();
    file.set_len(SIZE_BYTES as u64).unwrap();
    let (client, is_used) = connect(&daemon, file.into());
    assert!(!is_used);
    let producer = Producer { client, smb: None, buffers: Vec::new(), next_chunk_id: 0 };
    assert_eq!(record(&daemon, producer), (1..=2000).collect::<Vec<_>>(), "in the daemon's own memory");
    assert!(daemon.log().iter().any(|line| line.contains("its memory is not used")), "{:?}", daemon.log());
}
