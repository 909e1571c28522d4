//! What is committed together, as it waits in a queue.
//!
//! ```text
//!   line of the node   0: links, ticket, memory, what there is   1: the chunk of a batch of one   2: list, operations
//! ```

use std::mem::MaybeUninit;

use watershed_engine::{ChunkInfo, ProducerId, WriterId};
use watershed_simd::prefetch;
use watershed_smb::Smb;

use crate::batch::{Batch, PatchSet, Source};

/// The bytes of a queued chunk.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// In the part's own bytes, from here on, so many.
    Copied { start: usize, len: usize },
    /// Where they were. Borrowed and empty when they have been copied.
    Whole(Source<'static>),
}

/// One thing to do at a shard.
#[derive(Debug)]
pub(crate) enum Op {
    Chunk { info: ChunkInfo, ticket: u64, bytes: Waiting },
    Patch(PatchSet),
    EndWriter(ProducerId, WriterId),
    EndProducer(ProducerId),
}

/// A batch's part for one shard: the item of the queue. Its memory is used again.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Part {
    // In one cache line with the links of its node: what every part has.
    first_ticket: u64,
    /// How many of chunks and ops have been done.
    pub(crate) done: usize,
    /// The batch's.
    pub(crate) memory: Option<Smb>,
    /// Whether there is `one`, a `list`, `ops`: lines are not touched in which there is nothing.
    has_one: bool,
    has_list: bool,
    pub(crate) has_ops: bool,
    _rest_of_line: [u64; 1],
    // In the second line: the chunk of a batch of one, whose list need not be fetched.
    one: MaybeUninit<Chunk>,
    _rest_of_second_line: [u64; 1],
    // In the third.
    /// A batch's chunks, none of them borrowed, as they came, with tickets from `first_ticket` on; before `ops`.
    list: Vec<Chunk>,
    ops: Vec<Op>,
    bytes: Vec<u8>,
}

// Where a chunk or the list's place lies in two lines, each copy and each look is of both.
#[cfg(target_pointer_width = "64")]
const _: () = {
    let at = std::mem::offset_of!(crate::nodes::Node<Part>, item);
    assert!(at + std::mem::offset_of!(Part, one) == prefetch::LINE_BYTES);
    assert!(at + std::mem::offset_of!(Part, list) == 2 * prefetch::LINE_BYTES);
};

/// A chunk that waits as it came.
pub(crate) type Chunk = (ChunkInfo, Source<'static>);

/// What is left of a part's chunks, as its shard's owner does them.
pub(crate) struct ToDo<'a> {
    pub(crate) chunks: &'a mut [Chunk],
    /// Of the first of them.
    pub(crate) ticket: u64,
    /// How many of the part's chunks and ops have been done.
    pub(crate) done: &'a mut usize,
    pub(crate) memory: Option<&'a Smb>,
}

/// A part whose bytes were large once does not keep them for ever.
const MOST_BYTES_KEPT: usize = 256 << 10;

