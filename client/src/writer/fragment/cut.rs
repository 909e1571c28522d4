//! Fragments: begun, ended with their packet, cut where the chunk ends, dropped where no chunk
//! follows.

use watershed_smb::{ChunkFlags, MAX_FRAGMENTS_WRITTEN};

use super::{COMPACT_BELOW, Core, MIN_PACKET_ROOM_BYTES, SIZE_FIELD_BYTES, SizeField};
use crate::writer::varint::{DROPPED, MAX_SIZE, redundant};

impl Core {
    pub(super) fn begin_fragment(&mut self) {
        self.fragment_start = self.position;
        // The size comes later; what is here until then nobody reads.
        self.position += SIZE_FIELD_BYTES;
    }

    pub(super) fn fragment_body_bytes(&self) -> usize {
        self.position - self.fragment_start - SIZE_FIELD_BYTES
    }

    /// The packet is complete: its last fragment gets its size and becomes visible.
    pub(super) fn end_last_fragment(&mut self) {
        let size = self.fragment_body_bytes();
        if size < COMPACT_BELOW && self.fragment_start >= self.synced {
            self.sync_compact(size as u8);
        } else {
            self.overwrite(self.fragment_start, redundant(size as u32));
            self.sync();
        }
        let full = self.capacity - self.position < MIN_PACKET_ROOM_BYTES;
        let Some(current) = &mut self.current else { return };
        if full || current.fragments >= MAX_FRAGMENTS_WRITTEN {
            self.return_for_next(ChunkFlags::NONE);
        } else if !self.arbiter.keeps_chunk(&current.chunk, self.returns) {
            self.return_current(ChunkFlags::NONE);
        } else {
            current.fragments += 1;
            current.inflated = true;
            let (fragments, flags) = (current.fragments, current.flags);
            self.arbiter.smb().set_fragments(&current.chunk, fragments, flags);
        }
    }

    /// Continues a packet in a new chunk, or drops the packet.
    pub(super) fn cross(&mut self) {
        if self.leave_if_forked() {
            return;
        }
        if self.body_bytes > MAX_SIZE {
            self.give_up();
            return;
        }
        // A writer that will not wait needs the next chunk first: without it the fragment must say
        // that the packet was given up, not that it continues. One that waits must not keep a chunk
        // meanwhile: when all chunks belong to writers that wait for another one, none would ever
        // be free.
        let next = match self.arbiter.acquire_now(self.policy, false, &mut self.search, &mut self.returns) {
            None if !self.policy.waits() => {
                self.give_up();
                return;
            }
            next => next,
        };
        self.return_with_continuation();
        match next.or_else(|| self.acquire_later(false)) {
            Some(next) => {
                self.start_chunk(next, true);
                self.begin_fragment();
            }
            None => {
                self.exhausted = true;
                self.owes_continuation = true;
                self.lose_packet();
            }
        }
    }

    /// Returns the chunk with a last fragment that continues in the next one.
    pub(super) fn return_with_continuation(&mut self) {
        let size = self.fragment_body_bytes();
        self.overwrite(self.fragment_start, redundant(size as u32));
        let mut flags = ChunkFlags::LAST_CONTINUES;
        if let Some(current) = &self.current {
            for message in &mut self.open {
                if let SizeField::Here(at) = message.size_field {
                    message.size_field = SizeField::Patch(self.patches.push(current.chunk_id, at as u32));
                    flags = flags.with(ChunkFlags::NEEDS_PATCHING);
                }
            }
        }
        self.sync();
        self.return_current(flags);
    }

    /// Drops the current packet: its fragment gets the size that says so, and its chunk is
    /// returned.
    pub(super) fn give_up(&mut self) {
        self.overwrite(self.fragment_start, DROPPED);
        for message in &mut self.open {
            if let SizeField::Here(_) = message.size_field {
                message.size_field = SizeField::Lost;
            }
        }
        self.sync();
        self.return_current(ChunkFlags::NONE);
        self.exhausted = true;
        self.lose_packet();
    }

    pub(super) fn lose_packet(&mut self) {
        self.discarding = true;
        self.loss_to_report = true;
        self.counts.drop_packet();
    }
}
