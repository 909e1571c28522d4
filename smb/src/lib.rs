//! The shared-memory ABI between producers and the tracing service: the memory in which a traced
//! program leaves its packets, and from which the service takes them.
//!
//! ```text
//!   shared memory buffer (SMB): equal pages, no global header
//!   +-----------+-----------+-----------+-- ... --+
//!   |  page 0   |  page 1   |  page 2   |         |      page: 4, 8, 16 or 32 KiB
//!   +-----------+-----------+-----------+-- ... --+
//!
//!   one page, here with layout Div2
//!   0        4          8                                  8 + size                          8 + 2 * size
//!   +--------+----------+----------+-----------------------+----------+-----------------------+
//!   | bitmap | reserved | header 0 | payload 0             | header 1 | payload 1             |
//!   +--------+----------+----------+-----------------------+----------+-----------------------+
//!      u32        u32      8 bytes    size - 8 bytes
//!
//!   bitmap                                      chunk header
//!   31 30    28 27 26         3 2  1 0          0          4           6
//!   +-+--------+-----+-- ... --+----+----+      +----------+-----------+----------------------------+
//!   |-| layout | c13 |         | c1 | c0 |      | chunk id | writer id | fragments:10 (low) flags:6 |
//!   +-+--------+-----+-- ... --+----+----+      +----------+-----------+----------------------------+
//!                                                   u32         u16                u16
//!
//!   states of one chunk (two bits of the bitmap)
//!
//!                acquire                complete                begin_read
//!       Free 0 ----------> BeingWritten 1 ------> Complete 3 ----------------> BeingRead 2
//!         ^                     |                     |                             |
//!         |                     +-------- abandon ----+ (producers without          |
//!         |                                              shared memory only)        |
//!         +------------------------------- release ---------------------------------+
//!       when the last chunk of a page becomes free, the whole bitmap becomes 0: the page can be partitioned anew
//! ```
//!
//! The header and the payload of a chunk belong to the producer's writer while the chunk is
//! `BeingWritten`, and to the service while it is `BeingRead`. The service also reads chunks that
//! it does not own when it scrapes, and a hostile peer may write at any time. Hence three rules:
//!
//! 1. There is never a reference to the bytes of the region. Bitmap words and chunk headers are
//!    atomics. Payload is copied by [`copy_untrusted`] and written by [`Slot`], which are opaque to
//!    the compiler, or by kernels of `watershed-simd` for bytes that may change
//!    ([`Payload::shared_bytes`]), which are opaque too.
//! 2. A value on which a decision depends is loaded once. Offsets inside a page are computed from
//!    the one bitmap value that granted the chunk, never from a later load.
//! 3. A transition that the ABI does not have is refused with a [`TransitionError`]; nothing panics
//!    and nothing spins without bound, whatever the peer writes.
//!
//! [`Smb`] is the entry: [`Smb::try_acquire`] and [`WriteChunk`] for the producer,
//! [`Smb::try_begin_read`], [`ReadChunk`] and [`Smb::scrape`] for the service. [`SharedMemory`] is
//! the mapping below it. The format is Perfetto's shared memory ABI, v1.

mod copy;
mod epoch;
mod header;
mod layout;
mod memory;
mod read;
mod reads;
mod region;
mod sizing;
#[cfg(not(loom))]
mod slot;
mod smb;
mod sync;
mod write;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use copy::{copy_as_untrusted, copy_untrusted};
pub use header::{ChunkFlags, ChunkHeader, MAX_FRAGMENTS_PER_CHUNK, MAX_FRAGMENTS_WRITTEN};
pub use layout::{
    CHUNK_HEADER_BYTES, ChunkState, MAX_CHUNKS_PER_PAGE, PAGE_HEADER_BYTES, PageLayout, PageSnapshot,
};
#[cfg(not(loom))]
pub use memory::{MapError, SharedMemory};
pub use read::{Payload, ReadChunk, ReadToken, ScrapedChunk};
pub use reads::{Reading, Reads};
pub use sizing::{
    DEFAULT_PAGE_SIZE_BYTES, DEFAULT_SMB_SIZE_BYTES, MAX_PAGE_SIZE_BYTES, MAX_SMB_SIZE_BYTES,
    MIN_PAGE_SIZE_BYTES, SmbSize,
};
#[cfg(not(loom))]
pub use slot::{SLOT_BYTES, Slot};
pub use smb::{GeometryError, Smb, TransitionError};
pub use write::{AcquireError, WriteChunk};
