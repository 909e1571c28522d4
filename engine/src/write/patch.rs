//! Patches: late values for chunks that were committed with holes.

use super::WriteParts;
use crate::config::Patch;
use crate::ids::ChunkId;
use crate::index::Index;
use crate::index::fragment_sizes::{self as sizes, Token};
use crate::index::records::{Slot, bit};
use crate::ring::tbchunk::HEADER_BYTES;
use crate::store::Store;

/// Bytes of one patch.
const PATCH_BYTES: usize = 4;

impl WriteParts<'_> {
    /// See [`TraceBuffer::try_patch`](crate::TraceBuffer::try_patch).
    #[inline]
    pub(crate) fn try_patch(
        self,
        key: u64,
        chunk: ChunkId,
        patches: &[Patch],
        other_patches_pending: bool,
    ) -> bool {
        self.reader.interrupt(self.store);
        let Some(slot) = find_chunk(&mut self.store.index, key, chunk) else {
            self.store.accounts.stats.patches_failed += 1;
            return false;
        };
        let record = *self.store.index.records.get(slot);
        let offset = record.offset();
        let mut header = self.store.ring.header(offset);
        if !are_applicable(self.store, slot, usize::from(header.visible_bytes), patches) {
            self.store.accounts.stats.patches_failed += 1;
            return false;
        }
        for patch in patches {
            self.store.ring.write_few(offset + HEADER_BYTES + patch.offset_untrusted as usize, &patch.data);
        }
        if !other_patches_pending && record.has(bit::NEEDS_PATCHING) {
            self.store.index.records.get_mut(slot).bits &= !bit::NEEDS_PATCHING;
            header.flags &= !(bit::NEEDS_PATCHING as u8);
            self.store.ring.set_header(offset, header);
        }
        self.store.accounts.stats.patches_succeeded += patches.len() as u64;
        true
    }
}

#[inline]
fn find_chunk(index: &mut Index, key: u64, id: ChunkId) -> Option<Slot> {
    if key == 0 {
        return None;
    }
    let sequence = index.sequences.find_live(key)?;
    let sequence = index.sequences.get(sequence);
    sequence.find_to_patch(&index.records, id)
}

#[inline(always)]
fn are_applicable(store: &Store, slot: Slot, visible_bytes: usize, patches: &[Patch]) -> bool {
    let is_inside = |patch: &Patch| patch.offset_untrusted as usize + PATCH_BYTES <= visible_bytes;
    match patches {
        [] => true,
        [one] if !is_inside(one) => false,
        // Of most chunks the sizes are kept.
        [one] => match is_in_a_body(store.index.records.sizes(slot), one.offset_untrusted) {
            Some(is_in_one) => is_in_one,
            None => !touch_a_size(store, slot, visible_bytes, &[one.offset_untrusted]),
        },
        many => many.iter().all(is_inside) && are_beside_sizes(store, slot, visible_bytes, many),
    }
}

/// Whether a patch lies in one fragment, behind its size. None if the sizes of the record's
/// fragments are not kept.
#[inline(always)]
fn is_in_a_body(mut sizes: &[u16], offset: u32) -> Option<bool> {
    let mut start = 0;
    loop {
        let (extent, rest) = sizes::split_first(sizes)?;
        sizes = rest;
        let end = start + extent.total_bytes;
        if offset < end {
            // Behind the size, and not over the next one.
            return Some(offset >= start + extent.header_bytes && offset + PATCH_BYTES as u32 <= end);
        }
        start = end;
    }
}

/// The same for more patches. In order, one pass over the fragments is enough for all of them.
#[cold]
#[inline(never)]
fn are_beside_sizes(store: &Store, slot: Slot, visible_bytes: usize, patches: &[Patch]) -> bool {
    let mut offsets: Vec<u32> = patches.iter().map(|patch| patch.offset_untrusted).collect();
    offsets.sort_unstable();
    !touch_a_size(store, slot, visible_bytes, &offsets)
}

/// Whether one of the patches at `offsets`, in ascending order, covers a byte of a fragment's size.
#[cold]
#[inline(never)]
fn touch_a_size(store: &Store, slot: Slot, visible_bytes: usize, mut offsets: &[u32]) -> bool {
    let payload = store.index.records.get(slot).offset() + HEADER_BYTES;
    let mut sizes = store.index.records.sizes(slot);
    let mut start = 0;
    while start < visible_bytes {
        let extent = match sizes::split_first(sizes) {
            Some((extent, rest)) => {
                sizes = rest;
                extent
            }
            None => match sizes::token(store.ring.bytes(payload + start, visible_bytes - start)) {
                Token::Fragment(extent) => extent,
                Token::End | Token::Malformed => return false,
            },
        };
        let body = start + extent.header_bytes as usize;
        // Patches that end before this size do not touch it.
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
