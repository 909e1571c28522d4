//! Looking for a free chunk at a cost that the size of the memory does not change.
//!
//! Our service counts what it frees ([`Smb::free_epoch`]). A writer that has found every page full
//! since the count last changed does not look at all: a packet that is dropped costs one load.
//!
//! Where the count goes on, or from a service that has none, a writer that finds no chunk has to
//! look again, page by page. Each attempt earns four looks, or one where there is no count and the
//! last one was in vain; those that it does not need are kept, up to one for each page:
//!
//! ```text
//!   pages     | | | | | | | | | | | | | | | | | | | | | |
//!                    ^->                     ^--------->
//!                    from the last chunk     from where this writer's
//!                    that was taken on:      last search ended: comes by
//!                    what is freed in the    everywhere in time
//!                    order of its taking
//! ```
//!
//! So the first packet that is dropped has looked into every page, and `n` packets in a row have
//! looked into `num_pages + 4 * n` at most.

use std::num::NonZeroU32;

use watershed_smb::{PageLayout, Smb, WriteChunk};

/// Looks that each attempt adds.
const LOOKS_PER_ATTEMPT: usize = 4;
/// Looks that it adds after one in vain, where no count tells that chunks were freed.
const LOOKS_IN_THE_DARK: usize = 1;
/// A memory of so few pages is always looked through.
const PAGES_ALWAYS: usize = 16;
/// Looks from the last chunk on, where not all pages may be looked at: these are cached.
const NEAR: usize = 2;
/// Elsewhere the writer looks only when it may look so often: then the processor waits for many
/// cache misses at once (200 ns in a memory of 32 MiB, for one or for a dozen).
const BATCH: usize = 16;

/// One writer's search.
#[derive(Debug)]
pub(crate) struct Search {
    /// Looks that were earned and not needed.
    kept: usize,
    /// Page where the last search that found nothing ended.
    next_page: usize,
    /// Pages that were looked at in vain, ever.
    full_pages: u64,
    /// The service's count of freed chunks at the last attempt.
    epoch: Option<NonZeroU32>,
    /// Pages before `next_page` that were looked at in vain since the count is `epoch`.
    full_since_epoch: usize,
    /// Whether the last attempt found a chunk.
    has_found: bool,
}

impl Search {
    /// A writer that may look everywhere at first.
    pub(crate) fn new() -> Self {
        Self {
            kept: usize::MAX,
            next_page: 0,
            full_pages: 0,
            epoch: None,
            full_since_epoch: 0,
            has_found: true,
        }
    }

    pub(crate) fn full_pages(&self) -> u64 {
        self.full_pages
    }

    /// The next attempt may look everywhere: a writer that would wait otherwise has the time.
    pub(super) fn allow_all(&mut self) {
        self.kept = usize::MAX;
    }

    /// Looks for a free chunk, first from `first_page` on.
    #[inline]
    pub(super) fn run(&mut self, smb: &Smb, first_page: usize, layout: PageLayout) -> Option<WriteChunk> {
        let num_pages = smb.num_pages();
        // Before any look: what is freed behind a look changes the count.
        let epoch = smb.free_epoch();
        if epoch.is_some() && epoch == self.epoch && self.full_since_epoch >= num_pages {
            // What is not looked now is looked at once when a chunk has been freed.
            self.kept = self.kept.saturating_add(LOOKS_PER_ATTEMPT).min(num_pages);
            return None;
        }
        self.look(smb, epoch, first_page, layout)
    }

    #[inline(never)]
    fn look(
        &mut self,
        smb: &Smb,
        epoch: Option<NonZeroU32>,
        first_page: usize,
        layout: PageLayout,
    ) -> Option<WriteChunk> {
        let num_pages = smb.num_pages();
        if epoch != self.epoch {
            (self.epoch, self.full_since_epoch) = (epoch, 0);
        }
        let (earned, near) = match epoch.is_some() || self.has_found {
            true => (LOOKS_PER_ATTEMPT, NEAR),
            false => (LOOKS_IN_THE_DARK, 0),
        };
        let looks = match num_pages {
            ..=PAGES_ALWAYS => num_pages,
            _ => self.kept.saturating_add(earned).min(num_pages),
        };
        let (near, far) = match looks {
            _ if looks == num_pages => (looks, 0),
            ..BATCH => (near, 0),
            BATCH => (NEAR, BATCH - NEAR),
            _ => (looks.div_ceil(2), looks / 2),
        };
        let mut in_vain = 0;
        for (first, count) in [(first_page, near), (self.next_page, far)] {
            if let Ok(chunk) = smb.try_acquire_within(first, count, layout) {
                in_vain += (chunk.page() + num_pages - first % num_pages) % num_pages;
                self.kept = looks.saturating_sub(in_vain + 1);
                self.full_pages += in_vain as u64;
                self.has_found = true;
                return Some(chunk);
            }
            in_vain += count;
        }
        self.kept = looks - in_vain;
        self.next_page = (self.next_page + far) % num_pages;
        self.full_pages += in_vain as u64;
        self.has_found = false;
        self.full_since_epoch += if near == num_pages { num_pages } else { far };
        None
    }
}
