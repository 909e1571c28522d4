//! The front of a sequence that cannot be evicted by its record alone: its packets go on in other
//! records, or a record behind it is evicted.

use crate::accounts::Account;
use crate::ids::{ChunkId, LossReasons};
use crate::index::Index;
use crate::index::records::{NONE, Record, Slot, bit};
use crate::index::sequence::Last;
use crate::read::{Reader, Reassembly};
use crate::store::{Consumer, Store};

/// Evicts a record of `outer` bytes, without a sink, if it is the front of its sequence. False, and
/// nothing done, if it is not, or if it has anything special. It leaves padding; its header is not
/// cleared.
#[inline(always)]
pub(super) fn evict_plain(
    store: &mut Store,
    reader: &mut Reader,
    slot: Slot,
    record: &Record,
    outer: usize,
) -> bool {
    const SPECIAL: u16 = bit::CUT | bit::ABORTED | bit::LIFE_END;
    let id = ChunkId(record.chunk_id);
    let mut visible_bytes = record.unread_bytes;
    if record.has(bit::STARTED) {
        if !record.has(bit::FIRST_TAKEN) {
            return false;
        }
        visible_bytes = store.ring.header(record.offset()).visible_bytes;
    }
    let listed = store.index.sequences.get_mut(record.sequence);
    if record.has(SPECIAL)
        || visible_bytes == 0
        || !listed.is_followed_by(id)
        || !listed.queue.pop_front_if(slot)
    {
        return false;
    }
    let incomplete = record.has(bit::INCOMPLETE);
    listed.last = Some(Last { chunk_id: id, payload_bytes: visible_bytes, incomplete });
    if record.unread_bytes == 0 {
        let by_eviction = record.has(bit::DRAINED_BY_EVICTION);
        let account = if by_eviction { Account::Overwritten } else { Account::Read };
        store.unlist(record.offset(), outer, account);
        return true;
    }
    if record.has(bit::FIRST_CONTINUES) && !record.has(bit::STARTED) {
        listed.add_loss(LossReasons::ORPHAN_CONTINUATION);
    }
    if record.has(bit::DELIVERABLE) {
        listed.add_loss(LossReasons::OVERWRITE);
    }
    store.accounts.stats.note_overwritten(outer);
    store.unlist(record.offset(), outer, Account::Overwritten);
    if begins_a_packet(record) && evict_begun(store, reader, record, 0) {
        store.index.sequences.get_mut(record.sequence).add_loss(LossReasons::OVERWRITE);
    }
    true
}

/// As [`evict_plain`], of a front that is known by its slot; its header is cleared if it is to be
/// kept.
#[inline(always)]
pub(super) fn evict_next(store: &mut Store, reader: &mut Reader, slot: Slot, keeps_header: bool) -> bool {
    let Some((record, next)) = store.index.records.with_next(slot) else { return false };
    let (offset, end) = (record.offset(), next.offset());
    let Some(outer) = store.ring.space.outer_bytes_between(offset, end) else { return false };
    let record = *record;
    if !evict_plain(store, reader, slot, &record, outer) {
        return false;
    }
    store.index.records.get_mut(slot).sequence = NONE;
    if keeps_header {
        store.ring.headers().clear(offset);
    }
    true
}

/// Evicts the fragments of the front record, of which none was consumed, or just a first one that
/// continued a packet. Returns whether packets are lost.
#[inline]
pub(super) fn evict_whole(store: &mut Store, reader: &mut Reader, front: Slot, record: &Record) -> bool {
    let mut is_lost = record.has(bit::DELIVERABLE);
    if record.has(bit::FIRST_CONTINUES) && !record.has(bit::STARTED) {
        store.index.sequences.get_mut(record.sequence).add_loss(LossReasons::ORPHAN_CONTINUATION);
    }
    is_lost |= begins_a_packet(record) && evict_begun(store, reader, record, 1);
    let record = store.index.records.get_mut(front);
    record.unread_bytes = 0;
    record.bits = record.bits & !bit::FIRST_TAKEN | bit::STARTED;
    store.note_drained(front, Consumer::Evictor);
    is_lost
}

/// Evicts the packet that begins at the end of a front: consumes what there is of it in the records
/// that follow, from `index` on in the queue of the sequence. Returns whether a whole packet is
/// lost.
#[inline(never)]
fn evict_begun(store: &mut Store, reader: &mut Reader, front: &Record, mut index: usize) -> bool {
    let mut id = ChunkId(front.chunk_id);
    let mut has_body = !front.has(bit::LAST_EMPTY);
    let mut outcome = Reassembly::NotEnoughData;
    reader.clear_chain();
    if !front.has(bit::NEEDS_PATCHING | bit::LIFE_END) {
        let Store { ring, index: Index { records, sequences, .. }, accounts } = store;
        let run = sequences.get(front.sequence).queue.front_run();
        // What lies behind the end of the queue's memory, or of the block's, is looked for in
        // general.
        while let Some(&slot) = run.get(index)
            && let Some((record, next, sizes)) = records.with_next_mut(slot)
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
                let Some(outer) = ring.space.outer_bytes_between(offset, next) else { break };
                record.bits |= bit::DRAINED_BY_EVICTION;
                accounts.stats.note_overwritten(outer);
            }
            has_body |= !record.has(bit::FIRST_EMPTY);
            record.unread_bytes = if is_one { 0 } else { unread_bytes - record.first_bytes(sizes) };
            record.bits |= bit::STARTED | bit::FIRST_TAKEN;
            ring.headers().set_unread(offset, record.unread_bytes);
            if !goes_on {
                accounts.stats.readaheads_succeeded += 1;
                return has_body;
            }
            id = id.successor();
            index += 1;
        }
        outcome = reader.look_behind(store, front.sequence, index, id);
    }
    end_begun(store, reader, front.sequence, outcome, has_body)
}

/// Ends [`evict_begun`] where not all was ordinary. The parts that were not consumed are in the
/// reader's chain.
#[cold]
#[inline(never)]
fn end_begun(
    store: &mut Store,
    reader: &mut Reader,
    sequence: u32,
    outcome: Reassembly,
    has_body: bool,
) -> bool {
    let is_success = outcome == Reassembly::Success;
    let is_lost = is_success && (has_body || !reader.is_chain_empty(store));
    if is_success {
        store.accounts.stats.readaheads_succeeded += 1;
    } else {
        store.accounts.stats.readaheads_failed += 1;
        let reasons = match outcome {
            Reassembly::Loss(reasons) => reasons,
            _ => LossReasons::OVERWRITE,
        };
        store.index.sequences.get_mut(sequence).add_loss(reasons);
    }
    reader.consume_chain(store, Consumer::Evictor);
    is_lost
}

/// Whether the last fragment of a front begins a packet that goes on. Of the front nothing was
/// consumed, or just a first fragment that continued a packet.
#[inline(always)]
fn begins_a_packet(record: &Record) -> bool {
    record.has(bit::LAST_CONTINUES) && record.bits & (bit::ONE_PART | bit::STARTED) != bit::ONE_PART
}
