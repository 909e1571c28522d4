//! The trace buffers of all sessions, by their global number.

use watershed_engine::TraceBuffer;

use crate::ids::BufferId;
use crate::limits::BUFFERS_MAX;

#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) trace: TraceBuffer,
}

/// Slots by id. An id is used again only after it was given back; ids are handed out in a circle, so that a
/// producer that still sends to a buffer that is gone rarely meets another.
#[derive(Debug, Default)]
pub(crate) struct BufferTable {
    slots: Vec<Option<Buffer>>,
    last_id: u16,
    live: usize,
}

impl BufferTable {
    /// `None` if all ids are in use.
    pub(crate) fn insert(&mut self, trace: TraceBuffer) -> Option<BufferId> {
        let candidate = |offset: usize| (usize::from(self.last_id) + offset) % BUFFERS_MAX;
        let slot =
            (0..BUFFERS_MAX).map(candidate).find(|slot| self.slots.get(*slot).is_none_or(Option::is_none))?;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(Buffer { trace });
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

    /// How many buffers there are.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Id 1 lies in slot 0; id 0 is nobody's.
    fn slot(&self, id: BufferId) -> Option<usize> {
        usize::from(id.0).checked_sub(1)
    }
}
