//! The server's end of one connection.

use std::marker::PhantomData;

use super::envelope::{Payload, append_reply};
use super::methods::Method;
use super::out::OutFrames;
use crate::Encode;
use crate::framing::{FrameBuffer, FrameTooLong, encode_frame};
use crate::protos::IpcFrame;
use crate::protos::ipc_frame::bind_service_reply::MethodInfo;
use crate::protos::ipc_frame::{
    BindService, BindServiceReply, InvokeMethod, InvokeMethodReply, Msg, RequestError,
};

/// The id that the one service of a connection has.
pub const SERVICE_ID: u32 = 1;

/// Where a reply goes. Any number of replies may be given, as long as all but the last say that
/// more comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTo {
    request_id: u64,
    drop_reply: bool,
}

impl ReplyTo {
    /// Whether the client wants a reply. If not, nothing that is given is sent.
    pub fn is_wanted(self) -> bool {
        !self.drop_reply
    }
}

/// A call of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation<M> {
    /// For the replies.
    pub reply_to: ReplyTo,
    /// What is called.
    pub method: M,
    /// The encoded request. To be rejected if it does not decode.
    pub args: Vec<u8>,
}

/// The server's end of one connection to the port with the methods `M`; `A` is what may be attached
/// to a reply.
///
/// The shell alternates: read from the socket into [`Self::spare`], [`Self::received`], then
/// [`Self::poll`] until it gives nothing, then send [`Self::out`]. It stops reading while more
/// waits to be sent than it allows. What `poll` itself answers to one filling of the receive buffer
/// is below 4 MiB, however small the frames are.
#[derive(Debug)]
pub struct HostConnection<M, A> {
    frames: FrameBuffer,
    out: OutFrames<A>,
    port: PhantomData<M>,
}

impl<M: Method, A> Default for HostConnection<M, A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Method, A> HostConnection<M, A> {
    /// A connection on which nothing was received.
    pub fn new() -> Self {
        HostConnection { frames: FrameBuffer::default(), out: OutFrames::default(), port: PhantomData }
    }

    /// Lends the memory that the socket reads into; see [`FrameBuffer::spare`].
    pub fn spare(&mut self) -> &mut [u8] {
        self.frames.spare()
    }

    /// Takes note of `size_bytes` at the beginning of what [`Self::spare`] lent.
    pub fn received(&mut self, size_bytes: usize) {
        self.frames.received(size_bytes);
    }

    /// Takes what was received elsewhere; see [`FrameBuffer::append`].
    pub fn append(&mut self, bytes: &[u8]) {
        self.frames.append(bytes);
    }

    /// The next call, `None` until more is received.
    ///
    /// Answered here: bind requests; calls of an unknown service or method, which are rejected even
    /// if no reply is wanted; frames that are no request. The identity that a peer gives of itself
    /// is ignored, as the kernel knows better.
    ///
    /// # Errors
    /// [`FrameTooLong`]: the connection has to be closed. Calls that came before were given.
    pub fn poll(&mut self) -> Result<Option<Invocation<M>>, FrameTooLong> {
        while let Some(frame) = self.frames.pop_frame()? {
            let request_id = frame.request_id();
            match frame.msg {
                Some(Msg::MsgInvokeMethod(call)) => match Self::invocation(request_id, call) {
                    Some(invocation) => return Ok(Some(invocation)),
                    None => self.push_reject(request_id),
                },
                Some(Msg::MsgBindService(bind)) => {
                    self.push(request_id, Msg::MsgBindServiceReply(Self::bind_reply(&bind)));
                }
                Some(Msg::SetPeerIdentity(_)) => {}
                _ => {
                    let error = RequestError { error: Some("unknown request".to_owned()) };
                    self.push(request_id, Msg::MsgRequestError(error));
                }
            }
        }
        Ok(None)
    }

    fn invocation(request_id: u64, call: InvokeMethod) -> Option<Invocation<M>> {
        let method = M::from_id(call.method_id()).filter(|_| call.service_id() == SERVICE_ID)?;
        let reply_to = ReplyTo { request_id, drop_reply: call.drop_reply() };
        Some(Invocation { reply_to, method, args: call.args_proto.unwrap_or_default() })
    }

    fn bind_reply(bind: &BindService) -> BindServiceReply {
        if bind.service_name() != M::SERVICE_NAME {
            return BindServiceReply::default();
        }
        let info = |method: &M| MethodInfo { id: Some(method.id()), name: Some(method.name().to_owned()) };
        BindServiceReply {
            success: Some(true),
            service_id: Some(SERVICE_ID),
            methods: M::ALL.iter().map(info).collect(),
        }
    }

    /// Gives a reply. With `has_more` further ones follow.
    ///
    /// # Errors
    /// [`FrameTooLong`] if it does not fit a frame; nothing is sent then.
    pub fn reply(
        &mut self,
        reply_to: ReplyTo,
        reply: &impl Encode,
        has_more: bool,
    ) -> Result<(), FrameTooLong> {
        self.push_reply(reply_to, reply, has_more, None)
    }

    /// As [`Self::reply`], with something attached. If no reply is wanted the attachment is
    /// dropped.
    ///
    /// # Errors
    /// As [`Self::reply`].
    pub fn reply_with(
        &mut self,
        reply_to: ReplyTo,
        reply: &impl Encode,
        has_more: bool,
        attachment: A,
    ) -> Result<(), FrameTooLong> {
        self.push_reply(reply_to, reply, has_more, Some(attachment))
    }

    /// As [`Self::reply`], for a message that is encoded already.
    ///
    /// # Errors
    /// As [`Self::reply`].
    pub fn reply_bytes(
        &mut self,
        reply_to: ReplyTo,
        reply: &[u8],
        has_more: bool,
    ) -> Result<(), FrameTooLong> {
        self.push_reply(reply_to, reply, has_more, None)
    }

    /// The call has failed, or a stream ends that way.
    pub fn reject(&mut self, reply_to: ReplyTo) {
        if reply_to.is_wanted() {
            self.push_reject(reply_to.request_id);
        }
    }

    /// What is to be sent.
    pub fn out(&self) -> &OutFrames<A> {
        &self.out
    }

    /// To take note of what was sent.
    pub fn out_mut(&mut self) -> &mut OutFrames<A> {
        &mut self.out
    }

    /// How many frames were passed over because they could not be read.
    pub fn frames_malformed(&self) -> u64 {
        self.frames.frames_malformed()
    }

    fn push_reply(
        &mut self,
        reply_to: ReplyTo,
        reply: &(impl Payload + ?Sized),
        has_more: bool,
        attachment: Option<A>,
    ) -> Result<(), FrameTooLong> {
        if !reply_to.is_wanted() {
            return Ok(());
        }
        self.out.push_with(attachment, |out| append_reply(out, reply_to.request_id, has_more, reply))
    }

    fn push_reject(&mut self, request_id: u64) {
        let reply = InvokeMethodReply { success: Some(false), has_more: Some(false), reply_proto: None };
        self.push(request_id, Msg::MsgInvokeMethodReply(reply));
    }

    fn push(&mut self, request_id: u64, msg: Msg) {
        let frame = IpcFrame { request_id: Some(request_id), msg: Some(msg), ..Default::default() };
        self.out
            .push_with(None, |out| encode_frame(&frame, out))
            .expect("answers of this file are below 1 KiB");
    }
}
