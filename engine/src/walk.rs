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
//! The look-ahead needs the first fragment of each following record only, of which [`crate::records`] keeps the size.

use crate::buffer::TraceBuffer;
use crate::ids::{ChunkId, LossReasons, ids_of};
use crate::packet::{Bodies, RawPacket};
use crate::read::{Mode, Reassembly};
use crate::records::{NO_SIZES, NONE, Slot, bit};
use crate::sizes::{self, Extent, Token};
use crate::tbchunk::HEADER_BYTES;

/// A place in the front record of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) slot: Slot,
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
}

/// No sizes are kept.
const NO_PLACE: usize = usize::MAX;

impl At {
    /// Nowhere, with nothing left.
    pub(crate) const NOWHERE: At = At {
        slot: NONE,
        offset: 0,
        left_bytes: 0,
        visible_bytes: 0,
        sizes_at: NO_PLACE,
        goes_on: false,
        continues: false,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Whole,
    Begin,
    /// Continue or end.
    Continuation,
}

enum Next {
    Fragment(Role, Extent),
    Nothing { is_damaged: bool },
}

/// Of a record that the look-ahead comes to: its first unread fragment.
enum First {
    Continue,
    End,
    /// Whole or begin.
    Other,
    Nothing {
        is_damaged: bool,
    },
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

    /// The place of the first unread fragment of a sequence's front.
    #[inline]
    pub(crate) fn open_front(&self, sequence: u32) -> At {
        self.open(self.sequences.get(sequence).queue.get(0))
    }

    /// The place of the first unread fragment of a record. The ring is looked at only if some bytes were consumed.
    #[inline]
    fn open(&self, slot: Slot) -> At {
        let record = self.records.get(slot);
        let mut at = At {
            slot,
            offset: record.offset() + HEADER_BYTES,
            left_bytes: usize::from(record.unread_bytes),
            visible_bytes: record.unread_bytes,
            sizes_at: if record.sizes == NO_SIZES { NO_PLACE } else { usize::from(record.sizes) * 2 },
            goes_on: record.has(bit::LAST_CONTINUES),
            continues: record.has(bit::FIRST_CONTINUES),
        };
        if record.has(bit::STARTED) {
            self.skip_consumed(&mut at);
        }
        at
    }

    /// Goes on from the beginning of a record to what is unread of it.
    #[inline(never)]
    fn skip_consumed(&self, at: &mut At) {
        at.visible_bytes = self.ring.header(at.offset - HEADER_BYTES).visible_bytes;
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
    }

    /// The next packet of a sequence up to the record `target`. None when the target has been read, or the sequence stalls.
    #[inline]
    pub(crate) fn walk_sequence(&mut self, sequence: u32, target: Slot, at: &mut At) -> Option<RawPacket> {
        if self.sequences.get(sequence).stalled_in == self.generation {
            return None;
        }
        loop {
            if let Some(packet) = self.next_of_front(sequence, at, Mode::Read) {
                return Some(packet);
            }
            let listed = self.sequences.get_mut(sequence);
            let record = self.records.get(at.slot);
            let is_stalled = listed.stalled_in == self.generation;
            if is_stalled || record.has(bit::INCOMPLETE) && !listed.is_front_of_an_old_life() {
                listed.stalled_in = self.generation;
                return None;
            }
            let is_target = at.slot == target;
            if record.unread_bytes != 0 {
                self.note_damage(sequence, at);
            }
            self.erase_front(sequence, true, Some(at.visible_bytes));
            if is_target || self.sequences.get(sequence).queue.is_empty() {
                return None;
            }
            self.arrive_at_front(sequence);
            *at = self.open_front(sequence);
        }
    }

    /// Bytes are left that are no fragment: a damage, unless the writer's drop marker ends them.
    #[cold]
    fn note_damage(&mut self, sequence: u32, at: &At) {
        if matches!(self.next_fragment(at), Next::Nothing { is_damaged: true }) {
            self.sequences.get_mut(sequence).add_loss(LossReasons::CHUNK_CORRUPTED);
        }
    }

