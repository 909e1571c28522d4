//! The budget of a drain: how much of a queue a thread works through before it lets others in.

use std::time::{Duration, Instant};

use crate::sync::reclaim::DrainResult;

/// A budget: the most chunks, and the longest time, before the lock is released; and for which a
/// thread helps others in one operation.
const MAX_CHUNKS: usize = 32;
const MAX_TIME: Duration = Duration::from_micros(50);
/// The clock is read after so many bytes.
const BYTES_PER_CLOCK_READ: isize = 32 << 10;

/// What is left of a budget.
pub(crate) struct DrainBudget {
    chunks_left: usize,
    bytes_to_clock_read: isize,
    started: Option<Instant>,
}

impl DrainBudget {
    #[inline]
    pub(crate) fn new() -> DrainBudget {
        DrainBudget { chunks_left: MAX_CHUNKS, bytes_to_clock_read: BYTES_PER_CLOCK_READ, started: None }
    }

    /// Does something that tells its size in bytes, or that there is no extent; unless the budget
    /// is spent.
    pub(crate) fn spend(&mut self, work: impl FnOnce() -> Option<usize>) -> Option<DrainResult> {
        if self.is_spent() {
            return Some(DrainResult::BudgetSpent);
        }
        let Some(bytes) = work() else { return Some(DrainResult::NoExtent) };
        self.note(bytes);
        None
    }

    #[inline]
    pub(crate) fn note(&mut self, bytes: usize) {
        self.chunks_left -= 1;
        // No chunk has more than 64 KiB.
        self.bytes_to_clock_read -= bytes as isize;
    }

    #[inline]
    pub(crate) fn is_spent(&mut self) -> bool {
        self.chunks_left == 0 || self.bytes_to_clock_read <= 0 && self.is_late()
    }

    #[cold]
    #[inline(never)]
    fn is_late(&mut self) -> bool {
        self.bytes_to_clock_read = BYTES_PER_CLOCK_READ;
        let is_late = self.started.get_or_insert_with(Instant::now).elapsed() >= MAX_TIME;
        if is_late {
            // It stays spent: whoever asks next must not begin with more.
            self.chunks_left = 0;
        }
        is_late
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_time_has_ended_stays_spent() {
        let mut budget = DrainBudget::new();
        budget.note(BYTES_PER_CLOCK_READ as usize);
        // The first reading ends it already if this thread loses its CPU in the middle of it.
        if !budget.is_spent() {
            std::thread::sleep(MAX_TIME);
            budget.note(BYTES_PER_CLOCK_READ as usize);
        }
        assert_eq!((budget.is_spent(), budget.is_spent()), (true, true));
    }
}
