//! The client's end of one connection.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::envelope::{CALL_OVERHEAD_BYTES_MAX, append_call};
use super::methods::Method;
use super::out::OutFrames;
use crate::Encode;
use crate::framing::{FRAME_SIZE_BYTES_MAX, FrameBuffer, FrameTooLong, encode_frame};
use crate::protos::IpcFrame;
use crate::protos::ipc_frame::{BindService, BindServiceReply, InvokeMethod, InvokeMethodReply, Msg};

/// How many calls may wait for the reply to the bind request.
pub const CALLS_QUEUED_MAX: usize = 1024;

/// How many requests may wait for a reply, streams included.
pub const REQUESTS_PENDING_MAX: usize = 4096;

/// The request id of the bind request; calls count on from it.
const BIND_REQUEST_ID: u64 = 1;

/// Why a call was not taken. It has no effect then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The arguments do not fit a frame.
    #[error("{0}")]
    TooLong(#[from] FrameTooLong),
    /// [`CALLS_QUEUED_MAX`] or [`REQUESTS_PENDING_MAX`] is reached: the service does not answer.
    #[error("too many calls without an answer")]
    TooMany,
    /// The service does not have the port.
    #[error("the service has no such port")]
    NotBound,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The service says so.
    Rejected,
    /// The service does not have this method; it is older than the client.
    MethodMissing,
    /// The service did not understand the request; the text is its own.
    Error(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Rejected => write!(f, "rejected by the service"),
            Failure::MethodMissing => write!(f, "the service does not have this method"),
            Failure::Error(text) => write!(f, "the service did not understand the request: {text}"),
        }
    }
}

/// What has happened on the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<M> {
    /// The port is there; calls that waited are on their way. At most once.
    Bound,
    /// The port is not there. All calls have failed, without an event each.
    BindFailed,
    /// A reply, or one element of a stream.
    Reply {
        /// As [`ClientConnection::invoke`] gave it.
        request_id: u64,
        /// What was called.
        method: M,
        /// Whether another reply follows.
        has_more: bool,
        /// The encoded response.
        reply: Vec<u8>,
    },
    /// A call has failed or a stream has ended that way; nothing follows.
    Failed {
        /// As [`ClientConnection::invoke`] gave it.
        request_id: u64,
        /// What was called.
        method: M,
        /// Why.
        failure: Failure,
    },
}

#[derive(Debug)]
struct Call<M, A> {
    request_id: u64,
    method: M,
    args: Vec<u8>,
    wants_reply: bool,
    attachment: Option<A>,
}

#[derive(Debug)]
enum State<M, A> {
    Binding {
        queued: Vec<Call<M, A>>,
    },
    Bound {
        service_id: u32,
        /// The service's id of each method in the order of [`Method::ALL`], 0 if it is missing.
        method_ids: Vec<u32>,
    },
    Failed,
}

/// The client's end of one connection to the port with the methods `M`; `A` is what may be attached
/// to a call.
///
/// The shell sends [`Self::out`], reads into [`Self::spare`], calls [`Self::received`], then
/// [`Self::poll`] until it gives nothing.
#[derive(Debug)]
pub struct ClientConnection<M, A> {
    frames: FrameBuffer,
    out: OutFrames<A>,
    state: State<M, A>,
    pending: BTreeMap<u64, M>,
    events: VecDeque<Event<M>>,
    last_request_id: u64,
    frames_ignored: u64,
}

impl<M: Method, A> ClientConnection<M, A> {
    /// A connection whose first frame asks for the port.
    pub fn bind() -> Self {
        let service_name = Some(M::SERVICE_NAME.to_owned());
        let frame = IpcFrame {
            request_id: Some(BIND_REQUEST_ID),
            msg: Some(Msg::MsgBindService(BindService { service_name })),
            ..Default::default()
        };
        let mut out = OutFrames::default();
        out.push_with(None, |out| encode_frame(&frame, out)).expect("the name of a port is short");
        ClientConnection {
            frames: FrameBuffer::default(),
            out,
            state: State::Binding { queued: Vec::new() },
            pending: BTreeMap::new(),
            events: VecDeque::new(),
            last_request_id: BIND_REQUEST_ID,
            frames_ignored: 0,
        }
    }

    /// Calls a method; gives the request id that its replies have. Before the port is bound the
    /// call waits, in its order.
    ///
    /// Without `wants_reply` the service sends none; an event follows only if the service does not
    /// have the method.
    ///
    /// # Errors
    /// [`InvokeError`].
    pub fn invoke(&mut self, method: M, args: &impl Encode, wants_reply: bool) -> Result<u64, InvokeError> {
        self.call(method, args.encode_to_vec(), wants_reply, None)
    }

    /// As [`Self::invoke`], with something attached.
    ///
    /// # Errors
    /// [`InvokeError`]; the attachment is dropped then.
    pub fn invoke_with(
        &mut self,
        method: M,
        args: &impl Encode,
        wants_reply: bool,
        attachment: A,
    ) -> Result<u64, InvokeError> {
        self.call(method, args.encode_to_vec(), wants_reply, Some(attachment))
    }

