use super::*;
use crate::Level;

/// Fragments of these bodies, with headers of two bytes, and some bytes behind them.
fn chunk(bodies: &[usize], behind: usize) -> Vec<u8> {
    chunk_with_headers(&bodies.iter().map(|&body| (2, body)).collect::<Vec<_>>(), behind)
}

/// Fragments with headers of so many bytes and such bodies, and some bytes behind them.
fn chunk_with_headers(fragments: &[(usize, usize)], behind: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(header_bytes, body_bytes) in fragments {
        for i in 0..header_bytes {
            let more = if i + 1 < header_bytes { 0x80 } else { 0 };
            bytes.push((body_bytes >> (7 * i)) as u8 & 0x7f | more);
        }
        // No byte of the copy is right at another place.
        bytes.extend((bytes.len()..).map(|at| (at % 251) as u8).take(body_bytes));
    }
    bytes.resize(bytes.len() + behind, 0x44);
    bytes
}

fn nothing() -> LinesAhead {
    LinesAhead::new(std::ptr::null())
}

fn has_any(level: Level) -> bool {
    matches!(level, Level::Avx2 | Level::Avx512)
}

#[test]
fn it_takes_what_the_ordinary_walk_takes() {
    let mut random = 7u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for level in Level::available() {
        let kernels = Kernels::at(level).expect("it is available");
        let (mut headers, mut taken) = (Headers::default(), 0);
        for round in 0..6000 {
            // From one line of the source a header to more than are asked for beside it.
            let longest = [120, 200, 300, 400, 1000][next(5) as usize];
            let long_headers = [0, 0, 30, 2][next(4) as usize];
            let most = if round % 8 == 0 && longest <= 200 { 300 } else { 60 };
            let fragments: Vec<(usize, usize)> = (0..1 + next(most))
                .map(|_| {
                    let body_bytes = next(longest) as usize;
                    let header_bytes = if body_bytes < 128 { 1 } else { 2 };
                    let is_long = long_headers != 0 && next(long_headers) == 0;
                    (header_bytes + if is_long { next(4) as usize } else { 0 }, body_bytes)
                })
                .collect();
            let mut bytes = chunk_with_headers(&fragments, next(20) as usize);
            if round % 3 == 0 {
                let at = next(bytes.len() as u64) as usize;
                bytes[at] = next(256) as u8;
            }
            let (mut expected, mut entries) = (vec![0; fragments.len()], vec![0; fragments.len()]);
            let visible_bytes = kernels.walk_ordinary(&bytes, &mut expected, nothing());
            let fetched = headers.fetch(kernels, bytes.as_slice().into(), &mut entries, nothing());
            let Some(fetched) = fetched else {
                let last = expected.last().map_or(0, |entry| entry & 0xfff);
                let is_short =
                    walk::is_dense(fragments.len(), bytes.len()) && bytes.len() < LEAST_DENSE_BYTES;
                assert!(!has_any(level) || is_short || visible_bytes < 64 || last < 8, "{level}, {round}");
                continue;
            };
            taken += 1;
            assert!(has_any(level) && fetched.visible_bytes() == visible_bytes, "{level}, {round}");
            assert_eq!(entries, expected, "{level}, {round}");
            let mut copy = vec![0xee; visible_bytes + 64];
            // SAFETY: there is room, and nobody else knows of it.
            unsafe { fetched.copy_to(copy.as_mut_ptr()) };
            assert!(copy[..visible_bytes] == bytes[..visible_bytes], "{level}, {round}");
            assert!(copy[visible_bytes..].iter().all(|&byte| byte == 0xee), "{level}, {round}: behind it");
        }
        assert!(taken > 3000 || !has_any(level), "{level}: {taken} of 6000");
    }
}

