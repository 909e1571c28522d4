//! A batch, or its share for one shard, as it waits in the shard's queue.
//!
//! ```text
//!   cache lines of the node   0: links, ticket, memory, flags
//!                             1: the chunk of a batch of one
//!                             2: list, ops
//! ```
//!
//! The flags say what there is, so that a cache line without content is not touched.

use std::mem::MaybeUninit;

use watershed_engine::{ChunkInfo, ProducerId, WriterId};
use watershed_smb::Smb;

use crate::batch::{Batch, PatchSet, Source};

/// The bytes of a queued chunk.
#[derive(Debug)]
pub(crate) enum QueuedBytes {
    /// In the batch's own bytes.
    Copied { start: usize, len: usize },
    /// Where they were. Borrowed and empty once they have been copied.
    Source(Source<'static>),
}

/// One thing to do at a shard.
#[derive(Debug)]
pub(crate) enum Op {
    Chunk { info: ChunkInfo, ticket: u64, bytes: QueuedBytes },
    Patch(PatchSet),
    EndWriter(ProducerId, WriterId),
    EndProducer(ProducerId),
}

/// The item of the queue. Its memory is used again.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct QueuedBatch {
    // In the cache line of the node's links: what every batch has.
    pub(crate) first_ticket: u64,
    /// How many of chunks and ops are done.
    pub(crate) done: usize,
    /// The shared memory of the batch.
    pub(crate) memory: Option<Smb>,
    has_one: bool,
    has_list: bool,
    pub(crate) has_ops: bool,
    _rest_of_line: [u64; 1],
    /// The chunk of a batch of one.
    one: MaybeUninit<QueuedChunk>,
    /// Chunks as they came, none of them borrowed, with tickets from `first_ticket` on. Done before
    /// `ops`.
    list: Vec<QueuedChunk>,
    ops: Vec<Op>,
    /// The bytes of chunks in `ops` that were copied.
    bytes: Vec<u8>,
}

// A chunk, or the list's address, that lies in two cache lines costs each copy and each look both.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use watershed_simd::prefetch::LINE_BYTES;
    let at = std::mem::offset_of!(crate::sync::node_pool::Node<QueuedBatch>, item);
    assert!(at + std::mem::offset_of!(QueuedBatch, one) == LINE_BYTES);
    assert!(at + std::mem::offset_of!(QueuedBatch, list) == 2 * LINE_BYTES);
};

/// A chunk that is queued as it came.
pub(crate) type QueuedChunk = (ChunkInfo, Source<'static>);

/// The chunks of a batch that are not done.
pub(crate) struct PendingChunks<'a> {
    pub(crate) chunks: &'a mut [QueuedChunk],
    /// The ticket of the first of them.
    pub(crate) ticket: u64,
    /// The batch's `done`.
    pub(crate) done: &'a mut usize,
    pub(crate) memory: Option<&'a Smb>,
}

/// A node keeps at most so many bytes for its next batch.
const MAX_SPARE_BYTES: usize = 256 << 10;

impl Default for QueuedBatch {
    fn default() -> QueuedBatch {
        QueuedBatch {
            first_ticket: 0,
            done: 0,
            memory: None,
            has_one: false,
            has_list: false,
            has_ops: false,
            _rest_of_line: [0],
            one: MaybeUninit::uninit(),
            list: Vec::new(),
            ops: Vec::new(),
            bytes: Vec::new(),
        }
    }
}

impl Drop for QueuedBatch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl QueuedBatch {
    /// All of it is done: nothing is left.
    #[inline]
    pub(crate) fn finish(&mut self) {
        self.done = 0;
        self.has_one = false;
        if self.has_list {
            self.has_list = false;
            // SAFETY: what is forgotten needs no drop: a token has no destructor, and sources that
            // have one were taken.
            unsafe { self.list.set_len(0) };
        }
        if self.has_ops {
            self.clear_ops();
        }
        self.memory = None;
    }

