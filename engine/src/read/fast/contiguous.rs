//! Records that follow each other and are checked at once.
//!
//! ```text
//!   ring     | A7 | A8 | A9 | A10 | B3 | ...
//!              ^ position, four records checked
//! ```
//!
//! Checked records are the front of one sequence and those that follow it, in the ring as in the
//! sequence. Their ids follow each other, their sizes are the distances of their offsets, and none
//! has anything special. Reads change of them only what was consumed; writes end the pass.

use std::ptr::NonNull;

use crate::ids::ChunkId;
use crate::index::fragment_sizes as sizes;
use crate::index::records::{NONE, Record, bit};
use crate::packet::Pieces;
use crate::read::Reader;
use crate::ring::Headers;
use crate::ring::tbchunk::HEADER_BYTES;
use crate::store::Store;

/// Records that are checked together: few at first, since who reads little should not pay for more,
/// and twice as many each time, so that a check costs little for each.
pub(in crate::read) const MIN_CHECKED: usize = 16;
const MAX_CHECKED: usize = 256;

/// Parts of a packet, after the first, that are put together here.
pub(in crate::read) const MAX_PARTS: usize = 16;

/// What a checked record does not have.
const SPECIAL: u16 = bit::NEEDS_PATCHING
    | bit::INCOMPLETE
    | bit::CUT
    | bit::ABORTED
    | bit::DRAINED_BY_EVICTION
    | bit::LIFE_END;

impl Reader {
    /// Checks the records from the position on. Whether there is more than the one of the position.
    #[inline(never)]
    pub(super) fn check_ahead(&mut self, store: &Store) -> bool {
        let index = &store.index;
        if index.has_late() {
            return false;
        }
        let first = self.position.slot;
        let records = index.records.rest_of_block(first);
        let Some((front, later)) = records.split_first() else { return false };
        let &Record { offset_units, sequence, chunk_id, bits, unread_bytes, .. } = front;
        let is_drained = self.position.left_bytes == 0;
        if self.slot != first
            || sequence == NONE
            || bits & SPECIAL != 0
            || bits & bit::COUNTED_READ != if is_drained { bit::COUNTED_READ } else { 0 }
            || usize::from(unread_bytes) != self.position.left_bytes
            || self.position.visible_bytes == 0
        {
            return false;
        }
        let listed = index.sequences.get(sequence);
        if !listed.has_erased_up_to(ChunkId(chunk_id)) {
            return false;
        }
        let slots = listed.queue.front_run().get(1..).unwrap_or_default();
        // Records of one extent lie in it as they lie in the table.
        let seam = store.ring.space.seam(self.position.header);
        let room = (seam / HEADER_BYTES) as u32 - offset_units;
        let (mut slot, mut id) = (first, ChunkId(chunk_id));
        let limit = later.len().min(slots.len()).min(self.check_limit - 1);
        for (next, &listed) in later[..limit].iter().zip(&slots[..limit]) {
            (slot, id) = (slot + 1, id.successor());
            let distance = next.offset_units.wrapping_sub(offset_units);
            // What the queue lists here belongs to the sequence.
            let is_next = listed == slot && next.chunk_id == id.0;
            if !is_next || distance.wrapping_sub(1) >= room || !is_fit(next) {
                slot -= 1;
                break;
            }
        }
        let checked = slot - first + 1;
        self.position.checked = checked;
        self.check_limit = (self.check_limit * 2).min(MAX_CHECKED);
        checked > 1
    }

    /// Takes the cursor, which has read its record to the end, to the next checked one. False, and
    /// nothing done, if there is none, if it is at the cut, or if its sizes are not kept.
    #[inline(never)]
    pub(super) fn enter_next_checked(&mut self, store: &mut Store, cut: Option<u64>) -> bool {
        let Reader { fragments, position, target, .. } = self;
        let (later, sizes) = fragments.later();
        let Some(record) = later.first().filter(|_| fragments.is_drained()) else { return false };
        let slot = position.slot + fragments.passed + 1;
        let (mut first, mut size_index) = (0, usize::from(record.sizes_or_first) * 2);
        const ASKED: u16 = bit::COUNTED_READ | bit::SIZED | bit::STARTED;
        if record.bits & (ASKED | bit::FIRST_CONTINUES) != bit::SIZED {
            const TAKEN: u16 = bit::STARTED | bit::FIRST_TAKEN;
            if record.bits & (ASKED | TAKEN) != bit::SIZED | TAKEN {
                return false;
            }
            first = usize::from(record.first_bytes(sizes));
            size_index += sizes::entries(first);
        }
        if size_index >= sizes.len() {
            return false;
        }
        if let Some(cut) = cut {
            let ticket = store.index.records.ticket(slot);
            if target.0 != position.slot + fragments.passed || ticket >= cut {
                return false;
            }
            *target = (slot, ticket);
        }
        let headers = store.ring.headers();
        let offset = record.offset();
        headers.prefetch(offset);
        let next = headers.pointer(offset + HEADER_BYTES + first);
        let size = sizes.as_ptr().wrapping_add(size_index);
        fragments.enter(size, next, record.unread_bytes.into(), record.has(bit::LAST_CONTINUES));
        fragments.pass(1);
        fragments.left_records = fragments.passed;
        true
    }

