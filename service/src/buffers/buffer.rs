//! One trace buffer, and what waits before it.

use std::collections::VecDeque;
use std::sync::Arc;

use watershed_engine::{BufferConfig, ByteSource, CreateError, ProducerId, WriterId};
use watershed_shards::{
    Batch, CommitError, Committer, Homes, OwnedBytes, ShardedBuffer, ShardedConfig, Source, Topology,
    WorkerPool,
};

use super::WaitingByProducer;
use super::succession::Succession;
use crate::ids::SessionId;

/// Batches in the queue of one shard. Without workers something waits there only while another
/// thread reads for a file.
const QUEUE_CAPACITY: usize = 256;

#[derive(Debug)]
pub(crate) struct Buffer {
    /// Shared with whoever reads from it on another thread.
    pub(crate) trace: Arc<ShardedBuffer>,
    /// Whose it is.
    pub(crate) session_id: SessionId,
    /// A clone has none: nothing is written to it.
    committer: Option<Committer>,
    /// Shards that have failed, of which the user was told.
    pub(super) poisoned_told: u64,
    /// Batches for which a queue had no room, and those that came after them. Whoever looks at the
    /// buffer [settles](Buffer::settle) it first.
    pub(super) waiting: VecDeque<Waiting>,
    /// How many have waited and do not any more.
    pub(super) num_waited: u64,
    /// Until that is done everything waits.
    pub(super) succession: Option<Arc<Succession>>,
}

/// A batch for which there was no room, or that comes behind one.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) producer_id: ProducerId,
    batch: Batch<'static>,
}

/// Bytes of a chunk that has to wait and cannot stay where it is.
struct Copied(Vec<u8>);

impl ByteSource for Copied {
    fn size_bytes(&self) -> usize {
        self.0.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self.0[offset_bytes..][..dst.len()]);
    }
}

impl Buffer {
    /// A buffer. Without workers its shards are filled and read by the calling thread alone, so
    /// that the same calls give the same bytes.
    pub(crate) fn create(
        session_id: SessionId,
        buffer: BufferConfig,
        num_shards: usize,
        page_bytes: usize,
        workers: Option<WorkerPool>,
    ) -> Result<Buffer, CreateError> {
        let trace = ShardedBuffer::create(ShardedConfig {
            buffer,
            num_shards: Some(num_shards),
            page_bytes,
            // Homes are chosen round-robin: the CPU of the calling thread does not matter.
            topology: Topology::new(Vec::new(), 1),
            workers,
            queue_capacity: QUEUE_CAPACITY,
            homes: Homes::RoundRobin,
        })?;
        let committer = trace.committer();
        Ok(Buffer {
            trace: Arc::new(trace),
            session_id,
            committer,
            poisoned_told: 0,
            waiting: VecDeque::new(),
            num_waited: 0,
            succession: None,
        })
    }

    /// A copy that was made for a clone: nothing is written to it. Whose it is is said when the
    /// clone is a session.
    pub(crate) fn of_clone(copy: ShardedBuffer) -> Buffer {
        Buffer {
            // Of the original its own user was told.
            poisoned_told: copy.num_poisoned(),
            trace: Arc::new(copy),
            session_id: SessionId(0),
            committer: None,
            waiting: VecDeque::new(),
            num_waited: 0,
            succession: None,
        }
    }

    /// Commits everything in the batch, which is empty afterwards. Returns how many chunks the
    /// buffer did not take. What finds no room in a queue waits, in order.
    pub(super) fn commit(
        &mut self,
        producer_id: ProducerId,
        batch: &mut Batch<'_>,
        waiting: &mut WaitingByProducer,
    ) -> u64 {
        let has_room = self.waiting.is_empty() && self.succession.is_none();
        if let Some(num_refused) = has_room.then(|| self.try_commit(batch)).flatten() {
            return num_refused;
        }
        waiting.add(producer_id);
        self.waiting.push_back(Waiting { producer_id, batch: keep(batch) });
        0
    }

