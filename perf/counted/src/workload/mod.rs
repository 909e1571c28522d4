//! The bytes that suites and benchmarks feed to what they measure.
//!
//! ```text
//!   minstd ──> templates: chunks of whole packets ─────────┐
//!         └──> fragmented: chunks of packets that span them ┴──> feed: who commits which chunk, in which order ──> rings
//! ```

pub mod blocks;
pub mod feed;
pub mod fragmented;
pub mod minstd;
pub mod protobuf;
pub mod rings;
pub mod templates;

/// The payload of one chunk, as a producer left it in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceChunk {
    /// Size headers and bodies of its fragments, back to back.
    pub bytes: Vec<u8>,
    /// Number of fragments in `bytes`.
    pub fragments: u16,
    /// Packets that begin in this chunk.
    pub packets: u16,
    /// Continuation flags: a set of [`FIRST_CONTINUES`] and [`LAST_CONTINUES`].
    pub flags: u8,
}

/// Flag: the first fragment continues a packet of the previous chunk.
pub const FIRST_CONTINUES: u8 = 1;
/// Flag: the last fragment's packet goes on in the next chunk.
pub const LAST_CONTINUES: u8 = 2;

/// Payload bytes of a 4 KiB shared-memory page with one chunk in it.
pub const CHUNK_PAYLOAD_BYTES: usize = 4080;

/// What a chunk of `payload_bytes` takes in a ring: a header of 16 bytes, rounded up to 16.
pub fn record_bytes(payload_bytes: usize) -> usize {
    (16 + payload_bytes).next_multiple_of(16)
}