    /// Drops what is in it, done or not. Chunks in shared memory are freed: a token has no
    /// destructor, and their producer would never get them back.
    pub(crate) fn clear(&mut self) {
        if let Some(memory) = self.memory.take() {
            let free = |source: &mut Source<'_>| {
                if let Source::Shared(token) = std::mem::replace(source, Source::Borrowed(&[])) {
                    drop(memory.attach(token));
                }
            };
            let ops_done = self.done.saturating_sub(self.num_chunks());
            self.pending_chunks().chunks.iter_mut().for_each(|(_, source)| free(source));
            for op in self.ops.iter_mut().skip(ops_done) {
                if let Op::Chunk { bytes: QueuedBytes::Source(source), .. } = op {
                    free(source);
                }
            }
        }
        self.done = 0;
        if self.has_one {
            self.has_one = false;
            // SAFETY: `has_one` said that it is there.
            unsafe { self.one.assume_init_drop() };
        }
        if self.has_list {
            self.list.clear();
            self.has_list = false;
        }
        if self.has_ops {
            self.clear_ops();
        }
    }

    fn clear_ops(&mut self) {
        self.has_ops = false;
        self.ops.clear();
        self.bytes.clear();
        if self.bytes.capacity() > MAX_SPARE_BYTES {
            self.bytes.shrink_to(MAX_SPARE_BYTES);
        }
    }

    fn num_chunks(&self) -> usize {
        match self.has_one {
            true => 1,
            false if self.has_list => self.list.len(),
            false => 0,
        }
    }

    /// The chunks that were queued as they came and are not done.
    #[inline]
    pub(crate) fn pending_chunks(&mut self) -> PendingChunks<'_> {
        let chunks: &mut [QueuedChunk] = match self.has_one {
            // SAFETY: `has_one` says that it is there.
            true => std::slice::from_mut(unsafe { self.one.assume_init_mut() }),
            false if self.has_list => &mut self.list,
            false => &mut [],
        };
        let chunks = chunks.get_mut(self.done..).unwrap_or_default();
        let ticket = self.first_ticket + self.done as u64;
        PendingChunks { chunks, ticket, done: &mut self.done, memory: self.memory.as_ref() }
    }

    /// The next op after the chunks, with the batch's bytes and memory.
    #[inline]
    pub(crate) fn next_op(&mut self) -> Option<(&mut Op, &[u8], Option<&Smb>)> {
        if !self.has_ops {
            return None;
        }
        let at = self.done - self.num_chunks();
        Some((self.ops.get_mut(at)?, &self.bytes, self.memory.as_ref()))
    }

    /// Takes all chunks of a batch. If none of them borrows its bytes, the list is swapped for an
    /// empty one.
    #[inline]
    pub(crate) fn take_chunks(&mut self, batch: &mut Batch<'_>, is_owned: bool, first_ticket: u64) {
        debug_assert!(self.num_chunks() == 0 && self.memory.is_none());
        // It was None: to forget that saves the look of a drop.
        std::mem::forget(std::mem::replace(&mut self.memory, batch.memory.take()));
        self.first_ticket = first_ticket;
        let chunks = &mut batch.chunks;
        if is_owned {
            // SAFETY: the types differ in the lifetimes of `Source::Borrowed` and `Source::Scraped`
            // only, and no list has such an element: one is empty, the other was checked.
            let chunks = unsafe { &mut *std::ptr::from_mut(chunks).cast::<Vec<QueuedChunk>>() };
            if chunks.len() == 1 {
                // SAFETY: the chunk is moved: it is in no list any more. As bytes, since the
                // compiler moves a source in pieces that overlap.
                unsafe {
                    chunks.set_len(0);
                    std::ptr::copy_nonoverlapping(chunks.as_ptr(), self.one.as_mut_ptr(), 1);
                }
                self.has_one = true;
            } else {
                std::mem::swap(&mut self.list, chunks);
                self.has_list = true;
            }
        } else {
            for (ticket, (info, source)) in (first_ticket..).zip(chunks.drain(..)) {
                self.push_chunk(info, ticket, source);
            }
        }
    }

    pub(crate) fn push_op(&mut self, op: Op) {
        self.has_ops = true;
        self.ops.push(op);
    }

    pub(crate) fn push_chunk(&mut self, info: ChunkInfo, ticket: u64, source: Source<'_>) {
        let bytes = match source {
            Source::Borrowed(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                QueuedBytes::Copied { start, len: bytes.len() }
            }
            Source::Shared(token) => QueuedBytes::Source(Source::Shared(token)),
            Source::Owned(bytes) => QueuedBytes::Source(Source::Owned(bytes)),
            Source::Scraped(payload) => {
                let (start, len) = (self.bytes.len(), payload.size_bytes());
                self.bytes.resize(start + len, 0);
                payload.copy_range(0, &mut self.bytes[start..]);
                QueuedBytes::Copied { start, len }
            }
        };
        self.push_op(Op::Chunk { info, ticket, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_is_done_keeps_little_memory() {
        let mut batch = QueuedBatch::default();
        for len in [1000, MAX_SPARE_BYTES, 4 * MAX_SPARE_BYTES] {
            batch.push_chunk(ChunkInfo::default(), 0, Source::Borrowed(&vec![1; len]));
            assert!(batch.next_op().is_some_and(|(_, bytes, _)| bytes.len() == len));
            batch.done += 1;
            batch.finish();
            assert!(batch.next_op().is_none());
            assert!(batch.bytes.capacity() <= MAX_SPARE_BYTES);
        }
    }
}
