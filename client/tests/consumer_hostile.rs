//! The consumer side against peers that are no honest service, and sockets of strangers.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use watershed_client::consumer::{ConnectError, Consumer, ConsumerError, ConsumerOptions, Trust, Wait};
use watershed_shell::address::Address;
use watershed_wire::framing::{FrameBuffer, RECEIVE_SIZE_BYTES_MAX, encode_frame};
use watershed_wire::ipc::{ConsumerMethod, Method as _};
use watershed_wire::protos::IpcFrame;
use watershed_wire::protos::ipc_frame::bind_service_reply::MethodInfo;
use watershed_wire::protos::ipc_frame::{BindServiceReply, InvokeMethodReply, Msg};

const LONG: Duration = Duration::from_secs(60);

fn frame(request_id: u64, msg: Msg) -> Vec<u8> {
    let mut bytes = Vec::new();
    let frame = IpcFrame { request_id: Some(request_id), msg: Some(msg), ..Default::default() };
    encode_frame(&frame, &mut bytes).unwrap();
    bytes
}

fn bound() -> Vec<u8> {
    let method =
        |method: &ConsumerMethod| MethodInfo { id: Some(method.id()), name: Some(method.name().to_owned()) };
    let reply = BindServiceReply {
        success: Some(true),
        service_id: Some(1),
        methods: ConsumerMethod::ALL.iter().map(method).collect(),
    };
    frame(1, Msg::MsgBindServiceReply(reply))
}

fn reply(request_id: u64, has_more: bool, bytes: &[u8]) -> Vec<u8> {
    let reply = InvokeMethodReply {
        success: Some(true),
        has_more: Some(has_more),
        reply_proto: Some(bytes.to_vec()),
    };
    frame(request_id, Msg::MsgInvokeMethodReply(reply))
}

/// Connects to a peer that answers the bind request and then does as `peer` says. The first call
/// has request id 2.
fn connect(timeout: Duration, peer: impl FnOnce(UnixStream) + Send + 'static) -> Consumer {
    let folder = tempfile::tempdir().unwrap();
    let address = Address::Path(folder.path().join("peer"));
    let listener = address.listen().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&bound()).unwrap();
        peer(stream);
    });
    let options = ConsumerOptions { reply_timeout: timeout, ..ConsumerOptions::default() };
    Consumer::connect(&address, &options).unwrap()
}

/// What a call comes to that is answered with `bytes`, which the peer closes the connection after.
fn answered<T>(
    bytes: Vec<u8>,
    call: impl FnOnce(&mut Consumer) -> Result<T, ConsumerError>,
) -> Result<T, ConsumerError> {
    let mut consumer = connect(LONG, move |mut stream| {
        // The bind request and the call, or the answer is to nothing.
        let mut frames = FrameBuffer::default();
        let mut num_frames = 0;
        while num_frames < 2 {
            let count = stream.read(frames.spare()).unwrap();
            frames.received(count);
            while frames.pop_frame().unwrap().is_some() {
                num_frames += 1;
            }
        }
        let _ = stream.write_all(&bytes);
    });
    call(&mut consumer)
}

#[test]
fn broken_replies_are_errors() {
    let garbage = [0xff; 300];
    let state = answered(reply(2, false, &garbage), |consumer| consumer.query_state(false));
    assert!(matches!(state, Err(ConsumerError::Protocol(_))), "{state:?}");
    let stats = answered(reply(2, false, &garbage), |consumer| consumer.stats());
    assert!(matches!(stats, Err(ConsumerError::Protocol(_))), "{stats:?}");
    let packets = answered(reply(2, false, &garbage), |consumer| consumer.read_packets(|_| Ok(())));
    assert!(matches!(packets, Err(ConsumerError::Protocol(_))), "{packets:?}");
    let endless = answered(reply(2, true, &[]), |consumer| consumer.disable());
    assert!(matches!(endless, Err(ConsumerError::Protocol(_))), "{endless:?}");
    // Slice without an end, and no more: field 2 with a data field of one byte.
    let half = answered(reply(2, false, &[0x12, 3, 0x0a, 1, 0]), |consumer| {
        consumer.read_packets(|_| panic!("no packet is whole"))
    });
    assert!(matches!(half, Err(ConsumerError::Protocol(_))), "{half:?}");
}

#[test]
fn a_frame_that_announces_too_much_ends_the_connection() {
    let too_long = (RECEIVE_SIZE_BYTES_MAX as u32).to_le_bytes().to_vec();
    let result = answered(too_long, |consumer| consumer.free());
    assert!(matches!(result, Err(ConsumerError::Protocol(_))), "{result:?}");
}

#[test]
fn garbage_and_answers_to_nothing_are_passed_over() {
    let mut bytes = 300_u32.to_le_bytes().to_vec();
    bytes.extend([0xff; 300]);
    bytes.extend(reply(77, false, &[1, 2, 3]));
    bytes.extend(reply(2, false, &[]));
    answered(bytes, |consumer| consumer.disable()).unwrap();
}

#[test]
fn a_state_without_an_end_is_refused() {
    let mut consumer = connect(LONG, |mut stream| {
        // The version, 64 KiB long, again and again.
        let mut state = vec![0x2a, 0x80, 0x80, 0x04];
        state.resize(state.len() + (64 << 10), b'v');
        let mut response = vec![0x0a, 0x84, 0x80, 0x04];
        response.extend(state);
        let _ = stream.read(&mut [0; 4096]);
        let part = reply(2, true, &response);
        while stream.write_all(&part).is_ok() {}
    });
    let result = consumer.query_state(false);
    assert!(matches!(result, Err(ConsumerError::Protocol(_))), "{result:?}");
}

#[test]
fn a_peer_that_never_pauses_is_not_waited_for() {
    let mut consumer = connect(Duration::from_millis(50), |mut stream| {
        let noise = reply(99, true, &[0; 1000]).repeat(50);
        while stream.write_all(&noise).is_ok() {}
    });
    assert!(matches!(consumer.stats(), Err(ConsumerError::TimedOut { .. })));
    assert_eq!(consumer.wait_end(Some(Duration::from_millis(1))).unwrap(), Wait::TimedOut);
    consumer.wake_handle().wake();
    assert_eq!(consumer.wait_end(None).unwrap(), Wait::Woken);
}

#[test]
fn a_strangers_socket_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("squatted");
    let address = Address::Path(path.clone());
    let listener = address.listen().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&bound()).unwrap();
        let _ = stream.read(&mut [0; 4096]);
    });
    if std::os::unix::fs::chown(&path, Some(12345), None).is_err() {
        // Only root can give a file away.
        return;
    }
    let refused = Consumer::connect(&address, &ConsumerOptions::default()).unwrap_err();
    assert!(matches!(refused, ConnectError::NotTrusted { uid: 12345, .. }), "{refused}");
    let options = ConsumerOptions { trust: Trust::Anybody, ..ConsumerOptions::default() };
    Consumer::connect(&address, &options).unwrap();
}
