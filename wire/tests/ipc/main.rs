//! Both ends of a connection, against frames that are made by hand and against each other.

mod client;
mod host;
mod messages;
mod read_buffers;
mod service_state;
mod talk;

use prost::Message as _;
use watershed_wire::framing::{FrameBuffer, encode_frame};
use watershed_wire::ipc::{ClientConnection, HostConnection, Method, OutFrames};
use watershed_wire::protos::IpcFrame;
use watershed_wire::protos::ipc_frame::{BindService, InvokeMethod, Msg};

/// What both ends have in common: they take bytes.
trait End {
    fn spare(&mut self) -> &mut [u8];
    fn received(&mut self, size_bytes: usize);

    /// Takes as much of `bytes` as there is room for, gives the rest.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let spare = self.spare();
        let (taken, rest) = bytes.split_at(bytes.len().min(spare.len()));
        spare[..taken.len()].copy_from_slice(taken);
        self.received(taken.len());
        rest
    }

    fn take_all(&mut self, bytes: &[u8]) {
        assert!(self.take(bytes).is_empty(), "the test sends more than fits the receive buffer");
    }
}

impl<M: Method, A> End for HostConnection<M, A> {
    fn spare(&mut self) -> &mut [u8] {
        self.spare()
    }

    fn received(&mut self, size_bytes: usize) {
        self.received(size_bytes);
    }
}

impl<M: Method, A> End for ClientConnection<M, A> {
    fn spare(&mut self) -> &mut [u8] {
        self.spare()
    }

    fn received(&mut self, size_bytes: usize) {
        self.received(size_bytes);
    }
}

impl End for FrameBuffer {
    fn spare(&mut self) -> &mut [u8] {
        self.spare()
    }

    fn received(&mut self, size_bytes: usize) {
        self.received(size_bytes);
    }
}

/// Takes everything that is to be sent, with the attachments in their order.
fn drain<A: Clone>(out: &mut OutFrames<A>) -> (Vec<u8>, Vec<A>) {
    let (mut bytes, mut attachments) = (Vec::new(), Vec::new());
    while let Some((front, attachment)) = out.front() {
        let size_bytes = front.len();
        bytes.extend_from_slice(front);
        attachments.extend(attachment.cloned());
        out.consume(size_bytes);
    }
    (bytes, attachments)
}

/// The frames in what is to be sent.
fn sent<A: Clone>(out: &mut OutFrames<A>) -> Vec<IpcFrame> {
    let (bytes, _) = drain(out);
    let mut buffer = FrameBuffer::default();
    let mut frames = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        rest = buffer.take(rest);
        while let Some(frame) = buffer.pop_frame().unwrap() {
            frames.push(frame);
        }
    }
    frames
}

fn frame(request_id: u64, msg: Msg) -> IpcFrame {
    IpcFrame { request_id: Some(request_id), msg: Some(msg), ..Default::default() }
}

fn bind(service_name: &str) -> Msg {
    Msg::MsgBindService(BindService { service_name: Some(service_name.to_owned()) })
}

fn call(service_id: u32, method_id: u32, args: &[u8], drop_reply: bool) -> Msg {
    Msg::MsgInvokeMethod(InvokeMethod {
        service_id: Some(service_id),
        method_id: Some(method_id),
        args_proto: Some(args.to_vec()),
        drop_reply: drop_reply.then_some(true),
    })
}

fn encoded(frames: &[IpcFrame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        encode_frame(frame, &mut bytes).unwrap();
    }
    bytes
}

/// Bytes that are frames of random payloads: what is below the prefix gets read.
fn framed(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for payload in payloads {
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(payload);
    }
    bytes
}

/// A valid frame in which some bytes are others.
fn damaged(frame: &IpcFrame, changes: &[(usize, u8)]) -> Vec<u8> {
    let mut payload = frame.encode_to_vec();
    for (at, byte) in changes {
        let at = at % payload.len();
        payload[at] = *byte;
    }
    payload
}
