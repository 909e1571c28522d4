//! Blocks of pieces that are merged already, and lie together.

use std::ops::Range;

use watershed_simd::uncached;

use super::{Block, Run};

/// Bytes of a line of the cache: what a copy is fastest by.
const LINE_BYTES: usize = watershed_simd::prefetch::LINE_BYTES;

impl Block {
    /// Makes room in an empty block for `size_bytes` and a little more, so that they lie in memory as they will behind `position_bytes` others: in a
    /// file, if nothing else is in it. Then lines of the one are lines of the other.
    pub(crate) fn begin_like(&mut self, position_bytes: usize, size_bytes: usize) {
        self.bytes.reserve_exact(size_bytes + size_bytes / 8);
        let address = self.bytes.as_ptr() as usize;
        self.start = position_bytes.wrapping_sub(address) % LINE_BYTES;
        self.bytes.resize(self.start, 0);
    }

    /// Appends merged pieces, which come before all that was not merged: their ticket is none that comes later. Past the cache
    /// if `is_uncached`.
    pub(crate) fn append(&mut self, merged: &[u8], is_uncached: bool) {
        if is_uncached {
            uncached::append(&mut self.bytes, merged);
        } else {
            self.bytes.extend_from_slice(merged);
        }
        self.runs.push(Run { ticket: 0, end: self.bytes.len() });
    }

    /// Puts what is not handed out of a block of merged pieces before everything else.
    pub(crate) fn prepend(&mut self, merged: Block) {
        let rest = std::mem::replace(self, merged);
        let moved = self.bytes.len();
        self.bytes.extend_from_slice(&rest.bytes[rest.start..]);
        let runs = rest.runs[rest.next..].iter();
        self.runs.extend(runs.map(|run| Run { end: run.end - rest.start + moved, ..*run }));
    }

    /// Where that is which was not handed out.
    pub(crate) fn unread(&self) -> Range<usize> {
        self.start..self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Merge;

    /// A block of one shard with a byte for each of the tickets.
    fn block(tickets: &[u64]) -> Block {
        let mut block = Block::default();
        for &ticket in tickets {
            block.bytes.push(ticket as u8);
            block.end_run(ticket);
        }
        block
    }

    fn joined(position_bytes: usize, pieces: &[&[u8]]) -> Block {
        let mut block = Block::default();
        block.begin_like(position_bytes, 1000);
        pieces.iter().for_each(|piece| block.append(piece, position_bytes.is_multiple_of(2)));
        block
    }

    /// All that is left, a run at a time.
    fn merged(fronts: &mut [Block]) -> Vec<u8> {
        let mut merge = Merge::default();
        let mut all = Vec::new();
        loop {
            let pieces = merge.take(fronts, |_| false, 1);
            if pieces.is_empty() {
                return all;
            }
            pieces.iter().for_each(|piece| all.extend_from_slice(piece));
        }
    }

    #[test]
    fn a_joined_block_lies_in_memory_as_in_the_file() {
        for position_bytes in [0, 1, 63, 64, 4095, 1_000_001] {
            let block = joined(position_bytes, &[b"one", b"two"]);
            assert_eq!(&block.bytes[block.unread()], b"onetwo");
            let address = block.bytes[block.unread()].as_ptr() as usize;
            assert_eq!(address % LINE_BYTES, position_bytes % LINE_BYTES);
            assert!(block.bytes.capacity() - block.unread().start >= 1000);
            assert_eq!(block.unread_bytes(), 6);
            assert!(!block.is_empty());
        }
        assert!(joined(7, &[]).is_empty());
    }

    #[test]
    fn what_was_joined_comes_before_what_was_not() {
        // As if ticket 0 had two runs, of which the first was joined, and of shard 1's something was handed out before that.
        let mut fronts = [block(&[3, 4]), block(&[0, 1, 0, 2, 9]), block(&[5])];
        fronts[1].take_until(0, 1);
        fronts[1].take_until(1, 1);
        fronts[0].prepend(joined(5, &[&[100], &[101, 102]]));
        fronts[0].prepend(joined(0, &[&[98], &[99]]));
        assert_eq!(fronts[0].unread_bytes(), 7);
        assert_eq!(merged(&mut fronts), [98, 99, 100, 101, 102, 0, 2, 3, 4, 5, 9]);
    }

    #[test]
    fn a_block_of_which_a_part_was_handed_out_keeps_the_rest() {
        let mut fronts = [block(&[1, 2, 3])];
        fronts[0].take_until(1, 1);
        let mut first = joined(3, &[&[50, 51]]);
        let handed_out = first.take_until(0, 1);
        first.take_back(handed_out.end - 1);
        fronts[0].prepend(first);
        assert_eq!(merged(&mut fronts), [51, 2, 3]);
    }
}
