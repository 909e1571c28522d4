//! The eviction of a record that is the front of its sequence where nothing is the matter with it, but that [`crate::evict`] cannot take by what is
//! kept of it alone: its packets go on in other records, or it goes because one behind it in its sequence does.

use crate::buffer::TraceBuffer;
use crate::ids::{ChunkId, LossReasons};
use crate::read::{Mode, Reassembly};
use crate::records::{Record, Slot, bit};
use crate::sequence::Last;
use crate::stats::Account;

impl TraceBuffer {
    /// Evicts a record of `outer` bytes, without a sink, if it is the front of its sequence. False, and nothing done, if it is not, or if
    /// anything is the matter with it. What it leaves is padding, of which the header is not written.
    #[inline(always)]
    pub(crate) fn evict_plain_front(&mut self, slot: Slot, record: &Record, outer: usize) -> bool {
        const SPECIAL: u16 = bit::CUT | bit::ABORTED | bit::LIFE_END;
        let id = ChunkId(record.chunk_id);
        let mut visible_bytes = record.unread_bytes;
        if record.has(bit::STARTED) {
            if !record.has(bit::FIRST_TAKEN) {
                return false;
            }
            visible_bytes = self.ring.header(record.offset()).visible_bytes;
        }
        let listed = self.sequences.get_mut(record.sequence);
        if record.has(SPECIAL)
            || visible_bytes == 0
            || !listed.is_followed_by(id)
            || !listed.queue.pop_front_if(slot)
        {
            return false;
        }
        listed.last = Some(Last {
            chunk_id: id,
            payload_bytes: visible_bytes,
            incomplete: record.has(bit::INCOMPLETE),
        });
        if record.unread_bytes == 0 {
            let by_eviction = record.has(bit::DRAINED_BY_EVICTION);
            self.unlist(
                record.offset(),
                outer,
                if by_eviction { Account::Overwritten } else { Account::Read },
            );
            return true;
        }
        if record.has(bit::FIRST_CONTINUES) && !record.has(bit::STARTED) {
            listed.add_loss(LossReasons::ORPHAN_CONTINUATION);
        }
        if record.has(bit::DELIVERABLE) {
            listed.add_loss(LossReasons::OVERWRITE);
        }
        self.stats.note_overwritten(outer);
        self.unlist(record.offset(), outer, Account::Overwritten);
        if begins_a_packet(record) && self.evict_begun(record, 0) {
            self.sequences.get_mut(record.sequence).add_loss(LossReasons::OVERWRITE);
        }
        true
    }

    /// Evicts the fragments of a front that belong to packets of several chunks. Returns whether a whole packet is lost.
    pub(crate) fn evict_open_ends(&mut self, record: &Record) -> bool {
        if record.has(bit::FIRST_CONTINUES) && !record.has(bit::STARTED) {
            self.sequences.get_mut(record.sequence).add_loss(LossReasons::ORPHAN_CONTINUATION);
        }
        begins_a_packet(record) && self.evict_begun(record, 1)
    }

    /// Evicts the packet that begins at the end of a front: consumes what there is of it in the records that follow, from `index` on in the list
    /// of the sequence. Returns whether a whole packet is lost.
    #[inline(never)]
    fn evict_begun(&mut self, front: &Record, mut index: usize) -> bool {
        let mut id = ChunkId(front.chunk_id);
        let mut has_body = !front.has(bit::LAST_EMPTY);
        let mut outcome = Reassembly::NotEnoughData;
        self.scratch.chain.clear();
        if !front.has(bit::NEEDS_PATCHING | bit::LIFE_END) {
            let run = self.sequences.get(front.sequence).queue.front_run();
            // What lies behind the end of the list's memory, or of the record's, is looked for in general.
            while let Some(&slot) = run.get(index)
                && let Some((record, next, sizes)) = self.records.with_next_mut(slot)
            {
                const PART: u16 = bit::FIRST_CONTINUES | bit::STARTED;
                let (unread_bytes, offset) = (record.unread_bytes, record.offset());
                let is_part = record.bits & PART == bit::FIRST_CONTINUES && unread_bytes != 0;
                if !is_part || record.chunk_id != id.successor().0 {
                    break;
                }
                let is_one = record.has(bit::ONE_PART);
                let goes_on = is_one && record.has(bit::LAST_CONTINUES);
                if goes_on && record.has(bit::NEEDS_PATCHING | bit::LIFE_END) {
                    break;
                }
                if is_one {
                    let Some(outer) = self.space.outer_bytes_between(offset, next) else { break };
                    record.bits |= bit::DRAINED_BY_EVICTION;
                    self.stats.note_overwritten(outer);
                }
                has_body |= !record.has(bit::FIRST_EMPTY);
                record.unread_bytes = if is_one { 0 } else { unread_bytes - record.first_bytes(sizes) };
                record.bits |= bit::STARTED | bit::FIRST_TAKEN;
                self.ring.set_unread(offset, record.unread_bytes);
                if !goes_on {
                    self.stats.readaheads_succeeded += 1;
                    return has_body;
                }
                id = id.successor();
                index += 1;
            }
            outcome = self.look_behind(front.sequence, index, id);
        }
        self.end_begun(front.sequence, outcome, has_body)
    }

    /// Ends [`evict_begun`](Self::evict_begun) where not all was ordinary. The parts that were not consumed are in `scratch.chain`.
    #[cold]
    #[inline(never)]
    fn end_begun(&mut self, sequence: u32, outcome: Reassembly, has_body: bool) -> bool {
        let is_empty = |&slot: &Slot| self.records.get(slot).has(bit::FIRST_EMPTY);
        let is_lost =
            outcome == Reassembly::Success && (has_body || !self.scratch.chain.iter().all(is_empty));
        let reasons = match outcome {
            Reassembly::Success => LossReasons::NONE,
            Reassembly::NotEnoughData => LossReasons::OVERWRITE,
            Reassembly::Loss(reasons) => reasons,
        };
        if outcome == Reassembly::Success {
            self.stats.readaheads_succeeded += 1;
        } else {
            self.stats.readaheads_failed += 1;
            self.sequences.get_mut(sequence).add_loss(reasons);
        }
        self.consume_chain(Mode::Evict);
        is_lost
    }
}

/// Whether the last fragment of a front, of which none was consumed but perhaps a first one that continued a packet, begins a packet that
/// goes on.
#[inline(always)]
fn begins_a_packet(record: &Record) -> bool {
    record.has(bit::LAST_CONTINUES) && record.bits & (bit::ONE_PART | bit::STARTED) != bit::ONE_PART
}
