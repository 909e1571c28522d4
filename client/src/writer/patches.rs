//! Sizes that are still missing in chunks that a writer has already returned.

use std::collections::VecDeque;

/// Most patches that the service takes for one chunk in one message.
const MAX_PATCHES_PER_GROUP: usize = 1024;

#[derive(Debug)]
struct Patch {
    chunk_id: u32,
    /// From the start of the payload.
    offset_bytes: u32,
    /// The size field's four bytes, once the size is known.
    data: Option<[u8; 4]>,
}

/// Patches of one chunk that can be sent together.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PatchGroup {
    pub(crate) chunk_id: u32,
    /// Offset from the start of the payload, and the bytes to put there.
    pub(crate) patches: Vec<(u32, [u8; 4])>,
    /// True when the chunk needs more patches than these.
    pub(crate) has_more: bool,
}

/// The patch list of one writer, in the order of the bytes that it wrote. Outer messages come
/// before inner ones, so what is at the front is what the reader waits for.
#[derive(Debug, Default)]
pub(crate) struct PatchList {
    patches: VecDeque<Patch>,
    /// How many were taken from the front since the beginning: turns tickets into positions.
    taken: u64,
}

impl PatchList {
    /// Adds a size that is not known yet; returns the ticket to resolve it with.
    pub(crate) fn push(&mut self, chunk_id: u32, offset_bytes: u32) -> u64 {
        self.patches.push_back(Patch { chunk_id, offset_bytes, data: None });
        self.taken + self.patches.len() as u64 - 1
    }

    /// The size behind `ticket` is known. Only resolved patches are ever taken, so the ticket of
    /// one that is not resolved is still in the list.
    pub(crate) fn resolve(&mut self, ticket: u64, data: [u8; 4]) {
        let patch = &mut self.patches[(ticket - self.taken) as usize];
        debug_assert!(patch.data.is_none(), "resolved twice");
        patch.data = Some(data);
    }

    /// True when [`PatchList::take_group`] has something.
    pub(crate) fn has_group(&self) -> bool {
        self.patches.front().is_some_and(|patch| patch.data.is_some())
    }

    /// Takes the resolved patches at the front that belong to one chunk.
    pub(crate) fn take_group(&mut self) -> Option<PatchGroup> {
        let chunk_id = self.patches.front()?.chunk_id;
        let mut patches = Vec::new();
        while let Some(&Patch { chunk_id: of, offset_bytes, data: Some(data) }) = self.patches.front() {
            if of != chunk_id || patches.len() == MAX_PATCHES_PER_GROUP {
                break;
            }
            patches.push((offset_bytes, data));
            self.patches.pop_front();
            self.taken += 1;
        }
        let has_more = self.patches.front().is_some_and(|next| next.chunk_id == chunk_id);
        (!patches.is_empty()).then_some(PatchGroup { chunk_id, patches, has_more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_leave_from_the_front_and_by_chunk() {
        let mut list = PatchList::default();
        let tickets: Vec<_> = [(5, 0), (5, 9), (6, 4)].map(|(chunk, at)| list.push(chunk, at)).to_vec();
        list.resolve(tickets[1], [1; 4]);
        assert_eq!(list.take_group(), None, "the outer size of chunk 5 is missing");
        list.resolve(tickets[2], [2; 4]);
        list.resolve(tickets[0], [0; 4]);
        let group = PatchGroup { chunk_id: 5, patches: vec![(0, [0; 4]), (9, [1; 4])], has_more: false };
        assert_eq!(list.take_group(), Some(group));
        let late = list.push(6, 8);
        let group = PatchGroup { chunk_id: 6, patches: vec![(4, [2; 4])], has_more: true };
        assert_eq!(list.take_group(), Some(group));
        assert!(!list.has_group());
        list.resolve(late, [3; 4]);
        assert!(!list.take_group().unwrap().has_more);
        assert_eq!(list.take_group(), None);
    }

    #[test]
    fn groups_are_as_large_as_the_service_takes() {
        let mut list = PatchList::default();
        for offset in 0..1500 {
            let ticket = list.push(1, offset * 5);
            list.resolve(ticket, [9; 4]);
        }
        let (first, second) = (list.take_group().unwrap(), list.take_group().unwrap());
        assert_eq!((first.patches.len(), first.has_more), (1024, true));
        assert_eq!((second.patches.len(), second.has_more), (476, false));
    }
}
