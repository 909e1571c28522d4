//! Writers in the process of the service: the threads that write commit themselves, each by a
//! committer of its own.
//!
//! ```text
//!   the writer's thread                  its entry                      the service's thread
//!     chunk: Complete -> BeingRead  -->  waiting: a batch
//!     own is free: lock it, commit       own: Committer, once asked <-- locks it to look or to end:
//!     it is locked: go on                                               scrape, drain, erase;
//!                                                                       then commits what waits
//!   first chunk: note the sequence, -->  table: producer and buffer <-- a source is set up, a buffer
//!                make the committer             -> where to commit      is replaced or goes
//! ```
//!
//! What holds:
//!
//! - No lock that two writers share is on the way of a chunk but for the first one of a writer,
//!   which asks the table. `own` and `waiting` are one writer's; the service locks them when a
//!   session is flushed, cloned, or over. Nobody waits for `own` but the service.
//! - Nothing stays in `waiting`, unless a queue is full or the service scrapes; then the service
//!   commits it: see [`handshake`].
//! - A writer wakes the service where a queue is full, where a commit has left work because its
//!   budget was spent, and in a ring's first lap where little memory is ready ahead of it.
//! - A scrape locks the `own` of all writers of the producer. So what it finds is not freed while
//!   it is copied, and what is committed later comes behind it. And all that was written before the
//!   scrape began is in the buffers when it is over: a flush may answer.
//! - A buffer that goes takes all committers with it, and their writers get no other one: what they
//!   write is discarded and counted, whoever gets the number of the buffer later.
//! - A sequence is noted in its session before its first chunk has a ticket.

mod handshake;
mod table;
mod writer;

use std::sync::{Arc, OnceLock};

use watershed_engine::{Patch, ProducerId, WriterId};

use crate::ids::BufferId;
use crate::limits::is_writer_id;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use table::Table;
pub(crate) use table::Target;
use writer::Writer;

/// Hands out committers to the threads of the service's own process. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct DirectCommits(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// Wakes the service's thread.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// It was woken, and has not asked why yet.
    is_woken: AtomicBool,
    /// Some batch waits because a queue was full.
    is_stuck: AtomicBool,
    // What is counted. Relaxed throughout: nothing is published by it.
    num_stuck_ever: AtomicU64,
    chunks_discarded: AtomicU64,
    patches_discarded: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectCommits").field("is_stuck", &self.is_stuck).finish_non_exhaustive()
    }
}

impl Shared {
    fn wake_service(&self) {
        // AcqRel: pairs with the swap in `take_wanted`. Whoever finds it set has done before what
        // the service is about to look for.
        if !self.is_woken.swap(true, Ordering::AcqRel)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    fn note_stuck(&self) {
        self.num_stuck_ever.fetch_add(1, Ordering::Relaxed);
        // Release: pairs with the Acquire of `take_stuck`, which then finds the batch.
        self.is_stuck.store(true, Ordering::Release);
    }
}

impl DirectCommits {
    /// `wake` makes the thread of the service call [`Service::handle_wanted`]. It must not wait for
    /// it. Only the first call has an effect.
    ///
    /// [`Service::handle_wanted`]: crate::Service::handle_wanted
    pub fn on_wanted(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.wake.set(Box::new(wake));
    }

    /// A committer for a writer of a producer of this process, which says that the writer writes to
    /// this buffer and nowhere else. `None` if the producer may not write there, or if a writer of
    /// this number has not ended: then commits go through [`Service::handle_commit_data`].
    ///
    /// The end of the writer is told by [`Service::handle_unregister_trace_writer`]. Until that has
    /// returned the number belongs to the writer.
    ///
    /// [`Service::handle_commit_data`]: crate::Service::handle_commit_data
    /// [`Service::handle_unregister_trace_writer`]: crate::Service::handle_unregister_trace_writer
    pub fn committer(
        &self,
        producer_id: ProducerId,
        writer_id: u16,
        target_buffer: u16,
    ) -> Option<DirectCommitter> {
        let buffer_id = BufferId(target_buffer);
        let mut table = lock(&self.0.table);
        if !is_writer_id(writer_id.into()) {
            return None;
        }
        let Target { smb, identity, .. } = table.target(producer_id, buffer_id)?;
        let writer = Writer::new(producer_id, WriterId(writer_id), buffer_id, smb.clone(), *identity);
        let writer = Arc::new(writer);
        table.insert(Arc::clone(&writer)).then(|| DirectCommitter { writer, shared: Arc::clone(&self.0) })
    }
}

/// One writer's committer. Never waits for the service; commits to a buffer that is gone are
/// discarded and counted.
#[derive(Debug)]
pub struct DirectCommitter {
    writer: Arc<Writer>,
    shared: Arc<Shared>,
}

impl DirectCommitter {
    /// Commits a chunk that the writer has completed. Nothing happens if there is no such chunk.
    pub fn commit_chunk(&mut self, page: usize, chunk: usize) {
        if self.writer.put_chunk(page, chunk) {
            self.writer.commit(&self.shared);
        }
    }

