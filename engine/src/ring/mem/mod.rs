//! Memory for buffers.
//!
//! ```text
//!   outer mapping (memmap2)
//!   | no access ............ | size_bytes, read and write ........ | no access ..... |
//!   ^                        ^ base: aligned to a page, or to 2 MiB with huge pages
//!   at least one page        nothing is touched until it is used  at least one page
//! ```
//!
//! A region costs three or four system calls whatever its size, and one mapping where the system
//! has guard pages of its own; a small one may cost none (module `kept`). It reads as zeros where
//! it was never written.

mod copy;
mod huge;
mod kept;
mod page;

pub use huge::SIZE_BYTES as HUGE_PAGE_BYTES;
pub use page::page_size_bytes;

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;

use memmap2::{MmapOptions, MmapRaw};

use crate::config::HugePages;
use kept::KEPT;
use page::Advice;

/// Lazily backed memory with guard pages on both sides.
#[derive(Debug)]
pub struct Region(ManuallyDrop<Mapped>);

/// What is mapped for a region; dropping it unmaps.
#[derive(Debug)]
struct Mapped {
    #[cfg_attr(not(test), expect(dead_code, reason = "dropping it unmaps"))]
    outer: MmapRaw,
    base: *mut u8,
    size_bytes: usize,
    granted: HugePages,
    /// Nothing is written to it any more, and all of its bytes are zeros.
    is_clear: bool,
}

// SAFETY: it owns its mapping; nothing in it is tied to a thread.
unsafe impl Send for Mapped {}
// SAFETY: a shared region hands out shared slices only.
unsafe impl Sync for Mapped {}

/// So much is made ready by one system call. Meanwhile no thread of the process can map or unmap
/// memory, nor the C library grow its heap.
const PREFAULT_PIECE_BYTES: usize = 64 << 10;

impl Region {
    /// Maps `size_bytes` (at least 1) with the pages that are asked for, as far as the system has
    /// them.
    ///
    /// # Errors
    /// What the system says when it has no memory or no addresses.
    pub fn map(size_bytes: usize, pages: HugePages) -> io::Result<Region> {
        match KEPT.take(size_bytes) {
            Some(kept) if pages != HugePages::Explicit => Ok(Self::of(kept)),
            _ => Self::map_with_page_size(size_bytes, pages, page_size_bytes()),
        }
    }

    /// As [`Region::map`] with a page size that is a multiple of the system's: as on a system with
    /// larger pages.
    ///
    /// # Errors
    /// As [`Region::map`].
    ///
    /// # Panics
    /// If `page_size` is not a power of two and a multiple of the system's.
    pub fn map_with_page_size(size_bytes: usize, pages: HugePages, page_size: usize) -> io::Result<Region> {
        assert!(page_size.is_power_of_two() && page_size.is_multiple_of(page_size_bytes()));
        if size_bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if pages == HugePages::Explicit
            && huge::has_pool_for(size_bytes)
            && let Ok(region) = Self::map_explicit(size_bytes, page_size)
        {
            return Ok(region);
        }
        let is_worth_it = pages != HugePages::No && size_bytes >= huge::SIZE_BYTES;
        let align = if is_worth_it { huge::SIZE_BYTES.max(page_size) } else { page_size };
        let mut region = Self::reserve(size_bytes, align, page_size)?;
        if is_worth_it
            && page::advise(region.base(), size_bytes.next_multiple_of(page_size), Advice::HugePages)
        {
            region.0.granted = HugePages::Advise;
        }
        Ok(region)
    }

