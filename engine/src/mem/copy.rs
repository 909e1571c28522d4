//! Copies of a region's contents into a new one.
//!
//! ```text
//!   new region   | 2 MiB | 2 MiB | 2 MiB | 2 MiB | ...      a page is touched, and so cleared by the system, by the thread
//!   copied by      one     other   one     other            that writes it right afterwards, while it is in that core's cache
//! ```
//!
//! Clearing the pages takes as long as copying into pages that are there. Each thread does both for the pages it takes. The copy goes
//! by pieces, since a `memcpy` of megabytes goes past the caches, in which the cleared page already is.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Region, huge};

/// Of one call of the copy kernel: what it does by itself in vectors.
const PIECE_BYTES: usize = 4096;

/// More threads than these fight for the memory instead of sharing the work.
const MAX_THREADS: usize = 4;

impl Region {
    /// Copies a range of another region to the same place of this one.
    ///
    /// # Safety
    /// Nobody writes the range of `from` during the call, and nobody reads or writes that of `self`.
    ///
    /// # Panics
    /// If the range does not lie in both regions.
    pub unsafe fn copy_range(&self, from: &Region, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.size_bytes && range.end <= from.size_bytes);
        for start in range.clone().step_by(PIECE_BYTES) {
            let len = PIECE_BYTES.min(range.end - start);
            // SAFETY: the assertion keeps both places inside their regions, which are two mappings; the rest is the caller's promise.
            unsafe { watershed_simd::copy::copy_raw(from.base.add(start), self.base.add(start), len) }
        }
    }

    /// Copies the first `len` bytes of another region to the start of this new one; of much, where the process may use more than one
    /// processor, with further threads that are gone when it returns.
    ///
    /// # Safety
    /// As [`Region::copy_range`].
    ///
    /// # Panics
    /// If one of the regions is shorter.
    pub(crate) unsafe fn copy_start(&self, from: &Region, len: usize) {
        let strides = len.div_ceil(huge::SIZE_BYTES);
        let next = AtomicUsize::new(0);
        let copy_some = || {
            // Relaxed: it only hands each stride out once; the end of the scope publishes what was copied.
            let strides = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed))
                .take_while(|stride| *stride < strides);
            for start in strides.map(|stride| stride * huge::SIZE_BYTES) {
                // SAFETY: the caller's promise, and each stride is handed out once.
                unsafe { self.copy_range(from, start..len.min(start + huge::SIZE_BYTES)) }
            }
        };
        let num_threads = match len {
            0..huge::WORTH_A_THREAD_BYTES => 1,
            _ => std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS),
        };
        std::thread::scope(|scope| {
            for _ in 1..num_threads {
                // Where there is no thread to be had, the others do its part.
                let _ = std::thread::Builder::new().spawn_scoped(scope, copy_some);
            }
            copy_some();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HugePages;

    #[test]
    fn the_start_is_copied_and_nothing_behind_it() {
        let most = huge::WORTH_A_THREAD_BYTES + 3 * huge::SIZE_BYTES;
        let mut from = Region::map(most, HugePages::Advise).expect("memory");
        for (at, byte) in from.as_mut_slice().iter_mut().enumerate() {
            *byte = (at % 251) as u8 + 1;
        }
        for len in [0, 1, PIECE_BYTES + 1, huge::SIZE_BYTES, huge::WORTH_A_THREAD_BYTES + 4097, most] {
            let to = Region::map(most, HugePages::Advise).expect("memory");
            // SAFETY: nobody else knows the regions.
            unsafe { to.copy_start(&from, len) };
            assert!(to.as_slice()[..len] == from.as_slice()[..len], "{len} bytes");
            assert!(to.as_slice()[len..].iter().all(|byte| *byte == 0), "behind {len} bytes");
        }
    }

    #[test]
    #[should_panic(expected = "range")]
    fn a_range_beyond_a_region_is_refused() {
        let [from, to] = [8192, 4096].map(|len| Region::map(len, HugePages::No).expect("memory"));
        // SAFETY: nobody else knows the regions.
        unsafe { to.copy_range(&from, 0..8192) };
    }
}
