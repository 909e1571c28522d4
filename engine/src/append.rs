//! A chunk that has been sized becomes a record: room is made at the cursor, the bytes are copied, the record is listed and counted.

use crate::buffer::{SPANS, TraceBuffer};
use crate::config::FillPolicy;
use crate::mem::Ahead;
use crate::records::{NONE, Record, bit};
use crate::sized::{Cut, SizedChunk, ends_a_fragment};
use crate::sizes;
use crate::tbchunk::{self, TbChunk};
use watershed_simd::Span;

impl TraceBuffer {
    /// Makes room and writes a new record, of which the first `skip` bytes have been consumed before, and after which `behind` records of its
    /// sequence come.
    pub(crate) fn write(
        &mut self,
        chunk: &SizedChunk<'_>,
        spans: &[Span; SPANS],
        sequence: u32,
        skip: usize,
        behind: usize,
    ) {
        if self.clear_place(chunk.outer_bytes(), sequence) {
            self.append(chunk, spans, sequence, skip, behind);
        }
    }

    /// Makes room at the cursor for a record of a sequence, which stays live meanwhile. False, and the chunk counted, if a DISCARD buffer
    /// has none.
    #[inline(always)]
    pub(crate) fn clear_place(&mut self, outer: usize, sequence: u32) -> bool {
        self.pinned = sequence;
        if self.space.extents.is_some() {
            self.make_room_in_extents(outer);
        } else if self.space.fits(outer) || self.go_on(outer) {
            self.make_room(outer);
        } else {
            self.pinned = NONE;
            return false;
        }
        self.pinned = NONE;
        true
    }

    /// Goes on behind a stop of the first lap, or else starts again at the buffer's beginning, or seals it.
    #[cold]
    #[inline(never)]
    fn go_on(&mut self, outer: usize) -> bool {
        while self.space.stops_early() {
            self.pass_stop(outer);
            if self.space.fits(outer) {
                return true;
            }
        }
        // What it did is done.
        self.ahead = None;
        if self.policy == FillPolicy::Discard {
            self.is_sealed = true;
            self.stats.chunks_discarded += 1;
            return false;
        }
        self.evict_tail();
        self.space.wrap();
        self.stats.write_wrap_count += 1;
        true
    }

    /// At a stop of the first lap: asks for the memory behind it and moves the stop.
    fn pass_stop(&mut self, outer: usize) {
        if self.ahead.is_none() {
            self.ahead = Ahead::start(self.ring.shared_region());
        }
        let (end, size_bytes) = (self.space.cursor() + outer, self.space.size_bytes());
        let stop = self.ahead.as_ref().map_or(size_bytes, |ahead| ahead.ask(end, size_bytes));
        self.space.go_on_to(stop);
    }

    /// Writes a record at the cursor, where there is room, and lists it.
    #[inline(always)]
    pub(crate) fn append(
        &mut self,
        chunk: &SizedChunk<'_>,
        spans: &[Span; SPANS],
        sequence: u32,
        skip: usize,
        behind: usize,
    ) {
        let (offset, outer) = (self.space.cursor(), chunk.outer_bytes());
        let (id, visible_bytes) = (chunk.info.chunk_id, chunk.visible.len());
        let (mut bits, mut is_unaligned) = (chunk.bits(), false);
        if skip != 0 {
            bits = bits & !bit::FIRST_TAKEN | bit::STARTED;
            is_unaligned = !ends_a_fragment(chunk, spans, skip);
        }
        let mut sizes_or_first = chunk.first_bytes;
        if sizes::is_worth_keeping(chunk.fragments, visible_bytes)
            && chunk.fragments <= SPANS
            && !is_unaligned
            && let Some((list, at)) = self.records.sizes_for_next()
        {
            sizes::append(list, spans, chunk.fragments, visible_bytes);
            sizes_or_first = at;
            bits |= bit::SIZED;
        }
        let mut record = Record {
            sequence,
            chunk_id: id.0,
            unread_bytes: (visible_bytes - skip) as u16,
            sizes_or_first,
            bits,
            ..Record::padding(offset)
        };
        if is_unaligned {
            record.set_unaligned();
        }
        let slot = self.records.push_back(record);
        let header = TbChunk {
            chunk_id: id.0,
            key: chunk.key,
            reserved_bytes: chunk.reserved_bytes as u16,
            visible_bytes: visible_bytes as u16,
            unread_bytes: record.unread_bytes,
            flags: chunk.flags | if chunk.info.complete { 0 } else { tbchunk::INCOMPLETE },
            checksum: 0,
        };
        self.ring.write_record(offset, outer, header, &chunk.visible);
        self.note_written(slot, offset, outer);
        let listed = self.sequences.get_mut(sequence);
        if listed.insert(slot, id, behind) {
            self.stats.chunks_committed_out_of_order += 1;
        }
        self.histograms.count(listed, visible_bytes);
        self.mark_cut(slot, chunk.cut);
    }

    /// Adds a visible size to the histogram of a sequence's writer.
    #[cold]
    pub(crate) fn count_size(&mut self, sequence: u32, visible_bytes: usize) {
        self.histograms.count(self.sequences.get_mut(sequence), visible_bytes);
    }

    /// Notes at a record's end what came after its visible fragments.
    #[inline(always)]
    pub(crate) fn mark_cut(&mut self, slot: u32, cut: Option<Cut>) {
        if let Some(cut) = cut {
            self.mark_end(slot, cut);
        }
    }

    #[cold]
    fn mark_end(&mut self, slot: u32, cut: Cut) {
        let record = self.records.get_mut(slot);
        match cut {
            Cut::Malformed => record.bits |= bit::CUT,
            Cut::Abort => {
                self.stats.trace_writer_packet_loss += u64::from(!record.has(bit::ABORTED));
                record.bits |= bit::ABORTED;
            }
        }
    }
}
