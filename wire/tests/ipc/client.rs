//! The client's end.

use proptest::prelude::*;
use watershed_wire::framing::{FRAME_SIZE_BYTES_MAX, FrameTooLong};
use watershed_wire::ipc::{
    CALLS_QUEUED_MAX, ClientConnection, ConsumerMethod, Event, Failure, InvokeError, Method as _,
    REQUESTS_PENDING_MAX,
};
use watershed_wire::protos::ipc_frame::bind_service_reply::MethodInfo;
use watershed_wire::protos::ipc_frame::{BindServiceReply, InvokeMethodReply, Msg, RequestError};
use watershed_wire::protos::{ActivateTriggersRequest, FlushRequest, IpcFrame};

use crate::{End as _, bind, call, damaged, drain, encoded, frame, framed, sent};

type Client = ClientConnection<ConsumerMethod, u32>;

const ARGS: FlushRequest = FlushRequest { timeout_ms: Some(5), flags: None };
const ARGS_BYTES: &[u8] = &[1 << 3, 5];

/// Success with these methods, of service 9.
fn bind_reply(methods: &[(&str, u32)]) -> IpcFrame {
    let info = |&(name, id): &(&str, u32)| MethodInfo { id: Some(id), name: Some(name.to_owned()) };
    let reply = BindServiceReply {
        success: Some(true),
        service_id: Some(9),
        methods: methods.iter().map(info).collect(),
    };
    frame(1, Msg::MsgBindServiceReply(reply))
}

/// A client whose service has these two methods, both with ids of its own.
fn bound() -> Client {
    let mut client = Client::bind();
    client.take_all(&encoded(&[bind_reply(&[("Flush", 77), ("ReadBuffers", 78)])]));
    assert_eq!(client.poll(), Ok(Some(Event::Bound)));
    sent(client.out_mut());
    client
}

fn reply(request_id: u64, success: bool, has_more: bool, bytes: &[u8]) -> IpcFrame {
    let reply = InvokeMethodReply {
        success: success.then_some(true),
        has_more: has_more.then_some(true),
        reply_proto: Some(bytes.to_vec()),
    };
    frame(request_id, Msg::MsgInvokeMethodReply(reply))
}

fn error(request_id: u64, text: &str) -> IpcFrame {
    frame(request_id, Msg::MsgRequestError(RequestError { error: Some(text.to_owned()) }))
}

fn events(client: &mut Client, frames: &[IpcFrame]) -> Vec<Event<ConsumerMethod>> {
    client.take_all(&encoded(frames));
    std::iter::from_fn(|| client.poll().unwrap()).collect()
}

fn failed(request_id: u64, method: ConsumerMethod, failure: Failure) -> Event<ConsumerMethod> {
    Event::Failed { request_id, method, failure }
}

#[test]
fn calls_wait_for_the_port_and_keep_their_order() {
    let mut client = Client::bind();
    let a = client.invoke(ConsumerMethod::Flush, &ARGS, true).unwrap();
    let b = client.invoke_with(ConsumerMethod::EnableTracing, &ARGS, true, 42).unwrap();
    let c = client.invoke(ConsumerMethod::Flush, &ARGS, false).unwrap();
    let d = client.invoke(ConsumerMethod::Detach, &ARGS, true).unwrap();
    assert_eq!(sent(client.out_mut()), [frame(1, bind("ConsumerPort"))]);

    // Only two methods are there, one of them with an id that is none.
    let methods = [("Flush", 77), ("EnableTracing", 300), ("Detach", 0), ("Unheard", 5)];
    let events = events(&mut client, &[bind_reply(&methods)]);
    assert_eq!(events, [Event::Bound, failed(d, ConsumerMethod::Detach, Failure::MethodMissing)]);
    let (bytes, attachments) = drain(client.out_mut());
    let with_flag = |id, method, drop_reply| {
        let mut frame = frame(id, call(9, method, ARGS_BYTES, drop_reply));
        if let Some(Msg::MsgInvokeMethod(call)) = &mut frame.msg {
            call.drop_reply = Some(drop_reply);
        }
        frame
    };
    let expected = [with_flag(a, 77, false), with_flag(b, 300, false), with_flag(c, 77, true)];
    let mut out = watershed_wire::ipc::OutFrames::<()>::default();
    out.push(&bytes, None);
    assert_eq!(sent(&mut out), expected);
    assert_eq!(attachments, [42]);
}

#[test]
fn a_missing_method_fails_just_that_call() {
    let mut client = bound();
    for wants_reply in [true, false] {
        let missing = client.invoke(ConsumerMethod::CloneSession, &ARGS, wants_reply).unwrap();
        let there = client.invoke(ConsumerMethod::Flush, &ARGS, true).unwrap();
        assert!(there > missing);
        let expected = failed(missing, ConsumerMethod::CloneSession, Failure::MethodMissing);
        assert_eq!(client.poll(), Ok(Some(expected)));
        assert_eq!(client.poll(), Ok(None));
        assert_eq!(sent(client.out_mut()).len(), 1);
    }
}

#[test]
fn a_port_that_is_not_there_fails_everything() {
    for answer in [frame(1, Msg::MsgBindServiceReply(Default::default())), error(1, "what?")] {
        let mut client = Client::bind();
        client.invoke(ConsumerMethod::Flush, &ARGS, true).unwrap();
        sent(client.out_mut());
        assert_eq!(events(&mut client, std::slice::from_ref(&answer)), [Event::BindFailed]);
        assert!(client.out().is_empty());
        assert_eq!(client.invoke(ConsumerMethod::Flush, &ARGS, true), Err(InvokeError::NotBound));
        assert_eq!(events(&mut client, &[answer, reply(2, true, false, b"")]), []);
        assert_eq!(client.frames_ignored(), 2);
    }
}

