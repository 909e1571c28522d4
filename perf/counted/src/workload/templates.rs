//! "Mixed chunks": the chunk templates on which trace buffers are compared (spec, benchmarks, chunk
//! templates).

use super::minstd::Minstd;
use super::{CHUNK_PAYLOAD_BYTES, SourceChunk};
use std::ops::RangeInclusive;

/// Most fragments that a chunk's header can count.
const MAX_FRAGMENTS: u16 = 1023;

/// The first `count` templates, each of whole packets without flags; the comparison uses 100, its
/// patch workload 10.
pub fn mixed(count: usize) -> Vec<SourceChunk> {
    let mut random = Minstd::new(42);
    (0..count).map(|index| mixed_chunk(&mut random, index)).collect()
}

fn mixed_chunk(random: &mut Minstd, index: usize) -> SourceChunk {
    let mut chunk =
        SourceChunk { bytes: Vec::with_capacity(CHUNK_PAYLOAD_BYTES), fragments: 0, packets: 0, flags: 0 };
    let packets = 5 + random.below(11);
    for _ in 0..packets {
        if chunk.bytes.len() >= 4030 {
            break;
        }
        let size = (50 + random.below(451)).min(CHUNK_PAYLOAD_BYTES - chunk.bytes.len());
        if size < 10 {
            break;
        }
        append_packet(&mut chunk.bytes, size, index);
        chunk.packets += 1;
    }
    chunk.fragments = chunk.packets;
    chunk
}

/// What the chunks of [`filled`] are made of.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Most payload bytes of a chunk.
    pub chunk_bytes: usize,
    /// Sizes of packets with their headers, at least 5.
    pub packet_bytes: RangeInclusive<usize>,
    /// Packets of a chunk, as far as they fit.
    pub packets: RangeInclusive<usize>,
    /// Of 100 packets, those whose header takes four bytes, as a writer reserves them that does not
    /// know a packet's size yet.
    pub long_headers_percent: usize,
}

impl Shape {
    /// Full chunks of packets of these sizes.
    pub fn full(chunk_bytes: usize, packet_bytes: RangeInclusive<usize>) -> Self {
        let packets = usize::from(MAX_FRAGMENTS)..=MAX_FRAGMENTS.into();
        Self { chunk_bytes, packet_bytes, packets, long_headers_percent: 0 }
    }
}

/// 100 chunks of whole packets without flags.
///
/// # Panics
/// When a packet of the least size does not fit into a chunk.
pub fn filled(shape: &Shape) -> Vec<SourceChunk> {
    some_filled(shape, 100)
}

/// So many chunks of whole packets without flags.
///
/// # Panics
/// As [`filled`].
pub fn some_filled(shape: &Shape, count: usize) -> Vec<SourceChunk> {
    let mut random = Minstd::new(42);
    (0..count).map(|index| filled_chunk(&mut random, shape, index)).collect()
}

fn filled_chunk(random: &mut Minstd, shape: &Shape, index: usize) -> SourceChunk {
    let draw = |random: &mut Minstd, range: &RangeInclusive<usize>| {
        range.start() + random.below(range.end() - range.start() + 1)
    };
    let packets = draw(random, &shape.packets).min(MAX_FRAGMENTS.into());
    let mut chunk = SourceChunk { bytes: Vec::new(), fragments: 0, packets: 0, flags: 0 };
    while usize::from(chunk.packets) < packets {
        let size = draw(random, &shape.packet_bytes);
        if chunk.bytes.len() + size > shape.chunk_bytes {
            break;
        }
        if random.below(100) < shape.long_headers_percent {
            let body = size - 4;
            chunk.bytes.extend([body as u8 | 0x80, (body >> 7) as u8 | 0x80, 0x80, 0]);
            append_body(&mut chunk.bytes, body, index);
        } else {
            append_packet(&mut chunk.bytes, size, index);
        }
        chunk.packets += 1;
    }
    assert_ne!(chunk.packets, 0, "a packet fits into a chunk");
    chunk.fragments = chunk.packets;
    chunk
}

/// A packet that takes `size_bytes` with its header.
fn append_packet(chunk: &mut Vec<u8>, size_bytes: usize, index: usize) {
    let body_bytes = match size_bytes {
        ..=128 => {
            chunk.push((size_bytes - 1) as u8);
            size_bytes - 1
        }
        // 127 fits one byte, 128 would make 130: the gap is filled by a header that is longer than
        // it needs to be.
        129 => {
            chunk.extend([0xff, 0x00]);
            127
        }
        _ => {
            let body_bytes = size_bytes - 2;
            chunk.extend([(body_bytes & 0x7f) as u8 | 0x80, (body_bytes >> 7) as u8]);
            body_bytes
        }
    };
    append_body(chunk, body_bytes, index);
}

fn append_body(chunk: &mut Vec<u8>, body_bytes: usize, index: usize) {
    chunk.extend((0..body_bytes).map(|k| match k % 4 {
        0 => b'a' + (index % 26) as u8,
        1 => b'0' + ((k / 4 / 10) % 10) as u8,
        2 => b'0' + ((k / 4) % 10) as u8,
        _ => b'-',
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn the_hundred_templates_are_the_published_bytes() {
        let templates = mixed(100);
        let sizes: Vec<usize> = templates.iter().map(|template| template.bytes.len()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 267_310);
        assert_eq!((sizes.iter().min(), sizes.iter().max()), (Some(&927), Some(&4080)));
        assert_eq!(templates.iter().map(|template| usize::from(template.packets)).sum::<usize>(), 988);
        let all: Vec<u8> = templates.into_iter().flat_map(|template| template.bytes).collect();
        let digest: String = Sha256::digest(all).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, "67e14f9982eab0a32b03864e952e0f95dd9d7acb4a729341c6d86b95f65e56d1");
    }

    #[test]
    fn filled_chunks_have_their_shape() {
        let long = Shape { long_headers_percent: 100, ..Shape::full(4080, 24..=64) };
        let short = Shape { packets: 1..=3, ..Shape::full(4080, 24..=64) };
        for (shape, least, most) in
            [(long, 63, 170), (short, 1, 3), (Shape::full(32752, 28..=28), 1023, 1023)]
        {
            let mut spans = [watershed_simd::Span::default(); 1024];
            for chunk in filled(&shape) {
                let walk = watershed_simd::walk(&chunk.bytes, chunk.packets.into(), &mut spans);
                assert_eq!((walk.fragments, walk.visible_bytes), (chunk.packets.into(), chunk.bytes.len()));
                assert!((least..=most).contains(&chunk.packets), "{shape:?}: {}", chunk.packets);
                for span in &spans[..walk.fragments] {
                    assert!(shape.packet_bytes.contains(&span.total_bytes()), "{shape:?}");
                    assert_eq!(span.header_bytes() == 4, shape.long_headers_percent == 100);
                }
            }
        }
    }

    #[test]
    fn ten_templates_are_the_first_ten() {
        assert_eq!(mixed(10), mixed(100)[..10]);
    }
}
