//! The memory of a buffer, cut into extents of one size, and those that no shard has.
//!
//! A shard takes an extent when its newest is full, and returns those without records. When the
//! pool is empty, the extent whose last ticket is the oldest is evicted, whoever has it (see
//! `shard::evict`): so one busy shard can use nearly all of the memory.
//!
//! ```text
//!   top: [ count of pops and pushes | index + 1 ]    next, of each extent: [ . | . | 0 | . ]
//!                          |                                                    ^
//!                          +----------------------------------------------------+
//!                                                            a stack linked by indices
//! ```
//!
//! The upper half of `top` changes with every operation, so an exchange fails if the stack was
//! changed meanwhile, even if the same extent is on top again (ABA). For a wrong success 2^32
//! operations would have to fall between a load and its exchange.
//!
//! - `ExtentPool::top`, `next`: publish `next` of the top, and what was done in the extent. The RMW
//!   of `put` pairs with load and RMW of `pop`; `next` itself is Relaxed. SeqCst in RMWs and in
//!   `has_returned`, against `OwnerLock`: "put, then look who needs one; unlock, then look for
//!   one". Models: `an_extent_has_one_holder`,
//!   `what_found_no_extent_is_done_by_who_hands_one_over`.
//! - `ExtentPool::fresh`: publishes nothing: an extent before its first use has no past. Relaxed.
//!   Model: the same, which takes its extents from `fresh`.

use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The smallest and the largest extent.
pub(crate) const MIN_EXTENT_BYTES: usize = 128 << 10;
pub(crate) const MAX_EXTENT_BYTES: usize = 2 << 20;
/// An extent holds at least so many chunks of the largest SMB page: else its unused tail costs too
/// much.
const MIN_PAGES: usize = 32;
/// A buffer has at least so many extents for each shard: else open extents cost too much.
const MIN_EXTENTS_PER_SHARD: usize = 8;
/// The aim: on average half an extent is open in each shard, 1/32 of the memory.
const GOOD_EXTENTS_PER_SHARD: usize = 16;

/// How a buffer is cut: number of shards, number and size of extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentLayout {
    /// Shards: as many as wanted, or fewer if the memory does not give each of them eight extents.
    pub num_shards: usize,
    /// Bytes of one extent: a power of two from 128 KiB to 2 MiB, or the whole buffer if there is
    /// one shard.
    pub extent_bytes: usize,
    /// Whole extents in the buffer. The rest at its end is not used.
    pub num_extents: usize,
}

impl ExtentLayout {
    /// Cuts `buffer_bytes` for `num_shards_wanted` (> 0) shards whose chunks come from SMB pages of
    /// at most `page_bytes`.
    pub fn new(buffer_bytes: usize, num_shards_wanted: usize, page_bytes: usize) -> Self {
        let least = (MIN_PAGES * page_bytes).next_power_of_two().clamp(MIN_EXTENT_BYTES, MAX_EXTENT_BYTES);
        let most_shards = buffer_bytes / (least * MIN_EXTENTS_PER_SHARD);
        let num_shards = num_shards_wanted.min(most_shards);
        if num_shards <= 1 {
            return Self { num_shards: 1, extent_bytes: buffer_bytes, num_extents: 1 };
        }
        let good = buffer_bytes / (num_shards * GOOD_EXTENTS_PER_SHARD);
        let extent_bytes = (good.max(1).next_power_of_two() / if good.is_power_of_two() { 1 } else { 2 })
            .clamp(least, MAX_EXTENT_BYTES);
        Self { num_shards, extent_bytes, num_extents: buffer_bytes / extent_bytes }
    }
}

/// The stack of free extents, by index.
#[derive(Debug)]
pub(crate) struct ExtentPool {
    /// Lower half: index of the top extent plus one, 0 if the stack is empty. Upper half:
    /// operations so far.
    top: AtomicU64,
    /// The extent below each, plus one. Written before the exchange that publishes the extent.
    next: Box<[AtomicU32]>,
    /// Extents from here on were never taken. They are not in the stack, so making a pool touches
    /// no memory.
    fresh: AtomicUsize,
}

impl ExtentPool {
    pub(crate) fn new(num_extents: usize) -> Self {
        assert!(u32::try_from(num_extents).is_ok_and(|count| count < u32::MAX), "{num_extents} extents");
        Self { top: AtomicU64::new(0), next: zeros(num_extents), fresh: AtomicUsize::new(0) }
    }

    /// Takes an extent: it is the caller's alone until it is put back.
    pub(crate) fn take(&self) -> Option<u32> {
        self.pop().or_else(|| self.take_fresh())
    }

