//! Packets as they are handed out, and where their lists of slices live.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::ids::{ClientIdentity, LossReasons, ProducerId, WriterId};

/// A packet: the bodies of its fragments, which lie in the ring, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    slices: &'a [&'a [u8]],
    /// The producer of the sequence.
    pub producer_id: ProducerId,
    /// The writer of the sequence.
    pub writer_id: WriterId,
    /// Who the producer was when the sequence (or this life of it) began.
    pub identity: ClientIdentity,
    /// What was lost on this sequence since the packet before.
    pub loss: LossReasons,
}

impl<'a> Packet<'a> {
    /// The bytes in order: at least one slice, none of them empty.
    #[inline]
    pub fn slices(&self) -> &'a [&'a [u8]] {
        self.slices
    }

    /// The bytes of all slices together.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.slices.iter().map(|slice| slice.len()).sum()
    }

    /// A copy of the bytes in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.slices().concat()
    }
}

/// A packet inside of the engine, before a borrow of the buffer bounds its lifetime: it must not be handed out, or kept over a
/// write, as it is.
pub(crate) type Unbound = Packet<'static>;

/// A packet's list of bodies.
///
/// Calls return packets as this, which goes in two registers. As a [`Packet`] it would go through memory, written in pieces and read
/// back in larger ones, for which processors wait until all older stores are done, those to the ring's cold headers too.
pub(crate) type Pieces = NonNull<[*const [u8]]>;

/// In place of a packet: it is the first of a run that has begun.
pub(crate) const A_RUN: Pieces = NonNull::slice_from_raw_parts(NonNull::dangling(), 0);

/// Whose a packet is, and what was lost before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) producer_id: ProducerId,
    pub(crate) writer_id: WriterId,
    pub(crate) identity: ClientIdentity,
    pub(crate) loss: LossReasons,
}

impl Unbound {
    /// A packet whose pieces are listed, at least one.
    ///
    /// # Safety
    /// The list and the bytes that it names must be readable and stay as they are as long as the buffer is borrowed by who gets the packet.
    #[inline(always)]
    pub(crate) unsafe fn pieces(list: Pieces, origin: Origin) -> Unbound {
        let Origin { producer_id, writer_id, identity, loss } = origin;
        // SAFETY: the caller's promise; pointer and reference have the same layout.
        let slices = unsafe { &*(list.as_ptr() as *const [&'static [u8]]) };
        Packet { slices, producer_id, writer_id, identity, loss }
    }
}

const BLOCK_SLICES: usize = 512;

/// Lists of slices that stay where they are until [`SliceArena::reset`].
#[derive(Default)]
pub(crate) struct SliceArena {
    /// The block that is being filled. None ever grows beyond the capacity it was made with, so what lies in it does not move.
    block: Vec<*const [u8]>,
    /// Those that are full.
    full: Vec<Vec<*const [u8]>>,
}

// SAFETY: the pointers are looked at only through packets, whose lifetimes borrow the buffer.
unsafe impl Send for SliceArena {}
// SAFETY: nothing can be done with a shared arena.
unsafe impl Sync for SliceArena {}

impl SliceArena {
    /// Forgets all lists. None of them may be in use.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.block.clear();
        if !self.full.is_empty() {
            self.full.clear();
        }
    }

    /// Keeps a list.
    #[inline]
    pub(crate) fn keep(&mut self, bodies: &[*const [u8]]) -> Pieces {
        let mut list = self.begin(bodies.len());
        bodies.iter().for_each(|&body| list.push(body));
        list.keep()
    }

    /// Begins a list of at most `most` bodies. It is forgotten if it is not kept.
    #[inline]
    pub(crate) fn begin(&mut self, most: usize) -> NewList<'_> {
        self.make_room(most);
        NewList { start: self.block.len(), most, block: &mut self.block }
    }

    /// Room for a list, to be written from its start and then kept by [`keep_written`](Self::keep_written).
    #[inline(always)]
    pub(crate) fn room<const MOST: usize>(&mut self) -> &mut [MaybeUninit<*const [u8]>; MOST] {
        self.make_room(MOST);
        self.block.spare_capacity_mut().first_chunk_mut().expect("it was just made")
    }

    /// Keeps a list that was written to the room that was given last.
    ///
    /// # Safety
    /// Its first `len` places must have been written since, and nothing else done with the arena.
    #[inline(always)]
    pub(crate) unsafe fn keep_written(&mut self, len: usize) -> Pieces {
        let block = &mut self.block;
        let start = block.len();
        // SAFETY: the caller's promise: they lie behind the block's length, inside of its capacity, and are initialised.
        unsafe { block.set_len(start + len) };
        let list = std::ptr::slice_from_raw_parts_mut(block.as_mut_ptr().wrapping_add(start), len);
        NonNull::new(list).expect("a block is somewhere")
    }

    #[inline(always)]
    fn make_room(&mut self, most: usize) {
        if self.block.capacity() - self.block.len() < most {
            self.add_block(most);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_block(&mut self, most: usize) {
        let block = Vec::with_capacity(most.max(BLOCK_SLICES));
        self.full.push(std::mem::replace(&mut self.block, block));
    }
}

/// A list that is being made.
pub(crate) struct NewList<'a> {
    block: &'a mut Vec<*const [u8]>,
    start: usize,
    most: usize,
}

impl NewList<'_> {
    /// Appends a body.
    #[inline]
    pub(crate) fn push(&mut self, body: *const [u8]) {
        assert!(self.block.len() - self.start < self.most, "the block has no room and may not move");
        self.block.push(body);
    }

    /// Keeps what was appended.
    #[inline]
    pub(crate) fn keep(mut self) -> Pieces {
        let (start, end) = (self.start, self.block.len());
        self.start = end;
        // By the block's pointer: a reference to the block's contents would end the lists that are held.
        let list =
            std::ptr::slice_from_raw_parts_mut(self.block.as_mut_ptr().wrapping_add(start), end - start);
        NonNull::new(list).expect("a block is somewhere")
    }
}

impl Drop for NewList<'_> {
    #[inline]
    fn drop(&mut self) {
        self.block.truncate(self.start);
    }
}
