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
    has_ops: bool,
    // In the second line: the chunk of a batch of one, whose list need not be fetched.
    one: MaybeUninit<Chunk>,
    // In the third.
    /// A batch's chunks, none of them borrowed, as they came, with tickets from `first_ticket` on; before `ops`.
    list: Vec<Chunk>,
    ops: Vec<Op>,
    bytes: Vec<u8>,
}

/// A chunk that waits as it came.
type Chunk = (ChunkInfo, Source<'static>);

/// A part's chunks as its shard's owner does them.
pub(crate) struct ToDo<'a> {
    pub(crate) chunks: &'a mut [Chunk],
    pub(crate) first_ticket: u64,
    /// How many of them have been done.
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
            one: MaybeUninit::uninit(),
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
    #[inline]
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

    /// A hint that it will be worked on next.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let first = self.chunks().as_ptr().cast();
        prefetch::for_read(first);
        if self.has_list {
            prefetch::for_read(first.wrapping_add(prefetch::LINE_BYTES));
        }
    }

    /// The chunks that wait as they came.
    #[inline]
    pub(crate) fn chunks_to_do(&mut self) -> ToDo<'_> {
        let chunks: &mut [Chunk] = match self.has_one {
            // SAFETY: `has_one` says that it is there.
            true => std::slice::from_mut(unsafe { self.one.assume_init_mut() }),
            false if self.has_list => &mut self.list,
            false => &mut [],
        };
        ToDo { chunks, first_ticket: self.first_ticket, done: &mut self.done, memory: self.memory.as_ref() }
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
        self.memory = batch.memory.take();
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
