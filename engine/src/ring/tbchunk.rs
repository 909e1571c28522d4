//! The 16-byte header in front of each record.
//!
//! ```text
//!   byte 0        4                8          10             12           14      15
//!        +--------+----------------+----------+--------------+------------+-------+----------+
//!        | chunk  | low half of    | reserved | visible      | unread     | flags | checksum |
//!        | id u32 | the key    u32 | u16      | payload u16  | bytes u16  | u8    | u8       |
//!        +--------+----------------+----------+--------------+------------+-------+----------+
//! ```
//!
//! All little-endian. A record begins at a multiple of 16 and covers `round_up_16(16 + reserved)`
//! bytes; the next one begins right behind it. `unread <= visible <= reserved`. The key's low half is
//! the writer and 16 bits of the producer: what a record's sequence is stands beside the ring. It is
//! 0 in padding. Flags are the six bits of the chunk header, and 0x80 for a scraped chunk that is not
//! complete yet. An all-zero buffer reads as one empty padding record.

/// Bytes of a record header, and the unit of offsets and sizes.
pub(crate) const HEADER_BYTES: usize = 16;

/// Flag of a record whose chunk was scraped and has not been committed in full yet.
pub(crate) const INCOMPLETE: u8 = 0x80;

/// Outer bytes of a record with room for `reserved_bytes` of payload.
#[inline]
pub(crate) fn outer_bytes(reserved_bytes: usize) -> usize {
    (HEADER_BYTES + reserved_bytes + (HEADER_BYTES - 1)) & !(HEADER_BYTES - 1)
}

/// A record header, as it lies in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TbChunk {
    pub(crate) chunk_id: u32,
    pub(crate) key_low: u32,
    pub(crate) reserved_bytes: u16,
    pub(crate) visible_bytes: u16,
    pub(crate) unread_bytes: u16,
    pub(crate) flags: u8,
    pub(crate) checksum: u8,
}

/// The exclusive-or of the bytes of a record's offset and reserved size; 0 for an untouched buffer.
#[inline]
pub(crate) fn checksum(offset_bytes: usize, reserved_bytes: u16) -> u8 {
    let mut x = offset_bytes as u64 ^ u64::from(reserved_bytes);
    x ^= x >> 32;
    x ^= x >> 16;
    x ^= x >> 8;
    x as u8
}

impl TbChunk {
    /// The header of `outer_bytes` of padding.
    pub(crate) fn padding(outer_bytes: usize) -> TbChunk {
        TbChunk { reserved_bytes: (outer_bytes - HEADER_BYTES) as u16, ..TbChunk::default() }
    }

    #[inline]
    pub(super) fn to_words(self) -> [u64; 2] {
        let ids = u64::from(self.chunk_id) | u64::from(self.key_low) << 32;
        let sizes = u64::from(self.reserved_bytes)
            | u64::from(self.visible_bytes) << 16
            | u64::from(self.unread_bytes) << 32
            | u64::from(self.flags) << 48
            | u64::from(self.checksum) << 56;
        [ids.to_le(), sizes.to_le()]
    }

    #[inline]
    pub(super) fn from_words(words: [u64; 2]) -> TbChunk {
        let [ids, sizes] = words.map(u64::from_le);
        TbChunk {
            chunk_id: ids as u32,
            key_low: (ids >> 32) as u32,
            reserved_bytes: sizes as u16,
            visible_bytes: (sizes >> 16) as u16,
            unread_bytes: (sizes >> 32) as u16,
            flags: (sizes >> 48) as u8,
            checksum: (sizes >> 56) as u8,
        }
    }
}
