//! What lost gives the same answers as the naive twins: a wrong one would not have been worth a figure.

use watershed_simd::fields::{self, Rules, WireType};
use watershed_simd::walk::{Span, naive};
use watershed_tried::{Piece, many_walks, scans, walks};

/// Numbers that are always the same.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// `value` in `length` bytes.
fn varint(value: u64, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|i| (value >> (7 * i)) as u8 | 0x80).collect();
    bytes[length - 1] &= 0x7f;
    bytes
}

/// Fragments with headers of `1..=longest` bytes; one chunk in three is damaged.
fn chunk(draw: &mut Draw, longest: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..draw.below(40) {
        let length = 1 + draw.below(longest);
        let body = if length == 1 { draw.below(128) } else { draw.below(300) };
        bytes.extend(varint(body as u64, length));
        bytes.extend((0..body).map(|i| i as u8));
    }
    match draw.below(9) {
        0 => bytes.truncate(draw.below(bytes.len() + 1)),
        1 if !bytes.is_empty() => {
            let at = draw.below(bytes.len());
            let end = bytes.len().min(at + 1 + draw.below(12));
            bytes[at..end].fill(0xff);
        }
        2 => bytes.extend(varint(watershed_simd::walk::DROP_MARKER, 4 + draw.below(3))),
        _ => {}
    }
    bytes
}

fn expected(bytes: &[u8], limit: usize) -> (watershed_simd::Walk, Vec<Span>) {
    let mut spans = vec![Span::default(); limit];
    let walk = naive::walk(bytes, limit, &mut spans);
    spans.truncate(walk.fragments);
    (walk, spans)
}

#[test]
fn one_chunk() {
    let mut draw = Draw(1);
    for round in 0..6000 {
        let bytes = chunk(&mut draw, 1 + round % 10);
        let limit = draw.below(60);
        let answer = expected(&bytes, limit);
        for tried in walks() {
            let mut spans = vec![Span::default(); limit];
            let found = (tried.run)(&bytes, limit, &mut spans);
            assert_eq!(
                (found, &spans[..found.fragments]),
                (answer.0, &answer.1[..]),
                "{}: {bytes:?}",
                tried.name
            );
        }
    }
}

#[test]
fn many_chunks() {
    let mut draw = Draw(2);
    for round in 0..400 {
        let chunks: Vec<(Vec<u8>, usize)> =
            (0..draw.below(70)).map(|_| (chunk(&mut draw, 1 + round % 10), draw.below(60))).collect();
        for tried in many_walks() {
            let mut spans: Vec<_> = chunks.iter().map(|(_, limit)| vec![Span::default(); *limit]).collect();
            let jobs = chunks.iter().zip(&mut spans);
            let mut pieces: Vec<_> =
                jobs.map(|((bytes, limit), spans)| Piece::new(bytes, *limit, spans)).collect();
            (tried.run)(&mut pieces);
            for (piece, (bytes, limit)) in pieces.iter().zip(&chunks) {
                let answer = expected(bytes, *limit);
                assert_eq!(
                    (piece.found, piece.spans()),
                    (answer.0, &answer.1[..]),
                    "{}: {bytes:?}",
                    tried.name
                );
            }
        }
    }
}

/// Fields of every kind, some of them forbidden, some damaged.
fn packet(draw: &mut Draw) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..draw.below(30) {
        let number = if draw.below(4) == 0 { draw.below(3000) } else { 1 + draw.below(15) };
        let any = draw.below(8);
        let wire_type = [0, 0, 0, 1, 2, 2, 2, 5, any][draw.below(9)];
        let tag = (number << 3 | wire_type) as u64;
        let shortest = (1 + (63 - (tag | 1).leading_zeros() as usize) / 7).min(10);
        let redundant = usize::from(draw.below(9) == 0);
        bytes.extend(varint(tag, shortest + redundant));
        let body = match wire_type {
            0 => {
                let length = 1 + draw.below(10);
                let value = draw.below(1 << 30) as u64;
                bytes.extend(varint(value, length));
                0
            }
            1 => 8,
            2 => {
                let most = if draw.below(3) == 0 { 300 } else { 60 };
                let body = draw.below(most);
                let length = if body < 128 { 1 + draw.below(4) } else { 2 + draw.below(3) };
                bytes.extend(varint(body as u64, length));
                body
            }
            _ => 4,
        };
        bytes.extend((0..body).map(|i| i as u8 | 0x40));
    }
    if draw.below(4) == 0 {
        bytes.truncate(draw.below(bytes.len() + 1));
    }
    bytes
}

#[test]
fn fields_of_packets() {
    let mut draw = Draw(3);
    let plain = Rules::new();
    let strict =
        Rules::new().reserve([3, 10, 700]).expect_wire_type(8, WireType::Varint).max_length_bytes(50);
    let mut clean = 0;
    for round in 0..20_000 {
        let bytes = packet(&mut draw);
        let rules = if round % 2 == 0 { &plain } else { &strict };
        let (front, back) = bytes.split_at(draw.below(bytes.len() + 1));
        for slices in [&[&bytes[..]][..], &[front, back][..]] {
            let answer = fields::naive::scan(slices, rules);
            clean += usize::from(answer.is_ok());
            for tried in scans() {
                assert_eq!((tried.run)(slices, rules), answer, "{}: {slices:?}", tried.name);
            }
        }
    }
    assert!(
        (4_000..36_000).contains(&clean),
        "{clean} of 40,000 are clean: too many or too few to tell anything"
    );
}

#[test]
fn random_bytes() {
    let mut draw = Draw(4);
    let rules = Rules::new();
    for _ in 0..20_000 {
        let bytes: Vec<u8> =
            (0..draw.below(200)).map(|_| draw.below(256) as u8 & draw.below(256) as u8).collect();
        let answer = expected(&bytes, 80);
        for tried in walks() {
            let mut spans = vec![Span::default(); 80];
            let found = (tried.run)(&bytes, 80, &mut spans);
            assert_eq!(
                (found, &spans[..found.fragments]),
                (answer.0, &answer.1[..]),
                "{}: {bytes:?}",
                tried.name
            );
        }
        for tried in scans() {
            assert_eq!(
                (tried.run)(&[&bytes], &rules),
                fields::naive::scan(&[&bytes], &rules),
                "{}",
                tried.name
            );
        }
    }
}
