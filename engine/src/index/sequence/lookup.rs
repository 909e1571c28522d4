//! Where a chunk is listed in a sequence, or belongs.

use super::Sequence;
use crate::ids::ChunkId;
use crate::index::records::{Records, Slot, bit};

impl Sequence {
    /// The index in the queue of a chunk of the newest life (`Ok`), or where it belongs (`Err`).
    #[inline]
    pub(crate) fn find(&self, records: &Records, id: ChunkId) -> Result<usize, usize> {
        let (start, end) = (self.newest_start as usize, self.queue.len());
        if start == end || id.is_newer_than(self.back_id) {
            Err(end)
        } else if id == self.back_id {
            Ok(end - 1)
        } else {
            self.find_between(records, id, start, end)
        }
    }

    /// As [`find`](Self::find) among `start..end` of the queue, which belong to one life.
    ///
    /// Ids nearly always have no gaps, so the distance to the back gives the index. Otherwise a
    /// binary search. Where ids are more than 2^31 apart, which only forged ones are, their order
    /// means nothing and the answer is one of the possible ones.
    fn find_between(&self, records: &Records, id: ChunkId, start: usize, end: usize) -> Result<usize, usize> {
        let id_at = |index: usize| ChunkId(records.get(self.queue.get(index)).chunk_id);
        if start == end {
            return Err(end);
        }
        let distance = id_at(end - 1).0.wrapping_sub(id.0) as usize;
        if distance < end - start && id_at(end - 1 - distance) == id {
            return Ok(end - 1 - distance);
        }
        // The last few one by one: the chunks of a scrape come together, in any order.
        let near = end.saturating_sub(8).max(start);
        for index in (near..end).rev() {
            if id_at(index) == id {
                return Ok(index);
            }
            if id.is_newer_than(id_at(index)) {
                return Err(index + 1);
            }
        }
        let (mut low, mut high) = (start, near);
        while low < high {
            let middle = low + (high - low) / 2;
            let found = id_at(middle);
            if found == id {
                return Ok(middle);
            }
            if id.is_newer_than(found) { low = middle + 1 } else { high = middle }
        }
        Err(low)
    }

    /// The slot of a chunk that a patch is for, from the newest life back. In lives that have
    /// ended it must wait for patches: a whole chunk there has the id of one of the next life that
    /// is gone or was never taken. Only the last 64 lives are searched: a patch that comes so late
    /// fails.
    #[inline(always)]
    pub(crate) fn find_to_patch(&self, records: &Records, id: ChunkId) -> Option<Slot> {
        // Most patches are for the newest chunk of a writer.
        if id == self.back_id && self.newest_start == 0 && self.ended.is_none() {
            return self.queue.back();
        }
        self.find_older_to_patch(records, id).map(|index| self.queue.get(index))
    }

    /// Its index in the queue, of any chunk.
    #[inline(never)]
    fn find_older_to_patch(&self, records: &Records, id: ChunkId) -> Option<usize> {
        if self.ended.is_some() {
            return self.find_in_ended_lives(records, id);
        }
        match self.find(records, id) {
            Ok(index) => Some(index),
            Err(_) if self.newest_start == 0 => None,
            Err(_) => self.find_in_old_lives(records, id),
        }
    }

    /// The same where the newest life has ended, too.
    #[cold]
    #[inline(never)]
    fn find_in_ended_lives(&self, records: &Records, id: ChunkId) -> Option<usize> {
        let newest = self.find(records, id).ok().filter(|&index| self.waits(records, index));
        newest.or_else(|| self.find_in_old_lives(records, id))
    }

    fn waits(&self, records: &Records, index: usize) -> bool {
        records.get(self.queue.get(index)).has(bit::NEEDS_PATCHING)
    }

    #[cold]
    fn find_in_old_lives(&self, records: &Records, id: ChunkId) -> Option<usize> {
        let mut end = self.newest_start as usize;
        for life in self.old_lives.iter().flat_map(|lives| lives.iter().rev().take(64)) {
            let start = end - life.records as usize;
            if let Ok(index) = self.find_between(records, id, start, end)
                && self.waits(records, index)
            {
                return Some(index);
            }
            end = start;
        }
        None
    }

    /// How many records come after chunk `id`, in a sequence of which no old life is listed and
    /// whose writer has not ended. None if it is listed, is not newer than what was erased, or
    /// comes before more than a few.
    #[inline(always)]
    pub(crate) fn behind(&self, records: &Records, id: ChunkId) -> Option<usize> {
        if self.newest_start != 0
            || self.ended.is_some()
            || self.last.is_some_and(|last| !id.is_newer_than(last.chunk_id))
        {
            return None;
        }
        if self.queue.is_empty() || id.is_newer_than(self.back_id) {
            return Some(0);
        }
        // The ids from this one to the back are newer than what was erased, so their bits are
        // valid.
        let distance = self.back_id.0.wrapping_sub(id.0);
        match 1u32.checked_shl(distance) {
            None => self.behind_many(records, id),
            Some(bit) if self.recent & bit != 0 => None,
            Some(bit) => Some((self.recent & (bit - 1)).count_ones() as usize),
        }
    }

    /// As [`behind`](Self::behind), of a chunk whose id is far from the back's.
    #[inline(never)]
    fn behind_many(&self, records: &Records, id: ChunkId) -> Option<usize> {
        const MAX_STEPS: usize = 16;
        let newest = self.queue.back_run();
        for (behind, &slot) in newest.iter().rev().take(MAX_STEPS).enumerate() {
            let listed = ChunkId(records.get(slot).chunk_id);
            if listed == id {
                return None;
            }
            if id.is_newer_than(listed) {
                return Some(behind);
            }
        }
        (self.queue.len() <= newest.len().min(MAX_STEPS)).then_some(self.queue.len())
    }
}
