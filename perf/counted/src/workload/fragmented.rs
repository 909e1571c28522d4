//! Chunks as a writer leaves them whose packets do not fit: every third packet spans 2 to 5 chunks.

use super::minstd::Minstd;
use super::{CHUNK_PAYLOAD_BYTES, FIRST_CONTINUES, LAST_CONTINUES, SourceChunk};

/// A size header whose value was not known when it was written: always four bytes.
const RESERVED_HEADER_BYTES: usize = 4;
/// A writer starts no packet with less room than this: a reserved header and eight bytes.
const MIN_ROOM_BYTES: usize = 12;

/// At least `min_chunks` chunks that begin and end between packets, so that they can be fed again
/// and again.
pub fn stream(min_chunks: usize) -> Vec<SourceChunk> {
    let mut writer = Writer { random: Minstd::new(42), chunks: vec![Writer::empty(0)] };
    let mut packets = 0;
    loop {
        packets += 1;
        if packets % 3 == 0 {
            writer.spanning_packet();
        } else {
            let size = 50 + writer.random.below(451);
            writer.packet(size);
        }
        if packets % 3 == 0 && writer.chunks.len() >= min_chunks {
            return writer.chunks;
        }
    }
}

/// A trace writer in miniature.
struct Writer {
    random: Minstd,
    chunks: Vec<SourceChunk>,
}

impl Writer {
    fn empty(flags: u8) -> SourceChunk {
        SourceChunk { bytes: Vec::with_capacity(CHUNK_PAYLOAD_BYTES), fragments: 0, packets: 0, flags }
    }

    fn current(&mut self) -> &mut SourceChunk {
        self.chunks.last_mut().expect("a writer has a chunk")
    }

    fn room(&mut self) -> usize {
        CHUNK_PAYLOAD_BYTES - self.current().bytes.len()
    }

    /// A packet that fills this chunk, none to three whole ones, and a part of the last.
    fn spanning_packet(&mut self) {
        self.make_room();
        let spanned = 2 + self.random.below(4);
        let whole = (spanned - 2) * (CHUNK_PAYLOAD_BYTES - RESERVED_HEADER_BYTES);
        let body = self.room() - RESERVED_HEADER_BYTES + whole + 50 + self.random.below(451);
        self.packet(body);
    }

    fn make_room(&mut self) {
        if self.room() < MIN_ROOM_BYTES {
            self.chunks.push(Self::empty(0));
        }
    }

    fn packet(&mut self, body_bytes: usize) {
        self.make_room();
        self.current().packets += 1;
        let mut left = body_bytes;
        loop {
            // The writer knows the size of a small packet in time and takes one byte for it.
            let header = if left < 127 && left < self.room() { 1 } else { RESERVED_HEADER_BYTES };
            let here = left.min(self.room() - header);
            left -= here;
            self.fragment(header, here);
            if left == 0 {
                return;
            }
            self.current().flags |= LAST_CONTINUES;
            self.chunks.push(Self::empty(FIRST_CONTINUES));
        }
    }

    fn fragment(&mut self, header_bytes: usize, body_bytes: usize) {
        let fill = b'a' + (self.chunks.len() % 26) as u8;
        let chunk = self.current();
        for index in 0..header_bytes {
            let more = if index + 1 < header_bytes { 0x80 } else { 0 };
            chunk.bytes.push((body_bytes >> (7 * index)) as u8 & 0x7f | more);
        }
        chunk.bytes.extend(std::iter::repeat_n(fill, body_bytes));
        chunk.fragments += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks that each packet touches, in order, from flags and counts alone.
    fn spans(chunks: &[SourceChunk]) -> Vec<usize> {
        let mut spans = Vec::new();
        for chunk in chunks {
            for fragment in 0..chunk.fragments {
                if fragment == 0 && chunk.flags & FIRST_CONTINUES != 0 {
                    *spans.last_mut().expect("a packet was begun") += 1;
                } else {
                    spans.push(1);
                }
            }
        }
        spans
    }

    #[test]
    fn every_third_packet_spans_two_to_five_chunks() {
        let chunks = stream(100);
        let spans = spans(&chunks);
        for (index, span) in spans.iter().enumerate() {
            if index % 3 == 2 {
                assert!((2..=5).contains(span), "packet {index} spans {span}");
            } else {
                assert!(*span <= 2, "packet {index} spans {span}");
            }
        }
        assert!((2..=5).all(|wanted| spans.contains(&wanted)), "each span occurs");
        assert_eq!(spans.len(), chunks.iter().map(|chunk| usize::from(chunk.packets)).sum::<usize>());
    }

    #[test]
    fn the_stream_can_be_repeated_and_its_chunks_are_full() {
        let chunks = stream(100);
        assert_eq!(chunks[0].flags & FIRST_CONTINUES, 0);
        let (last, others) = chunks.split_last().unwrap();
        assert_eq!(last.flags & LAST_CONTINUES, 0);
        assert!(others.iter().all(|chunk| chunk.bytes.len() > CHUNK_PAYLOAD_BYTES - MIN_ROOM_BYTES));
        for pair in chunks.windows(2) {
            assert_eq!(pair[0].flags & LAST_CONTINUES != 0, pair[1].flags & FIRST_CONTINUES != 0);
        }
    }

    #[test]
    fn headers_say_how_long_the_fragments_are() {
        for chunk in stream(100) {
            let (mut at, mut fragments) = (0, 0);
            while at < chunk.bytes.len() {
                let header = chunk.bytes[at..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
                let body = (0..header)
                    .rev()
                    .fold(0, |value, index| value << 7 | usize::from(chunk.bytes[at + index] & 0x7f));
                at += header + body;
                fragments += 1;
            }
            assert_eq!((at, fragments), (chunk.bytes.len(), chunk.fragments));
        }
    }
}
