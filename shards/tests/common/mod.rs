//! Histories for several writers, and packets as things to compare.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use watershed_engine::{
    ByteSource, ChunkFlags, ChunkId, ChunkInfo, ClientIdentity, Packet, ProducerId, WriterId,
};
use watershed_shards::{OwnedBytes, ReadPass, ShardedBuffer, Source};

/// A generator of random numbers that is the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A packet as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) producer_id: u16,
    pub(crate) writer_id: u16,
    pub(crate) identity: ClientIdentity,
    pub(crate) loss: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Got {
    /// What [`write_packet`] makes of it.
    pub(crate) fn written_bytes(&self) -> usize {
        24 + self.bytes.len()
    }
}

pub(crate) fn got(packet: &Packet<'_>) -> Got {
    Got {
        producer_id: packet.producer_id.0,
        writer_id: packet.writer_id.0,
        identity: packet.identity,
        loss: packet.loss.0,
        bytes: packet.to_vec(),
    }
}

/// Packets travel through blocks as bytes: ids, losses, length, bytes.
pub(crate) fn write_packet(packet: &Packet<'_>, out: &mut Vec<u8>) -> bool {
    out.extend(packet.producer_id.0.to_le_bytes());
    out.extend(packet.writer_id.0.to_le_bytes());
    out.extend(packet.identity.uid.to_le_bytes());
    out.extend(packet.identity.pid.to_le_bytes());
    out.extend(packet.identity.machine_id.to_le_bytes());
    out.extend(packet.loss.0.to_le_bytes());
    out.extend((packet.size_bytes() as u32).to_le_bytes());
    packet.slices().iter().for_each(|slice| out.extend_from_slice(slice));
    true
}

pub(crate) fn parse(mut bytes: &[u8]) -> Vec<Got> {
    let mut list = Vec::new();
    let take = |bytes: &mut &[u8], len: usize| {
        let (front, rest) = bytes.split_at(len);
        *bytes = rest;
        front.to_vec()
    };
    let u32_of = |bytes: Vec<u8>| u32::from_le_bytes(bytes.try_into().unwrap());
    while !bytes.is_empty() {
        let u16_of = |bytes: Vec<u8>| u16::from_le_bytes(bytes.try_into().unwrap());
        let producer_id = u16_of(take(&mut bytes, 2));
        let writer_id = u16_of(take(&mut bytes, 2));
        let identity = ClientIdentity {
            uid: u32_of(take(&mut bytes, 4)) as i32,
            pid: u32_of(take(&mut bytes, 4)) as i32,
            machine_id: u32_of(take(&mut bytes, 4)),
        };
        let loss = u32_of(take(&mut bytes, 4));
        let len = u32_of(take(&mut bytes, 4)) as usize;
        list.push(Got { producer_id, writer_id, identity, loss, bytes: take(&mut bytes, len) });
    }
    list
}

/// Everything that a pass still has.
pub(crate) fn drain<W: watershed_shards::PacketWriter>(pass: &mut ReadPass<'_, W>) -> Vec<Got> {
    let mut bytes = Vec::new();
    while let Some(pieces) = pass.next_pieces(100_000) {
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
    }
    parse(&bytes)
}

pub(crate) fn read_all(buffer: &ShardedBuffer) -> Vec<Got> {
    drain(&mut buffer.read_pass(write_packet))
}

/// A chunk of a writer: fragments as bodies, and how its ends hang together with its neighbours.
pub(crate) fn info(producer: u16, writer: u16, id: u32, fragments: usize, flags: u8) -> ChunkInfo {
    ChunkInfo {
        producer_id_trusted: ProducerId(producer),
        writer_id: WriterId(writer),
        chunk_id: ChunkId(id),
        num_fragments: fragments as u16,
        flags: ChunkFlags(flags),
        complete: true,
        identity_trusted: ClientIdentity { uid: 1000, pid: i32::from(producer), machine_id: 0 },
    }
}

/// Fragments behind one another, each with its size.
pub(crate) fn payload(bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for body in bodies {
        let mut size = body.len();
        while size >= 0x80 {
            bytes.push(size as u8 | 0x80);
            size >>= 7;
        }
        bytes.push(size as u8);
        bytes.extend_from_slice(body);
    }
    bytes
}

/// Bytes that a batch owns.
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl ByteSource for Bytes {
    fn size_bytes(&self) -> usize {
        self.0.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self.0[offset_bytes..][..dst.len()]);
    }
}

pub(crate) fn owned(source: impl ByteSource + Send + Sync + 'static) -> Source<'static> {
    Source::Owned(OwnedBytes(Box::new(source)))
}
