//! Producers, writers, chunks, flags and causes of loss.

/// A producer: the number of its connection, which is never used again, or an id of 16 bits from
/// outside. Never 0 for a producer that is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub u32);

/// A writer inside its producer. Well-behaved clients use 1 to 32767.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId(pub u16);

/// The position of a chunk in its sequence. Starts at 0 and wraps around at 2^32, so it has no
/// total order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChunkId(pub u32);

impl ChunkId {
    /// Whether this id comes after `other`: the sign of the wrapping difference. At a distance of
    /// exactly 2^31 neither is newer.
    #[inline]
    pub fn is_newer_than(self, other: ChunkId) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }

    /// The id after this one; the successor of the largest is 0.
    #[inline]
    #[must_use]
    pub fn successor(self) -> ChunkId {
        ChunkId(self.0.wrapping_add(1))
    }
}

/// Who a producer is, as the transport vouches for it. Unknown values are 0 for the pid, and
/// whatever the caller says means "unknown" for the others: the engine only carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientIdentity {
    /// User id of the process.
    pub uid: i32,
    /// Process id, 0 when it is not known.
    pub pid: i32,
    /// The machine, 0 for this one.
    pub machine_id: u32,
}

/// The flags of a chunk header (six bits). Bits 3 to 5 are reserved and kept as they come; 6 and 7
/// are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChunkFlags(pub u8);

impl ChunkFlags {
    /// The first fragment continues a packet of the chunk before.
    pub const FIRST_CONTINUES: ChunkFlags = ChunkFlags(1);
    /// The last fragment goes on in the next chunk.
    pub const LAST_CONTINUES: ChunkFlags = ChunkFlags(2);
    /// The last fragment has holes that patches will fill.
    pub const NEEDS_PATCHING: ChunkFlags = ChunkFlags(4);
    /// The bits that have a meaning.
    pub const KNOWN: ChunkFlags = ChunkFlags(7);
    /// The bits that the chunk header has room for.
    pub const FIELD: ChunkFlags = ChunkFlags(0x3f);
}

/// Why packets of a sequence are missing before a packet: the value of
/// `TracePacket.previous_packet_dropped` (field 42), a set of bits. Empty when nothing is missing;
/// [`LossReasons::PRESENT`] comes with every other bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LossReasons(pub u32);

impl LossReasons {
    /// Nothing is missing.
    pub const NONE: LossReasons = LossReasons(0);
    /// Set on every loss.
    pub const PRESENT: LossReasons = LossReasons(1);
    /// Chunk ids are missing before the chunk.
    pub const READ_GAP: LossReasons = LossReasons(2);
    /// A fragment of a chunk was missing or malformed.
    pub const CHUNK_CORRUPTED: LossReasons = LossReasons(4);
    /// The continuation of a packet was there, its beginning was not.
    pub const ORPHAN_CONTINUATION: LossReasons = LossReasons(8);
    /// A chunk id was missing inside a packet.
    pub const REASSEMBLY_GAP: LossReasons = LossReasons(16);
    /// The next chunk does not continue the packet that the chunk before left open.
    pub const REASSEMBLY_BROKEN_CHAIN: LossReasons = LossReasons(32);
    /// Unread packets were overwritten.
    pub const OVERWRITE: LossReasons = LossReasons(64);
    /// The writer gave up a packet that it had begun.
    pub const WRITER_ABORT: LossReasons = LossReasons(128);
    /// The writer had no chunk to write to. Set by producers in their own packets, never by the
    /// engine.
    pub const SMB_FULL: LossReasons = LossReasons(256);

    /// Whether no bit is set.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The key of a sequence: `producer << 16 | writer`, 48 bits. 0 is no sequence.
#[inline]
pub(crate) fn key_of(producer: ProducerId, writer: WriterId) -> u64 {
    u64::from(producer.0) << 16 | u64::from(writer.0)
}

/// The inverse of [`key_of`].
#[inline]
pub(crate) fn ids_of(key: u64) -> (ProducerId, WriterId) {
    (ProducerId((key >> 16) as u32), WriterId(key as u16))
}
