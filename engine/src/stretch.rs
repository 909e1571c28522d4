//! Stretches: records behind each other in the ring that are known to be ordinary, which is looked at once for many of them.
//!
//! ```text
//!   ring     | A7 | A8 | A9 | A10 | B3 | ...
//!              ^ at hand, and a stretch of four: no more is to be asked of these than how much of them has been read
//! ```
//!
//! The records of a stretch are the front of one sequence and those that follow, in the ring as in the sequence; their ids follow each other;
//! their sizes are the distances of their places; and nothing is the matter with any. Reads change of them only what was consumed, writes
//! end the pass. What is said and done here is what [`crate::read`] and [`crate::walk`] do in general.

use crate::buffer::TraceBuffer;
use crate::ids::ChunkId;
use crate::packet::Pieces;
use crate::read::Reader;
use crate::records::{NONE, Record, bit};
use crate::sizes;
use crate::tbchunk::{HEADER_BYTES, Headers};

/// Records that are looked at together: few at first, since who reads little should not pay for more, and twice as many each time, so that a
/// look costs little for each.
pub(crate) const FIRST_LOOK: usize = 16;
const MOST_RECORDS: usize = 256;

/// Most parts of a packet, after the first, that is read here.
const MOST_PARTS: usize = 16;

/// What is the matter with a record that is in no stretch.
const SPECIAL: u16 = bit::NEEDS_PATCHING
    | bit::INCOMPLETE
    | bit::CUT
    | bit::ABORTED
    | bit::DRAINED_BY_EVICTION
    | bit::LIFE_END;

impl TraceBuffer {
    /// Sees how long the stretch is that begins with the record at hand. Whether there is more of it than this record.
    #[inline(never)]
    pub(crate) fn look_along(&mut self) -> bool {
        if self.has_late() {
            return false;
        }
        let TraceBuffer { records, sequences, space, reader, .. } = self;
        let first = reader.at.slot;
        let pages = records.rest_of_block(first);
        let Some((&Record { place, sequence, chunk_id, bits, unread_bytes, .. }, later)) =
            pages.split_first()
        else {
            return false;
        };
        let is_drained = reader.at.left_bytes == 0;
        if reader.slot != first
            || sequence == NONE
            || bits & SPECIAL != 0
            || bits & bit::COUNTED_READ != if is_drained { bit::COUNTED_READ } else { 0 }
            || usize::from(unread_bytes) != reader.at.left_bytes
            || reader.at.visible_bytes == 0
        {
            return false;
        }
        let listed = sequences.get(sequence);
        if !listed.has_erased_up_to(ChunkId(chunk_id)) {
            return false;
        }
        let slots = listed.queue.front_run().get(1..).unwrap_or_default();
        // Records of one extent lie in it as they lie in the table.
        let room = (space.seam(reader.at.header) / HEADER_BYTES) as u32 - place;
        let (mut slot, mut id) = (first, ChunkId(chunk_id));
        let most = later.len().min(slots.len()).min(reader.look - 1);
        for (next, &listed) in later[..most].iter().zip(&slots[..most]) {
            (slot, id) = (slot + 1, id.successor());
            let distance = next.place.wrapping_sub(place);
            // What is at this place of the queue belongs to the sequence.
            if listed != slot || next.chunk_id != id.0 || distance.wrapping_sub(1) >= room || !is_fit(next) {
                slot -= 1;
                break;
            }
        }
        let stretch = slot - first + 1;
        reader.at.stretch = stretch;
        reader.look = (reader.look * 2).min(MOST_RECORDS);
        stretch > 1
    }

    /// Goes on to the next record of the stretch, when the run has read its record to the end. False, and nothing done, if there is no next,
    /// or if it is at the cut, or not one to read along.
    #[inline(never)]
    pub(crate) fn stand_on_next(&mut self, cut: Option<u64>) -> bool {
        let TraceBuffer { records, ring, reader, .. } = self;
        let Reader { run, at, target, .. } = reader;
        let (later, sizes) = run.later();
        let Some(record) = later.first().filter(|_| run.is_drained()) else { return false };
        let slot = at.slot + run.passed + 1;
        let (mut first, mut size_at) = (0, usize::from(record.sizes_or_first) * 2);
        const ASKED: u16 = bit::COUNTED_READ | bit::SIZED | bit::STARTED;
        if record.bits & (ASKED | bit::FIRST_CONTINUES) != bit::SIZED {
            const TAKEN: u16 = bit::STARTED | bit::FIRST_TAKEN;
            if record.bits & (ASKED | TAKEN) != bit::SIZED | TAKEN {
                return false;
            }
            first = usize::from(record.first_bytes(sizes));
            size_at += sizes::entries(first);
        }
        if size_at >= sizes.len() {
            return false;
        }
        if let Some(cut) = cut {
            let ticket = records.ticket(slot);
            if target.0 != at.slot + run.passed || ticket >= cut {
                return false;
            }
            *target = (slot, ticket);
        }
        let headers = ring.headers();
        let offset = record.offset();
        headers.prefetch(offset);
        let next = headers.pointer(offset + HEADER_BYTES + first);
        let size = sizes.as_ptr().wrapping_add(size_at);
        run.stand(size, next, record.unread_bytes.into(), record.has(bit::LAST_CONTINUES));
        run.pass(1);
        run.turned = run.passed;
        true
    }

