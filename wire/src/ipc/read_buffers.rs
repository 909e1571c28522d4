//! Packets as replies to ReadBuffers.

use crate::raw::delimited_len;
use prost::encoding::{WireType, encode_key, encode_varint};

/// Longest slice: a packet above it is cut (spec, service 3.3).
pub const SLICE_SIZE_BYTES_MAX: usize = (128 << 10) - 512;

/// What the slices of one reply have at most, with 16 more for each.
pub const READ_BUFFERS_REPLY_SIZE_BYTES_MAX: usize = (128 << 10) - 64;

/// What a slice counts for beside its bytes; it takes at most 10.
const SLICE_OVERHEAD_BYTES: usize = 16;

const SLICES: u32 = 2;
const DATA: u32 = 1;
const LAST_SLICE_FOR_PACKET: u32 = 2;

/// One reply to ReadBuffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadBuffersReply {
    /// The encoded `ReadBuffersResponse`.
    pub bytes: Vec<u8>,
    /// Whether all packets that were given end here; more may be read later.
    pub is_last: bool,
}

/// Cuts packets into replies that fit a frame each; at least one, which is empty if there is no
/// packet. An empty packet is nothing.
///
/// Packets come without the preamble that they have in a file. Those of a block in the form of a
/// file are the fields of a message:
///
/// ```
/// # use watershed_wire::ipc::read_buffers_replies;
/// # use watershed_wire::raw::Fields;
/// let block = [0x0a, 2, 8, 1, 0x0a, 2, 8, 3];
/// let packets = Fields::new(&block).filter_map(|field| field.ok()?.value.bytes());
/// let replies: Vec<_> = read_buffers_replies(packets).collect();
/// assert!(replies.len() == 1 && replies[0].is_last);
/// ```
pub fn read_buffers_replies<'a>(
    packets: impl IntoIterator<Item = &'a [u8]>,
) -> impl Iterator<Item = ReadBuffersReply> {
    let mut slices = packets.into_iter().flat_map(slices).peekable();
    let mut is_done = false;
    std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let mut bytes = Vec::new();
        let mut size_bytes = 0;
        // A slice of the longest size fits an empty reply, so that each reply takes one at least.
        while let Some((data, is_end)) = slices.next_if(|(data, _)| {
            size_bytes + data.len() + SLICE_OVERHEAD_BYTES <= READ_BUFFERS_REPLY_SIZE_BYTES_MAX
        }) {
            append_slice(&mut bytes, data, is_end);
            size_bytes += data.len() + SLICE_OVERHEAD_BYTES;
        }
        is_done = slices.peek().is_none();
        Some(ReadBuffersReply { bytes, is_last: is_done })
    })
}

/// The slices of a packet, and of each whether the packet ends with it.
fn slices(packet: &[u8]) -> impl Iterator<Item = (&[u8], bool)> {
    let last = packet.len().div_ceil(SLICE_SIZE_BYTES_MAX);
    (1..).zip(packet.chunks(SLICE_SIZE_BYTES_MAX)).map(move |(nth, data)| (data, nth == last))
}

fn append_slice(out: &mut Vec<u8>, data: &[u8], is_end: bool) {
    const FLAG_BYTES: usize = 2;
    let slice_bytes = delimited_len(DATA, data.len()) + FLAG_BYTES;
    out.reserve(delimited_len(SLICES, slice_bytes));
    encode_key(SLICES, WireType::LengthDelimited, out);
    encode_varint(slice_bytes as u64, out);
    encode_key(DATA, WireType::LengthDelimited, out);
    encode_varint(data.len() as u64, out);
    out.extend_from_slice(data);
    encode_key(LAST_SLICE_FOR_PACKET, WireType::Varint, out);
    encode_varint(is_end.into(), out);
}
