//! Commits: chunks to move, chunks to patch, acknowledged flushes. Everything in them is untrusted.
//!
//! ```text
//!   CommitDataRequest                         producer (from the connection, trusted)
//!     chunks_to_move  --> page, chunk ------> SMB: Complete -> BeingRead, header read once --+
//!                     or  bytes in the message, header in front -----------------------------+
//!                                                                                            v
//!                        target_buffer ----> alive? allowed? not another than the writer's? --> TraceBuffer
//!                                                     no: chunks_discarded + 1, chunk freed all the same
//!     chunks_to_patch --> writer, chunk ---> TraceBuffer, among this producer's own chunks only
//!     flush_request_id ----------------------> every pending flush up to it
//! ```

use watershed_engine::{ByteSource, ChunkFlags, ChunkId, ChunkInfo, Patch, ProducerId, WriterId};
use watershed_smb::{self as smb, CHUNK_HEADER_BYTES, ChunkHeader, MAX_FRAGMENTS_PER_CHUNK, Payload, Smb};
use watershed_wire::protos;
use watershed_wire::protos::commit_data_request::{ChunkToPatch, ChunksToMove};

use crate::buffers::BufferTable;
use crate::ids::{BufferId, FlushId};
use crate::limits::{EMULATED_CHUNK_BYTES_MAX, PATCH_BYTES, PATCHES_PER_ENTRY_MAX, WRITER_ID_MAX};
use crate::producer::{ChunkSource, Producer};
use crate::service::{Counters, Service};

/// Bits of the fragment count below the flags.
const FRAGMENTS_BITS: u32 = MAX_FRAGMENTS_PER_CHUNK.count_ones();

/// A chunk in shared memory as the trace buffer wants to read it.
pub(super) struct SharedPayload<'a>(pub(super) Payload<'a>);

impl ByteSource for SharedPayload<'_> {
    fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        self.0.copy_range(offset_bytes, dst);
    }
}

/// The header in front of a chunk that came by message: the same eight bytes as in shared memory.
fn header_of_message(bytes: [u8; CHUNK_HEADER_BYTES]) -> ChunkHeader {
    let [id0, id1, id2, id3, writer0, writer1, word0, word1] = bytes;
    let word = u16::from_le_bytes([word0, word1]);
    ChunkHeader {
        chunk_id: u32::from_le_bytes([id0, id1, id2, id3]),
        writer_id: u16::from_le_bytes([writer0, writer1]),
        fragments: word & MAX_FRAGMENTS_PER_CHUNK,
        flags: smb::ChunkFlags::from_bits((word >> FRAGMENTS_BITS) as u8),
    }
}

/// The buffer stage: everything that a chunk must pass before its bytes are looked at. One failure is one
/// discarded chunk.
pub(super) struct BufferStage<'a> {
    pub(super) producer_id: ProducerId,
    pub(super) producer: &'a Producer,
    pub(super) buffers: &'a mut BufferTable,
    pub(super) counters: &'a mut Counters,
}

