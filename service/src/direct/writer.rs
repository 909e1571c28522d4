//! One writer's entry: what waits to be committed, and the committer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use watershed_engine::{ChunkFlags, ChunkId, ChunkInfo, ClientIdentity, Patch, ProducerId, WriterId};
use watershed_shards::{Batch, CommitError, Committer, PatchSet, ShardedBuffer, Source};
use watershed_smb::Smb;

use super::Shared;
use super::handshake::{Handshake, Left, Own, Pending};
use super::table::{Answer, Target};
use crate::buffers::release;
use crate::ids::BufferId;
use crate::prefault;
use crate::sync::{Arc, MutexGuard, Ordering, lock};

/// Writers of other threads are not in its cache lines, which processors fetch in pairs.
#[repr(align(128))]
pub(super) struct Writer {
    pub(super) producer_id: ProducerId,
    pub(super) writer_id: WriterId,
    /// The only buffer to which it writes.
    pub(super) buffer_id: BufferId,
    /// The producer's memory.
    smb: Smb,
    identity: ClientIdentity,
    pub(super) handshake: Handshake<Access, Batch<'static>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Writer { producer_id, writer_id, buffer_id, .. } = self;
        f.debug_struct("Writer").field("id", &(producer_id, writer_id, buffer_id)).finish_non_exhaustive()
    }
}

/// What the writer may do.
#[derive(Default)]
pub(super) enum Access {
    /// The table says more.
    #[default]
    Unasked,
    Granted(Box<Committer>, Arc<ShardedBuffer>),
    /// The buffer is gone, or the writer has ended.
    Closed,
}

impl Pending for Batch<'static> {
    fn is_empty(&self) -> bool {
        Batch::is_empty(self)
    }

    fn append(&mut self, later: &mut Self) {
        self.chunks.append(&mut later.chunks);
        self.patches.append(&mut later.patches);
        self.memory = self.memory.take().or(later.memory.take());
    }
}

impl Writer {
    pub(super) fn new(
        producer_id: ProducerId,
        writer_id: WriterId,
        buffer_id: BufferId,
        smb: Smb,
        identity: ClientIdentity,
    ) -> Writer {
        let handshake = Handshake::new(Access::Unasked);
        Writer { producer_id, writer_id, buffer_id, smb, identity, handshake }
    }

    /// Takes a complete chunk. False, and nothing done, if it is not one of the writer's.
    pub(super) fn put_chunk(&self, page: usize, chunk: usize) -> bool {
        // Locked before the chunk is taken: at each moment a scrape finds it, or else who looks
        // into `waiting` behind the scrape. A flush would miss it between the two.
        self.handshake.with_waiting(|waiting| {
            let Ok(chunk) = self.smb.try_begin_read(page, chunk) else { return false };
            let header = chunk.header();
            if header.writer_id != self.writer_id.0 {
                return false; // It is freed.
            }
            let info = ChunkInfo {
                producer_id_trusted: self.producer_id,
                identity_trusted: self.identity,
                writer_id: self.writer_id,
                chunk_id: ChunkId(header.chunk_id),
                num_fragments: header.fragments,
                flags: ChunkFlags(header.flags.bits()),
                complete: true,
            };
            waiting.memory.get_or_insert_with(|| self.smb.clone());
            waiting.chunks.push((info, Source::Shared(chunk.detach())));
            true
        })
    }

    pub(super) fn put_patches(&self, chunk_id: u32, patches: Vec<Patch>, other_patches_pending: bool) {
        let set = PatchSet {
            producer_id_trusted: self.producer_id,
            writer_id: self.writer_id,
            chunk_id: ChunkId(chunk_id),
            patches,
            other_patches_pending,
        };
        self.handshake.with_waiting(|waiting| waiting.patches.push(set));
    }

    /// Commits what waits. Where the service holds the entry it is left to it.
    pub(super) fn commit(&self, shared: &Shared) {
        let needs_service = |trace: &ShardedBuffer| trace.has_left_work() || prefault::is_due(trace);
        let is_work_left =
            |access: &Access| matches!(access, Access::Granted(_, trace) if needs_service(trace));
        let commit =
            |access: &mut Access, batch: &mut Batch<'static>| self.commit_batch(shared, access, batch);
        let Some((left, is_work_left)) = self.handshake.try_commit(commit, is_work_left) else { return };
        if left == Left::NoRoom {
            shared.note_stuck();
        }
        if left == Left::NoRoom || is_work_left {
            shared.wake_service();
        }
    }

