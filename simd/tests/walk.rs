//! The walk of every level against its oracle, and the oracle against hand-written answers.

mod common;

use common::{Random, cases, levels, push_varint, small};
use watershed_simd::Kernels;
use watershed_simd::walk::{DROP_MARKER, Span, Stop, Walk, naive, walk};

fn answer(bytes: &[u8], limit: usize) -> (Walk, Vec<Span>) {
    let mut spans = vec![Span::default(); limit.min(bytes.len() + 1)];
    let found = naive::walk(bytes, limit, &mut spans);
    spans.truncate(found.fragments);
    (found, spans)
}

fn check(kernels: &[Kernels], bytes: &[u8], limit: usize) -> (Walk, Vec<Span>) {
    let answer = answer(bytes, limit);
    for kernels in kernels {
        let mut spans = vec![Span::default(); limit.min(bytes.len() + 1)];
        let found = kernels.walk(bytes, limit, &mut spans);
        spans.truncate(found.fragments);
        assert!(
            (found, &spans) == (answer.0, &answer.1),
            "{}: {found:?} {spans:?} for {answer:?}, limit {limit}: {bytes:02x?}",
            kernels.level()
        );
    }
    answer
}

fn stop_of(bytes: &[u8], limit: usize) -> (usize, usize, Stop) {
    let (w, _) = check(&levels(), bytes, limit);
    (w.fragments, w.visible_bytes, w.stop)
}

#[test]
fn stops_are_told_apart() {
    assert_eq!(stop_of(&[], 0), (0, 0, Stop::Limit));
    assert_eq!(stop_of(&[], 1), (0, 0, Stop::End));
    assert_eq!(stop_of(&[1, 9], 1), (1, 2, Stop::Limit));
    assert_eq!(stop_of(&[1, 9], 2), (1, 2, Stop::End));
    assert_eq!(stop_of(&[1, 9, 0, 0, 2], 3), (3, 4, Stop::Limit));
    assert_eq!(stop_of(&[1, 9, 0, 0, 2], 4), (3, 4, Stop::OutOfBounds));
    assert_eq!(stop_of(&[1, 9, 0x80], 4), (1, 2, Stop::TruncatedHeader));
    assert_eq!(stop_of(&[0xff; 9], 4), (0, 0, Stop::TruncatedHeader));
    assert_eq!(stop_of(&[0xff; 10], 4), (0, 0, Stop::OverlongHeader));
    assert_eq!(stop_of(&[0, 0xff, 0xff, 0xff, 0x7f], 4), (1, 1, Stop::DropMarker));
    assert_eq!(stop_of(&[0xff, 0xff, 0xff, 0xff, 0x80, 0x80, 0x00], 4), (0, 0, Stop::DropMarker));
    assert_eq!(
        stop_of(&[0xff, 0xff, 0xff, 0xff, 0x00], 4),
        (0, 0, Stop::DropMarker),
        "a redundant encoding of the marker"
    );
}

#[test]
fn redundant_headers_and_the_tenth_byte() {
    let (_, spans) = check(&levels(), &[0x83, 0x80, 0x80, 0x00, 1, 2, 3, 0], 9);
    assert_eq!(spans, [Span::new(4, 7), Span::new(1, 1)]);
    // Of the tenth byte only the lowest bit counts: 0x7e has none, 0x01 is 2^63.
    let mut ten = [0x80; 10];
    ten[9] = 0x7e;
    assert_eq!(stop_of(&ten, 9), (1, 10, Stop::End));
    ten[9] = 0x01;
    assert_eq!(stop_of(&ten, 9), (0, 0, Stop::OutOfBounds));
}

#[test]
fn marker_wins_over_bounds_and_is_not_a_size() {
    assert_eq!(DROP_MARKER, (1 << 28) - 1);
    assert_eq!(stop_of(&[0xfe, 0xff, 0xff, 0x7f], 1), (0, 0, Stop::OutOfBounds));
}

#[test]
fn few_spans_limit_the_walk() {
    let mut spans = [Span::default(); 2];
    let expected = Walk { fragments: 2, visible_bytes: 2, stop: Stop::Limit };
    assert_eq!(walk(&[0, 0, 0], 3, &mut spans), expected);
}

/// Every string of up to five bytes over the bytes that matter, alone and behind ten fragments, so
/// that the faster loops run too.
#[test]
fn exhaustive_short_inputs() {
    const ALPHABET: [u8; 9] = [0, 1, 2, 4, 0x7f, 0x80, 0x81, 0x82, 0xff];
    let kernels = levels();
    let prefixes: [&[u8]; 3] = [
        &[],
        &[0, 1, 7, 0, 0, 2, 7, 7, 0, 0, 0, 0, 0, 0],
        &[0x81, 0, 7, 0x80, 0, 0x82, 0x80, 0, 7, 7, 0x80, 0, 0x80, 0],
    ];
    for len in 0..=if small() { 3 } else { 5u32 } {
        for n in 0..ALPHABET.len().pow(len) {
            let mut rest = n;
            let tail: Vec<u8> = (0..len)
                .map(|_| {
                    let byte = ALPHABET[rest % ALPHABET.len()];
                    rest /= ALPHABET.len();
                    byte
                })
                .collect();
            for prefix in prefixes {
                let bytes = [prefix, &tail].concat();
                check(&kernels, &bytes, 64);
                if len < 5 {
                    check(&kernels, &bytes, bytes.len() / 2);
                }
            }
        }
    }
}

