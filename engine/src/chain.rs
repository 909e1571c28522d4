//! Packets over several chunks: looked for, put together, consumed.
//!
//! ```text
//!   front                 next                  next
//!   | ... | whole | begin | continue ---------- | end | whole | ...
//!                   ^ the reader stands here      ^ first fragments: of these the records know the size
//! ```

use crate::buffer::TraceBuffer;
use crate::ids::{ChunkId, LossReasons};
use crate::packet::Pieces;
use crate::read::{Mode, Reassembly};
use crate::records::{NONE, Record, Records, Slot, bit};
use crate::sizes::{self, Extent, Token};
use crate::tbchunk::{HEADER_BYTES, RingMemory};
use crate::walk::Next;

/// Parts that a packet over several chunks may have, after the first, to be read the short way.
const MOST_ORDINARY: usize = 16;

/// What became of a packet that goes on in later records.
pub(crate) enum Long {
    Found(Pieces),
    /// Empty or lost.
    Gone,
    Stalled,
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
    /// A packet that goes on in later records: puts it together, or gives it up, or waits.
    #[inline(never)]
    pub(crate) fn take_long(&mut self, sequence: u32, begin: Extent, mode: Mode) -> Long {
        if mode == Mode::Read
            && let Some(pieces) = self.take_ordinary(sequence, begin)
        {
            return Long::Found(pieces);
        }
        let outcome = self.look_ahead(sequence);
        if outcome == Reassembly::Success {
            self.stats.readaheads_succeeded += 1;
        } else {
            self.stats.readaheads_failed += 1;
        }
        let is_old = self.sequences.get(sequence).is_front_of_an_old_life();
        match outcome {
            Reassembly::Success => return self.take_whole_chain(begin, mode),
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
        self.consume(begin, mode);
        self.consume_chain(mode);
        Long::Gone
    }

    /// Reads a packet of which each part is there, in records that nothing else is the matter with: nearly every one. None, and
    /// nothing done, if it is another kind of packet.
    #[inline]
    pub(crate) fn take_ordinary(&mut self, sequence: u32, begin: Extent) -> Option<Pieces> {
        let first = self.body(&self.reader.at, begin);
        let front = self.records.get(self.reader.at.slot);
        if front.has(bit::NEEDS_PATCHING | bit::LIFE_END) || first.is_empty() {
            return None;
        }
        let mut id = ChunkId(front.chunk_id);
        let (_, later) = self.sequences.get(sequence).queue.front_run().split_first()?;
        let mut slots = [NONE; MOST_ORDINARY];
        let mut list = self.arena.begin(1 + MOST_ORDINARY);
        list.push(first);
        let mut parts = 0;
        loop {
            let slot = *later.get(parts)?;
            // First whether there is a place for one more, in `slots` as in `list`.
            *slots.get_mut(parts)? = slot;
            id = id.successor();
            let (body, is_last) = ordinary_part(&self.records, &self.ring, slot, id)?;
            list.push(body);
            parts += 1;
            if is_last {
                break;
            }
        }
        let pieces = list.keep();
        self.stats.readaheads_succeeded += 1;
        self.consume(begin, Mode::Read);
        for &slot in &slots[..parts] {
            self.consume_first(slot, Mode::Read);
        }
        Some(pieces)
    }

    fn take_whole_chain(&mut self, begin: Extent, mode: Mode) -> Long {
        let mut bodies = std::mem::take(&mut self.scratch.bodies);
        bodies.clear();
        bodies.push(self.body(&self.reader.at, begin));
        for &slot in &self.scratch.chain {
            bodies.push(first_body(&self.records, &self.ring, slot));
        }
        bodies.retain(|body| !body.is_empty());
        self.consume(begin, mode);
        self.consume_chain(mode);
        let outcome = match bodies.as_slice() {
            [] => Long::Gone,
            bodies => Long::Found(self.arena.keep(bodies)),
        };
        self.scratch.bodies = bodies;
        outcome
    }

    /// Consumes the first fragment of a record, which continues a packet.
    #[inline]
    pub(crate) fn consume_first(&mut self, slot: Slot, mode: Mode) {
        let first_bytes = self.records.first_bytes(slot);
        let record = self.records.get_mut(slot);
        record.unread_bytes -= first_bytes;
        record.bits |= bit::STARTED | bit::FIRST_TAKEN;
        let (offset, unread_bytes) = (record.offset(), record.unread_bytes);
        self.ring.set_unread(offset, unread_bytes);
        if unread_bytes == 0 {
            self.note_drained(slot, mode);
        }
    }

    /// Consumes the first fragments of the records that the look-ahead has found.
    pub(crate) fn consume_chain(&mut self, mode: Mode) {
        let chain = std::mem::take(&mut self.scratch.chain);
        for &slot in &chain {
            self.consume_first(slot, mode);
        }
        self.scratch.chain = chain;
    }

    /// Looks for the rest of the packet that begins at the end of the front record. Nothing is consumed; the records that hold parts of
    /// it are left in `scratch.chain`, whatever the outcome.
    pub(crate) fn look_ahead(&mut self, sequence: u32) -> Reassembly {
        self.scratch.chain.clear();
        let front = self.records.get(self.sequences.get(sequence).queue.get(0));
        if front.has(bit::NEEDS_PATCHING) || front.has(bit::LIFE_END) {
            return Reassembly::NotEnoughData;
        }
        self.look_behind(sequence, 1, ChunkId(front.chunk_id))
    }

    /// As [`look_ahead`](Self::look_ahead) from `start` on in the list of the sequence, behind a part of chunk `id`.
    pub(crate) fn look_behind(&mut self, sequence: u32, start: usize, mut id: ChunkId) -> Reassembly {
        self.scratch.chain.clear();
        let queue = &self.sequences.get(sequence).queue;
        for index in start..queue.len() {
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
        if record.is_unaligned() {
            return self.first_unaligned(slot);
        }
        if record.has(bit::STARTED) || !record.has(bit::FIRST_CONTINUES) {
            return First::Other;
        }
        if goes_on(record) { First::Continue } else { First::End }
    }

    /// The bytes of a hostile recommit: what is at the place where reading stopped?
    #[cold]
    fn first_unaligned(&self, slot: Slot) -> First {
        let (at, is_inside) = self.place_in(slot);
        let at = if is_inside { self.skip_consumed(at) } else { at };
        match self.next_fragment(&at) {
            Next::Fragment(..) => First::Other,
            Next::Nothing { is_damaged } => First::Nothing { is_damaged },
        }
    }
}

/// Whether the first fragment of a record, which continues a packet, does not end it.
#[inline]
fn goes_on(record: &Record) -> bool {
    const MIDDLE: u16 = bit::ONE_PART | bit::LAST_CONTINUES;
    record.bits & MIDDLE == MIDDLE
}

/// The part of a packet that is the first fragment of a record, chunk `id`, of which nothing was consumed, and whether the packet ends with
/// it. None if anything is the matter with the record.
#[inline]
fn ordinary_part(
    records: &Records,
    ring: &RingMemory,
    slot: Slot,
    id: ChunkId,
) -> Option<(*const [u8], bool)> {
    const SPECIAL: u16 =
        bit::STARTED | bit::NEEDS_PATCHING | bit::INCOMPLETE | bit::LIFE_END | bit::FIRST_EMPTY;
    let (record, sizes) = records.with_sizes(slot);
    if record.chunk_id != id.0
        || record.bits & (SPECIAL | bit::FIRST_CONTINUES) != bit::FIRST_CONTINUES
        || record.unread_bytes == 0
    {
        return None;
    }
    let is_last = !goes_on(record);
    let Some((first, _)) = sizes::split_first(sizes) else {
        return Some((first_body(records, ring, slot), is_last));
    };
    let body = ring.pointer(record.offset() + HEADER_BYTES + first.header_bytes as usize);
    let body = std::ptr::slice_from_raw_parts(body, (first.total_bytes - first.header_bytes) as usize);
    Some((body, is_last))
}

/// The body of the first fragment of a record of which nothing was consumed.
fn first_body(records: &Records, ring: &RingMemory, slot: Slot) -> *const [u8] {
    let record = records.get(slot);
    let payload = record.offset() + HEADER_BYTES;
    let total = usize::from(records.first_bytes(slot));
    let header = match sizes::split_first(records.sizes(slot)) {
        Some((extent, _)) => extent.header_bytes as usize,
        None => match sizes::token(ring.bytes(payload, total)) {
            Token::Fragment(extent) => extent.header_bytes as usize,
            _ => total,
        },
    };
    std::ptr::slice_from_raw_parts(ring.pointer(payload + header), total - header)
}
