//! One record, and what its bits say.

/// A record's place in the table: `block << 10 | index`.
pub(crate) type Slot = u32;

/// No slot, no sequence.
pub(crate) const NONE: u32 = u32::MAX;

/// Bits of [`Record::bits`].
pub(crate) mod bit {
    /// The chunk's flags, by their own values.
    pub(crate) const FIRST_CONTINUES: u16 = 1;
    pub(crate) const LAST_CONTINUES: u16 = 2;
    pub(crate) const NEEDS_PATCHING: u16 = 4;
    pub(crate) const KNOWN_FLAGS: u16 = 7;
    /// Scraped and not committed in full yet.
    pub(crate) const INCOMPLETE: u16 = 1 << 3;
    /// Some fragment that is a packet by itself is not empty. Exact while nothing of the record was consumed, or just a first
    /// fragment that continued a packet.
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
    /// The first fragment continues a packet and has no body, of a record of which nothing was consumed.
    pub(crate) const FIRST_EMPTY: u16 = 1 << 10;
    /// Of a record of which something was consumed: just the first fragment, which continued a packet.
    pub(crate) const FIRST_TAKEN: u16 = FIRST_EMPTY;
    /// The last fragment goes on and has no body.
    pub(crate) const LAST_EMPTY: u16 = 1 << 11;
    /// The last record of a life of its writer that has ended.
    pub(crate) const LIFE_END: u16 = 1 << 12;
    /// Some bytes were consumed.
    pub(crate) const STARTED: u16 = 1 << 13;
    /// The record grew, and the consumed bytes do not end where a fragment does: its bytes must be tested as they are read.
    pub(crate) const UNALIGNED: u16 = 1 << 14;
}

/// No fragment sizes are kept.
pub(crate) const NO_SIZES: u16 = u16::MAX;

/// What is kept of a record. Invariants: `unread <= visible` (which is in the ring's header); `first_bytes` is the size of the first
/// fragment, header included, when the record has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Record {
    /// Offset in the ring in units of 16 bytes.
    pub(crate) place: u32,
    /// Index of its sequence; [`NONE`] for padding.
    pub(crate) sequence: u32,
    pub(crate) chunk_id: u32,
    pub(crate) unread_bytes: u16,
    pub(crate) first_bytes: u16,
    /// Where the sizes of its fragments begin in the block's list, in pairs; [`NO_SIZES`] if they are not kept.
    pub(crate) sizes: u16,
    pub(crate) bits: u16,
}

const _: () = assert!(size_of::<Record>() == 20);

impl Record {
    pub(crate) fn padding(offset: usize) -> Record {
        Record {
            place: place_of(offset),
            sequence: NONE,
            chunk_id: 0,
            unread_bytes: 0,
            first_bytes: 0,
            sizes: NO_SIZES,
            bits: 0,
        }
    }

    /// Offset of the header in the ring.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.place as usize * 16
    }

    #[inline]
    pub(crate) fn is_padding(&self) -> bool {
        self.sequence == NONE
    }

    #[inline]
    pub(crate) fn has(&self, bits: u16) -> bool {
        self.bits & bits != 0
    }
}

#[inline]
fn place_of(offset: usize) -> u32 {
    (offset / 16) as u32
}
