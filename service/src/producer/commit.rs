//! Commits: chunks to move, chunks to patch, acknowledged flushes. Everything in them is untrusted.
//!
//! ```text
//!   CommitDataRequest                         producer (from the connection, trusted)
//!     chunks_to_move  --> page, chunk ------> SMB: Complete -> BeingRead, header read once --+
//!                     or  bytes in the message, header in front -----------------------------+
//!                                                                                            v
//!                        target_buffer ----> alive? allowed? not another than the writer's? --> batch
//!                                                     no: chunks_discarded + 1, chunk freed all the same
//!     chunks_to_patch --> writer, chunk ---> the same batch, behind its chunks; this producer's own chunks only
//!                                                        each buffer's batch --> ShardedBuffer, as a whole
//!     flush_request_id ----------------------> every pending flush up to it
//! ```

use std::collections::BTreeMap;

use watershed_engine::{ChunkFlags, ChunkId, ChunkInfo, Patch, ProducerId, WriterId};
use watershed_shards::{Batch, PatchSet, Source};
use watershed_smb::{self as smb, CHUNK_HEADER_BYTES, ChunkHeader, MAX_FRAGMENTS_PER_CHUNK, Smb};
use watershed_wire::protos;
use watershed_wire::protos::commit_data_request::{ChunkToPatch, ChunksToMove};

use crate::buffers::BufferTable;
use crate::direct::DirectCommits;
use crate::ids::{BufferId, FlushId, SessionId};
use crate::limits::{EMULATED_CHUNK_BYTES_MAX, PATCH_BYTES, PATCHES_PER_ENTRY_MAX, is_writer_id};
use crate::producer::{ChunkSource, Producer};
use crate::service::{Counters, Service};
use crate::session::Session;

/// A longer batch grows as it is filled: what a request says costs no memory before that.
const CHUNKS_EXPECTED_MAX: usize = 64;

/// The writers' cores wrote the bitmaps of a commit's pages last. So many are on their way to this
/// one at a time: they have few places in the first-level cache, whose sets pages share.
const PAGES_AHEAD: usize = 8;

/// Bits of the fragment count below the flags.
const FRAGMENTS_BITS: u32 = MAX_FRAGMENTS_PER_CHUNK.count_ones();

/// The header in front of a chunk that came by message, the same eight bytes as in shared memory,
/// and what is behind it.
pub(super) fn header_in(data: &[u8]) -> Option<(ChunkHeader, &[u8])> {
    let (bytes, payload) = data.split_first_chunk::<CHUNK_HEADER_BYTES>()?;
    let [id0, id1, id2, id3, writer0, writer1, word0, word1] = *bytes;
    let word = u16::from_le_bytes([word0, word1]);
    let header = ChunkHeader {
        chunk_id: u32::from_le_bytes([id0, id1, id2, id3]),
        writer_id: u16::from_le_bytes([writer0, writer1]),
        fragments: word & MAX_FRAGMENTS_PER_CHUNK,
        flags: smb::ChunkFlags::from_bits((word >> FRAGMENTS_BITS) as u8),
    };
    Some((header, payload))
}

/// The buffer stage: everything that a chunk must pass before its bytes are looked at. One failure
/// is one discarded chunk. What passes is collected, one batch for each buffer, and committed as a
/// whole.
pub(super) struct BufferStage<'a> {
    producer_id: ProducerId,
    producer: &'a Producer,
    sessions: &'a BTreeMap<SessionId, Session>,
    buffers: &'a mut BufferTable,
    direct: &'a DirectCommits,
    counters: &'a mut Counters,
    /// How many chunks may come, for memory that is at hand then.
    num_chunks_expected: usize,
    batches: BTreeMap<BufferId, Batch<'a>>,
}

