//! What waits to be sent to the service in one message.

use std::time::Duration;

use watershed_smb::{Smb, TransitionError, WriteChunk};
use watershed_wire::Encode as _;
use watershed_wire::framing::FRAME_SIZE_BYTES_MAX;
use watershed_wire::protos::CommitDataRequest;
use watershed_wire::protos::commit_data_request::chunk_to_patch::Patch;
use watershed_wire::protos::commit_data_request::{ChunkToPatch, ChunksToMove};
use watershed_wire::raw::delimited_len;

use super::Returned;
use crate::endpoint::Done;
use crate::writer::PatchGroup;

/// A chunk that needs patches and waits in the batch, still BeingWritten, so that they can be
/// written into it.
struct Held {
    chunk: WriteChunk,
    writer_id: u16,
    chunk_id: u32,
}

/// What a request may take of a frame. The rest is for what is around it: ids, sizes, and whether a
/// reply is wanted.
const REQUEST_SIZE_BYTES_MAX: usize = FRAME_SIZE_BYTES_MAX - 512;

/// Cuts a request where it does not fit a frame: chunks first, so that patches never come before
/// the chunk that they are for, and the answer to a flush in the last piece, behind all data.
fn pieces(mut request: CommitDataRequest) -> Vec<CommitDataRequest> {
    let mut pieces = Vec::new();
    if request.encoded_len() > REQUEST_SIZE_BYTES_MAX {
        let mut piece = CommitDataRequest::default();
        let mut size_bytes = 0;
        // The keys of both fields have one byte. An entry has at most 1024 patches: it fits by far.
        let mut room_for = |piece: &mut CommitDataRequest, entry_bytes: usize| {
            let entry_bytes = delimited_len(1, entry_bytes);
            if size_bytes + entry_bytes > REQUEST_SIZE_BYTES_MAX {
                pieces.push(std::mem::take(piece));
                size_bytes = 0;
            }
            size_bytes += entry_bytes;
        };
        for chunk in std::mem::take(&mut request.chunks_to_move) {
            room_for(&mut piece, chunk.encoded_len());
            piece.chunks_to_move.push(chunk);
        }
        for patches in std::mem::take(&mut request.chunks_to_patch) {
            room_for(&mut piece, patches.encoded_len());
            piece.chunks_to_patch.push(patches);
        }
        request.chunks_to_move = piece.chunks_to_move;
        request.chunks_to_patch = piece.chunks_to_patch;
    }
    pieces.push(request);
    pieces
}

/// How soon the batch will be sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scheduled {
    Not,
    AfterBatching,
    Now,
}

pub(super) struct Batch {
    request: CommitDataRequest,
    held: Vec<Held>,
    registered: Vec<(u16, u16)>,
    unregistered: Vec<u16>,
    done: Vec<Done>,
    /// Someone wants a message even if there is nothing in it.
    wanted: bool,
    scheduled: Scheduled,
    /// Bytes of the chunks in the batch.
    pending_bytes: usize,
}

