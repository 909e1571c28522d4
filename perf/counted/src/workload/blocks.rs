//! Packets on their way from a buffer to a file: validated, stamped, framed into blocks, by the
//! routines of the service.

use std::hint::black_box;
use std::sync::OnceLock;
use watershed_engine::{Packet, ProducerId, TraceBuffer, WriterId};
use watershed_shards::framing::{FRAME_BYTES_MAX, Stamp, put_packet};
use watershed_simd::fields::{self, Rules};

/// Blocks of framed packets, as they go to a file.
#[derive(Default)]
pub struct Blocks {
    /// Full ones, then the one being filled. Kept between laps, as a service reuses its blocks.
    blocks: Vec<Vec<u8>>,
    used: usize,
}

/// Framed packets are handed on in pieces of at most this size.
const BLOCK_BYTES: usize = 1 << 20;

/// Fields that only the service may set (uid, sequence id, pid and others): a producer's packet
/// that has one is invalid.
const RESERVED_FIELDS: [u32; 12] = [3, 10, 33, 35, 36, 50, 69, 79, 98, 124, 125, 133];

impl Blocks {
    /// Empties the blocks and keeps their memory.
    pub fn clear(&mut self) {
        self.blocks.iter_mut().for_each(Vec::clear);
        self.used = 0;
    }

    /// Allocates so many bytes in advance.
    pub fn reserve(&mut self, bytes: usize) {
        self.blocks.resize_with(bytes.div_ceil(BLOCK_BYTES), new_block);
    }

    /// Reads every packet, validates it, stamps it with the trusted fields of its sequence, and
    /// frames it. Returns how many there were, and how many were invalid and left out.
    pub fn fill_from(&mut self, buffer: &mut TraceBuffer) -> (u64, u64) {
        let (rules, stamps) = (Rules::new().reserve(RESERVED_FIELDS), Stamps::default());
        let (mut packets, mut invalid, mut scratch) = (0, 0, Stamp::EMPTY);
        buffer.begin_read();
        while let Some(packet) = buffer.read_next() {
            if fields::scan(packet.slices(), &rules).is_err() {
                invalid += 1;
                continue;
            }
            let block = self.block_with_room(packet.size_bytes() + FRAME_BYTES_MAX);
            put_packet(block, packet.slices(), stamps.of(&packet, &mut scratch));
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
            self.blocks.push(new_block());
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

/// What a service does with each packet on its way to a file, as `Blocks` does: validate, stamp,
/// frame. False if it is invalid.
pub fn packet_writer() -> impl Fn(&Packet<'_>, &mut Vec<u8>) -> bool + Sync {
    let (rules, stamps) = (Rules::new().reserve(RESERVED_FIELDS), Stamps::default());
    move |packet, out| {
        let is_valid = fields::scan(packet.slices(), &rules).is_ok();
        if is_valid {
            let mut scratch = Stamp::EMPTY;
            put_packet(out, packet.slices(), stamps.of(packet, &mut scratch));
        }
        is_valid
    }
}

fn new_block() -> Vec<u8> {
    Vec::with_capacity(BLOCK_BYTES)
}

/// The trusted fields of sequences, encoded once for each, as a service keeps them.
struct Stamps([OnceLock<((ProducerId, WriterId), Stamp)>; 64]);

impl Default for Stamps {
    fn default() -> Self {
        Self([const { OnceLock::new() }; 64])
    }
}

impl Stamps {
    /// In `scratch` for a packet with a loss before it.
    #[inline]
    fn of<'a>(&'a self, packet: &Packet<'_>, scratch: &'a mut Stamp) -> &'a Stamp {
        let key = (packet.producer_id, packet.writer_id);
        let kept = &self.0[usize::from(packet.writer_id.0) % self.0.len()];
        match kept.get_or_init(|| (key, encode(packet))) {
            (kept_key, stamp) if *kept_key == key && packet.loss.is_empty() => stamp,
            _ => {
                *scratch = encode(packet);
                scratch
            }
        }
    }
}

/// The trusted fields of one packet.
#[cold]
fn encode(packet: &Packet<'_>) -> Stamp {
    let mut fields = Vec::with_capacity(Stamp::BYTES_MAX);
    let mut put = |number: u32, value: u32| {
        append_varint(&mut fields, number << 3);
        append_varint(&mut fields, value);
    };
    put(3, packet.identity.uid as u32);
    put(10, packet.producer_id.0 << 16 | u32::from(packet.writer_id.0));
    put(79, packet.identity.pid as u32);
    if !packet.loss.is_empty() {
        put(42, packet.loss.0);
    }
    Stamp::of(&fields)
}

fn append_varint(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
