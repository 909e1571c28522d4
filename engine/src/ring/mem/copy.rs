//! Copies of a region's contents into another.
//!
//! The copy goes by pieces. One `memcpy` of megabytes would bypass the caches, in which the system
//! has just cleared the page that is written, if the target is new. Into memory that was touched
//! before, larger pieces are faster: by the processor's string instructions.

use std::ops::Range;

use super::Region;

/// Bytes of one call of the copy kernel, into new memory: as many as it copies by itself, in
/// vectors.
const PIECE_BYTES: usize = 4096;
/// Into memory that was touched before. New memory is made ready in as large parts, which stay in
/// the cache until they are written.
const LARGE_PIECE_BYTES: usize = 256 << 10;

impl Region {
    /// Copies a range of another region to the same offsets of this one. Pages that were never
    /// touched are made ready by a call for many: a fault for each takes twice as long.
    ///
    /// # Safety
    /// Nobody writes the range of `from` during the call, and nobody reads or writes that of
    /// `self`.
    ///
    /// # Panics
    /// If the range does not lie in both regions.
    pub unsafe fn copy_range(&self, from: &Region, range: Range<usize>) {
        for start in range.clone().step_by(LARGE_PIECE_BYTES) {
            let part = start..range.end.min(start + LARGE_PIECE_BYTES);
            self.prefault(part.clone());
            // SAFETY: the caller's promise, of a part of the range.
            unsafe { self.copy_pieces(from, part, PIECE_BYTES) }
        }
    }

    /// As [`copy_range`](Self::copy_range), into pages that were touched before.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Panics
    /// As there.
    pub unsafe fn copy_range_touched(&self, from: &Region, range: Range<usize>) {
        // SAFETY: the caller's promise.
        unsafe { self.copy_pieces(from, range, LARGE_PIECE_BYTES) }
    }

    unsafe fn copy_pieces(&self, from: &Region, range: Range<usize>, piece_bytes: usize) {
        assert!(range.start <= range.end && range.end <= self.0.size_bytes && range.end <= from.0.size_bytes);
        for start in range.clone().step_by(piece_bytes) {
            let len = piece_bytes.min(range.end - start);
            // SAFETY: the assertion keeps both ranges inside their regions, which are two mappings;
            // the rest is the caller's promise.
            unsafe { watershed_simd::copy::copy_raw(from.0.base.add(start), self.0.base.add(start), len) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HugePages;

    #[test]
    fn a_range_is_copied_and_nothing_beside_it() {
        let size = 3 * PIECE_BYTES + LARGE_PIECE_BYTES;
        let mut from = Region::map(size, HugePages::No).expect("memory");
        from.as_mut_slice().iter_mut().zip((1..=251).cycle()).for_each(|(byte, value)| *byte = value);
        let ranges = [0..0, 0..1, 5..5 + PIECE_BYTES, 1..size];
        for (range, touched) in ranges.into_iter().flat_map(|range| [(range.clone(), false), (range, true)]) {
            let mut to = Region::map(size, HugePages::No).expect("memory");
            to.as_mut_slice().fill(0);
            // SAFETY: nobody else knows the regions.
            unsafe {
                match touched {
                    false => to.copy_range(&from, range.clone()),
                    true => to.copy_range_touched(&from, range.clone()),
                }
            }
            assert!(to.as_slice()[range.clone()] == from.as_slice()[range.clone()], "{range:?}");
            assert!(to.as_slice()[..range.start].iter().all(|byte| *byte == 0), "{range:?}");
            assert!(to.as_slice()[range.end..].iter().all(|byte| *byte == 0), "{range:?}");
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
