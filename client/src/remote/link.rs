//! The sending side of one connection, and the replies that are awaited on it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use watershed_shell::socket::{self, Moved};
use watershed_wire::Encode;
use watershed_wire::ipc::messages::DataSourceMessage;
use watershed_wire::ipc::{ClientConnection, Event, InvokeError, ProducerMethod};
use watershed_wire::protos::{
    ActivateTriggersRequest, CommitDataRequest, NotifyDataSourceStartedRequest,
    NotifyDataSourceStoppedRequest, RegisterTraceWriterRequest, SyncRequest, UnregisterDataSourceRequest,
    UnregisterTraceWriterRequest,
};

use super::wakeup::Wakeup;
use crate::endpoint::{Done, Endpoint};
use crate::sync::{Arc, Mutex, lock};

/// What may wait for a full socket before there is shared memory: descriptors above all.
const WAITING_BYTES_BASE: usize = 4 << 20;

/// What may wait in addition for each chunk of the shared memory: the frame of a commit that hands
/// over this chunk alone, and one patch for it. A chunk is handed over again only after the service
/// has freed it, so a service that does not read cannot make more wait than once this for each
/// chunk, but for the calls of other kinds.
const WAITING_BYTES_PER_CHUNK: usize = 128;

/// Descriptors that may wait for a message that needs one; a service sends one in the life of a
/// connection.
const DESCRIPTORS_WAITING_MAX: usize = 4;

struct State {
    socket: Arc<UnixStream>,
    connection: ClientConnection<ProducerMethod, OwnedFd>,
    /// What to call at the reply to a request. Not more than requests may be pending.
    awaited: BTreeMap<u64, Done>,
    descriptors: VecDeque<OwnedFd>,
    waiting_bytes_max: usize,
    /// Calls that no frame could hold.
    calls_too_long: u64,
    /// Why the connection cannot go on. Nothing is sent any more.
    failure: Option<String>,
}

/// One connection, shared by the thread and the arbiter over its memory. Calls are sent at once as
/// far as the socket takes them; the thread sends the rest.
///
/// `None` when the connection is over: calls are ignored then. An arbiter that outlives its
/// connection, as its writers do, keeps the closed link.
pub(super) struct Link {
    state: Mutex<Option<State>>,
    wakeup: Arc<Wakeup>,
}

impl State {
    fn send(&mut self) {
        while let Some((bytes, fd)) = self.connection.out().front() {
            match socket::send(&*self.socket, bytes, fd.map(|fd| fd.as_fd())) {
                Ok(Moved::Bytes(count)) => self.connection.out_mut().consume(count),
                Ok(Moved::NotReady | Moved::Closed) => break,
                Err(error) => return self.fail(format_args!("sending failed: {error}")),
            }
        }
        let waiting_bytes = self.connection.out().size_bytes();
        if waiting_bytes > self.waiting_bytes_max {
            self.fail(format_args!("the service does not read: {waiting_bytes} bytes wait to be sent"));
        }
    }

    fn fail(&mut self, reason: impl Display) {
        self.failure.get_or_insert_with(|| reason.to_string());
    }
}

impl Link {
    /// A connection over `socket` that asks for the producers' port.
    pub(super) fn new(socket: Arc<UnixStream>, wakeup: Arc<Wakeup>) -> Self {
        let state = State {
            socket,
            connection: ClientConnection::bind(),
            awaited: BTreeMap::new(),
            descriptors: VecDeque::new(),
            waiting_bytes_max: WAITING_BYTES_BASE,
            calls_too_long: 0,
            failure: None,
        };
        Self { state: Mutex::new(Some(state)), wakeup }
    }

    /// A connection that is over.
    pub(super) fn closed(wakeup: Arc<Wakeup>) -> Self {
        Self { state: Mutex::new(None), wakeup }
    }

    /// Ends the connection. What waits is not sent, who awaits a reply is dropped.
    pub(super) fn close(&self) {
        let state = lock(&self.state).take();
        // Behind the lock: `done` functions that are dropped may use the producer.
        drop(state);
    }

    /// Calls a method. With `done` a reply is asked for, which calls it.
    fn call(&self, method: ProducerMethod, args: &impl Encode, done: Option<Done>) {
        let wants_reply = done.is_some();
        self.invoke(method, done, |connection| connection.invoke(method, args, wants_reply));
    }

    /// Calls a method and asks for a reply, or for the stream of replies.
    pub(super) fn ask(&self, method: ProducerMethod, args: &impl Encode) {
        self.invoke(method, None, |connection| connection.invoke(method, args, true));
    }

    /// As [`Link::ask`], with a descriptor.
    pub(super) fn ask_with(&self, method: ProducerMethod, args: &impl Encode, fd: OwnedFd) {
        self.invoke(method, None, |connection| connection.invoke_with(method, args, true, fd));
    }

    fn invoke(
        &self,
        method: ProducerMethod,
        done: Option<Done>,
        call: impl FnOnce(&mut ClientConnection<ProducerMethod, OwnedFd>) -> Result<u64, InvokeError>,
    ) {
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut().filter(|state| state.failure.is_none()) else { return };
        let was_empty = state.connection.out().is_empty();
        match call(&mut state.connection) {
            Ok(request_id) => {
                state.awaited.extend(done.map(|done| (request_id, done)));
                state.send();
            }
            // A descriptor or names of triggers. The next connection would not take it either.
            Err(InvokeError::TooLong(_)) => state.calls_too_long += 1,
            Err(error) => state.fail(format_args!("{method:?}: {error}")),
        }
        // If something waited before, the thread knows of it already.
        if state.failure.is_some() || was_empty && !state.connection.out().is_empty() {
            self.wakeup.wake();
        }
    }

