//! The producer port: calls of one producer, and the service's commands to it.

use std::collections::VecDeque;
use std::sync::Arc;

use watershed_service::{
    ClockReadings, InstanceId, PeerIdentity, ProducerCommand, ProducerHello, ProducerId, ProducerMemory,
    ScrapingMode,
};
use watershed_smb::SharedMemory;
use watershed_wire::Decode as _;
use watershed_wire::ipc::messages::{Command, DataSourceMessage, GetAsyncCommandResponse, Instance};
use watershed_wire::ipc::{Invocation, ProducerMethod, ReplyTo};
use watershed_wire::protos;
use watershed_wire::protos::get_async_command_response as commands;

use crate::connection::{Closed, Connection};
use crate::core::Core;
use crate::log::Topic;

/// How long a producer may refuse what is sent to it (spec, service 1.7).
pub(crate) const SEND_LIMIT_MS: u64 = 10;
/// Commands that wait for the producer's request for them. Clients send it with their first call.
const EARLY_COMMANDS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct ProducerPort {
    pub(crate) connection: Connection<ProducerMethod>,
    /// Once it has said who it is.
    pub(crate) producer_id: Option<ProducerId>,
    /// Where commands go.
    stream: Option<ReplyTo>,
    early: VecDeque<ProducerCommand>,
    /// Of chunks, in monotonic time.
    last_commit_ns: u64,
}

impl ProducerPort {
    pub(crate) fn new(connection: Connection<ProducerMethod>) -> ProducerPort {
        ProducerPort {
            connection,
            producer_id: None,
            stream: None,
            early: VecDeque::new(),
            last_commit_ns: 0,
        }
    }

    pub(crate) fn handle(
        &mut self,
        call: Invocation<ProducerMethod>,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), Closed> {
        let reply_to = call.reply_to;
        if call.method == ProducerMethod::InitializeConnection {
            return self.initialize(&call, core, now);
        }
        match self.producer_id {
            Some(_) if call.method == ProducerMethod::GetAsyncCommand => {
                self.bind_stream(reply_to, core, now)
            }
            Some(producer_id) => match perform(&call, producer_id, core, now) {
                Performed::Done { num_chunks } => {
                    self.note_commit(producer_id, num_chunks, core, now);
                    self.hold_while_waiting(core);
                    self.connection.host.reply_bytes(reply_to, &[], false)
                }
                Performed::Ignored => Ok(()),
                Performed::Malformed | Performed::Refused => {
                    self.connection.host.reject(reply_to);
                    Ok(())
                }
            }
            .map_err(Closed::CannotTell),
            // Nothing is done for somebody who has not said who it is.
            None => {
                self.connection.host.reject(reply_to);
                Ok(())
            }
        }
    }

    /// Has the daemon poll for the next commit, if that is likely to come soon and cannot wait.
    fn note_commit(
        &mut self,
        producer_id: ProducerId,
        num_chunks: usize,
        core: &mut Core,
        now: &ClockReadings,
    ) {
        let Some(memory) = core.service.shared_memory(producer_id).filter(|_| num_chunks > 0) else { return };
        let interval_ns = now.monotonic_ns.saturating_sub(self.last_commit_ns);
        self.last_commit_ns = now.monotonic_ns;
        core.polling.note_commit(memory, num_chunks, interval_ns);
    }

    /// Takes no further calls while a commit waits for room in a queue.
    pub(crate) fn hold_while_waiting(&mut self, core: &Core) {
        let is_waiting = self.producer_id.is_some_and(|id| core.service.is_waiting(id));
        self.connection.is_held = is_waiting;
    }

