//! Shards that wait for a worker, and the threads that serve as one.
//!
//! ```text
//!   after a push:  set the shard's bit -> it was clear? -> may one more serve? -> was one asked?
//!                                                                      | yes          | no
//!                                                                   (nothing)    ask for one
//!   any thread:    say that it has come -> is a bit set? -> take a slot: as many serve as there are
//!                          ^                                   | claim bits, drain those shards
//!                          +--- no bit is set: give it back <--+
//! ```
//!
//! At most one thread is asked for at a time, however many shards are pushed to. Those that serve
//! look again when they have given their slot back, so nobody is asked for while all slots are
//! taken.
//!
//! - `Bits::words` as bits of shards: against `CommitQueue::head`: "push, then look at the bit;
//!   clear the bit, then take the queue". And against the slots: "set the bit, then look for a free
//!   slot; free a slot, then look at the bits". SeqCst on both sides: one of the two sees the
//!   other. Between two words of different types by argument, as for the lock.
//! - `Bits::words` as slots: publish nothing. SeqCst, as above. Whoever claims a bit has the slot.
//! - `Slots::is_asked`: publishes nothing. SeqCst: "set a shard's bit, then see that one was asked;
//!   say that it has come, then look at the bits".
//!
//! `models::ready` shows that no bit is lost, and that nobody sleeps while one is set. There a look
//! is a read-modify-write ([`look`]), since loom treats SeqCst loads as Acquire.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};

/// What a word is now, in the one order of all SeqCst operations.
fn look(word: &AtomicU64) -> u64 {
    if cfg!(loom) { word.fetch_or(0, Ordering::SeqCst) } else { word.load(Ordering::SeqCst) }
}

/// A bit for each shard of a buffer: somebody has left work there, and no thread has come yet. Or
/// for each slot: nobody has it.
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

    fn clear(&self, at: usize) {
        self.words[at / 64].fetch_and(!(1 << (at % 64)), Ordering::SeqCst);
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

/// Who may serve: as many threads at a time as there are slots.
#[derive(Debug)]
pub(crate) struct Slots {
    free: CachePadded<Bits>,
    /// A thread was asked for, and has not come yet.
    is_asked: CachePadded<Bits>,
}

impl Slots {
    pub(crate) fn new(num_slots: usize) -> Slots {
        let slots = Slots { free: Bits::new(num_slots).into(), is_asked: Bits::new(1).into() };
        (0..num_slots).for_each(|slot| slots.give_back(slot));
        slots
    }

    /// Behind the bit of a shard. If true the caller has a thread come.
    #[inline]
    pub(crate) fn ask(&self) -> bool {
        self.free.any() && self.is_asked.set(0)
    }

    /// Whether a thread was asked for that has not come yet.
    #[cfg(all(not(loom), any(test, feature = "testing")))]
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.any()
    }

    /// A thread has come. It looks at the shards next, and takes a slot if a bit is set.
    pub(crate) fn come(&self) {
        if self.is_asked.any() {
            self.is_asked.clear(0);
        }
    }

    /// `None`: as many serve as may, and look at the shards again.
    pub(crate) fn take(&self) -> Option<usize> {
        self.free.claim()
    }

    /// Whoever had the slot looks at the shards again.
    pub(crate) fn give_back(&self, slot: usize) {
        self.free.set(slot);
    }

    #[cfg(all(not(loom), any(test, feature = "testing")))]
    pub(crate) fn num_taken(&self, num_slots: usize) -> usize {
        let num_free: u32 = self.free.words.iter().map(|word| look(word).count_ones()).sum();
        num_slots - num_free as usize
    }
}
