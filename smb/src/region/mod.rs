//! The memory below the ABI: bitmap words, chunk headers, and copies of payload.
//!
//! There are two: the mapping that the program uses, and under `--cfg loom` a model of one page in
//! which every word and every payload byte is a loom atomic.

#[cfg(not(loom))]
mod mapped;
#[cfg(loom)]
mod modelled;

#[cfg(not(loom))]
pub(crate) use mapped::Region;
#[cfg(loom)]
pub(crate) use modelled::Region;

use crate::sync::{AtomicU16, AtomicU32};

/// The three words of a chunk header.
pub(crate) struct HeaderWords<'a> {
    pub(crate) chunk_id: &'a AtomicU32,
    pub(crate) writer_id: &'a AtomicU16,
    pub(crate) fragments: &'a AtomicU16,
}
