//! A daemon in a thread, and peers that speak its protocol by hand.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use prost::Message;
use watershed_daemon::{Daemon, DaemonError, DaemonOptions, Stopper};
use watershed_service::{Shards, SystemInfo};
use watershed_shell::address::Address;
use watershed_shell::socket::{self, Moved};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};
use watershed_wire::ipc::messages::{
    Command as ProducerCommand, DataSourceMessage, EnableTracingRequest, GetAsyncCommandResponse,
};
use watershed_wire::ipc::{ClientConnection, ConsumerMethod, Event, Method, ProducerMethod};
use watershed_wire::protos::{self, commit_data_request::ChunksToMove};

/// Nothing takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The data source of producers here.
pub const SOURCE: &str = "test.source";

/// A daemon in a thread of its own, on sockets in a folder of its own.
pub struct TestDaemon {
    folder: tempfile::TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), DaemonError>>>,
    log: Arc<Mutex<Vec<String>>>,
}

/// Of a daemon whose sockets are in a folder.
pub fn options(folder: &Path, num_workers: usize) -> DaemonOptions {
    DaemonOptions {
        producer_sockets: vec![Address::Path(folder.join("producer"))],
        consumer_socket: Address::Path(folder.join("consumer")),
        permissions: None,
        version: "Perfetto v58.0-test".to_owned(),
        system: SystemInfo::default(),
        shards: Shards::Wanted(2),
        num_workers,
        pin_workers: false,
        huge_pages: watershed_service::HugePages::Advise,
        output_folder: Some(folder.canonicalize().unwrap()),
    }
}

impl TestDaemon {
    pub fn start(num_workers: usize) -> TestDaemon {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path(), num_workers);
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        let daemon = Daemon::new(options, move |line| lines.lock().unwrap().push(line.to_owned())).unwrap();
        let stopper = daemon.stopper();
        let thread = thread::Builder::new().name("daemon-loop".to_owned());
        let thread = Some(thread.spawn(move || daemon.run()).unwrap());
        TestDaemon { folder, stopper, thread, log }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the operator was told.
    pub fn log(&self) -> Vec<String> {
        let is_of_test = |line: &&String| !line.contains("huge page");
        self.log.lock().unwrap().iter().filter(is_of_test).cloned().collect()
    }

    pub fn producer(&self) -> Producer {
        Producer::connect(self.folder.path())
    }

    /// Where its sockets are, for peers in other processes.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn consumer(&self) -> Consumer {
        Consumer::connect(self.folder.path())
    }

    /// Stops it in order.
    pub fn stop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the daemon does not panic").expect("the daemon does not fail");
        }
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        if thread::panicking() {
            self.log().iter().for_each(|line| eprintln!("daemon: {line}"));
        } else {
            self.stop();
        }
    }
}

const ROLE: &str = "WATERSHED_TEST_ROLE";
const FOLDER: &str = "WATERSHED_TEST_FOLDER";

/// A process of this program, for its test `peer`, which has to look at [`role`]. It is killed when
/// this value is dropped; if the test itself is killed, it goes on until its own end.
pub struct Peer(Child);

impl Peer {
    pub fn start(role: &str, folder: &Path) -> Peer {
        Peer::start_with(Command::new(std::env::current_exe().unwrap()), role, folder)
    }

