//! The bytes: chunks of fragments, packets of fields.

use crate::workload::minstd::Minstd;

/// The payload of a chunk of the default geometry.
const CHUNK_BYTES: usize = 4080;

/// The most fragments that a chunk's header can declare.
const FRAGMENTS_MAX: usize = 1023;

/// How sizes and headers of a chunk's fragments are drawn.
#[derive(Clone, Copy, Debug)]
pub enum Chunks {
    /// Packets of 50 to 500 bytes, 5 to 15 of them; below 128 bytes a one-byte header, else two
    /// bytes or redundant four.
    Real,
    /// The same, as the official client library writes them: one byte or redundant four.
    RealSdk,
    /// The same with the shortest headers: the templates of the engine's workloads.
    RealTemplates,
    /// Packets of 2 to 40 bytes.
    Dense,
    /// As many fragments as fit.
    OneByte,
    /// Headers of two bytes.
    TwoByte,
    /// Headers of four, redundant.
    FourByte,
    /// Headers of 1 to 5 bytes at random.
    Mixed,
    /// Headers of 1 to 10 bytes at random; a third of the chunks end in a header, a size or a limit
    /// that is not there.
    Hostile,
}

/// A chunk, and how many fragments its header declares.
#[derive(Clone)]
pub struct Chunk {
    /// Headers and bodies of its fragments.
    pub bytes: Vec<u8>,
    /// How many its header declares.
    pub declared: usize,
}

/// `count` chunks, always the same.
pub fn chunks(shape: Chunks, count: usize) -> Vec<Chunk> {
    let mut random = Minstd::new(42);
    (0..count).map(|_| chunk(shape, &mut random)).collect()
}

fn range(random: &mut Minstd, low: usize, high: usize) -> usize {
    low + random.below(high - low + 1)
}

/// The header and the body of the next fragment.
fn fragment(shape: Chunks, random: &mut Minstd) -> (usize, usize) {
    let packet = range(random, 50, 500);
    match shape {
        Chunks::Real if packet <= 127 => (1, packet - 1),
        Chunks::Real if random.below(2) == 0 => (2, packet - 2),
        Chunks::Real => (4, packet - 4),
        Chunks::RealSdk if packet <= 127 => (1, packet - 1),
        Chunks::RealSdk => (4, packet - 4),
        Chunks::RealTemplates if packet <= 128 => (1, packet - 1),
        Chunks::RealTemplates => (2, packet - 2),
        Chunks::Dense => (1, range(random, 1, 39)),
        Chunks::OneByte => (1, random.below(128)),
        Chunks::TwoByte => (2, range(random, 128, 498)),
        Chunks::FourByte => (4, packet - 4),
        Chunks::Mixed => {
            let header = range(random, 1, 5);
            (header, if header == 1 { random.below(128) } else { random.below(300) })
        }
        Chunks::Hostile => (range(random, 1, 10), random.below(100)),
    }
}

fn chunk(shape: Chunks, random: &mut Minstd) -> Chunk {
    let most = match shape {
        Chunks::Real | Chunks::RealSdk | Chunks::RealTemplates => range(random, 5, 15),
        _ => FRAGMENTS_MAX,
    };
    let mut bytes = Vec::with_capacity(CHUNK_BYTES);
    let mut declared = 0;
    while declared < most {
        let (header, body) = fragment(shape, random);
        if bytes.len() + header + body > CHUNK_BYTES {
            break;
        }
        push_varint(&mut bytes, body as u64, header);
        bytes.extend((0..body).map(|k| b'a' + (k % 26) as u8));
        declared += 1;
    }
    if matches!(shape, Chunks::Hostile) {
        match random.below(9) {
            0 => bytes.truncate(bytes.len() - random.below(60)),
            1 => declared = FRAGMENTS_MAX,
            2 => {
                let at = random.below(bytes.len() - 12);
                bytes[at..at + 12].fill(0xff);
            }
            _ => {}
        }
    }
    Chunk { bytes, declared }
}

/// Appends `value` as a varint of at least `length` bytes.
fn push_varint(bytes: &mut Vec<u8>, mut value: u64, length: usize) {
    for done in 1.. {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 && done >= length {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

/// What a packet is like at its top level.
#[derive(Clone, Copy, Debug)]
pub enum Packets {
    /// A time stamp, a track event of 20 to 120 bytes, sequence flags, some clock ids, some
    /// interned data.
    TrackEvent,
    /// A time stamp and a track event of 14 to 20 bytes.
    Counter,
    /// Track events cut into two to four slices.
    Cut,
    /// Track events of which half hold something forbidden.
    Hostile,
}

/// A packet, and where it is cut.
#[derive(Clone)]
pub struct Packet {
    /// Its fields.
    pub bytes: Vec<u8>,
    /// Where a slice ends and the next begins, in order.
    pub cuts: Vec<usize>,
}

/// `count` packets, always the same.
pub fn packets(shape: Packets, count: usize) -> Vec<Packet> {
    let mut random = Minstd::new(42);
    (0..count).map(|_| packet(shape, &mut random)).collect()
}

fn packet(shape: Packets, random: &mut Minstd) -> Packet {
    let mut bytes = Vec::new();
    let varint = |bytes: &mut Vec<u8>, number: u64, value: u64| {
        push_varint(bytes, number << 3, 1);
        push_varint(bytes, value, 1);
    };
    let block = |bytes: &mut Vec<u8>, number: u64, length: usize, header: usize| {
        push_varint(bytes, number << 3 | 2, 1);
        push_varint(bytes, length as u64, header);
        bytes.extend((0..length).map(|k| (k * 7) as u8 | 0x40));
    };
    varint(&mut bytes, 8, 1_000_000_000_000_000 + ((random.draw() as u64) << 16));
    if let Packets::Counter = shape {
        block(&mut bytes, 11, range(random, 14, 20), 1);
        return Packet { bytes, cuts: Vec::new() };
    }
    if random.below(3) == 0 {
        varint(&mut bytes, 58, 64);
    }
    let length = range(random, 20, 120);
    block(&mut bytes, 11, length, if random.below(2) == 0 { 1 } else { 4 });
    varint(&mut bytes, 13, 2);
    if random.below(5) == 0 {
        block(&mut bytes, 12, range(random, 20, 80), 1);
    }
    let mut cuts = Vec::new();
    match shape {
        Packets::Cut => {
            cuts = (0..range(random, 1, 3)).map(|_| random.below(bytes.len())).collect();
            cuts.sort_unstable();
        }
        Packets::Hostile => match random.below(8) {
            0 => varint(&mut bytes, 3, 7),
            1 => bytes.push(0x5b),
            2 => bytes.truncate(bytes.len() - 1),
            3 => bytes.extend([0x80; 12]),
            _ => {}
        },
        Packets::TrackEvent | Packets::Counter => {}
    }
    Packet { bytes, cuts }
}
