//! Configuration of a buffer, the parameters of a commit, and what can be refused.

use crate::ids::{ChunkFlags, ChunkId, ClientIdentity, ProducerId, WriterId};

/// What happens when the buffer is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FillPolicy {
    /// The oldest data goes.
    #[default]
    RingBuffer,
    /// The first chunk that does not fit seals the buffer, for good.
    Discard,
}

/// Which pages a buffer's memory is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HugePages {
    /// The system's pages.
    No,
    /// The system's pages, advised to be transparent huge pages. Where the system does not take the
    /// advice, it is [`HugePages::No`]. Buffers below 2 MiB are not advised.
    #[default]
    Advise,
    /// Huge pages of 2 MiB from the system's pool; as [`HugePages::Advise`] if the pool has too
    /// few.
    Explicit,
}

/// How a buffer is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferConfig {
    /// Bytes for records, headers included. Rounded up to a multiple of 4096; 0 means 4096. At most
    /// [`BufferConfig::MAX_SIZE_BYTES`].
    pub size_bytes: usize,
    /// What happens when they are full.
    pub policy: FillPolicy,
    /// The pages they are made of.
    pub huge_pages: HugePages,
}

impl BufferConfig {
    /// 64 GiB less one page: offsets are kept as 32-bit counts of 16 bytes.
    pub const MAX_SIZE_BYTES: usize = (1 << 36) - 4096;

    /// A ring of `size_bytes`.
    pub fn ring(size_bytes: usize) -> Self {
        Self { size_bytes, ..Self::default() }
    }

    /// A buffer of `size_bytes` that keeps what came first.
    pub fn discard(size_bytes: usize) -> Self {
        Self { size_bytes, policy: FillPolicy::Discard, ..Self::default() }
    }
}

/// Why a buffer could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The size is above [`BufferConfig::MAX_SIZE_BYTES`].
    #[error("a buffer of {size_bytes} bytes is larger than the limit of {max} bytes", max = BufferConfig::MAX_SIZE_BYTES)]
    TooLarge {
        /// What was asked for.
        size_bytes: usize,
    },
    /// The system gave no memory.
    #[error("no memory for a buffer of {size_bytes} bytes: {source}")]
    NoMemory {
        /// What was asked for.
        size_bytes: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A commit whose call itself is wrong. Nothing was counted, nothing has changed. (Bytes that are
/// wrong are no error of the call: they are counted in the statistics.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The buffer is read-only.
    #[error("the buffer is read-only")]
    ReadOnly,
    /// Producer 0 with writer 0: that key means padding.
    #[error("producer 0 with writer 0 is no sequence")]
    ReservedKey,
    /// A chunk has at most 65535 bytes.
    #[error("a chunk of {size_bytes} bytes is larger than the limit of {max} bytes", max = ChunkInfo::MAX_SIZE_BYTES)]
    ChunkTooLarge {
        /// What came.
        size_bytes: usize,
    },
    /// The process is out of memory for what the buffer keeps beside the payload (more than 2^31
    /// live sequences).
    #[error("too many live sequences")]
    TooManySequences,
}

/// Header values of a chunk. Fields are untrusted unless their name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkInfo {
    /// From the connection, not from the chunk.
    pub producer_id_trusted: ProducerId,
    /// From the connection. Kept from the first chunk of a sequence on; later ones are ignored.
    pub identity_trusted: ClientIdentity,
    /// The writer. 0 is accepted with a producer other than 0.
    pub writer_id: WriterId,
    /// Position in the sequence.
    pub chunk_id: ChunkId,
    /// Fragments that were begun.
    pub num_fragments: u16,
    /// Header flags.
    pub flags: ChunkFlags,
    /// False for a chunk that was scraped while its writer may still be writing: its last fragment
    /// is ignored.
    pub complete: bool,
}

impl ChunkInfo {
    /// The most bytes of payload.
    pub const MAX_SIZE_BYTES: usize = 65535;
}

/// Four bytes for an offset in a chunk that was committed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Counted from the chunk's first payload byte, the first fragment's size included.
    pub offset_untrusted: u32,
    /// What is written there.
    pub data: [u8; 4],
}