    /// In a shard: the pass reaches the record where the cursor is. False, and nothing done, if
    /// that is at the cut.
    #[inline(never)]
    pub(in crate::read) fn advance_target(&mut self, store: &Store, cut: u64) -> bool {
        let Reader { fragments, position, target, .. } = self;
        let slot = position.slot + fragments.passed;
        let ticket = store.index.records.ticket(slot);
        if target.0 != position.slot + fragments.left_records || ticket >= cut {
            return false;
        }
        *target = (slot, ticket);
        fragments.left_records = fragments.passed;
        true
    }

    /// Takes a packet that begins with the last fragment of the cursor's record, of which `first`
    /// is the body, and of which each part is in a checked record. The cursor goes to the record
    /// with the last part. None, and nothing done, if it is another kind of packet.
    #[inline(always)]
    pub(super) fn take_along_checked(&mut self, store: &mut Store, first: *const [u8]) -> Option<Pieces> {
        let Reader { parts: list, fragments, .. } = self;
        let (later, sizes) = fragments.later();
        let headers = store.ring.headers();
        let [front, rooms @ ..] = &mut **list;
        *front = first;
        let mut parts = 0;
        let mut last = None;
        for (record, room) in later.iter().zip(rooms) {
            headers.prefetch(record.offset());
            let (body, size_index, total) = first_part(record, sizes, &headers)?;
            *room = body;
            parts += 1;
            const GOES_ON: u16 = bit::ONE_PART | bit::LAST_CONTINUES;
            if record.bits & GOES_ON != GOES_ON {
                last = Some((usize::from(record.unread_bytes) - total, record, size_index, body));
                break;
            }
        }
        let (unread_bytes, last, size_index, body) = last?;
        let next = body.cast::<u8>().wrapping_add(body.len());
        let size = sizes.as_ptr().wrapping_add(size_index + 1);
        let has_open_end = unread_bytes != 0 && last.has(bit::LAST_CONTINUES);
        fragments.enter(size, next, unread_bytes, has_open_end);
        fragments.left_records = fragments.passed;
        fragments.pass(parts);
        fragments.multi_chunk_packets += 1;
        Some(NonNull::from_mut(&mut list[..1 + parts]))
    }
}

/// Whether a record may be checked behind another.
#[inline(always)]
fn is_fit(record: &Record) -> bool {
    const NOT_FRESH: u16 = SPECIAL | bit::COUNTED_READ | bit::STARTED;
    // If more than a first part was consumed, only the header says where the rest begins.
    let is_whole = !record.has(NOT_FRESH)
        || record.bits & (NOT_FRESH | bit::FIRST_TAKEN) == bit::STARTED | bit::FIRST_TAKEN;
    is_whole && record.unread_bytes != 0
}

/// The part of a packet that is the first fragment of a record of which nothing was consumed, the
/// index of its size, and that size. None if it is none, has no body, or its size is not kept in
/// one entry. `sizes` are those to which a record may point.
#[inline(always)]
fn first_part(record: &Record, sizes: &[u16], headers: &Headers<'_>) -> Option<(*const [u8], usize, usize)> {
    const CONSUMED: u16 = bit::STARTED | bit::FIRST_EMPTY | bit::COUNTED_READ;
    const FRESH: u16 = bit::FIRST_CONTINUES | bit::SIZED;
    if record.bits & (CONSUMED | FRESH) != FRESH {
        return None;
    }
    let size_index = usize::from(record.sizes_or_first) * 2;
    let extent = sizes::narrow(*sizes.get(size_index)?)?;
    let start = headers.pointer(record.offset() + HEADER_BYTES + extent.header_bytes as usize);
    let body_bytes = (extent.total_bytes - extent.header_bytes) as usize;
    let body = std::ptr::slice_from_raw_parts(start, body_bytes);
    Some((body, size_index, extent.total_bytes as usize))
}