    /// In a shard: the turn comes to the record where the run is. False, and nothing done, if that is at the cut.
    #[inline(never)]
    pub(crate) fn turn_to_run(&mut self, cut: u64) -> bool {
        let Reader { run, at, target, .. } = &mut self.reader;
        let slot = at.slot + run.passed;
        let ticket = self.records.ticket(slot);
        if target.0 != at.slot + run.turned || ticket >= cut {
            return false;
        }
        *target = (slot, ticket);
        run.turned = run.passed;
        true
    }

    /// Takes a packet that begins with the last fragment of the record where the run is, of which `first` is the body, and of which each part
    /// is in the stretch; the run goes to the record with the last part. None, and nothing done, if not.
    #[inline(always)]
    pub(crate) fn take_in_stretch(&mut self, first: *const [u8]) -> Option<Pieces> {
        let TraceBuffer { ring, arena, reader: Reader { run, .. }, .. } = self;
        let (later, sizes) = run.later();
        let headers = ring.headers();
        let [front, places @ ..] = arena.room::<{ 1 + MOST_PARTS }>();
        front.write(first);
        let mut parts = 0;
        let mut last = None;
        for (record, place) in later.iter().zip(places) {
            headers.prefetch(record.offset());
            let (body, size_at, total) = first_part(record, sizes, &headers)?;
            place.write(body);
            parts += 1;
            const GOES_ON: u16 = bit::ONE_PART | bit::LAST_CONTINUES;
            if record.bits & GOES_ON != GOES_ON {
                last = Some((usize::from(record.unread_bytes) - total, record, size_at, body));
                break;
            }
        }
        let (unread_bytes, last, size_at, body) = last?;
        // SAFETY: the first place was written, and one for each of the parts.
        let pieces = unsafe { arena.keep_written(1 + parts) };
        let next = body.cast::<u8>().wrapping_add(body.len());
        let size = sizes.as_ptr().wrapping_add(size_at + 1);
        run.stand(size, next, unread_bytes, unread_bytes != 0 && last.has(bit::LAST_CONTINUES));
        run.turned = run.passed;
        run.pass(parts);
        run.long_packets += 1;
        Some(pieces)
    }
}

/// Whether a record may be in a stretch behind its first.
#[inline(always)]
fn is_fit(record: &Record) -> bool {
    const NOT_FRESH: u16 = SPECIAL | bit::COUNTED_READ | bit::STARTED;
    // If more than a first part was consumed, it takes a look at its header to tell where the rest begins.
    let is_whole = !record.has(NOT_FRESH)
        || record.bits & (NOT_FRESH | bit::FIRST_TAKEN) == bit::STARTED | bit::FIRST_TAKEN;
    is_whole && record.unread_bytes != 0
}

/// The part of a packet that is the first fragment of a record of which nothing was consumed, where its size is in the list, and that size. None
/// if it is none, or has no body, or its size is not kept in one entry. `sizes` are those to which a record may point.
#[inline(always)]
fn first_part(record: &Record, sizes: &[u16], headers: &Headers<'_>) -> Option<(*const [u8], usize, usize)> {
    const CONSUMED: u16 = bit::STARTED | bit::FIRST_EMPTY | bit::COUNTED_READ;
    const FRESH: u16 = bit::FIRST_CONTINUES | bit::SIZED;
    if record.bits & (CONSUMED | FRESH) != FRESH {
        return None;
    }
    let size_at = usize::from(record.sizes_or_first) * 2;
    let extent = sizes::narrow(*sizes.get(size_at)?)?;
    let start = headers.pointer(record.offset() + HEADER_BYTES + extent.header_bytes as usize);
    let body = std::ptr::slice_from_raw_parts(start, (extent.total_bytes - extent.header_bytes) as usize);
    Some((body, size_at, extent.total_bytes as usize))
}
