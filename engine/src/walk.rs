//! Reading, inside: in the order of one sequence.
//!
//! Only the front of a sequence is ever erased, so the walk stands on the front: its fragments one after another, then the record goes and the
//! next is the front.
//!
//! | fragment | what it is |
//! |---|---|
//! | whole | a packet |
//! | begin: the last one, "goes on in the next chunk" | a packet if the look-ahead finds the rest |
//! | continue, end: the first one, "continues the chunk before" | met here its beginning is missing: skipped |
//!
//! Packets that go on in other chunks are the business of [`crate::chain`].

use crate::buffer::TraceBuffer;
use crate::chain::Long;
use crate::ids::{ChunkId, LossReasons, ids_of};
use crate::packet::{self, Origin, Pieces};
use crate::read::Mode;
use crate::records::{NONE, Record, Slot, bit};
use crate::sizes::{self, Extent, Token};
use crate::tbchunk::HEADER_BYTES;

/// A place in the front record of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) slot: Slot,
    /// Offset of the record's header in the ring.
    pub(crate) header: usize,
    /// Offset of the next fragment in the ring.
    pub(crate) offset: usize,
    /// Visible bytes from there on: those that are unread.
    pub(crate) left_bytes: usize,
    pub(crate) visible_bytes: u16,
    /// Where the next fragment's size is in the block's list; [`NO_PLACE`] if none are kept.
    pub(crate) sizes_at: usize,
    /// The last fragment goes on in the next chunk.
    pub(crate) goes_on: bool,
    /// The next fragment continues a packet of the chunk before.
    pub(crate) continues: bool,
    /// Records from this one on that are known to be ordinary ([`crate::stretch`]); 0 if nothing is known.
    pub(crate) stretch: u32,
}

/// No sizes are kept.
const NO_PLACE: usize = usize::MAX;

impl At {
    /// Nowhere, with nothing left.
    pub(crate) const NOWHERE: At = At {
        slot: NONE,
        header: 0,
        offset: 0,
        left_bytes: 0,
        visible_bytes: 0,
        sizes_at: NO_PLACE,
        goes_on: false,
        continues: false,
        stretch: 0,
    };

    /// The place of the first unread fragment of a record, or, and then the second value says so, where
    /// [`skip_consumed`](TraceBuffer::skip_consumed) must begin to look for it. `sizes` says the sizes of the record's block.
    #[inline(always)]
    pub(crate) fn in_record<'a>(
        slot: Slot,
        record: &Record,
        sizes: impl FnOnce() -> &'a [u16],
    ) -> (At, bool) {
        let is_first_taken = record.has(bit::STARTED) && record.has(bit::FIRST_TAKEN);
        let first = if is_first_taken { record.first_bytes(sizes()) } else { 0 };
        let entries = if is_first_taken { sizes::entries(first.into()) } else { 0 };
        let at = At {
            slot,
            header: record.offset(),
            offset: record.offset() + HEADER_BYTES + usize::from(first),
            left_bytes: usize::from(record.unread_bytes),
            visible_bytes: record.unread_bytes + first,
            sizes_at: record.sizes_at().map_or(NO_PLACE, |at| at + entries),
            goes_on: record.has(bit::LAST_CONTINUES),
            continues: record.has(bit::FIRST_CONTINUES) && !is_first_taken,
            stretch: 0,
        };
        (at, record.has(bit::STARTED) && !is_first_taken)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Whole,
    Begin,
    /// Continue or end.
    Continuation,
}

pub(crate) enum Next {
    Fragment(Role, Extent),
    Nothing { is_damaged: bool },
}

impl TraceBuffer {
    /// Stands on the front of a sequence. Chunk ids that are missing before it are reported, once.
    #[inline]
    pub(crate) fn arrive_at_front(&mut self, sequence: u32) {
        let listed = self.sequences.get_mut(sequence);
        let Some(last) = listed.last else { return };
        let record = self.records.get_mut(listed.queue.get(0));
        let id = ChunkId(record.chunk_id);
        if id != last.chunk_id.successor()
            && id.is_newer_than(last.chunk_id)
            && !record.has(bit::GAP_ACCOUNTED)
        {
            record.bits |= bit::GAP_ACCOUNTED;
            listed.add_loss(LossReasons::READ_GAP);
        }
    }

