//! A place in a chunk where a packet is put together, word by word.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::CHUNK_HEADER_BYTES;
use crate::copy::store_untrusted;
use crate::region::Region;
use crate::smb::Smb;
use crate::write::WriteChunk;

/// So many bytes of a slot may be written: any of the first 256, and a word that begins there.
pub const SLOT_BYTES: usize = 256 + size_of::<u64>() - 1;

/// A place in a chunk that is being written, or none: then nothing is written.
///
/// A packet that is put together here needs no copy. It is checked once that there is room, and
/// not for each word. What is written becomes part of the chunk with [`Smb::set_fragments`] only.
#[derive(Debug)]
pub struct Slot {
    /// An address in `region` with [`SLOT_BYTES`] behind it; null where there is no place.
    start: *mut u8,
    /// Keeps the mapping.
    region: Option<Region>,
}

// SAFETY: `start` is an address in the mapping of `region`, which may be used from any thread.
unsafe impl Send for Slot {}
// SAFETY: as above, and a shared reference writes nothing.
unsafe impl Sync for Slot {}

impl Slot {
    /// No place.
    #[must_use]
    pub const fn none() -> Self {
        Self { start: std::ptr::null_mut(), region: None }
    }

    /// It is no place any more.
    #[inline]
    pub fn leave(&mut self) {
        self.start = std::ptr::null_mut();
    }

    /// Whether it is a place.
    #[inline]
    #[must_use]
    pub fn is_some(&self) -> bool {
        !self.start.is_null()
    }

    /// Writes the eight bytes of `word`, the lowest first.
    #[inline(always)]
    pub fn put(&mut self, at: u8, word: u64) {
        if self.is_some() {
            // SAFETY: `at` and a word are less than SLOT_BYTES, and `place_slot` has checked that
            // these are in the mapping, which `region` keeps. No reference to it exists.
            unsafe { store_untrusted(self.start.add(at.into()), word) }
        }
    }

    /// Writes one byte.
    #[inline(always)]
    pub fn put_byte(&mut self, at: u8, byte: u8) {
        if self.is_some() {
            // SAFETY: as in `put`. A byte is aligned anywhere.
            let place = unsafe { AtomicU8::from_ptr(self.start.add(at.into())) };
            // Relaxed: the fragment's count publishes it.
            place.store(byte, Ordering::Relaxed);
        }
    }
}

impl Smb {
    /// Makes `slot` the place at `offset_bytes` of the chunk's payload, if there is room for
    /// [`SLOT_BYTES`]; else it is left.
    #[inline(always)]
    pub fn place_slot(&self, slot: &mut Slot, chunk: &WriteChunk, offset_bytes: usize) {
        let place = &chunk.place;
        let has_room = offset_bytes < place.payload_size_bytes()
            && place.payload_size_bytes() - offset_bytes >= SLOT_BYTES;
        if !has_room {
            return slot.leave();
        }
        if !slot.region.as_ref().is_some_and(|region| region.is_same(&self.region)) {
            slot.region = Some(self.region.clone());
        }
        let start = self.region.get(place.offset_bytes() + CHUNK_HEADER_BYTES + offset_bytes, SLOT_BYTES);
        slot.start = start.unwrap_or(std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{PageLayout, SharedMemory};

    #[test]
    fn a_slot_is_a_place_while_there_is_room() {
        let smb = Smb::new(Arc::new(SharedMemory::create(4096).unwrap()), 4096).unwrap();
        let chunk = smb.try_acquire(0, PageLayout::Div4).unwrap();
        let last = chunk.payload_size_bytes() - SLOT_BYTES;
        let mut slot = Slot::none();
        slot.put(0, 1);
        smb.place_slot(&mut slot, &chunk, last);
        assert!(slot.is_some());
        slot.put(0, u64::from_le_bytes(*b"a packet"));
        slot.put_byte(1, b'-');
        slot.put(255, u64::from_le_bytes(*b"the end."));
        for offset in [last + 1, chunk.payload_size_bytes(), usize::MAX] {
            smb.place_slot(&mut slot, &chunk, offset);
            assert!(!slot.is_some());
            slot.put(9, u64::MAX);
        }
        let (page, index) = (chunk.page(), chunk.index());
        smb.complete(chunk).unwrap();
        let chunk = smb.try_begin_read(page, index).unwrap();
        let mut payload = vec![0; last + SLOT_BYTES];
        chunk.payload().copy_range(0, &mut payload);
        assert_eq!(&payload[last..last + 9], b"a-packet\0");
        assert_eq!(&payload[last + 255..], b"the end.");
        assert!(payload[..last].iter().all(|byte| *byte == 0));
    }
}
