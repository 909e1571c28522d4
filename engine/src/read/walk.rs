//! Reading in the order of one sequence.
//!
//! Only the front of a sequence is ever erased. So the walk is always in the front: its fragments
//! one after another, then the record is erased and the next one is the front.
//!
//! | fragment | what it is |
//! |---|---|
//! | whole | a packet |
//! | begin: the last one, if it continues in the next chunk | a packet if the look-ahead finds the rest |
//! | continuation: the first one, if it continues the chunk before | its beginning is missing: skipped |
//!
//! Packets over several chunks are put together in [`super::chain`].

use std::ptr::NonNull;

use super::Reader;
use super::chain::MultiChunk;
use crate::ids::LossReasons;
use crate::index::fragment_sizes::{self as sizes, Extent, Token};
use crate::index::records::{NONE, Record, Slot, bit};
use crate::packet::{self, Pieces};
use crate::ring::tbchunk::HEADER_BYTES;
use crate::store::{Consumer, Store};

/// A position in the front record of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) slot: Slot,
    /// Offset of the record's header in the ring.
    pub(super) header: usize,
    /// Offset of the next fragment in the ring.
    pub(super) offset: usize,
    /// Visible bytes from there on: those that are unread.
    pub(super) left_bytes: usize,
    pub(super) visible_bytes: u16,
    /// Index of the next fragment's size in the block's list; [`NO_SIZES`] if none are kept.
    pub(super) size_index: usize,
    /// The last fragment continues in the next chunk.
    pub(super) goes_on: bool,
    /// The next fragment continues a packet of the chunk before.
    pub(super) continues: bool,
    /// Records from this one on that were found ordinary ([`super::fast::contiguous`]); 0 if
    /// nothing is known.
    pub(super) checked: u32,
}

/// No sizes are kept.
const NO_SIZES: usize = usize::MAX;

impl Position {
    /// In no record, with nothing left.
    pub(super) const NOWHERE: Position = Position {
        slot: NONE,
        header: 0,
        offset: 0,
        left_bytes: 0,
        visible_bytes: 0,
        size_index: NO_SIZES,
        goes_on: false,
        continues: false,
        checked: 0,
    };

