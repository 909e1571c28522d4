//! Packets in replies that fit a frame.

use proptest::prelude::*;
use prost::Message as _;
use watershed_wire::framing::FRAME_SIZE_BYTES_MAX;
use watershed_wire::ipc::{
    ConsumerMethod, HostConnection, Method as _, READ_BUFFERS_REPLY_SIZE_BYTES_MAX, ReadBuffersReply,
    SLICE_SIZE_BYTES_MAX, read_buffers_replies,
};
use watershed_wire::protos::ReadBuffersResponse;

use crate::{End as _, call, encoded, frame};

/// A packet of its own bytes.
fn packet(size_bytes: usize) -> Vec<u8> {
    (0..size_bytes).map(|at| (at % 251) as u8).collect()
}

fn replies(packets: &[Vec<u8>]) -> Vec<ReadBuffersReply> {
    read_buffers_replies(packets.iter().map(Vec::as_slice)).collect()
}

/// The sizes of the slices in each reply.
fn sizes(packets: &[Vec<u8>]) -> Vec<Vec<usize>> {
    let slices = |reply: &ReadBuffersReply| {
        let decoded = ReadBuffersResponse::decode(&reply.bytes[..]).unwrap();
        decoded.slices.iter().map(|slice| slice.data().len()).collect()
    };
    replies(packets).iter().map(slices).collect()
}

/// What a client makes of the replies.
fn together(replies: &[ReadBuffersReply]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut packet = Vec::new();
    for reply in replies {
        for slice in ReadBuffersResponse::decode(&reply.bytes[..]).unwrap().slices {
            packet.extend_from_slice(slice.data());
            if slice.last_slice_for_packet() {
                packets.push(std::mem::take(&mut packet));
            }
        }
    }
    assert!(packet.is_empty(), "the last packet has no end");
    packets
}

#[test]
fn limits_are_those_of_the_format() {
    assert_eq!(SLICE_SIZE_BYTES_MAX, 130_560);
    assert_eq!(READ_BUFFERS_REPLY_SIZE_BYTES_MAX, 131_072 - 64);
}

#[test]
fn nothing_is_one_empty_reply() {
    let empty = [ReadBuffersReply { bytes: Vec::new(), is_last: true }];
    assert_eq!(replies(&[]), empty);
    assert_eq!(replies(&[Vec::new(), Vec::new()]), empty, "an empty packet is nothing");
}

#[test]
fn a_packet_is_cut_at_the_longest_slice() {
    let max = SLICE_SIZE_BYTES_MAX;
    assert_eq!(sizes(&[packet(max - 1)]), [[max - 1]]);
    assert_eq!(sizes(&[packet(max)]), [[max]]);
    assert_eq!(sizes(&[packet(max + 1)]), [vec![max, 1]]);
    // As much as fits the reply beside the longest slice, which counts 16 more, as each does.
    assert_eq!(sizes(&[packet(max + 416)]), [vec![max, 416]]);
    assert_eq!(sizes(&[packet(max + 417)]), [[max], [417]]);
    assert_eq!(sizes(&[packet(2 * max)]), [[max], [max]]);
}

#[test]
fn a_reply_is_filled_to_its_limit() {
    let first = 100_000;
    let room = READ_BUFFERS_REPLY_SIZE_BYTES_MAX - first - 2 * 16;
    assert_eq!(sizes(&[packet(first), packet(room - 1)]), [[first, room - 1]]);
    assert_eq!(sizes(&[packet(first), packet(room)]), [[first, room]]);
    assert_eq!(sizes(&[packet(first), packet(room + 1)]), [[first], [room + 1]]);
}

#[test]
fn a_packet_of_one_mebibyte_spans_replies() {
    let packets = [packet(10), packet(1 << 20), packet(20)];
    let replies = replies(&packets);
    assert_eq!(replies.len(), 9);
    assert_eq!(together(&replies), packets);
    assert_eq!(replies.iter().filter(|reply| reply.is_last).count(), 1);
    assert!(replies[8].is_last);
}

/// The fullest reply, with the longest request id, as a frame.
#[test]
fn the_largest_reply_fits_a_frame() {
    let mut host = HostConnection::<ConsumerMethod, ()>::new();
    host.take_all(&encoded(&[frame(u64::MAX, call(1, ConsumerMethod::ReadBuffers.id(), b"", false))]));
    let reply_to = host.poll().unwrap().unwrap().reply_to;
    for packets in [vec![packet(SLICE_SIZE_BYTES_MAX + 416)], vec![packet(1); 8000]] {
        let reply = &replies(&packets)[0];
        assert!(reply.bytes.len() < FRAME_SIZE_BYTES_MAX);
        host.reply_bytes(reply_to, &reply.bytes, true).unwrap();
    }
}

proptest! {
    #[test]
    fn packets_come_together_again(
        sizes in proptest::collection::vec(
            prop_oneof![4 => 1_usize..300, 1 => 130_000_usize..131_500, 1 => 1_usize..300_000], 0..12),
    ) {
        let packets: Vec<_> = sizes.into_iter().map(packet).collect();
        let replies = replies(&packets);
        prop_assert!(replies.iter().all(|reply| reply.bytes.len() < READ_BUFFERS_REPLY_SIZE_BYTES_MAX));
        let (last, before) = replies.split_last().unwrap();
        prop_assert!(last.is_last && before.iter().all(|reply| !reply.is_last && !reply.bytes.is_empty()));
        prop_assert!(packets.is_empty() || !last.bytes.is_empty());
        prop_assert_eq!(together(&replies), packets);
    }
}