impl BufferStage<'_> {
    pub(super) fn deliver(
        &mut self,
        target_buffer: BufferId,
        header: ChunkHeader,
        complete: bool,
        payload: &impl ByteSource,
    ) {
        if self.try_deliver(target_buffer, header, complete, payload).is_none() {
            self.counters.chunks_discarded += 1;
        }
    }

    fn try_deliver(
        &mut self,
        target_buffer: BufferId,
        header: ChunkHeader,
        complete: bool,
        payload: &impl ByteSource,
    ) -> Option<()> {
        let buffer = self.buffers.get_mut(target_buffer)?;
        if !self.producer.allowed_buffers.contains(&target_buffer) {
            return None;
        }
        // Writers register asynchronously, maybe after their first commit: one that is not known may write
        // anywhere it is allowed to.
        let registered = self.producer.writers.get(&header.writer_id);
        if registered.is_some_and(|buffer| *buffer != target_buffer.0) {
            return None;
        }
        let info = ChunkInfo {
            producer_id_trusted: self.producer_id,
            identity_trusted: self.producer.client,
            writer_id: WriterId(header.writer_id),
            chunk_id: ChunkId(header.chunk_id),
            num_fragments: header.fragments,
            flags: ChunkFlags(header.flags.bits()),
            complete,
        };
        buffer.trace.copy_chunk_untrusted(&info, payload).ok()
    }

    fn move_shared(&mut self, smb: &Smb, entry: &ChunksToMove) {
        let Ok(chunk) = smb.try_begin_read(entry.page() as usize, entry.chunk() as usize) else {
            return; // No such chunk, or not complete: nothing to move, nothing to free.
        };
        let target_buffer = BufferId(entry.target_buffer() as u16);
        self.deliver(target_buffer, chunk.header(), true, &SharedPayload(chunk.payload()));
        // A producer that changed the bitmap meanwhile has lost its own chunk, nothing of ours.
        let _ = chunk.release();
    }

    /// The bytes in the message are the whole chunk; `page` and `chunk` mean nothing here.
    fn move_message(&mut self, entry: &ChunksToMove) {
        let bytes = entry.data();
        if bytes.len() > EMULATED_CHUNK_BYTES_MAX {
            return;
        }
        let Some((header, payload)) = bytes.split_first_chunk::<CHUNK_HEADER_BYTES>() else {
            return;
        };
        let header = header_of_message(*header);
        let target_buffer = BufferId(entry.target_buffer() as u16);
        self.deliver(target_buffer, header, !entry.chunk_incomplete(), &payload);
    }

    fn patch(&mut self, entry: &ChunkToPatch, scratch: &mut Vec<Patch>) {
        let buffer = self.buffers.get_mut(BufferId(entry.target_buffer() as u16));
        let writer_id = Some(entry.writer_id()).filter(|id| (1..=WRITER_ID_MAX).contains(id));
        let (Some(buffer), Some(writer_id), true) =
            (buffer, writer_id, entry.patches.len() <= PATCHES_PER_ENTRY_MAX)
        else {
            self.counters.patches_discarded += entry.patches.len() as u64;
            return;
        };
        scratch.clear();
        scratch.extend(entry.patches.iter().filter_map(|patch| {
            let data: [u8; PATCH_BYTES] = patch.data().try_into().ok()?;
            Some(Patch { offset_untrusted: patch.offset(), data })
        }));
        self.counters.patches_discarded += (entry.patches.len() - scratch.len()) as u64;
        // The key holds the trusted producer id: a producer reaches its own chunks only. Failures are in the
        // buffer's statistics.
        let writer_id = WriterId(u16::try_from(writer_id).expect("checked above"));
        let chunk_id = ChunkId(entry.chunk_id());
        buffer.trace.try_patch(self.producer_id, writer_id, chunk_id, scratch, entry.has_more_patches());
    }
}

impl Service {
    /// A producer commits: all chunks to move in order, then all patches in order, then the acknowledgement
    /// of a flush.
    ///
    /// Returns false if the request was ignored, because nothing was set up on the producer yet: then it gets
    /// no reply. It takes no time: what it completes is due at once ([`Service::poll_timeout`] says so).
    ///
    /// Chunks and patches that are not allowed are counted and dropped; nothing in a request can do worse.
    pub fn handle_commit_data(
        &mut self,
        producer_id: ProducerId,
        request: &protos::CommitDataRequest,
    ) -> bool {
        let Some(producer) = self.producers.get(&producer_id) else { return false };
        let mut stage =
            BufferStage { producer_id, producer, buffers: &mut self.buffers, counters: &mut self.counters };
        match &producer.chunks {
            ChunkSource::None => return false,
            ChunkSource::Shared(smb) => {
                for entry in &request.chunks_to_move {
                    // A producer with shared memory may still send a chunk by message.
                    if entry.data.is_some() {
                        stage.move_message(entry);
                    } else {
                        stage.move_shared(smb, entry);
                    }
                }
            }
            ChunkSource::Messages => {
                request.chunks_to_move.iter().for_each(|entry| stage.move_message(entry))
            }
        }
        for entry in &request.chunks_to_patch {
            stage.patch(entry, &mut self.patch_scratch);
        }
        if let Some(flush_id) = request.flush_request_id.filter(|id| *id != 0) {
            self.acknowledge_flushes(producer_id, FlushId(flush_id));
        }
        true
    }
}
