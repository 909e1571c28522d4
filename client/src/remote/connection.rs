//! From the frames of one connection to commands of the producer.

use std::os::unix::net::UnixStream;

use watershed_smb::{SharedMemory, Smb};
use watershed_wire::Decode as _;
use watershed_wire::ipc::messages::{Command as WireCommand, GetAsyncCommandResponse, Instance};
use watershed_wire::ipc::{Event, ProducerMethod};
use watershed_wire::protos::get_async_command_response::SetupTracing;
use watershed_wire::protos::initialize_connection_request::ProducerSmbScrapingMode;
use watershed_wire::protos::{
    GetAsyncCommandRequest, InitializeConnectionRequest, InitializeConnectionResponse,
};

use super::link::Link;
use super::options::RemoteOptions;
use super::wakeup::Wakeup;
use crate::producer::Command;
use crate::sync::Arc;

/// What an event of the connection means for the producer.
pub(super) enum Step {
    /// The service has accepted the producer.
    Accepted {
        direct_patching: bool,
        /// It has the memory that was offered.
        takes_memory: bool,
    },
    Command(Command),
    /// Makes no sense.
    Ignored,
    /// Nothing to do.
    Nothing,
    /// The connection is of no use.
    Failed(String),
}

/// One connection.
pub(super) struct Connection {
    pub(super) socket: Arc<UnixStream>,
    pub(super) link: Arc<Link>,
    pub(super) accepted: bool,
    /// Offered to the service, then used with it.
    own_memory: Option<Smb>,
    has_memory: bool,
}

impl Connection {
    /// Begins to talk: the first calls leave as soon as the service has bound the port, and are
    /// not answered before.
    pub(super) fn new(
        socket: UnixStream,
        options: &RemoteOptions,
        own_memory: Option<Smb>,
        wakeup: Arc<Wakeup>,
    ) -> Self {
        let socket = Arc::new(socket);
        let link = Arc::new(Link::new(socket.clone(), wakeup));
        let size = options.smb_size;
        let hello = InitializeConnectionRequest {
            shared_memory_page_size_hint_bytes: Some(size.page_size_bytes() as u32),
            shared_memory_size_hint_bytes: Some(size.size_bytes() as u32),
            producer_name: Some(options.producer_name.clone()),
            smb_scraping_mode: Some(ProducerSmbScrapingMode::SmbScrapingEnabled.into()),
            sdk_version: Some(format!("watershed-{}", env!("CARGO_PKG_VERSION"))),
            producer_provided_shmem: own_memory.as_ref().map(|_| true),
            ..InitializeConnectionRequest::default()
        };
        // A service that was offered it before may have counted there what it freed.
        own_memory.iter().for_each(Smb::reset_free_epoch);
        let fd = own_memory.as_ref().and_then(|smb| smb.memory().fd()?.try_clone_to_owned().ok());
        match fd {
            Some(fd) => link.ask_with(ProducerMethod::InitializeConnection, &hello, fd),
            // Without a descriptor the service sees that there is nothing to take.
            None => link.ask(ProducerMethod::InitializeConnection, &hello),
        }
        link.ask(ProducerMethod::GetAsyncCommand, &GetAsyncCommandRequest {});
        Self { socket, link, accepted: false, own_memory, has_memory: false }
    }

    pub(super) fn step(&mut self, event: Event<ProducerMethod>, options: &RemoteOptions) -> Step {
        match event {
            Event::Bound => Step::Nothing,
            Event::BindFailed => {
                Step::Failed("no port for producers there: is it the socket of the consumers?".to_owned())
            }
            Event::Reply { method: ProducerMethod::InitializeConnection, reply, .. } => {
                self.accept(&reply, options)
            }
            Event::Reply { method: ProducerMethod::GetAsyncCommand, reply, has_more, .. } => {
                if !has_more {
                    return Step::Failed("the service ended the stream of commands".to_owned());
                }
                self.command(&reply, options)
            }
            Event::Reply { request_id, .. } => {
                if let Some(done) = self.link.take_awaited(request_id) {
                    done();
                }
                Step::Nothing
            }
            Event::Failed {
                method: method @ (ProducerMethod::InitializeConnection | ProducerMethod::GetAsyncCommand),
                failure,
                ..
            } => Step::Failed(format!("{method:?}: {failure}")),
            Event::Failed { request_id, .. } => {
                drop(self.link.take_awaited(request_id));
                Step::Nothing
            }
        }
    }

