//! Looking for a free chunk at a cost that the size of the memory does not change.
//!
//! Our service counts what it frees ([`Smb::free_epoch`]) and says which page it freed last. A
//! writer that has found every page full since the count last changed does not look at all: a
//! packet that is dropped costs one load. When the count goes on, it looks into the page that was
//! freed last, and from the last chunk on that any writer took: what is freed in the order of its
//! taking is there.
//!
//! A chunk that is in neither place, or that a service frees which does not count, is found by
//! looking page by page:
//!
//! ```text
//!   pages     | | | | | | | | | | | | | | | | | | | | | |
//!                    ^->            ^        ^--------->
//!                    from the last  freed    from where this writer's last search ended:
//!                    chunk on       last     comes by everywhere in time
//! ```
//!
//! Eight packets that are dropped earn one such look; so does each time that the service frees
//! something, so that a slow writer is not the last to find a chunk; a chunk that is taken earns
//! eight. They are kept, up to one for each page. The first packet that finds nothing uses all that
//! are kept: none is dropped while a chunk is free, unless too few chunks were taken since the last
//! such search. Then [`LOOKS_PER_BATCH`] are used together; a memory of so few pages is always
//! looked through.
//!
//! A writer that commits itself looks into the page of its last chunk before all that.

use std::num::NonZeroU32;

use watershed_smb::{PageLayout, Smb, WriteChunk};

/// Attempts in vain that earn a look.
const ATTEMPTS_PER_LOOK: usize = 8;
/// What a chunk earns, in attempts: some percent of the time that it takes to fill it.
const ATTEMPTS_PER_CHUNK: usize = 8 * ATTEMPTS_PER_LOOK;
/// Looks from the last chunk on, where not all pages may be looked at: these are cached.
const NEAR: usize = 2;
/// Elsewhere a writer that drops looks only when it may look so often: then the processor waits for
/// many cache misses at once (200 ns in a memory of 32 MiB, for one or for a dozen).
const LOOKS_PER_BATCH: usize = 16;
const ATTEMPTS_PER_BATCH: usize = LOOKS_PER_BATCH * ATTEMPTS_PER_LOOK;

/// One writer's search.
#[derive(Debug)]
pub(crate) struct Search {
    /// Attempts that have earned looks and were not used for any.
    earned: usize,
    /// Until so many are earned nothing is looked at, unless chunks were freed. 0: the last attempt
    /// found a chunk.
    look_at: usize,
    /// Page where the last search that found nothing ended.
    next_page: usize,
    /// Pages that were looked at in vain, ever.
    full_pages: u64,
    /// The service's count of freed chunks at the last attempt.
    epoch: Option<NonZeroU32>,
    /// Pages before `next_page` that were looked at in vain since the count is `epoch`.
    full_since_epoch: usize,
    /// Page of a chunk that this writer has had and freed, until it looks for the next one.
    own_page: Option<usize>,
}

impl Search {
    /// A writer that may look everywhere at first.
    pub(crate) fn new() -> Self {
        Self {
            earned: usize::MAX,
            look_at: 0,
            next_page: 0,
            full_pages: 0,
            epoch: None,
            full_since_epoch: 0,
            own_page: None,
        }
    }

    pub(crate) fn full_pages(&self) -> u64 {
        self.full_pages
    }

    /// The next attempt may look everywhere: a writer that would wait otherwise has the time.
    pub(super) fn allow_all(&mut self) {
        (self.earned, self.look_at) = (usize::MAX, 0);
    }

    /// The writer has committed a chunk of this page itself: it is free, unless the service was at
    /// work.
    #[inline]
    pub(crate) fn note_own(&mut self, page: usize) {
        self.own_page = Some(page);
    }

    /// The page that was noted last, if a chunk is free there. Its lines are in this processor's
    /// caches, and where each writer has a page of its own, no other one's are.
    #[inline]
    pub(super) fn take_own(&mut self, smb: &Smb, layout: PageLayout) -> Option<WriteChunk> {
        let page = self.own_page.take()?;
        let chunk = self.try_pages(smb, page, 1, layout)?;
        self.earned = self.earned.saturating_add(ATTEMPTS_PER_CHUNK);
        self.look_at = 0;
        Some(chunk)
    }

    /// Looks for a free chunk. `last_page` is where one was taken last, by whichever writer.
    #[inline]
    pub(super) fn run(&mut self, smb: &Smb, last_page: usize, layout: PageLayout) -> Option<WriteChunk> {
        // Before any look: what is freed behind a look changes the count.
        let epoch = smb.free_epoch();
        if self.skips(epoch) { None } else { self.look(smb, epoch, last_page, layout) }
    }

