//! What a flush has still to read: what there was in each CPU's memory when it began.

use super::hub::Which;

/// Pages that are left at most, by CPU of a ring.
#[derive(Debug, Default)]
pub(super) struct Rest {
    own: Vec<usize>,
    top: Vec<usize>,
}

impl Rest {
    /// All that the memory of so many CPUs can hold.
    pub(super) fn add(&mut self, which: Which, cpus: usize, pages: usize) {
        *self.of(which) = vec![pages; cpus];
    }

    /// So many pages came of a CPU, and more may follow.
    pub(super) fn was_read(&mut self, which: Which, pipe: usize, count: usize, may_have_more: bool) {
        // A ring that is younger than the flush is none of its business.
        if let Some(pages) = self.of(which).get_mut(pipe) {
            *pages = if may_have_more { pages.saturating_sub(count) } else { 0 };
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.own.iter().chain(&self.top).all(|pages| *pages == 0)
    }

    fn of(&mut self, which: Which) -> &mut Vec<usize> {
        match which {
            Which::Own => &mut self.own,
            Which::Top => &mut self.top,
        }
    }
}
