//! The server's end.

use proptest::prelude::*;
use watershed_wire::framing::{FRAME_SIZE_BYTES_MAX, FrameTooLong};
use watershed_wire::ipc::{ConsumerMethod, HostConnection, Invocation, Method, ProducerMethod};
use watershed_wire::protos::ipc_frame::{
    BindServiceReply, InvokeMethodReply, Msg, RequestError, SetPeerIdentity,
};
use watershed_wire::protos::{FlushResponse, IpcFrame};

use crate::{End as _, bind, call, damaged, drain, encoded, frame, framed, sent};

type Host<M> = HostConnection<M, u32>;

fn host<M: Method>(frames: &[IpcFrame]) -> Host<M> {
    let mut host = Host::new();
    host.take_all(&encoded(frames));
    host
}

fn invocations<M: Method>(host: &mut Host<M>) -> Vec<Invocation<M>> {
    std::iter::from_fn(|| host.poll().unwrap()).collect()
}

fn rejected() -> Msg {
    Msg::MsgInvokeMethodReply(InvokeMethodReply {
        success: Some(false),
        has_more: Some(false),
        reply_proto: None,
    })
}

fn replied(has_more: bool, reply: &[u8]) -> Msg {
    Msg::MsgInvokeMethodReply(InvokeMethodReply {
        success: Some(true),
        has_more: Some(has_more),
        reply_proto: Some(reply.to_vec()),
    })
}

fn bind_is_answered_with_all_methods<M: Method>() {
    let mut host = host::<M>(&[frame(7, bind(M::SERVICE_NAME))]);
    assert_eq!(host.poll(), Ok(None));
    let [answer] = &sent(host.out_mut())[..] else { panic!("one answer") };
    assert_eq!(answer.request_id(), 7);
    let Some(Msg::MsgBindServiceReply(reply)) = &answer.msg else { panic!("{answer:?}") };
    assert!(reply.success());
    assert_eq!(reply.service_id(), 1);
    let methods: Vec<_> = reply.methods.iter().map(|info| (info.id(), info.name())).collect();
    let expected: Vec<_> = M::ALL.iter().map(|method| (method.id(), method.name())).collect();
    assert_eq!(methods, expected);
}

#[test]
fn both_ports_are_bound() {
    bind_is_answered_with_all_methods::<ProducerMethod>();
    bind_is_answered_with_all_methods::<ConsumerMethod>();
}

#[test]
fn other_services_are_not_there_and_the_connection_goes_on() {
    let no_name = Msg::MsgBindService(Default::default());
    let frames = [
        frame(1, bind("ProducerPort")),
        frame(2, bind("consumer_port")),
        frame(3, no_name),
        frame(4, call(1, 13, b"", false)),
    ];
    let mut host = host::<ConsumerMethod>(&frames);
    assert_eq!(invocations(&mut host).len(), 1);
    let none = || Msg::MsgBindServiceReply(BindServiceReply::default());
    assert_eq!(sent(host.out_mut()), [frame(1, none()), frame(2, none()), frame(3, none())]);
}

#[test]
fn unknown_ids_are_rejected_even_if_no_reply_is_wanted() {
    let unknown = [(1, 0), (1, 13), (1, u32::MAX), (0, 1), (2, 1)];
    let frames: Vec<_> = (1..)
        .zip(unknown)
        .map(|(id, (service, method))| frame(id, call(service, method, b"x", id % 2 == 0)))
        .collect();
    let mut host = host::<ProducerMethod>(&frames);
    assert_eq!(host.poll(), Ok(None));
    let expected: Vec<_> = (1..=5).map(|id| frame(id, rejected())).collect();
    assert_eq!(sent(host.out_mut()), expected);
}

#[test]
fn frames_that_are_no_request_are_answered_with_an_error() {
    let frames = [
        IpcFrame { request_id: Some(5), ..Default::default() },
        frame(6, replied(false, b"")),
        frame(7, Msg::SetPeerIdentity(SetPeerIdentity::default())),
        frame(8, Msg::MsgRequestError(RequestError::default())),
    ];
    let mut host = host::<ProducerMethod>(&frames);
    assert_eq!(host.poll(), Ok(None));
    let error = || Msg::MsgRequestError(RequestError { error: Some("unknown request".to_owned()) });
    assert_eq!(sent(host.out_mut()), [frame(5, error()), frame(6, error()), frame(8, error())]);
}

#[test]
fn replies_are_written_in_full() {
    let frames = [frame(3, call(1, 5, b"args", false)), frame(3, call(1, 4, b"", true))];
    let mut host = host::<ProducerMethod>(&frames);
    let calls = invocations(&mut host);
    assert_eq!(calls[0].method, ProducerMethod::GetAsyncCommand);
    assert_eq!(calls[0].args, b"args");
    assert_eq!(calls[1].method, ProducerMethod::CommitData);
    let (stream, unwanted) = (calls[0].reply_to, calls[1].reply_to);
    assert!(stream.is_wanted() && !unwanted.is_wanted());

    host.reply_bytes(stream, b"one", true).unwrap();
    host.reply_with(stream, &FlushResponse {}, true, 42).unwrap();
    host.reply(stream, &FlushResponse {}, false).unwrap();
    host.reject(stream);
    host.reply_with(unwanted, &FlushResponse {}, false, 43).unwrap();
    host.reply_bytes(unwanted, b"two", true).unwrap();
    host.reject(unwanted);
    let frames =
        [replied(true, b"one"), replied(true, b""), replied(false, b""), rejected()].map(|msg| frame(3, msg));
    let (bytes, attachments) = drain(host.out_mut());
    assert_eq!(bytes, encoded(&frames));
    assert_eq!(attachments, [42]);
}

