//! Eviction: a read that waits for nothing.
//!
//! ```text
//!   cursor            end of the new record
//!   v                 v
//!   | oldest | next | padding |...    each record that begins in the range is evicted, with all
//!                                     that is before it in its sequence
//!   | new record      | rest  |...    what is left of the last one becomes padding
//! ```
//!
//! A record of which nothing was consumed is evicted by what the index keeps of it: neither its
//! payload nor its header is touched. Its fragments are gone through one by one only if a sink
//! wants the packets, or if others than the first were consumed.
//!
//! | module | what it evicts |
//! |---|---|
//! | here | what a new record of a ring needs, records of any kind |
//! | `fronts` | the front of a sequence whose packets go on in other records |
//! | `extents` | the oldest extent of a shard |
//! | `sink` | who is shown packets before they are evicted |

mod extents;
mod fronts;
pub(crate) mod sink;

use crate::accounts::Account;
use crate::ids::{ChunkId, LossReasons};
use crate::index::records::{NONE, Record, Slot, bit};
use crate::index::sequence::Last;
use crate::index::sequence_table::SequenceTable;
use crate::packet::{Origin, Unbound};
use crate::read::Reader;
use crate::store::{Consumer, Store};
use sink::OverwriteSink;

/// Evicts records of a store. Calls also take the reader of that store: a pass must know what goes,
/// and packets for a sink are found as a read finds them.
pub(crate) struct Evictor {
    sink: Option<Box<dyn OverwriteSink>>,
    /// The sequence that is being written: it stays live although it may be empty for a moment. In
    /// one ring nothing is evicted but for a write, and in extents nothing is pinned: so the last
    /// one may stay here.
    pinned: u32,
}

impl Default for Evictor {
    fn default() -> Evictor {
        Evictor { sink: None, pinned: NONE }
    }
}

/// Whether a record is whole and untouched, shares no packet with other records, and has nothing
/// special.
#[inline(always)]
fn is_ordinary(record: &Record) -> bool {
    const SPECIAL: u16 = bit::FIRST_CONTINUES
        | bit::LAST_CONTINUES
        | bit::STARTED
        | bit::CUT
        | bit::ABORTED
        | bit::LIFE_END
        | bit::GAP_ACCOUNTED;
    !record.has(SPECIAL) && record.unread_bytes != 0
}

/// Evicts an ordinary record that is the front of its sequence: all there is to do in nearly every
/// eviction, but for the accounts. False, and nothing done, if it is another kind of record.
#[inline(always)]
fn evict_ordinary(sequences: &mut SequenceTable, slot: Slot, record: &Record, pinned: u32) -> bool {
    if !is_ordinary(record) {
        return false;
    }
    let listed = sequences.get_mut(record.sequence);
    if !listed.pop_ordinary_front(record, slot) {
        return false;
    }
    listed.add_loss_if(record.has(bit::DELIVERABLE), LossReasons::OVERWRITE);
    if listed.queue.is_empty() && record.sequence != pinned {
        sequences.release(record.sequence);
    }
    true
}

impl Evictor {
    /// From now on `sink` is shown the packets that are overwritten.
    pub(crate) fn set_sink(&mut self, sink: Option<Box<dyn OverwriteSink>>) {
        self.sink = sink;
    }

    /// Keeps a sequence live although its last record may go, until another one is pinned.
    #[inline(always)]
    pub(crate) fn pin(&mut self, sequence: u32) {
        self.pinned = sequence;
    }

    /// Makes room for a record of `outer` bytes at the cursor of one ring.
    ///
    /// Nearly always that is a rest of padding and an ordinary record or two, side by side in the
    /// table: these are evicted here.
    #[inline(never)]
    pub(crate) fn make_room(&mut self, store: &mut Store, reader: &mut Reader, outer: usize) {
        let (mut at, used) = (store.ring.space.cursor(), store.ring.space.used_bytes());
        let end = at + outer;
        store.ring.padding_bytes = 0;
        // A pass of a shard must know what goes; a sink too.
        if self.sink.is_some() || !reader.is_between_passes() {
            return self.make_room_slowly(store, reader, at, end);
        }
        // The used part is tiled, and its oldest record is at the cursor unless that is its end.
        while at < end && at < used {
            let Some((slot, record, next)) = store.index.records.oldest_in_block() else {
                return self.make_room_slowly(store, reader, at, end);
            };
            debug_assert_eq!(record.offset(), at);
            let next = if next > at { next } else { used };
            let outer = next - at;
            let record = if record.is_padding() {
                store.accounts.stats.padding_bytes_cleared += outer as u64;
                record
            } else if evict_ordinary(&mut store.index.sequences, slot, record, self.pinned) {
                store.accounts.stats.note_overwritten(outer);
                store.accounts.move_listed(Account::Overwritten, outer);
                record
            } else {
                let record = *record;
                self.evict_special(store, reader, slot, &record, outer)
            };
            if next > end {
                *record = Record::padding(end);
                store.note_padding(next - end);
                return;
            }
            // The set of late records may still name it.
            record.sequence = NONE;
            store.index.records.pop_run(1);
            at = next;
        }
    }

