//! The ordered list of a sequence's records.

use std::collections::VecDeque;

/// A double-ended queue of record slots whose growth slows down.
///
/// One sequence may hold millions of records of 16 bytes each. Growth beyond 16 slots is by 1/4,
/// which keeps the list at 5 bytes for a record; beyond 8192 by 1/16, beyond 65536 by 1/64, which
/// keeps it near 4.
///
/// ```text
///   | older .... |   gap   | slots ......... |       nearly always there is no older part
///                ^ inserted last
/// ```
///
/// Chunks that come out of order by much are inserted at a gap, which moves to where the next one
/// belongs: those that come in descending order move a slot or two each, not half of the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotQueue {
    /// The newest slots: some, unless there are none at all.
    slots: VecDeque<u32>,
    /// The slots before these, if there is a gap: then at least one.
    #[expect(clippy::box_collection, reason = "8 bytes in every sequence, not 32")]
    older: Option<Box<VecDeque<u32>>>,
}

/// An insertion that would move more slots than this goes through a gap.
const MAX_MOVED: usize = 256;

impl SlotQueue {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() + self.older.as_ref().map_or(0, |older| older.len())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes outside the struct.
    pub(crate) fn heap_bytes(&self) -> usize {
        let older = self
            .older
            .as_ref()
            .map_or(0, |older| size_of::<VecDeque<u32>>() + older.capacity() * size_of::<u32>());
        self.slots.capacity() * size_of::<u32>() + older
    }

