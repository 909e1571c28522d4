//! Bytes of a hostile peer in pieces of any size: no panic, and the pieces make no difference.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watershed_wire::framing::{FrameBuffer, FrameTooLong, encode_frame};
use watershed_wire::protos::IpcFrame;

fn receive(mut bytes: &[u8], piece_size_bytes: usize) -> (Vec<IpcFrame>, Result<(), FrameTooLong>) {
    let mut buffer = FrameBuffer::default();
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let spare = buffer.spare();
        assert!(!spare.is_empty());
        let size_bytes = piece_size_bytes.min(bytes.len()).min(spare.len());
        spare[..size_bytes].copy_from_slice(&bytes[..size_bytes]);
        buffer.received(size_bytes);
        bytes = &bytes[size_bytes..];
        loop {
            match buffer.pop_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(()))
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece_size_bytes, bytes) = input;
    let pieces = receive(bytes, usize::from(piece_size_bytes) + 1);
    assert_eq!(pieces, receive(bytes, bytes.len().max(1)));
    for frame in pieces.0 {
        let mut encoded = Vec::new();
        // A frame of unknown fields alone is empty when it is encoded again, and empty frames are
        // passed over.
        if encode_frame(&frame, &mut encoded).is_ok() && frame != IpcFrame::default() {
            assert_eq!(receive(&encoded, 7).0.last(), Some(&frame));
        }
    }
});