    /// Commits patches for a chunk that was committed before: places in its payload, and what to
    /// put there. `has_more`: others follow later.
    pub fn commit_patches(&mut self, chunk_id: u32, patches: Vec<(u32, [u8; 4])>, has_more: bool) {
        let patch = |(offset_untrusted, data)| Patch { offset_untrusted, data };
        self.writer.put_patches(chunk_id, patches.into_iter().map(patch).collect(), has_more);
        self.writer.commit(&self.shared);
    }
}

// The service's side. All of it is for the service's thread.
impl DirectCommits {
    /// The producer may write to a buffer.
    pub(crate) fn allow(&self, producer_id: ProducerId, buffer_id: BufferId, target: Target) {
        lock(&self.0.table).allow(producer_id, buffer_id, target);
    }

    /// A buffer has been replaced by another one, to which its writers commit from now on.
    pub(crate) fn replace(&self, buffer_id: BufferId, trace: &Arc<watershed_shards::ShardedBuffer>) {
        lock(&self.0.table).replace(buffer_id, trace);
        self.each(|writer| writer.buffer_id == buffer_id, |writer| writer.drop_committer(&self.0));
    }

    /// A buffer goes. No committer for it is left, or will be there again.
    pub(crate) fn remove_buffer(&self, buffer_id: BufferId) {
        lock(&self.0.table).forbid(|_, buffer| buffer == buffer_id);
        self.each(|writer| writer.buffer_id == buffer_id, |writer| writer.close(&self.0));
    }

    /// A producer has gone, and its writers.
    pub(crate) fn remove_producer(&self, producer_id: ProducerId) {
        lock(&self.0.table).forbid(|producer, _| producer == producer_id);
        self.each(|writer| writer.producer_id == producer_id, |writer| writer.close(&self.0));
        lock(&self.0.table).remove_writers(producer_id);
    }

    /// A writer has ended. What it has committed is in its buffer afterwards.
    pub(crate) fn remove_writer(&self, producer_id: ProducerId, writer_id: WriterId) {
        let writer = lock(&self.0.table).remove_writer(producer_id, writer_id);
        if let Some(writer) = writer {
            writer.drain(&self.0);
            writer.close(&self.0);
        }
    }

    /// Whether the writer has a committer: its sequence must not be forgotten.
    pub(crate) fn has_writer(&self, producer_id: ProducerId, writer_id: WriterId) -> bool {
        lock(&self.0.table).has_writer(producer_id, writer_id)
    }

    /// Calls `scrape` while no writer of the producer commits: what they have committed before is
    /// in the buffers, and what comes meanwhile is committed afterwards.
    pub(crate) fn while_held<T>(&self, producer_id: ProducerId, scrape: impl FnOnce() -> T) -> T {
        let writers = lock(&self.0.table).begin_scrape(producer_id);
        let held: Vec<_> = writers.iter().map(|writer| writer.hold()).collect();
        let scraped = scrape();
        // Before the writers are let go: one that comes now may have a committer again.
        lock(&self.0.table).end_scrape();
        drop(held);
        // Also those that came meanwhile.
        self.each(|_| true, |writer| writer.commit_left(&self.0));
        scraped
    }

    /// Commits all that waits for a buffer.
    pub(crate) fn drain(&self, buffer_id: BufferId) {
        self.each(|writer| writer.buffer_id == buffer_id, |writer| writer.drain(&self.0));
    }

    /// Whether a batch waits for room in a queue.
    pub(crate) fn is_stuck(&self) -> bool {
        // Relaxed: who looks for the batch asks `retry`.
        self.0.is_stuck.load(Ordering::Relaxed)
    }

    /// Tries batches again that wait for room.
    pub(crate) fn retry(&self) {
        // Acquire: pairs with the Release of `note_stuck`.
        if self.0.is_stuck.swap(false, Ordering::Acquire) {
            self.each(|_| true, |writer| writer.commit_left(&self.0));
        }
    }

    /// A writer may wake the service again.
    pub(crate) fn forget_wake(&self) {
        // AcqRel: as in `wake_service`.
        self.0.is_woken.swap(false, Ordering::AcqRel);
    }

    /// How often a batch had to wait for room.
    pub(crate) fn num_stuck_ever(&self) -> u64 {
        self.0.num_stuck_ever.load(Ordering::Relaxed)
    }

    /// Chunks and patches that were not taken.
    pub(crate) fn discarded(&self) -> (u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.0.chunks_discarded), get(&self.0.patches_discarded))
    }

    /// Visits some of the writers. The table is not locked meanwhile: a writer may ask it with its
    /// `own` locked, for which the service may wait.
    fn each(&self, is_meant: impl Fn(&Writer) -> bool, visit: impl FnMut(&Writer)) {
        let writers = lock(&self.0.table).writers(is_meant);
        writers.iter().map(|writer| &**writer).for_each(visit);
    }
}

#[cfg(test)]
mod tests;
