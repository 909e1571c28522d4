//! A listed chunk is committed again: it was scraped before, by now its writer has completed it, or
//! another scrape found more.
//!
//! | the new copy | what happens |
//! |---|---|
//! | has less visible, needs more room, or lacks a flag that was set | refused, a violation |
//! | is complete and longer; see `is_finished_scrape` | the record moves to the cursor |
//! | is longer | the record's bytes are replaced; an incomplete copy makes it incomplete again |
//! | is as long | nothing but that a complete copy makes the record complete |

use super::WriteParts;
use super::parsed::{ParsedChunk, ends_a_fragment};
use crate::config::FillPolicy;
use crate::index::fragment_sizes::MAX_SPANS;
use crate::index::records::bit;
use crate::ring::tbchunk::{HEADER_BYTES, INCOMPLETE, TbChunk};
use watershed_simd::Span;

impl WriteParts<'_> {
    #[cold]
    pub(super) fn recommit(
        &mut self,
        chunk: &ParsedChunk<'_>,
        spans: &[Span; MAX_SPANS],
        sequence: u32,
        at: usize,
    ) {
        let slot = self.store.index.sequences.get(sequence).queue.get(at);
        let record = *self.store.index.records.get(slot);
        let header = self.store.ring.header(record.offset());
        let (old, new) = (usize::from(header.visible_bytes), chunk.visible.len());
        let lost_flags = record.bits & bit::KNOWN_FLAGS & !u16::from(chunk.flags);
        if new < old || new > usize::from(header.reserved_bytes) || lost_flags != 0 {
            self.store.accounts.stats.abi_violations += 1;
            return;
        }
        let is_finished_scrape =
            record.has(bit::INCOMPLETE) && record.unread_bytes == 0 && chunk.info.complete && new > old;
        // Left where it is it would be overwritten soon, at the age of its scrape.
        if is_finished_scrape && at == 0 && self.writer.policy == FillPolicy::RingBuffer {
            self.store.accounts.stats.chunks_relocated += 1;
            self.store.remove_front(sequence, true, Some(header.visible_bytes));
            let behind = self.store.index.sequences.get(sequence).queue.len();
            self.append(chunk, spans, sequence, old, behind);
            return;
        }
        if chunk.info.complete {
            self.store.index.records.get_mut(slot).bits &= !bit::INCOMPLETE;
            let header = TbChunk { flags: header.flags & !INCOMPLETE, ..header };
            self.store.ring.set_header(record.offset(), header);
        }
        if new > old {
            self.regrow(chunk, spans, slot, old);
            self.store.index.count_size(sequence, new);
        }
        if let Some(cut) = chunk.cut {
            self.mark_cut(slot, cut);
        }
    }

    /// Replaces a record's bytes by more of them. What was consumed stays consumed, even if a
    /// hostile writer has moved the fragments.
    fn regrow(&mut self, chunk: &ParsedChunk<'_>, spans: &[Span; MAX_SPANS], slot: u32, old_visible: usize) {
        let record = self.store.index.records.get_mut(slot);
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
        record.bits |= chunk.bits();
        if consumed != 0 {
            record.bits &= !bit::FIRST_TAKEN;
        }
        if consumed != 0 && !ends_a_fragment(chunk, spans, consumed) {
            record.set_unaligned();
        }
        let mut header = self.store.ring.header(offset);
        header.visible_bytes = chunk.visible.len() as u16;
        header.unread_bytes = record.unread_bytes;
        header.flags |= chunk.flags | if chunk.info.complete { 0 } else { INCOMPLETE };
        self.store.ring.set_header(offset, header);
        self.store.ring.write(offset + HEADER_BYTES, chunk.visible);
        self.store.accounts.stats.chunks_rewritten += 1;
    }
}
