//! Sequences without records, kept so that a gap is seen and an old chunk is known after an idle
//! time.

use std::collections::VecDeque;

/// What is remembered of an empty sequence: 20 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct Memory {
    /// 0 where the sequence has come back.
    pub(crate) key: u64,
    pub(crate) last_id: u32,
    pub(crate) identity: u32,
    pub(crate) last_payload_bytes: u16,
    /// Pending loss bits (nine of them), and above: see [`memory_bit`].
    pub(crate) bits: u16,
}

const _: () = assert!(size_of::<Memory>() == 20);

/// Bits of [`Memory::bits`] above the loss reasons.
pub(crate) mod memory_bit {
    pub(crate) const LOSS: u16 = 0x1ff;
    pub(crate) const HAS_LAST: u16 = 1 << 12;
    pub(crate) const LAST_INCOMPLETE: u16 = 1 << 13;
    pub(crate) const ENDED_WRITER: u16 = 1 << 14;
    pub(crate) const ENDED_PRODUCER: u16 = 1 << 15;
}

/// Empty sequences by the time at which they became empty. Positions count up for ever, modulo
/// 2^31.
///
/// ```text
///   ring    | 2 | . | 4 | 5 | 6 | 7 | 8 |      position p is at index p - base; . is a hole
///             ^ base
/// ```
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    ring: VecDeque<Memory>,
    /// The oldest position.
    base: u32,
    holes: u32,
}

/// The most sequences of a buffer that are remembered: 20 MiB. Each shard has a part of them.
pub(crate) const MAX_REMEMBERED: usize = 1 << 20;

const POSITIONS: u32 = 1 << 31;

fn position_at(base: u32, index: usize) -> u32 {
    base.wrapping_add(index as u32) % POSITIONS
}

impl Remembered {
    #[inline(always)]
    fn index_of(&self, position: u32) -> usize {
        (position.wrapping_sub(self.base) % POSITIONS) as usize
    }

    pub(crate) fn identities(&self) -> impl Iterator<Item = u32> + '_ {
        self.ring.iter().map(|memory| memory.identity)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.ring.capacity() * size_of::<Memory>()
    }

    /// Remembers, and returns the position.
    #[inline(always)]
    pub(crate) fn push(&mut self, memory: Memory) -> u32 {
        let position = position_at(self.base, self.ring.len());
        self.ring.push_back(memory);
        position
    }

    /// Whether there is something to be done before the next push.
    #[inline]
    pub(crate) fn needs_room(&self, max: usize) -> bool {
        self.has_too_many_holes() || self.is_full(max)
    }

    /// Whether [`pack`](Self::pack) should come before the next push: holes are a fifth or more.
    #[inline]
    pub(crate) fn has_too_many_holes(&self) -> bool {
        self.holes > 1024 + (self.ring.len() as u32 - self.holes) / 4
    }

    /// Whether the next push must be paid for with the oldest.
    #[inline]
    pub(crate) fn is_full(&self, max: usize) -> bool {
        self.ring.len() >= max
    }

    /// What is at a position.
    pub(crate) fn get_mut(&mut self, position: u32) -> &mut Memory {
        let index = self.index_of(position);
        &mut self.ring[index]
    }

    /// What is at a position.
    #[inline(always)]
    pub(crate) fn get(&self, position: u32) -> &Memory {
        &self.ring[self.index_of(position)]
    }

    /// Takes a sequence back.
    #[inline(always)]
    pub(crate) fn take(&mut self, position: u32) {
        // Those who come back in the order in which they went leave no holes.
        if position == self.base && self.holes == 0 {
            self.pop_front();
        } else {
            self.make_hole(position);
        }
    }

    /// Leaves a hole, and takes holes at the front away.
    #[inline(never)]
    fn make_hole(&mut self, position: u32) {
        self.holes += 1;
        *self.get_mut(position) = Memory::default();
        self.pop_holes();
    }

    fn pop_holes(&mut self) {
        while self.ring.front().is_some_and(|memory| memory.key == 0) {
            self.holes -= 1;
            self.pop_front();
        }
    }

    fn pop_front(&mut self) -> Option<Memory> {
        let memory = self.ring.pop_front();
        self.base = position_at(self.base, 1);
        memory
    }

    /// Forgets the oldest, of which there must be one, and says its key. The
    /// front is never a hole.
    pub(crate) fn forget_oldest(&mut self) -> Option<u64> {
        let key = self.pop_front().map(|memory| memory.key);
        self.pop_holes();
        key
    }

    /// Closes the holes; `moved` is told each sequence's new position.
    pub(crate) fn pack(&mut self, mut moved: impl FnMut(u64, u32)) {
        self.ring.retain(|memory| memory.key != 0);
        self.holes = 0;
        for (index, memory) in self.ring.iter().enumerate() {
            moved(memory.key, position_at(self.base, index));
        }
    }

    /// All of them with their positions, in the order of these.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Memory)> {
        let base = self.base;
        let all = self.ring.iter_mut().enumerate();
        all.filter(|(_, memory)| memory.key != 0)
            .map(move |(index, memory)| (position_at(base, index), memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn sequences_come_back_from_the_front_and_from_within() {
        let mut remembered = Remembered::default();
        let memory = |key: u64| Memory { key, ..Memory::default() };
        let positions: Vec<u32> = (1..=9).map(|key| remembered.push(memory(key))).collect();
        for key in [1, 4, 3, 2, 9] {
            let position = positions[key as usize - 1];
            assert_eq!({ remembered.get(position).key }, key);
            remembered.take(position);
        }
        // Those before the fifth are gone with their holes; that of the ninth is left.
        assert_eq!((remembered.ring.len(), remembered.holes), (5, 1));
        let mut moved = Vec::new();
        remembered.pack(|key, position| moved.push((key, position)));
        assert_eq!(moved.iter().map(|&(key, _)| key).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(moved.iter().all(|&(key, position)| remembered.get(position).key == key));
        assert_eq!(remembered.forget_oldest(), Some(5));
        assert_eq!(remembered.push(memory(10)), moved[3].1 + 1);
    }

    #[test]
    fn what_is_at_a_position_stays_there_while_positions_go_round() {
        let mut remembered = Remembered { base: POSITIONS - 700, ..Remembered::default() };
        let mut expected = VecDeque::new();
        for step in 1..4000_u64 {
            // Grows to hundreds, and shrinks again.
            let is_growing = step % 1000 < 700;
            if is_growing || expected.is_empty() {
                let position = remembered.push(Memory { key: step, ..Memory::default() });
                expected.push_back((position, step));
            }
            // From the front, or from within.
            let rank = if step % 3 == 0 { step as usize * 7 % expected.len().max(1) } else { 0 };
            if (!is_growing || step % 2 == 0)
                && let Some((position, key)) = expected.remove(rank)
            {
                assert_eq!({ remembered.get(position).key }, key);
                remembered.take(position);
            }
            if remembered.has_too_many_holes() || step % 500 == 0 {
                let mut moved = Vec::new();
                remembered.pack(|key, position| moved.push((position, key)));
                assert!(moved.iter().map(|(_, key)| key).eq(expected.iter().map(|(_, key)| key)));
                expected = moved.into();
            }
            let mut all: Vec<_> =
                remembered.iter_mut().map(|(position, memory)| (position, memory.key)).collect();
            all.sort_by_key(|&(_, key)| key);
            assert_eq!(all, Vec::from(expected.clone()), "after {step} steps");
        }
        assert!(remembered.base < POSITIONS - 700, "it has gone round");
        assert!(remembered.memory_bytes() <= 20 * 1024);
    }
}
