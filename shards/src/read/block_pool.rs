//! Memory of blocks, kept from one block to the next and from read to read.

use std::collections::VecDeque;

use crate::read::merge::Block;

/// At most so much is kept.
const KEPT_BYTES: usize = 12 << 20;

/// Empty blocks to be filled again, so that their memory is not asked of the system anew: at most
/// [`KEPT_BYTES`] in all.
#[derive(Debug, Default)]
pub(crate) struct BlockPool {
    /// In the order in which they were returned.
    blocks: VecDeque<Block>,
    bytes: usize,
}

impl Clone for BlockPool {
    /// An empty pool: the blocks of the original hold nothing.
    fn clone(&self) -> BlockPool {
        BlockPool::default()
    }
}

impl BlockPool {
    /// An empty block for a thread that works alone: what it returned last lies in its cache.
    pub(crate) fn take_newest(&mut self) -> Block {
        let block = self.blocks.pop_back();
        self.taken(block)
    }

    /// An empty block where others have read what was in it. It may lie in the cache of another
    /// core, and to take it back line by line takes longer than to extract into it. The block that
    /// was returned first is the likeliest to have left that cache.
    pub(crate) fn take_oldest(&mut self) -> Block {
        let block = self.blocks.pop_front();
        self.taken(block)
    }

    fn taken(&mut self, block: Option<Block>) -> Block {
        let block = block.unwrap_or_default();
        self.bytes -= block.bytes.capacity();
        block
    }

    /// Keeps the memory of a block whose contents are not needed any more, if there is room.
    pub(crate) fn put(&mut self, mut block: Block) {
        let bytes = block.bytes.capacity();
        if bytes > 0 && self.bytes + bytes <= KEPT_BYTES {
            self.bytes += bytes;
            block.clear();
            self.blocks.push_back(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(capacity: usize) -> Block {
        let mut block = Block::default();
        block.bytes = Vec::with_capacity(capacity);
        block
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let mut pool = BlockPool::default();
        for _ in 0..100 {
            pool.put(block(KEPT_BYTES / 10));
        }
        pool.put(block(KEPT_BYTES));
        let kept =
            std::iter::from_fn(|| Some(pool.take_oldest().bytes.capacity()).filter(|bytes| *bytes > 0));
        assert_eq!(kept.collect::<Vec<_>>(), [KEPT_BYTES / 10; 10]);
        assert_eq!(pool.bytes, 0);
    }

    #[test]
    fn blocks_come_back_in_either_order() {
        let mut pool = BlockPool::default();
        [100, 200, 300].into_iter().for_each(|capacity| pool.put(block(capacity)));
        let taken = [pool.take_oldest(), pool.take_newest(), pool.take_oldest(), pool.take_newest()];
        assert_eq!(taken.map(|block| block.bytes.capacity()), [100, 300, 200, 0]);
    }
}