    /// Commits a batch, and says how many chunks the buffer did not take. `None`, and nothing done,
    /// if there is no room; then the workers tell when there is.
    fn try_commit(&mut self, batch: &mut Batch<'_>) -> Option<u64> {
        self.try_commit_once(batch).or_else(|| {
            self.trace.want_room();
            self.try_commit_once(batch)
        })
    }

    fn try_commit_once(&mut self, batch: &mut Batch<'_>) -> Option<u64> {
        let num_chunks = batch.chunks.len() as u64;
        let error = match self.committer.as_mut().map(|committer| committer.commit(batch)) {
            Some(Ok(())) => return Some(0),
            Some(Err(CommitError::Poisoned(chunks))) => return Some(chunks as u64),
            Some(Err(CommitError::QueueFull(_))) => return None,
            refused => refused,
        };
        debug_assert!(false, "chunks have been checked, and no producer may write to a clone: {error:?}");
        release(std::mem::take(batch));
        Some(num_chunks)
    }

    /// Tries again what waits, in order. Returns how many chunks the buffer did not take.
    pub(super) fn retry(&mut self, waiting: &mut WaitingByProducer) -> u64 {
        let mut num_refused = 0;
        while self.succession.is_none()
            && let Some(Waiting { producer_id, mut batch }) = self.waiting.pop_front()
        {
            match self.try_commit(&mut batch) {
                Some(refused) => {
                    num_refused += refused;
                    self.num_waited += 1;
                    waiting.remove(producer_id);
                }
                None => {
                    self.waiting.push_front(Waiting { producer_id, batch });
                    break;
                }
            }
        }
        num_refused
    }

    /// Commits all that waits: whoever looks at the buffer must find it there. The calling thread
    /// helps the workers, so that there is room.
    pub(super) fn settle(&mut self, waiting: &mut WaitingByProducer) -> u64 {
        let mut num_refused = 0;
        self.succession.take().iter().for_each(|succession| succession.run());
        while !self.waiting.is_empty() {
            self.trace.drain();
            num_refused += self.retry(waiting);
        }
        num_refused
    }

    /// Whether the buffer has or will have chunks of the sequence.
    pub(crate) fn has_sequence(&self, producer_id: ProducerId, writer_id: WriterId) -> bool {
        let is_of = |batch: &Batch<'_>| {
            batch
                .chunks
                .iter()
                .any(|(info, _)| (info.producer_id_trusted, info.writer_id) == (producer_id, writer_id))
        };
        self.trace.has_sequence(producer_id, writer_id)
            || self.waiting.iter().any(|waiting| is_of(&waiting.batch))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.waiting.drain(..).for_each(|waiting| release(waiting.batch));
    }
}

/// The batch in a form that can wait: what its chunks borrow is copied.
fn keep(batch: &mut Batch<'_>) -> Batch<'static> {
    let Batch { memory, chunks, patches, ended_writers, ended_producers } = std::mem::take(batch);
    let keep_source = |source: Source<'_>| match source {
        Source::Borrowed(bytes) => Source::Owned(OwnedBytes::new(Copied(bytes.to_vec()))),
        Source::Scraped(payload) => {
            let mut bytes = vec![0; payload.size_bytes()];
            payload.copy_range(0, &mut bytes);
            Source::Owned(OwnedBytes::new(Copied(bytes)))
        }
        Source::Shared(token) => Source::Shared(token),
        Source::Owned(bytes) => Source::Owned(bytes),
    };
    let chunks = chunks.into_iter().map(|(info, source)| (info, keep_source(source))).collect();
    Batch { memory, chunks, patches, ended_writers, ended_producers }
}

/// Gives the chunks of a batch that is not committed back to their producer.
pub(crate) fn release(batch: Batch<'_>) {
    let Batch { chunks, memory, .. } = batch;
    for (_, source) in chunks {
        if let (Source::Shared(token), Some(smb)) = (source, &memory) {
            drop(smb.attach(token));
        }
    }
}
