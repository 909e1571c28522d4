//! Patches: late values for chunks that were committed with holes.

use crate::buffer::TraceBuffer;
use crate::config::Patch;
use crate::ids::{ChunkId, ProducerId, WriterId, key_of};
use crate::records::{Slot, bit};
use crate::sizes::{self, Token};
use crate::tbchunk::HEADER_BYTES;

/// Bytes of one patch.
const PATCH_BYTES: usize = 4;

impl TraceBuffer {
    /// Writes patches into a chunk that was committed before; all of them, or none. If no others are pending, the chunk's last
    /// fragment may be read from the next read pass on. Ends the current read pass.
    ///
    /// False, and one failure counted, if the chunk is not there (any more), or if a patch does not lie inside of its
    /// visible bytes or touches the size of a fragment. On a read-only buffer nothing is done or counted.
    #[inline]
    pub fn try_patch(
        &mut self,
        producer: ProducerId,
        writer: WriterId,
        chunk: ChunkId,
        patches: &[Patch],
        other_patches_pending: bool,
    ) -> bool {
        if self.is_read_only {
            return false;
        }
        self.end_read_pass();
        let Some(slot) = self.find_chunk(key_of(producer, writer), chunk) else {
            self.stats.patches_failed += 1;
            return false;
        };
        let offset = self.records.get(slot).offset();
        let mut header = self.ring.header(offset);
        if !self.are_applicable(slot, usize::from(header.visible_bytes), patches) {
            self.stats.patches_failed += 1;
            return false;
        }
        for patch in patches {
            self.ring.write_few(offset + HEADER_BYTES + patch.offset_untrusted as usize, &patch.data);
        }
        let record = self.records.get_mut(slot);
        if !other_patches_pending && record.has(bit::NEEDS_PATCHING) {
            record.bits &= !bit::NEEDS_PATCHING;
            header.flags &= !(bit::NEEDS_PATCHING as u8);
            self.ring.set_header(offset, header);
        }
        self.stats.patches_succeeded += patches.len() as u64;
        true
    }

    #[inline]
    fn find_chunk(&mut self, key: u32, id: ChunkId) -> Option<Slot> {
        if key == 0 {
            return None;
        }
        let sequence = self.sequences.find_live(key)?;
        let sequence = self.sequences.get(sequence);
        let index = sequence.find_in_any_life(&self.records, id)?;
        Some(sequence.queue.get(index))
    }

    #[inline]
    fn are_applicable(&mut self, slot: Slot, visible_bytes: usize, patches: &[Patch]) -> bool {
        let is_inside = |patch: &Patch| patch.offset_untrusted as usize + PATCH_BYTES <= visible_bytes;
        if !patches.iter().all(is_inside) {
            return false;
        }
        match patches {
            [] => true,
            [one] => !self.touch_a_size(slot, visible_bytes, &[one.offset_untrusted]),
            many => {
                // In order, one walk is enough for all of them.
                let mut offsets = std::mem::take(&mut self.scratch.offsets);
                offsets.clear();
                offsets.extend(many.iter().map(|patch| patch.offset_untrusted));
                offsets.sort_unstable();
                let is_bad = self.touch_a_size(slot, visible_bytes, &offsets);
                self.scratch.offsets = offsets;
                !is_bad
            }
        }
    }

    /// Whether one of the patches at `offsets`, which ascend, covers a byte of a fragment's size.
    fn touch_a_size(&self, slot: Slot, visible_bytes: usize, mut offsets: &[u32]) -> bool {
        let payload = self.records.get(slot).offset() + HEADER_BYTES;
        let mut sizes = self.records.sizes(slot);
        let mut start = 0;
        while start < visible_bytes {
            let extent = match sizes::split_first(sizes) {
                Some((extent, rest)) => {
                    sizes = rest;
                    extent
                }
                None => match sizes::token(self.ring.bytes(payload + start, visible_bytes - start)) {
                    Token::Fragment(extent) => extent,
                    Token::End | Token::Malformed => return false,
                },
            };
            let body = start + extent.header_bytes as usize;
            // Those that end in front of this size touched none.
            while let Some((&first, rest)) = offsets.split_first()
                && first as usize + PATCH_BYTES <= start
            {
                offsets = rest;
            }
            match offsets.first() {
                None => return false,
                Some(&offset) if (offset as usize) < body => return true,
                Some(_) => start += extent.total_bytes as usize,
            }
        }
        false
    }
}
