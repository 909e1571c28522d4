//! The 8-byte chunk header.

use std::sync::atomic::{AtomicU16, AtomicU32};

use crate::layout::{CHUNK_HEADER_BYTES, PAGE_HEADER_BYTES};

/// The largest fragment count the header can hold (10 bits).
pub const MAX_FRAGMENTS_PER_CHUNK: u16 = 1023;
/// The count at which a writer begins another chunk: one below the field's maximum, so that the
/// count can still be raised beyond a finished packet.
pub const MAX_FRAGMENTS_WRITTEN: u16 = MAX_FRAGMENTS_PER_CHUNK - 1;

const FLAGS_SHIFT: u32 = 10;

/// The six flag bits of a chunk header. The low three have a meaning; the others are reserved and
/// passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChunkFlags(u8);

impl ChunkFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The first fragment continues a packet from the writer's previous chunk.
    pub const FIRST_CONTINUES: Self = Self(1);
    /// The last fragment continues in the writer's next chunk.
    pub const LAST_CONTINUES: Self = Self(2);
    /// The last fragment holds sizes that are not known yet and will arrive as patches.
    pub const NEEDS_PATCHING: Self = Self(4);

    /// The flags of `bits`; bits above the sixth are dropped.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 0x3F)
    }

    /// The raw bits, 0..=63.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// True if every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The fields of a chunk header. Read from shared memory they are untrusted: each may have any
/// value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Position in the writer's sequence; starts at 0, grows by one for each chunk, wraps.
    pub chunk_id: u32,
    /// The writer; 0 is never a valid one.
    pub writer_id: u16,
    /// Fragments *started*, 0..=1023. The last one is valid only when the chunk is complete.
    pub fragments: u16,
    /// The flags.
    pub flags: ChunkFlags,
}

impl ChunkHeader {
    #[inline]
    pub(crate) const fn pack_fragments(fragments: u16, flags: ChunkFlags) -> u16 {
        assert!(fragments <= MAX_FRAGMENTS_PER_CHUNK);
        fragments | ((flags.bits() as u16) << FLAGS_SHIFT)
    }

    pub(crate) const fn unpack_fragments(word: u16) -> (u16, ChunkFlags) {
        (word & MAX_FRAGMENTS_PER_CHUNK, ChunkFlags::from_bits((word >> FLAGS_SHIFT) as u8))
    }
}

/// The page header as it lies in memory; only its layout is used.
#[repr(C)]
struct RawPageHeader {
    bitmap: AtomicU32,
    reserved: u32,
}

/// The chunk header as it lies in memory; only its layout is used.
#[repr(C)]
struct RawChunkHeader {
    chunk_id: AtomicU32,
    writer_id: AtomicU16,
    fragments_and_flags: AtomicU16,
}

pub(crate) const WRITER_ID_OFFSET_BYTES: usize = std::mem::offset_of!(RawChunkHeader, writer_id);
pub(crate) const FRAGMENTS_OFFSET_BYTES: usize = std::mem::offset_of!(RawChunkHeader, fragments_and_flags);

const _: () = {
    assert!(size_of::<RawPageHeader>() == PAGE_HEADER_BYTES && align_of::<RawPageHeader>() == 4);
    assert!(
        std::mem::offset_of!(RawPageHeader, bitmap) == 0
            && std::mem::offset_of!(RawPageHeader, reserved) == 4
    );
    assert!(size_of::<RawChunkHeader>() == CHUNK_HEADER_BYTES && align_of::<RawChunkHeader>() == 4);
    assert!(std::mem::offset_of!(RawChunkHeader, chunk_id) == 0);
    assert!(WRITER_ID_OFFSET_BYTES == 4 && FRAGMENTS_OFFSET_BYTES == 6);
    // The ABI is little-endian; the atomics are used in the machine's order.
    assert!(cfg!(target_endian = "little"));
    // The fields of a header fill their words exactly.
    let (fragments, flags) = ChunkHeader::unpack_fragments(0xFFFF);
    assert!(fragments == MAX_FRAGMENTS_PER_CHUNK && flags.bits() == 0x3F);
};
