//! The trace buffers of all sessions, by their global number.

use watershed_engine::{BufferConfig, CreateError};
use watershed_shards::{
    Batch, CommitError, Committer, Homes, ShardedBuffer, ShardedConfig, Source, Topology,
};

use crate::ids::{BufferId, SessionId};
use crate::limits::BUFFERS_MAX;

/// Batches that could wait in the queue of one shard. The service is the only thread that commits
/// and reads: nothing ever waits.
const QUEUE_CAPACITY: usize = 16;

#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) trace: ShardedBuffer,
    /// Whose it is.
    pub(crate) session_id: SessionId,
    committer: Committer,
}

impl Buffer {
    /// A buffer whose shards are filled and read by the calling thread alone, so that the same
    /// calls give the same bytes.
    pub(crate) fn create(
        session_id: SessionId,
        buffer: BufferConfig,
        num_shards: usize,
        page_bytes: usize,
    ) -> Result<Buffer, CreateError> {
        let trace = ShardedBuffer::create(ShardedConfig {
            buffer,
            num_shards: Some(num_shards),
            page_bytes,
            // Homes are chosen round-robin and there are no workers: the CPU does not matter.
            topology: Topology::new(Vec::new(), 1),
            workers: None,
            queue_capacity: QUEUE_CAPACITY,
            homes: Homes::RoundRobin,
        })?;
        let committer = trace.committer().expect("a new buffer is no clone");
        Ok(Buffer { trace, session_id, committer })
    }

    /// Commits everything in the batch, which is empty afterwards. Returns how many chunks the
    /// buffer did not take.
    pub(crate) fn commit(&mut self, batch: &mut Batch<'_>) -> u64 {
        let num_chunks = batch.chunks.len() as u64;
        let error = match self.committer.commit(batch) {
            Ok(()) => return 0,
            Err(CommitError::Poisoned(chunks)) => return chunks as u64,
            Err(error) => error,
        };
        debug_assert!(false, "chunks have been checked, and nobody else has the shards: {error}");
        let Batch { chunks, memory, .. } = std::mem::take(batch);
        for (_, source) in chunks {
            if let (Source::Shared(token), Some(smb)) = (source, &memory) {
                drop(smb.attach(token));
            }
        }
        num_chunks
    }
}

/// Slots by id. An id is reused only after it was freed; ids are allocated round-robin, so that a
/// producer that still sends to a buffer that is gone rarely meets another.
#[derive(Debug, Default)]
pub(crate) struct BufferTable {
    slots: Vec<Option<Buffer>>,
    last_id: u16,
    live: usize,
}

impl BufferTable {
    /// `None` if all ids are in use.
    pub(crate) fn insert(&mut self, buffer: Buffer) -> Option<BufferId> {
        let candidate = |offset: usize| (usize::from(self.last_id) + offset) % BUFFERS_MAX;
        let slot =
            (0..BUFFERS_MAX).map(candidate).find(|slot| self.slots.get(*slot).is_none_or(Option::is_none))?;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(buffer);
        self.live += 1;
        self.last_id = u16::try_from(slot + 1).expect("slots are below the largest u16");
        Some(BufferId(self.last_id))
    }

    pub(crate) fn remove(&mut self, id: BufferId) -> Option<Buffer> {
        let removed = self.slot(id).and_then(|slot| self.slots.get_mut(slot)?.take());
        self.live -= usize::from(removed.is_some());
        removed
    }

    pub(crate) fn get(&self, id: BufferId) -> Option<&Buffer> {
        self.slot(id).and_then(|slot| self.slots.get(slot)?.as_ref())
    }

    pub(crate) fn get_mut(&mut self, id: BufferId) -> Option<&mut Buffer> {
        self.slot(id).and_then(|slot| self.slots.get_mut(slot)?.as_mut())
    }

    /// All buffers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Buffer> {
        self.slots.iter().flatten()
    }

    /// How many buffers there are.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Id 1 lies in slot 0; id 0 is nobody's.
    fn slot(&self, id: BufferId) -> Option<usize> {
        usize::from(id.0).checked_sub(1)
    }
}
