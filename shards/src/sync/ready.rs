//! Shards that wait for a worker, and workers that wait for a shard.
//!
//! ```text
//!   after a push:   set the shard's bit -> it was clear? -> is a wake-up under way? -> nothing
//!                                                                | no
//!                                                    choose one that says "parked", wake it
//!   worker:         claim a bit, which clears it -> drain that shard
//!                   no bit is set -> say "parked" -> look again -> park
//!                   was chosen? -> say that it is up -> claim a bit -> more are set? Wake another
//! ```
//!
//! At most one wake-up is under way. It costs microseconds: who pushes to many shards pays for one,
//! and the workers for the others.
//!
//! - `Bits::words` as bits of shards: against `CommitQueue::head`: "push, then look at the bit;
//!   clear the bit, then take the queue". And against those of parked workers: "set the bit, then
//!   look who is parked; say parked, then look at the bits". SeqCst on both sides: one of the two
//!   sees the other. Between two words of different types by argument, as for the lock.
//! - `Bits::words` as bits of workers: publish nothing. SeqCst, as above; whoever clears a bit
//!   wakes its worker, and nobody else does.
//! - `Sleepers::is_waking`: publishes nothing. SeqCst: "set a shard's bit, then see a wake-up under
//!   way; end the wake-up, then look at the bits".
//!
//! `models::ready` shows that no bit is lost, and that nobody sleeps while one is set. There a look
//! is a read-modify-write ([`look`]), since loom treats SeqCst loads as Acquire.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};

/// What a word is now, in the one order of all SeqCst operations.
fn look(word: &AtomicU64) -> u64 {
    if cfg!(loom) { word.fetch_or(0, Ordering::SeqCst) } else { word.load(Ordering::SeqCst) }
}

/// A bit for each shard of a buffer: somebody has left work there, and no worker has come yet. Or
/// for each worker: it is parked, or looks a last time before it parks.
#[derive(Debug)]
pub(crate) struct Bits {
    words: Box<[AtomicU64]>,
}

impl Bits {
    pub(crate) fn new(num_bits: usize) -> Bits {
        Bits { words: (0..num_bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Sets a bit. Whether it was clear.
    #[inline]
    pub(crate) fn set(&self, at: usize) -> bool {
        let (word, bit) = (&self.words[at / 64], 1 << (at % 64));
        look(word) & bit == 0 && word.fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    /// Clears a bit. Whether it was set.
    fn clear(&self, at: usize) -> bool {
        let bit = 1 << (at % 64);
        self.words[at / 64].fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Clears the first bit that is set, and says which. Nobody else gets it.
    pub(crate) fn claim(&self) -> Option<usize> {
        for (index, word) in self.words.iter().enumerate() {
            let mut set = look(word);
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
        self.words.iter().any(|word| look(word) != 0)
    }
}

/// The workers that are parked, or look a last time before they park.
#[derive(Debug)]
pub(crate) struct Sleepers {
    parked: CachePadded<Bits>,
    /// A worker was chosen, and has not looked at the shards yet.
    is_waking: CachePadded<Bits>,
}

impl Sleepers {
    pub(crate) fn new(num_workers: usize) -> Sleepers {
        Sleepers { parked: Bits::new(num_workers).into(), is_waking: Bits::new(1).into() }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn num_parked(&self) -> u32 {
        self.parked.words.iter().map(|word| look(word).count_ones()).sum()
    }

    /// Chooses a parked worker for the caller to unpark, unless one was chosen that has not looked
    /// at the shards yet.
    #[inline]
    pub(crate) fn wake_one(&self) -> Option<usize> {
        while !self.is_waking.any() && self.parked.any() {
            if !self.is_waking.set(0) {
                return None;
            }
            if let Some(worker) = self.parked.claim() {
                return Some(worker);
            }
            // Another caller may have left its shard to this wake-up, and a worker may have parked
            // before that: who is parked is looked at again.
            self.is_waking.clear(0);
        }
        None
    }

    /// Parks a worker unless there is work. Returns when somebody has woken it, or sooner; and
    /// whether it was chosen. Then it looks at the shards next, and wakes another if there is work
    /// for more than one.
    pub(crate) fn sleep(&self, worker: usize, has_work: impl FnOnce() -> bool, park: impl FnOnce()) -> bool {
        self.parked.set(worker);
        if !has_work() {
            park();
        }
        // Who has chosen it has said that a wake-up is under way.
        !self.parked.clear(worker) && self.is_waking.clear(0)
    }
}
