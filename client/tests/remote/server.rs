//! The service's end of connections, that does what a test says and nothing else.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message as _;
use watershed_client::Endpoint as _;
use watershed_shell::address::Address;
use watershed_shell::socket::{self, Moved};
use watershed_wire::ipc::messages::{Command, DataSourceMessage, GetAsyncCommandResponse, Instance};
use watershed_wire::ipc::{HostConnection, Invocation, ProducerMethod, ReplyTo};
use watershed_wire::protos::get_async_command_response::{Flush, SetupTracing, StopDataSource};
use watershed_wire::protos::{
    CommitDataRequest, DataSourceConfig, DataSourceDescriptor, InitializeConnectionRequest,
    InitializeConnectionResponse, NotifyDataSourceStartedRequest, NotifyDataSourceStoppedRequest,
    RegisterTraceWriterRequest, UnregisterTraceWriterRequest,
};

use crate::support::FakeService;

/// A socket in a folder of its own.
pub(crate) struct Server {
    listener: UnixListener,
    pub(crate) address: Address,
    _folder: tempfile::TempDir,
}

/// One producer's connection.
pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    pub(crate) connection: HostConnection<ProducerMethod, OwnedFd>,
    pub(crate) stream: Option<ReplyTo>,
    /// Has the chunks of commits that were seen.
    pub(crate) fake: Arc<FakeService>,
    /// Instances that have answered.
    pub(crate) started: Vec<u64>,
    pub(crate) stopped: Vec<u64>,
    pub(crate) flushed: Vec<u64>,
    pub(crate) registered: Vec<String>,
    pub(crate) syncs: usize,
    /// Descriptors that came along.
    pub(crate) fds: VecDeque<OwnedFd>,
}

