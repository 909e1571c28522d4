//! Commits of producers without shared memory while they scrape themselves.
//!
//! ```text
//!   service                         producer
//!     Flush 7  ------------------->
//!              <------------------- chunks      held
//!              <------------------- chunks      held
//!              <------------------- chunks, acknowledges 7
//!     all of them are one batch
//! ```
//!
//! What a producer scrapes of its own memory comes in several requests, and in any order of chunks.
//! A read between two of them would take a chunk that is still to come for a loss.

use watershed_engine::ProducerId;
use watershed_wire::protos::CommitDataRequest;
use watershed_wire::protos::commit_data_request::{ChunkToPatch, ChunksToMove, chunk_to_patch::Patch};

use crate::ids::{BufferId, SessionId};
use crate::limits::HELD_COMMIT_BYTES_MAX;
use crate::producer::commit::header_in;
use crate::producer::{ChunkSource, Producer};
use crate::service::Service;

/// Requests in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct HeldCommits {
    requests: Vec<CommitDataRequest>,
    bytes: usize,
}

impl HeldCommits {
    pub(super) fn add(&mut self, request: &CommitDataRequest) {
        self.bytes += memory_bytes(request);
        self.requests.push(request.clone());
    }

    /// Takes out of the requests what is for these buffers.
    fn split_off_buffers(&mut self, buffers: &[BufferId]) -> Vec<CommitDataRequest> {
        let is_its = |target_buffer: u32| buffers.contains(&BufferId(target_buffer as u16));
        self.split_off(|entry| is_its(entry.target_buffer()), |entry| is_its(entry.target_buffer()))
    }

    /// Takes out of the requests what is of this writer.
    fn split_off_writer(&mut self, writer_id: u16) -> Vec<CommitDataRequest> {
        self.split_off(
            |entry| header_in(entry.data()).is_some_and(|(header, _)| header.writer_id == writer_id),
            |entry| entry.writer_id() == u32::from(writer_id),
        )
    }

    fn split_off(
        &mut self,
        moves: impl Fn(&ChunksToMove) -> bool,
        patches: impl Fn(&ChunkToPatch) -> bool,
    ) -> Vec<CommitDataRequest> {
        let take = |request: &mut CommitDataRequest| CommitDataRequest {
            chunks_to_move: request.chunks_to_move.extract_if(.., |entry| moves(entry)).collect(),
            chunks_to_patch: request.chunks_to_patch.extract_if(.., |entry| patches(entry)).collect(),
            flush_request_id: None,
        };
        let taken = self.requests.iter_mut().map(take).collect();
        self.bytes = self.requests.iter().map(memory_bytes).sum();
        taken
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= HELD_COMMIT_BYTES_MAX
    }
}

/// What the request takes here: an entry that is encoded as nothing takes room too.
fn memory_bytes(request: &CommitDataRequest) -> usize {
    let moves = request.chunks_to_move.iter().map(|entry| size_of::<ChunksToMove>() + entry.data().len());
    let patches = request.chunks_to_patch.iter().map(|entry| {
        let patches = entry.patches.iter().map(|patch| size_of::<Patch>() + patch.data().len());
        size_of::<ChunkToPatch>() + patches.sum::<usize>()
    });
    size_of::<CommitDataRequest>() + moves.chain(patches).sum::<usize>()
}

impl Producer {
    /// Whether commits have to wait for the acknowledgement of a flush.
    pub(super) fn holds_commits(&self) -> bool {
        matches!(self.chunks, ChunkSource::Messages) && !self.awaited.is_empty()
    }
}

impl Service {
    /// Commits what is held for the session, which ends, of all its producers.
    pub(crate) fn commit_all_held(&mut self, session_id: SessionId) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let producer_ids: Vec<ProducerId> = session.producers.iter().copied().collect();
        producer_ids.into_iter().for_each(|producer_id| self.commit_held_for(session_id, producer_id));
    }

    /// Commits what is held of the producer for the session, as one batch. What is for others stays
    /// held where the flush of one of them is still to be acknowledged.
    pub(crate) fn commit_held_for(&mut self, session_id: SessionId, producer_id: ProducerId) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let Some(producer) = self.producers.get_mut(&producer_id) else { return };
        if producer.awaited.values().all(|flushed| *flushed == session_id) {
            return self.commit_held(producer_id);
        }
        let requests = producer.held.split_off_buffers(&session.buffers);
        self.commit_requests(producer_id, &requests.iter().collect::<Vec<_>>());
    }

    /// Commits what is held of a writer of the producer, which ends: nothing more of it comes.
    pub(super) fn commit_held_of_writer(&mut self, producer_id: ProducerId, writer_id: u16) {
        let Some(producer) = self.producers.get_mut(&producer_id) else { return };
        let requests = producer.held.split_off_writer(writer_id);
        if !requests.is_empty() {
            self.commit_requests(producer_id, &requests.iter().collect::<Vec<_>>());
        }
    }

    /// Commits what is held of the producer, as one batch.
    pub(crate) fn commit_held(&mut self, producer_id: ProducerId) {
        let Some(producer) = self.producers.get_mut(&producer_id) else { return };
        let HeldCommits { requests, .. } = std::mem::take(&mut producer.held);
        if !requests.is_empty() {
            self.commit_requests(producer_id, &requests.iter().collect::<Vec<_>>());
        }
    }
}