    /// Puts an extent back. What the caller did in it happens before what the next holder does.
    pub(crate) fn put(&self, index: u32) {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            self.next[index as usize].store(top as u32, Ordering::Relaxed);
            let new = bump(top) | u64::from(index + 1);
            match self.top.compare_exchange_weak(top, new, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => top = newer,
            }
        }
    }

    /// Whether an extent that was put back is there. For a thread that found none and has unlocked
    /// its shard since.
    pub(crate) fn has_returned(&self) -> bool {
        self.top.load(Ordering::SeqCst) as u32 != 0
    }

    /// Extents that no shard has: a hint.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn num_free_hint(&self) -> usize {
        let used = self.num_used_hint();
        let top = self.top.load(Ordering::Acquire) as u32;
        let below = |index: &u32| Some(self.next[index.checked_sub(1)? as usize].load(Ordering::Relaxed));
        let returned = std::iter::successors(Some(top), below).take_while(|&index| index != 0);
        // While others change the stack, a walk may go round.
        self.next.len() - used + returned.take(used).count()
    }

    /// Extents that were handed out at least once, which are those with the smallest indices: a
    /// hint.
    pub(crate) fn num_used_hint(&self) -> usize {
        self.fresh.load(Ordering::Relaxed)
    }

    fn pop(&self) -> Option<u32> {
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let index = (top as u32).checked_sub(1)?;
            let below = self.next[index as usize].load(Ordering::Relaxed);
            let new = bump(top) | u64::from(below);
            match self.top.compare_exchange_weak(top, new, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => return Some(index),
                Err(newer) => top = newer,
            }
        }
    }

    fn take_fresh(&self) -> Option<u32> {
        let mut fresh = self.fresh.load(Ordering::Relaxed);
        while fresh < self.next.len() {
            match self.fresh.compare_exchange_weak(fresh, fresh + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(fresh as u32),
                Err(newer) => fresh = newer,
            }
        }
        None
    }
}

/// Zeros; the memory of many is not touched.
#[cfg(not(loom))]
fn zeros(len: usize) -> Box<[AtomicU32]> {
    // SAFETY: zero bytes are an `AtomicU32`.
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}

#[cfg(loom)]
fn zeros(len: usize) -> Box<[AtomicU32]> {
    (0..len).map(|_| AtomicU32::new(0)).collect()
}

/// The upper half of the next value of `top`.
fn bump(top: u64) -> u64 {
    (top & !0xFFFF_FFFF).wrapping_add(1 << 32)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    #[test]
    fn every_extent_is_taken_once_and_can_be_put_back() {
        let pool = ExtentPool::new(5);
        let mut taken: Vec<u32> = std::iter::from_fn(|| pool.take()).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2, 3, 4]);
        assert_eq!(pool.num_free_hint(), 0);
        pool.put(3);
        pool.put(1);
        assert_eq!(pool.take(), Some(1), "the one that is still in the cache first");
        assert_eq!(pool.take(), Some(3));
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn layouts_keep_their_bounds() {
        for buffer in [4096, MB, 3 * MB, 16 * MB, 64 * MB, 100 * MB, 4096 * MB] {
            for wanted in [1, 2, 3, 16, 64, 1024] {
                for page in [4096, 16384, 32768] {
                    let layout = ExtentLayout::new(buffer, wanted, page);
                    assert!(layout.num_shards >= 1 && layout.num_shards <= wanted);
                    assert!(layout.extent_bytes * layout.num_extents <= buffer);
                    if layout.num_shards > 1 {
                        assert!((MIN_EXTENT_BYTES..=MAX_EXTENT_BYTES).contains(&layout.extent_bytes));
                        assert!(layout.extent_bytes >= MIN_PAGES * page);
                        assert!(layout.num_extents >= MIN_EXTENTS_PER_SHARD * layout.num_shards);
                    }
                }
            }
        }
    }

    #[test]
    fn layouts_of_usual_buffers() {
        let cut = |mb: usize, shards| ExtentLayout::new(mb * MB, shards, 4096);
        assert_eq!(cut(64, 16), ExtentLayout { num_shards: 16, extent_bytes: 256 << 10, num_extents: 256 });
        assert_eq!(cut(16, 16), ExtentLayout { num_shards: 16, extent_bytes: 128 << 10, num_extents: 128 });
        assert_eq!(cut(64, 2), ExtentLayout { num_shards: 2, extent_bytes: 2 << 20, num_extents: 32 });
        assert_eq!(cut(4, 1024), ExtentLayout { num_shards: 4, extent_bytes: 128 << 10, num_extents: 32 });
        assert_eq!(cut(1, 4), ExtentLayout { num_shards: 1, extent_bytes: MB, num_extents: 1 });
    }
}
