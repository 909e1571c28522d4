//! Threads that events named, so that whoever describes processes can be asked for them.

use std::collections::BTreeSet;

/// Thread ids have 22 bits at most (the kernel's `PID_MAX_LIMIT`).
const TID_MAX: usize = 1 << 22;

/// Threads of a session, each told once until it ends.
#[derive(Debug, Default)]
pub(super) struct Pids {
    /// A bit for each id; grows to the highest that was seen, 512 KiB at most.
    seen: Vec<u64>,
    fresh: Vec<i32>,
    renamed: BTreeSet<i32>,
}

impl Pids {
    /// A thread was named.
    #[inline]
    pub(super) fn see(&mut self, tid: i32) {
        let index = tid as usize;
        // A negative id is far above the limit.
        match self.seen.get(index / 64) {
            Some(word) if word >> (index % 64) & 1 == 1 => {}
            _ => self.see_first(tid, index),
        }
    }

    #[cold]
    fn see_first(&mut self, tid: i32, index: usize) {
        if tid <= 0 || index >= TID_MAX {
            return;
        }
        if self.seen.len() <= index / 64 {
            self.seen.resize(index / 64 + 1, 0);
        }
        self.seen[index / 64] |= 1 << (index % 64);
        self.fresh.push(tid);
    }

    /// A thread took another name.
    pub(super) fn renamed(&mut self, tid: i32) {
        if tid > 0 {
            self.renamed.insert(tid);
        }
    }

    /// A thread is gone; whoever gets its number is another one.
    pub(super) fn ended(&mut self, tid: i32) {
        if let Some(word) = self.seen.get_mut(tid as usize / 64) {
            *word &= !(1 << (tid as usize % 64));
        }
    }

    /// Everything is to be told again.
    pub(super) fn forget(&mut self) {
        self.seen.clear();
    }

    /// What is to be described now: threads with another name, and those seen first.
    pub(super) fn take(&mut self) -> (Vec<i32>, Vec<i32>) {
        (std::mem::take(&mut self.renamed).into_iter().collect(), std::mem::take(&mut self.fresh))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once() {
        let mut pids = Pids::default();
        for tid in [7, 0, 7, -1, i32::MAX, i32::MIN, (1 << 22) - 1, 7] {
            pids.see(tid);
        }
        pids.renamed(7);
        pids.renamed(7);
        assert_eq!(pids.take(), (vec![7], vec![7, (1 << 22) - 1]));
        pids.see(7);
        assert_eq!(pids.take(), (vec![], vec![]));
        pids.ended(7);
        pids.ended(-5);
        pids.see(7);
        assert_eq!(pids.take().1, [7], "somebody else by now");
        pids.forget();
        pids.see(7);
        assert_eq!(pids.take().1, [7]);
    }

    #[test]
    fn many_names_of_many_threads() {
        let mut pids = Pids::default();
        let begin = std::time::Instant::now();
        let tids = || 1..100_000;
        tids().chain(tids()).for_each(|tid| pids.renamed(tid));
        // A search of a list for each takes a minute.
        assert!(begin.elapsed() < std::time::Duration::from_secs(5), "{:?}", begin.elapsed());
        assert!(pids.take().0.into_iter().eq(tids()));
    }
}
