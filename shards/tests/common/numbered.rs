//! Numbered packets, and the check that none comes twice, too early, or is missing unsaid.

use std::collections::HashMap;

use watershed_engine::ChunkInfo;

use super::{Got, info, payload};

/// Chunk `id` of a writer: five packets that name the writer and their number.
pub(crate) fn chunk(producer: u32, writer: u16, id: u32) -> (ChunkInfo, Vec<u8>) {
    let body = |i: u32| {
        let mut body = format!("{producer}/{writer}/{}/", id * 5 + i).into_bytes();
        body.resize(200 + (id as usize * 37 + i as usize * 11) % 300, b'-');
        body
    };
    let bodies: Vec<Vec<u8>> = (0..5).map(body).collect();
    (info(producer, writer, id, bodies.len(), 0), payload(&bodies))
}

/// What a reader has seen of each writer: the number of the next packet.
#[derive(Default)]
pub(crate) struct Seen(pub(crate) HashMap<(u32, u16), u64>);

impl Seen {
    /// Checks a packet: of its sequence, later than the last, and with a loss if something between
    /// is missing.
    pub(crate) fn check(&mut self, got: &Got) {
        let text = String::from_utf8_lossy(&got.bytes);
        let mut parts = text.split('/');
        let mut number =
            || parts.next().and_then(|part| part.parse::<u64>().ok()).expect("a numbered packet");
        assert_eq!((number(), number()), (got.producer_id.into(), got.writer_id.into()), "of its sequence");
        let number = number();
        let next = self.0.entry((got.producer_id, got.writer_id)).or_insert(0);
        assert!(number >= *next, "{text:.30}: packet {number} after {}", *next - 1);
        if number == *next {
            // Nothing of this sequence was lost since its last packet, so no loss may be reported.
            assert_eq!(got.loss, 0, "{text:.30}: a false loss");
        } else {
            assert_ne!(got.loss, 0, "{text:.30}: {} packets are missing without a loss", number - *next);
        }
        *next = number + 1;
    }
}
