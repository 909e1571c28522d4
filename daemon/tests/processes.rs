//! Peers in processes of their own, which are killed at any point: those that keep the rules, and
//! two that do not. The daemon lives, another client's trace is whole, and what the dead ones had
//! is given back. `WATERSHED_KILLS=1000` for more of them.

mod support;

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use support::{
    Client, Consumer, Peer, Producer, TestDaemon, config, num_descriptors, numbers_of, resident_kb, settle,
};
use watershed_smb::PageLayout;
use watershed_wire::ipc::messages::{DataSourceMessage, EnableTracingRequest};
use watershed_wire::ipc::{ConsumerMethod, ProducerMethod};
use watershed_wire::protos::{self, CommitDataRequest, commit_data_request::ChunksToMove};

/// Not more than this, however many have come and gone.
const GROWTH_KB_MAX: u64 = 48 * 1024;

/// The good producer's data source, in no session of the others. Else it would be told of them all,
/// and be closed when it gets no CPU for as long as they fill its socket, and 10 ms more.
const OWN_SOURCE: &str = "test.own";

/// What a started process does. As a test of its own it does nothing.
#[test]
fn peer() {
    let Some((role, folder)) = support::role() else { return };
    loop {
        match role.as_str() {
            "producer" => produce(&folder),
            "consumer" => consume(&folder),
            "noise" => send_noise(&folder),
            _ => lie(&folder),
        }
    }
}

fn produce(folder: &Path) {
    let mut producer = Producer::connect(folder);
    producer.serve_until(|producer| !producer.buffers.is_empty());
    for number in 0..50 {
        producer.write(1, 1_000_000 + number);
        if !producer.serve_now() {
            return;
        }
    }
}

fn consume(folder: &Path) {
    let mut consumer = Consumer::connect(folder);
    let end = consumer.enable(&config());
    consumer.flush();
    consumer.read();
    consumer.disable();
    consumer.ended(end);
    consumer.read();
    consumer.free();
}

/// Wrong descriptors, and memory whose chunk states flip while it is committed.
fn lie(folder: &Path) {
    let hello = protos::InitializeConnectionRequest {
        producer_name: Some("liar".to_owned()),
        producer_provided_shmem: Some(true),
        shared_memory_size_hint_bytes: Some(1 << 20),
        shared_memory_page_size_hint_bytes: Some(4096),
        ..Default::default()
    };
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    // A file that is not sealed, and could be truncated at any time.
    let unsealed: OwnedFd = tempfile::tempfile().unwrap().into();
    let socket: OwnedFd = UnixStream::pair().unwrap().0.into();
    for fd in [null, unsealed, socket] {
        let mut client: Client<ProducerMethod> = Client::connect(&folder.join("producer"));
        client.call_with(ProducerMethod::InitializeConnection, &hello, fd);
        while let Some(Some(_)) = client.try_next() {}
    }
    let mut liar = Producer::connect(folder);
    liar.serve_until(|liar| !liar.buffers.is_empty());
    let smb = liar.smb.clone().unwrap();
    let memory = smb.memory().fd().unwrap().as_fd().try_clone_to_owned().unwrap();
    let memory = std::fs::File::from(memory);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20_000_u32 {
                let word = round.wrapping_mul(0x9e37_79b9);
                let page = u64::from(word >> 8) % smb.num_pages() as u64 * 4096;
                let _ = memory.write_all_at(&word.to_le_bytes(), page);
                let _ = memory.write_all_at(&word.to_be_bytes(), page + u64::from(word % 4000));
            }
        });
        for round in 0..500_u32 {
            let chunk = smb.try_acquire(round as usize, PageLayout::Div4);
            let _ = chunk.map(|chunk| smb.complete(chunk));
            let place = |chunk| ChunksToMove {
                page: Some(round % 70),
                chunk: Some(chunk),
                target_buffer: liar.buffers.last().copied(),
                ..Default::default()
            };
            let chunks_to_move = (0..15).map(place).collect();
            liar.commit(CommitDataRequest { chunks_to_move, ..Default::default() });
            liar.serve_now();
        }
    });
}