impl<'a> BufferStage<'a> {
    pub(super) fn new(
        producer_id: ProducerId,
        producer: &'a Producer,
        sessions: &'a BTreeMap<SessionId, Session>,
        buffers: &'a mut BufferTable,
        direct: &'a DirectCommits,
        counters: &'a mut Counters,
    ) -> BufferStage<'a> {
        let (batches, num_chunks_expected) = (BTreeMap::new(), 0);
        BufferStage {
            producer_id,
            producer,
            sessions,
            buffers,
            direct,
            counters,
            num_chunks_expected,
            batches,
        }
    }

    /// So many chunks may come.
    fn expect_chunks(&mut self, num_chunks: usize) {
        self.num_chunks_expected = num_chunks.min(CHUNKS_EXPECTED_MAX);
    }

    /// The batch for a buffer, which must be there.
    fn batch(&mut self, buffer_id: BufferId) -> &mut Batch<'a> {
        self.batches.entry(buffer_id).or_insert_with(|| {
            let memory = match &self.producer.chunks {
                ChunkSource::Shared(smb) => Some(smb.clone()),
                _ => None,
            };
            let mut batch = Batch { memory, ..Batch::default() };
            batch.reserve_chunks(self.num_chunks_expected);
            batch
        })
    }

    /// Whether the producer may write to the buffer.
    fn is_reachable(&self, target_buffer: BufferId) -> bool {
        self.buffers.get(target_buffer).is_some() && self.producer.allowed_buffers.contains(&target_buffer)
    }

    /// Whether a chunk of this writer may go there. Ids that no client gives to a writer are
    /// refused, as in patches: so a producer has a bounded number of sequences.
    fn is_allowed(&self, target_buffer: BufferId, writer_id: u16) -> bool {
        // Writers register asynchronously, maybe after their first commit: one that is not known
        // may write anywhere it is allowed to.
        let registered = self.producer.writers.get(&writer_id);
        is_writer_id(writer_id.into())
            && self.is_reachable(target_buffer)
            && registered.is_none_or(|buffer| *buffer == target_buffer.0)
    }

    /// `source` is made only of a chunk that may go there.
    pub(super) fn add_chunk(
        &mut self,
        target_buffer: BufferId,
        header: ChunkHeader,
        complete: bool,
        source: impl FnOnce() -> Source<'a>,
    ) {
        if !self.is_allowed(target_buffer, header.writer_id) {
            self.counters.chunks_discarded += 1;
            return;
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
        self.batch(target_buffer).chunks.push((info, source()));
    }

    fn move_shared(&mut self, smb: &Smb, entry: &ChunksToMove) {
        let Ok(chunk) = smb.try_begin_read(entry.page() as usize, entry.chunk() as usize) else {
            return; // No such chunk, or not complete: nothing to move, nothing to free.
        };
        let target_buffer = BufferId(entry.target_buffer() as u16);
        // Whoever copies the bytes frees the chunk; one that is not wanted is freed here.
        self.add_chunk(target_buffer, chunk.header(), true, || Source::Shared(chunk.detach()));
    }

    /// The bytes in the message are the whole chunk; `page` and `chunk` mean nothing here.
    fn move_message(&mut self, entry: &'a ChunksToMove) {
        let bytes = entry.data();
        if bytes.len() > EMULATED_CHUNK_BYTES_MAX {
            return;
        }
        let Some((header, payload)) = header_in(bytes) else { return };
        let target_buffer = BufferId(entry.target_buffer() as u16);
        self.add_chunk(target_buffer, header, !entry.chunk_incomplete(), || Source::Borrowed(payload));
    }

    fn patch(&mut self, entry: &ChunkToPatch) {
        let target_buffer = BufferId(entry.target_buffer() as u16);
        let writer_id = Some(entry.writer_id()).filter(|id| is_writer_id(*id));
        let (Some(writer_id), true, true) =
            (writer_id, self.is_reachable(target_buffer), entry.patches.len() <= PATCHES_PER_ENTRY_MAX)
        else {
            self.counters.patches_discarded += entry.patches.len() as u64;
            return;
        };
        let patches: Vec<Patch> = entry
            .patches
            .iter()
            .filter_map(|patch| {
                let data: [u8; PATCH_BYTES] = patch.data().try_into().ok()?;
                Some(Patch { offset_untrusted: patch.offset(), data })
            })
            .collect();
        self.counters.patches_discarded += (entry.patches.len() - patches.len()) as u64;
        // The key holds the trusted producer id: a producer reaches its own chunks only. Failures
        // are in the buffer's statistics.
        let set = PatchSet {
            producer_id_trusted: self.producer_id,
            writer_id: WriterId(u16::try_from(writer_id).expect("checked above")),
            chunk_id: ChunkId(entry.chunk_id()),
            patches,
            other_patches_pending: entry.has_more_patches(),
        };
        self.batch(target_buffer).patches.push(set);
    }

    /// Commits what was collected: of each buffer all chunks in order, then all patches in order.
    /// Returns the sessions with a buffer that has refused some: it has failed in part.
    #[must_use]
    pub(super) fn commit(self) -> Vec<SessionId> {
        let mut failed = Vec::new();
        for (buffer_id, mut batch) in self.batches {
            let Some(buffer) = self.buffers.get(buffer_id) else { continue };
            let session = self.sessions.get(&buffer.session_id);
            let mut num_new = 0;
            if let Some(session) = session {
                let mut sequences = session.sequences.lock();
                for (info, _) in &batch.chunks {
                    let (producer_id, writer_id) = (info.producer_id_trusted, info.writer_id);
                    num_new += usize::from(sequences.note(producer_id, writer_id, info.identity_trusted));
                }
            }
            let session_id = buffer.session_id;
            let num_refused = self.buffers.commit(buffer_id, self.producer_id, &mut batch);
            self.counters.chunks_discarded += num_refused;
            failed.extend((num_refused > 0).then_some(session_id));
            if let Some(Session { sequences, buffers, .. }) = session.filter(|_| num_new > 0) {
                let is_known = |producer_id, writer_id| {
                    let mut all = buffers.iter().filter_map(|id| self.buffers.get(*id));
                    all.any(|buffer| buffer.has_sequence(producer_id, writer_id))
                        || self.direct.has_writer(producer_id, writer_id)
                };
                sequences.lock().sweep(num_new, is_known);
            }
        }
        failed
    }
}

