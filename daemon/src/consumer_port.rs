//! The consumer port: calls of one consumer, and what it is told later.
//!
//! Six calls are not answered at once:
//!
//! ```text
//!   EnableTracing     when the session has ended, with the reason if it failed
//!   CloneSession      when the data sources were flushed and the buffers copied
//!   Flush             when every producer has answered, or not in time
//!   GetTraceStats     when workers have done what was committed before, in the order of the calls
//!   ReadBuffers       in pieces, as fast as the consumer takes them
//!   ObserveEvents     at each event, until another request replaces it
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;

use watershed_service::{
    ClockReadings, ConnectError, ConsumerEvent, ConsumerId, FlushFlags, FlushId, ObservedEvents, OutputFile,
    PacketBatch, PeerIdentity, ReadBegun, ReadProgress, SessionId,
};
use watershed_wire::Decode as _;
use watershed_wire::ipc::messages::EnableTracingRequest;
use watershed_wire::ipc::{
    ConsumerMethod, Invocation, ReplyTo, SplitServiceState, read_buffers_replies, split_service_state,
};
use watershed_wire::protos;
use watershed_wire::protos::observable_events::{
    DataSourceInstanceState, DataSourceInstanceStateChange, Type as EventType,
};

mod clones;

use crate::connection::{Closed, Connection, REPLY_BYTES_MAX};
use crate::core::Core;
use crate::log::Topic;
use crate::waiting::Job;

/// How long a consumer may refuse what is sent to it (spec, service 1.7).
pub(crate) const SEND_LIMIT_MS: u64 = 10_000;

#[derive(Debug)]
pub(crate) struct ConsumerPort {
    pub(crate) connection: Connection<ConsumerMethod>,
    pub(crate) consumer_id: ConsumerId,
    /// Where the end of the session is told.
    enable: Option<ReplyTo>,
    flushes: BTreeMap<FlushId, ReplyTo>,
    /// Who waits for statistics, in their order.
    stats: VecDeque<ReplyTo>,
    /// By the session that the clone will be.
    clones: BTreeMap<SessionId, ReplyTo>,
    reading: Option<ReplyTo>,
    /// What another thread reads, or the service has to wait for, comes first.
    waits_for_read: bool,
    batch: PacketBatch,
    observing: Option<ReplyTo>,
    /// What happened since events were last sent.
    events: protos::ObservableEvents,
}

impl ConsumerPort {
    /// A port for the connection, unless the service has consumers enough.
    pub(crate) fn new(
        connection: Connection<ConsumerMethod>,
        core: &mut Core,
    ) -> Result<ConsumerPort, ConnectError> {
        let identity = PeerIdentity {
            uid: connection.peer.uid.cast_signed(),
            pid: connection.peer.pid,
            ..PeerIdentity::default()
        };
        Ok(ConsumerPort {
            consumer_id: core.service.handle_consumer_connect(identity)?,
            connection,
            enable: None,
            flushes: BTreeMap::new(),
            stats: VecDeque::new(),
            clones: BTreeMap::new(),
            reading: None,
            waits_for_read: false,
            batch: PacketBatch::new(),
            observing: None,
            events: protos::ObservableEvents::default(),
        })
    }

