//! The walk of every level against its oracle, and the oracle against hand-written answers.

mod common;

use common::{Random, cases, levels, push_varint, small};
use watershed_simd::Kernels;
use watershed_simd::walk::{DROP_MARKER, Job, Span, Stop, Walk, naive, placed, walk, walk_raw};

/// A job's answer is that of the naive twin on its chunk.
#[track_caller]
fn check_job(kernels: Kernels, job: &Job<'_>, bytes: &[u8], limit: usize, seed: u64) {
    let (found, spans) = answer(bytes, limit.min(bytes.len() + 1));
    assert_eq!((job.found(), job.spans()), (found, &spans[..]), "{}, seed {seed}", kernels.level());
}

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

fn check_many(kernels: &[Kernels], chunks: &[(Vec<u8>, usize)]) {
    for kernels in kernels {
        let mut spans: Vec<Vec<Span>> =
            chunks.iter().map(|(b, limit)| vec![Span::default(); (*limit).min(b.len() + 1)]).collect();
        let mut jobs: Vec<Job<'_>> =
            chunks.iter().zip(&mut spans).map(|((b, limit), s)| Job::new(b, *limit, s)).collect();
        kernels.walk_many(&mut jobs);
        for (job, (bytes, limit)) in jobs.iter().zip(chunks) {
            let answer = answer(bytes, (*limit).min(bytes.len() + 1));
            assert!(
                (job.found(), job.spans()) == (answer.0, &answer.1[..]),
                "{}: {job:?} for {answer:?}",
                kernels.level()
            );
        }
    }
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
    assert!(!Stop::DropMarker.is_malformed());
    assert_eq!(stop_of(&[0xfe, 0xff, 0xff, 0x7f], 1), (0, 0, Stop::OutOfBounds));
}

#[test]
fn few_spans_limit_the_walk() {
    let mut spans = [Span::default(); 2];
    let expected = Walk { fragments: 2, visible_bytes: 2, stop: Stop::Limit };
    assert_eq!(walk(&[0, 0, 0], 3, &mut spans), expected);
    assert_eq!(Job::new(&[0, 0, 0], 3, &mut spans).found().fragments, 0);
    // SAFETY: the slices' own ranges.
    assert_eq!(unsafe { walk_raw([0, 0, 0].as_ptr(), 3, 2, spans.as_mut_ptr()) }, expected);
}

#[test]
fn offsets_are_the_sums_of_totals() {
    let (_, spans) = check(&levels(), &[2, 0, 0, 0, 0x81, 0x00, 7], 9);
    assert_eq!(
        placed(&spans).map(|(at, s)| (at, s.body_bytes())).collect::<Vec<_>>(),
        [(0, 2), (3, 0), (4, 1)]
    );
}

/// Every string of up to five bytes over the bytes that matter, alone and behind ten fragments that let the faster gaits begin.
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
fn random_batches() {
    let kernels = levels();
    for seed in 0..cases(400) {
        let mut random = Random::new(seed);
        let chunks: Vec<_> = (0..random.below(50)).map(|_| chunk(&mut random)).collect();
        check_many(&kernels, &chunks);
    }
}

/// Batches of small fragments alone, and with longer ones strewn in, of every number: the walks for few and for many dense chunks.
#[test]
fn batches_of_dense_chunks() {
    let kernels = levels();
    for seed in 0..cases(300) {
        let mut random = Random::new(seed);
        let shapes: &[usize] = [&[0, 1][..], &[1, 2, 7], &[7], &[1, 1, 1, 5]][seed as usize % 4];
        let count = seed as usize / 4 % 50;
        let chunks: Vec<_> =
            (0..count).map(|_| chunk_of(shapes[random.below(shapes.len())], &mut random)).collect();
        check_many(&kernels, &chunks);
    }
}