    /// The next packet that begins in the front record. None if there is none, or if (in a read) the sequence has stalled.
    #[inline]
    pub(crate) fn next_of_front(&mut self, sequence: u32, at: &mut At, mode: Mode) -> Option<RawPacket> {
        loop {
            match self.next_fragment(at) {
                Next::Fragment(Role::Whole, extent) => {
                    let body = self.body(at, extent);
                    self.consume(at, extent, mode);
                    if !body.is_empty() {
                        return Some(self.raw_packet(sequence, Bodies::One(body)));
                    }
                }
                Next::Fragment(Role::Continuation, extent) => {
                    self.sequences.get_mut(sequence).add_loss(LossReasons::ORPHAN_CONTINUATION);
                    self.consume(at, extent, mode);
                }
                Next::Fragment(Role::Begin, extent) => match self.take_long(sequence, at, extent, mode) {
                    Long::Packet(packet) => return Some(packet),
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
    fn next_fragment(&self, at: &At) -> Next {
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
    fn body(&self, at: &At, extent: Extent) -> *const [u8] {
        debug_assert!(extent.total_bytes as usize <= at.left_bytes);
        let start = at.offset + extent.header_bytes as usize;
        std::ptr::slice_from_raw_parts(
            self.ring.pointer(start),
            (extent.total_bytes - extent.header_bytes) as usize,
        )
    }

    #[inline]
    fn raw_packet(&self, sequence: u32, bodies: Bodies) -> RawPacket {
        let listed = self.sequences.get(sequence);
        let (producer_id, writer_id) = ids_of(listed.key);
        RawPacket {
            bodies,
            producer_id,
            writer_id,
            identity: self.identities.get(listed.front_identity()),
            loss: LossReasons(listed.pending_loss.into()),
        }
    }

    /// Consumes the fragment at hand.
    #[inline]
    fn consume(&mut self, at: &mut At, extent: Extent, mode: Mode) {
        at.offset += extent.total_bytes as usize;
        at.left_bytes -= extent.total_bytes as usize;
        at.continues = false;
        if at.sizes_at != NO_PLACE {
            at.sizes_at += extent.entries();
        }
        self.consume_bytes(at.slot, extent.total_bytes as u16, mode);
    }

    #[inline]
    fn consume_bytes(&mut self, slot: Slot, bytes: u16, mode: Mode) {
        let unread_bytes = self.records.get(slot).unread_bytes - bytes;
        self.set_unread(slot, unread_bytes, mode);
    }

    /// Notes what is left of a record from which something was just consumed.
    #[inline]
    pub(crate) fn set_unread(&mut self, slot: Slot, unread_bytes: u16, mode: Mode) {
        let record = self.records.get_mut(slot);
        record.unread_bytes = unread_bytes;
        record.bits |= bit::STARTED;
        let offset = record.offset();
        self.ring.set_unread(offset, unread_bytes);
        if unread_bytes == 0 {
            self.note_drained(slot, mode);
        }
    }

    /// Counts a record whose last byte has been consumed.
    #[inline]
    pub(crate) fn note_drained(&mut self, slot: Slot, mode: Mode) {
        let outer = self.space.outer_bytes(&self.records, slot) as u64;
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

    /// A packet that goes on in later records: puts it together, or gives it up, or waits.
    #[inline(never)]
    fn take_long(&mut self, sequence: u32, at: &mut At, begin: Extent, mode: Mode) -> Long {
        let outcome = self.look_ahead(sequence);
        if outcome == Reassembly::Success {
            self.stats.readaheads_succeeded += 1;
        } else {
            self.stats.readaheads_failed += 1;
        }
        let is_old = self.sequences.get(sequence).is_front_of_an_old_life();
        match outcome {
            Reassembly::Success => return self.take_whole_chain(sequence, at, begin, mode),
            Reassembly::NotEnoughData if mode == Mode::Read && !is_old => {
                self.sequences.get_mut(sequence).stalled_in = self.generation;
                return Long::Stalled;
            }
            _ => {}
        }
        let reasons = match outcome {
            Reassembly::Loss(reasons) => reasons,
            _ if mode == Mode::Evict => LossReasons::OVERWRITE,
            // Its writer has ended: the rest will not come.
            _ => LossReasons::REASSEMBLY_BROKEN_CHAIN,
        };
        self.sequences.get_mut(sequence).add_loss(reasons);
        self.consume(at, begin, mode);
        self.consume_chain(mode);
        Long::Gone
    }

    fn take_whole_chain(&mut self, sequence: u32, at: &mut At, begin: Extent, mode: Mode) -> Long {
        let mut bodies = std::mem::take(&mut self.scratch.bodies);
        bodies.clear();
        bodies.push(self.body(at, begin));
        for &slot in &self.scratch.chain {
            bodies.push(self.first_body(slot));
        }
        bodies.retain(|body| !body.is_empty());
        self.consume(at, begin, mode);
        self.consume_chain(mode);
        let list = match bodies.as_slice() {
            [] => None,
            [one] => Some(Bodies::One(*one)),
            many => Some(Bodies::Many(self.arena.keep(many))),
        };
        self.scratch.bodies = bodies;
        match list {
            None => Long::Gone,
            Some(list) => Long::Packet(self.raw_packet(sequence, list)),
        }
    }

    /// The body of the first fragment of a record of which nothing was consumed.
    #[inline]
    fn first_body(&self, slot: Slot) -> *const [u8] {
        let record = self.records.get(slot);
        let payload = record.offset() + HEADER_BYTES;
        let total = usize::from(record.first_bytes);
        let header = match sizes::split_first(self.records.sizes(slot)) {
            Some((extent, _)) => extent.header_bytes as usize,
            None => match sizes::token(self.ring.bytes(payload, total)) {
                Token::Fragment(extent) => extent.header_bytes as usize,
                _ => total,
            },
        };
        std::ptr::slice_from_raw_parts(self.ring.pointer(payload + header), total - header)
    }

    /// Consumes the first fragments of the records that the look-ahead has found.
    pub(crate) fn consume_chain(&mut self, mode: Mode) {
        let chain = std::mem::take(&mut self.scratch.chain);
        for &slot in &chain {
            self.consume_bytes(slot, self.records.get(slot).first_bytes, mode);
        }
        self.scratch.chain = chain;
    }

    /// Looks for the rest of the packet that begins at the end of the front record. Nothing is consumed; the records that hold parts of
    /// it are left in `scratch.chain`, whatever the outcome.
    pub(crate) fn look_ahead(&mut self, sequence: u32) -> Reassembly {
        self.scratch.chain.clear();
        let queue = &self.sequences.get(sequence).queue;
        let front = self.records.get(queue.get(0));
        if front.has(bit::NEEDS_PATCHING) || front.has(bit::LIFE_END) {
            return Reassembly::NotEnoughData;
        }
        let mut id = ChunkId(front.chunk_id);
        for index in 1..queue.len() {
            let slot = queue.get(index);
            let record = self.records.get(slot);
            let first = self.first_unread(slot);
            if record.has(bit::NEEDS_PATCHING) && !matches!(first, First::End) {
                return Reassembly::NotEnoughData;
            }
            id = id.successor();
            if record.chunk_id != id.0 {
                return Reassembly::Loss(LossReasons::REASSEMBLY_GAP);
            }
            match first {
                First::Continue => self.scratch.chain.push(slot),
                First::End => {
                    self.scratch.chain.push(slot);
                    return Reassembly::Success;
                }
                First::Other => return Reassembly::Loss(LossReasons::REASSEMBLY_BROKEN_CHAIN),
                First::Nothing { is_damaged } if is_damaged || record.has(bit::CUT) => {
                    return Reassembly::Loss(LossReasons::CHUNK_CORRUPTED);
                }
                First::Nothing { .. } if record.has(bit::INCOMPLETE) => return Reassembly::NotEnoughData,
                First::Nothing { .. } => {}
            }
            if record.has(bit::LIFE_END) {
                return Reassembly::NotEnoughData;
            }
        }
        Reassembly::NotEnoughData
    }

    #[inline]
    fn first_unread(&self, slot: Slot) -> First {
        let record = self.records.get(slot);
        if record.unread_bytes == 0 {
            return First::Nothing { is_damaged: false };
        }
        if record.has(bit::UNALIGNED) {
            return self.first_unaligned(slot);
        }
        if record.has(bit::STARTED) || !record.has(bit::FIRST_CONTINUES) {
            return First::Other;
        }
        let is_one = record.first_bytes == record.unread_bytes;
        if is_one && record.has(bit::LAST_CONTINUES) { First::Continue } else { First::End }
    }

    /// The bytes of a hostile recommit: what is at the place where reading stopped?
    #[cold]
    fn first_unaligned(&self, slot: Slot) -> First {
        match self.next_fragment(&self.open(slot)) {
            Next::Fragment(..) => First::Other,
            Next::Nothing { is_damaged } => First::Nothing { is_damaged },
        }
    }
}

/// What became of a packet that goes on in later records.
enum Long {
    Packet(RawPacket),
    /// Empty or lost.
    Gone,
    Stalled,
}