    /// Puts the reader on the first unread fragment of a sequence's front.
    #[inline]
    pub(crate) fn open_front(&mut self, sequence: u32) {
        self.reader.sequence = sequence;
        self.reader.origin = self.origin(sequence);
        let (at, is_inside) = self.place_in(self.sequences.get(sequence).queue.get(0));
        self.reader.at = at;
        if is_inside {
            self.skip_in_front();
        }
    }

    /// Goes on to what is unread of the front. By itself, so that the place above needs no address and stays in registers.
    #[inline(never)]
    fn skip_in_front(&mut self) {
        self.reader.at = self.skip_consumed(self.reader.at);
    }

    /// As [`At::in_record`], of a record that is known by its slot.
    #[inline(always)]
    pub(crate) fn place_in(&self, slot: Slot) -> (At, bool) {
        At::in_record(slot, self.records.get(slot), || self.records.block_sizes(slot, 0))
    }

    /// Goes on from the beginning of a record to what is unread of it.
    pub(crate) fn skip_consumed(&self, mut at: At) -> At {
        at.visible_bytes = self.ring.header(at.header).visible_bytes;
        let consumed_bytes = usize::from(at.visible_bytes) - at.left_bytes;
        at.offset += consumed_bytes;
        at.continues = false;
        let mut end = 0;
        while at.sizes_at != NO_PLACE
            && end < consumed_bytes
            && let Some((extent, _)) = sizes::split_first(self.records.block_sizes(at.slot, at.sizes_at))
        {
            end += extent.total_bytes as usize;
            at.sizes_at += extent.entries();
        }
        at
    }

    /// Looks for the next packet of the sequence at hand up to the record `target`: [`packet::A_RUN`] if a run has begun with it. None when the target has been read, or the sequence
    /// stalls.
    #[inline]
    pub(crate) fn walk_sequence(&mut self, sequence: u32, target: Slot) -> Option<Pieces> {
        if self.sequences.get(sequence).stalled_in == self.generation {
            return None;
        }
        loop {
            if self.reader.at.left_bytes != 0 {
                if self.start_run() {
                    return Some(packet::A_RUN);
                }
                if let Some(pieces) = self.next_of_front(sequence, Mode::Read) {
                    let loss = std::mem::take(&mut self.sequences.get_mut(sequence).pending_loss);
                    self.reader.origin.loss = LossReasons(loss.into());
                    return Some(pieces);
                }
            }
            let At { slot, visible_bytes, .. } = self.reader.at;
            let listed = self.sequences.get_mut(sequence);
            let record = self.records.get(slot);
            let is_stalled = listed.stalled_in == self.generation;
            if is_stalled || record.has(bit::INCOMPLETE) && !listed.is_front_of_an_old_life() {
                listed.stalled_in = self.generation;
                return None;
            }
            if record.unread_bytes != 0 {
                self.note_damage(sequence);
            }
            self.erase_read(sequence, slot, visible_bytes);
            if slot == target || self.sequences.get(sequence).queue.is_empty() {
                return None;
            }
            self.arrive_at_front(sequence);
            self.open_front(sequence);
        }
    }

    /// Bytes are left that are no fragment: a damage, unless the writer's drop marker ends them.
    #[cold]
    fn note_damage(&mut self, sequence: u32) {
        if matches!(self.next_fragment(&self.reader.at), Next::Nothing { is_damaged: true }) {
            self.sequences.get_mut(sequence).add_loss(LossReasons::CHUNK_CORRUPTED);
        }
    }

    /// Looks for the next packet that begins in the front record, where the reader stands. None if there is none, or if (in a read)
    /// the sequence has stalled.
    #[inline]
    pub(crate) fn next_of_front(&mut self, sequence: u32, mode: Mode) -> Option<Pieces> {
        loop {
            match self.next_fragment(&self.reader.at) {
                Next::Fragment(Role::Whole, extent) => {
                    let body = self.body(&self.reader.at, extent);
                    self.consume(extent, mode);
                    if !body.is_empty() {
                        return Some(self.arena.keep(&[body]));
                    }
                }
                Next::Fragment(Role::Continuation, extent) => {
                    self.sequences.get_mut(sequence).add_loss(LossReasons::ORPHAN_CONTINUATION);
                    self.consume(extent, mode);
                }
                Next::Fragment(Role::Begin, extent) => match self.take_long(sequence, extent, mode) {
                    Long::Found(pieces) => return Some(pieces),
                    Long::Gone => {}
                    Long::Stalled => return None,
                },
                Next::Nothing { is_damaged } => {
                    if is_damaged && mode == Mode::Evict {
                        self.sequences.get_mut(sequence).add_loss(LossReasons::CHUNK_CORRUPTED);
                    }
                    return None;
                }
            }
        }
    }