    /// The position of the first unread fragment of a record. If the second value is true, this is
    /// where [`skip_consumed`](Position::skip_consumed) must begin to look for it. `sizes` returns
    /// the sizes of the record's block.
    #[inline(always)]
    pub(super) fn in_record<'a>(
        slot: Slot,
        record: &Record,
        sizes: impl FnOnce() -> &'a [u16],
    ) -> (Position, bool) {
        let is_first_taken = record.has(bit::STARTED) && record.has(bit::FIRST_TAKEN);
        let first = if is_first_taken { record.first_bytes(sizes()) } else { 0 };
        let entries = if is_first_taken { sizes::entries(first.into()) } else { 0 };
        let position = Position {
            slot,
            header: record.offset(),
            offset: record.offset() + HEADER_BYTES + usize::from(first),
            left_bytes: usize::from(record.unread_bytes),
            visible_bytes: record.unread_bytes + first,
            size_index: record.size_index().map_or(NO_SIZES, |index| index + entries),
            goes_on: record.has(bit::LAST_CONTINUES),
            continues: record.has(bit::FIRST_CONTINUES) && !is_first_taken,
            checked: 0,
        };
        (position, record.has(bit::STARTED) && !is_first_taken)
    }

    /// As [`in_record`](Self::in_record), of a record that is known by its slot.
    #[inline(always)]
    pub(super) fn in_slot(store: &Store, slot: Slot) -> (Position, bool) {
        let records = &store.index.records;
        Position::in_record(slot, records.get(slot), || records.block_sizes(slot, 0))
    }

    /// Goes on from the beginning of a record to what is unread of it.
    pub(super) fn skip_consumed(mut self, store: &Store) -> Position {
        self.visible_bytes = store.ring.header(self.header).visible_bytes;
        let consumed_bytes = usize::from(self.visible_bytes) - self.left_bytes;
        self.offset += consumed_bytes;
        self.continues = false;
        let mut end = 0;
        while self.size_index != NO_SIZES
            && end < consumed_bytes
            && let Some((extent, _)) =
                sizes::split_first(store.index.records.block_sizes(self.slot, self.size_index))
        {
            end += extent.total_bytes as usize;
            self.size_index += extent.entries();
        }
        self
    }

    /// The fragment at this position.
    #[inline]
    pub(super) fn fragment(&self, store: &Store) -> Next {
        if self.left_bytes == 0 {
            return Next::Nothing { is_damaged: false };
        }
        let extent = match sizes::split_first(store.index.records.block_sizes(self.slot, self.size_index)) {
            Some((extent, _)) => extent,
            None => match sizes::token(store.ring.bytes(self.offset, self.left_bytes)) {
                Token::Fragment(extent) => extent,
                Token::End => return Next::Nothing { is_damaged: false },
                Token::Malformed => return Next::Nothing { is_damaged: true },
            },
        };
        let role = if self.continues {
            Role::Continuation
        } else if self.goes_on && extent.total_bytes as usize == self.left_bytes {
            Role::Begin
        } else {
            Role::Whole
        };
        Next::Fragment(role, extent)
    }

    /// The body of the fragment at this position.
    #[inline]
    pub(super) fn body(&self, store: &Store, extent: Extent) -> *const [u8] {
        debug_assert!(extent.total_bytes as usize <= self.left_bytes);
        let start = self.offset + extent.header_bytes as usize;
        std::ptr::slice_from_raw_parts(
            store.ring.pointer(start),
            (extent.total_bytes - extent.header_bytes) as usize,
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Whole,
    Begin,
    /// The middle or the end of a packet.
    Continuation,
}

pub(super) enum Next {
    Fragment(Role, Extent),
    Nothing { is_damaged: bool },
}

impl Reader {
    /// Goes to the first unread fragment of a sequence's front.
    #[inline]
    pub(crate) fn open_front(&mut self, store: &Store, sequence: u32) {
        self.sequence = sequence;
        self.origin = store.index.origin(sequence);
        let (position, is_inside) =
            Position::in_slot(store, store.index.sequences.get(sequence).queue.get(0));
        self.position = position;
        if is_inside {
            self.skip_in_front(store);
        }
    }

    // A call of its own, so that the position in `open_front` needs no address and stays in
    // registers.
    #[inline(never)]
    fn skip_in_front(&mut self, store: &Store) {
        self.position = self.position.skip_consumed(store);
    }

    /// Looks for the next packet of the open sequence up to the record `target`;
    /// [`packet::BY_CURSOR`] if the fragment cursor has it. None when the target has been read, or
    /// the sequence stalls.
    #[inline]
    pub(super) fn walk_sequence(&mut self, store: &mut Store, sequence: u32, target: Slot) -> Option<Pieces> {
        if store.index.sequences.get(sequence).stalled_in == self.generation {
            return None;
        }
        loop {
            if self.position.left_bytes != 0 {
                if self.start_cursor(store) {
                    return Some(packet::BY_CURSOR);
                }
                if let Some(pieces) = self.next_of_front(store, sequence, Consumer::Reader) {
                    self.take_loss(store.index.sequences.get_mut(sequence));
                    return Some(pieces);
                }
            }
            let Position { slot, visible_bytes, .. } = self.position;
            let listed = store.index.sequences.get_mut(sequence);
            let record = store.index.records.get(slot);
            let is_stalled = listed.stalled_in == self.generation;
            if is_stalled || record.has(bit::INCOMPLETE) && !listed.is_front_of_an_old_life() {
                listed.stalled_in = self.generation;
                return None;
            }
            if record.unread_bytes != 0 {
                self.note_damage(store, sequence);
            }
            store.remove_read_front(sequence, slot, visible_bytes);
            if slot == target || store.index.sequences.get(sequence).queue.is_empty() {
                return None;
            }
            store.index.note_gap_before_front(sequence);
            self.open_front(store, sequence);
        }
    }

    /// Bytes are left that are no fragment: a damage, unless the writer's drop marker ends them.
    #[cold]
    fn note_damage(&self, store: &mut Store, sequence: u32) {
        if matches!(self.position.fragment(store), Next::Nothing { is_damaged: true }) {
            store.index.sequences.get_mut(sequence).add_loss(LossReasons::CHUNK_CORRUPTED);
        }
    }

    /// Looks for the next packet that begins in the front record. None if there is none, or if (in
    /// a read) the sequence has stalled.
    #[inline]
    pub(crate) fn next_of_front(&mut self, store: &mut Store, sequence: u32, by: Consumer) -> Option<Pieces> {
        loop {
            match self.position.fragment(store) {
                Next::Fragment(Role::Whole, extent) => {
                    let body = self.position.body(store, extent);
                    self.consume(store, extent, by);
                    if !body.is_empty() {
                        return Some(self.list([body]));
                    }
                }
                Next::Fragment(Role::Continuation, extent) => {
                    store.index.sequences.get_mut(sequence).add_loss(LossReasons::ORPHAN_CONTINUATION);
                    self.consume(store, extent, by);
                }
                Next::Fragment(Role::Begin, extent) => {
                    match self.take_multi_chunk(store, sequence, extent, by) {
                        MultiChunk::Found(pieces) => return Some(pieces),
                        MultiChunk::Gone => {}
                        MultiChunk::Stalled => return None,
                    }
                }
                Next::Nothing { is_damaged } => {
                    if is_damaged && by == Consumer::Evictor {
                        store.index.sequences.get_mut(sequence).add_loss(LossReasons::CHUNK_CORRUPTED);
                    }
                    return None;
                }
            }
        }
    }

    /// The list of a packet, which stays until the next one is looked for.
    #[inline]
    pub(super) fn list(&mut self, bodies: impl IntoIterator<Item = *const [u8]>) -> Pieces {
        self.bodies.clear();
        self.bodies.extend(bodies);
        NonNull::from_mut(self.bodies.as_mut_slice())
    }

    /// Consumes the fragment at the position.
    #[inline]
    pub(super) fn consume(&mut self, store: &mut Store, extent: Extent, by: Consumer) {
        let position = &mut self.position;
        position.offset += extent.total_bytes as usize;
        position.left_bytes -= extent.total_bytes as usize;
        position.continues = false;
        if position.size_index != NO_SIZES {
            position.size_index += extent.entries();
        }
        store.set_unread(position.slot, position.left_bytes as u16, bit::STARTED, by);
    }
}