/// A batch that was taken, in the order of sending.
pub(super) struct Outgoing {
    pub(super) registered: Vec<(u16, u16)>,
    /// To be made Complete before the request is sent.
    pub(super) held: Vec<WriteChunk>,
    /// In pieces that fit a frame each, mostly one.
    pub(super) requests: Vec<CommitDataRequest>,
    /// For the last of them.
    pub(super) done: Option<Done>,
    pub(super) unregistered: Vec<u16>,
}

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            request: CommitDataRequest::default(),
            held: Vec::new(),
            registered: Vec::new(),
            unregistered: Vec::new(),
            done: Vec::new(),
            wanted: false,
            scheduled: Scheduled::Not,
            pending_bytes: 0,
        }
    }

    /// One that is never sent, but appended to one that is.
    pub(super) fn waiting() -> Self {
        Self { scheduled: Scheduled::Now, ..Self::new() }
    }

    /// Takes over what has waited, for a buffer.
    pub(super) fn append(&mut self, waited: Batch, buffer: u16) {
        let Self { mut request, held, registered, unregistered, done, wanted, pending_bytes, .. } = waited;
        request.chunks_to_move.iter_mut().for_each(|chunk| chunk.target_buffer = Some(buffer.into()));
        request.chunks_to_patch.iter_mut().for_each(|patch| patch.target_buffer = Some(buffer.into()));
        self.request.chunks_to_move.append(&mut request.chunks_to_move);
        self.request.chunks_to_patch.append(&mut request.chunks_to_patch);
        self.held.extend(held);
        self.registered.extend(registered.into_iter().map(|(writer_id, _)| (writer_id, buffer)));
        self.unregistered.extend(unregistered);
        self.done.extend(done);
        self.wanted |= wanted;
        self.pending_bytes += pending_bytes;
    }

    pub(super) fn register(&mut self, writer_id: u16, target_buffer: u16) {
        self.registered.push((writer_id, target_buffer));
    }

    pub(super) fn unregister(&mut self, writer_id: u16) {
        self.unregistered.push(writer_id);
    }

    /// Adds a chunk. With `hold` it stays BeingWritten until its patches are in or the batch is
    /// sent.
    pub(super) fn add_chunk(
        &mut self,
        smb: &Smb,
        returned: Returned,
        target_buffer: u16,
        hold: bool,
    ) -> Result<(), TransitionError> {
        let Returned { chunk, writer_id, chunk_id, .. } = returned;
        let place = ChunksToMove {
            page: Some(chunk.page() as u32),
            chunk: Some(chunk.index() as u32),
            target_buffer: Some(target_buffer.into()),
            ..ChunksToMove::default()
        };
        self.pending_bytes += chunk.payload_size_bytes() + watershed_smb::CHUNK_HEADER_BYTES;
        if hold {
            self.held.push(Held { chunk, writer_id, chunk_id });
        } else {
            smb.complete(chunk)?;
        }
        self.request.chunks_to_move.push(place);
        Ok(())
    }

    /// Adds patches, or writes them into their chunk if it is held here.
    pub(super) fn add_patches(
        &mut self,
        smb: &Smb,
        writer_id: u16,
        target_buffer: u16,
        group: PatchGroup,
    ) -> Result<(), TransitionError> {
        let PatchGroup { chunk_id, patches, has_more } = group;
        let held = self.held.iter().rposition(|h| h.writer_id == writer_id && h.chunk_id == chunk_id);
        if let Some(held) = held {
            for (offset, data) in patches {
                smb.write_payload(&self.held[held].chunk, offset as usize, &data);
            }
            if !has_more {
                let Held { chunk, .. } = self.held.swap_remove(held);
                smb.clear_needs_patching(&chunk);
                smb.complete(chunk)?;
            }
            return Ok(());
        }
        let patch =
            |(offset, data): (u32, [u8; 4])| Patch { offset: Some(offset), data: Some(data.to_vec()) };
        self.request.chunks_to_patch.push(ChunkToPatch {
            target_buffer: Some(target_buffer.into()),
            writer_id: Some(writer_id.into()),
            chunk_id: Some(chunk_id),
            patches: patches.into_iter().map(patch).collect(),
            has_more_patches: Some(has_more),
        });
        Ok(())
    }

    pub(super) fn flush_done(&mut self, request_id: u64) {
        let highest = self.request.flush_request_id.unwrap_or(0).max(request_id);
        self.request.flush_request_id = Some(highest);
        self.wanted = true;
    }

    pub(super) fn done(&mut self, done: Option<Done>) {
        self.wanted = true;
        self.done.extend(done);
    }

    pub(super) fn has_patches(&self) -> bool {
        !self.request.chunks_to_patch.is_empty()
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// The delay of a wake-up that is needed on top of those that are under way.
    pub(super) fn schedule(&mut self, urgent: bool, batching: Duration) -> Option<Duration> {
        let nothing = self.registered.is_empty()
            && self.unregistered.is_empty()
            && self.request.chunks_to_move.is_empty()
            && !self.has_patches()
            && !self.wanted;
        let wanted = if urgent || batching.is_zero() { Scheduled::Now } else { Scheduled::AfterBatching };
        if nothing || self.scheduled >= wanted {
            return None;
        }
        self.scheduled = wanted;
        Some(if wanted == Scheduled::Now { Duration::ZERO } else { batching })
    }

    /// Takes everything and starts over.
    pub(super) fn take(&mut self) -> Outgoing {
        let Self { request, held, registered, unregistered, done, wanted, .. } =
            std::mem::replace(self, Self::new());
        let empty = request.chunks_to_move.is_empty() && request.chunks_to_patch.is_empty();
        let done = (!done.is_empty())
            .then(|| -> Done { Box::new(move || done.into_iter().for_each(|done| done())) });
        Outgoing {
            registered,
            held: held.into_iter().map(|held| held.chunk).collect(),
            requests: if empty && !wanted { Vec::new() } else { pieces(request) },
            done,
            unregistered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_cut_to_fit_a_frame_and_keeps_its_order() {
        let chunk = |page| ChunksToMove { page: Some(page), chunk: Some(1), ..Default::default() };
        let patch = Patch { offset: Some(1000), data: Some(vec![1; 4]) };
        let patches = |chunk_id| ChunkToPatch {
            chunk_id: Some(chunk_id),
            patches: vec![patch.clone(); 1024],
            ..Default::default()
        };
        let whole = CommitDataRequest {
            chunks_to_move: (0..30_000).map(chunk).collect(),
            chunks_to_patch: (0..40).map(patches).collect(),
            flush_request_id: Some(7),
        };
        let pieces = pieces(whole.clone());
        assert!(pieces.len() > 5, "{}", pieces.len());
        let mut together = CommitDataRequest::default();
        for piece in &pieces {
            assert!(piece.encoded_len() <= REQUEST_SIZE_BYTES_MAX, "{}", piece.encoded_len());
            assert!(together.chunks_to_patch.is_empty() || piece.chunks_to_move.is_empty());
            assert_eq!(together.flush_request_id, None, "the answer to the flush is the last thing");
            together.chunks_to_move.extend(piece.chunks_to_move.clone());
            together.chunks_to_patch.extend(piece.chunks_to_patch.clone());
            together.flush_request_id = piece.flush_request_id;
        }
        assert_eq!(together, whole);
        let none = CommitDataRequest::default();
        assert_eq!(super::pieces(none.clone()), [none], "nothing at all is still said");
    }
}
