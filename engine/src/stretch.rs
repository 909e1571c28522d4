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
use crate::read::Mode;
use crate::records::{NO_SIZES, NONE, Record, Rest, bit};
use crate::sequence::Last;
use crate::sizes;
use crate::tbchunk::{HEADER_BYTES, Headers};
use crate::turn::PREFETCH_RECORDS;
use crate::walk::At;

/// Records that are looked at together: so many that a look costs little for each, so few that who reads little does not pay for more.
const MOST_RECORDS: usize = 32;

/// Most parts of a packet, after the first, that is read here.
const MOST_PARTS: usize = 16;

/// What is the matter with a record that is in no stretch.
const SPECIAL: u16 = bit::NEEDS_PATCHING
    | bit::INCOMPLETE
    | bit::CUT
    | bit::ABORTED
    | bit::DRAINED_BY_EVICTION
    | bit::LIFE_END
    | bit::UNALIGNED
    | bit::LATE;

/// What became of a step along a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// Nothing: the stretch ends here.
    Nothing,
    /// The pass stands on another record.
    Page,
    /// On another record, with a run.
    Run,
}

impl TraceBuffer {
    /// Sees how long the stretch is that begins with the record at hand. Whether there is more of it than this record.
    #[inline(never)]
    pub(crate) fn look_along(&mut self) -> bool {
        if self.has_late() {
            return false;
        }
        let TraceBuffer { records, sequences, space, reader, .. } = self;
        let first = reader.at.slot;
        let pages = records.rest_of_block(first).records;
        let Some(&Record { sequence, chunk_id, bits, .. }) = pages.first() else { return false };
        if reader.slot != first || sequence == NONE || bits & SPECIAL != 0 || reader.at.visible_bytes == 0 {
            return false;
        }
        let listed = sequences.get(sequence);
        if !listed.has_erased_up_to(ChunkId(chunk_id)) {
            return false;
        }
        let slots = listed.queue.front_run().get(1..).unwrap_or_default();
        let seam = space.seam(reader.at.header) / HEADER_BYTES;
        let mut stretch = 1;
        for ([record, next], &slot) in pages.array_windows().zip(slots).take(MOST_RECORDS - 1) {
            let is_behind = record.place < next.place && next.place as usize <= seam;
            // What is at this place of the queue belongs to the sequence.
            if slot != first + stretch || !is_behind || !goes_on(record, next) {
                break;
            }
            stretch += 1;
        }
        reader.at.stretch = stretch;
        stretch > 1
    }

    /// Erases the record at hand, which was read to its end and is the one whose turn it is in the outer walk, with those behind it that are
    /// used up, and stands on the next of the stretch.
    #[inline(always)]
    pub(crate) fn turn_in_stretch(&mut self, cut: Option<u64>) -> Turned {
        let TraceBuffer { records, sequences, space, ring, books, reader, .. } = self;
        let At { slot: first, stretch, header, .. } = reader.at;
        let Rest { records: pages, tickets, sizes } = records.rest_of_block(first);
        if stretch < 2 || cut.is_some() && reader.target.0 != first {
            return Turned::Nothing;
        }
        let mut headers = ring.headers();
        let mut turned = 0;
        while turned + 1 < stretch as usize && pages[turned].unread_bytes == 0 {
            if cut.is_some_and(|cut| tickets[turned + 1] >= cut) {
                break;
            }
            pages[turned].sequence = NONE;
            headers.clear(pages[turned].offset());
            turned += 1;
            if let Some(ahead) = pages.get(turned + PREFETCH_RECORDS as usize) {
                headers.prefetch(ahead.offset());
            }
        }
        let Some(last) = turned.checked_sub(1) else { return Turned::Nothing };
        let (last, next) = (&pages[last], &pages[turned]);
        let visible_bytes = if turned == 1 { reader.at.visible_bytes } else { last.first_bytes };
        let last = Last { chunk_id: ChunkId(last.chunk_id), payload_bytes: visible_bytes, incomplete: false };
        let slot = first + turned as u32;
        let at = At { stretch: stretch - turned as u32, ..At::in_record(slot, next).0 };
        (reader.slot, reader.at) = (slot, at);
        if cut.is_some() {
            reader.target = (slot, tickets[turned]);
        }
        books.move_read(turned, at.header - header);
        if let Some(extents) = &mut space.extents {
            extents.note_erased(header, turned as u32);
        }
        let listed = sequences.get_mut(reader.sequence);
        listed.pop_read(turned, last);
        let sizes = sizes.get(at.sizes_at..).unwrap_or_default();
        if !reader.run.start(&at, sizes, &headers) {
            return Turned::Page;
        }
        reader.take_loss(listed);
        Turned::Run
    }