    /// For the service: no commit is under way until what it returns is dropped. Then
    /// [`commit_left`](Self::commit_left) is to be called.
    pub(super) fn hold(&self) -> MutexGuard<'_, Own<Access, Batch<'static>>> {
        self.handshake.hold()
    }

    /// For the service: commits what the writer has left because its entry was held, as far as
    /// there is room.
    pub(super) fn commit_left(&self, shared: &Shared) {
        self.commit_all(shared, |_| false);
    }

    /// For the service: commits all that waits, and makes room for it.
    pub(super) fn drain(&self, shared: &Shared) {
        self.commit_all(shared, |access| match access {
            Access::Granted(_, trace) => {
                trace.drain();
                true
            }
            _ => false,
        });
    }

    fn commit_all(&self, shared: &Shared, make_room: impl Fn(&Access) -> bool) {
        let commit =
            |access: &mut Access, batch: &mut Batch<'static>| self.commit_batch(shared, access, batch);
        if !self.handshake.commit_all(commit, make_room) {
            shared.note_stuck();
        }
    }

    /// For the service: the buffer is another one from now on.
    pub(super) fn drop_committer(&self, shared: &Shared) {
        self.handshake.change(|access| {
            if let Access::Granted(..) = access {
                *access = Access::Unasked;
            }
        });
        self.commit_left(shared);
    }

    /// For the service: there is no buffer from now on.
    pub(super) fn close(&self, shared: &Shared) {
        self.handshake.change(|access| *access = Access::Closed);
        self.commit_left(shared);
    }

    fn commit_batch(&self, shared: &Shared, access: &mut Access, batch: &mut Batch<'static>) -> Left {
        if let Access::Unasked = access {
            match self.ask(shared) {
                Some(answer) => *access = answer,
                None => return Left::Scrape,
            }
        }
        let Access::Granted(committer, _) = access else {
            discard(shared, batch);
            return Left::Nothing;
        };
        // An engine with a mistake must not take the program's thread down.
        let Ok(committed) = catch_unwind(AssertUnwindSafe(|| committer.commit(batch))) else {
            // Its shard is poisoned. Some of the chunks may be free: none is freed again.
            shared.chunks_discarded.fetch_add(batch.chunks.len() as u64, Ordering::Relaxed);
            (*batch, *access) = (Batch::default(), Access::Unasked);
            return Left::Nothing;
        };
        match committed {
            Ok(()) => Left::Nothing,
            Err(CommitError::QueueFull(_)) => Left::NoRoom,
            Err(CommitError::Poisoned(chunks)) => {
                shared.chunks_discarded.fetch_add(chunks as u64, Ordering::Relaxed);
                Left::Nothing
            }
            Err(CommitError::Refused(_) | CommitError::NoMemory) => {
                debug_assert!(false, "chunks of shared memory, with that memory");
                discard(shared, batch);
                Left::Nothing
            }
        }
    }

    /// `None` while there is a scrape.
    fn ask(&self, shared: &Shared) -> Option<Access> {
        let answer = lock(&shared.table).access(self);
        match answer {
            Answer::Later => None,
            Answer::Gone => Some(Access::Closed),
            Answer::Target(Target { trace, sequences, identity, .. }) => {
                // Before the first chunk has a ticket: who reads it finds the sequence. What is
                // forgotten for it, is when writers end.
                sequences.lock().note(self.producer_id, self.writer_id, identity);
                let committer = trace.committer().map(Box::new);
                Some(committer.map_or(Access::Closed, |committer| Access::Granted(committer, trace)))
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        release(self.handshake.with_waiting(std::mem::take));
    }
}

/// Gives chunks back that nobody takes, and counts them.
#[cold]
fn discard(shared: &Shared, batch: &mut Batch<'static>) {
    let batch = std::mem::take(batch);
    let num_patches: usize = batch.patches.iter().map(|set| set.patches.len()).sum();
    shared.chunks_discarded.fetch_add(batch.chunks.len() as u64, Ordering::Relaxed);
    shared.patches_discarded.fetch_add(num_patches as u64, Ordering::Relaxed);
    release(batch);
}
