//! Memory of blocks, kept from one to the next and from read to read.

use crate::blocks::Block;

/// So much is kept at most.
const SPARE_BYTES: usize = 8 << 20;

/// Stands for all threads of a pass: blocks for what is merged already are filled past the cache, and read by another.
#[cfg(feature = "parallel")]
pub(crate) const JOINED: usize = usize::MAX;

/// Blocks that wait to be filled again, so that their memory is not asked of the system anew: at most [`SPARE_BYTES`] in all.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    blocks: Vec<Block>,
    bytes: usize,
}

impl Clone for Spare {
    /// There is nothing in them.
    fn clone(&self) -> Spare {
        Spare::default()
    }
}

impl Spare {
    /// An empty block: if there is one, of those that `thread` (or [`JOINED`]) has filled the one that was given back last.
    pub(crate) fn take(&mut self, thread: usize) -> Block {
        let own = self.blocks.iter().rposition(|block| block.filled_by == thread);
        let mut block = match own {
            Some(place) => self.blocks.remove(place),
            None => self.blocks.pop().unwrap_or_default(),
        };
        self.bytes -= block.bytes.capacity();
        block.filled_by = thread;
        block
    }

    /// Keeps the memory of a block of which nothing is needed any more, if there is room.
    pub(crate) fn put(&mut self, mut block: Block) {
        let bytes = block.bytes.capacity();
        if bytes > 0 && self.bytes + bytes <= SPARE_BYTES {
            self.bytes += bytes;
            block.clear();
            self.blocks.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(thread: usize, capacity: usize) -> Block {
        let mut block = Block::default();
        (block.bytes, block.filled_by) = (Vec::with_capacity(capacity), thread);
        block
    }

    #[test]
    fn a_thread_gets_the_block_back_that_it_filled_last() {
        let mut spare = Spare::default();
        for (thread, capacity) in [(1, 100), (0, 200), (1, 300), (0, 400)] {
            spare.put(block(thread, capacity));
        }
        let mut taken = |thread| spare.take(thread).bytes.capacity();
        assert_eq!([taken(1), taken(1), taken(1), taken(2), taken(0)], [300, 100, 400, 200, 0]);
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let mut spare = Spare::default();
        for _ in 0..100 {
            spare.put(block(0, SPARE_BYTES / 10));
        }
        spare.put(block(0, SPARE_BYTES));
        let kept = std::iter::from_fn(|| Some(spare.take(0).bytes.capacity()).filter(|bytes| *bytes > 0));
        assert_eq!(kept.collect::<Vec<_>>(), [SPARE_BYTES / 10; 10]);
        assert_eq!(spare.bytes, 0);
    }
}
