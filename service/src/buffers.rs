//! The trace buffers of all sessions, by their global number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use watershed_engine::{BufferConfig, ByteSource, CreateError, ProducerId, WriterId};
use watershed_shards::{
    Batch, CommitError, Committer, Homes, OwnedBytes, ShardedBuffer, ShardedConfig, Source, Topology,
    WorkerPool,
};

use crate::ids::{BufferId, SessionId};
use crate::limits::BUFFERS_MAX;

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
    poisoned_told: u64,
    /// Batches for which a queue had no room, and those that came after them. Whoever looks at the
    /// buffer [settles](Buffer::settle) it first.
    waiting: VecDeque<Waiting>,
    /// How many have waited and do not any more.
    num_waited: u64,
}

/// A batch for which there was no room, or that comes behind one.
#[derive(Debug)]
struct Waiting {
    producer_id: ProducerId,
    batch: Batch<'static>,
}

/// How many batches of each producer wait, in all buffers; nothing of those of whom none does.
#[derive(Debug, Default)]
struct WaitingByProducer {
    num_batches: BTreeMap<ProducerId, usize>,
    /// How often a batch has had to wait since the service began.
    num_ever: u64,
}

impl WaitingByProducer {
    fn add(&mut self, producer_id: ProducerId) {
        *self.num_batches.entry(producer_id).or_default() += 1;
        self.num_ever += 1;
    }

    fn remove(&mut self, producer_id: ProducerId) {
        if let Some(num) = self.num_batches.get_mut(&producer_id) {
            *num -= 1;
            if *num == 0 {
                self.num_batches.remove(&producer_id);
            }
        }
    }
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
        }
    }

    /// Commits everything in the batch, which is empty afterwards. Returns how many chunks the
    /// buffer did not take. What finds no room in a queue waits, in order.
    fn commit(
        &mut self,
        producer_id: ProducerId,
        batch: &mut Batch<'_>,
        waiting: &mut WaitingByProducer,
    ) -> u64 {
        let has_room = self.waiting.is_empty();
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
    fn retry(&mut self, waiting: &mut WaitingByProducer) -> u64 {
        let mut num_refused = 0;
        while let Some(Waiting { producer_id, mut batch }) = self.waiting.pop_front() {
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
    fn settle(&mut self, waiting: &mut WaitingByProducer) -> u64 {
        let mut num_refused = 0;
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

/// Slots by id. An id is reused only after it was freed; ids are allocated round-robin, so that a
/// producer that still sends to a buffer that is gone rarely meets another.
#[derive(Debug, Default)]
pub(crate) struct BufferTable {
    slots: Vec<Option<Buffer>>,
    last_id: u16,
    live: usize,
    waiting: WaitingByProducer,
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

    /// Puts another buffer in the place of one, and returns that; `None`, and nothing done, if
    /// there is none with this id. What waits for room in it comes into the other one, or goes with
    /// it.
    pub(crate) fn replace(&mut self, id: BufferId, other: Buffer, keeps_waiting: bool) -> Option<Buffer> {
        let buffer = self.slot(id).and_then(|slot| self.slots.get_mut(slot)?.as_mut())?;
        let mut replaced = std::mem::replace(buffer, other);
        if keeps_waiting {
            buffer.waiting = std::mem::take(&mut replaced.waiting);
        } else {
            replaced.waiting.iter().for_each(|waiting| self.waiting.remove(waiting.producer_id));
        }
        Some(replaced)
    }

    pub(crate) fn remove(&mut self, id: BufferId) -> Option<Buffer> {
        let removed = self.slot(id).and_then(|slot| self.slots.get_mut(slot)?.take())?;
        self.live -= 1;
        removed.waiting.iter().for_each(|waiting| self.waiting.remove(waiting.producer_id));
        Some(removed)
    }

    pub(crate) fn get(&self, id: BufferId) -> Option<&Buffer> {
        self.slot(id).and_then(|slot| self.slots.get(slot)?.as_ref())
    }

    /// Commits everything in the batch of a producer, which is empty afterwards. Returns how many
    /// chunks were not taken.
    pub(crate) fn commit(&mut self, id: BufferId, producer_id: ProducerId, batch: &mut Batch<'_>) -> u64 {
        let buffer = self.slot(id).and_then(|slot| self.slots.get_mut(slot)?.as_mut());
        buffer.map_or(0, |buffer| buffer.commit(producer_id, batch, &mut self.waiting))
    }

    /// The buffer, and how many batches will have waited once those that wait now have room.
    pub(crate) fn waiting_of(&self, id: BufferId) -> Option<(Arc<ShardedBuffer>, u64)> {
        let buffer = self.get(id)?;
        Some((Arc::clone(&buffer.trace), buffer.num_waited + buffer.waiting.len() as u64))
    }

    /// Whether anything was ever committed to the buffer, or waits for that. Does not wait.
    pub(crate) fn has_commits(&self, id: BufferId) -> bool {
        self.get(id).is_some_and(|buffer| buffer.trace.has_data() || !buffer.waiting.is_empty())
    }

    /// Whether fewer batches have waited so far. Not of a buffer that has gone: its batches have,
    /// too.
    pub(crate) fn is_behind(&self, id: BufferId, trace: &Arc<ShardedBuffer>, num_batches: u64) -> bool {
        let buffer = self.get(id).filter(|buffer| Arc::ptr_eq(&buffer.trace, trace));
        buffer.is_some_and(|buffer| buffer.num_waited < num_batches)
    }

    /// Whether any batch waits for room.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.num_batches.is_empty()
    }

    /// Whether a batch of the producer waits for room.
    pub(crate) fn is_waiting(&self, producer_id: ProducerId) -> bool {
        self.waiting.num_batches.contains_key(&producer_id)
    }

    /// How often a batch had to wait for room.
    pub(crate) fn num_handed_back(&self) -> u64 {
        self.waiting.num_ever
    }

    /// Tries again what waits. Returns how many chunks were not taken.
    pub(crate) fn retry(&mut self) -> u64 {
        let BufferTable { slots, waiting, .. } = self;
        slots.iter_mut().flatten().map(|buffer| buffer.retry(waiting)).sum()
    }

    /// Commits all that waits for a buffer, before somebody looks at it. Returns how many chunks it
    /// did not take.
    pub(crate) fn settle(&mut self, id: BufferId) -> u64 {
        let buffer = self.slot(id).and_then(|slot| self.slots.get_mut(slot)?.as_mut());
        buffer.map_or(0, |buffer| buffer.settle(&mut self.waiting))
    }

    /// How many shards of the buffer have failed, if there are more than the last call has said.
    pub(crate) fn newly_poisoned(&mut self, id: BufferId) -> Option<u64> {
        let buffer = self.slot(id).and_then(|slot| self.slots.get_mut(slot)?.as_mut())?;
        let num_shards = buffer.trace.num_poisoned();
        let is_new = num_shards > std::mem::replace(&mut buffer.poisoned_told, num_shards);
        is_new.then_some(num_shards)
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
