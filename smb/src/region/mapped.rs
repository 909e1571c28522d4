//! The region as a mapping of shared memory.

use std::ptr::NonNull;
use std::sync::Arc;

use super::HeaderWords;
use crate::copy::copy_untrusted;
use crate::header::{FRAGMENTS_OFFSET_BYTES, WRITER_ID_OFFSET_BYTES};
use crate::layout::CHUNK_HEADER_BYTES;
use crate::memory::SharedMemory;
use crate::sync::{AtomicU16, AtomicU32};
use watershed_simd::SharedBytes;

/// A counted reference to a mapping, and the size of its pages.
#[derive(Clone, Debug)]
pub(crate) struct Region(Arc<Mapping>);

#[derive(Debug)]
pub(crate) struct Mapping {
    // The range of `memory`, copied here since every access needs it.
    start: NonNull<u8>,
    size_bytes: usize,
    page_size_bytes: usize,
    memory: Arc<SharedMemory>,
}

// SAFETY: `start` is an address in `memory`, which may be used from any thread, and is not used
// otherwise than that.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

#[cold]
fn outside(offset: usize, len: usize) -> ! {
    panic!("{len} bytes at {offset} are outside the shared memory")
}

impl Region {
    pub(crate) fn new(memory: Arc<SharedMemory>, page_size_bytes: usize) -> Self {
        let (start, size_bytes) = (memory.start(), memory.size_bytes());
        Self(Arc::new(Mapping { start, size_bytes, page_size_bytes, memory }))
    }

    /// Whether both are references to one mapping.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn memory(&self) -> &Arc<SharedMemory> {
        &self.0.memory
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.0.size_bytes
    }

    pub(crate) fn page_size_bytes(&self) -> usize {
        self.0.page_size_bytes
    }

    /// A pointer to `len` bytes at `offset`. Panics when they are not inside the region: offsets
    /// come from checked page and chunk indexes, so that would be a bug of this crate.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        match self.get(offset, len) {
            Some(at) => at,
            None => outside(offset, len),
        }
    }

    /// Likewise, or nothing.
    #[inline]
    pub(crate) fn get(&self, offset: usize, len: usize) -> Option<*mut u8> {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.0.size_bytes);
        // SAFETY: the mapping has `size_bytes` bytes and `offset + len` is not beyond them.
        is_inside.then(|| unsafe { self.0.start.as_ptr().add(offset) })
    }

    /// The word at `offset`: a page's bitmap, or the reserved word behind it.
    #[inline]
    pub(crate) fn page_word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: the four bytes are inside a mapping that lives as long as `self`, which starts at
        // a multiple of the system's page size, and `offset` is a multiple of 4, so the word is
        // aligned. All accesses of this program to a word of a header are atomic, here or in
        // `copy_untrusted`, which never covers a header.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// The header words of the chunk that starts at `offset`.
    #[inline]
    pub(crate) fn header(&self, offset: usize) -> HeaderWords<'_> {
        assert!(offset.is_multiple_of(4));
        let at = self.at(offset, CHUNK_HEADER_BYTES);
        // SAFETY: as for `page_word`; the header is 8 bytes at a multiple of 4 with a u32 at 0 and
        // u16s at 4 and 6. A chunk header may share its bytes with another layout's payload when a
        // hostile producer repartitions a page that is in use. Then this program's payload copies
        // may cover the header: those are `copy_untrusted`, which to the compiler is a foreign
        // function, so the accesses stay well defined, only their values are garbage.
        unsafe {
            HeaderWords {
                chunk_id: AtomicU32::from_ptr(at.cast()),
                writer_id: AtomicU16::from_ptr(at.add(WRITER_ID_OFFSET_BYTES).cast()),
                fragments: AtomicU16::from_ptr(at.add(FRAGMENTS_OFFSET_BYTES).cast()),
            }
        }
    }

    /// Copies `dst.len()` bytes at `offset` into `dst`.
    pub(crate) fn copy_out(&self, offset: usize, dst: &mut [u8]) {
        let src = self.at(offset, dst.len());
        // SAFETY: `at` has checked the range in the mapping; `dst` is a private exclusive slice, so
        // it cannot overlap the mapping, to which no reference exists.
        unsafe { copy_untrusted(src, dst.as_mut_ptr(), dst.len()) };
    }

    /// `len` bytes at `offset`, for a kernel that reads them as `copy_untrusted` does.
    #[inline]
    pub(crate) fn shared_bytes(&self, offset: usize, len: usize) -> Option<SharedBytes<'_>> {
        // SAFETY: `at` has checked the range in the mapping, which lives as long as `self`, and to
        // which no reference exists.
        Some(unsafe { SharedBytes::new(self.at(offset, len), len) })
    }

    /// Copies `src` to `offset`.
    #[inline]
    pub(crate) fn copy_in(&self, offset: usize, src: &[u8]) {
        let dst = self.at(offset, src.len());
        // SAFETY: as for `copy_out`, with the roles exchanged.
        unsafe { copy_untrusted(src.as_ptr(), dst, src.len()) };
    }
}