impl Service {
    /// A producer commits: all chunks to move in order, then all patches in order, then the
    /// acknowledgement of a flush.
    ///
    /// Returns false if the request was ignored, because nothing was set up on the producer yet:
    /// then it gets no reply. It takes no time: what it completes is due at once
    /// ([`Service::poll_timeout`] says so).
    ///
    /// Chunks and patches that are not allowed are counted and dropped; nothing in a request can do
    /// worse.
    pub fn handle_commit_data(
        &mut self,
        producer_id: ProducerId,
        request: &protos::CommitDataRequest,
    ) -> bool {
        let Some(producer) = self.producers.get_mut(&producer_id) else { return false };
        if matches!(producer.chunks, ChunkSource::None) {
            return false;
        }
        let acknowledged = request.flush_request_id.filter(|id| *id != 0).map(FlushId);
        if !producer.holds_commits() {
            self.commit_requests(producer_id, &[request]);
        } else {
            producer.held.add(request);
            if acknowledged.is_some() || producer.held.is_full() {
                self.commit_held(producer_id);
            }
        }
        if let Some(flush_id) = acknowledged {
            self.acknowledge_flushes(producer_id, flush_id);
        }
        true
    }

    /// Commits requests as one: no read sees a part of them.
    pub(super) fn commit_requests(
        &mut self,
        producer_id: ProducerId,
        requests: &[&protos::CommitDataRequest],
    ) {
        let Some(producer) = self.producers.get(&producer_id) else { return };
        let mut stage = BufferStage::new(
            producer_id,
            producer,
            &self.sessions,
            &mut self.buffers,
            &self.direct,
            &mut self.counters,
        );
        let entries = || requests.iter().flat_map(|request| &request.chunks_to_move);
        stage.expect_chunks(requests.iter().map(|request| request.chunks_to_move.len()).sum());
        let mut ahead = entries().map(|entry| entry.page() as usize);
        let mut prefetch = |num_pages| {
            if let ChunkSource::Shared(smb) = &producer.chunks {
                ahead.by_ref().take(num_pages).for_each(|page| smb.prefetch_page(page));
            }
        };
        prefetch(PAGES_AHEAD);
        for entry in entries() {
            prefetch(1);
            match &producer.chunks {
                // A producer with shared memory may still send a chunk by message.
                ChunkSource::Shared(smb) if entry.data.is_none() => stage.move_shared(smb, entry),
                _ => stage.move_message(entry),
            }
        }
        for entry in requests.iter().flat_map(|request| &request.chunks_to_patch) {
            stage.patch(entry);
        }
        let failed = stage.commit();
        failed.into_iter().for_each(|session_id| self.warn_of_poisoned(session_id));
    }
}
