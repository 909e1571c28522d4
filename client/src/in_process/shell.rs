//! The thread of the service: a queue in, clocks, and whatever the service puts out.

mod outputs;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use watershed_service::{
    ClockReadings, ConnectError, ConsumerId, FileWritten, FlushFlags, InstanceId, ObservedEvents, OutputFile,
    ProducerHello, ProducerId, ReadProgress, Service,
};
use watershed_shell::machine::{identity, read_clocks};
use watershed_shell::trace_file::{self, Sink};
use watershed_wire::protos::TraceStats;

use super::Event;
use super::endpoint::Call;
use super::files::Packing;
use super::live::{AfterFlush, Live, Trace};
use super::session::{Notices, StartError};
use crate::producer::CommandSender;
use crate::sync::Arc;

/// Flush flags of a consumer that stops its session: reason 2 (trace stop), initiator 3 (a
/// program's consumer side).
const STOPPED_BY_CONSUMER: FlushFlags = FlushFlags(3 << 4 | 2);

/// How many requests are handled before timers, outputs and files get their turn. How long the
/// queue itself gets is said in [`super::endpoint`].
const REQUESTS_PER_TURN: usize = 256;

/// What the service's thread is asked.
pub(super) enum Request {
    Connect {
        hello: Box<ProducerHello>,
        reply: Sender<Result<ProducerId, ConnectError>>,
    },
    Attach(ProducerId, CommandSender),
    Disconnect(ProducerId),
    Producer(ProducerId, Call),
    Enable {
        config: Vec<u8>,
        output: Option<trace_file::Output>,
        notices: Arc<Notices>,
        /// The queue that this is in, for as long as the session lives.
        requests: Sender<Request>,
        reply: Sender<Enabled>,
    },
    /// A step of a compressed file has been written, and this is where the trace goes on.
    Packed {
        consumer_id: ConsumerId,
        trace: Trace,
        written: FileWritten,
    },
    Start(ConsumerId),
    Flush {
        consumer_id: ConsumerId,
        timeout_ms: u32,
        reply: Option<Sender<bool>>,
    },
    Stop(ConsumerId),
    Stats {
        consumer_id: ConsumerId,
        reply: Sender<Option<TraceStats>>,
    },
    Read {
        consumer_id: ConsumerId,
        reply: Sender<(Vec<u8>, bool)>,
    },
    Free(ConsumerId),
    DataSources(Sender<Vec<String>>),
    /// Writers that commit themselves have left something.
    Wanted,
    ShutDown,
}

pub(super) type Enabled = Result<ConsumerId, StartError>;

pub(super) struct Shell {
    pub(super) service: Service,
    producers: BTreeMap<ProducerId, CommandSender>,
    pub(super) sessions: BTreeMap<ConsumerId, Live>,
    on_event: Box<dyn FnMut(Event) + Send>,
    pub(super) packing: Packing,
}

impl Shell {
    pub(super) fn new(service: Service, on_event: Box<dyn FnMut(Event) + Send>) -> Self {
        let (producers, sessions) = (BTreeMap::new(), BTreeMap::new());
        Self { service, producers, sessions, on_event, packing: Packing::default() }
    }

    /// Runs until it is told to end, or until nobody is left who could.
    pub(super) fn run(mut self, requests: &Receiver<Request>) {
        loop {
            let first = match requests.try_recv() {
                Ok(request) => Ok(request),
                // There is more to go on with, but requests come first, and what is due.
                Err(_) if self.service.handle_idle() && !self.is_something_due() => continue,
                Err(_) => self.wait(requests),
            };
            let now = read_clocks();
            let first = match first {
                Ok(Request::ShutDown) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
            };
            for request in first.into_iter().chain(requests.try_iter().take(REQUESTS_PER_TURN)) {
                if matches!(request, Request::ShutDown) {
                    return;
                }
                self.handle(request, &now);
            }
            self.service.handle_timeout(&now);
            self.settle(&now);
        }
    }

    fn is_something_due(&self) -> bool {
        self.service.poll_timeout().wait_ns(&read_clocks()) == Some(0)
    }

