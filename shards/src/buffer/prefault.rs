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

use watershed_engine::HugePages;

use super::ShardedBuffer;
use crate::shard::guard::ShardGuard;
use crate::sync::Ordering;

/// Pages are made ready in units of a huge page, so that most calls have nothing to do.
const HUGE_PAGE_BYTES: usize = 2 << 20;

impl ShardedBuffer {
    /// Makes memory ready that is among the next `bytes` that were never used: at most one huge
    /// page, and returns its size, or 0 if all are ready. To be called now and then, and until it
    /// returns 0 as far as nothing else is to be done, by a thread that does not commit.
    ///
    /// It does nothing before the first commit, so that buffers that stay empty take no memory,
    /// after the first lap, for plain pages, which are quickly made ready one by one, and where the
    /// system has no such call (Linux before 5.14). No shard is locked while a page is made ready,
    /// and no byte is changed, so that committers may write the same pages meanwhile.
    pub fn prefault_ahead(&self, bytes: usize) -> usize {
        if self.report.pages == HugePages::No || self.limit.is_some() {
            return 0;
        }
        let Some(start) = self.unused_from().filter(|&start| start != 0) else { return 0 };
        let wanted = start.saturating_add(bytes).min(self.size_bytes());
        // Relaxed: nothing but the number is shared. Where two callers meet, each page is one's.
        let start = start.max(self.prefaulted_bytes.load(Ordering::Relaxed));
        if start >= wanted {
            return 0;
        }
        let end = ((start / HUGE_PAGE_BYTES + 1) * HUGE_PAGE_BYTES).min(self.size_bytes());
        let start = start.max(self.prefaulted_bytes.fetch_max(end, Ordering::Relaxed));
        if start < end && self.shared.config.region.prefault(start..end) { end - start } else { 0 }
    }

    /// Whether less than `bytes` are ready ahead of committers, so that somebody has to
    /// [`prefault_ahead`](Self::prefault_ahead). Takes no lock: not known of one ring.
    pub fn is_prefault_due(&self, bytes: usize) -> bool {
        if self.report.pages == HugePages::No || !self.shared.has_extents() {
            return false;
        }
        let ready = self.prefaulted_bytes.load(Ordering::Relaxed);
        let is_short = |start: usize| start != 0 && start.saturating_add(bytes) > ready;
        ready < self.size_bytes() && self.unused_from().is_some_and(is_short)
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
