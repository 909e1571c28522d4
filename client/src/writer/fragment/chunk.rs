//! Chunks: got from the arbiter, copied into, returned to it.

use watershed_smb::{ChunkFlags, ChunkHeader, WriteChunk};

use super::{Core, Current, SIZE_FIELD_BYTES};
use crate::arbiter::Returned;

impl Core {
    pub(super) fn acquire(&mut self) -> Option<WriteChunk> {
        let now = self.arbiter.acquire_now(self.policy, self.exhausted, &mut self.search, &mut self.returns);
        let chunk = now.or_else(|| self.acquire_later(self.exhausted));
        self.exhausted = chunk.is_none();
        chunk
    }

    /// A chunk, or a refusal that is counted. `dropping`: the last attempt ended in one.
    pub(super) fn acquire_later(&mut self, dropping: bool) -> Option<WriteChunk> {
        // It holds nothing while it waits or drops.
        self.arbiter.give_back(&mut self.returns);
        let chunk = self.arbiter.acquire_later(self.policy, dropping, &mut self.search, &mut self.returns);
        if chunk.is_none() {
            self.counts.refuse_chunk();
        }
        chunk
    }

    /// Starts a chunk with a fragment that continues the current packet, or empty.
    pub(super) fn start_chunk(&mut self, chunk: WriteChunk, continues: bool) {
        let chunk_id = self.next_chunk_id;
        self.next_chunk_id = chunk_id.wrapping_add(1);
        self.counts.acquire_chunk();
        let current = Current {
            chunk,
            chunk_id,
            fragments: continues.into(),
            inflated: false,
            flags: if continues { ChunkFlags::FIRST_CONTINUES } else { ChunkFlags::NONE },
        };
        let header = ChunkHeader {
            chunk_id,
            writer_id: self.writer_id,
            fragments: current.fragments,
            flags: current.flags,
        };
        self.arbiter.smb().write_header(&current.chunk, header);
        self.capacity = current.chunk.payload_size_bytes();
        if self.image.len() < self.capacity {
            self.image.resize(self.capacity, 0);
        }
        (self.position, self.synced) = (0, 0);
        self.current = Some(current);
    }

    /// Copies what shared memory does not have yet.
    pub(super) fn sync(&mut self) {
        if let Some(current) = &self.current
            && self.synced < self.position
        {
            self.arbiter.smb().write_payload(
                &current.chunk,
                self.synced,
                &self.image[self.synced..self.position],
            );
        }
        self.synced = self.position;
    }

    /// Copies the current fragment, whose body has `size` bytes, with a size field of one byte. In
    /// the image the byte lies right before the body; there nothing has to move, since the image is
    /// not read again behind `synced`.
    pub(super) fn sync_compact(&mut self, size: u8) {
        debug_assert_eq!(self.fragment_start, self.synced);
        let from = self.fragment_start + SIZE_FIELD_BYTES - 1;
        self.image[from] = size;
        if let Some(current) = &self.current {
            let bytes = &self.image[from..self.position];
            self.arbiter.smb().write_payload(&current.chunk, self.fragment_start, bytes);
        }
        self.position -= SIZE_FIELD_BYTES - 1;
        self.synced = self.position;
    }

    /// Returns the chunk, if there is one. Everything in it must be synced.
    pub(super) fn return_current(&mut self, last: ChunkFlags) {
        self.return_for_next(last);
        self.arbiter.give_back(&mut self.returns);
    }

    /// The same of a chunk that is full: a writer that goes on takes the next one.
    pub(super) fn return_for_next(&mut self, last: ChunkFlags) {
        let Some(current) = self.current.take() else { return };
        let smb = self.arbiter.smb();
        if current.inflated {
            // The count promises one more fragment: an empty one. There is room: the count is
            // raised only then.
            smb.write_payload(&current.chunk, self.position, &[0]);
        }
        smb.set_fragments(&current.chunk, current.fragments, current.flags.with(last));
        self.arbiter.note_return(&current.chunk, &mut self.returns);
        let returned = Returned {
            chunk: current.chunk,
            writer_id: self.writer_id,
            target: self.target,
            chunk_id: current.chunk_id,
            needs_patching: last.contains(ChunkFlags::NEEDS_PATCHING),
        };
        match &mut self.direct {
            Some(direct) => {
                self.search.note_own(returned.chunk.page());
                self.arbiter.commit_chunk(returned, &mut self.patches, direct);
            }
            None => {
                self.arbiter.give_back(&mut self.returns);
                self.arbiter.return_chunk(returned, &mut self.patches);
            }
        }
        (self.capacity, self.position, self.synced) = (0, 0, 0);
    }
}
