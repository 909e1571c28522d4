//! What the model keeps of chunks and of their sequences.

use crate::types::{Identity, flag};

/// Bytes of a record's header.
pub(crate) const HEADER_BYTES: usize = 16;

/// Outer bytes of a record with room for `reserved` payload bytes.
pub(crate) fn outer_bytes(reserved: usize) -> usize {
    (HEADER_BYTES + reserved).next_multiple_of(16)
}

/// A stretch of the buffer: a chunk, or padding where `data` is none.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) outer: usize,
    pub(crate) data: Option<Data>,
}

/// How the last byte of a record was consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consumption {
    Read,
    Evict,
}

/// A chunk that is listed.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) key: u64,
    pub(crate) life: u32,
    pub(crate) chunk_id: u32,
    pub(crate) identity: Identity,
    /// Room for the payload.
    pub(crate) reserved: usize,
    /// Visible bytes.
    pub(crate) payload: Vec<u8>,
    /// `0 <= consumed <= payload.len()`.
    pub(crate) consumed: usize,
    pub(crate) flags: u8,
    pub(crate) incomplete: bool,
    /// A fragment after the visible ones was missing or malformed.
    pub(crate) cut: bool,
    /// The writer dropped a packet after the visible ones.
    pub(crate) aborted: bool,
    /// The ids missing before this record were reported.
    pub(crate) gap_accounted: bool,
    /// Counted in `chunks_read` already.
    pub(crate) counted_read: bool,
    pub(crate) drained_by: Option<Consumption>,
    /// When it is its turn in a read of a shard: its ticket, and how many records were written
    /// before.
    pub(crate) turn: (u64, u64),
}

impl Data {
    pub(crate) fn has(&self, bits: u8) -> bool {
        self.flags & bits != 0
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.consumed == self.payload.len()
    }
}

/// The newest chunk of a sequence that was erased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub(crate) life: u32,
    pub(crate) chunk_id: u32,
    pub(crate) payload_bytes: usize,
    pub(crate) incomplete: bool,
}

/// Who said that a sequence's writer is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Writer,
    Producer,
}

/// One `{ProducerID, WriterID}`.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// Identity of the newest life.
    pub(crate) identity: Identity,
    /// The newest life; writers that come back with an ended one's id get the next.
    pub(crate) life: u32,
    pub(crate) ended: Option<Ended>,
    /// Offsets of records, by (life, chunk id).
    pub(crate) list: Vec<usize>,
    pub(crate) last: Option<Last>,
    pub(crate) pending_loss: u32,
    pub(crate) stalled_in: u64,
}

/// Flags of a chunk that was cut: its last fragment is not the one that they speak of.
pub(crate) fn flags_after_cut(flags: u8) -> u8 {
    flags & !(flag::LAST_CONTINUES | flag::NEEDS_PATCHING)
}
