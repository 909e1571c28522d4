//! One record, and what its bits say.

use crate::index::fragment_sizes as sizes;

/// A record's index in the table: `block << 10 | index`.
pub(crate) type Slot = u32;

/// No slot, no sequence.
pub(crate) const NONE: u32 = u32::MAX;

/// Bits of [`Record::bits`].
pub(crate) mod bit {
    /// The chunk's flags, with their own values.
    pub(crate) const FIRST_CONTINUES: u16 = 1;
    pub(crate) const LAST_CONTINUES: u16 = 2;
    pub(crate) const NEEDS_PATCHING: u16 = 4;
    pub(crate) const KNOWN_FLAGS: u16 = 7;
    /// Scraped and not committed in full yet.
    pub(crate) const INCOMPLETE: u16 = 1 << 3;
    /// Some whole fragment is not empty. Exact while nothing of the record was consumed, or just a
    /// first fragment that continued a packet.
    pub(crate) const DELIVERABLE: u16 = 1 << 4;
    /// Ids missing before this record have been reported.
    pub(crate) const GAP_ACCOUNTED: u16 = 1 << 5;
    /// What followed the visible fragments was missing or malformed.
    pub(crate) const CUT: u16 = 1 << 6;
    /// What followed the visible fragments was given up by the writer.
    pub(crate) const ABORTED: u16 = 1 << 7;
    /// Counted in chunks_read.
    pub(crate) const COUNTED_READ: u16 = 1 << 8;
    /// An eviction took the last byte.
    pub(crate) const DRAINED_BY_EVICTION: u16 = 1 << 9;
    /// While nothing was consumed: the first fragment continues a packet and has no body.
    pub(crate) const FIRST_EMPTY: u16 = 1 << 10;
    /// While something was consumed: just the first fragment, which continued a packet.
    pub(crate) const FIRST_TAKEN: u16 = FIRST_EMPTY;
    /// The last fragment goes on and has no body.
    pub(crate) const LAST_EMPTY: u16 = 1 << 11;
    /// The last record of a life of its writer that has ended.
    pub(crate) const LIFE_END: u16 = 1 << 12;
    /// Some bytes were consumed.
    pub(crate) const STARTED: u16 = 1 << 13;
    /// The first fragment continues a packet and is the only one.
    pub(crate) const ONE_PART: u16 = 1 << 14;
    /// The sizes of its fragments are kept.
    pub(crate) const SIZED: u16 = 1 << 15;
}

/// What is kept of a record: 18 bytes. `unread <= visible`, which is in the ring's header. A record
/// that is SIZED has a fragment, and its sizes add up to the visible bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(2))]
pub(crate) struct Record {
    /// Offset in the ring in units of 16 bytes.
    pub(crate) offset_units: u32,
    /// Index of its sequence; [`NONE`] for padding.
    pub(crate) sequence: u32,
    pub(crate) chunk_id: u32,
    pub(crate) unread_bytes: u16,
    /// If it is SIZED, where the sizes of its fragments begin in the block's list, in pairs. Else
    /// the size of its first fragment, header included, or 0 if it has none, or [`UNALIGNED`].
    pub(crate) sizes_or_first: u16,
    pub(crate) bits: u16,
}

const _: () = assert!(size_of::<Record>() == 18);

/// Of a record that is not SIZED and of which more than a first part was consumed, so that the size
/// of its first fragment is not needed. (A fragment of that size would have been all of it.)
const UNALIGNED: u16 = u16::MAX;

impl Record {
    pub(crate) fn padding(offset: usize) -> Record {
        Record {
            offset_units: (offset / 16) as u32,
            sequence: NONE,
            chunk_id: 0,
            unread_bytes: 0,
            sizes_or_first: 0,
            bits: 0,
        }
    }

    /// Offset of the header in the ring.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.offset_units as usize * 16
    }

    #[inline]
    pub(crate) fn is_padding(&self) -> bool {
        self.sequence == NONE
    }

    #[inline]
    pub(crate) fn has(&self, bits: u16) -> bool {
        self.bits & bits != 0
    }

    /// Notes that the consumed bytes do not end where a fragment does: the rest must be parsed as
    /// it is read. Something was consumed, and not just a first part.
    pub(crate) fn set_unaligned(&mut self) {
        self.bits &= !bit::SIZED;
        self.sizes_or_first = UNALIGNED;
    }

    /// Whether it was [noted](Self::set_unaligned).
    pub(crate) fn is_unaligned(&self) -> bool {
        const KIND: u16 = bit::SIZED | bit::STARTED | bit::FIRST_TAKEN;
        self.bits & KIND == bit::STARTED && self.sizes_or_first == UNALIGNED
    }

    /// The index in the block's list at which the sizes of its fragments begin, if they are kept.
    #[inline(always)]
    pub(crate) fn size_index(&self) -> Option<usize> {
        self.has(bit::SIZED).then(|| usize::from(self.sizes_or_first) * 2)
    }

    /// Bytes of the first fragment, header included; 0 if it has none. `sizes` is the list of its
    /// block.
    #[inline(always)]
    pub(crate) fn first_bytes(&self, sizes: &[u16]) -> u16 {
        match self.size_index() {
            Some(at) => sizes.get(at..).map_or(0, sizes::first_total),
            None => self.sizes_or_first,
        }
    }
}
