//! Frames and packets, in whatever pieces they arrive.

use proptest::prelude::*;
use prost::Message as _;
use watershed_wire::framing::{
    FRAME_SIZE_BYTES_MAX, FrameBuffer, FrameTooLong, Preamble, append_packet, encode_frame,
};
use watershed_wire::protos::{IpcFrame, Trace, TracePacket, ipc_frame};

fn frame(request_id: u64, size_bytes: usize) -> IpcFrame {
    IpcFrame {
        request_id: Some(request_id),
        msg: Some(ipc_frame::Msg::MsgInvokeMethod(ipc_frame::InvokeMethod {
            args_proto: Some(vec![request_id as u8; size_bytes]),
            ..Default::default()
        })),
        ..Default::default()
    }
}

/// Sends `bytes` in pieces of the given sizes, over and over, and pops what comes out.
fn receive(bytes: &[u8], pieces: &[usize]) -> Result<Vec<IpcFrame>, FrameTooLong> {
    let mut buffer = FrameBuffer::default();
    let mut frames = Vec::new();
    let mut rest = bytes;
    let mut pieces = pieces.iter().cycle();
    while !rest.is_empty() {
        let spare = buffer.spare();
        assert!(!spare.is_empty());
        let size = (*pieces.next().unwrap()).min(rest.len()).min(spare.len());
        spare[..size].copy_from_slice(&rest[..size]);
        buffer.received(size);
        rest = &rest[size..];
        while let Some(frame) = buffer.pop_frame()? {
            frames.push(frame);
        }
    }
    Ok(frames)
}

#[test]
fn largest_frame_passes_and_a_larger_one_is_refused() {
    let overhead = frame(1, FRAME_SIZE_BYTES_MAX).encoded_len() - FRAME_SIZE_BYTES_MAX;
    let largest = frame(1, FRAME_SIZE_BYTES_MAX - overhead);
    let mut bytes = Vec::new();
    encode_frame(&largest, &mut bytes).unwrap();
    assert_eq!(bytes.len(), 131_072);
    assert_eq!(receive(&bytes, &[usize::MAX]).unwrap(), [largest]);

    let before = bytes.len();
    let size_bytes = FRAME_SIZE_BYTES_MAX + 1;
    assert_eq!(encode_frame(&frame(1, size_bytes - overhead), &mut bytes), Err(FrameTooLong { size_bytes }));
    assert_eq!(bytes.len(), before);
}

#[test]
fn announced_size_is_checked_before_anything_arrives() {
    for size_bytes in [FRAME_SIZE_BYTES_MAX + 1, u32::MAX as usize] {
        let prefix = (size_bytes as u32).to_le_bytes();
        assert_eq!(receive(&prefix, &[1]), Err(FrameTooLong { size_bytes }));
    }
}

#[test]
fn empty_and_malformed_frames_are_passed_over() {
    let mut bytes = vec![0, 0, 0, 0];
    bytes.extend_from_slice(&[2, 0, 0, 0, 0xff, 0xff]);
    encode_frame(&frame(5, 3), &mut bytes).unwrap();
    assert_eq!(receive(&bytes, &[3]).unwrap(), [frame(5, 3)]);

    let mut buffer = FrameBuffer::default();
    buffer.spare()[..bytes.len()].copy_from_slice(&bytes);
    buffer.received(bytes.len());
    assert_eq!(buffer.pop_frame(), Ok(Some(frame(5, 3))));
    assert_eq!(buffer.frames_malformed(), 1);
}

#[test]
fn preambles() {
    assert_eq!(Preamble::new(0).as_bytes(), [0x0a, 0]);
    assert_eq!(Preamble::new(127).as_bytes(), [0x0a, 0x7f]);
    assert_eq!(Preamble::new(128).as_bytes(), [0x0a, 0x80, 0x01]);
    assert_eq!(Preamble::new(usize::MAX).as_bytes().len(), 11);
}

proptest! {
    #[test]
    fn frames_in_any_pieces(
        sizes in proptest::collection::vec(0_usize..5000, 0..12),
        pieces in proptest::collection::vec(1_usize..4000, 1..8),
    ) {
        let frames: Vec<IpcFrame> = (0..).zip(&sizes).map(|(id, size)| frame(id, *size)).collect();
        let mut bytes = Vec::new();
        for frame in &frames {
            encode_frame(frame, &mut bytes).unwrap();
        }
        prop_assert_eq!(receive(&bytes, &pieces).unwrap(), frames);
    }

    #[test]
    fn hostile_frames_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        pieces in proptest::collection::vec(1_usize..50, 1..4),
    ) {
        let _ = receive(&bytes, &pieces);
    }

    /// A file made of packets is one message `Trace`.
    #[test]
    fn packets_make_a_trace(timestamps in proptest::collection::vec(any::<u64>(), 0..50)) {
        let trace = Trace {
            packet: timestamps
                .iter()
                .map(|timestamp| TracePacket { timestamp: Some(*timestamp), ..Default::default() })
                .collect(),
        };
        let mut file = Vec::new();
        for packet in &trace.packet {
            let bytes = packet.encode_to_vec();
            let (a, b) = bytes.split_at(bytes.len() / 2);
            append_packet(&mut file, &[a, &[], b]);
        }
        prop_assert_eq!(file, trace.encode_to_vec());
    }
}