    /// Takes a packet that begins with the last fragment of the record at hand, of which `first` is the body, and of which each part is in
    /// the stretch. None, and nothing done, if not.
    #[inline(always)]
    pub(crate) fn take_in_stretch(&mut self, first: *const [u8]) -> Option<Pieces> {
        let TraceBuffer { records, sequences, ring, arena, reader, stats, .. } = self;
        let at = &mut reader.at;
        let Rest { records: pages, sizes, .. } = records.rest_of_block(at.slot);
        let (front, later) = pages.get_mut(..at.stretch as usize)?.split_first_mut()?;
        if front.has(bit::COUNTED_READ) || first.is_empty() {
            return None;
        }
        let mut headers = ring.headers();
        let list = arena.room::<{ 1 + MOST_PARTS }>();
        list[0].write(first);
        let mut parts = 0;
        loop {
            let (body, is_last) = first_part(later.get(parts)?, sizes, &headers)?;
            parts += 1;
            list.get_mut(parts)?.write(body);
            if is_last {
                break;
            }
        }
        // SAFETY: the first place was written, and one for each of the parts.
        let pieces = unsafe { arena.keep_written(1 + parts) };
        let (last, middle) = later[..parts].split_last_mut()?;
        front.unread_bytes = 0;
        front.bits = front.bits & !bit::FIRST_TAKEN | bit::STARTED | bit::COUNTED_READ;
        headers.set_unread(at.header, 0);
        // Nothing is left, so nobody asks where the next fragment and its size are.
        (at.left_bytes, at.continues) = (0, false);
        reader.run.stop();
        for record in middle {
            record.unread_bytes = 0;
            record.bits |= bit::STARTED | bit::FIRST_TAKEN | bit::COUNTED_READ;
            headers.set_unread(record.offset(), 0);
        }
        last.unread_bytes -= last.first_bytes;
        last.bits |= bit::STARTED | bit::FIRST_TAKEN;
        headers.set_unread(last.offset(), last.unread_bytes);
        stats.readaheads_succeeded += 1;
        stats.chunks_read += parts as u64;
        stats.bytes_read += u64::from(last.place - front.place) * 16;
        let last_slot = at.slot + parts as u32;
        reader.take_loss(sequences.get_mut(reader.sequence));
        if last.unread_bytes == 0 {
            self.note_drained(last_slot, Mode::Read);
        }
        Some(pieces)
    }
}

/// Whether `next`, which lies behind `record` in the ring and in its sequence, is in the same stretch.
#[inline(always)]
fn goes_on(record: &Record, next: &Record) -> bool {
    let is_fit = if next.has(SPECIAL | bit::STARTED) {
        // If more than a first part was consumed, it takes a look at its header to tell where the rest begins.
        next.bits & (SPECIAL | bit::STARTED | bit::FIRST_TAKEN) == bit::STARTED | bit::FIRST_TAKEN
    } else {
        next.unread_bytes != 0
    };
    is_fit && next.chunk_id == ChunkId(record.chunk_id).successor().0
}

/// The part of a packet that is the first fragment of a record of which nothing was consumed, and whether the packet ends with it. None if
/// it is none, or has no body, or its size is not kept in one entry.
#[inline(always)]
fn first_part(record: &Record, sizes: &[u16], headers: &Headers<'_>) -> Option<(*const [u8], bool)> {
    const CONSUMED: u16 = bit::STARTED | bit::FIRST_EMPTY | bit::COUNTED_READ;
    if record.bits & (CONSUMED | bit::FIRST_CONTINUES) != bit::FIRST_CONTINUES || record.sizes == NO_SIZES {
        return None;
    }
    let extent = sizes::narrow(*sizes.get(usize::from(record.sizes) * 2)?)?;
    let start = headers.pointer(record.offset() + HEADER_BYTES + extent.header_bytes as usize);
    let body = std::ptr::slice_from_raw_parts(start, (extent.total_bytes - extent.header_bytes) as usize);
    let is_last = record.first_bytes != record.unread_bytes || !record.has(bit::LAST_CONTINUES);
    Some((body, is_last))
}
