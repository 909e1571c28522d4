use super::*;
use crate::{Level, Span, Stop};

/// A generator of random numbers, the same on each run.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

fn put_fragment(bytes: &mut Vec<u8>, header_bytes: usize, body_bytes: usize) {
    for i in 0..header_bytes {
        let more = if i + 1 < header_bytes { 0x80 } else { 0 };
        bytes.push((body_bytes >> (7 * i)) as u8 & 0x7f | more);
    }
    bytes.resize(bytes.len() + body_bytes, 0xee);
}

fn walk(kernels: Kernels, bytes: &[u8], count: usize) -> (usize, Vec<u16>) {
    let mut entries = vec![0; count];
    (kernels.walk_ordinary(bytes, &mut entries, LinesAhead::new(bytes.as_ptr())), entries)
}

/// Compares with the walk that takes everything. Whether the bytes were taken.
fn check(kernels: Kernels, bytes: &[u8], count: usize, what: &str) -> bool {
    let mut spans = vec![Span::default(); count];
    let found = kernels.walk(bytes, count, &mut spans);
    let (visible_bytes, entries) = walk(kernels, bytes, count);
    let (level, found_spans) = (kernels.level(), &spans[..found.fragments]);
    if visible_bytes != 0 {
        assert_eq!((found.fragments, found.stop), (count, Stop::Limit), "{level}, {what}");
        assert_eq!(found.visible_bytes, visible_bytes, "{level}, {what}");
        let expected = spans.iter().map(|span| (span.header_bytes() << 12 | span.total_bytes()) as u16);
        assert!(expected.eq(entries), "{level}, {what}");
    } else if found.fragments == count && count != 0 {
        let last = spans[count - 1].total_bytes();
        let is_special = |span: &Span| span.total_bytes() > MAX_ENTRY_BYTES || span.header_bytes() > 4;
        let is_near_the_end = found.visible_bytes - last + 8 > bytes.len();
        assert!(is_near_the_end || found_spans.iter().any(is_special), "{level}, {what}: refused");
    }
    visible_bytes != 0
}

#[test]
fn what_it_takes_is_what_the_walk_finds() {
    for level in Level::available() {
        let kernels = Kernels::at(level).expect("it is available");
        let (mut random, mut taken) = (numbers(7), 0);
        for round in 0..4000 {
            let mut bytes = Vec::new();
            let count = 1 + random(if round % 10 == 0 { 1000 } else { 120 }) as usize;
            let longest = [12, 64, 128, 500][random(4) as usize];
            let long_headers = [0, 0, 20, 2][random(4) as usize];
            for _ in 0..count {
                let body = random(longest) as usize;
                let least = if body < 128 { 1 } else { 2 };
                let is_long = long_headers != 0 && random(long_headers) == 0;
                let header = if is_long { least + random(5 - least as u64) as usize } else { least };
                put_fragment(&mut bytes, header, body);
            }
            bytes.resize(bytes.len() + random(20) as usize, random(256) as u8);
            if round % 5 == 0 {
                let at = random(bytes.len() as u64) as usize;
                bytes[at] = random(256) as u8;
            }
            if round % 7 == 0 {
                bytes.truncate(random(bytes.len() as u64) as usize);
            }
            taken += u32::from(check(kernels, &bytes, count, &format!("round {round}")));
        }
        assert!(taken > 2000, "{level}: {taken} of 4000");
    }
}

/// Headers of two, three and four bytes, and sizes that are none, at every place of a group,
/// the first, one in the middle and the last of a chunk.
#[test]
fn every_place_of_a_group() {
    const COUNT: usize = 6 * GROUP + 3;
    for kernels in Level::available().filter_map(Kernels::at) {
        for place in 0..COUNT {
            for header in 1..=5 {
                for body in [0, 1, 60, 127, 128, 300, 4091, 4094, 4096] {
                    if header == 1 && body > 127 {
                        continue;
                    }
                    let mut bytes = Vec::new();
                    for i in 0..COUNT {
                        let (header, body) = if i == place { (header, body) } else { (1, i * 7 % 90) };
                        put_fragment(&mut bytes, header, body);
                    }
                    let what = format!("place {place}, header {header}, body {body}");
                    let is_ordinary = header <= 4 && header + body <= MAX_ENTRY_BYTES;
                    let taken = check(kernels, &bytes, COUNT, &what);
                    assert!(taken || !is_ordinary || place + 1 == COUNT, "{what}");
                    assert!(!taken || header + body <= MAX_ENTRY_BYTES, "{what}");
                    // The same with the header as the last byte, and with one that never ends.
                    bytes.truncate(bytes.len() - (COUNT - 1 - place) / 2);
                    check(kernels, &bytes, COUNT, &what);
                    let at = bytes.len() * place / COUNT;
                    bytes[at..].iter_mut().take(9).for_each(|byte| *byte = 0x80);
                    check(kernels, &bytes, COUNT, &what);
                }
            }
        }
    }
}

#[test]
fn dense_chunks_of_every_length() {
    for kernels in Level::available().filter_map(Kernels::at) {
        // Empty fragments, one byte, and the longest of one byte, up to the largest chunk.
        for (body, counts) in [(0, 1100), (1, 1100), (27, 1100), (126, 520), (127, 511)] {
            let mut bytes = Vec::new();
            for count in 1..=counts {
                put_fragment(&mut bytes, 1, body);
                if count > 200 && count % 37 != 0 {
                    continue;
                }
                for behind in [0, 1, 7, 8, 40, 2000] {
                    let mut longer = bytes.clone();
                    longer.resize(bytes.len() + behind, 0x85);
                    let taken = check(kernels, &longer, count, &format!("{count} of {body}"));
                    assert!(taken || behind + body < 8, "{count} of {body}, {behind} behind");
                    assert!(walk(kernels, &longer[..bytes.len() - 1], count).0 == 0);
                }
            }
        }
    }
}

#[test]
fn what_is_not_ordinary_is_refused() {
    let mut whole = Vec::new();
    put_fragment(&mut whole, 4, 3000);
    let mut marker = vec![0xff, 0xff, 0xff, 0x7f];
    marker.resize(100, 0);
    for level in Level::available() {
        let kernels = Kernels::at(level).expect("it is available");
        let walk = |bytes: &[u8], count: usize| walk(kernels, bytes, count).0;
        assert_eq!(walk(&whole, 1), 3004, "{level}");
        assert_eq!(walk(&[whole.as_slice(), &[0; 2000]].concat(), 1), 3004, "{level}: bytes behind it");
        assert_eq!(walk(&whole[..3003], 1), 0, "{level}: a body that ends behind the bytes");
        assert_eq!(walk(&whole, 2), 0, "{level}: no second fragment");
        assert_eq!(walk(&whole, 0), 0, "{level}: no fragment");
        assert_eq!(walk(&marker, 1), 0, "{level}: the drop marker");
        assert_eq!(walk(&[0x80; 100], 1), 0, "{level}: a header without an end");
        assert_eq!(walk(&[0x80; 2000], 200), 0, "{level}: headers without an end");
    }
}