    /// Sends what the socket takes.
    pub(super) fn send(&self) {
        if let Some(state) = lock(&self.state).as_mut().filter(|state| state.failure.is_none()) {
            state.send();
        }
    }

    /// Whether something waits to be sent.
    pub(super) fn is_sending(&self) -> bool {
        let state = lock(&self.state);
        state.as_ref().is_some_and(|state| state.failure.is_none() && !state.connection.out().is_empty())
    }

    /// Why the connection cannot go on, if it cannot.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.state).as_ref().and_then(|state| state.failure.clone())
    }

    /// Receives once. Gives the events of the frames that are whole, also if the connection broke
    /// behind them.
    pub(super) fn receive(&self) -> Vec<Event<ProducerMethod>> {
        let mut events = Vec::new();
        let mut state = lock(&self.state);
        let Some(state) = state.as_mut() else { return events };
        match socket::receive(&*state.socket, state.connection.spare(), &mut state.descriptors) {
            Ok(Moved::Bytes(count)) => state.connection.received(count),
            Ok(Moved::NotReady) => return events,
            Ok(Moved::Closed) => {
                state.fail("the service closed the connection");
                return events;
            }
            Err(error) => {
                state.fail(format_args!("receiving failed: {error}"));
                return events;
            }
        }
        state.descriptors.truncate(DESCRIPTORS_WAITING_MAX);
        loop {
            match state.connection.poll() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    state.fail(format_args!("the service sent what is no frame: {error}"));
                    break;
                }
            }
        }
        // A reply to the bind request lets calls go that waited for it.
        state.send();
        events
    }

    /// What is to be called for the reply to a request.
    pub(super) fn take_awaited(&self, request_id: u64) -> Option<Done> {
        lock(&self.state).as_mut()?.awaited.remove(&request_id)
    }

    /// The descriptor that belongs to the message that needs one.
    pub(super) fn take_descriptor(&self) -> Option<OwnedFd> {
        lock(&self.state).as_mut()?.descriptors.pop_front()
    }

    /// There is shared memory of so many chunks: as many commits may wait.
    pub(super) fn allow_chunks(&self, chunks: usize) {
        if let Some(state) = lock(&self.state).as_mut() {
            state.waiting_bytes_max = WAITING_BYTES_BASE + chunks * WAITING_BYTES_PER_CHUNK;
        }
    }

    /// Frames that answered nothing or could not be read, and calls that were too long.
    pub(super) fn ignored(&self) -> (u64, u64) {
        let ignored = |state: &State| (state.connection.frames_ignored(), state.calls_too_long);
        lock(&self.state).as_ref().map_or((0, 0), ignored)
    }
}

impl Endpoint for Link {
    fn register_data_source(&self, descriptor: &[u8]) {
        let args = DataSourceMessage::new(descriptor.to_vec());
        self.call(ProducerMethod::RegisterDataSource, &args, None);
    }

    fn update_data_source(&self, descriptor: &[u8]) {
        let args = DataSourceMessage::new(descriptor.to_vec());
        self.call(ProducerMethod::UpdateDataSource, &args, None);
    }

    fn unregister_data_source(&self, name: &str) {
        let args = UnregisterDataSourceRequest { data_source_name: Some(name.to_owned()) };
        self.call(ProducerMethod::UnregisterDataSource, &args, None);
    }

    fn register_trace_writer(&self, writer_id: u16, target_buffer: u16) {
        let args = RegisterTraceWriterRequest {
            trace_writer_id: Some(writer_id.into()),
            target_buffer: Some(target_buffer.into()),
        };
        self.call(ProducerMethod::RegisterTraceWriter, &args, None);
    }

    fn unregister_trace_writer(&self, writer_id: u16) {
        let args = UnregisterTraceWriterRequest { trace_writer_id: Some(writer_id.into()) };
        self.call(ProducerMethod::UnregisterTraceWriter, &args, None);
    }

    fn commit_data(&self, request: CommitDataRequest, done: Option<Done>) {
        self.call(ProducerMethod::CommitData, &request, done);
    }

    fn data_source_started(&self, instance_id: u64) {
        let args = NotifyDataSourceStartedRequest { data_source_id: Some(instance_id) };
        self.call(ProducerMethod::NotifyDataSourceStarted, &args, None);
    }

    fn data_source_stopped(&self, instance_id: u64) {
        let args = NotifyDataSourceStoppedRequest { data_source_id: Some(instance_id) };
        self.call(ProducerMethod::NotifyDataSourceStopped, &args, None);
    }

    fn activate_triggers(&self, names: &[String]) {
        let args = ActivateTriggersRequest { trigger_names: names.to_vec() };
        self.call(ProducerMethod::ActivateTriggers, &args, None);
    }

    fn sync(&self, done: Done) {
        self.call(ProducerMethod::Sync, &SyncRequest {}, Some(done));
    }

    fn send_waiting(&self) {
        self.send();
    }
}
