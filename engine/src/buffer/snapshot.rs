//! Read-only copies.

use std::sync::Arc;

use super::TraceBuffer;
use crate::config::{CreateError, HugePages};
use crate::evict::Evictor;
use crate::ring::mem::Region;
use crate::store::Store;

impl TraceBuffer {
    /// A read-only copy: contents, what has been consumed of them, pending losses, statistics,
    /// ledger, histograms. Counters of reads and of read-aheads start again at 0. Sink and read
    /// pass stay with the original. Memory above the used part is not touched.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn clone_read_only(&self) -> Result<TraceBuffer, CreateError> {
        let size_bytes = self.size_bytes();
        // Pages out of the system's pool are for the buffer that asked for them.
        let pages = match self.store.ring.region().granted() {
            HugePages::No => HugePages::No,
            _ => HugePages::Advise,
        };
        let region =
            Region::map(size_bytes, pages).map_err(|source| CreateError::NoMemory { size_bytes, source })?;
        // SAFETY: `&self` keeps this buffer's memory as it is, and nobody knows the new region yet.
        unsafe { region.copy_range(self.store.ring.region(), 0..self.used_size_bytes()) };
        Ok(self.copy_read_only(Arc::new(region)))
    }

    /// A read-only copy but for the bytes of the ring, which must have been copied.
    pub(super) fn copy_read_only(&self, region: Arc<Region>) -> TraceBuffer {
        let ring = self.store.ring.in_region(region);
        let mut store = Store { ring, index: self.store.index.clone(), accounts: self.store.accounts };
        self.reader.apply_to_copy(&mut store);
        let stats = &mut store.accounts.stats;
        (stats.bytes_read, stats.chunks_read) = (0, 0);
        (stats.readaheads_succeeded, stats.readaheads_failed) = (0, 0);
        TraceBuffer {
            store,
            reader: self.reader.of_copy(),
            evictor: Evictor::default(),
            writer: self.writer,
            scratch: None,
            is_read_only: true,
        }
    }
}