    /// An attempt that does not look, if [`Search::run`] would not: nothing has come free since the
    /// last look, and no other is earned. False: `run` has to be called.
    #[inline]
    pub(crate) fn try_skip(&mut self, smb: &Smb) -> bool {
        self.skips(smb.free_epoch())
    }

    #[inline]
    fn skips(&mut self, epoch: Option<NonZeroU32>) -> bool {
        let skips = epoch == self.epoch && self.earned < self.look_at;
        self.earned += usize::from(skips);
        skips
    }

    #[inline(never)]
    fn look(
        &mut self,
        smb: &Smb,
        epoch: Option<NonZeroU32>,
        last_page: usize,
        layout: PageLayout,
    ) -> Option<WriteChunk> {
        let freed = epoch != self.epoch;
        let num_freed = match (epoch, self.epoch) {
            (Some(now), Some(before)) => now.get().wrapping_sub(before.get()) as usize,
            _ => 0,
        };
        if freed {
            (self.epoch, self.full_since_epoch) = (epoch, 0);
        }
        let num_pages = smb.num_pages();
        let earned = self.earned.saturating_add(ATTEMPTS_PER_LOOK * num_freed);
        self.earned = earned.min(ATTEMPTS_PER_LOOK * num_pages);
        let mut found = None;
        if freed || self.look_at == 0 || epoch.is_none() {
            found = self.try_pages(smb, last_page, NEAR, layout);
        }
        if found.is_none() && freed {
            found = self.try_pages(smb, smb.last_freed_page(), 1, layout);
        }
        let found = found.or_else(|| self.look_on(smb, layout));
        (self.earned, self.look_at) = match epoch {
            _ if found.is_some() => (self.earned + ATTEMPTS_PER_CHUNK, 0),
            Some(_) if self.full_since_epoch >= num_pages => (self.earned, usize::MAX),
            Some(_) => (self.earned + 1, ATTEMPTS_PER_BATCH),
            None => (self.earned + 1, (self.earned + 1).next_multiple_of(ATTEMPTS_PER_LOOK)),
        };
        found
    }

    /// Looks where the last search ended, as often as was earned.
    fn look_on(&mut self, smb: &Smb, layout: PageLayout) -> Option<WriteChunk> {
        let num_pages = smb.num_pages();
        let looks = match self.earned {
            _ if num_pages <= LOOKS_PER_BATCH => num_pages,
            earned if self.look_at == 0 => earned / ATTEMPTS_PER_LOOK,
            ..ATTEMPTS_PER_BATCH => return None,
            _ => LOOKS_PER_BATCH,
        };
        let full_before = self.full_pages;
        let chunk = self.try_pages(smb, self.next_page, looks, layout);
        let full = (self.full_pages - full_before) as usize;
        self.earned = self.earned.saturating_sub(ATTEMPTS_PER_LOOK * full);
        self.next_page = (self.next_page + full) % num_pages;
        self.full_since_epoch += full;
        chunk
    }

    /// A free chunk in one of so many pages from `first` on.
    fn try_pages(&mut self, smb: &Smb, first: usize, count: usize, layout: PageLayout) -> Option<WriteChunk> {
        let chunk = smb.try_acquire_within(first, count, layout).ok();
        let num_pages = smb.num_pages();
        self.full_pages += match &chunk {
            Some(chunk) => (chunk.page() + num_pages - first % num_pages) % num_pages,
            None => count.min(num_pages),
        } as u64;
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;
    use watershed_smb::SharedMemory;

    /// Each writer that frees its chunks itself keeps to one page, as long as nobody else has it.
    #[test]
    fn a_page_of_ones_own_comes_first() {
        let smb = Smb::new(Arc::new(SharedMemory::create(8 * 4096).unwrap()), 4096).unwrap();
        let mut search = Search::new();
        assert!(search.take_own(&smb, PageLayout::Div1).is_none(), "none was noted");
        let last_page = 5;
        let chunk = search.run(&smb, last_page, PageLayout::Div1).unwrap();
        assert_eq!(chunk.page(), last_page);
        search.note_own(last_page);
        assert!(search.take_own(&smb, PageLayout::Div1).is_none(), "it is not free");
        assert_eq!(search.full_pages(), 1);
        smb.complete(chunk).unwrap();
        smb.try_begin_read(last_page, 0).unwrap().release().unwrap();
        search.note_own(last_page);
        let own = search.take_own(&smb, PageLayout::Div1).unwrap();
        assert_eq!(own.page(), last_page);
        assert!(search.take_own(&smb, PageLayout::Div1).is_none(), "it is noted for one search");
    }
}
