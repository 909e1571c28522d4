//! The ordered list of a sequence's records.

/// A double-ended queue of record slots with room for two before it asks for memory.
///
/// Most sequences of a trace with many threads hold few records, and one sequence may hold millions of 16 bytes each: so the
/// first two lie inside, and growth beyond 16 goes by 1/4, which keeps the list at 5 bytes for a record, beyond 8192 by 1/16, beyond 65536 by
/// 1/64, which keeps it near 4.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotQueue {
    inline: [u32; 2],
    /// Empty, or a ring with more than two places.
    heap: Box<[u32]>,
    head: u32,
    len: u32,
}

impl SlotQueue {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes outside the struct.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap.len() * size_of::<u32>()
    }

    #[inline]
    fn places(&self) -> &[u32] {
        if self.heap.is_empty() { &self.inline } else { &self.heap }
    }

    #[inline]
    fn places_mut(&mut self) -> &mut [u32] {
        if self.heap.is_empty() { &mut self.inline } else { &mut self.heap }
    }

    #[inline]
    fn position(&self, index: usize, capacity: usize) -> usize {
        let at = self.head as usize + index;
        if at >= capacity { at - capacity } else { at }
    }

    /// The slot at `index < len`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> u32 {
        debug_assert!(index < self.len());
        let places = self.places();
        places[self.position(index, places.len())]
    }

    #[inline]
    fn set(&mut self, index: usize, slot: u32) {
        let at = self.position(index, self.places().len());
        self.places_mut()[at] = slot;
    }

    /// The oldest slots, as many as lie behind each other in memory: at least one if there is any.
    #[inline(always)]
    pub(crate) fn front_run(&self) -> &[u32] {
        let (places, head) = (self.places(), self.head as usize);
        let end = places.len().min(head + self.len());
        places.get(head..end).unwrap_or_default()
    }

    /// The newest slots, as many as lie behind each other in memory: at least one if there is any.
    #[inline(always)]
    pub(crate) fn back_run(&self) -> &[u32] {
        let (places, end) = (self.places(), self.head as usize + self.len());
        let run = if end <= places.len() { self.head as usize..end } else { 0..end - places.len() };
        places.get(run).unwrap_or_default()
    }

    /// The newest slot.
    #[inline]
    pub(crate) fn back(&self) -> Option<u32> {
        self.len().checked_sub(1).map(|last| self.get(last))
    }

    #[inline(always)]
    pub(crate) fn push_back(&mut self, slot: u32) {
        let (len, capacity) = (self.len(), self.heap.len());
        let mut at = self.head as usize + len;
        if at >= capacity {
            at = at.wrapping_sub(capacity);
        }
        // Without a heap, or if it is full: another way.
        match self.heap.get_mut(at) {
            Some(place) if len < capacity => *place = slot,
            _ => return self.push_back_slowly(slot),
        }
        self.len += 1;
    }

    #[inline(never)]
    fn push_back_slowly(&mut self, slot: u32) {
        if self.heap.is_empty() && self.len() < self.inline.len() {
            self.inline[(self.head + self.len) as usize % self.inline.len()] = slot;
            self.len += 1;
        } else {
            self.push_back_elsewhere(slot);
        }
    }

    /// Into the heap, if need be into a larger one.
    #[inline(never)]
    fn push_back_elsewhere(&mut self, slot: u32) {
        if self.len() == self.places().len() {
            self.grow();
        }
        self.len += 1;
        self.set(self.len() - 1, slot);
    }

    /// Takes the oldest slot away, if there is any.
    #[inline]
    pub(crate) fn pop_front(&mut self) {
        if self.len != 0 {
            self.head += 1;
            if self.head as usize == self.places().len() {
                self.head = 0;
            }
            self.len -= 1;
        }
    }

    /// Takes the oldest `count` slots away, which are in [`front_run`](Self::front_run).
    #[inline(always)]
    pub(crate) fn pop_front_run(&mut self, count: usize) {
        debug_assert!(count <= self.front_run().len());
        self.len -= count as u32;
        self.head += count as u32;
        if self.head as usize == self.places().len() {
            self.head = 0;
        }
    }

    /// Takes the oldest slot out if it is `slot`, which is in the queue.
    #[inline(always)]
    pub(crate) fn pop_front_if(&mut self, slot: u32) -> bool {
        debug_assert!(self.len != 0);
        if self.heap.is_empty() {
            return self.pop_inline_if(slot);
        }
        let head = self.head as usize;
        if self.heap.get(head) != Some(&slot) {
            return false;
        }
        self.head = if head + 1 == self.heap.len() { 0 } else { self.head + 1 };
        self.len -= 1;
        true
    }

    #[inline(never)]
    fn pop_inline_if(&mut self, slot: u32) -> bool {
        let places = self.inline.len() as u32;
        let is_front = self.inline[(self.head % places) as usize] == slot;
        if is_front {
            self.head = (self.head + 1) % places;
            self.len -= 1;
        }
        is_front
    }

    /// Lets go of all slots, and of the memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.heap.is_empty() {
            self.heap = Box::default();
            self.head = 0;
        }
        self.len = 0;
    }

    /// Puts `slot` at `index <= len`; what is behind moves by one.
    #[inline(always)]
    pub(crate) fn insert(&mut self, index: usize, slot: u32) {
        let (len, capacity) = (self.len(), self.heap.len());
        let mut end = self.head as usize + len;
        if end >= capacity {
            end = end.wrapping_sub(capacity);
        }
        // Those that move, and the free place behind them, if all lie behind each other in memory. Without a heap, or if it is full: another way.
        let places = end.checked_sub(len - index).and_then(|start| self.heap.get_mut(start..=end));
        let Some(places) = places.filter(|_| len < capacity) else { return self.insert_slowly(index, slot) };
        let mut carried = slot;
        for place in places {
            carried = std::mem::replace(place, carried);
        }
        self.len += 1;
    }

    #[inline(never)]
    fn insert_slowly(&mut self, index: usize, slot: u32) {
        self.push_back(slot);
        for i in (index + 1..self.len()).rev() {
            let before = self.get(i - 1);
            self.set(i, before);
        }
        self.set(index, slot);
    }

    #[cold]
    fn grow(&mut self) {
        let old = self.places().len();
        self.move_to(match old {
            0..16 => old * 2,
            16..8192 => old + old / 4,
            8192..65536 => old + old / 16,
            _ => old + old / 64,
        });
    }

    /// Gives memory back if most of it is not used any more.
    pub(crate) fn fit(&mut self) {
        let len = self.len();
        if self.heap.len() > 64 && self.heap.len() / 2 > len {
            self.move_to(len.max(16) + len / 4);
        }
    }

    /// Moves to other memory with so many places, at least as many as slots.
    #[cold]
    fn move_to(&mut self, places: usize) {
        let mut heap = vec![0; places].into_boxed_slice();
        // From the oldest to the end of the memory, then from its beginning.
        let oldest = self.front_run();
        heap[..oldest.len()].copy_from_slice(oldest);
        let rest = self.len() - oldest.len();
        heap[oldest.len()..][..rest].copy_from_slice(&self.places()[..rest]);
        self.heap = heap;
        self.head = 0;
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
                    ours.insert(index, step);
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
    fn memory_that_is_not_used_any_more_goes_back() {
        let mut queue = SlotQueue::default();
        for slot in 0..1000 {
            queue.push_back(slot);
        }
        queue.fit();
        assert!(queue.heap.len() >= 1000, "it is used");
        // The newest lie on both sides of the memory's end.
        (0..990).for_each(|_| queue.pop_front());
        (1000..1300).for_each(|slot| queue.push_back(slot));
        assert!(queue.front_run().len() < queue.len());
        queue.fit();
        assert!(queue.heap.len() < 400, "{}", queue.heap.len());
        (1300..1400).for_each(|slot| queue.push_back(slot));
        assert!((0..queue.len()).map(|i| queue.get(i)).eq(990..1400));
    }
}
