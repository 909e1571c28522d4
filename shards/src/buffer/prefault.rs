//! Pages are made ready before committers reach them.
//!
//! ```text
//!   region   | handed out to shards, or behind the cursor | ready | never touched ...  |
//!                                                         ^ start ^ end
//! ```
//!
//! The first touch of a huge page clears it, which takes about as long as filling it with chunks.
//! Memory is used for the first time in ascending order: extents that were never handed out by
//! their index, and the one ring of a buffer with one shard by its cursor. So one number says how
//! far pages are ready, and nothing is left to do after the first lap.
//!
//! Where the system has no huge page at hand it makes one: it moves others away, or the host of a
//! virtual machine gives it memory only then. That takes 5 to 10 ms, in which the shared memory of
//! a fast producer runs full, and a committer may be the one who waits. So one page is made ready
//! before the first commit, and who finds that it takes long asks for plain pages, which are made
//! ready likewise.

use watershed_engine::HugePages;
use watershed_engine::mem::HUGE_PAGE_BYTES;

use super::ShardedBuffer;
use crate::shard::guard::ShardGuard;
use crate::sync::Ordering;

impl ShardedBuffer {
    /// Makes memory ready that is among the next `bytes` that were never used: at most one huge
    /// page, and returns its size, or 0 if all are ready. To be called now and then, and until it
    /// returns 0 as far as nothing else is to be done, by a thread that does not commit.
    ///
    /// Before the first commit it is the first page alone, so that buffers that stay empty take
    /// little memory. It does nothing after the first lap, for a buffer that was made of plain
    /// pages, which are quickly made ready one by one, and where the system has no such call (Linux
    /// before 5.14). No shard is locked while a page is made ready, and no byte is changed, so that
    /// committers may write the same pages meanwhile.
    pub fn prefault_ahead(&self, bytes: usize) -> usize {
        let Some((start, end)) = self.page_to_prefault(bytes) else { return 0 };
        // Relaxed: nothing but the number is shared. Where two callers meet, each page is one's.
        let start = start.max(self.prefaulted_bytes.fetch_max(end, Ordering::Relaxed));
        if start < end && self.shared.config.region.prefault(start..end) { end - start } else { 0 }
    }

    /// Whether [`prefault_ahead`](Self::prefault_ahead) has something to do for so many bytes.
    /// Until the first lap is over it tries to lock the one shard of a buffer without extents.
    pub fn is_prefault_due(&self, bytes: usize) -> bool {
        self.page_to_prefault(bytes).is_some()
    }

    /// To be called where a huge page takes long to be made ready: from what is ready on the buffer
    /// has plain pages.
    pub fn use_plain_pages(&self) {
        if self.report.pages == HugePages::Advise {
            // Relaxed: see `prefault_ahead`.
            let ready = self.prefaulted_bytes.load(Ordering::Relaxed);
            self.shared.config.region.use_plain_pages_from(ready);
        }
    }

    /// Begin and end of the next huge page, or of what of it is unused, if it is among the next
    /// `bytes`.
    fn page_to_prefault(&self, bytes: usize) -> Option<(usize, usize)> {
        // Relaxed: see `prefault_ahead`.
        let (ready, end) = (self.prefaulted_bytes.load(Ordering::Relaxed), self.size_bytes());
        let may_want = ready < end && self.report.pages != HugePages::No && self.limit.is_none();
        let unused_from = may_want.then(|| self.unused_from())??;
        let wanted = if unused_from == 0 { 1 } else { unused_from.saturating_add(bytes).min(end) };
        let start = unused_from.max(ready);
        (start < wanted).then(|| (start, ((start / HUGE_PAGE_BYTES + 1) * HUGE_PAGE_BYTES).min(end)))
    }

    /// The first byte that was never handed out to a shard, or, in one ring, never written. None if
    /// the owner of the ring is at work.
    fn unused_from(&self) -> Option<usize> {
        if self.shared.has_extents() {
            return Some(self.shared.extent_pool.num_used_hint() * self.shared.config.layout.extent_bytes);
        }
        let guard = ShardGuard::try_lock(&self.shared, 0, self.owner)?;
        let used_bytes = guard.state.engine.as_ref().map_or(0, |engine| engine.used_size_bytes());
        drop(guard);
        // What was pushed while the lock was held would wait for the next commit.
        self.shared.after_unlock(0, self.owner);
        Some(used_bytes)
    }
}
