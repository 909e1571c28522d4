//! Commits one after the other: what each of them would make ready anew is made ready once.

use crate::buffer::{CommitScratch, TraceBuffer};
use crate::config::{ChunkInfo, Refused};
use crate::shard::Shard;
use crate::source::ByteSource;
use std::mem::ManuallyDrop;

/// A shard to which chunks are committed and nothing else is done meanwhile: see [`Shard::commits`].
pub struct Commits<'a> {
    buffer: &'a mut TraceBuffer,
    /// The buffer's. Taken by the drop only.
    scratch: ManuallyDrop<Box<CommitScratch>>,
}

impl Shard {
    /// For many chunks in a row. A read pass goes on behind them.
    ///
    /// # Errors
    /// [`Refused::ReadOnly`], as each of the chunks would be.
    #[inline]
    pub fn commits(&mut self) -> Result<Commits<'_>, Refused> {
        let Shard(buffer) = self;
        if buffer.is_read_only {
            return Err(Refused::ReadOnly);
        }
        // Nobody can go on with it before this borrow ends.
        buffer.end_read_pass();
        let scratch = buffer.commit_scratch.take().unwrap_or_else(CommitScratch::new);
        Ok(Commits { buffer, scratch: ManuallyDrop::new(scratch) })
    }
}

impl Commits<'_> {
    /// As [`Shard::needs_extent`].
    #[inline]
    pub fn needs_extent(&self, payload_bytes: usize) -> bool {
        self.buffer.may_need_extent(payload_bytes)
    }

    /// As [`Shard::copy_chunk_untrusted`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    #[inline(always)]
    pub fn copy_chunk_untrusted<S: ByteSource + ?Sized>(
        &mut self,
        info: &ChunkInfo,
        source: &S,
        ticket: u64,
    ) -> Result<(), Refused> {
        let key = self.buffer.admit_key(info, source.size_bytes())?;
        self.buffer.set_ticket(ticket);
        self.buffer.copy_admitted(key, info, source, &mut self.scratch);
        Ok(())
    }
}

impl std::fmt::Debug for Commits<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Commits").field(&self.buffer).finish()
    }
}

impl Drop for Commits<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nothing uses it after the drop.
        self.buffer.commit_scratch = Some(unsafe { ManuallyDrop::take(&mut self.scratch) });
    }
}
