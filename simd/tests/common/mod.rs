//! What the tests of all kernels share.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
#![allow(clippy::allow_attributes, reason = "an expectation would fail where everything is used")]

use std::sync::OnceLock;
use watershed_simd::{Kernels, Level};

/// The kernels of every level that can run here. `WATERSHED_SIMD_REQUIRE=avx512` (or another name)
/// makes it an error if that level cannot, so that no check passes by leaving out the level that it
/// is for.
pub fn levels() -> Vec<Kernels> {
    static LEVELS: OnceLock<Vec<Kernels>> = OnceLock::new();
    let levels = LEVELS.get_or_init(|| {
        if let Ok(name) = std::env::var("WATERSHED_SIMD_REQUIRE") {
            let level = Level::from_name(&name).unwrap_or_else(|| panic!("no level {name}"));
            assert!(level.is_available(), "level {name} cannot run here");
        }
        Level::available().map(|level| Kernels::at(level).expect("available")).collect()
    });
    levels.clone()
}

/// Whether tests shall be small, as under emulation: `WATERSHED_TEST_SMALL` is set.
pub fn small() -> bool {
    std::env::var_os("WATERSHED_TEST_SMALL").is_some()
}

/// How many cases to try of `full`.
pub fn cases(full: u64) -> u64 {
    if small() { full.div_ceil(20) } else { full }
}

/// A generator of random numbers, the same everywhere: xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn range(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }
}

/// Appends `value` as a varint of at least `length` bytes, redundant if need be.
pub fn push_varint(bytes: &mut Vec<u8>, mut value: u64, length: usize) {
    for i in 1.. {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 && i >= length {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

/// Memory between two guard pages: a read or write past an edge is a fault.
#[cfg(unix)]
pub struct Guarded {
    map: *mut u8,
    map_bytes: usize,
    page_bytes: usize,
}

#[cfg(unix)]
impl Guarded {
    pub fn new(capacity_bytes: usize) -> Guarded {
        // SAFETY: plain calls; the results are checked.
        unsafe {
            let page_bytes = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let map_bytes = capacity_bytes.next_multiple_of(page_bytes) + 2 * page_bytes;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
            let map = libc::mmap(std::ptr::null_mut(), map_bytes, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(map, libc::MAP_FAILED);
            let map = map.cast::<u8>();
            let inner = map.add(page_bytes).cast();
            assert_eq!(
                libc::mprotect(inner, map_bytes - 2 * page_bytes, libc::PROT_READ | libc::PROT_WRITE),
                0
            );
            Guarded { map, map_bytes, page_bytes }
        }
    }

    fn inner_bytes(&self) -> usize {
        self.map_bytes - 2 * self.page_bytes
    }

    /// A copy of `bytes` whose last byte is the last before the upper guard.
    pub fn at_end(&mut self, bytes: &[u8]) -> &[u8] {
        self.place(self.inner_bytes() - bytes.len(), bytes)
    }

    /// A copy of `bytes` whose first byte is the first behind the lower guard.
    pub fn at_start(&mut self, bytes: &[u8]) -> &[u8] {
        self.place(0, bytes)
    }

    fn place(&mut self, offset: usize, bytes: &[u8]) -> &[u8] {
        assert!(offset + bytes.len() <= self.inner_bytes());
        // SAFETY: within the inner pages, which are ours.
        unsafe {
            let start = self.map.add(self.page_bytes + offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
            std::slice::from_raw_parts(start, bytes.len())
        }
    }

    /// `count` places for values, of which the last is the last before the upper guard.
    pub fn slots_at_end<T: Copy>(&mut self, count: usize, value: T) -> &mut [T] {
        let offset = self.inner_bytes() - count * size_of::<T>();
        // SAFETY: within the inner pages, which are ours and aligned; every place is written before
        // it is shown.
        unsafe {
            let start = self.map.add(self.page_bytes + offset).cast::<T>();
            for i in 0..count {
                start.add(i).write(value);
            }
            std::slice::from_raw_parts_mut(start, count)
        }
    }
}

#[cfg(unix)]
impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing borrows any more.
        unsafe { libc::munmap(self.map.cast(), self.map_bytes) };
    }
}
