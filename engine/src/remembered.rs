//! Sequences without records, kept so that a gap is seen and an old chunk is known after an idle time.

use std::collections::VecDeque;

/// What is remembered of an empty sequence: 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Memory {
    /// 0 where the sequence has come back.
    pub(crate) key: u32,
    pub(crate) last_id: u32,
    pub(crate) identity: u32,
    pub(crate) last_payload_bytes: u16,
    /// Pending loss bits (nine of them), and above: see [`memory_bit`].
    pub(crate) bits: u16,
}

const _: () = assert!(size_of::<Memory>() == 16);

/// Bits of [`Memory::bits`] above the loss reasons.
pub(crate) mod memory_bit {
    pub(crate) const LOSS: u16 = 0x1ff;
    pub(crate) const HAS_LAST: u16 = 1 << 12;
    pub(crate) const LAST_INCOMPLETE: u16 = 1 << 13;
    pub(crate) const ENDED_WRITER: u16 = 1 << 14;
    pub(crate) const ENDED_PRODUCER: u16 = 1 << 15;
}

/// Empty sequences by the time at which they became empty. Positions count up for ever, modulo 2^31.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    queue: VecDeque<Memory>,
    /// Position of the queue's front.
    base: u32,
    holes: usize,
}

/// The most sequences that are remembered: 16 MiB.
pub(crate) const MAX_REMEMBERED: usize = 1 << 20;

const POSITIONS: u32 = 1 << 31;

/// How many places before their turn the next are fetched: four lines, which is the time of as many chunks as there are places in them.
const AHEAD: usize = 256 / size_of::<Memory>();

impl Remembered {
    fn index_of(&self, position: u32) -> usize {
        (position.wrapping_sub(self.base) % POSITIONS) as usize
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Memory>()
    }

    /// Remembers, and returns the position.
    pub(crate) fn push(&mut self, memory: Memory) -> u32 {
        let position = self.base.wrapping_add(self.queue.len() as u32) % POSITIONS;
        self.queue.push_back(memory);
        if let Some(back) = self.queue.back() {
            watershed_simd::prefetch::for_write(std::ptr::from_ref(back).wrapping_add(AHEAD).cast());
        }
        position
    }

    /// Whether there is something to be done before the next push.
    #[inline]
    pub(crate) fn needs_room(&self) -> bool {
        self.has_too_many_holes() || self.is_full()
    }

    /// Whether [`Remembered::pack`] should come before the next push: holes have become the larger part.
    pub(crate) fn has_too_many_holes(&self) -> bool {
        self.holes > 1024 + (self.queue.len() - self.holes) / 4
    }

    /// Whether the next push must be paid for with the oldest.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= MAX_REMEMBERED
    }

    /// What is at a position.
    pub(crate) fn get_mut(&mut self, position: u32) -> &mut Memory {
        let index = self.index_of(position);
        &mut self.queue[index]
    }

    /// What is at a position.
    #[inline]
    pub(crate) fn get(&self, position: u32) -> &Memory {
        &self.queue[self.index_of(position)]
    }

    /// A hint that what went a little later than `position`, which is near the front, will come back a little later.
    #[inline(always)]
    pub(crate) fn prefetch_after(&self, position: u32) {
        let (front, _) = self.queue.as_slices();
        let ahead = front.as_ptr().wrapping_add(self.index_of(position) + AHEAD);
        watershed_simd::prefetch::for_read(ahead.cast());
    }

    /// Takes a sequence back.
    #[inline]
    pub(crate) fn take(&mut self, position: u32) {
        // Those who come back in the order in which they went leave no holes.
        if position == self.base {
            self.pop_front();
        } else {
            self.make_hole(position);
        }
        if self.holes != 0 {
            self.drop_holes();
        }
    }

    #[inline(never)]
    fn make_hole(&mut self, position: u32) {
        self.holes += 1;
        *self.get_mut(position) = Memory::default();
    }

    /// Those at the front.
    #[inline(never)]
    fn drop_holes(&mut self) {
        while self.queue.front().is_some_and(|front| front.key == 0) {
            self.pop_front();
        }
    }

    fn pop_front(&mut self) -> Option<Memory> {
        let memory = self.queue.pop_front()?;
        self.base = (self.base + 1) % POSITIONS;
        self.holes -= usize::from(memory.key == 0);
        Some(memory)
    }

    /// Forgets the oldest, and says its key. None if it was a hole.
    pub(crate) fn forget_oldest(&mut self) -> Option<u32> {
        self.pop_front().map(|memory| memory.key).filter(|&key| key != 0)
    }

    /// Closes the holes; `moved` is told each sequence's new position.
    pub(crate) fn pack(&mut self, mut moved: impl FnMut(u32, u32)) {
        self.queue.retain(|memory| memory.key != 0);
        self.holes = 0;
        for (index, memory) in self.queue.iter().enumerate() {
            moved(memory.key, (self.base.wrapping_add(index as u32)) % POSITIONS);
        }
    }

    /// All of them with their positions.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Memory)> {
        let base = self.base;
        let all = self.queue.iter_mut().enumerate();
        all.map(move |(i, memory)| (base.wrapping_add(i as u32) % POSITIONS, memory))
            .filter(|(_, m)| m.key != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_come_back_from_the_front_and_from_within() {
        let mut remembered = Remembered::default();
        let memory = |key: u32| Memory { key, ..Memory::default() };
        let positions: Vec<u32> = (1..=9).map(|key| remembered.push(memory(key))).collect();
        for key in [1, 4, 3, 2, 9] {
            let position = positions[key as usize - 1];
            assert_eq!(remembered.get(position).key, key);
            remembered.take(position);
        }
        // Those before the fifth are gone with their holes; that of the ninth is left.
        assert_eq!((remembered.queue.len(), remembered.holes), (5, 1));
        let mut moved = Vec::new();
        remembered.pack(|key, position| moved.push((key, position)));
        assert_eq!(moved.iter().map(|&(key, _)| key).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(moved.iter().all(|&(key, position)| remembered.get(position).key == key));
        assert_eq!(remembered.forget_oldest(), Some(5));
        assert_eq!(remembered.push(memory(10)), moved[3].1 + 1);
    }
}
