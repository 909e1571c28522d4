//! What is counted, by threads that share nothing else. All accesses are relaxed: nothing else is
//! published by them.

use std::collections::BTreeMap;

use crate::sync::{Arc, AtomicU64, Ordering};

/// What happens once a chunk or less often, of all writers together.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(super) chunks_acquired: AtomicU64,
    pub(super) stalls: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) violations: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What may happen with each packet of a writer. Only that writer adds, so it takes no
/// read-modify-write, which would cost more than all else of a packet that is dropped. No other
/// writer's counts are in its cache lines (processors fetch them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WriterCounts {
    chunks_refused: AtomicU64,
    packets_dropped: AtomicU64,
}

impl WriterCounts {
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
    ended: Refused,
}

/// What writers did not get, and lost for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refused {
    pub(super) chunks: u64,
    pub(super) packets: u64,
}

impl Refused {
    fn add(self, writer: &WriterCounts) -> Refused {
        Refused {
            chunks: self.chunks + writer.chunks_refused.load(Ordering::Relaxed),
            packets: self.packets + writer.packets_dropped(),
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

    pub(super) fn sum(&self) -> Refused {
        self.living.values().fold(self.ended, |sum, writer| sum.add(writer))
    }
}