impl Default for Part {
    fn default() -> Part {
        Part {
            first_ticket: 0,
            done: 0,
            memory: None,
            has_one: false,
            has_list: false,
            has_ops: false,
            _rest_of_line: [0],
            one: MaybeUninit::uninit(),
            _rest_of_second_line: [0],
            list: Vec::new(),
            ops: Vec::new(),
            bytes: Vec::new(),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Part {
    /// All of it has been done, so that nothing is left here but its memory, which the caller gets.
    #[inline]
    pub(crate) fn finish(&mut self) -> Option<Smb> {
        self.done = 0;
        self.has_one = false;
        if self.has_list {
            self.has_list = false;
            // SAFETY: no element is forgotten that must be dropped: a token has no destructor, and from what has one the source was taken.
            unsafe { self.list.set_len(0) };
        }
        if self.has_ops {
            self.clear_ops();
        }
        self.memory.take()
    }

    /// Drops what is left of it, whether it has been done or not.
    pub(crate) fn clear(&mut self) {
        self.done = 0;
        self.memory = None;
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

    /// Bytes belong to ops.
    fn clear_ops(&mut self) {
        self.has_ops = false;
        self.ops.clear();
        self.bytes.clear();
        if self.bytes.capacity() > MOST_BYTES_KEPT {
            self.bytes.shrink_to(MOST_BYTES_KEPT);
        }
    }

    #[inline]
    fn chunks(&self) -> &[Chunk] {
        match self.has_one {
            // SAFETY: `has_one` says that it is there.
            true => std::slice::from_ref(unsafe { self.one.assume_init_ref() }),
            false if self.has_list => &self.list,
            false => &[],
        }
    }

    /// A hint that it will be worked on next. The lines of the part itself are there.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if self.has_list {
            let first = self.list.as_ptr().cast::<u8>();
            prefetch::for_read(first);
            prefetch::for_read(first.wrapping_add(prefetch::LINE_BYTES));
        }
    }

    /// The chunks that wait as they came and have not been done.
    #[inline]
    pub(crate) fn undone(&mut self) -> ToDo<'_> {
        let chunks: &mut [Chunk] = match self.has_one {
            // SAFETY: `has_one` says that it is there.
            true => std::slice::from_mut(unsafe { self.one.assume_init_mut() }),
            false if self.has_list => &mut self.list,
            false => &mut [],
        };
        let ticket = self.first_ticket + self.done as u64;
        let chunks = match self.done {
            // Nearly always.
            0 => chunks,
            done => chunks.get_mut(done..).unwrap_or_default(),
        };
        ToDo { chunks, ticket, done: &mut self.done, memory: self.memory.as_ref() }
    }

    /// What comes next behind the chunks, and the part's bytes.
    #[inline]
    pub(crate) fn next_op(&mut self) -> Option<(&mut Op, &[u8], Option<&Smb>)> {
        if !self.has_ops {
            return None;
        }
        let at = self.done - self.chunks().len();
        Some((self.ops.get_mut(at)?, &self.bytes, self.memory.as_ref()))
    }

    /// Takes all chunks of a batch. If none of them borrows its bytes, as the list that they are, in exchange for an empty one.
    #[inline]
    pub(crate) fn take_chunks(&mut self, batch: &mut Batch<'_>, is_owned: bool, first_ticket: u64) {
        debug_assert!(self.chunks().is_empty() && self.memory.is_none());
        // There was none, so that nothing is leaked; to drop it would be to look.
        std::mem::forget(std::mem::replace(&mut self.memory, batch.memory.take()));
        self.first_ticket = first_ticket;
        let chunks = &mut batch.chunks;
        if is_owned {
            // SAFETY: the types differ in the lifetimes of `Source::Borrowed` and `Source::Scraped` only, and neither list has such an
            // element: one is empty, the other was looked at.
            let chunks = unsafe { &mut *std::ptr::from_mut(chunks).cast::<Vec<Chunk>>() };
            if chunks.len() == 1 {
                // SAFETY: the chunk is moved: it is in no list any more. As bytes, for the compiler moves a source in pieces that overlap.
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
                Waiting::Copied { start, len: bytes.len() }
            }
            Source::Shared(token) => Waiting::Whole(Source::Shared(token)),
            Source::Owned(bytes) => Waiting::Whole(Source::Owned(bytes)),
            Source::Scraped(payload) => {
                let (start, len) = (self.bytes.len(), payload.size_bytes());
                self.bytes.resize(start + len, 0);
                payload.copy_range(0, &mut self.bytes[start..]);
                Waiting::Copied { start, len }
            }
        };
        self.push_op(Op::Chunk { info, ticket, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_done_keeps_little_memory() {
        let mut part = Part::default();
        for len in [1000, MOST_BYTES_KEPT, 4 * MOST_BYTES_KEPT] {
            part.push_chunk(ChunkInfo::default(), 0, Source::Borrowed(&vec![1; len]));
            assert!(part.next_op().is_some_and(|(_, bytes, _)| bytes.len() == len));
            part.done += 1;
            assert!(part.finish().is_none() && part.next_op().is_none());
            assert!(part.bytes.capacity() <= MOST_BYTES_KEPT);
        }
    }
}
