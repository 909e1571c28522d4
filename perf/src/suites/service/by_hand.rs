//! A producer that speaks the daemon's protocol without the client library: one chunk at a time,
//! and hundreds of them without a thread each.

use super::load::address;
use crate::measure::WrongAnswer;
use prost::Message;
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use watershed_shell::socket::{self, Moved};
use watershed_smb::{ChunkFlags, ChunkHeader, ChunkState, PageLayout, SharedMemory, Smb};
use watershed_wire::ipc::messages::{Command, DataSourceMessage, GetAsyncCommandResponse};
use watershed_wire::ipc::{ClientConnection, Event, ProducerMethod};
use watershed_wire::protos::commit_data_request::ChunksToMove;
use watershed_wire::protos::{
    CommitDataRequest, DataSourceConfig, DataSourceDescriptor, GetAsyncCommandRequest,
    InitializeConnectionRequest, SyncRequest,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub(super) struct ByHand {
    socket: UnixStream,
    ipc: ClientConnection<ProducerMethod, OwnedFd>,
    fds: VecDeque<OwnedFd>,
    smb: Option<Smb>,
    target_buffer: Option<u32>,
    next_chunk_id: u32,
}

impl ByHand {
    /// Connects and offers a data source. Returns before the daemon has answered.
    pub(super) fn connect(producer_socket: &Path, source: &str) -> Result<ByHand, WrongAnswer> {
        let socket = address(producer_socket).connect().map_err(|error| error.to_string())?;
        socket.set_nonblocking(true).map_err(|error| error.to_string())?;
        let mut producer = ByHand {
            socket,
            ipc: ClientConnection::bind(),
            fds: VecDeque::new(),
            smb: None,
            target_buffer: None,
            next_chunk_id: 0,
        };
        let hello =
            InitializeConnectionRequest { producer_name: Some(source.to_owned()), ..Default::default() };
        producer.call(ProducerMethod::InitializeConnection, &hello, true)?;
        producer.call(ProducerMethod::GetAsyncCommand, &GetAsyncCommandRequest {}, true)?;
        let descriptor = DataSourceDescriptor { name: Some(source.to_owned()), ..Default::default() };
        let request = DataSourceMessage::new(descriptor.encode_to_vec());
        producer.call(ProducerMethod::RegisterDataSource, &request, false)?;
        Ok(producer)
    }

    fn call(
        &mut self,
        method: ProducerMethod,
        args: &impl watershed_wire::Encode,
        wants_reply: bool,
    ) -> Result<u64, WrongAnswer> {
        let id = self.ipc.invoke(method, args, wants_reply).map_err(|error| error.to_string())?;
        self.send().map_err(|error| error.to_string())?;
        Ok(id)
    }

    fn send(&mut self) -> std::io::Result<()> {
        let started = Instant::now();
        while let Some((bytes, fd)) = self.ipc.out().front() {
            match socket::send(&self.socket, bytes, fd.map(|fd| fd.as_fd()))? {
                Moved::Bytes(count) => self.ipc.out_mut().consume(count),
                _ if started.elapsed() > PATIENCE => return Err(std::io::ErrorKind::TimedOut.into()),
                _ => std::thread::yield_now(),
            }
        }
        Ok(())
    }

    /// Does what the daemon asks until `is_enough` of an answer or of the whole.
    fn serve_until(&mut self, is_enough: impl Fn(&ByHand, Option<u64>) -> bool) -> Result<(), WrongAnswer> {
        let started = Instant::now();
        loop {
            let mut answered = None;
            match self.ipc.poll().map_err(|error| error.to_string())? {
                Some(Event::Reply { method: ProducerMethod::GetAsyncCommand, reply, .. }) => {
                    self.obey(&reply)?;
                }
                Some(Event::Reply { request_id, .. }) => answered = Some(request_id),
                Some(Event::Bound) => self.send().map_err(|error| error.to_string())?,
                Some(Event::Failed { method, failure, .. }) => return Err(format!("{method:?}: {failure}")),
                Some(Event::BindFailed) => return Err("the daemon has no port for producers".to_owned()),
                None => self.receive(started)?,
            }
            if is_enough(self, answered) {
                return Ok(());
            }
        }
    }

    fn receive(&mut self, started: Instant) -> Result<(), WrongAnswer> {
        match socket::receive(&self.socket, self.ipc.spare(), &mut self.fds) {
            Ok(Moved::Bytes(count)) => self.ipc.received(count),
            Ok(Moved::NotReady) if started.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_micros(100));
            }
            Ok(Moved::NotReady) => return Err("the daemon does not answer".to_owned()),
            Ok(Moved::Closed) => return Err("the daemon closed a connection".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    fn obey(&mut self, command: &[u8]) -> Result<(), WrongAnswer> {
        let command = GetAsyncCommandResponse::decode(command).map_err(|error| error.to_string())?.cmd;
        match command {
            Some(Command::SetupTracing(setup)) => {
                let fd = self.fds.pop_front().ok_or("no memory came with its command")?;
                let memory = SharedMemory::map_trusted(fd).map_err(|error| error.to_string())?;
                let page_size_bytes = setup.shared_buffer_page_size_kb() as usize * 1024;
                let smb = Smb::new(Arc::new(memory), page_size_bytes).map_err(|error| error.to_string())?;
                self.smb = Some(smb);
            }
            Some(Command::SetupDataSource(instance)) => {
                let config = instance.config().unwrap_or_default();
                let config = DataSourceConfig::decode(&config[..]).map_err(|error| error.to_string())?;
                self.target_buffer = Some(config.target_buffer());
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits until the daemon has handled all that was sent.
    pub(super) fn sync(&mut self) -> Result<(), WrongAnswer> {
        let id = self.call(ProducerMethod::Sync, &SyncRequest {}, true)?;
        self.serve_until(|_, answered| answered == Some(id))
    }

    /// Waits until a session uses the data source.
    pub(super) fn wait_for_session(&mut self) -> Result<(), WrongAnswer> {
        self.serve_until(|producer, _| producer.smb.is_some() && producer.target_buffer.is_some())
    }

    /// Commits one full chunk; the time until it is free again.
    pub(super) fn commit_to_free(&mut self) -> Result<Duration, WrongAnswer> {
        let smb = self.smb.clone().ok_or("no memory")?;
        let chunk = smb.try_acquire(0, PageLayout::Div1).map_err(|error| format!("no chunk: {error:?}"))?;
        let size_bytes = chunk.payload_size_bytes();
        // One packet: its size in four bytes, then a field that takes the rest.
        let mut payload = vec![b'-'; size_bytes];
        payload[..4].copy_from_slice(&varint4(size_bytes - 4));
        payload[4] = 2 << 3 | 2;
        payload[5..9].copy_from_slice(&varint4(size_bytes - 9));
        smb.write_payload(&chunk, 0, &payload);
        let chunk_id = self.next_chunk_id;
        self.next_chunk_id += 1;
        smb.write_header(
            &chunk,
            ChunkHeader { chunk_id, writer_id: 1, fragments: 1, flags: ChunkFlags::NONE },
        );
        let (page, index) = (chunk.page(), chunk.index());
        smb.complete(chunk).map_err(|error| format!("{error:?}"))?;
        let place = ChunksToMove {
            page: Some(page as u32),
            chunk: Some(index as u32),
            target_buffer: self.target_buffer,
            ..Default::default()
        };
        let start = Instant::now();
        let request = CommitDataRequest { chunks_to_move: vec![place], ..Default::default() };
        self.call(ProducerMethod::CommitData, &request, false)?;
        loop {
            // A page whose chunks are all free is not partitioned any more.
            let state = smb.snapshot(page).and_then(|snapshot| snapshot.state(index));
            let elapsed = start.elapsed();
            if matches!(state, None | Some(ChunkState::Free)) {
                return Ok(elapsed);
            }
            if elapsed > PATIENCE {
                return Err("a chunk does not come free".to_owned());
            }
            std::thread::yield_now();
        }
    }
}

/// A size as a varint of four bytes.
fn varint4(size: usize) -> [u8; 4] {
    [size | 0x80, size >> 7 | 0x80, size >> 14 | 0x80, size >> 21].map(|byte| byte as u8)
}