#[test]
fn a_request_id_may_come_again() {
    let frames = [frame(3, call(1, 1, b"a", false)), frame(3, call(1, 2, b"b", false))];
    let mut host = host::<ConsumerMethod>(&frames);
    for call in invocations(&mut host) {
        host.reply_bytes(call.reply_to, &call.args, false).unwrap();
    }
    assert_eq!(sent(host.out_mut()), [frame(3, replied(false, b"a")), frame(3, replied(false, b"b"))]);
}

#[test]
fn a_reply_that_does_not_fit_is_refused() {
    let mut host = host::<ConsumerMethod>(&[frame(3, call(1, 1, b"", false))]);
    let reply_to = host.poll().unwrap().unwrap().reply_to;
    // 2 for the request id, 4 each for key and size of reply and message, 4 for the flags.
    let largest = FRAME_SIZE_BYTES_MAX - 14;
    let size_bytes = FRAME_SIZE_BYTES_MAX + 1;
    let reply = vec![1; largest + 1];
    assert_eq!(host.reply_bytes(reply_to, &reply, true), Err(FrameTooLong { size_bytes }));
    assert!(host.out().is_empty());
    host.reply_bytes(reply_to, &reply[1..], true).unwrap();
    assert_eq!(host.out().size_bytes(), 4 + FRAME_SIZE_BYTES_MAX);
}

#[test]
fn a_frame_that_is_too_long_ends_it_after_what_came_before() {
    let mut bytes = encoded(&[frame(1, call(1, 1, b"", false))]);
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    let mut host = Host::<ConsumerMethod>::new();
    host.take_all(&bytes);
    assert!(matches!(host.poll(), Ok(Some(_))));
    let error = Err(FrameTooLong { size_bytes: u32::MAX as usize });
    assert_eq!(host.poll(), error);
    assert_eq!(host.poll(), error);
}

/// The most that one receive buffer makes the host answer, of frames that cost least a reply.
#[test]
fn answers_to_one_receive_buffer_are_bounded() {
    let bytes = encoded(&[frame(1, bind("ConsumerPort"))]).repeat(131_072 / 20);
    let mut host = Host::<ConsumerMethod>::new();
    let _ = host.take(&bytes);
    assert_eq!(host.poll(), Ok(None));
    let size_bytes = host.out().size_bytes();
    assert!((1 << 20..4 << 20).contains(&size_bytes), "{size_bytes}");
}

fn any_request() -> impl Strategy<Value = IpcFrame> {
    let args = proptest::collection::vec(any::<u8>(), 0..600);
    let msg = prop_oneof![
        4 => (0_u32..3, 0_u32..20, args, any::<bool>())
            .prop_map(|(service, method, args, drop_reply)| call(service, method, &args, drop_reply)),
        1 => prop_oneof!["ProducerPort", "ConsumerPort", ".{0,9}"].prop_map(|name| bind(&name)),
        1 => Just(replied(true, b"x")),
        1 => Just(Msg::SetPeerIdentity(SetPeerIdentity::default())),
    ];
    (0_u64..5, msg).prop_map(|(id, msg)| frame(id, msg))
}

/// What comes of `bytes` in pieces: the calls, the answers, and whether it ended.
fn receive(
    bytes: &[u8],
    pieces: &[usize],
) -> (Vec<Invocation<ProducerMethod>>, Vec<u8>, Option<FrameTooLong>) {
    let mut host = Host::<ProducerMethod>::new();
    let mut calls = Vec::new();
    let mut pieces = pieces.iter().cycle();
    let mut rest = bytes;
    let mut end = None;
    while !rest.is_empty() && end.is_none() {
        let (piece, after) = rest.split_at((*pieces.next().unwrap()).min(rest.len()));
        host.take_all(piece);
        rest = after;
        loop {
            match host.poll() {
                Ok(Some(call)) => calls.push(call),
                Ok(None) => break,
                Err(error) => {
                    end = Some(error);
                    break;
                }
            }
        }
    }
    (calls, drain(host.out_mut()).0, end)
}

proptest! {
    #[test]
    fn pieces_make_no_difference(
        frames in proptest::collection::vec(any_request(), 0..20),
        pieces in proptest::collection::vec(1_usize..700, 1..8),
    ) {
        let bytes = encoded(&frames);
        let whole = receive(&bytes, &[bytes.len().max(1)]);
        let expected = frames.iter().filter(|frame| match &frame.msg {
            Some(Msg::MsgInvokeMethod(call)) => call.service_id() == 1 && (1..=12).contains(&call.method_id()),
            _ => false,
        });
        prop_assert_eq!(whole.0.len(), expected.count());
        prop_assert_eq!(receive(&bytes, &pieces), whole);
    }

    #[test]
    fn hostile_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..9),
        request in any_request(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        pieces in proptest::collection::vec(1_usize..50, 1..4),
    ) {
        for bytes in [bytes, framed(&payloads), framed(&[damaged(&request, &changes)])] {
            let whole = receive(&bytes, &[bytes.len().max(1)]);
            prop_assert_eq!(receive(&bytes, &pieces), whole);
        }
    }
}
