//! The frames of calls and replies, written around a payload that is copied once.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use crate::Encode;
use crate::framing::{FRAME_SIZE_BYTES_MAX, FrameTooLong};
use crate::protos::ipc_frame::{InvokeMethod, InvokeMethodReply};
use crate::raw::delimited_len;

/// What a call may take of a frame beside its arguments, whatever its ids are: 11 for the request
/// id, 6 each for the ids of service and method, 2 for `drop_reply`, 4 each for key and size of the
/// arguments and of the call.
pub(super) const CALL_OVERHEAD_BYTES_MAX: usize = 11 + 6 + 6 + 2 + 4 + 4;

/// What a successful reply may take of a frame beside its payload: 11 for the request id, 2 each
/// for `success` and `has_more`, 4 each for key and size of the payload and of the reply.
pub(super) const REPLY_OVERHEAD_BYTES_MAX: usize = 11 + 2 + 2 + 4 + 4;

const REQUEST_ID: u32 = 2;
const MSG_INVOKE_METHOD: u32 = 5;
const MSG_INVOKE_METHOD_REPLY: u32 = 6;
/// Both `InvokeMethod.args_proto` and `InvokeMethodReply.reply_proto`.
const PAYLOAD: u32 = 3;

/// The bytes in the middle of a frame: a message, or bytes that are one.
pub(super) trait Payload {
    fn size_bytes(&self) -> usize;
    fn append_to(&self, out: &mut Vec<u8>);
}

impl Payload for [u8] {
    fn size_bytes(&self) -> usize {
        self.len()
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<M: Encode> Payload for M {
    fn size_bytes(&self) -> usize {
        self.encoded_len()
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        Encode::append_to(self, out);
    }
}

/// Appends the frame of a call.
pub(super) fn append_call(
    out: &mut Vec<u8>,
    request_id: u64,
    call: &InvokeMethod,
    args: &(impl Payload + ?Sized),
) -> Result<(), FrameTooLong> {
    append(out, request_id, MSG_INVOKE_METHOD, &call.encode_to_vec(), args)
}

/// Appends the frame of a successful reply: `success`, `has_more` and `reply_proto` are written
/// even if they are false or empty (spec, service 1.5).
pub(super) fn append_reply(
    out: &mut Vec<u8>,
    request_id: u64,
    has_more: bool,
    reply: &(impl Payload + ?Sized),
) -> Result<(), FrameTooLong> {
    let head = InvokeMethodReply { success: Some(true), has_more: Some(has_more), reply_proto: None };
    append(out, request_id, MSG_INVOKE_METHOD_REPLY, &head.encode_to_vec(), reply)
}

/// `head` is the message `kind` without its payload.
fn append(
    out: &mut Vec<u8>,
    request_id: u64,
    kind: u32,
    head: &[u8],
    payload: &(impl Payload + ?Sized),
) -> Result<(), FrameTooLong> {
    let payload_bytes = payload.size_bytes();
    let message_bytes = head.len() + delimited_len(PAYLOAD, payload_bytes);
    let size_bytes =
        key_len(REQUEST_ID) + encoded_len_varint(request_id) + delimited_len(kind, message_bytes);
    if size_bytes > FRAME_SIZE_BYTES_MAX {
        return Err(FrameTooLong { size_bytes });
    }
    out.reserve(4 + size_bytes);
    out.extend_from_slice(&(size_bytes as u32).to_le_bytes());
    encode_key(REQUEST_ID, WireType::Varint, out);
    encode_varint(request_id, out);
    encode_key(kind, WireType::LengthDelimited, out);
    encode_varint(message_bytes as u64, out);
    out.extend_from_slice(head);
    encode_key(PAYLOAD, WireType::LengthDelimited, out);
    encode_varint(payload_bytes as u64, out);
    payload.append_to(out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::encode_frame;
    use crate::protos::ipc_frame::Msg;
    use crate::protos::{FlushRequest, IpcFrame};

    fn frame(request_id: u64, msg: Msg) -> IpcFrame {
        IpcFrame { request_id: Some(request_id), msg: Some(msg), ..Default::default() }
    }

    #[test]
    fn frames_are_those_that_the_structs_encode_to() {
        let args = FlushRequest { timeout_ms: Some(77), flags: None };
        let call = InvokeMethod {
            service_id: Some(1),
            method_id: Some(5),
            args_proto: None,
            drop_reply: Some(true),
        };
        let mut out = Vec::new();
        append_call(&mut out, 9, &call, &args).unwrap();
        let whole = InvokeMethod { args_proto: Some(args.encode_to_vec()), ..call };
        // The order of fields is free, so that the decoded frames are compared.
        let mut expected = Vec::new();
        encode_frame(&frame(9, Msg::MsgInvokeMethod(whole.clone())), &mut expected).unwrap();
        assert_eq!(out.len(), expected.len());
        assert_eq!(
            <IpcFrame as prost::Message>::decode(&out[4..]),
            Ok(frame(9, Msg::MsgInvokeMethod(whole)))
        );

        for (has_more, reply) in [(false, &b""[..]), (true, b"abc")] {
            let mut out = Vec::new();
            append_reply(&mut out, u64::MAX, has_more, reply).unwrap();
            let mut expected = Vec::new();
            let whole = InvokeMethodReply {
                success: Some(true),
                has_more: Some(has_more),
                reply_proto: Some(reply.to_vec()),
            };
            encode_frame(&frame(u64::MAX, Msg::MsgInvokeMethodReply(whole)), &mut expected).unwrap();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn the_longest_call_fits_with_any_ids() {
        let call = InvokeMethod {
            service_id: Some(u32::MAX),
            method_id: Some(u32::MAX),
            args_proto: None,
            drop_reply: Some(true),
        };
        let args = vec![7; FRAME_SIZE_BYTES_MAX - CALL_OVERHEAD_BYTES_MAX];
        let mut out = Vec::new();
        append_call(&mut out, u64::MAX, &call, &args[..]).unwrap();
        assert_eq!(out.len(), 4 + FRAME_SIZE_BYTES_MAX);
        let args = vec![7; FRAME_SIZE_BYTES_MAX - CALL_OVERHEAD_BYTES_MAX + 1];
        let mut out = Vec::new();
        let size_bytes = FRAME_SIZE_BYTES_MAX + 1;
        assert_eq!(append_call(&mut out, u64::MAX, &call, &args[..]), Err(FrameTooLong { size_bytes }));
        assert!(out.is_empty());
    }

    #[test]
    fn the_longest_reply_fits_with_any_id() {
        let reply = vec![7; FRAME_SIZE_BYTES_MAX - REPLY_OVERHEAD_BYTES_MAX];
        let mut out = Vec::new();
        append_reply(&mut out, u64::MAX, true, &reply[..]).unwrap();
        assert_eq!(out.len(), 4 + FRAME_SIZE_BYTES_MAX);
    }
}