    #[inline]
    pub(crate) fn next_fragment(&self, at: &At) -> Next {
        if at.left_bytes == 0 {
            return Next::Nothing { is_damaged: false };
        }
        let kept = self.records.block_sizes(at.slot, at.sizes_at);
        let extent = match sizes::split_first(kept) {
            Some((extent, _)) => extent,
            None => match sizes::token(self.ring.bytes(at.offset, at.left_bytes)) {
                Token::Fragment(extent) => extent,
                Token::End => return Next::Nothing { is_damaged: false },
                Token::Malformed => return Next::Nothing { is_damaged: true },
            },
        };
        let role = if at.continues {
            Role::Continuation
        } else if at.goes_on && extent.total_bytes as usize == at.left_bytes {
            Role::Begin
        } else {
            Role::Whole
        };
        Next::Fragment(role, extent)
    }

    #[inline]
    pub(crate) fn body(&self, at: &At, extent: Extent) -> *const [u8] {
        debug_assert!(extent.total_bytes as usize <= at.left_bytes);
        let start = at.offset + extent.header_bytes as usize;
        std::ptr::slice_from_raw_parts(
            self.ring.pointer(start),
            (extent.total_bytes - extent.header_bytes) as usize,
        )
    }

    /// Whose the packets at the front of a sequence are, when nothing is lost before them.
    #[inline]
    pub(crate) fn origin(&self, sequence: u32) -> Origin {
        let listed = self.sequences.get(sequence);
        let (producer_id, writer_id) = ids_of(listed.key);
        Origin {
            producer_id,
            writer_id,
            identity: self.identities.get(listed.front_identity()),
            loss: LossReasons::NONE,
        }
    }

    /// Consumes the fragment at hand.
    #[inline]
    pub(crate) fn consume(&mut self, extent: Extent, mode: Mode) {
        let at = &mut self.reader.at;
        at.offset += extent.total_bytes as usize;
        at.left_bytes -= extent.total_bytes as usize;
        at.continues = false;
        if at.sizes_at != NO_PLACE {
            at.sizes_at += extent.entries();
        }
        let (slot, unread_bytes) = (at.slot, at.left_bytes as u16);
        self.set_unread(slot, unread_bytes, bit::STARTED, mode);
    }

    /// Notes what is left of a record from which something was just consumed, and, in `how`, what.
    #[inline]
    pub(crate) fn set_unread(&mut self, slot: Slot, unread_bytes: u16, how: u16, mode: Mode) {
        let record = self.records.get_mut(slot);
        record.unread_bytes = unread_bytes;
        record.bits = record.bits & !bit::FIRST_TAKEN | how;
        let offset = record.offset();
        self.ring.set_unread(offset, unread_bytes);
        if unread_bytes == 0 {
            self.note_drained(slot, mode);
        }
    }

    /// Counts a record whose last byte has been consumed.
    #[inline]
    pub(crate) fn note_drained(&mut self, slot: Slot, mode: Mode) {
        let ordinary = self.records.with_next(slot);
        let ordinary = ordinary.and_then(|(record, next)| self.space.outer_bytes_before(record, next));
        let outer = ordinary.unwrap_or_else(|| self.space.outer_bytes(&self.records, slot)) as u64;
        let record = self.records.get_mut(slot);
        if mode == Mode::Evict {
            record.bits |= bit::DRAINED_BY_EVICTION;
            self.stats.chunks_overwritten += 1;
            self.stats.bytes_overwritten += outer;
        } else if !record.has(bit::COUNTED_READ) {
            record.bits |= bit::COUNTED_READ;
            self.stats.chunks_read += 1;
            self.stats.bytes_read += outer;
        }
    }
}