#[test]
fn headers_that_change_meanwhile_are_those_that_were_fetched() {
    // The shortest fragments lie in the word of the header before.
    let all = [&[100, 50, 60][..], &[0, 0, 1, 2, 0, 70], &[5, 4, 3, 2, 1, 0, 62]];
    let sparse = all.map(|bodies| (bodies.to_vec(), 128 * bodies.len()));
    let dense = all.map(|bodies| (bodies.repeat(20), 9));
    for (bodies, behind) in sparse.into_iter().chain(dense) {
        let before = chunk(&bodies, behind);
        let visible_bytes = before.len() - behind;
        for level in Level::available().filter(|level| has_any(*level)) {
            let kernels = Kernels::at(level).expect("it is available");
            let (mut headers, mut entries) = (Headers::default(), vec![0; bodies.len()]);
            let mut there = before.clone();
            let start = there.as_mut_ptr();
            // SAFETY: the memory is used by this pointer alone until all is done.
            let bytes = unsafe { SharedBytes::new(start, there.len()) };
            let fetched = headers.fetch(kernels, bytes, &mut entries, nothing()).expect("an ordinary chunk");
            // SAFETY: as above.
            unsafe { start.write_bytes(0xff, before.len()) };
            let mut copy = vec![0; visible_bytes];
            // SAFETY: there is room, and nobody else knows of it.
            unsafe { fetched.copy_to(copy.as_mut_ptr()) };
            let mut again = vec![0; bodies.len()];
            assert_eq!(kernels.walk_ordinary(&copy, &mut again, nothing()), visible_bytes, "{level}");
            assert_eq!(again, entries, "{level}");
            // Bodies may be of any moment, but for those of a private copy.
            let is_private = walk::is_dense(bodies.len(), before.len());
            assert!(copy.last() == Some(&0xff) || is_private && copy == before[..visible_bytes], "{level}");
        }
    }
}

#[test]
fn long_chunks_are_copied_whole() {
    for level in Level::available().filter(|level| has_any(*level)) {
        let kernels = Kernels::at(level).expect("it is available");
        let many = [(130, 124), (130, 125), (130, 496), (250, 100), (317, 100), (60, 1000)];
        // The copy asks for lines of the target, if there are as many fragments or fewer.
        let few = [(318, 25), (318, 26), (318, 200), (1000, 30), (4000, 2), (4093, 3), (4093, 16)];
        for (body_bytes, count) in many.into_iter().chain(few) {
            let bytes = chunk(&vec![body_bytes; count], 0);
            let (mut headers, mut entries) = (Headers::default(), vec![0; count]);
            let fetched = headers.fetch(kernels, bytes.as_slice().into(), &mut entries, nothing());
            for place in [0, 16, 63] {
                let mut target = vec![0xee; place + bytes.len() + 64];
                // SAFETY: there is room, and nobody else knows of it.
                unsafe { fetched.expect("an ordinary chunk").copy_to(target[place..].as_mut_ptr()) };
                let (copy, behind) = target[place..].split_at(bytes.len());
                assert!(copy == bytes, "{level}, {count} of {body_bytes}");
                let beside = target[..place].iter().chain(behind);
                assert!(beside.into_iter().all(|&byte| byte == 0xee), "{level}, {count} of {body_bytes}");
            }
        }
    }
}

#[test]
fn a_long_chunk_may_have_few_bytes_that_count() {
    for level in Level::available().filter(|level| has_any(*level)) {
        let kernels = Kernels::at(level).expect("it is available");
        for (bodies, behind) in [(vec![300], 9_000), (vec![300], 30_000), (vec![90, 4000], 20_000)] {
            let bytes = chunk(&bodies, behind);
            let visible_bytes = bytes.len() - behind;
            let (mut headers, mut entries) = (Headers::default(), vec![0; bodies.len()]);
            let fetched = headers.fetch(kernels, bytes.as_slice().into(), &mut entries, nothing());
            let fetched = fetched.expect("an ordinary chunk");
            assert_eq!(fetched.visible_bytes(), visible_bytes, "{level}, {behind}");
            let mut copy = vec![0xee; visible_bytes + 64];
            // SAFETY: there is room, and nobody else knows of it.
            unsafe { fetched.copy_to(copy.as_mut_ptr()) };
            assert!(copy[..visible_bytes] == bytes[..visible_bytes], "{level}, {behind}");
            assert!(copy[visible_bytes..].iter().all(|&byte| byte == 0xee), "{level}, {behind}");
        }
    }
}

