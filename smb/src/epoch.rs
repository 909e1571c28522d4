//! The epoch of freed chunks: whether it is worth looking for a free one again, and where first.
//!
//! ```text
//!            0        4
//!            +--------+-----------------+-- ...
//!   page 0   | bitmap | epoch           |      reserved in the format; no peer of Perfetto's reads
//!            +--------+-----------------+      or writes it
//!   page 1   | bitmap | last freed page |
//!            +--------+-----------------+-- ...
//!
//!   service                                     writer
//!     chunk becomes Free   (Release)              1. epoch, Acquire
//!     last freed page      (Relaxed)              2. looks into pages, finds no free chunk
//!     epoch + 1            (Release)              3. epoch again: the same, nothing was freed since 1
//! ```
//!
//! A service that frees chunks otherwise leaves 0 there, which says nothing. What the producer
//! writes there misleads its own writers only.

use crate::smb::Smb;
use crate::sync::{AtomicU32, Ordering};

/// Offset in their pages of the epoch and of the page that was freed last.
const RESERVED_OFFSET_BYTES: usize = 4;
const EPOCH_PAGE: usize = 0;
const FREED_PAGE: usize = 1;

impl Smb {
    fn reserved_word(&self, page: usize) -> &AtomicU32 {
        self.region.page_word(page * self.page_size_bytes() + RESERVED_OFFSET_BYTES)
    }

    /// Tells writers that chunks are counted as they become free. For the service, when it takes up
    /// the memory; without it they know from the first freed chunk on.
    pub fn publish_free_epoch(&self) {
        let word = self.reserved_word(EPOCH_PAGE);
        // Relaxed: no chunk was freed yet that a writer could look for. Failure means that it was
        // published.
        let _ = word.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Forgets what a service has counted. For a producer, before it offers its memory to another
    /// one, which may not count: its writers would wait for a change that never comes.
    pub fn reset_free_epoch(&self) {
        // Relaxed: 0 publishes nothing. Writers that see it look into all pages again.
        self.reserved_word(EPOCH_PAGE).store(0, Ordering::Relaxed);
    }

    /// A number that changes when the service has freed chunks, `None` if it does not say.
    ///
    /// A writer that read it, then found no chunk free in any page, and reads the same number again
    /// would find none now. (Between two reads 2^32 pages of chunks would have to be freed for the
    /// number to come back.)
    #[must_use]
    #[inline]
    pub fn free_epoch(&self) -> Option<std::num::NonZeroU32> {
        // Acquire: pairs with the Release of `count_free`. Whoever sees the number sees the chunks
        // free that were counted in it; a chunk that is not seen free will change it.
        std::num::NonZeroU32::new(self.reserved_word(EPOCH_PAGE).load(Ordering::Acquire))
    }

    /// A page in which a chunk was freed lately, where a writer may look first. Only a hint: others
    /// see it too, and one page hides another. Always a page of this memory; without a service that
    /// counts, or with one page, the first one.
    #[must_use]
    #[inline]
    pub fn last_freed_page(&self) -> usize {
        match self.num_pages() {
            ..=FREED_PAGE => 0,
            // Relaxed: it is a hint. Whoever saw the epoch of its chunk sees it or a later one.
            pages => self.reserved_word(FREED_PAGE).load(Ordering::Relaxed) as usize % pages,
        }
    }

    /// To be called after chunks of a page were freed.
    #[inline]
    pub(crate) fn count_free(&self, page: usize) {
        if self.num_pages() > FREED_PAGE {
            self.reserved_word(FREED_PAGE).store(page as u32, Ordering::Relaxed);
        }
        // Release: publishes the exchange that freed the chunks, and the page, to `free_epoch`.
        self.reserved_word(EPOCH_PAGE).fetch_add(1, Ordering::Release);
    }
}