/// A chunk of fragments whose sizes and headers follow one of several shapes, sometimes damaged.
fn chunk(random: &mut Random) -> (Vec<u8>, usize) {
    let shape = random.below(8);
    chunk_of(shape, random)
}

fn chunk_of(shape: usize, random: &mut Random) -> (Vec<u8>, usize) {
    let size = [30, 300, 4080, 20_000][random.below(4)];
    let mut bytes = Vec::new();
    let mut count = 0;
    while bytes.len() < size && count < 1023 {
        let (body, header) = match shape {
            0 => (random.below(8), 1),
            1 => (random.below(40), 1),
            2 => (random.below(128), 1),
            3 => (random.range(128, 500), 2),
            4 => (random.range(50, 500), 4),
            5 => (random.below(300), [1, 2, 4][random.below(3)]),
            6 => (random.below(300), random.range(1, 10)),
            _ => (if random.below(20) == 0 { 200 } else { random.below(30) }, 1),
        };
        push_varint(&mut bytes, body as u64, header);
        let noise = random.next();
        bytes.extend((0..body).map(|i| (noise >> (i % 57)) as u8));
        count += 1;
    }
    let limit = [count, count, 1023, random.below(count + 2)][random.below(4)];
    match random.below(8) {
        0 => bytes.truncate(random.below(bytes.len() + 1)),
        1 => {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        2 => {
            let at = random.below(bytes.len());
            let end = (at + 12).min(bytes.len());
            bytes[at..end].fill([0xff, 0x80, 0x00][random.below(3)]);
        }
        3 => bytes.extend([0xff, 0xff, 0xff, 0x7f]),
        _ => {}
    }
    (bytes, limit)
}

#[test]
fn random_chunks() {
    let kernels = levels();
    for seed in 0..cases(3000) {
        let mut random = Random::new(seed);
        let (bytes, limit) = chunk(&mut random);
        check(&kernels, &bytes, limit);
    }
}

#[test]
fn random_bytes() {
    let kernels = levels();
    for seed in 0..cases(20_000) {
        let mut random = Random::new(seed);
        let mask = [0xff, 0x7f, 0x3f, 0x0f, 0x83][random.below(5)];
        let bytes: Vec<u8> = (0..random.below(700)).map(|_| random.next() as u8 & mask).collect();
        check(&kernels, &bytes, 1023);
    }
}

/// Chunks that end, and spans that end, where the next byte faults; chunks that begin where the
/// byte before faults.
#[cfg(unix)]
#[test]
fn nothing_is_touched_outside() {
    use common::Guarded;
    let mut below = Guarded::new(32 << 10);
    let mut above = Guarded::new(32 << 10);
    let mut slots = Guarded::new(16 << 10);
    for seed in 0..cases(2000) {
        let mut random = Random::new(seed);
        let (bytes, limit) = chunk(&mut random);
        let bytes = &bytes[..bytes.len().min(32 << 10)];
        let (found, expected) = answer(bytes, limit);
        for kernels in levels() {
            for bytes in [below.at_start(bytes), above.at_end(bytes)] {
                let spans = slots.slots_at_end(limit.min(bytes.len() + 1), Span::default());
                assert_eq!(kernels.walk(bytes, limit, spans), found, "{}, seed {seed}", kernels.level());
                assert_eq!(spans[..found.fragments], expected[..]);
            }
        }
    }
}

/// The same of the ordinary walk and of the fetch of headers, at the end of each chunk and behind a
/// cut anywhere.
#[cfg(unix)]
#[test]
fn nothing_is_touched_outside_of_ordinary_chunks() {
    use common::Guarded;
    use watershed_simd::prefetch::LinesAhead;
    use watershed_simd::shared::Headers;
    let mut below = Guarded::new(32 << 10);
    let mut above = Guarded::new(32 << 10);
    let mut slots = Guarded::new(16 << 10);
    let mut headers = Headers::default();
    for seed in 0..cases(6000) {
        let mut random = Random::new(seed);
        let (longest, count) = ([3, 60, 127, 400][random.below(4)], random.range(1, 200));
        let mut bytes = Vec::new();
        for _ in 0..count {
            let body = random.below(longest + 1);
            push_varint(&mut bytes, body as u64, if random.below(30) == 0 { random.range(1, 4) } else { 1 });
            bytes.resize(bytes.len() + body, 0x7f);
        }
        bytes.truncate(32 << 10);
        if random.below(3) != 0 {
            bytes.truncate(random.below(bytes.len() + 1));
        }
        for kernels in levels() {
            for bytes in [below.at_start(&bytes), above.at_end(&bytes)] {
                let ahead = LinesAhead::new(bytes.as_ptr());
                let (found, expected) = answer(bytes, count);
                let entries = slots.slots_at_end(count, 0_u16);
                let walked = kernels.walk_ordinary(bytes, entries, ahead);
                assert!(walked == 0 || walked == found.visible_bytes, "{}, seed {seed}", kernels.level());
                assert!(walked == 0 || expected.len() == count, "{}, seed {seed}", kernels.level());
                let fetched = headers.fetch(kernels, bytes.into(), entries, ahead);
                let fetched = fetched.map_or(0, |fetched| fetched.visible_bytes());
                assert!(fetched == 0 || fetched == walked, "{}, seed {seed}", kernels.level());
            }
        }
    }
}
