//! Read-only copies.

use std::sync::Arc;

use crate::buffer::Scratch;
use crate::buffer::TraceBuffer;
use crate::config::{CreateError, HugePages};
use crate::mem::Region;
use crate::packet::SliceArena;
use crate::read::Reader;
use crate::records::NONE;
use crate::tbchunk::RingMemory;

impl TraceBuffer {
    /// A read-only copy: contents, what has been consumed of them, pending losses, statistics, ledger, histograms. Counters of
    /// reads and of read-aheads start again at 0. Sink and read pass stay with the original. Memory above the used
    /// part is not touched. A large buffer is copied by several threads, where the process may use several processors; they end with the call.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn clone_read_only(&self) -> Result<TraceBuffer, CreateError> {
        let size_bytes = self.size_bytes();
        // Pages out of the system's pool are for the buffer that asked for them.
        let pages = match self.granted_pages() {
            HugePages::No => HugePages::No,
            _ => HugePages::Advise,
        };
        let region =
            Region::map(size_bytes, pages).map_err(|source| CreateError::NoMemory { size_bytes, source })?;
        // SAFETY: `&self` keeps this buffer's memory as it is, and nobody knows the new region yet.
        unsafe { region.copy_start(self.ring.region(), self.space.used_bytes()) };
        Ok(self.copy_read_only(Arc::new(region)))
    }

    /// A read-only copy but for the bytes of the ring, which must have been copied.
    pub(crate) fn copy_read_only(&self, region: Arc<Region>) -> TraceBuffer {
        let mut copy = TraceBuffer {
            ring: RingMemory::new(region),
            space: self.space.clone(),
            ahead: None,
            records: self.records.clone(),
            sequences: self.sequences.clone(),
            identities: self.identities.clone(),
            histograms: self.histograms.clone(),
            policy: self.policy,
            is_sealed: self.is_sealed,
            is_read_only: true,
            pinned: NONE,
            generation: self.generation,
            reader: Reader::default(),
            arena: SliceArena::default(),
            scratch: Scratch::default(),
            commit_scratch: None,
            sink: None,
            tickets: self.tickets.clone(),
            stats: self.stats,
            books: self.books,
        };
        if let Some(due) = self.reader.due() {
            copy.apply(&due);
        }
        let stats = &mut copy.stats;
        (stats.bytes_read, stats.chunks_read) = (0, 0);
        (stats.readaheads_succeeded, stats.readaheads_failed) = (0, 0);
        copy
    }
}
