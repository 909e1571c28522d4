//! One writer's entry: what waits to be committed, and the committer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use watershed_engine::{ChunkFlags, ChunkId, ChunkInfo, ClientIdentity, Patch, ProducerId, WriterId};
use watershed_shards::{Batch, CommitError, Committer, PatchSet, ShardedBuffer, Source};
use watershed_smb::Smb;

use super::Shared;
use super::table::{Access, Target};
use crate::buffers::release;
use crate::ids::BufferId;
use crate::service::PREFAULT_BYTES;
use crate::sync::{Arc, Mutex, MutexGuard, Ordering, lock, try_lock};

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
    /// Locked by the writer's thread only where it is free.
    own: Mutex<Own>,
    /// Put here by the writer's thread. Locked to put something in or to take it out, no longer.
    pub(super) waiting: Mutex<Batch<'static>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Writer { producer_id, writer_id, buffer_id, .. } = self;
        f.debug_struct("Writer").field("id", &(producer_id, writer_id, buffer_id)).finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(super) struct Own {
    access: OwnAccess,
    /// What is being committed. Empty otherwise: its memory is used again.
    batch: Batch<'static>,
}

#[derive(Default)]
enum OwnAccess {
    /// The table says more.
    #[default]
    Unasked,
    Granted(Box<Committer>, Arc<ShardedBuffer>),
    /// The buffer is gone, or the writer has ended.
    Closed,
}

/// Why something still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// There is no room in a queue.
    NoRoom,
    /// The service scrapes.
    Scrape,
}

impl Writer {
    pub(super) fn new(
        producer_id: ProducerId,
        writer_id: WriterId,
        buffer_id: BufferId,
        smb: Smb,
        identity: ClientIdentity,
    ) -> Writer {
        let (own, waiting) = (Mutex::default(), Mutex::default());
        Writer { producer_id, writer_id, buffer_id, smb, identity, own, waiting }
    }

    /// Takes a complete chunk. False, and nothing done, if it is not one of the writer's.
    pub(super) fn put_chunk(&self, page: usize, chunk: usize) -> bool {
        // Locked before the chunk is taken: at each moment a scrape finds it, or else who looks
        // into `waiting` behind the scrape. A flush would miss it between the two.
        let mut waiting = lock(&self.waiting);
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
    }

    pub(super) fn put_patches(&self, chunk_id: u32, patches: Vec<Patch>, other_patches_pending: bool) {
        lock(&self.waiting).patches.push(PatchSet {
            producer_id_trusted: self.producer_id,
            writer_id: self.writer_id,
            chunk_id: ChunkId(chunk_id),
            patches,
            other_patches_pending,
        });
    }

    /// Commits what waits. Where the service holds the entry it is left to it.
    pub(super) fn commit(&self, shared: &Shared) {
        let Some(mut own) = try_lock(&self.own) else { return };
        let left = self.commit_waiting(shared, &mut own);
        let needs_service =
            |trace: &ShardedBuffer| trace.has_left_work() || trace.is_prefault_due(PREFAULT_BYTES / 2);
        let is_work_left = matches!(&own.access, OwnAccess::Granted(_, trace) if needs_service(trace));
        drop(own);
        if left == Left::NoRoom {
            shared.note_stuck();
        }
        if left == Left::NoRoom || is_work_left {
            shared.wake_service();
        }
    }

    /// For the service: no commit is under way until what it returns is dropped. Then
    /// [`commit_left`](Self::commit_left) is to be called.
    pub(super) fn hold(&self) -> MutexGuard<'_, Own> {
        lock(&self.own)
    }

    /// For the service: commits what the writer has left because its entry was held, as far as
    /// there is room.
    pub(super) fn commit_left(&self, shared: &Shared) {
        self.commit_all(shared, |_| false);
    }

    /// For the service: commits all that waits, and makes room for it.
    pub(super) fn drain(&self, shared: &Shared) {
        self.commit_all(shared, |own| match &own.access {
            OwnAccess::Granted(_, trace) => {
                trace.drain();
                true
            }
            _ => false,
        });
    }

    fn commit_all(&self, shared: &Shared, make_room: impl Fn(&Own) -> bool) {
        loop {
            let mut own = lock(&self.own);
            let left = self.commit_waiting(shared, &mut own);
            let goes_on = left == Left::Nothing || left == Left::NoRoom && make_room(&own);
            // Unlocked before the look: see the head of the module.
            drop(own);
            if lock(&self.waiting).is_empty() {
                return;
            }
            if !goes_on {
                return shared.note_stuck();
            }
        }
    }

    /// For the service: the buffer is another one from now on.
    pub(super) fn drop_committer(&self) {
        let mut own = lock(&self.own);
        if let OwnAccess::Granted(..) = own.access {
            own.access = OwnAccess::Unasked;
        }
    }

    /// For the service: there is no buffer from now on.
    pub(super) fn close(&self, shared: &Shared) {
        lock(&self.own).access = OwnAccess::Closed;
        self.commit_left(shared);
    }

    fn commit_waiting(&self, shared: &Shared, own: &mut Own) -> Left {
        let Own { access, batch } = own;
        std::mem::swap(batch, &mut *lock(&self.waiting));
        if batch.is_empty() {
            return Left::Nothing;
        }
        if let OwnAccess::Unasked = access {
            match self.ask(shared) {
                Some(answer) => *access = answer,
                None => {
                    self.put_back(batch);
                    return Left::Scrape;
                }
            }
        }
        let OwnAccess::Granted(committer, _) = access else {
            discard(shared, batch);
            return Left::Nothing;
        };
        // An engine with a mistake must not take the program's thread down.
        let Ok(committed) = catch_unwind(AssertUnwindSafe(|| committer.commit(batch))) else {
            // Its shard is poisoned. Some of the chunks may be free: none is freed again.
            shared.chunks_discarded.fetch_add(batch.chunks.len() as u64, Ordering::Relaxed);
            (*batch, *access) = (Batch::default(), OwnAccess::Unasked);
            return Left::Nothing;
        };
        match committed {
            Ok(()) => Left::Nothing,
            Err(CommitError::QueueFull(_)) => {
                self.put_back(batch);
                Left::NoRoom
            }
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

    /// In front of what has come meanwhile. The batch is empty afterwards.
    pub(super) fn put_back(&self, batch: &mut Batch<'static>) {
        let mut waiting = lock(&self.waiting);
        batch.chunks.append(&mut waiting.chunks);
        batch.patches.append(&mut waiting.patches);
        batch.memory = batch.memory.take().or(waiting.memory.take());
        std::mem::swap(batch, &mut *waiting);
    }

    /// `None` while there is a scrape.
    fn ask(&self, shared: &Shared) -> Option<OwnAccess> {
        let access = lock(&shared.table).access(self);
        match access {
            Access::Later => None,
            Access::Gone => Some(OwnAccess::Closed),
            Access::Target(Target { trace, sequences, identity, .. }) => {
                // Before the first chunk has a ticket: who reads it finds the sequence. What is
                // forgotten for it, is when writers end.
                sequences.lock().note(self.producer_id, self.writer_id, identity);
                let committer = trace.committer().map(Box::new);
                Some(committer.map_or(OwnAccess::Closed, |committer| OwnAccess::Granted(committer, trace)))
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        release(std::mem::take(&mut *lock(&self.waiting)));
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