/// Large fragments among many small ones: the walk is ahead of the copy, and ends long before it.
#[test]
fn what_is_walked_has_been_copied() {
    for level in Level::available().filter(|level| has_any(*level)) {
        let kernels = Kernels::at(level).expect("it is available");
        for (large, is_short) in (0..8).flat_map(|large| [(large, false), (large, true)]) {
            let small = if is_short { vec![(1, 0); 1000] } else { vec![(1, 10); 600] };
            let fragments = [vec![(2, 4000); large], small, vec![(2, 100); 1]].concat();
            let bytes = chunk_with_headers(&fragments, large);
            let mut expected = vec![0; fragments.len()];
            let visible_bytes = kernels.walk_ordinary(&bytes, &mut expected, nothing());
            let (mut headers, mut entries) = (Headers::default(), vec![0; fragments.len()]);
            let fetched = headers.fetch(kernels, bytes.as_slice().into(), &mut entries, nothing());
            let fetched = fetched.expect("an ordinary chunk");
            assert_eq!((fetched.visible_bytes(), entries), (visible_bytes, expected), "{level}, {large}");
            let mut copy = vec![0; visible_bytes];
            // SAFETY: there is room, and nobody else knows of it.
            unsafe { fetched.copy_to(copy.as_mut_ptr()) };
            assert!(copy == bytes[..visible_bytes], "{level}, {large}");
        }
    }
}

#[test]
fn no_byte_behind_the_first_ones_counts() {
    let bytes = chunk(&[300, 50, 60], 0);
    let (mut headers, mut entries) = (Headers::default(), [0; 3]);
    for level in Level::available().filter(|level| has_any(*level)) {
        let kernels = Kernels::at(level).expect("it is available");
        for (len, is_taken) in [(bytes.len() + 1, true), (bytes.len(), true), (bytes.len() - 1, false)] {
            let first = SharedBytes::from(bytes.as_slice()).first(len);
            assert_eq!(
                headers.fetch(kernels, first, &mut entries, nothing()).is_some(),
                is_taken,
                "{level} {len}"
            );
        }
    }
}

#[test]
fn chunks_that_are_none_for_it_are_left_to_others() {
    for level in Level::available() {
        let kernels = Kernels::at(level).expect("it is available");
        let is_taken = |bytes: &[u8], count: usize| {
            Headers::default().fetch(kernels, bytes.into(), &mut vec![0; count], nothing()).is_some()
        };
        let whole = chunk(&[300, 20], 0);
        assert_eq!(is_taken(&whole, 2), has_any(level));
        assert!(!is_taken(&whole, 3) && !is_taken(&whole, 0) && !is_taken(&whole[..60], 1), "{level}");
        assert!(!is_taken(&whole[..whole.len() - 1], 2), "{level}: a body that ends behind the bytes");
        assert!(!is_taken(&chunk(&[300, 5], 50), 2), "{level}: a last one of seven bytes");
        let dense = [vec![20; 100], vec![5]].concat();
        assert_eq!(is_taken(&chunk(&dense, 50), 101), has_any(level), "{level}: the same in a dense one");
        assert!(!is_taken(&chunk(&dense[60..], 50), 41), "{level}: a short dense one");
        assert!(!is_taken(&chunk(&[20, 20], 50), 2), "{level}: too few bytes to copy");
        assert_eq!(is_taken(&chunk(&[20; 2000], 50), 2000), has_any(level), "{level}: many fragments");
        assert!(!is_taken(&[0x80; 100], 1), "{level}: a header without an end");
        assert_eq!(is_taken(&chunk(&[4093; 16], 0), 16), has_any(level), "{level}: a large one");
        assert!(!is_taken(&chunk(&[4093; 16], 51), 16), "{level}: one of more than 65,536 bytes");
        assert!(!is_taken(&chunk(&[4094, 80], 0), 2), "{level}: too large a fragment");
        assert!(!is_taken(&chunk(&[80, 4094], 0), 2), "{level}: too large a last one");
        for high_bit in [0x20, 0x40] {
            let mut bytes = chunk(&[130; 40], 0);
            assert_eq!(is_taken(&bytes, 40), has_any(level));
            bytes[10 * 132 + 1] |= high_bit;
            assert!(!is_taken(&bytes, 40), "{level}: one of so many is too large");
        }
    }
}
