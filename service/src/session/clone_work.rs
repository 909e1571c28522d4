//! The memory of clones, made ready by another thread before the buffers are copied: the system
//! may take long to find it, and the loop would read no commits meanwhile.
//!
//! ```text
//!   the service's thread                               any thread
//!   poll_clone: whose memory is wanted           --->  run: maps it, and touches its pages
//!   handle_clone_memory: flushes, then copies    <---  the memory
//! ```
//!
//! When the buffers are copied little of it is missing: what they have filled since.

use std::sync::Arc;

use watershed_shards::{CloneMemory as BufferMemory, ShardedBuffer};

use crate::clock::ClockReadings;
use crate::ids::SessionId;
use crate::service::Service;
use crate::session::PendingClone;
use crate::session::clone::CloneGroup;

/// How far the memory of a pending clone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryState {
    /// Somebody is to make it ready.
    Wanted,
    UnderWay,
    /// There is some, or the copy gets it for itself.
    Decided,
}

/// Memory that a clone will need. See [`Service::poll_clone`].
#[derive(Clone, Debug)]
pub struct CloneWork {
    source_id: SessionId,
    clone_id: SessionId,
    /// Those that will be copied, with their index in the config.
    buffers: Vec<(usize, Arc<ShardedBuffer>)>,
}

/// What came of a [`CloneWork`], for [`Service::handle_clone_memory`].
#[derive(Debug)]
pub struct CloneMemory {
    source_id: SessionId,
    clone_id: SessionId,
    ready: Vec<(usize, BufferMemory)>,
}

impl CloneWork {
    /// Makes the memory ready. Committers go on meanwhile.
    pub fn run(self) -> CloneMemory {
        let CloneWork { source_id, clone_id, buffers } = self;
        // Where there is none now, the copy tries again, and says what failed.
        let ready = |(index, buffer): (usize, Arc<ShardedBuffer>)| Some((index, buffer.clone_memory().ok()?));
        CloneMemory { source_id, clone_id, ready: buffers.into_iter().filter_map(ready).collect() }
    }
}

impl Service {
    /// A clone for which memory is to be made ready, if the shell
    /// [does that](crate::ServiceOptions::never_waits). To be called until `None` after every
    /// [`Service::handle_clone_session`].
    pub fn poll_clone(&mut self) -> Option<CloneWork> {
        self.sessions.iter_mut().find_map(|(source_id, session)| {
            let indices: Vec<usize> = (0..session.buffers.len())
                .filter(|index| session.clone_group(*index) == CloneGroup::Copied)
                .collect();
            let is_wanted = |clone: &PendingClone| clone.memory_state == MemoryState::Wanted;
            let (clone_id, clone) = session.clones.iter_mut().find(|(_, clone)| is_wanted(clone))?;
            clone.memory_state = MemoryState::UnderWay;
            let trace = |index: usize| {
                let buffer = self.buffers.get(*session.buffers.get(index)?)?;
                Some((index, Arc::clone(&buffer.trace)))
            };
            let buffers = indices.into_iter().filter_map(trace).collect();
            Some(CloneWork { source_id: *source_id, clone_id: *clone_id, buffers })
        })
    }

    /// The memory of a clone is there: the clone goes on. Ignored if nobody wants it any more.
    pub fn handle_clone_memory(&mut self, memory: CloneMemory, now: &ClockReadings) {
        let CloneMemory { source_id, clone_id, ready } = memory;
        let session = self.sessions.get_mut(&source_id);
        let Some(clone) = session.and_then(|session| session.clones.get_mut(&clone_id)) else { return };
        if std::mem::replace(&mut clone.memory_state, MemoryState::Decided) != MemoryState::UnderWay {
            return;
        }
        clone.memory = ready;
        self.flush_for_clone(source_id, clone_id, now);
    }
}