    fn accept(&mut self, reply: &[u8], options: &RemoteOptions) -> Step {
        match InitializeConnectionResponse::decode(reply) {
            // Every message on a Unix socket can bring the memory; a service that does not send it
            // could take the data only in other messages.
            Ok(reply) if reply.use_shmem_emulation() => {
                Step::Failed("the service has no shared memory for producers".to_owned())
            }
            Ok(reply) => {
                self.accepted = true;
                let own_memory = self.own_memory.take_if(|_| reply.using_shmem_provided_by_producer());
                if let Some(smb) = &own_memory {
                    self.has_memory = true;
                    self.allow_chunks(smb, options);
                }
                Step::Accepted {
                    direct_patching: reply.direct_smb_patching_supported(),
                    takes_memory: own_memory.is_some(),
                }
            }
            Err(error) => Step::Failed(format!("InitializeConnection: {error}")),
        }
    }

    fn command(&mut self, reply: &[u8], options: &RemoteOptions) -> Step {
        let command = match GetAsyncCommandResponse::decode(reply) {
            Ok(GetAsyncCommandResponse { cmd: Some(command) }) if self.accepted => command,
            _ => return Step::Ignored,
        };
        let config = |instance: &Instance| instance.config().unwrap_or_default().into();
        Step::Command(match command {
            WireCommand::SetupTracing(setup) => {
                let descriptor = self.link.take_descriptor();
                if std::mem::replace(&mut self.has_memory, true) {
                    // For memory of the producer's own the service says this without a descriptor.
                    return if descriptor.is_none() { Step::Nothing } else { Step::Ignored };
                }
                let Some(descriptor) = descriptor else {
                    return Step::Failed("the service sent no shared memory".to_owned());
                };
                return match SharedMemory::map_trusted(descriptor) {
                    Ok(memory) => self.set_up(memory.without_children(), setup, options),
                    Err(error) => Step::Failed(error.to_string()),
                };
            }
            WireCommand::SetupDataSource(instance) => {
                let instance_id = instance.new_instance_id.unwrap_or_default();
                Command::SetupDataSource { instance_id, config: config(&instance) }
            }
            WireCommand::StartDataSource(instance) => {
                let instance_id = instance.new_instance_id.unwrap_or_default();
                Command::StartDataSource { instance_id, config: config(&instance) }
            }
            WireCommand::StopDataSource(stop) => Command::StopDataSource { instance_id: stop.instance_id() },
            WireCommand::Flush(flush) => {
                Command::Flush { request_id: flush.request_id(), instance_ids: flush.data_source_ids }
            }
            WireCommand::ClearIncrementalState(clear) => {
                Command::ClearIncrementalState { instance_ids: clear.data_source_ids }
            }
        })
    }

    fn allow_chunks(&self, smb: &Smb, options: &RemoteOptions) {
        self.link.allow_chunks(smb.num_pages() * options.arbiter.layout.num_chunks());
    }

    fn set_up(&self, memory: SharedMemory, setup: SetupTracing, options: &RemoteOptions) -> Step {
        let page_size_bytes = setup.shared_buffer_page_size_kb() as usize * 1024;
        match Smb::new(Arc::new(memory), page_size_bytes) {
            Ok(smb) => {
                self.allow_chunks(&smb, options);
                Step::Command(Command::SetupTracing { smb })
            }
            Err(error) => Step::Failed(error.to_string()),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Also when a data source panics: the service must not wait for a thread that is gone.
        self.link.close();
    }
}