    /// As `start`, by a command that takes the program's arguments.
    pub fn start_with(mut command: Command, role: &str, folder: &Path) -> Peer {
        command.args(["--exact", "peer"]).env(ROLE, role).env(FOLDER, folder);
        Peer(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// What this process was started for, and the folder of the sockets; `None` in the test itself.
pub fn role() -> Option<(String, PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(FOLDER)?.into()))
}

/// Memory of this process, and with it of the daemon, in KiB.
pub fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Of this process.
pub fn num_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until it is so.
pub fn settle(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// One connection, from the client's side.
pub struct Client<M> {
    pub stream: UnixStream,
    ipc: ClientConnection<M, OwnedFd>,
    pub fds: VecDeque<OwnedFd>,
}

impl<M: Method> Client<M> {
    pub fn connect(path: &std::path::Path) -> Client<M> {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut client = Client { stream, ipc: ClientConnection::bind(), fds: VecDeque::new() };
        client.send();
        assert_eq!(client.next(), Some(Event::Bound));
        client
    }

    pub fn call(&mut self, method: M, args: &impl watershed_wire::Encode) -> u64 {
        let request_id = self.ipc.invoke(method, args, true).unwrap();
        self.send();
        request_id
    }

    /// As `call`, for who wants no answer.
    pub fn tell(&mut self, method: M, args: &impl watershed_wire::Encode) {
        self.ipc.invoke(method, args, false).unwrap();
        self.send();
    }

    /// As `call`, and a descriptor goes with it.
    pub fn call_with(&mut self, method: M, args: &impl watershed_wire::Encode, fd: OwnedFd) -> u64 {
        let request_id = self.ipc.invoke_with(method, args, true, fd).unwrap();
        self.send();
        request_id
    }

    fn send(&mut self) {
        while let Some((bytes, attached)) = self.ipc.out().front() {
            let fd = attached.map(|fd| std::os::fd::AsFd::as_fd(fd));
            match socket::send(&self.stream, bytes, fd) {
                Ok(Moved::Bytes(count)) => self.ipc.out_mut().consume(count),
                Ok(_) => thread::sleep(Duration::from_millis(1)),
                // The other end has gone; who waits for an answer finds out.
                Err(_) => return,
            }
        }
    }

    /// The next thing that happens; `None` once the other end has closed the connection.
    pub fn next(&mut self) -> Option<Event<M>> {
        let started = Instant::now();
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            assert!(started.elapsed() < PATIENCE, "the daemon does not answer");
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// As `next`, without waiting: `Some(None)` once the connection is closed.
    pub fn try_next(&mut self) -> Option<Option<Event<M>>> {
        loop {
            if let Some(event) = self.ipc.poll().unwrap() {
                self.send();
                return Some(Some(event));
            }
            match socket::receive(&self.stream, self.ipc.spare(), &mut self.fds) {
                Ok(Moved::Bytes(count)) => self.ipc.received(count),
                Ok(Moved::NotReady) => return None,
                Ok(Moved::Closed) | Err(_) => return Some(None),
            }
        }
    }

    /// Waits for the answer to a call: its bytes, and whether more follow. `None` if it was
    /// rejected.
    pub fn answer(&mut self, to: u64) -> Option<(Vec<u8>, bool)> {
        loop {
            match self.next().expect("the daemon closed the connection") {
                Event::Reply { request_id, reply, has_more, .. } if request_id == to => {
                    return Some((reply, has_more));
                }
                Event::Failed { request_id, .. } if request_id == to => return None,
                _ => {}
            }
        }
    }

    /// Calls and waits for the one answer.
    pub fn ask<R: Message + Default>(&mut self, method: M, args: &impl watershed_wire::Encode) -> Option<R> {
        let request_id = self.call(method, args);
        let (reply, _) = self.answer(request_id)?;
        Some(R::decode(&reply[..]).unwrap())
    }

    /// Whether the daemon closes the connection.
    pub fn is_closed(&mut self) -> bool {
        while self.next().is_some() {}
        true
    }
}

/// A producer with one data source, which writes packets that hold a number.
pub struct Producer {
    pub client: Client<ProducerMethod>,
    pub smb: Option<Smb>,
    /// The buffers of its instances, in the order of their set-up.
    pub buffers: Vec<u32>,
    pub next_chunk_id: u32,
}

impl Producer {
    pub fn connect(folder: &Path) -> Producer {
        Producer::connect_with(folder, SOURCE)
    }

    /// As `connect`, with another data source.
    pub fn connect_with(folder: &Path, source: &str) -> Producer {
        let mut client = Client::connect(&folder.join("producer"));
        let hello = protos::InitializeConnectionRequest {
            producer_name: Some("test".to_owned()),
            smb_scraping_mode: Some(1),
            ..Default::default()
        };
        let welcome: protos::InitializeConnectionResponse =
            client.ask(ProducerMethod::InitializeConnection, &hello).unwrap();
        assert_eq!(welcome.direct_smb_patching_supported, Some(true));
        client.call(ProducerMethod::GetAsyncCommand, &protos::GetAsyncCommandRequest {});
        let mut producer = Producer { client, smb: None, buffers: Vec::new(), next_chunk_id: 0 };
        producer.register(source);
        producer
    }

    pub fn register(&mut self, name: &str) {
        let descriptor = protos::DataSourceDescriptor { name: Some(name.to_owned()), ..Default::default() };
        let request = DataSourceMessage::new(descriptor.encode_to_vec());
        self.client.ask::<protos::RegisterDataSourceResponse>(ProducerMethod::RegisterDataSource, &request);
    }

    /// Does what the daemon asks until `is_enough`.
    pub fn serve_until(&mut self, is_enough: impl Fn(&Producer) -> bool) {
        while !is_enough(self) {
            let event = self.client.next().expect("the daemon closed the connection");
            self.serve(event);
        }
    }

    /// Does what the daemon has asked so far. Returns false once the connection is closed.
    pub fn serve_now(&mut self) -> bool {
        loop {
            match self.client.try_next() {
                Some(Some(event)) => self.serve(event),
                Some(None) => return false,
                None => return true,
            }
        }
    }

    /// Waits until the daemon asks for a flush: with what it is to be answered.
    pub fn wait_for_flush(&mut self) -> protos::CommitDataRequest {
        loop {
            let event = self.client.next().expect("the daemon closed the connection");
            if let Event::Reply { method: ProducerMethod::GetAsyncCommand, reply, .. } = &event
                && let Some(ProducerCommand::Flush(flush)) =
                    GetAsyncCommandResponse::decode(&reply[..]).unwrap().cmd
            {
                let flush_request_id = flush.request_id;
                return protos::CommitDataRequest { flush_request_id, ..Default::default() };
            }
            self.serve(event);
        }
    }

    fn serve(&mut self, event: Event<ProducerMethod>) {
        let Event::Reply { method: ProducerMethod::GetAsyncCommand, reply, .. } = event else { return };
        match GetAsyncCommandResponse::decode(&reply[..]).unwrap().cmd {
            Some(ProducerCommand::SetupTracing(setup)) => {
                let fd = self.client.fds.pop_front().expect("memory comes with its command");
                let memory = Arc::new(SharedMemory::map_trusted(fd).unwrap());
                let page_size_bytes = setup.shared_buffer_page_size_kb() as usize * 1024;
                self.smb = Some(Smb::new(memory, page_size_bytes).unwrap());
            }
            Some(ProducerCommand::SetupDataSource(instance)) => {
                let config = protos::DataSourceConfig::decode(&instance.config().unwrap()[..]).unwrap();
                self.buffers.push(config.target_buffer());
            }
            Some(ProducerCommand::Flush(flush)) => {
                let flush_request_id = flush.request_id;
                self.commit(protos::CommitDataRequest { flush_request_id, ..Default::default() });
            }
            _ => {}
        }
    }

    pub fn commit(&mut self, request: protos::CommitDataRequest) {
        self.client.tell(ProducerMethod::CommitData, &request);
    }

    /// Writes a chunk with one packet, and commits it. Waits while no chunk is free.
    pub fn write(&mut self, writer_id: u16, number: u64) {
        let target_buffer = self.buffers.last().copied();
        let smb = self.smb.as_ref().expect("memory comes first");
        let started = Instant::now();
        let chunk = loop {
            match smb.try_acquire(0, PageLayout::Div1) {
                Ok(chunk) => break chunk,
                Err(_) => assert!(started.elapsed() < PATIENCE, "no chunk comes free"),
            }
            thread::yield_now();
        };
        let packet = protos::TracePacket { timestamp: Some(number), ..Default::default() };
        smb.write_payload(&chunk, 0, &packet.encode_length_delimited_to_vec());
        let chunk_id = self.next_chunk_id;
        self.next_chunk_id += 1;
        smb.write_header(&chunk, ChunkHeader { chunk_id, writer_id, fragments: 1, flags: ChunkFlags::NONE });
        let place = ChunksToMove {
            page: Some(chunk.page() as u32),
            chunk: Some(chunk.index() as u32),
            target_buffer,
            ..Default::default()
        };
        smb.complete(chunk).unwrap();
        self.commit(protos::CommitDataRequest { chunks_to_move: vec![place], ..Default::default() });
    }

    /// Waits until the daemon has handled all that was sent.
    pub fn sync(&mut self) {
        let request_id = self.client.call(ProducerMethod::Sync, &protos::SyncRequest {});
        loop {
            match self.client.next().expect("the daemon closed the connection") {
                Event::Reply { request_id: of, .. } if of == request_id => return,
                event => self.serve(event),
            }
        }
    }
}

/// A consumer.
pub struct Consumer(pub Client<ConsumerMethod>);

/// A config with one buffer and the data source of the producers here.
pub fn config() -> protos::TraceConfig {
    protos::TraceConfig {
        buffers: vec![protos::trace_config::BufferConfig { size_kb: Some(4096), ..Default::default() }],
        data_sources: vec![protos::trace_config::DataSource {
            config: Some(protos::DataSourceConfig { name: Some(SOURCE.to_owned()), ..Default::default() }),
            ..Default::default()
        }],
        ..Default::default()
    }
}

impl Consumer {
    pub fn connect(folder: &Path) -> Consumer {
        Consumer(Client::connect(&folder.join("consumer")))
    }

    /// Asks for a session. The answer comes when it has ended.
    pub fn enable(&mut self, config: &protos::TraceConfig) -> u64 {
        let request = EnableTracingRequest::new(config.encode_to_vec());
        self.0.call(ConsumerMethod::EnableTracing, &request)
    }

    /// As `enable`, of a session that writes into the file.
    pub fn enable_into(&mut self, config: &protos::TraceConfig, file: OwnedFd) -> u64 {
        let request = EnableTracingRequest::new(config.encode_to_vec());
        self.0.call_with(ConsumerMethod::EnableTracing, &request, file)
    }

    /// Waits for the end of a session: why it failed, if it did.
    pub fn ended(&mut self, request_id: u64) -> Option<String> {
        let (reply, has_more) = self.0.answer(request_id).expect("it is not rejected");
        assert!(!has_more);
        protos::EnableTracingResponse::decode(&reply[..]).unwrap().error
    }

    pub fn flush(&mut self) -> u64 {
        self.0.call(ConsumerMethod::Flush, &protos::FlushRequest::default())
    }

    /// Flushes while the producer answers. Whether everybody has answered in time.
    pub fn flush_with(&mut self, producer: &mut Producer) -> bool {
        let flush = self.flush();
        loop {
            producer.serve_now();
            match self.0.try_next() {
                Some(Some(Event::Reply { request_id, .. })) if request_id == flush => return true,
                Some(Some(Event::Failed { request_id, .. })) if request_id == flush => return false,
                Some(None) => panic!("the daemon closed the connection"),
                Some(_) => {}
                None => thread::sleep(Duration::from_micros(200)),
            }
        }
    }

    pub fn disable(&mut self) {
        let reply: Option<protos::DisableTracingResponse> =
            self.0.ask(ConsumerMethod::DisableTracing, &protos::DisableTracingRequest {});
        assert!(reply.is_some());
    }

    /// Gives the session up.
    pub fn free(&mut self) {
        let reply: Option<protos::FreeBuffersResponse> =
            self.0.ask(ConsumerMethod::FreeBuffers, &protos::FreeBuffersRequest::default());
        assert!(reply.is_some());
    }

    /// Reads all packets that can be read now and decoded.
    pub fn read(&mut self) -> Vec<protos::TracePacket> {
        let request_id = self.0.call(ConsumerMethod::ReadBuffers, &protos::ReadBuffersRequest {});
        self.read_of(request_id)
    }

    /// The packets of a read that was asked for.
    pub fn read_of(&mut self, request_id: u64) -> Vec<protos::TracePacket> {
        let (mut packets, mut packet) = (Vec::new(), Vec::new());
        loop {
            let (reply, has_more) = self.0.answer(request_id).expect("it is not rejected");
            for slice in protos::ReadBuffersResponse::decode(&reply[..]).unwrap().slices {
                packet.extend_from_slice(slice.data());
                if slice.last_slice_for_packet() {
                    // What a producer wrote may be anything within.
                    packets.extend(protos::TracePacket::decode(&std::mem::take(&mut packet)[..]));
                }
            }
            if !has_more {
                assert!(packet.is_empty(), "a packet ends with its read");
                return packets;
            }
        }
    }

    pub fn state(&mut self) -> protos::TracingServiceState {
        let reply: protos::QueryServiceStateResponse = self
            .0
            .ask(ConsumerMethod::QueryServiceState, &protos::QueryServiceStateRequest::default())
            .unwrap();
        reply.service_state.unwrap()
    }
}

/// Clones the only session, while the producer answers flushes.
pub fn clone(consumer: &mut Consumer, producer: &mut Producer) -> protos::CloneSessionResponse {
    let request = of_only_session(consumer);
    let request_id = consumer.0.call(ConsumerMethod::CloneSession, &request);
    cloned(consumer, producer, request_id)
}

pub fn of_only_session(consumer: &mut Consumer) -> protos::CloneSessionRequest {
    let id = consumer.state().tracing_sessions[0].id();
    protos::CloneSessionRequest {
        selector: Some(protos::clone_session_request::Selector::SessionId(id)),
        ..Default::default()
    }
}

pub fn cloned(
    consumer: &mut Consumer,
    producer: &mut Producer,
    request_id: u64,
) -> protos::CloneSessionResponse {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < PATIENCE, "the daemon does not answer");
        producer.serve_now();
        match consumer.0.try_next() {
            Some(Some(Event::Reply { request_id: of, reply, .. })) if of == request_id => {
                return protos::CloneSessionResponse::decode(&reply[..]).unwrap();
            }
            Some(None) => panic!("the daemon closed the connection"),
            Some(_) => {}
            None => thread::sleep(Duration::from_micros(200)),
        }
    }
}

/// The numbers that producers wrote, in the order of the trace.
pub fn numbers(packets: &[protos::TracePacket]) -> Vec<u64> {
    // Those of the service itself have sequence 1.
    let written = packets.iter().filter(|packet| packet.sequence_id() != 1);
    written.filter_map(|packet| packet.timestamp).collect()
}

/// As `numbers`, of one sequence.
pub fn numbers_of(packets: &[protos::TracePacket], sequence_id: u32) -> Vec<u64> {
    let written = packets.iter().filter(|packet| packet.sequence_id() == sequence_id);
    written.filter_map(|packet| packet.timestamp).collect()
}

trait SequenceId {
    fn sequence_id(&self) -> u32;
}

impl SequenceId for protos::TracePacket {
    fn sequence_id(&self) -> u32 {
        use protos::trace_packet::OptionalTrustedPacketSequenceId::TrustedPacketSequenceId as Id;
        match self.optional_trusted_packet_sequence_id {
            Some(Id(id)) => id,
            None => 0,
        }
    }
}
