//! A chunk that is listed is committed again: a scrape has been there before the writer, or before another scrape.
//!
//! | the new copy | what happens |
//! |---|---|
//! | shows less, needs more room, or lacks a flag that was set | refused, a violation |
//! | is complete and longer; the record was scraped, is read to its end and is the front of its sequence; ring | it moves to the cursor |
//! | is longer | the record's bytes are replaced |
//! | is as long | nothing but that a complete copy makes the record complete |

use crate::buffer::{SPANS, TraceBuffer};
use crate::config::FillPolicy;
use crate::records::bit;
use crate::sized::{SizedChunk, ends_a_fragment};
use crate::tbchunk::{HEADER_BYTES, INCOMPLETE};
use watershed_simd::Span;

impl TraceBuffer {
    #[cold]
    pub(crate) fn recommit(
        &mut self,
        chunk: &SizedChunk<'_>,
        spans: &[Span; SPANS],
        sequence: u32,
        at: usize,
    ) {
        let slot = self.sequences.get(sequence).queue.get(at);
        let record = *self.records.get(slot);
        let header = self.ring.header(record.offset());
        let (old, new) = (usize::from(header.visible_bytes), chunk.visible.len());
        let lost_flags = record.bits & bit::KNOWN_FLAGS & !u16::from(chunk.flags);
        if new < old || new > usize::from(header.reserved_bytes) || lost_flags != 0 {
            self.stats.abi_violations += 1;
            return;
        }
        let is_finished_scrape =
            record.has(bit::INCOMPLETE) && record.unread_bytes == 0 && chunk.info.complete && new > old;
        // Left in place it would be overwritten soon, at the age of its scrape.
        if is_finished_scrape && at == 0 && self.policy == FillPolicy::RingBuffer {
            self.stats.chunks_relocated += 1;
            self.pinned = sequence;
            self.erase_front(sequence, true, Some(header.visible_bytes));
            let behind = self.sequences.get(sequence).queue.len();
            self.write(chunk, spans, sequence, old, behind);
            return;
        }
        if chunk.info.complete {
            self.records.get_mut(slot).bits &= !bit::INCOMPLETE;
            let header = crate::tbchunk::TbChunk { flags: header.flags & !INCOMPLETE, ..header };
            self.ring.set_header(record.offset(), header);
        }
        if new > old {
            self.regrow(chunk, spans, slot, old);
            self.count_size(sequence, new);
        }
        self.mark_cut(slot, chunk.cut);
    }

    /// Replaces a record's bytes by more of them. What was consumed stays consumed, even if a hostile writer has moved the fragments.
    fn regrow(&mut self, chunk: &SizedChunk<'_>, spans: &[Span; SPANS], slot: u32, old_visible: usize) {
        let record = self.records.get_mut(slot);
        let offset = record.offset();
        let consumed = old_visible - usize::from(record.unread_bytes);
        record.unread_bytes = (chunk.visible.len() - consumed) as u16;
        record.sizes_or_first = chunk.first_bytes;
        record.bits &= !(bit::SIZED
            | bit::DRAINED_BY_EVICTION
            | bit::DELIVERABLE
            | bit::FIRST_EMPTY
            | bit::LAST_EMPTY
            | bit::ONE_PART);
        record.bits |= chunk.bits() & !bit::INCOMPLETE;
        if consumed != 0 {
            record.bits &= !bit::FIRST_TAKEN;
        }
        if consumed != 0 && !ends_a_fragment(chunk, spans, consumed) {
            record.set_unaligned();
        }
        let mut header = self.ring.header(offset);
        header.visible_bytes = chunk.visible.len() as u16;
        header.unread_bytes = record.unread_bytes;
        header.flags |= chunk.flags;
        self.ring.set_header(offset, header);
        self.ring.write(offset + HEADER_BYTES, chunk.visible);
        self.stats.chunks_rewritten += 1;
    }
}
