//! Packets as they are handed out.

use std::ptr::NonNull;

use crate::ids::{ClientIdentity, LossReasons, ProducerId, WriterId, ids_of, key_of};

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

/// A packet inside of the engine, before a borrow of the buffer bounds its lifetime: it must not be
/// handed out, or kept over a write, as it is.
pub(crate) type Unbound = Packet<'static>;

/// A packet's list of bodies.
///
/// Inside of the engine a packet is returned as this, in two registers. A [`Packet`] would go
/// through memory, stored in pieces and loaded in larger ones; processors delay such a load until
/// all older stores are done, those to cold headers of the ring too.
pub(crate) type Pieces = NonNull<[*const [u8]]>;

/// In place of a packet: the fragment cursor has it.
pub(crate) const BY_CURSOR: Pieces = NonNull::slice_from_raw_parts(NonNull::dangling(), 0);

/// Whose a packet is, and what was lost before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) key: u64,
    pub(crate) identity: ClientIdentity,
    pub(crate) loss: LossReasons,
}

impl Unbound {
    /// A packet whose pieces are listed, at least one.
    ///
    /// # Safety
    /// The list and the bytes that it names must be readable and unchanged as long as the receiver
    /// of the packet borrows the buffer.
    #[inline(always)]
    pub(crate) unsafe fn pieces(list: Pieces, origin: Origin) -> Unbound {
        let Origin { key, identity, loss } = origin;
        let (producer_id, writer_id) = ids_of(key);
        // SAFETY: the caller's promise; pointer and reference have the same layout.
        let slices = unsafe { &*(list.as_ptr() as *const [&'static [u8]]) };
        Packet { slices, producer_id, writer_id, identity, loss }
    }

    pub(crate) fn origin(&self) -> Origin {
        let Packet { producer_id, writer_id, identity, loss, .. } = *self;
        Origin { key: key_of(producer_id, writer_id), identity, loss }
    }
}