#[test]
fn batches_of_tiny_and_of_no_chunks() {
    let kernels = levels();
    check_many(&kernels, &[]);
    for len in 0..6 {
        check_many(&kernels, &vec![(vec![0; len], 9); 40]);
        check_many(&kernels, &vec![(vec![0xff; len], 9); 40]);
        check_many(&kernels, &vec![(vec![0; len], 0); 40]);
    }
    let mixed: Vec<_> = (0..40).map(|i| (vec![0; i % 6], i % 4)).collect();
    check_many(&kernels, &mixed);
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

/// Chunks that end, and spans that end, where the next byte faults; chunks that begin where the byte before faults.
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

#[cfg(unix)]
#[test]
fn batches_touch_nothing_outside() {
    use common::Guarded;
    let mut memory: Vec<(Guarded, Guarded)> =
        (0..34).map(|_| (Guarded::new(32 << 10), Guarded::new(16 << 10))).collect();
    for seed in 0..cases(60) {
        let mut random = Random::new(seed);
        let chunks: Vec<_> = (0..memory.len()).map(|_| chunk(&mut random)).collect();
        for kernels in levels() {
            let mut jobs: Vec<Job<'_>> = memory
                .iter_mut()
                .zip(&chunks)
                .enumerate()
                .map(|(i, ((bytes_at, spans_at), (bytes, limit)))| {
                    let bytes = &bytes[..bytes.len().min(32 << 10)];
                    let bytes = if i % 2 == 0 { bytes_at.at_end(bytes) } else { bytes_at.at_start(bytes) };
                    Job::new(
                        bytes,
                        *limit,
                        spans_at.slots_at_end((*limit).min(bytes.len() + 1), Span::default()),
                    )
                })
                .collect();
            kernels.walk_many(&mut jobs);
            for (job, (bytes, limit)) in jobs.iter().zip(&chunks) {
                let bytes = &bytes[..bytes.len().min(32 << 10)];
                check_job(kernels, job, bytes, *limit, seed);
            }
        }
    }
}

/// The first chunks of two mappings of 1.8 GiB are at least that far apart: more than 32-bit offsets of a batch reach.
#[cfg(all(unix, target_pointer_width = "64"))]
#[test]
fn chunks_too_far_apart_for_one_batch() {
    use common::Guarded;
    const WIDE_BYTES: usize = 1800 << 20;
    let mut wide = [Guarded::new(WIDE_BYTES), Guarded::new(WIDE_BYTES)];
    for seed in 0..cases(60) {
        let mut random = Random::new(seed);
        let chunks: Vec<_> = (0..2 + random.below(40)).map(|_| chunk(&mut random)).collect();
        for kernels in levels() {
            let most = chunks.iter().map(|(bytes, _)| bytes.len() + 1).max().unwrap_or(0);
            let mut spans = vec![vec![Span::default(); most]; chunks.len()];
            let far = wide.iter_mut().zip(&chunks).map(|(memory, (bytes, _))| memory.at_start(bytes));
            let near = chunks.iter().skip(2).map(|(bytes, _)| &bytes[..]);
            let mut places: Vec<&[u8]> = far.chain(near).collect();
            assert!(places[0].as_ptr().addr().abs_diff(places[1].as_ptr().addr()) >= WIDE_BYTES);
            let mut order: Vec<usize> = (0..chunks.len()).collect();
            let turns = seed as usize % 3 % chunks.len();
            places.rotate_left(turns);
            order.rotate_left(turns);
            let mut jobs: Vec<Job<'_>> = places
                .iter()
                .zip(&order)
                .zip(&mut spans)
                .map(|((bytes, &i), spans)| Job::new(bytes, chunks[i].1.min(bytes.len() + 1), spans))
                .collect();
            kernels.walk_many(&mut jobs);
            for (job, &i) in jobs.iter().zip(&order) {
                let (bytes, limit) = &chunks[i];
                check_job(kernels, job, bytes, *limit, seed);
            }
        }
    }
}
