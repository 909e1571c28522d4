//! What another thread does for a clone: it makes memory ready before data sources are flushed, for
//! the system may take long to find it, and copies the buffers behind that, which waits for threads
//! that have a shard. The loop reads commits meanwhile.
//!
//! ```text
//!   the service's thread                               any thread
//!   poll_clone: memory is wanted                 --->  run: maps it, and touches its pages
//!   handle_clone_work: flushes                   <---  the memory
//!   poll_clone: flushed, no read is under way    --->  run: a cut of each buffer, then copies
//!   handle_clone_work: a session                 <---  the copies
//! ```
//!
//! What a buffer has to know that takes the place of another one is looked up there, too:
//! [`Succession`](crate::buffers::Succession).
//!
//! When the buffers are copied little of the memory is missing: what they have filled since. From
//! then until the copies are there no read of the original begins, for a consumer or a file.

use std::sync::Arc;

use watershed_shards::{CloneMemory, ShardedBuffer};

use crate::buffers::Buffer;
use crate::buffers::Succession;
use crate::clock::ClockReadings;
use crate::ids::{BufferId, SessionId};
use crate::service::Service;
use crate::session::clone_taking::CloneGroup;
use crate::session::{PendingClone, Session};

/// What a pending clone needs of another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloneTask {
    /// Nothing, now.
    Nothing,
    Wanted(TaskKind),
    UnderWay(TaskKind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskKind {
    Memory,
    Copy,
}

/// Something to be done for a clone. See [`Service::poll_clone`].
#[derive(Debug)]
pub struct CloneWork(Work);

#[derive(Debug)]
enum Work {
    Buffers(BufferWork),
    Succession(BufferId, Arc<Succession>),
}

#[derive(Debug)]
struct BufferWork {
    source_id: SessionId,
    clone_id: SessionId,
    kind: TaskKind,
    /// Those that are copied, with their index in the config.
    buffers: Vec<(usize, Arc<ShardedBuffer>, Option<CloneMemory>)>,
}

/// What came of a [`CloneWork`], for [`Service::handle_clone_work`].
#[derive(Debug)]
pub struct CloneWorkDone(Done);

#[derive(Debug)]
enum Done {
    Buffers { source_id: SessionId, clone_id: SessionId, result: BufferResult },
    Succession(BufferId, Arc<Succession>),
}

/// By index.
#[derive(Debug)]
enum BufferResult {
    Memory(Vec<(usize, CloneMemory)>),
    Copies(Vec<(usize, Result<ShardedBuffer, String>)>),
}

impl CloneWork {
    /// Whether commits wait for it: then it takes no longer than a thread has a shard.
    pub fn holds_commits(&self) -> bool {
        matches!(self.0, Work::Succession(..))
    }

    /// Does it. Committers go on meanwhile. Waits for threads that have a shard.
    pub fn run(self) -> CloneWorkDone {
        CloneWorkDone(match self.0 {
            Work::Succession(buffer_id, succession) => {
                succession.run();
                Done::Succession(buffer_id, succession)
            }
            Work::Buffers(BufferWork { source_id, clone_id, kind, buffers }) => {
                let result = match kind {
                    TaskKind::Memory => BufferResult::Memory(memory(buffers)),
                    TaskKind::Copy => BufferResult::Copies(copies(buffers)),
                };
                Done::Buffers { source_id, clone_id, result }
            }
        })
    }
}

/// Memory for copies. Where there is none now, the copy tries again, and says what failed.
fn memory(buffers: Vec<(usize, Arc<ShardedBuffer>, Option<CloneMemory>)>) -> Vec<(usize, CloneMemory)> {
    let of_one =
        |(index, trace, _): (usize, Arc<ShardedBuffer>, _)| Some((index, trace.clone_memory().ok()?));
    buffers.into_iter().filter_map(of_one).collect()
}

/// Copies of all, as they are at one time.
fn copies(
    buffers: Vec<(usize, Arc<ShardedBuffer>, Option<CloneMemory>)>,
) -> Vec<(usize, Result<ShardedBuffer, String>)> {
    let cuts: Vec<u64> = buffers.iter().map(|(_, trace, _)| trace.cut()).collect();
    let copy = |((index, trace, memory), cut): ((usize, Arc<ShardedBuffer>, _), u64)| {
        (index, trace.clone_in_memory(cut, memory).map_err(|error| error.to_string()))
    };
    buffers.into_iter().zip(cuts).map(copy).collect()
}

impl Session {
    /// Whether buffers of it are being copied, or are to be.
    pub(crate) fn is_being_copied(&self) -> bool {
        let is_copy = |task| matches!(task, CloneTask::Wanted(kind) | CloneTask::UnderWay(kind) if kind == TaskKind::Copy);
        self.clones.values().any(|clone| is_copy(clone.task))
    }
}

impl Service {
    /// What is to be done for a clone, if the shell
    /// [has threads that may wait](crate::ServiceOptions::never_waits). To be called until `None`
    /// after every other call.
    pub fn poll_clone(&mut self) -> Option<CloneWork> {
        if let Some((buffer_id, succession)) = self.successions.pop_front() {
            return Some(CloneWork(Work::Succession(buffer_id, succession)));
        }
        self.sessions.iter_mut().find_map(|(source_id, session)| {
            let wanted = |clone: &PendingClone| match clone.task {
                CloneTask::Wanted(kind) => Some(kind),
                _ => None,
            };
            let mut clones = session.clones.iter_mut();
            let (clone_id, clone, kind) =
                clones.find_map(|(id, clone)| wanted(clone).map(|kind| (*id, clone, kind)))?;
            clone.task = CloneTask::UnderWay(kind);
            let mut memory = std::mem::take(&mut clone.memory);
            let mut take_memory = |index: usize| {
                let at = memory.iter().position(|(of, _)| *of == index)?;
                Some(memory.swap_remove(at).1)
            };
            let copied =
                (0..session.buffers.len()).filter(|index| session.clone_group(*index) == CloneGroup::Copied);
            let trace = |index: usize| {
                let buffer = self.buffers.get(*session.buffers.get(index)?)?;
                Some((index, Arc::clone(&buffer.trace), take_memory(index)))
            };
            let buffers = copied.filter_map(trace).collect();
            Some(CloneWork(Work::Buffers(BufferWork { source_id: *source_id, clone_id, kind, buffers })))
        })
    }

    /// Something has been done for a clone, which goes on. Ignored if nobody wants it any more.
    pub fn handle_clone_work(&mut self, done: CloneWorkDone, now: &ClockReadings) {
        let (source_id, clone_id, result) = match done.0 {
            Done::Buffers { source_id, clone_id, result } => (source_id, clone_id, result),
            Done::Succession(buffer_id, succession) => {
                self.succeeded(buffer_id, succession);
                self.retry_commits();
                return self.go_on_with_waiting_clones(now);
            }
        };
        let session = self.sessions.get_mut(&source_id);
        let Some(clone) = session.and_then(|session| session.clones.get_mut(&clone_id)) else {
            return self.discard(result);
        };
        clone.task = CloneTask::Nothing;
        match result {
            BufferResult::Memory(memory) => {
                clone.memory = memory;
                self.flush_for_clone(source_id, clone_id, now);
            }
            BufferResult::Copies(copies) => {
                for (index, copy) in copies {
                    match copy {
                        Ok(trace) => clone.taken[index] = Some((Buffer::of_clone(trace), clone.copied_at_ns)),
                        Err(reason) => clone.error = Some(reason),
                    }
                }
                self.go_on_with_clones(source_id, now);
            }
        }
    }
}
