use super::*;

#[test]
fn a_region_is_zero_and_writable_to_its_ends() {
    for size in [1, 4096, 4097, 3 << 20] {
        for pages in [HugePages::No, HugePages::Advise, HugePages::Explicit] {
            let mut region = Region::map(size, pages).unwrap();
            assert_eq!(region.as_slice().len(), size);
            assert!(region.as_slice().iter().all(|&byte| byte == 0));
            region.as_mut_slice()[size - 1] = 7;
            region.as_mut_slice()[0] = 7;
        }
    }
}

#[test]
fn a_larger_page_size_moves_base_and_guards() {
    let large = 16 * 1024;
    let region = Region::map_with_page_size(5000, HugePages::No, large).unwrap();
    assert_eq!(region.base().addr() % large, 0);
    let outer = region.0.outer.as_mut_ptr().addr();
    assert!(region.base().addr() - outer >= large);
    assert!(outer + region.0.outer.len() - (region.base().addr() + large) >= large);
}

#[test]
fn nothing_is_mapped_for_no_bytes_or_too_many() {
    assert_eq!(Region::map(0, HugePages::No).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert!(Region::map(usize::MAX - 10, HugePages::Advise).is_err());
    assert!(Region::map(usize::MAX / 2, HugePages::Explicit).is_err());
}

#[test]
fn what_was_got_is_reported() {
    let small = Region::map(4096, HugePages::Advise).unwrap();
    assert_eq!(small.granted(), HugePages::No, "one page is no huge page");
    let explicit = Region::map(4 << 20, HugePages::Explicit).unwrap();
    let has_pool = huge::has_pool_for(4 << 20);
    assert_eq!(explicit.granted() == HugePages::Explicit, has_pool);
    if cfg!(target_os = "linux") {
        assert_ne!(explicit.granted(), HugePages::No);
    }
}

/// An emulator that takes every advice and does nothing, as QEMU's for programs, has no guards.
#[cfg(unix)]
fn takes_any_advice() -> bool {
    const NO_ADVICE: libc::c_int = 12345;
    let region = Region::map(4096, HugePages::No).unwrap();
    // SAFETY: a page of ours, and a number that means nothing.
    unsafe { libc::madvise(region.base().cast(), 4096, NO_ADVICE) == 0 }
}

/// Guards are real: the system itself cannot read there.
#[cfg(unix)]
#[test]
fn both_sides_are_guarded() {
    use std::os::fd::AsRawFd as _;

    if takes_any_advice() {
        return;
    }
    for pages in [HugePages::No, HugePages::Advise] {
        let region = Region::map(2 << 20, pages).unwrap();
        let outer = region.0.outer.as_mut_ptr();
        let head = region.base().addr() - outer.addr();
        let tail = head + (2 << 20);
        let can_be_read = |offset: usize| {
            let (_reader, writer) = io::pipe().unwrap();
            // SAFETY: the address lies in the mapping; where it must not be read, write says so.
            let written = unsafe { libc::write(writer.as_raw_fd(), outer.add(offset).cast(), 1) };
            written == 1
        };
        let guards = [0, head - 1, tail, region.0.outer.len() - 1];
        assert_eq!(guards.map(can_be_read), [false; 4], "{pages:?}");
        assert_eq!([head, tail - 1].map(can_be_read), [true; 2], "{pages:?}");
    }
}

/// Whether the page at `offset` has memory behind it.
#[cfg(target_os = "linux")]
fn is_ready(region: &Region, offset: usize) -> bool {
    let mut resident = 0u8;
    // SAFETY: one system page of the region, for which there is one byte.
    let answer = unsafe { libc::mincore(region.base().add(offset).cast(), page_size_bytes(), &mut resident) };
    assert_eq!(answer, 0, "{}", io::Error::last_os_error());
    resident & 1 != 0
}

/// A small region is used again, but for one whose bytes nobody knows.
#[cfg(target_os = "linux")]
#[test]
fn a_small_region_is_kept_for_the_next_one() {
    let page = page_size_bytes();
    for (size_bytes, written_bytes, is_kept) in [
        (77 * page, Some(page + 1), true),
        (78 * page, None, false),
        (kept::REGION_BYTES_MAX + page, Some(page + 1), false),
    ] {
        // Another test may be at the regions that are kept just then.
        let is_ready = (0..20).any(|_| {
            let mut region = Region::map(size_bytes, HugePages::No).unwrap();
            region.as_mut_slice()[page] = 7;
            if let Some(written_bytes) = written_bytes {
                region.clear_to_keep(written_bytes);
            }
            drop(region);
            let mut region = Region::map(size_bytes, HugePages::No).unwrap();
            let is_ready = is_ready(&region, page);
            assert!(region.as_slice().iter().all(|&byte| byte == 0), "{size_bytes}");
            // It is dropped as one of whose bytes nothing is known.
            region.as_mut_slice()[page] = 7;
            drop(region);
            let region = Region::map(size_bytes, HugePages::No).unwrap();
            assert!(region.as_slice().iter().all(|&byte| byte == 0), "{size_bytes}");
            is_ready
        });
        assert_eq!(is_ready, is_kept, "{size_bytes}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn prefaulted_pages_are_ready_and_keep_their_bytes() {
    let page = page_size_bytes();
    let mut region = Region::map(64 * page, HugePages::No).unwrap();
    region.as_mut_slice()[20 * page + 5] = 7;
    // More than one system call makes ready.
    if !region.prefault(20 * page + 6..50 * page + 1) {
        return;
    }
    // An emulator may take the call and do nothing.
    if is_ready(&region, 25 * page) {
        assert!((20..=50).all(|number| is_ready(&region, number * page)));
        assert!([0, 18, 52, 63].iter().all(|number| !is_ready(&region, number * page)));
    }
    assert_eq!(region.as_slice()[20 * page + 5], 7);
    assert_eq!(region.as_slice().iter().filter(|&&byte| byte != 0).count(), 1);
}

#[test]
#[should_panic(expected = "range.end")]
fn no_page_beyond_a_region_is_prefaulted() {
    let region = Region::map(4096, HugePages::No).unwrap();
    region.prefault(0..4097);
}

#[cfg(target_os = "linux")]
#[test]
fn pages_behind_the_start_of_plain_ones_are_made_ready_one_by_one() {
    let mut region = Region::map(8 << 20, HugePages::Advise).unwrap();
    region.use_plain_pages_from((2 << 20) + 1);
    region.as_mut_slice()[5 << 20] = 7;
    assert!(is_ready(&region, 5 << 20));
    let others = [(4 << 20) + (64 << 10), (6 << 20) - (64 << 10)];
    assert_eq!(others.map(|offset| is_ready(&region, offset)), [false; 2]);
    assert_eq!(region.as_slice().iter().filter(|&&byte| byte != 0).count(), 1);
    // Nothing is left, and what has no huge pages has nothing to give up.
    region.use_plain_pages_from(8 << 20);
    Region::map(4096, HugePages::No).unwrap().use_plain_pages_from(0);
}