    /// The slot at `index < len`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> u32 {
        match &self.older {
            None => self.slots[index],
            Some(older) => older.get(index).copied().unwrap_or_else(|| self.slots[index - older.len()]),
        }
    }

    /// The oldest slots, as many as are contiguous in memory: at least one if there is any.
    #[inline(always)]
    pub(crate) fn front_run(&self) -> &[u32] {
        self.front_part().as_slices().0
    }

    #[inline(always)]
    fn front_part(&self) -> &VecDeque<u32> {
        match &self.older {
            None => &self.slots,
            Some(older) => older,
        }
    }

    /// The newest slots, as many as are contiguous in memory: at least one if there is any.
    #[inline(always)]
    pub(crate) fn back_run(&self) -> &[u32] {
        match self.slots.as_slices() {
            (all, []) => all,
            (_, newest) => newest,
        }
    }

    /// The newest slot.
    #[inline]
    pub(crate) fn back(&self) -> Option<u32> {
        self.slots.back().copied()
    }

    #[inline(always)]
    pub(crate) fn push_back(&mut self, slot: u32) {
        if self.slots.len() == self.slots.capacity() {
            self.grow();
        }
        self.slots.push_back(slot);
    }

    /// Removes the oldest slot, if there is any.
    #[inline]
    pub(crate) fn pop_front(&mut self) {
        match self.older {
            None => _ = self.slots.pop_front(),
            Some(_) => self.pop_older(1),
        }
    }

    /// Removes as many of the slots before the gap, which are there.
    #[cold]
    #[inline(never)]
    fn pop_older(&mut self, count: usize) {
        if let Some(older) = &mut self.older {
            older.drain(..count);
            if older.is_empty() {
                self.older = None;
            }
        }
    }

    /// Removes the oldest `count` slots, which are in the [`front_run`](Self::front_run).
    #[inline(always)]
    pub(crate) fn pop_front_run(&mut self, count: usize) {
        match self.older {
            None => _ = self.slots.drain(..count),
            Some(_) => self.pop_older(count),
        }
    }

    /// Removes the oldest slot if it is `slot`.
    #[inline(always)]
    pub(crate) fn pop_front_if(&mut self, slot: u32) -> bool {
        if self.older.is_some() {
            return self.pop_older_if(slot);
        }
        // It nearly always is: so the place of the front is computed once.
        match self.slots.pop_front() {
            Some(front) if front != slot => {
                self.insert_far(front, self.slots.len());
                false
            }
            front => front.is_some(),
        }
    }

    #[cold]
    #[inline(never)]
    fn pop_older_if(&mut self, slot: u32) -> bool {
        let is_front = self.front_part().front() == Some(&slot);
        if is_front {
            self.pop_older(1);
        }
        is_front
    }

    /// Removes all slots; memory for a few is kept.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.older = None;
        self.slots.clear();
        if self.slots.capacity() > 4 {
            self.slots = VecDeque::new();
        }
    }

    /// Inserts `slot` before the newest `behind` ones, or before all if there are not so many.
    #[inline]
    pub(crate) fn insert(&mut self, slot: u32, behind: usize) {
        if behind > MAX_MOVED || self.slots.len() == self.slots.capacity() {
            return self.insert_far(slot, behind);
        }
        self.slots.push_back(slot);
        let (all, newest) = self.slots.as_mut_slices();
        let run = if newest.is_empty() { all } else { newest };
        // The deque's own insertion also looks which of its sides is shorter.
        let last = run.len() - 1;
        let Some(at) = last.checked_sub(behind) else {
            self.slots.pop_back();
            return self.insert_far(slot, behind);
        };
        run.copy_within(at..last, at + 1);
        run[at] = slot;
    }

    /// As [`insert`](Self::insert), also where there is no room. Moves the gap to where `slot`
    /// belongs, unless few slots move without one.
    #[cold]
    #[inline(never)]
    fn insert_far(&mut self, slot: u32, behind: usize) {
        if self.slots.len() == self.slots.capacity() {
            self.grow();
        }
        let index = self.len().saturating_sub(behind);
        if self.older.is_none() && index.min(behind) <= MAX_MOVED {
            self.slots.insert(index, slot);
            return;
        }
        let mut older = self.older.take().unwrap_or_default();
        if index < older.len() {
            let moved = older.len() - index;
            self.slots.reserve(moved);
            older.drain(index..).rev().for_each(|slot| self.slots.push_front(slot));
        } else {
            let moved = index - older.len();
            older.extend(self.slots.drain(..moved));
        }
        older.push_back(slot);
        self.older = Some(older);
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let old = self.slots.len();
        self.slots.reserve_exact(match old {
            0..16 => old.max(2),
            16..8192 => old / 4,
            8192..65536 => old / 16,
            _ => old / 64,
        });
    }

    /// Gives memory back if most of it is not used any more.
    pub(crate) fn fit(&mut self) {
        if let Some(older) = &mut self.older
            && older.capacity() / 2 > older.len().max(32)
        {
            older.shrink_to_fit();
        }
        let (len, capacity) = (self.slots.len(), self.slots.capacity());
        if capacity > 64 && capacity / 2 > len {
            self.slots.shrink_to(len.max(16) + len / 4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn it_is_a_deque() {
        let (mut ours, mut theirs) = (SlotQueue::default(), VecDeque::new());
        let mut random = 12345u32;
        for step in 0..40_000u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match random >> 29 {
                0 | 1 if step % 20_000 <= 12_000 => {
                    ours.push_back(step);
                    theirs.push_back(step);
                }
                0..=2 => {
                    theirs.pop_front();
                    ours.pop_front();
                }
                3 => {
                    let index = theirs.len().saturating_sub(random as usize % 4);
                    ours.insert(step, theirs.len() - index);
                    theirs.insert(index, step);
                }
                _ => {
                    ours.push_back(step);
                    theirs.push_back(step);
                }
            }
            assert_eq!(
                (ours.len(), ours.back(), (0..ours.len().min(1)).map(|front| ours.get(front)).next()),
                (theirs.len(), theirs.back().copied(), theirs.front().copied())
            );
        }
        assert!(theirs.len() > 8192, "slow growth was reached");
        assert!((0..theirs.len()).all(|i| ours.get(i) == theirs[i]));
    }

    #[test]
    fn a_gap_changes_nothing_that_is_seen() {
        let (mut ours, mut theirs) = (SlotQueue::default(), VecDeque::new());
        let mut random = 1u32;
        let (mut gaps, mut center) = (0, 0);
        for step in 0..30_000u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = theirs.len();
            match random >> 28 {
                _ if len < 3000 => {
                    ours.push_back(step);
                    theirs.push_back(step);
                }
                0 => {
                    ours.pop_front();
                    theirs.pop_front();
                }
                1 => {
                    let run = ours.front_run().len().min(random as usize % 16);
                    ours.pop_front_run(run);
                    theirs.drain(..run);
                }
                2 => assert!(ours.pop_front_if(theirs.pop_front().unwrap()) && !ours.pop_front_if(step)),
                3 => center = random as usize % len,
                4 => {
                    ours.push_back(step);
                    theirs.push_back(step);
                }
                5 => ours.fit(),
                6 if random % 512 < 4 => {
                    (0..2990).for_each(|_| ours.pop_front());
                    theirs.drain(..2990);
                }
                _ => {
                    let index = (center + random as usize % 16).min(len - 1);
                    ours.insert(step, theirs.len() - index);
                    theirs.insert(index, step);
                }
            }
            gaps += u32::from(ours.older.is_some());
            assert!(ours.older.as_ref().is_none_or(|older| !older.is_empty() && !ours.slots.is_empty()));
            assert_eq!((ours.len(), ours.is_empty()), (theirs.len(), theirs.is_empty()));
            assert_eq!(ours.back(), theirs.back().copied());
            assert_eq!(ours.front_run().first(), theirs.front());
            assert_eq!(ours.back_run().last(), theirs.back());
            if step % 64 == 0 {
                assert!((0..theirs.len()).all(|i| ours.get(i) == theirs[i]), "{step}");
            }
        }
        assert!(gaps > 1000, "{gaps}");
    }

    #[test]
    fn memory_that_is_not_used_any_more_goes_back() {
        let mut queue = SlotQueue::default();
        for slot in 0..1000 {
            queue.push_back(slot);
        }
        queue.fit();
        assert!(queue.slots.capacity() >= 1000, "it is used");
        // The newest slots wrap around the end of the memory.
        (0..990).for_each(|_| queue.pop_front());
        (1000..1300).for_each(|slot| queue.push_back(slot));
        assert!(queue.front_run().len() < queue.len());
        queue.fit();
        assert!(queue.slots.capacity() < 400, "{}", queue.slots.capacity());
        (1300..1400).for_each(|slot| queue.push_back(slot));
        assert!((0..queue.len()).map(|i| queue.get(i)).eq(990..1400));
    }
}
