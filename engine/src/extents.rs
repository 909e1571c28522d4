//! A queue of extents in place of one ring: how a shard of a larger buffer uses the memory that all shards share.
//!
//! ```text
//!   region of the whole buffer, cut into extents of one size (a power of two)
//!   | theirs | ours, oldest | free | ours | theirs | ours, newest: ====>cursor          |
//!
//!   records, oldest first:  [ those of the oldest extent | ... | those of the newest ]
//! ```
//!
//! Extents come from outside ([`Shard::grant`](crate::Shard::grant)) and go back when nothing in them is listed any more, or when the oldest
//! is evicted. A record never spans two; what is left of an extent that is too small for the next record becomes padding.
//! Padding in an extent that was given back stays in the list of records until it comes to its front, or is a thousand in a row, and is never
//! looked at.

use crate::buffer::TraceBuffer;
use crate::records::{NONE, Record};
use crate::stats::Account;
use crate::tbchunk::{TbChunk, outer_bytes};
use std::collections::VecDeque;

/// How many records ahead of an eviction their sequences are asked for. With many writers no cache holds them.
const SEQUENCES_AHEAD: usize = 4;

/// The extents that a shard has.
#[derive(Clone, Debug)]
pub(crate) struct Extents {
    /// Log of the size of an extent.
    shift: u32,
    /// Indices of ours, oldest first; the last is the open one.
    pub(crate) order: VecDeque<u32>,
    /// The next to be opened, granted before it is needed.
    spare: Option<u32>,
    /// Listed records in each extent of the region; made at the first grant.
    listed: Vec<u32>,
    num_extents: usize,
    /// Extents with nothing listed, which we do not use any more.
    pub(crate) emptied: Vec<u32>,
    /// Bytes of extents that were evicted.
    pub(crate) evicted_bytes: u64,
}

impl Extents {
    pub(crate) fn new(size_bytes: usize, extent_bytes: usize) -> Extents {
        assert!(extent_bytes.is_power_of_two());
        Extents {
            shift: extent_bytes.trailing_zeros(),
            order: VecDeque::new(),
            spare: None,
            listed: Vec::new(),
            num_extents: size_bytes >> extent_bytes.trailing_zeros(),
            emptied: Vec::new(),
            evicted_bytes: 0,
        }
    }

    #[inline]
    fn index_of(&self, offset: usize) -> usize {
        offset >> self.shift
    }

    #[inline]
    pub(crate) fn extent_bytes(&self) -> usize {
        1 << self.shift
    }

    fn start_of(&self, index: u32) -> usize {
        (index as usize) << self.shift
    }

    /// The first byte behind the extent in which `offset` lies.
    #[inline]
    pub(crate) fn end_of(&self, offset: usize) -> usize {
        (self.index_of(offset) + 1) << self.shift
    }

    #[inline]
    pub(crate) fn note_listed(&mut self, offset: usize) {
        let index = self.index_of(offset);
        self.listed[index] += 1;
    }

    /// So many records of the extent in which `offset` lies are listed no more.
    #[inline]
    pub(crate) fn note_erased(&mut self, offset: usize, records: u32) {
        let index = self.index_of(offset);
        self.listed[index] -= records;
    }

    /// Whether each extent counts as many listed records as are there.
    pub(crate) fn agrees_with(&self, places: impl Iterator<Item = usize>) -> bool {
        let mut counted = vec![0; self.listed.len()];
        places.for_each(|offset| counted[self.index_of(offset)] += 1);
        counted == self.listed
    }

    fn has_listed(&self, index: u32) -> bool {
        self.listed.get(index as usize).is_some_and(|&listed| listed != 0)
    }
}

impl TraceBuffer {
    fn extents(&self) -> &Extents {
        self.space.extents.as_ref().expect("a shard has extents")
    }

    fn extents_mut(&mut self) -> &mut Extents {
        self.space.extents.as_mut().expect("a shard has extents")
    }

    /// Whether a record of `outer` bytes may need an extent that has not been granted.
    #[inline]
    pub(crate) fn needs_extent(&self, outer: usize) -> bool {
        !self.space.fits(outer) && self.extents().spare.is_none()
    }

    /// The same of a chunk of `payload_bytes`, in a shard that may be alone.
    #[inline]
    pub(crate) fn may_need_extent(&self, payload_bytes: usize) -> bool {
        self.space.extents.is_some() && self.needs_extent(outer_bytes(payload_bytes))
    }

    /// Gives the shard an extent for when it needs one.
    pub(crate) fn grant_extent(&mut self, index: u32) {
        let extents = self.extents_mut();
        debug_assert!(extents.spare.is_none() && !extents.has_listed(index));
        if extents.listed.is_empty() {
            extents.listed = vec![0; extents.num_extents];
        }
        extents.spare = Some(index);
    }

