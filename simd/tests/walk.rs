//! The walk against its oracle, and the oracle against hand-written answers.

use watershed_simd::walk::{DROP_MARKER, Span, Stop, Walk, naive, placed, walk};

fn both(bytes: &[u8], limit: usize) -> (Walk, Vec<Span>) {
    let mut expected = vec![Span::default(); limit.min(2048)];
    let answer = naive::walk(bytes, limit, &mut expected);
    expected.truncate(answer.fragments);
    let mut spans = vec![Span::default(); limit.min(2048)];
    let found = walk(bytes, limit, &mut spans);
    spans.truncate(found.fragments);
    assert_eq!((found, &spans), (answer, &expected), "bytes {bytes:02x?}, limit {limit}");
    (found, spans)
}

fn stop_of(bytes: &[u8], limit: usize) -> (usize, usize, Stop) {
    let (w, _) = both(bytes, limit);
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
    let (_, spans) = both(&[0x83, 0x80, 0x80, 0x00, 1, 2, 3, 0], 9);
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
    assert!(!Stop::DropMarker.is_malformed());
    assert_eq!(stop_of(&[0xfe, 0xff, 0xff, 0x7f], 1), (0, 0, Stop::OutOfBounds));
}

#[test]
fn few_spans_limit_the_walk() {
    let mut spans = [Span::default(); 2];
    assert_eq!(walk(&[0, 0, 0], 3, &mut spans), Walk { fragments: 2, visible_bytes: 2, stop: Stop::Limit });
}

#[test]
fn offsets_are_the_sums_of_totals() {
    let (_, spans) = both(&[2, 0, 0, 0, 0x81, 0x00, 7], 9);
    assert_eq!(
        placed(&spans).map(|(at, s)| (at, s.body_bytes())).collect::<Vec<_>>(),
        [(0, 2), (3, 0), (4, 1)]
    );
}

/// Every string of up to five bytes over the bytes that matter: terminators, sizes near the bounds, continuation bits.
#[test]
fn exhaustive_short_inputs() {
    const ALPHABET: [u8; 9] = [0, 1, 2, 4, 0x7f, 0x80, 0x81, 0x82, 0xff];
    for len in 0..=5u32 {
        for mut n in 0..ALPHABET.len().pow(len) {
            let mut bytes = [0; 5];
            for byte in &mut bytes[..len as usize] {
                *byte = ALPHABET[n % ALPHABET.len()];
                n /= ALPHABET.len();
            }
            for limit in [0, 1, 3, 9] {
                both(&bytes[..len as usize], limit);
            }
        }
    }
}
