//! A chunk that was parsed becomes a new record: room is made at the cursor, the bytes are copied,
//! the record is listed and counted.

use super::WriteParts;
use super::parsed::{Cut, ParsedChunk, ends_a_fragment};
use crate::config::FillPolicy;
use crate::index::fragment_sizes::{self as sizes, MAX_SPANS};
use crate::index::records::{Record, Slot, bit};
use crate::ring::tbchunk::{self, TbChunk};
use watershed_simd::Span;

impl WriteParts<'_> {
    /// Makes room and writes a new record, of which the first `skip` bytes have been consumed
    /// before, and after which `behind` records of its sequence come.
    pub(super) fn append(
        &mut self,
        chunk: &ParsedChunk<'_>,
        spans: &[Span; MAX_SPANS],
        sequence: u32,
        skip: usize,
        behind: usize,
    ) {
        if self.make_room(chunk.outer_bytes(), sequence) {
            self.append_at_cursor(chunk, spans, sequence, skip, behind);
        }
    }

    /// Makes room at the cursor for a record of a sequence, which stays live meanwhile. False, and
    /// the chunk counted, if a DISCARD buffer has none.
    fn make_room(&mut self, outer: usize, sequence: u32) -> bool {
        if self.store.ring.space.extents().is_some() {
            self.store.make_room_in_extents(outer);
            return true;
        }
        self.evictor.pin(sequence);
        let has_room = self.store.ring.space.fits(outer) || self.wrap();
        if has_room {
            self.evictor.make_room(self.store, self.reader, outer);
        }
        has_room
    }

    /// Starts again at the buffer's beginning, or seals it.
    #[cold]
    #[inline(never)]
    fn wrap(&mut self) -> bool {
        if self.writer.policy == FillPolicy::Discard {
            self.writer.is_sealed = true;
            self.store.accounts.stats.chunks_discarded += 1;
            return false;
        }
        self.evictor.evict_tail(self.store, self.reader);
        self.store.ring.space.wrap();
        self.store.accounts.stats.write_wrap_count += 1;
        true
    }

    /// Writes a record at the cursor, where there is room, and lists it.
    #[inline(always)]
    fn append_at_cursor(
        &mut self,
        chunk: &ParsedChunk<'_>,
        spans: &[Span; MAX_SPANS],
        sequence: u32,
        skip: usize,
        behind: usize,
    ) {
        let store = &mut *self.store;
        let (offset, outer) = (store.ring.space.cursor(), chunk.outer_bytes());
        let (id, visible_bytes) = (chunk.info.chunk_id, chunk.visible.len());
        let (mut bits, mut is_unaligned) = (chunk.bits(), false);
        if skip != 0 {
            bits = bits & !bit::FIRST_TAKEN | bit::STARTED;
            is_unaligned = !ends_a_fragment(chunk, spans, skip);
        }
        let mut sizes_or_first = chunk.first_bytes;
        if sizes::is_worth_keeping(chunk.fragments, visible_bytes)
            && chunk.fragments <= MAX_SPANS
            && !is_unaligned
            && let Some((list, at)) = store.index.records.sizes_for_next()
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
        let slot = store.index.records.push_back(record);
        let header = TbChunk {
            chunk_id: id.0,
            key_low: chunk.key as u32,
            reserved_bytes: chunk.reserved_bytes as u16,
            visible_bytes: visible_bytes as u16,
            unread_bytes: record.unread_bytes,
            flags: chunk.flags | if chunk.info.complete { 0 } else { tbchunk::INCOMPLETE },
            checksum: 0,
        };
        store.ring.write_record(outer, header, &chunk.visible);
        store.note_written(slot, offset, outer);
        if store.index.list(slot, sequence, id, behind, visible_bytes) {
            store.accounts.stats.chunks_committed_out_of_order += 1;
        }
        if let Some(cut) = chunk.cut {
            self.mark_cut(slot, cut);
        }
    }

    /// Notes at a record's end what came after its visible fragments.
    #[cold]
    pub(super) fn mark_cut(&mut self, slot: Slot, cut: Cut) {
        let record = self.store.index.records.get_mut(slot);
        match cut {
            Cut::Malformed => record.bits |= bit::CUT,
            Cut::Abort => {
                let is_new = !record.has(bit::ABORTED);
                self.store.accounts.stats.trace_writer_packet_loss += u64::from(is_new);
                record.bits |= bit::ABORTED;
            }
        }
    }
}