    fn call(
        &mut self,
        method: M,
        args: Vec<u8>,
        wants_reply: bool,
        attachment: Option<A>,
    ) -> Result<u64, InvokeError> {
        let size_bytes = args.len() + CALL_OVERHEAD_BYTES_MAX;
        if size_bytes > FRAME_SIZE_BYTES_MAX {
            return Err(FrameTooLong { size_bytes }.into());
        }
        if wants_reply && self.pending.len() >= REQUESTS_PENDING_MAX {
            return Err(InvokeError::TooMany);
        }
        let request_id = self.last_request_id + 1;
        let call = Call { request_id, method, args, wants_reply, attachment };
        match &mut self.state {
            State::Failed => return Err(InvokeError::NotBound),
            State::Binding { queued } if queued.len() >= CALLS_QUEUED_MAX => {
                return Err(InvokeError::TooMany);
            }
            State::Binding { queued } => queued.push(call),
            State::Bound { .. } => self.send(call),
        }
        self.last_request_id = request_id;
        Ok(request_id)
    }

    /// Sends a call, or notes that its method is missing. Only if bound.
    fn send(&mut self, call: Call<M, A>) {
        let State::Bound { service_id, method_ids } = &self.state else { return };
        let Call { request_id, method, args, wants_reply, attachment } = call;
        let method_id = method_ids[method.id() as usize - 1];
        if method_id == 0 {
            self.events.push_back(Event::Failed { request_id, method, failure: Failure::MethodMissing });
            return;
        }
        let head = InvokeMethod {
            service_id: Some(*service_id),
            method_id: Some(method_id),
            args_proto: None,
            drop_reply: Some(!wants_reply),
        };
        self.out
            .push_with(attachment, |out| append_call(out, request_id, &head, &args[..]))
            .expect("the size was checked when the call was taken");
        if wants_reply {
            self.pending.insert(request_id, method);
        }
    }

    /// Lends the memory that the socket reads into; see [`FrameBuffer::spare`].
    pub fn spare(&mut self) -> &mut [u8] {
        self.frames.spare()
    }

    /// Takes note of `size_bytes` at the beginning of what [`Self::spare`] lent.
    pub fn received(&mut self, size_bytes: usize) {
        self.frames.received(size_bytes);
    }

    /// The next event, `None` until more is received.
    ///
    /// # Errors
    /// [`FrameTooLong`]: the connection has to be closed. Events that came before were given.
    pub fn poll(&mut self) -> Result<Option<Event<M>>, FrameTooLong> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let Some(frame) = self.frames.pop_frame()? else { return Ok(None) };
            match self.take(frame) {
                Some(event) => self.events.push_front(event),
                None => self.frames_ignored += 1,
            }
        }
    }

    /// What a frame means, `None` if it is not for anything that was asked.
    fn take(&mut self, frame: IpcFrame) -> Option<Event<M>> {
        let request_id = frame.request_id();
        let is_bind = request_id == BIND_REQUEST_ID && matches!(self.state, State::Binding { .. });
        match frame.msg? {
            Msg::MsgBindServiceReply(reply) if is_bind => Some(self.bound(&reply)),
            Msg::MsgRequestError(_) if is_bind => Some(self.bind_failed()),
            Msg::MsgInvokeMethodReply(reply) => self.replied(request_id, reply),
            Msg::MsgRequestError(error) => {
                let method = self.pending.remove(&request_id)?;
                let failure = Failure::Error(error.error.unwrap_or_default());
                Some(Event::Failed { request_id, method, failure })
            }
            _ => None,
        }
    }

    fn bound(&mut self, reply: &BindServiceReply) -> Event<M> {
        if !reply.success() {
            return self.bind_failed();
        }
        let id_of = |method: &M| {
            let found = reply.methods.iter().find(|info| info.name() == method.name());
            found.map_or(0, |info| info.id())
        };
        let method_ids = M::ALL.iter().map(id_of).collect();
        let state = State::Bound { service_id: reply.service_id(), method_ids };
        if let State::Binding { queued } = std::mem::replace(&mut self.state, state) {
            queued.into_iter().for_each(|call| self.send(call));
        }
        Event::Bound
    }

    fn bind_failed(&mut self) -> Event<M> {
        self.state = State::Failed;
        Event::BindFailed
    }

    fn replied(&mut self, request_id: u64, reply: InvokeMethodReply) -> Option<Event<M>> {
        let method = *self.pending.get(&request_id)?;
        let (success, has_more) = (reply.success(), reply.has_more());
        if !(success && has_more) {
            self.pending.remove(&request_id);
        }
        Some(match success {
            true => {
                Event::Reply { request_id, method, has_more, reply: reply.reply_proto.unwrap_or_default() }
            }
            false => Event::Failed { request_id, method, failure: Failure::Rejected },
        })
    }

    /// What is to be sent.
    pub fn out(&self) -> &OutFrames<A> {
        &self.out
    }

    /// To take note of what was sent.
    pub fn out_mut(&mut self) -> &mut OutFrames<A> {
        &mut self.out
    }

    /// How many frames were passed over because they could not be read, or because they answer
    /// nothing that was asked.
    pub fn frames_ignored(&self) -> u64 {
        self.frames.frames_malformed() + self.frames_ignored
    }
}
