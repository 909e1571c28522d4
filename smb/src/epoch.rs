//! The epoch of freed chunks: whether it is worth looking for a free one again.
//!
//! ```text
//!   page 0
//!   0        4
//!   +--------+----------+-- ...
//!   | bitmap | epoch    |            reserved in the format; no peer of Perfetto's reads or writes it
//!   +--------+----------+-- ...
//!
//!   service                                     writer
//!     chunk becomes Free   (Release)              1. epoch, Acquire
//!     epoch + 1            (Release)              2. looks into pages, finds no free chunk
//!                                                 3. epoch again: the same, nothing was freed since 1
//! ```
//!
//! A service that frees chunks otherwise leaves 0 there, which says nothing. What the producer
//! writes there misleads its own writers only.

use crate::smb::Smb;
use crate::sync::Ordering;

/// Offset of the epoch in the first page.
const EPOCH_OFFSET_BYTES: usize = 4;

impl Smb {
    /// Tells writers that chunks are counted as they become free. For the service, when it takes up
    /// the memory; without it they know from the first freed chunk on.
    pub fn publish_free_epoch(&self) {
        let word = self.region.page_word(EPOCH_OFFSET_BYTES);
        // Relaxed: no chunk was freed yet that a writer could look for. Failure means that it was
        // published.
        let _ = word.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Forgets what a service has counted. For a producer, before it offers its memory to another
    /// one, which may not count: its writers would wait for a change that never comes.
    pub fn reset_free_epoch(&self) {
        // Relaxed: 0 publishes nothing. Writers that see it look into all pages again.
        self.region.page_word(EPOCH_OFFSET_BYTES).store(0, Ordering::Relaxed);
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
        std::num::NonZeroU32::new(self.region.page_word(EPOCH_OFFSET_BYTES).load(Ordering::Acquire))
    }

    /// To be called after chunks were freed.
    #[inline]
    pub(crate) fn count_free(&self) {
        // Release: publishes the exchange that freed the chunks to `free_epoch`.
        self.region.page_word(EPOCH_OFFSET_BYTES).fetch_add(1, Ordering::Release);
    }
}