    /// Waits for a request, or until something is due.
    fn wait(&self, requests: &Receiver<Request>) -> Result<Request, RecvTimeoutError> {
        match self.service.poll_timeout().wait_ns(&read_clocks()) {
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait_ns) => requests.recv_timeout(Duration::from_nanos(wait_ns)),
        }
    }

    fn handle(&mut self, request: Request, now: &ClockReadings) {
        match request {
            Request::Producer(producer_id, call) => self.handle_call(producer_id, call, now),
            Request::Connect { hello, reply } => {
                let connected = self.service.handle_producer_connect(*hello);
                let _ = reply.send(connected.map(|welcome| welcome.producer_id));
            }
            Request::Attach(producer_id, commands) => {
                self.producers.insert(producer_id, commands);
            }
            Request::Disconnect(producer_id) => {
                self.producers.remove(&producer_id);
                self.service.handle_producer_disconnect(producer_id, now);
            }
            Request::Enable { config, output, notices, requests, reply } => {
                // The owner has gone only if it gave up waiting, which it does not.
                let _ = reply.send(self.enable(&config, output, notices, requests, now));
            }
            Request::Packed { consumer_id, trace, written } => self.packed(consumer_id, trace, written, now),
            Request::Start(consumer_id) => self.service.handle_start_tracing(consumer_id, now),
            Request::Flush { consumer_id, timeout_ms, reply } => {
                self.flush(consumer_id, timeout_ms, reply, now)
            }
            Request::Stop(consumer_id) => self.stop(consumer_id, now),
            Request::Stats { consumer_id, reply } => {
                let _ = reply.send(self.service.trace_stats(consumer_id));
            }
            Request::Read { consumer_id, reply } => {
                let mut block = Vec::new();
                let progress = self.service.read_framed(consumer_id, &mut block, now);
                let _ = reply.send((block, progress == ReadProgress::More));
            }
            Request::Free(consumer_id) => self.free(consumer_id, now),
            Request::DataSources(reply) => {
                let names = self.service.data_sources().map(|source| source.name.to_owned()).collect();
                let _ = reply.send(names);
            }
            Request::Wanted => self.service.handle_wanted(),
            Request::ShutDown => {}
        }
        // Outputs belong to the call that made them: a command must not be overtaken by a later
        // request's.
        self.deliver(now);
    }

    fn handle_call(&mut self, producer_id: ProducerId, call: Call, now: &ClockReadings) {
        let service = &mut self.service;
        match call {
            Call::Register(descriptor) => service.handle_register_data_source(producer_id, &descriptor, now),
            Call::Update(descriptor) => service.handle_update_data_source(producer_id, &descriptor),
            Call::Unregister(name) => service.handle_unregister_data_source(producer_id, &name, now),
            Call::RegisterWriter { writer_id, target_buffer } => {
                service.handle_register_trace_writer(producer_id, writer_id.into(), target_buffer.into());
            }
            Call::UnregisterWriter { writer_id } => {
                service.handle_unregister_trace_writer(producer_id, writer_id.into());
            }
            Call::Commit(request, done, _queued) => {
                // Not processed only when the producer has no memory, and then there was nothing to
                // commit.
                service.handle_commit_data(producer_id, &request);
                if let Some(done) = done {
                    done();
                }
            }
            Call::Started { instance_id } => {
                service.handle_data_source_started(producer_id, InstanceId(instance_id), now);
            }
            Call::Stopped { instance_id } => {
                service.handle_data_source_stopped(producer_id, InstanceId(instance_id), now);
            }
            Call::Sync(done) => done(),
        }
    }

    fn enable(
        &mut self,
        config: &[u8],
        mut output: Option<trace_file::Output>,
        notices: Arc<Notices>,
        requests: Sender<Request>,
        now: &ClockReadings,
    ) -> Enabled {
        let consumer_id = self.service.handle_consumer_connect(identity())?;
        self.service.handle_observe_events(consumer_id, ObservedEvents::ALL_DATA_SOURCES_STARTED);
        let message = super::config_of(config).unwrap_or_default();
        let provided = output.is_some() && message.output_path().is_empty();
        let mut create = |path: &str| {
            if output.is_some() {
                // The sink that the owner gave takes what the config wants in that file.
                return Ok(());
            }
            let file = File::create_new(path).map_err(|error| error.to_string())?;
            output = trace_file::Output::new(Sink::File(file));
            Ok(())
        };
        let file = if provided { OutputFile::Provided } else { OutputFile::Create(&mut create) };
        let session_id = match self.service.handle_enable_tracing(consumer_id, config, file, now) {
            Ok(session_id) => session_id,
            Err(refused) => {
                self.service.handle_consumer_disconnect(consumer_id, now);
                return Err(refused.into());
            }
        };
        let live = Live {
            session_id,
            notices,
            trace: Trace { output, ..Trace::default() },
            is_packing: false,
            is_free: false,
            requests,
            writes_into_file: message.write_into_file(),
            flushes: BTreeMap::new(),
            flush_failed: false,
        };
        self.sessions.insert(consumer_id, live);
        Ok(consumer_id)
    }

    fn flush(
        &mut self,
        consumer_id: ConsumerId,
        timeout_ms: u32,
        reply: Option<Sender<bool>>,
        now: &ClockReadings,
    ) {
        if reply.is_none()
            && let Some(live) = self.sessions.get(&consumer_id)
        {
            live.notices.flush_begins();
        }
        let flush = self.service.handle_flush(consumer_id, timeout_ms, FlushFlags::EXPLICIT, now);
        let Some(reply) = reply else { return };
        match (flush, self.sessions.get_mut(&consumer_id)) {
            (Ok(flush_id), Some(live)) => {
                live.flushes.insert(flush_id, AfterFlush::Tell(reply));
            }
            _ => {
                let _ = reply.send(false);
            }
        }
    }

    fn stop(&mut self, consumer_id: ConsumerId, now: &ClockReadings) {
        let flush = self.service.handle_flush(consumer_id, 0, STOPPED_BY_CONSUMER, now);
        match (flush, self.sessions.get_mut(&consumer_id)) {
            (Ok(flush_id), Some(live)) => {
                live.flushes.insert(flush_id, AfterFlush::Stop);
            }
            // Not running: there is nothing to flush.
            _ => self.service.handle_disable_tracing(consumer_id, now),
        }
    }

    fn free(&mut self, consumer_id: ConsumerId, now: &ClockReadings) {
        self.service.handle_consumer_disconnect(consumer_id, now);
        self.deliver(now);
        if let Some(live) = self.sessions.get_mut(&consumer_id) {
            live.is_free = true;
        }
        // A session with a file has its last block and its close still to come.
        self.work_on_files(now);
    }

    /// Delivers and writes until there is nothing left.
    fn settle(&mut self, now: &ClockReadings) {
        self.deliver(now);
        self.work_on_files(now);
    }
}

#[cfg(test)]
mod tests;