    fn initialize(
        &mut self,
        call: &Invocation<ProducerMethod>,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), Closed> {
        let request = protos::InitializeConnectionRequest::decode(&call.args[..]);
        let (Ok(request), None) = (request, self.producer_id) else {
            self.connection.host.reject(call.reply_to);
            return Ok(());
        };
        let memory = if request.producer_provided_shmem() { self.adopt_memory(core, now) } else { None };
        let welcome = core.service.handle_producer_connect(ProducerHello {
            identity: self.identity(),
            name: request.producer_name().to_owned(),
            sdk_version: request.sdk_version().to_owned(),
            page_size_hint_bytes: request.shared_memory_page_size_hint_bytes() as usize,
            shm_size_hint_bytes: request.shared_memory_size_hint_bytes() as usize,
            scraping: scraping_mode(&request),
            memory: memory.map_or(ProducerMemory::FromService, ProducerMemory::Provided),
        });
        match welcome {
            Ok(welcome) => {
                self.producer_id = Some(welcome.producer_id);
                let reply = protos::InitializeConnectionResponse {
                    using_shmem_provided_by_producer: Some(welcome.using_provided_memory),
                    direct_smb_patching_supported: Some(true),
                    use_shmem_emulation: Some(welcome.emulated),
                };
                self.connection.reply(call.reply_to, &reply, false)
            }
            Err(refused) => {
                let line = format_args!("{self}: refused: {refused}");
                core.log.line(now.monotonic_ns, Topic::Refused, Some(self.connection.peer), line);
                self.connection.host.reject(call.reply_to);
                Ok(())
            }
        }
    }

    /// Maps the memory that the producer brought, if it can be trusted not to change its size.
    fn adopt_memory(&mut self, core: &mut Core, now: &ClockReadings) -> Option<Arc<SharedMemory>> {
        match SharedMemory::adopt(self.connection.take_fd()?) {
            Ok(memory) => Some(Arc::new(memory)),
            Err(error) => {
                let line = format_args!("{self}: its memory is not used: {error}");
                core.log.line(now.monotonic_ns, Topic::Call, Some(self.connection.peer), line);
                None
            }
        }
    }

    fn identity(&self) -> PeerIdentity {
        PeerIdentity {
            uid: self.connection.peer.uid.cast_signed(),
            pid: self.connection.peer.pid,
            ..PeerIdentity::default()
        }
    }

    fn bind_stream(&mut self, reply_to: ReplyTo, core: &mut Core, now: &ClockReadings) -> Result<(), Closed> {
        if let Some(before) = self.stream.replace(reply_to) {
            self.connection.host.reject(before);
        }
        while let Some(command) = self.early.pop_front() {
            self.command(command, core, now)?;
        }
        Ok(())
    }

    /// Sends a command, or keeps it until the producer asks for commands. One that no frame can
    /// hold is left out, with a line in the log: it is a consumer that made its config so long.
    pub(crate) fn command(
        &mut self,
        command: ProducerCommand,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), Closed> {
        let Some(stream) = self.stream else {
            self.early.push_back(command);
            return if self.early.len() > EARLY_COMMANDS_MAX { Err(Closed::NoStream) } else { Ok(()) };
        };
        let (command, memory) = encode(command);
        let response = GetAsyncCommandResponse::from(command);
        let host = &mut self.connection.host;
        let told = match memory {
            Some(memory) => host.reply_with(stream, &response, true, memory),
            None => host.reply(stream, &response, true),
        };
        if let Err(too_long) = told {
            let line = format_args!("{self}: a command is left out: it is {too_long}");
            core.log.line(now.monotonic_ns, Topic::Call, Some(self.connection.peer), line);
        }
        Ok(())
    }
}

impl std::fmt::Display for ProducerPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let peer = &self.connection.peer;
        match peer.pid {
            Some(pid) => write!(f, "producer with pid {pid}, uid {}", peer.uid),
            None => write!(f, "producer with uid {}", peer.uid),
        }
    }
}

fn scraping_mode(request: &protos::InitializeConnectionRequest) -> ScrapingMode {
    use protos::initialize_connection_request::ProducerSmbScrapingMode as Mode;
    match request.smb_scraping_mode() {
        Mode::SmbScrapingUnspecified => ScrapingMode::Default,
        Mode::SmbScrapingEnabled => ScrapingMode::Enabled,
        Mode::SmbScrapingDisabled => ScrapingMode::Disabled,
    }
}

/// What became of a call.
enum Performed {
    /// Chunks were to be moved only by a commit.
    Done { num_chunks: usize },
    /// Its arguments are no request.
    Malformed,
    /// It had no effect.
    Refused,
    /// It gets no answer, not even a reject.
    Ignored,
}

/// Does what a producer that is known asks. All replies are empty messages.
fn perform(
    call: &Invocation<ProducerMethod>,
    producer_id: ProducerId,
    core: &mut Core,
    now: &ClockReadings,
) -> Performed {
    try_perform(call, producer_id, core, now).unwrap_or(Performed::Malformed)
}