    /// Evicts a record that is not ordinary, with all before it in its sequence.
    #[inline(always)]
    fn evict_special<'a>(
        &mut self,
        store: &'a mut Store,
        reader: &mut Reader,
        slot: Slot,
        record: &Record,
        outer: usize,
    ) -> &'a mut Record {
        if !fronts::evict_plain(store, reader, slot, record, outer) {
            self.evict_up_to(store, reader, record.sequence, slot, false);
        } else if record.sequence != self.pinned {
            store.index.sequences.release(record.sequence);
        }
        store.index.records.get_mut(slot)
    }

    /// As [`make_room`](Self::make_room), one by one from the oldest record on, which is at `at`.
    #[inline(never)]
    fn make_room_slowly(&mut self, store: &mut Store, reader: &mut Reader, mut at: usize, end: usize) {
        let used = store.ring.space.used_bytes();
        while at < end && at < used {
            let Some((slot, record, next)) = store.index.records.oldest(used) else { return };
            debug_assert_eq!(record.offset(), at);
            self.evict_record(store, reader, slot, &record, next - at, false);
            if next > end {
                *store.index.records.get_mut(slot) = Record::padding(end);
                store.note_padding(next - end);
                return;
            }
            pop_oldest(store, reader);
            at = next;
        }
    }

    /// Evicts everything between the cursor and the end of the used part. What was there stays as
    /// padding, and is now the newest.
    pub(crate) fn evict_tail(&mut self, store: &mut Store, reader: &mut Reader) {
        store.ring.flush_padding();
        let start = store.ring.space.cursor();
        while let Some(slot) = store.index.records.front() {
            let record = *store.index.records.get(slot);
            if record.offset() < start {
                return;
            }
            let outer = store.outer_bytes(slot);
            self.evict_record(store, reader, slot, &record, outer, true);
            pop_oldest(store, reader);
            store.index.records.push_back(Record::padding(record.offset()));
        }
    }

    /// Evicts a record of any kind, with all before it in its sequence.
    fn evict_record(
        &mut self,
        store: &mut Store,
        reader: &mut Reader,
        slot: Slot,
        record: &Record,
        outer: usize,
        keeps_header: bool,
    ) {
        if record.is_padding() {
            store.accounts.stats.padding_bytes_cleared += outer as u64;
        } else if keeps_header
            || self.sink.is_some()
            || !evict_ordinary(&mut store.index.sequences, slot, record, self.pinned)
        {
            self.evict_up_to(store, reader, record.sequence, slot, keeps_header);
        } else {
            store.accounts.stats.note_overwritten(outer);
            store.unlist(record.offset(), outer, Account::Overwritten);
        }
    }

    /// Evicts the records of a sequence up to `target`, whose header is cleared only if it will be
    /// seen again.
    #[inline(never)]
    fn evict_up_to(
        &mut self,
        store: &mut Store,
        reader: &mut Reader,
        sequence: u32,
        target: Slot,
        keeps_header: bool,
    ) {
        let mut is_lost = false;
        loop {
            if self.sink.is_none() && evict_ordinary_fronts(store, sequence, target, keeps_header) {
                break;
            }
            let front = store.index.sequences.get(sequence).queue.get(0);
            let keeps_front = keeps_header || front != target;
            if self.sink.is_some() || !fronts::evict_next(store, reader, front, keeps_front) {
                is_lost |= self.evict_front(store, reader, sequence, front, keeps_front);
            }
            if front == target {
                break;
            }
        }
        if is_lost {
            store.index.sequences.get_mut(sequence).add_loss(LossReasons::OVERWRITE);
        }
        if sequence != self.pinned {
            store.index.sequences.release(sequence);
        }
    }

    /// Evicts the front record of a sequence, whatever it is. Returns whether packets are lost,
    /// which is to be reported when all is evicted.
    #[inline(never)]
    fn evict_front(
        &mut self,
        store: &mut Store,
        reader: &mut Reader,
        sequence: u32,
        front: Slot,
        keeps_header: bool,
    ) -> bool {
        store.index.note_gap_before_front(sequence);
        let record = *store.index.records.get(front);
        let mut is_lost = false;
        if record.unread_bytes != 0 {
            let is_in_fragments = record.has(bit::STARTED) && !record.has(bit::FIRST_TAKEN);
            is_lost = if self.sink.is_some() || is_in_fragments {
                self.evict_by_fragment(store, reader, sequence)
            } else {
                fronts::evict_whole(store, reader, front, &record)
            };
        }
        let visible_bytes = (!record.has(bit::STARTED)).then_some(record.unread_bytes);
        store.remove_front(sequence, keeps_header, visible_bytes);
        is_lost
    }

    /// Goes through the unread fragments of the front record. Returns whether packets are lost that
    /// no sink has absorbed.
    fn evict_by_fragment(&mut self, store: &mut Store, reader: &mut Reader, sequence: u32) -> bool {
        let mut is_lost = false;
        // While something is written no pass is in a sequence.
        reader.open_front(store, sequence);
        while let Some(pieces) = reader.next_of_front(store, sequence, Consumer::Evictor) {
            let Some(sink) = &mut self.sink else {
                is_lost = true;
                continue;
            };
            let loss = LossReasons(store.index.sequences.get(sequence).pending_loss.into());
            // SAFETY: its bodies lie in the ring and its list with the reader; neither changes
            // before the packet is dropped.
            let packet = unsafe { Unbound::pieces(pieces, Origin { loss, ..reader.origin() }) };
            is_lost |= !sink.handle_overwritten(&packet);
        }
        reader.pause();
        is_lost
    }
}