/// Frames without a pause on sixteen connections, none of which reads what it is sent: arguments of
/// any bytes, frames of any bytes, and frames that are too long, for which a connection is closed.
fn send_noise(folder: &Path) {
    let mut random = Random(u64::from(std::process::id()));
    let mut producers: Vec<Client<ProducerMethod>> =
        (0..8).map(|_| Client::connect(&folder.join("producer"))).collect();
    let mut consumers: Vec<Client<ConsumerMethod>> =
        (0..8).map(|_| Client::connect(&folder.join("consumer"))).collect();
    for round in 0..400 {
        for (producer, consumer) in producers.iter_mut().zip(&mut consumers) {
            match random.next() % 4 {
                0 => producer.tell(ProducerMethod::CommitData, &any_commit(&mut random)),
                1 => {
                    let descriptor = DataSourceMessage::new(random.bytes());
                    producer.tell(ProducerMethod::RegisterDataSource, &descriptor);
                }
                2 => {
                    let config = EnableTracingRequest::new(random.bytes());
                    consumer.tell(ConsumerMethod::EnableTracing, &config);
                }
                _ => {
                    consumer.tell(ConsumerMethod::ReadBuffers, &protos::ReadBuffersRequest {});
                }
            }
        }
        if round % 50 == 0 {
            // A full socket takes no more, and a closed one none.
            let _ = send_frame(&producers[round / 50].stream, &random.bytes());
            let _ = (&consumers[round / 50].stream).write_all(&u32::MAX.to_le_bytes());
        }
    }
}

fn send_frame(mut stream: &UnixStream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(&(bytes.len() as u32).to_le_bytes())?;
    stream.write_all(bytes)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.0 >> 33
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.next() % 300).map(|_| self.next() as u8).collect()
    }
}

/// A request that names what may not be there.
fn any_commit(random: &mut Random) -> CommitDataRequest {
    let place = ChunksToMove {
        page: Some(random.next() as u32 % 100),
        chunk: Some(random.next() as u32 % 20),
        target_buffer: Some(random.next() as u32 % 10),
        data: random.next().is_multiple_of(2).then(|| random.bytes()),
        ..Default::default()
    };
    let flush_request_id = Some(random.next() % 10);
    CommitDataRequest { chunks_to_move: vec![place], flush_request_id, ..Default::default() }
}

#[test]
fn processes_that_are_killed_leave_nothing() {
    let num_kills = std::env::var("WATERSHED_KILLS").map_or(50, |kills| kills.parse().unwrap());
    let daemon = TestDaemon::start(1);
    let (mut producer, mut consumer) =
        (Producer::connect_with(daemon.folder(), OWN_SOURCE), daemon.consumer());
    let mut own = config();
    own.data_sources[0].config.as_mut().unwrap().name = Some(OWN_SOURCE.to_owned());
    let end = consumer.enable(&own);
    producer.serve_until(|producer| !producer.buffers.is_empty());
    // The first sequence of the session is its one.
    producer.write(1, 0);
    producer.sync();
    let mut watcher = daemon.consumer();
    let roles = ["producer", "consumer", "producer", "consumer", "liar"];
    let mut peers = roles.map(|role| Peer::start(role, daemon.folder()));
    let noise = Peer::start("noise", daemon.folder());
    let is_noisy = || daemon.log().iter().any(|line| line.contains("closed: it sent a frame of"));
    settle("noise comes", is_noisy);
    settle("peers come", || watcher.state().producers.len() > 1);
    let before = (resident_kb(), num_descriptors());
    let mut random = 1_u64;
    for number in 0..num_kills {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        std::thread::sleep(Duration::from_micros((random >> 33) % 20_000));
        let index = (random >> 50) as usize % peers.len();
        peers[index].kill();
        peers[index] = Peer::start(roles[index], daemon.folder());
        producer.write(1, number + 1);
        assert!(producer.serve_now(), "the daemon closed the connection");
    }
    drop((peers, noise));
    settle("only the good producer and session are left", || {
        let state = watcher.state();
        (state.producers.len(), state.num_sessions(), state.data_sources.len()) == (1, 1, 1)
    });
    settle("descriptors are closed", || num_descriptors() <= before.1 + 4);
    let grown_kb = resident_kb().saturating_sub(before.0);
    assert!(grown_kb < GROWTH_KB_MAX, "{grown_kb} KiB more after {num_kills} kills");
    consumer.disable();
    assert_eq!(consumer.ended(end), None);
    let numbers = numbers_of(&consumer.read(), 2);
    let newest = numbers.last().copied();
    assert_eq!(newest, Some(num_kills), "the good producer's trace reaches to its end");
    let first = numbers[0];
    assert_eq!(numbers, (first..=num_kills).collect::<Vec<_>>(), "and has no hole");
}