    /// Makes room for a record: the open extent is sealed and the spare one opened if it does not fit.
    pub(crate) fn make_room_in_extents(&mut self, outer: usize) {
        if self.space.fits(outer) {
            return;
        }
        self.seal();
        let extents = self.extents_mut();
        let index = extents.spare.take().expect("the caller has granted an extent before the commit");
        extents.order.push_back(index);
        let (start, len) = (extents.start_of(index), extents.extent_bytes());
        self.space.enter(start, len);
    }

    /// The same for a record that is written next, if there are extents. False, and nothing done, in one ring.
    #[cold]
    #[inline(never)]
    pub(crate) fn goes_into_next_extent(&mut self, outer: usize) -> bool {
        if self.space.extents.is_none() {
            return false;
        }
        self.make_room_in_extents(outer);
        true
    }

    /// Closes the open extent; what is left of it becomes padding.
    fn seal(&mut self) {
        let left = self.space.left_bytes();
        if left != 0 {
            let cursor = self.space.cursor();
            self.ring.set_header(cursor, TbChunk::padding(left.min(1 << 16)));
            self.records.push_back(Record::padding(cursor));
            self.stats.padding_bytes_written += left as u64;
        }
        self.space.leave();
    }

    /// Evicts everything in the oldest extent and gives it up. None if the shard has none.
    pub(crate) fn evict_oldest_extent(&mut self) -> Option<u32> {
        let index = *self.extents().order.front()?;
        self.end_read_pass();
        if self.extents().order.len() == 1 {
            self.seal();
        }
        while self.extents().has_listed(index) {
            // A pass that stands somewhere must know what goes; a sink too.
            if self.sink.is_none() && self.reader.stands_nowhere() {
                self.evict_run(index);
            }
            if !self.extents().has_listed(index) {
                break;
            }
            let slot = self.records.front()?;
            let record = *self.records.get(slot);
            if !record.is_padding() {
                let outer = self.space.outer_bytes(&self.records, slot);
                self.evict_record(slot, &record, outer, false);
            }
            self.pop_oldest_record();
        }
        let evicted_bytes = self.extents().extent_bytes() as u64;
        let extents = self.extents_mut();
        extents.order.pop_front();
        extents.evicted_bytes += evicted_bytes;
        Some(index)
    }

    /// Evicts the oldest records of extent `index`, which is the oldest, as long as they are ordinary ones or padding and lie side by side in the
    /// table: nearly all of the extent.
    fn evict_run(&mut self, index: u32) {
        let Some(extents) = &mut self.space.extents else { return };
        let (start, seam) = (extents.start_of(index), extents.start_of(index + 1));
        let listed = &mut extents.listed[index as usize];
        let mut left = *listed;
        let (first, run, newest_end) = self.records.oldest_run();
        let mut slot = first;
        for i in 1..run.len() {
            if left == 0 || slot + 1 == newest_end {
                break;
            }
            let next = run[i].offset();
            if let Some(ahead) = run.get(i + SEQUENCES_AHEAD) {
                self.sequences.prefetch(ahead.sequence);
            }
            let record = &mut run[i - 1];
            // Padding may be of an extent that has gone.
            if !record.is_padding() {
                let at = record.offset();
                debug_assert!((start..seam).contains(&at));
                let end = if next > at && next <= seam { next } else { seam };
                if !self.sequences.evict_ordinary(slot, record, self.pinned) {
                    break;
                }
                self.stats.note_overwritten(end - at);
                self.books.move_listed(Account::Overwritten, end - at);
                left -= 1;
                // The list of late records may still name it.
                record.sequence = NONE;
            }
            slot += 1;
        }
        *listed = left;
        self.records.pop_run(slot - first);
    }

    /// Lets go of what nothing is listed in: padding at the front of the records, and empty extents, which `emptied` takes. The spare extent
    /// goes too if `all`.
    pub(crate) fn trim(&mut self, all: bool) {
        self.settle();
        while self.records.front().is_some_and(|slot| self.records.get(slot).is_padding()) {
            self.pop_oldest_record();
        }
        self.records.drop_padding([self.reader.slot, self.reader.target.0, self.reader.at.slot]);
        let open = self.extents().order.back().copied();
        if open.is_some_and(|index| !self.extents().has_listed(index)) {
            // Nothing of it is needed, so its rest is no padding either.
            self.space.leave();
        }
        let extents = self.extents_mut();
        let Extents { order, listed, emptied, spare, .. } = extents;
        order.retain(|&index| {
            let has_listed = listed[index as usize] != 0;
            if !has_listed {
                emptied.push(index);
            }
            has_listed
        });
        if all {
            emptied.extend(spare.take());
        }
    }
}