    pub(crate) fn handle(
        &mut self,
        call: Invocation<ConsumerMethod>,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), Closed> {
        let (reply_to, consumer_id, service) = (call.reply_to, self.consumer_id, &mut core.service);
        match call.method {
            ConsumerMethod::EnableTracing => self.enable_tracing(&call, core, now),
            ConsumerMethod::StartTracing => {
                service.handle_start_tracing(consumer_id, now);
                self.connection.reply(reply_to, &protos::StartTracingResponse {}, false)
            }
            ConsumerMethod::DisableTracing => {
                service.handle_disable_tracing(consumer_id, now);
                self.connection.reply(reply_to, &protos::DisableTracingResponse {}, false)
            }
            ConsumerMethod::FreeBuffers => {
                service.handle_free_buffers(consumer_id, now);
                self.connection.reply(reply_to, &protos::FreeBuffersResponse {}, false)
            }
            ConsumerMethod::Flush => self.flush(&call, core, now),
            ConsumerMethod::ReadBuffers => {
                service.handle_read_buffers(consumer_id);
                if let Some(before) = self.reading.replace(reply_to) {
                    self.connection.host.reject(before);
                }
                Ok(())
            }
            ConsumerMethod::GetTraceStats => {
                if !service.handle_get_trace_stats(consumer_id) {
                    return self.reject(reply_to);
                }
                self.stats.push_back(reply_to);
                Ok(())
            }
            ConsumerMethod::ObserveEvents => self.observe(&call, core),
            ConsumerMethod::QueryServiceState => self.query_state(&call, core, now),
            ConsumerMethod::QueryCapabilities => self.connection.reply(reply_to, &capabilities(), false),
            ConsumerMethod::SaveTraceForBugreport => {
                let msg = "SaveTraceForBugreport is deprecated, clone the session instead".to_owned();
                let reply = protos::SaveTraceForBugreportResponse { success: Some(false), msg: Some(msg) };
                self.connection.reply(reply_to, &reply, false)
            }
            ConsumerMethod::CloneSession => self.clone_session(&call, core, now),
            ConsumerMethod::ChangeTraceConfig => self.change_config(&call, core, now),
            ConsumerMethod::Detach => self.detach(&call, core),
            ConsumerMethod::Attach => self.attach(&call, core, now),
        }
    }

    fn reject(&mut self, reply_to: ReplyTo) -> Result<(), Closed> {
        self.connection.host.reject(reply_to);
        Ok(())
    }

    fn enable_tracing(
        &mut self,
        call: &Invocation<ConsumerMethod>,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), Closed> {
        let Ok(request) = EnableTracingRequest::decode(&call.args[..]) else {
            return self.reject(call.reply_to);
        };
        if let Some(before) = self.enable.replace(call.reply_to) {
            self.connection.host.reject(before);
        }
        if request.attach_notification_only() {
            core.service.handle_end_wanted(self.consumer_id);
            return Ok(());
        }
        let config = request.trace_config().unwrap_or_default();
        let fd = self.connection.take_fd();
        if let Err(refused) = self.start_session(&config, fd.map(File::from), core, now) {
            return self.tell_end(Some(refused));
        }
        Ok(())
    }

    /// Starts a session whose file, if it has one, is `provided` or made by its `output_path`.
    fn start_session(
        &mut self,
        config: &[u8],
        provided: Option<File>,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), String> {
        // What the service cannot decode it refuses itself, with a reason.
        let writes_into_file =
            protos::TraceConfig::decode(config).is_ok_and(|message| message.write_into_file());
        let mut file = provided.filter(|_| writes_into_file);
        let mut made = None;
        let session_id = {
            let Core { service, output_folder, .. } = core;
            let mut create = |path: &str| {
                made = Some(crate::core::create_file(output_folder.as_deref(), path)?);
                Ok(())
            };
            let output = match &file {
                Some(_) => OutputFile::Provided,
                None => OutputFile::Create(&mut create),
            };
            service
                .handle_enable_tracing(self.consumer_id, config, output, now)
                .map_err(|refused| refused.to_string())?
        };
        if let Some(file) = file.take().or(made) {
            core.files.add(session_id, file);
        }
        Ok(())
    }

    /// The session has ended, or could not start.
    fn tell_end(&mut self, error: Option<String>) -> Result<(), Closed> {
        let Some(reply_to) = self.enable.take() else { return Ok(()) };
        let state = protos::enable_tracing_response::State::Disabled(true);
        let reply = protos::EnableTracingResponse { state: Some(state), error };
        self.connection.reply(reply_to, &reply, false)
    }

