//! Shards that wait for a worker, and workers that wait for a shard.
//!
//! ```text
//!   after a push:   set the shard's bit -> it was clear? -> wake one worker that says "parked"
//!   worker:         claim a bit, which clears it -> drain that shard
//!                   no bit is set -> say "parked" -> look again -> park
//! ```
//!
//! - `ReadyShards::words`: against `CommitQueue::head`: "push, then look at the bit; clear the bit,
//!   then take the queue". And against `Sleepers::is_parked`: "set the bit, then look who is
//!   parked; say parked, then look at the bits". SeqCst on both sides: one of the two sees the
//!   other. Argument, as for the lock; `models::ready` shows that no bit is lost.
//! - `Sleepers::is_parked`: publishes nothing. SeqCst, as above; the swap lets one thread wake.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A bit for each shard of a buffer: somebody has left work there, and no worker has come yet.
#[derive(Debug)]
pub(crate) struct ReadyShards {
    words: Box<[AtomicU64]>,
}

impl ReadyShards {
    pub(crate) fn new(num_shards: usize) -> ReadyShards {
        ReadyShards { words: (0..num_shards.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Sets a shard's bit. Whether it was clear: then a worker is to be woken.
    #[inline]
    pub(crate) fn set(&self, shard: usize) -> bool {
        let (word, bit) = (&self.words[shard / 64], 1 << (shard % 64));
        word.load(Ordering::SeqCst) & bit == 0 && word.fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    /// Clears the bit of one shard that has it, and says which.
    pub(crate) fn claim(&self) -> Option<usize> {
        for (index, word) in self.words.iter().enumerate() {
            let mut set = word.load(Ordering::SeqCst);
            while set != 0 {
                let bit = set & set.wrapping_neg();
                set = word.fetch_and(!bit, Ordering::SeqCst);
                if set & bit != 0 {
                    return Some(index * 64 + bit.trailing_zeros() as usize);
                }
            }
        }
        None
    }

    pub(crate) fn any(&self) -> bool {
        self.words.iter().any(|word| word.load(Ordering::SeqCst) != 0)
    }
}

/// The workers that are parked, or look a last time before they park.
#[derive(Debug)]
pub(crate) struct Sleepers {
    is_parked: Box<[CachePadded<AtomicBool>]>,
}

impl Sleepers {
    pub(crate) fn new(num_workers: usize) -> Sleepers {
        Sleepers { is_parked: (0..num_workers).map(|_| AtomicBool::new(false).into()).collect() }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn all_parked(&self) -> bool {
        self.is_parked.iter().all(|parked| parked.load(Ordering::SeqCst))
    }

    /// Chooses a parked worker for the caller to unpark. Nobody else gets it.
    #[inline]
    pub(crate) fn wake_one(&self) -> Option<usize> {
        self.is_parked
            .iter()
            .position(|parked| parked.load(Ordering::SeqCst) && parked.swap(false, Ordering::SeqCst))
    }

    /// Parks a worker unless there is work. Returns when somebody has woken it, or sooner.
    pub(crate) fn sleep(&self, worker: usize, has_work: impl FnOnce() -> bool, park: impl FnOnce()) {
        let parked = &self.is_parked[worker];
        parked.store(true, Ordering::SeqCst);
        if !has_work() {
            park();
        }
        parked.store(false, Ordering::SeqCst);
    }
}