#[test]
fn streams_go_on_until_there_is_no_more() {
    let mut client = bound();
    let id = client.invoke(ConsumerMethod::ReadBuffers, &FlushRequest::default(), true).unwrap();
    let method = ConsumerMethod::ReadBuffers;
    let element =
        |has_more, bytes: &[u8]| Event::Reply { request_id: id, method, has_more, reply: bytes.to_vec() };
    let frames = [reply(id, true, true, b"a"), reply(id, true, true, b""), reply(id, true, false, b"c")];
    let expected = [element(true, b"a"), element(true, b""), element(false, b"c")];
    assert_eq!(events(&mut client, &frames), expected);
    assert_eq!(events(&mut client, &frames), [], "it is forgotten");
    assert_eq!(client.frames_ignored(), 3);
}

#[test]
fn rejects_and_errors_end_a_request() {
    let mut client = bound();
    let mut invoke = || client.invoke(ConsumerMethod::Flush, &ARGS, true).unwrap();
    let (a, b, c) = (invoke(), invoke(), invoke());
    // A reject that says that more comes is the end all the same.
    let frames = [
        reply(b, false, true, b""),
        reply(b, true, false, b""),
        error(c, "unknown request"),
        error(c, "again"),
        reply(a, true, false, b""),
    ];
    let flush = ConsumerMethod::Flush;
    let expected = [
        failed(b, flush, Failure::Rejected),
        failed(c, flush, Failure::Error("unknown request".to_owned())),
        Event::Reply { request_id: a, method: flush, has_more: false, reply: Vec::new() },
    ];
    assert_eq!(events(&mut client, &frames), expected);
    assert_eq!(client.frames_ignored(), 2);
}

#[test]
fn what_was_not_asked_for_is_counted() {
    let mut client = bound();
    let unwanted = client.invoke(ConsumerMethod::Flush, &ARGS, false).unwrap();
    let frames = [
        reply(unwanted, false, false, b""),
        reply(0, true, true, b""),
        bind_reply(&[]),
        error(1, "late"),
        error(99, ""),
        frame(2, bind("ConsumerPort")),
        frame(2, call(1, 1, b"", false)),
        IpcFrame::default(),
        IpcFrame { request_id: Some(unwanted), ..Default::default() },
    ];
    assert_eq!(events(&mut client, &frames), []);
    // The default frame has no bytes, so that it is passed over as an empty one.
    assert_eq!(client.frames_ignored(), 8);
    client.take_all(&framed(&[vec![0xff, 0xff]]));
    assert_eq!(client.poll(), Ok(None));
    assert_eq!(client.frames_ignored(), 9);
    assert!(client.invoke(ConsumerMethod::Flush, &ARGS, true).is_ok(), "it is still bound");
}

#[test]
fn calls_are_limited() {
    let mut client = Client::bind();
    let mut invoke = |wants_reply| client.invoke(ConsumerMethod::Flush, &ARGS, wants_reply);
    assert!((0..CALLS_QUEUED_MAX).all(|n| invoke(n % 2 == 0).is_ok()));
    assert_eq!(invoke(true), Err(InvokeError::TooMany));
    assert_eq!(invoke(false), Err(InvokeError::TooMany));

    let mut client = bound();
    let mut invoke = |wants_reply| client.invoke(ConsumerMethod::Flush, &ARGS, wants_reply);
    assert!((0..REQUESTS_PENDING_MAX).all(|_| invoke(true).is_ok()));
    assert_eq!(invoke(true), Err(InvokeError::TooMany));
    let last = invoke(false).unwrap();
    assert_eq!(last, 1 + REQUESTS_PENDING_MAX as u64 + 1, "a refused call has no id");
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    // Key and size of the one name take 4 bytes, the call around it at most 33.
    let largest = FRAME_SIZE_BYTES_MAX - 37;
    let args = |size| ActivateTriggersRequest { trigger_names: vec!["x".repeat(size)] };
    for mut client in [Client::bind(), bound()] {
        sent(client.out_mut());
        let refused = client.invoke(ConsumerMethod::Flush, &args(largest + 1), true);
        let size_bytes = FRAME_SIZE_BYTES_MAX + 1;
        assert_eq!(refused, Err(InvokeError::TooLong(FrameTooLong { size_bytes })));
        assert!(client.out().is_empty());
        client.invoke(ConsumerMethod::Flush, &args(largest), true).unwrap();
    }
}

#[test]
fn a_frame_that_is_too_long_ends_it_after_what_came_before() {
    let mut client = Client::bind();
    let mut bytes = encoded(&[bind_reply(&[])]);
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    client.take_all(&bytes);
    assert_eq!(client.poll(), Ok(Some(Event::Bound)));
    assert_eq!(client.poll(), Err(FrameTooLong { size_bytes: u32::MAX as usize }));
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..9),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        is_bound in any::<bool>(),
    ) {
        let methods: Vec<_> = ConsumerMethod::ALL.iter().map(|method| (method.name(), method.id())).collect();
        let frames = [bind_reply(&methods), reply(2, true, true, b"abc"), error(2, "text")];
        let damaged: Vec<_> = frames.iter().map(|frame| damaged(frame, &changes)).collect();
        for bytes in [bytes, framed(&payloads), framed(&damaged)] {
            let mut client = if is_bound { bound() } else { Client::bind() };
            client.invoke(ConsumerMethod::Flush, &ARGS, true).unwrap();
            client.take_all(&bytes);
            while let Ok(Some(_)) = client.poll() {}
            // Whatever the peer says, calls go out or are refused.
            let _ = client.invoke(ConsumerMethod::ReadBuffers, &ARGS, true);
            let _ = client.poll();
        }
    }
}