    fn flush(
        &mut self,
        call: &Invocation<ConsumerMethod>,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), Closed> {
        let Ok(request) = protos::FlushRequest::decode(&call.args[..]) else {
            return self.reject(call.reply_to);
        };
        let flags = FlushFlags(request.flags());
        match core.service.handle_flush(self.consumer_id, request.timeout_ms(), flags, now) {
            Ok(flush_id) => {
                self.flushes.insert(flush_id, call.reply_to);
                Ok(())
            }
            Err(_) => self.reject(call.reply_to),
        }
    }

    fn observe(&mut self, call: &Invocation<ConsumerMethod>, core: &mut Core) -> Result<(), Closed> {
        let Ok(request) = protos::ObserveEventsRequest::decode(&call.args[..]) else {
            return self.reject(call.reply_to);
        };
        let nothing = protos::ObserveEventsResponse::default();
        if let Some(before) = self.observing.replace(call.reply_to) {
            self.connection.reply(before, &nothing, false)?;
        }
        let bits = request.events_to_observe.iter().fold(0, |bits, event| bits | event.cast_unsigned());
        if bits == 0 {
            self.observing = None;
            self.connection.reply(call.reply_to, &nothing, false)?;
        }
        core.service.handle_observe_events(self.consumer_id, ObservedEvents(bits));
        Ok(())
    }

    fn query_state(
        &mut self,
        call: &Invocation<ConsumerMethod>,
        core: &mut Core,
        now: &ClockReadings,
    ) -> Result<(), Closed> {
        let Ok(request) = protos::QueryServiceStateRequest::decode(&call.args[..]) else {
            return self.reject(call.reply_to);
        };
        let state = core.service.query_state(self.consumer_id, request.sessions_only());
        let SplitServiceState { replies, entries_left_out } = split_service_state(state);
        if entries_left_out > 0 {
            let text = "entries are in no reply to QueryServiceState: each is too long for a frame";
            let line = format_args!("{entries_left_out} {text}");
            core.log.line(now.monotonic_ns, Topic::Call, Some(self.connection.peer), line);
        }
        let last = replies.len().saturating_sub(1);
        for (index, reply) in replies.iter().enumerate() {
            self.connection.reply(call.reply_to, reply, index < last)?;
        }
        Ok(())
    }

    /// Something has happened that the consumer waits for or wants to know.
    pub(crate) fn event(&mut self, event: ConsumerEvent, core: &mut Core) -> Result<(), Closed> {
        match event {
            ConsumerEvent::TracingDisabled { error, .. } => self.tell_end(error),
            ConsumerEvent::FlushDone { flush_id, success } => match self.flushes.remove(&flush_id) {
                Some(reply_to) if success => {
                    self.connection.reply(reply_to, &protos::FlushResponse {}, false)
                }
                Some(reply_to) => self.reject(reply_to),
                None => Ok(()),
            },
            ConsumerEvent::TraceStats(stats) => match (self.stats.pop_front(), stats) {
                (Some(reply_to), Some(stats)) => {
                    let reply = protos::GetTraceStatsResponse { trace_stats: Some(*stats) };
                    self.connection.reply(reply_to, &reply, false)
                }
                (Some(reply_to), None) => self.reject(reply_to),
                (None, _) => Ok(()),
            },
            ConsumerEvent::ReadReady => {
                self.waits_for_read = false;
                Ok(())
            }
            ConsumerEvent::InstanceState { producer_name, data_source_name, started } => {
                let state = match started {
                    true => DataSourceInstanceState::Started,
                    false => DataSourceInstanceState::Stopped,
                };
                self.events.instance_state_changes.push(DataSourceInstanceStateChange {
                    producer_name: Some(producer_name),
                    data_source_name: Some(data_source_name),
                    state: Some(state.into()),
                });
                self.send_events_if_many()
            }
            ConsumerEvent::AllDataSourcesStarted { .. } => {
                self.events.all_data_sources_started = Some(true);
                Ok(())
            }
            ConsumerEvent::CloneTriggerHit { session_id, trigger } => {
                // One message has room for one.
                if self.events.clone_trigger_hit.is_some() {
                    self.send_events()?;
                }
                self.events.clone_trigger_hit = Some(clones::hit(session_id, &trigger));
                Ok(())
            }
            ConsumerEvent::Cloned { session_id, result } => {
                core.files.forget_clone(session_id);
                self.tell_cloned(session_id, result)
            }
        }
    }