fn try_perform(
    call: &Invocation<ProducerMethod>,
    producer_id: ProducerId,
    core: &mut Core,
    now: &ClockReadings,
) -> Result<Performed, watershed_wire::DecodeError> {
    let service = &mut core.service;
    let args = &call.args[..];
    match call.method {
        ProducerMethod::RegisterDataSource => {
            let descriptor = DataSourceMessage::decode(args)?.data_source_descriptor().unwrap_or_default();
            service.handle_register_data_source(producer_id, &descriptor, now);
        }
        ProducerMethod::UpdateDataSource => {
            let descriptor = DataSourceMessage::decode(args)?.data_source_descriptor().unwrap_or_default();
            service.handle_update_data_source(producer_id, &descriptor);
        }
        ProducerMethod::UnregisterDataSource => {
            let request = protos::UnregisterDataSourceRequest::decode(args)?;
            service.handle_unregister_data_source(producer_id, request.data_source_name(), now);
        }
        ProducerMethod::CommitData => {
            let request = protos::CommitDataRequest::decode(args)?;
            if !service.handle_commit_data(producer_id, &request) {
                return Ok(Performed::Ignored);
            }
            return Ok(Performed::Done { num_chunks: request.chunks_to_move.len() });
        }
        ProducerMethod::RegisterTraceWriter => {
            let request = protos::RegisterTraceWriterRequest::decode(args)?;
            let (writer_id, target_buffer) = (request.trace_writer_id(), request.target_buffer());
            service.handle_register_trace_writer(producer_id, writer_id, target_buffer);
        }
        ProducerMethod::UnregisterTraceWriter => {
            let request = protos::UnregisterTraceWriterRequest::decode(args)?;
            service.handle_unregister_trace_writer(producer_id, request.trace_writer_id());
        }
        ProducerMethod::NotifyDataSourceStarted => {
            let request = protos::NotifyDataSourceStartedRequest::decode(args)?;
            service.handle_data_source_started(producer_id, InstanceId(request.data_source_id()), now);
        }
        ProducerMethod::NotifyDataSourceStopped => {
            let request = protos::NotifyDataSourceStoppedRequest::decode(args)?;
            service.handle_data_source_stopped(producer_id, InstanceId(request.data_source_id()), now);
        }
        ProducerMethod::ActivateTriggers => {
            let request = protos::ActivateTriggersRequest::decode(args)?;
            // Perfetto's producers do not look at the answer; ours tells its user.
            if service.handle_activate_triggers(producer_id, &request.trigger_names, now) == 0 {
                return Ok(Performed::Refused);
            }
        }
        // Everything before it on this connection has been done.
        ProducerMethod::Sync => {}
        ProducerMethod::InitializeConnection | ProducerMethod::GetAsyncCommand => {}
    }
    Ok(Performed::Done { num_chunks: 0 })
}

/// A command as it is sent, and the memory whose descriptor goes with it.
fn encode(command: ProducerCommand) -> (Command, Option<Arc<SharedMemory>>) {
    let numbers = |ids: Vec<InstanceId>| ids.into_iter().map(|id| id.0).collect();
    let command = match command {
        ProducerCommand::SetupTracing { memory, page_size_bytes } => {
            // Memory that the producer brought is known to it.
            let page_size_kb = memory.is_some().then_some((page_size_bytes / 1024) as u32);
            let set_up =
                commands::SetupTracing { shared_buffer_page_size_kb: page_size_kb, ..Default::default() };
            return (Command::SetupTracing(set_up), memory);
        }
        ProducerCommand::SetupDataSource { instance_id, config } => {
            Command::SetupDataSource(Instance::new(instance_id.0, config.to_vec()))
        }
        ProducerCommand::StartDataSource { instance_id, config } => {
            Command::StartDataSource(Instance::new(instance_id.0, config.to_vec()))
        }
        ProducerCommand::StopDataSource { instance_id } => {
            Command::StopDataSource(commands::StopDataSource { instance_id: Some(instance_id.0) })
        }
        ProducerCommand::Flush { request_id, instance_ids, flags } => Command::Flush(commands::Flush {
            data_source_ids: numbers(instance_ids),
            request_id: Some(request_id.0),
            flags: Some(flags.0),
        }),
        ProducerCommand::ClearIncrementalState { instance_ids } => {
            Command::ClearIncrementalState(commands::ClearIncrementalState {
                data_source_ids: numbers(instance_ids),
            })
        }
    };
    (command, None)
}