/// Evicts fronts of a sequence as long as they are ordinary, at most up to `target`. Whether that
/// is evicted, too.
#[inline(always)]
fn evict_ordinary_fronts(store: &mut Store, sequence: u32, target: Slot, keeps_header: bool) -> bool {
    let Store { ring, index, accounts } = store;
    let listed = index.sequences.get_mut(sequence);
    let run = listed.queue.front_run();
    let Some(&front) = run.first() else { return false };
    let mut id = ChunkId(index.records.get(front).chunk_id);
    if !listed.is_followed_by(id) {
        return false;
    }
    let (mut count, mut bytes, mut bits, mut payload_bytes) = (0, 0, 0, 0);
    let mut is_done = false;
    for &slot in run {
        let Some((record, next, _)) = index.records.with_next_mut(slot) else { break };
        let offset = record.offset();
        let Some(outer) = ring.space.outer_bytes_between(offset, next) else { break };
        if !is_ordinary(record) || record.chunk_id != id.0 {
            break;
        }
        record.sequence = NONE;
        (count, bytes) = (count + 1, bytes + outer);
        (bits, payload_bytes) = (bits & bit::DELIVERABLE | record.bits, record.unread_bytes);
        id = id.successor();
        if let Some(extents) = ring.space.extents_mut() {
            extents.note_erased(offset, 1);
        }
        is_done = slot == target;
        if keeps_header || !is_done {
            ring.headers().clear(offset);
        }
        if is_done {
            break;
        }
    }
    if count != 0 {
        let chunk_id = ChunkId(id.0.wrapping_sub(1));
        let incomplete = bits & bit::INCOMPLETE != 0;
        listed.pop_read(count, Last { chunk_id, payload_bytes, incomplete });
        if bits & bit::DELIVERABLE != 0 {
            listed.add_loss(LossReasons::OVERWRITE);
        }
        accounts.stats.chunks_overwritten += count as u64;
        accounts.stats.bytes_overwritten += bytes as u64;
        accounts.move_many(Account::Overwritten, count, bytes);
    }
    is_done
}

/// Takes the oldest record, which is padding, out of the list. A read pass that has
/// reached it goes on behind it.
#[inline(always)]
fn pop_oldest(store: &mut Store, reader: &mut Reader) {
    let Some(front) = store.index.records.front() else { return };
    if reader.is_at(front) {
        reader.skip(front, store.index.records.next(front));
    }
    store.pop_oldest_padding(front);
}