    /// A mapping with guards, its inner part aligned.
    fn reserve(size_bytes: usize, align: usize, page_size: usize) -> io::Result<Region> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let inner_bytes = size_bytes.checked_next_multiple_of(align).ok_or_else(too_large)?;
        let outer_bytes = inner_bytes.checked_add(align + 2 * page_size).ok_or_else(too_large)?;
        let outer = MmapRaw::from(MmapOptions::new().len(outer_bytes).no_reserve_swap().map_anon()?);
        let start = outer.as_mut_ptr();
        let head = page_size + (start.addr() + page_size).wrapping_neg() % align;
        let tail = outer_bytes - head - inner_bytes;
        debug_assert!(head >= page_size && tail >= page_size);
        // SAFETY: head <= outer_bytes, the pointer stays inside the mapping.
        let base = unsafe { start.add(head) };
        page::forbid_access(start, head)?;
        // SAFETY: head + inner_bytes <= outer_bytes, as above.
        page::forbid_access(unsafe { base.add(inner_bytes) }, tail)?;
        let mapped = Mapped { outer, base, size_bytes, granted: HugePages::No, is_clear: false };
        Ok(Self::of(mapped))
    }

    fn of(mapped: Mapped) -> Region {
        Region(ManuallyDrop::new(Mapped { is_clear: false, ..mapped }))
    }

    fn map_explicit(size_bytes: usize, page_size: usize) -> io::Result<Region> {
        let align = huge::SIZE_BYTES.max(page_size);
        let mut region = Self::reserve(size_bytes, align, page_size)?;
        if let Err(error) = huge::replace(region.base(), size_bytes.next_multiple_of(align)) {
            // The system may have unmapped the old pages and reused the addresses: they are not
            // ours to unmap.
            std::mem::forget(region);
            return Err(error);
        }
        region.0.granted = HugePages::Explicit;
        Ok(region)
    }

    /// Makes the pages of a range ready, as a write to each would, without changing a byte. False
    /// where the system has no such call (Linux before 5.14): then a page is made ready when it is
    /// first written. Anybody may read and write the range meanwhile.
    ///
    /// # Panics
    /// If the range does not lie in the region.
    pub fn prefault(&self, range: Range<usize>) -> bool {
        assert!(range.start <= range.end && range.end <= self.0.size_bytes);
        let start = range.start / page_size_bytes() * page_size_bytes();
        (start..range.end).step_by(PREFAULT_PIECE_BYTES).all(|piece| {
            let piece_bytes = PREFAULT_PIECE_BYTES.min(range.end - piece);
            // SAFETY: piece < range.end, and the assertion keeps that inside the mapping.
            page::advise(unsafe { self.0.base.add(piece) }, piece_bytes, Advice::Populate)
        })
    }

    /// From the first whole page behind `start` on, pages that are not ready yet will be plain
    /// ones, not transparent huge ones. Anybody may read and write them meanwhile.
    pub fn use_plain_pages_from(&self, start: usize) {
        let start = start.next_multiple_of(page_size_bytes()).min(self.0.size_bytes);
        // SAFETY: start is at most the size, which lies in the mapping.
        page::advise(unsafe { self.0.base.add(start) }, self.0.size_bytes - start, Advice::PlainPages);
    }

    /// The region will be dropped now, and only its first bytes were written to: if it is small it
    /// is kept for the next one.
    pub(crate) fn clear_to_keep(&mut self, written_bytes: usize) {
        if self.0.size_bytes <= kept::REGION_BYTES_MAX && self.0.granted == HugePages::No {
            self.as_mut_slice()[..written_bytes].fill(0);
            self.0.is_clear = true;
        }
    }

    /// The bytes that were asked for.
    pub fn size_bytes(&self) -> usize {
        self.0.size_bytes
    }

    /// Which pages were granted: the system may have none of those that were asked for.
    pub fn granted(&self) -> HugePages {
        self.0.granted
    }

    /// The first byte. Valid for reads and writes of [`size_bytes`](Self::size_bytes) as long as
    /// the region lives.
    pub fn base(&self) -> *mut u8 {
        self.0.base
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping holds size_bytes readable, initialised (zero-filled) bytes; `&self`
        // forbids safe writes.
        unsafe { std::slice::from_raw_parts(self.0.base, self.0.size_bytes) }
    }

    /// All bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.base, self.0.size_bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: nothing of a region is used after it was dropped.
        let mapped = unsafe { ManuallyDrop::take(&mut self.0) };
        if mapped.is_clear {
            KEPT.keep(mapped);
        }
    }
}

#[cfg(test)]
mod tests;
