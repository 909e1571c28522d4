//! Packets on their way from a buffer to a file: validated, stamped, framed into blocks.

use std::hint::black_box;
use watershed_engine::{Packet, TraceBuffer};
use watershed_simd::fields::{self, Rules};

/// Blocks of framed packets, as they go to a file.
#[derive(Default)]
pub struct Blocks {
    /// Full ones, then the one that is being filled. Kept between laps: a service reuses its blocks too.
    blocks: Vec<Vec<u8>>,
    used: usize,
}

/// Framed packets are handed on in pieces of at most this size.
const BLOCK_BYTES: usize = 1 << 20;

/// Fields that only the service may set (uid, sequence id, pid and others): a producer's packet that has one is invalid.
const RESERVED_FIELDS: [u32; 12] = [3, 10, 33, 35, 36, 50, 69, 79, 98, 124, 125, 133];

impl Blocks {
    /// Empties the blocks and keeps their memory.
    pub fn clear(&mut self) {
        self.blocks.iter_mut().for_each(Vec::clear);
        self.used = 0;
    }

    /// Makes room for so many bytes, so that nothing has to be allocated later.
    pub fn reserve(&mut self, bytes: usize) {
        self.blocks.resize_with(bytes.div_ceil(BLOCK_BYTES), || Vec::with_capacity(BLOCK_BYTES));
    }

    /// Reads every packet, validates it, stamps it with what the service knows of its sequence, and frames it. Returns
    /// how many there were, and how many were invalid and left out.
    pub fn fill_from(&mut self, buffer: &mut TraceBuffer) -> (u64, u64) {
        let rules = Rules::new().reserve(RESERVED_FIELDS);
        let (mut packets, mut invalid) = (0, 0);
        buffer.begin_read();
        while let Some(packet) = buffer.read_next() {
            if fields::scan(packet.slices(), &rules).is_err() {
                invalid += 1;
                continue;
            }
            let stamp = Stamp::new(&packet);
            let body_bytes = packet.slices().iter().map(|slice| slice.len()).sum::<usize>() + stamp.len;
            append_frame(self.block_with_room(body_bytes + 6), &packet, &stamp, body_bytes);
            packets += 1;
        }
        black_box(&self.blocks);
        (packets, invalid)
    }

    fn block_with_room(&mut self, bytes: usize) -> &mut Vec<u8> {
        if self.blocks.get(self.used).is_some_and(|block| block.len() + bytes > BLOCK_BYTES) {
            self.used += 1;
        }
        if self.used == self.blocks.len() {
            self.blocks.push(Vec::with_capacity(BLOCK_BYTES));
        }
        &mut self.blocks[self.used]
    }

    /// Walks the frames and counts them.
    ///
    /// # Errors
    /// A packet that does not start with its timestamp.
    pub fn count_frames(&self) -> Result<u64, String> {
        self.blocks.iter().map(|block| count_frames(block)).sum()
    }
}

/// Walks frames and counts them.
///
/// # Errors
/// A packet that does not start with its timestamp.
pub fn count_frames(mut rest: &[u8]) -> Result<u64, String> {
    let mut frames = 0;
    while !rest.is_empty() {
        let header = rest[1..].iter().position(|byte| byte & 0x80 == 0).ok_or("a size without an end")? + 1;
        let size = rest[1..=header].iter().rev().fold(0, |size, byte| size << 7 | usize::from(byte & 0x7f));
        let (packet, after) = rest[header + 1..].split_at_checked(size).ok_or("a packet without an end")?;
        if rest[0] != 10 || packet.first() != Some(&0x40) {
            return Err(format!("a packet that starts with {:?}", packet.first()));
        }
        rest = after;
        frames += 1;
    }
    Ok(frames)
}

/// What a service does with each packet on its way to a file, as `Blocks` does: validate, stamp, frame. False if it is invalid.
pub fn packet_writer() -> impl Fn(&Packet<'_>, &mut Vec<u8>) -> bool + Sync {
    let rules = Rules::new().reserve(RESERVED_FIELDS);
    move |packet, out| {
        let is_valid = fields::scan(packet.slices(), &rules).is_ok();
        if is_valid {
            let stamp = Stamp::new(packet);
            let body_bytes = packet.slices().iter().map(|slice| slice.len()).sum::<usize>() + stamp.len;
            append_frame(out, packet, &stamp, body_bytes);
        }
        is_valid
    }
}

#[inline(always)]
fn append_frame(out: &mut Vec<u8>, packet: &Packet<'_>, stamp: &Stamp, body_bytes: usize) {
    out.push(10);
    append_varint(out, body_bytes as u32);
    for slice in packet.slices() {
        out.extend_from_slice(slice);
    }
    out.extend_from_slice(&stamp.bytes[..stamp.len]);
}

/// The trusted fields of one packet.
struct Stamp {
    bytes: [u8; 32],
    len: usize,
}

impl Stamp {
    fn new(packet: &Packet<'_>) -> Self {
        let mut stamp = Self { bytes: [0; 32], len: 0 };
        let identity = packet.identity;
        stamp.field(3, identity.uid as u32);
        stamp.field(10, u32::from(packet.producer_id.0) << 16 | u32::from(packet.writer_id.0));
        stamp.field(79, identity.pid as u32);
        if packet.loss.0 != 0 {
            stamp.field(42, packet.loss.0);
        }
        stamp
    }

    fn field(&mut self, number: u32, value: u32) {
        self.varint(number << 3);
        self.varint(value);
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes[self.len] = value as u8 | 0x80;
            self.len += 1;
            value >>= 7;
        }
        self.bytes[self.len] = value as u8;
        self.len += 1;
    }
}

fn append_varint(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
