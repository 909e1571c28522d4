//! What is counted, by threads that share nothing else. All accesses are relaxed: nothing else is
//! published by them.

use std::collections::BTreeMap;

use crate::sync::{Arc, AtomicU64, Ordering};

/// What happens less often than chunks are taken, of all writers together.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(super) stalls: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) violations: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What may happen with each packet or chunk of a writer. Only that writer adds, so it takes no
/// read-modify-write, which would cost more than all else of a packet that is dropped. No other
/// writer's counts are in its cache lines (processors fetch them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WriterCounts {
    chunks_acquired: AtomicU64,
    chunks_refused: AtomicU64,
    packets_dropped: AtomicU64,
}

impl WriterCounts {
    pub(crate) fn acquire_chunk(&self) {
        add_alone(&self.chunks_acquired);
    }

    pub(crate) fn refuse_chunk(&self) {
        add_alone(&self.chunks_refused);
    }

    pub(crate) fn drop_packet(&self) {
        add_alone(&self.packets_dropped);
    }

    pub(crate) fn packets_dropped(&self) -> u64 {
        self.packets_dropped.load(Ordering::Relaxed)
    }
}

fn add_alone(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// The counts of all writers: of those that live, by id, and the sum of those that have ended.
#[derive(Debug, Default)]
pub(super) struct AllWriters {
    living: BTreeMap<u16, Arc<WriterCounts>>,
    ended: Sums,
}

/// What several writers got, what they did not get, and lost for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) chunks_acquired: u64,
    pub(super) chunks_refused: u64,
    pub(super) packets_dropped: u64,
}

impl Sums {
    fn add(self, writer: &WriterCounts) -> Sums {
        Sums {
            chunks_acquired: self.chunks_acquired + writer.chunks_acquired.load(Ordering::Relaxed),
            chunks_refused: self.chunks_refused + writer.chunks_refused.load(Ordering::Relaxed),
            packets_dropped: self.packets_dropped + writer.packets_dropped(),
        }
    }
}

impl AllWriters {
    pub(super) fn begin(&mut self, writer_id: u16) -> Arc<WriterCounts> {
        let counts = Arc::<WriterCounts>::default();
        self.living.insert(writer_id, Arc::clone(&counts));
        counts
    }

    pub(super) fn end(&mut self, writer_id: u16) {
        if let Some(writer) = self.living.remove(&writer_id) {
            self.ended = self.ended.add(&writer);
        }
    }

    pub(super) fn sum(&self) -> Sums {
        self.living.values().fold(self.ended, |sum, writer| sum.add(writer))
    }
}
