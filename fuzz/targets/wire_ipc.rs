//! Frames of a hostile peer at both ends of a connection to both ports: no panic, the pieces in
//! which they arrive make no difference, and each call is answered.
#![no_main]

use std::fmt::Debug;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use watershed_wire::framing::encode_frame;
use watershed_wire::ipc::{
    ClientConnection, ConsumerMethod, Event, HostConnection, Method, OutFrames, ProducerMethod,
};
use watershed_wire::protos::ipc_frame::bind_service_reply::MethodInfo;
use watershed_wire::protos::ipc_frame::{
    BindService, BindServiceReply, InvokeMethod, InvokeMethodReply, Msg, RequestError,
};
use watershed_wire::protos::{ActivateTriggersRequest, IpcFrame};

#[derive(Debug, Arbitrary)]
enum Piece {
    Bytes(Vec<u8>),
    Payload(Vec<u8>),
    Bind { request_id: u8, port: bool },
    BindReply { success: bool, service_id: u32, methods: Vec<(u8, u32)> },
    Call { request_id: u8, service_id: u8, method_id: u8, args: Vec<u8>, drop_reply: bool },
    Reply { request_id: u8, success: bool, has_more: bool, reply: Vec<u8> },
    Error { request_id: u8, text: String },
}

impl Piece {
    fn append_to(&self, out: &mut Vec<u8>) {
        let (request_id, msg) = match self {
            Piece::Bytes(bytes) => return out.extend_from_slice(bytes),
            Piece::Payload(payload) => {
                out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
                return out.extend_from_slice(payload);
            }
            Piece::Bind { request_id, port } => {
                let name = if *port { ProducerMethod::SERVICE_NAME } else { ConsumerMethod::SERVICE_NAME };
                (*request_id, Msg::MsgBindService(BindService { service_name: Some(name.to_owned()) }))
            }
            Piece::BindReply { success, service_id, methods } => {
                let name = |n: u8| match n % 2 {
                    0 => ProducerMethod::from_id(u32::from(n / 2) % 12 + 1).map(Method::name),
                    _ => ConsumerMethod::from_id(u32::from(n / 2) % 15 + 1).map(Method::name),
                };
                let info =
                    |&(n, id): &(u8, u32)| MethodInfo { id: Some(id), name: name(n).map(str::to_owned) };
                let reply = BindServiceReply {
                    success: Some(*success),
                    service_id: Some(*service_id),
                    methods: methods.iter().map(info).collect(),
                };
                (1, Msg::MsgBindServiceReply(reply))
            }
            Piece::Call { request_id, service_id, method_id, args, drop_reply } => {
                let call = InvokeMethod {
                    service_id: Some((*service_id % 3).into()),
                    method_id: Some((*method_id % 18).into()),
                    args_proto: Some(args.clone()),
                    drop_reply: Some(*drop_reply),
                };
                (*request_id, Msg::MsgInvokeMethod(call))
            }
            Piece::Reply { request_id, success, has_more, reply } => {
                let reply = InvokeMethodReply {
                    success: Some(*success),
                    has_more: Some(*has_more),
                    reply_proto: Some(reply.clone()),
                };
                (*request_id, Msg::MsgInvokeMethodReply(reply))
            }
            Piece::Error { request_id, text } => {
                (*request_id, Msg::MsgRequestError(RequestError { error: Some(text.clone()) }))
            }
        };
        let frame = IpcFrame { request_id: Some(request_id.into()), msg: Some(msg), ..Default::default() };
        // Longer ones do not come: an input is far smaller than a frame may be.
        let _ = encode_frame(&frame, out);
    }
}

fn take<'a>(spare: &mut [u8], bytes: &mut &'a [u8], size_bytes: usize) -> usize {
    assert!(!spare.is_empty());
    let (piece, rest) = bytes.split_at(size_bytes.min(bytes.len()).min(spare.len()));
    spare[..piece.len()].copy_from_slice(piece);
    *bytes = rest;
    piece.len()
}

fn drain(out: &mut OutFrames<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some((front, _)) = out.front() {
        let size_bytes = front.len();
        bytes.extend_from_slice(front);
        out.consume(size_bytes);
    }
    bytes
}

/// The calls, what the host answered, and whether it ended.
fn host<M: Method>(mut bytes: &[u8], size_bytes: usize) -> impl PartialEq + Debug + use<M> {
    let mut host = HostConnection::<M, ()>::new();
    let mut calls = Vec::new();
    while !bytes.is_empty() {
        let taken = take(host.spare(), &mut bytes, size_bytes);
        host.received(taken);
        loop {
            match host.poll() {
                Ok(Some(call)) => {
                    let before = host.out().size_bytes();
                    host.reply_bytes(call.reply_to, &call.args, true).expect("it came in a frame as large");
                    assert_eq!(call.reply_to.is_wanted(), host.out().size_bytes() > before);
                    host.reject(call.reply_to);
                    calls.push(call);
                }
                Ok(None) => break,
                Err(error) => return (calls, drain(host.out_mut()), Some(error)),
            }
        }
    }
    (calls, drain(host.out_mut()), None)
}

/// The events, and what the client sent.
fn client<M: Method>(mut bytes: &[u8], size_bytes: usize) -> impl PartialEq + Debug + use<M> {
    let mut client = ClientConnection::<M, ()>::bind();
    let no_arguments = ActivateTriggersRequest::default();
    for method in M::ALL {
        client.invoke(*method, &no_arguments, method.id() % 3 != 0).expect("few calls wait");
    }
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let taken = take(client.spare(), &mut bytes, size_bytes);
        client.received(taken);
        loop {
            match client.poll() {
                Ok(Some(event)) => {
                    // Not for ever: what is missing fails at once, which is an event too.
                    if matches!(event, Event::Failed { .. }) && events.len() < 100 {
                        let _ = client.invoke(M::ALL[0], &no_arguments, true);
                    }
                    events.push(event);
                }
                Ok(None) => break,
                Err(error) => return (events, drain(client.out_mut()), Some(error)),
            }
        }
    }
    (events, drain(client.out_mut()), None)
}

fuzz_target!(|input: (u8, Vec<Piece>)| {
    let (size_bytes, pieces) = input;
    let mut bytes = Vec::new();
    pieces.iter().for_each(|piece| piece.append_to(&mut bytes));
    let (size_bytes, whole) = (usize::from(size_bytes) + 1, bytes.len().max(1));
    assert_eq!(host::<ProducerMethod>(&bytes, size_bytes), host::<ProducerMethod>(&bytes, whole));
    assert_eq!(host::<ConsumerMethod>(&bytes, size_bytes), host::<ConsumerMethod>(&bytes, whole));
    assert_eq!(client::<ProducerMethod>(&bytes, size_bytes), client::<ProducerMethod>(&bytes, whole));
    assert_eq!(client::<ConsumerMethod>(&bytes, size_bytes), client::<ConsumerMethod>(&bytes, whole));
});
