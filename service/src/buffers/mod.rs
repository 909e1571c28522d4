//! The trace buffers of all sessions, by their global number.

mod buffer;
mod succession;

use std::collections::BTreeMap;
use std::sync::Arc;

use watershed_engine::ProducerId;
use watershed_shards::{Batch, ShardedBuffer};

use crate::clock::ClockReadings;
use crate::ids::BufferId;
use crate::limits::{BUFFERS_MAX, SUCCESSION_WAIT_MAX_MS};
use crate::timer::{Deadline, TimerClock};

pub(crate) use buffer::{Buffer, release};
pub(crate) use succession::Succession;

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

/// Buffers by id. An id is reused only after it was freed; ids are allocated round-robin, so that a
/// producer that still sends to a buffer that is gone rarely meets another.
#[derive(Debug, Default)]
pub(crate) struct BufferTable {
    buffers: BTreeMap<BufferId, Buffer>,
    last_id: u16,
    waiting: WaitingByProducer,
}

impl BufferTable {
    /// `None` if all ids are in use.
    pub(crate) fn insert(&mut self, buffer: Buffer) -> Option<BufferId> {
        let last_id = usize::from(self.last_id);
        let mut ids = (0..BUFFERS_MAX).map(|offset| ((last_id + offset) % BUFFERS_MAX + 1) as u16);
        self.last_id = ids.find(|id| !self.buffers.contains_key(&BufferId(*id)))?;
        self.buffers.insert(BufferId(self.last_id), buffer);
        Some(BufferId(self.last_id))
    }

    /// Puts another buffer in the place of one, and returns that; `None`, and nothing done, if
    /// there is none with this id. What waits for room in it comes into the other one, or goes with
    /// it. What is committed waits until [`succeeded`](Self::succeeded) is called.
    pub(crate) fn replace(
        &mut self,
        id: BufferId,
        other: Buffer,
        keeps_waiting: bool,
        now: &ClockReadings,
    ) -> Option<(Buffer, Arc<Succession>)> {
        let buffer = self.buffers.get_mut(&id)?;
        let mut replaced = std::mem::replace(buffer, other);
        let deadline = Deadline::after_ms(TimerClock::Monotonic, SUCCESSION_WAIT_MAX_MS, now);
        let before = replaced.succession.take();
        let succession = Succession::new(&replaced.trace, &buffer.trace, before, deadline);
        buffer.succession = Some(Arc::clone(&succession));
        if keeps_waiting {
            buffer.waiting = std::mem::take(&mut replaced.waiting);
        } else {
            replaced.waiting.iter().for_each(|waiting| self.waiting.remove(waiting.producer_id));
        }
        Some((replaced, succession))
    }

    /// A buffer that has taken the place of another one knows what it has to: what has waited for
    /// that may be [tried again](Self::retry).
    pub(crate) fn succeeded(&mut self, id: BufferId, succession: &Arc<Succession>) {
        let buffer = self.buffers.get_mut(&id);
        if let Some(buffer) = buffer {
            buffer.succession.take_if(|other| Arc::ptr_eq(other, succession));
        }
    }

    pub(crate) fn remove(&mut self, id: BufferId) -> Option<Buffer> {
        let removed = self.buffers.remove(&id)?;
        removed.waiting.iter().for_each(|waiting| self.waiting.remove(waiting.producer_id));
        Some(removed)
    }

    pub(crate) fn get(&self, id: BufferId) -> Option<&Buffer> {
        self.buffers.get(&id)
    }

    /// Commits everything in the batch of a producer, which is empty afterwards. Returns how many
    /// chunks were not taken.
    pub(crate) fn commit(&mut self, id: BufferId, producer_id: ProducerId, batch: &mut Batch<'_>) -> u64 {
        let buffer = self.buffers.get_mut(&id);
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

    /// For what another thread does batches may wait, and in which buffers.
    pub(crate) fn successions(&self) -> Vec<(BufferId, Arc<Succession>)> {
        let succession =
            |(&id, buffer): (&BufferId, &Buffer)| Some((id, Arc::clone(buffer.succession.as_ref()?)));
        self.buffers.iter().filter_map(succession).collect()
    }

    /// Until when commits wait for [them](Self::successions).
    pub(crate) fn succession_deadlines(&self) -> impl Iterator<Item = Deadline> + '_ {
        self.iter().filter_map(|buffer| Some(buffer.succession.as_ref()?.deadline))
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
        let BufferTable { buffers, waiting, .. } = self;
        buffers.values_mut().map(|buffer| buffer.retry(waiting)).sum()
    }

    /// Commits all that waits for a buffer, before somebody looks at it. Returns how many chunks it
    /// did not take.
    pub(crate) fn settle(&mut self, id: BufferId) -> u64 {
        let buffer = self.buffers.get_mut(&id);
        buffer.map_or(0, |buffer| buffer.settle(&mut self.waiting))
    }

    /// How many shards of the buffer have failed, if there are more than the last call has said.
    pub(crate) fn newly_poisoned(&mut self, id: BufferId) -> Option<u64> {
        let buffer = self.buffers.get_mut(&id)?;
        let num_shards = buffer.trace.num_poisoned();
        let is_new = num_shards > std::mem::replace(&mut buffer.poisoned_told, num_shards);
        is_new.then_some(num_shards)
    }

    /// All buffers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Buffer> {
        self.buffers.values()
    }

    /// How many buffers there are.
    pub(crate) fn len(&self) -> usize {
        self.buffers.len()
    }
}