impl Server {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Path(folder.path().join("producer"));
        let listener = address.listen().unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, address, _folder: folder }
    }

    /// Nobody listens any more.
    pub(crate) fn stop(self) -> (Address, tempfile::TempDir) {
        std::fs::remove_file(self.address.path().unwrap()).unwrap();
        (self.address, self._folder)
    }

    pub(crate) fn connect_if_waiting(&self) -> Option<UnixStream> {
        match self.listener.accept() {
            Ok((socket, _)) => Some(socket),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn accept_socket(&self) -> UnixStream {
        let started = Instant::now();
        loop {
            if let Some(socket) = self.connect_if_waiting() {
                return socket;
            }
            assert!(started.elapsed() < Duration::from_secs(300), "nobody connects");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A connection on which nothing has been answered, with memory to give.
    pub(crate) fn accept(&self) -> Client {
        Client {
            socket: self.accept_socket(),
            connection: HostConnection::new(),
            stream: None,
            fake: FakeService::new(32, 4096),
            started: Vec::new(),
            stopped: Vec::new(),
            flushed: Vec::new(),
            registered: Vec::new(),
            syncs: 0,
            fds: VecDeque::new(),
        }
    }

    /// A connection of a producer that is accepted.
    pub(crate) fn welcome(&self, direct_patching: bool) -> (Client, InitializeConnectionRequest) {
        self.welcome_with(InitializeConnectionResponse {
            direct_smb_patching_supported: Some(direct_patching),
            ..Default::default()
        })
    }

    pub(crate) fn welcome_with(
        &self,
        reply: InitializeConnectionResponse,
    ) -> (Client, InitializeConnectionRequest) {
        let mut client = self.accept();
        let hello = client.next();
        assert_eq!(hello.method, ProducerMethod::InitializeConnection);
        let stream = client.next();
        assert_eq!(stream.method, ProducerMethod::GetAsyncCommand, "sent without waiting for the reply");
        client.stream = Some(stream.reply_to);
        client.connection.reply(hello.reply_to, &reply, false).unwrap();
        client.send();
        (client, InitializeConnectionRequest::decode(&*hello.args).unwrap())
    }
}

impl Client {
    pub(crate) fn send(&mut self) {
        while let Some((bytes, fd)) = self.connection.out().front() {
            match socket::send(&self.socket, bytes, fd.map(|fd| fd.as_fd())) {
                Ok(Moved::Bytes(count)) => self.connection.out_mut().consume(count),
                Ok(_) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => panic!("the producer has gone: {error}"),
            }
        }
    }

    /// The next call, if one comes before the producer closes the connection.
    pub(crate) fn poll(&mut self) -> Option<Invocation<ProducerMethod>> {
        let started = Instant::now();
        loop {
            if let Some(call) = self.connection.poll().unwrap() {
                return Some(call);
            }
            self.send();
            match socket::receive(&self.socket, self.connection.spare(), &mut self.fds) {
                Ok(Moved::Bytes(count)) => self.connection.received(count),
                Ok(Moved::Closed) | Err(_) => return None,
                Ok(Moved::NotReady) => std::thread::sleep(Duration::from_millis(1)),
            }
            assert!(started.elapsed() < Duration::from_secs(300), "nothing comes");
        }
    }

    pub(crate) fn next(&mut self) -> Invocation<ProducerMethod> {
        self.poll().expect("the producer is still there")
    }

    /// Takes calls and does what a service would, until something is so.
    pub(crate) fn serve_until(&mut self, mut is_so: impl FnMut(&Client) -> bool) {
        let started = Instant::now();
        while !is_so(self) {
            while let Some(call) = self.connection.poll().unwrap() {
                self.serve(&call);
            }
            self.send();
            match socket::receive(&self.socket, self.connection.spare(), &mut self.fds).unwrap() {
                Moved::Bytes(count) => self.connection.received(count),
                Moved::Closed => panic!("the producer is gone"),
                Moved::NotReady => std::thread::sleep(Duration::from_millis(1)),
            }
            assert!(started.elapsed() < Duration::from_secs(300), "it never is so");
        }
    }

    /// Takes calls until the producer closes the connection.
    pub(crate) fn serve_to_the_end(&mut self) {
        while let Some(call) = self.poll() {
            self.serve(&call);
        }
    }

    fn serve(&mut self, call: &Invocation<ProducerMethod>) {
        let args = &*call.args;
        match call.method {
            ProducerMethod::CommitData => {
                let request = CommitDataRequest::decode(args).unwrap();
                self.flushed.extend(request.flush_request_id);
                self.fake.commit_data(request, None);
                self.connection.reply_bytes(call.reply_to, b"", false).unwrap();
            }
            ProducerMethod::RegisterTraceWriter => {
                let request = RegisterTraceWriterRequest::decode(args).unwrap();
                self.fake
                    .register_trace_writer(request.trace_writer_id() as u16, request.target_buffer() as u16);
            }
            ProducerMethod::UnregisterTraceWriter => {
                let request = UnregisterTraceWriterRequest::decode(args).unwrap();
                self.fake.unregister_trace_writer(request.trace_writer_id() as u16);
            }
            ProducerMethod::NotifyDataSourceStarted => {
                self.started.push(NotifyDataSourceStartedRequest::decode(args).unwrap().data_source_id());
            }
            ProducerMethod::NotifyDataSourceStopped => {
                self.stopped.push(NotifyDataSourceStoppedRequest::decode(args).unwrap().data_source_id());
            }
            ProducerMethod::RegisterDataSource => {
                let descriptor = DataSourceMessage::decode(args).unwrap().data_source_descriptor().unwrap();
                let descriptor = DataSourceDescriptor::decode(&*descriptor).unwrap();
                self.registered.push(descriptor.name().to_owned());
            }
            ProducerMethod::Sync => {
                self.syncs += 1;
                self.connection.reply_bytes(call.reply_to, b"", false).unwrap();
            }
            method => panic!("unexpected: {method:?}"),
        }
        self.send();
    }

    pub(crate) fn command_with(&mut self, command: Command, fd: Option<OwnedFd>) {
        let reply = GetAsyncCommandResponse::from(command);
        let stream = self.stream.expect("a stream of commands");
        match fd {
            Some(fd) => self.connection.reply_with(stream, &reply, true, fd).unwrap(),
            None => self.connection.reply(stream, &reply, true).unwrap(),
        }
        self.send();
    }

    pub(crate) fn set_up_memory(&mut self) {
        let fd = self.fake.smb.memory().fd().expect("a memfd").try_clone_to_owned().unwrap();
        let setup = SetupTracing { shared_buffer_page_size_kb: Some(4), shm_key_windows: None };
        self.command_with(Command::SetupTracing(setup), Some(fd));
    }

    pub(crate) fn set_up_instance(&mut self, instance_id: u64, name: &str) {
        let config = DataSourceConfig {
            name: Some(name.to_owned()),
            target_buffer: Some(7),
            ..DataSourceConfig::default()
        };
        let instance = Instance::new(instance_id, config.encode_to_vec());
        self.command_with(Command::SetupDataSource(instance.clone()), None);
        self.command_with(Command::StartDataSource(instance), None);
    }

    pub(crate) fn flush(&mut self, request_id: u64, instance_id: u64) {
        let flush =
            Flush { data_source_ids: vec![instance_id], request_id: Some(request_id), ..Flush::default() };
        self.command_with(Command::Flush(flush), None);
    }

    pub(crate) fn stop(&mut self, instance_id: u64) {
        let stop = StopDataSource { instance_id: Some(instance_id) };
        self.command_with(Command::StopDataSource(stop), None);
    }
}