    /// Names may have 1 KiB each: a message stays far below a frame.
    fn send_events_if_many(&mut self) -> Result<(), Closed> {
        const CHANGES_PER_MESSAGE: usize = 32;
        if self.events.instance_state_changes.len() < CHANGES_PER_MESSAGE {
            Ok(())
        } else {
            self.send_events()
        }
    }

    /// Sends the events of this turn in one message.
    pub(crate) fn send_events(&mut self) -> Result<(), Closed> {
        let events = std::mem::take(&mut self.events);
        match self.observing {
            Some(reply_to) if events != protos::ObservableEvents::default() => {
                let reply = protos::ObserveEventsResponse { events: Some(events) };
                self.connection.reply(reply_to, &reply, true)
            }
            _ => Ok(()),
        }
    }

    /// Whether packets are to be read and the consumer has taken most of what was read before.
    pub(crate) fn wants_packets(&self) -> bool {
        let has_room = self.connection.host.out().size_bytes() < REPLY_BYTES_MAX;
        self.reading.is_some() && !self.waits_for_read && has_room && !self.connection.is_gone()
    }

    /// Begins the next step of reading for the consumer. What may wait is done by another thread.
    pub(crate) fn begin_read(&mut self, core: &mut Core, now: &ClockReadings) -> Result<(), Closed> {
        let batch = std::mem::take(&mut self.batch);
        match core.service.begin_read(self.consumer_id, now) {
            ReadBegun::Step(step) if step.may_wait() => {
                self.waits_for_read = true;
                core.waiting.begin(Job::Read(step, batch));
                Ok(())
            }
            ReadBegun::Step(step) => {
                let (packets, progress) = core.service.handle_read(step.run(batch), now);
                self.take_read(packets, progress)
            }
            ReadBegun::Nothing => self.take_read(PacketBatch::new(), ReadProgress::Nothing),
            ReadBegun::Later => {
                self.waits_for_read = true;
                Ok(())
            }
        }
    }

    /// Packets for the consumer.
    pub(crate) fn take_read(&mut self, packets: PacketBatch, progress: ReadProgress) -> Result<(), Closed> {
        self.waits_for_read = false;
        let Some(reply_to) = self.reading else { return Ok(()) };
        let has_more = progress == ReadProgress::More;
        let host = &mut self.connection.host;
        // A reply that has nothing and ends nothing is not sent.
        if !(has_more && packets.is_empty()) {
            for reply in read_buffers_replies(packets.packets()) {
                host.reply_bytes(reply_to, &reply.bytes, has_more || !reply.is_last)
                    .map_err(Closed::CannotTell)?;
            }
        }
        if !has_more {
            self.reading = None;
        }
        self.batch = packets;
        Ok(())
    }
}

impl std::fmt::Display for ConsumerPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let peer = &self.connection.peer;
        match peer.pid {
            Some(pid) => write!(f, "consumer with pid {pid}, uid {}", peer.uid),
            None => write!(f, "consumer with uid {}", peer.uid),
        }
    }
}

fn capabilities() -> protos::QueryCapabilitiesResponse {
    let observable =
        [EventType::DataSourcesInstances, EventType::AllDataSourcesStarted, EventType::CloneTriggerHit];
    protos::QueryCapabilitiesResponse {
        capabilities: Some(protos::TracingServiceCapabilities {
            has_query_capabilities: Some(true),
            observable_events: observable.map(i32::from).to_vec(),
            has_trace_config_output_path: Some(true),
            has_clone_session: Some(true),
        }),
    }
}
