//! Which thread had a number when: the kernel gives numbers of threads that have ended to new ones.
//!
//! A life begins with `task_newtask`, or where a number is heard of after its thread has ended. In
//! columns a switch does not name whom it ends, and some kernels leave switches out: an end that is
//! concluded from the switch before counts only if the number has another name afterwards.

use std::collections::HashMap;
use std::ops::Range;

use super::THREADS_MAX;
use super::comms::Comm;
use super::thread::Thread;

/// Index of a life.
pub(super) type LifeId = usize;

/// Who made a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// That is not told.
    Unknown,
    /// Another process: it is the main thread of its own.
    AnotherProcess,
    /// A thread of its process; `None` beyond the limit.
    Thread(Option<LifeId>),
}

/// Whether a thread has ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    NotYet,
    /// The switch away from whoever ran before ends somebody.
    Concluded,
    Told,
}

#[derive(Debug)]
pub(super) struct Life {
    pub(super) tid: i32,
    /// 0 for the first thread of this number.
    pub(super) number: u32,
    /// 0 for the first: it may be older than the trace.
    begin_ns: u64,
    /// Its latest name.
    pub(super) comm: Comm,
    pub(super) maker: Maker,
    pub(super) end: End,
    pub(super) thread: Thread,
}

#[derive(Debug, Default)]
pub(super) struct Lives {
    lives: Vec<Life>,
    /// Lives by number, the earliest first; none is empty.
    of: HashMap<i32, Vec<LifeId>>,
    /// Times that there was no room for a further life of a number: the one before goes on.
    pub(super) joined: u64,
}

impl Lives {
    pub(super) fn latest(&self, tid: i32) -> Option<LifeId> {
        self.of.get(&tid).and_then(|lives| lives.last()).copied()
    }

    /// `None` beyond the limit, if nothing has been heard of this number.
    pub(super) fn begin(&mut self, tid: i32, at_ns: u64, maker: Maker) -> Option<LifeId> {
        let latest = self.latest(tid);
        if self.lives.len() >= THREADS_MAX {
            if let Some(latest) = latest {
                self.lives[latest].end = End::NotYet;
                self.joined += 1;
            }
            return latest;
        }
        let lives = self.of.entry(tid).or_default();
        let is_first = lives.is_empty() && maker == Maker::Unknown;
        let begin_ns = if is_first { 0 } else { at_ns };
        let (number, comm) = (lives.len() as u32, Comm::default());
        lives.push(self.lives.len());
        let thread = Thread::default();
        self.lives.push(Life { tid, number, begin_ns, comm, maker, end: End::NotYet, thread });
        lives.last().copied()
    }

    /// Whose life it was at that time, or else the first.
    pub(super) fn at(&self, tid: i32, at_ns: u64) -> Option<LifeId> {
        let lives = self.of.get(&tid)?;
        let begun = lives.partition_point(|&id| self.lives[id].begin_ns <= at_ns);
        lives.get(begun.saturating_sub(1)).copied()
    }

    /// From its beginning to that of the next life of its number.
    pub(super) fn span(&self, id: LifeId) -> Range<u64> {
        let life = &self.lives[id];
        let next = self.of[&life.tid].get(life.number as usize + 1);
        life.begin_ns..next.map_or(u64::MAX, |&next| self.lives[next].begin_ns)
    }

    pub(super) fn get(&self, id: LifeId) -> &Life {
        &self.lives[id]
    }

    pub(super) fn get_mut(&mut self, id: LifeId) -> &mut Life {
        &mut self.lives[id]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (LifeId, &Life)> {
        self.lives.iter().enumerate()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Life> {
        self.lives.iter_mut()
    }
}
