//! How a clone gets its buffers: emptied before, transferred, or copied by another thread
//! ([`clone_work`](super::clone_work)), when the data sources that write into them are flushed.
//!
//! ```text
//!   clone_flushed, for each kind      what waits for room then is behind the clone
//!     go_on_with_clone, until: all that is behind has been committed, and no step of the
//!       |                      file or of a consumer's read is under way
//!       | transferred: empty buffers take their place
//!       | copied: a task for another thread, which comes back here
//!       v
//!     all are there: finish_clone
//! ```

use std::sync::Arc;

use watershed_shards::ShardedBuffer;

use crate::buffers::Buffer;
use crate::buffers::Succession;
use crate::clock::ClockReadings;
use crate::error::CloneRefused;
use crate::ids::{BufferId, SessionId};
use crate::service::Service;
use crate::session::clone_work::{CloneTask, CloneWork, TaskKind};
use crate::session::{FileWriter, Session};

/// Which buffers of a session a flush for a clone is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloneGroup {
    Transferred,
    Copied,
}

/// So many batches of a buffer have to find room.
#[derive(Debug)]
pub(super) struct Behind {
    id: BufferId,
    trace: Arc<ShardedBuffer>,
    num_batches: u64,
}

impl Service {
    /// Empties the buffers whose old contents no clone wants.
    pub(super) fn clear_before_clone(
        &mut self,
        session_id: SessionId,
        now: &ClockReadings,
    ) -> Result<(), CloneRefused> {
        self.settle_unless_never_waits(session_id);
        let Some(session) = self.sessions.get(&session_id) else { return Ok(()) };
        let configs = session.config.message().buffers.iter().zip(&session.buffers).enumerate();
        let cleared: Vec<usize> = configs
            .filter(|(_, (config, id))| config.clear_before_clone() && self.buffers.has_commits(**id))
            .map(|(index, _)| index)
            .collect();
        for index in cleared {
            let old = self.replace_buffer(session_id, index, false, now).map_err(CloneRefused::NoMemory)?;
            self.discard(old);
        }
        Ok(())
    }

    /// Where the service may wait, nothing waits for room behind this.
    fn settle_unless_never_waits(&mut self, session_id: SessionId) {
        if !self.options.never_waits {
            self.settle(session_id);
        }
    }

    /// Puts an empty buffer in the place of one of the session's, and returns that. What waits for
    /// room goes with it, or comes into the empty one.
    fn replace_buffer(
        &mut self,
        session_id: SessionId,
        index: usize,
        keeps_waiting: bool,
        now: &ClockReadings,
    ) -> Result<Buffer, String> {
        let gone = || "the session has ended".to_owned();
        let session = self.sessions.get(&session_id).ok_or_else(gone)?;
        let buffer_id = *session.buffers.get(index).ok_or_else(gone)?;
        let message = session.config.message().clone();
        let config = message.buffers.get(index).ok_or_else(gone)?;
        let page_bytes = self.largest_page_bytes(&message);
        let empty = self.new_buffer(session_id, config, index, page_bytes);
        let empty = empty.map_err(|error| error.to_string())?;
        let replaced = self.buffers.replace(buffer_id, empty, keeps_waiting, now);
        let (replaced, succession) = replaced.ok_or_else(gone)?;
        if self.options.never_waits {
            self.successions.push_back((buffer_id, succession));
        } else {
            succession.run();
            self.succeeded(buffer_id, succession);
        }
        // What was to be told of the other one is begun again, and nothing else keeps its memory.
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session.look = None;
        }
        self.restart_stats(session_id);
        Ok(replaced)
    }

    /// A buffer that has taken the place of another one knows of its writers what it has to.
    pub(super) fn succeeded(&mut self, buffer_id: BufferId, succession: Arc<Succession>) {
        self.buffers.succeeded(buffer_id, &succession);
        let trace = self.buffers.get(buffer_id).map(|buffer| &buffer.trace);
        if let Some(trace) = trace.filter(|trace| succession.is_of(trace)) {
            self.direct.replace(buffer_id, trace);
        }
        self.discard(succession);
    }

    /// Has commits wait no longer for what buffers have to know, where that takes too long.
    pub(crate) fn give_up_successions(&mut self, now: &ClockReadings) {
        if self.buffers.succession_deadlines().all(|deadline| deadline.overdue_ns(now).is_none()) {
            return;
        }
        for (buffer_id, succession) in self.buffers.successions() {
            if succession.is_overdue(now) {
                self.succeeded(buffer_id, succession);
            }
        }
        self.retry_commits();
    }

    /// Does at once what buffers have to know that have taken the place of others, and commits what
    /// waits for that: for a shell that ends, and [hands out](Self::poll_clone) nothing any more.
    pub fn finish_successions(&mut self) {
        for (buffer_id, succession) in self.buffers.successions() {
            succession.run();
            self.succeeded(buffer_id, succession);
        }
        self.retry_commits();
    }

    /// A flush that a clone waits for is over: its buffers are taken, unless a file is copied, too.
    pub(super) fn clone_flushed(
        &mut self,
        session_id: SessionId,
        clone_id: SessionId,
        group: CloneGroup,
        success: bool,
        now: &ClockReadings,
    ) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let Some(clone) = session.clones.get_mut(&clone_id) else { return };
        clone.all_flushed &= success;
        clone.flushes_left -= 1;
        clone.flushed.push(group);
        self.settle_unless_never_waits(session_id);
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let ids = (0..session.buffers.len()).filter(|index| session.clone_group(*index) == group);
        let behind = ids.filter_map(|index| {
            Some((session.buffers[index], self.buffers.waiting_of(session.buffers[index])?))
        });
        let behind: Vec<_> =
            behind.map(|(id, (trace, num_batches))| Behind { id, trace, num_batches }).collect();
        if let Some(clone) = session.clones.get_mut(&clone_id) {
            clone.behind.extend(behind);
        }
        self.go_on_with_clone(session_id, clone_id, now);
    }

    /// Takes the buffers whose flush is over, when what waited for room then has found it, and
    /// unless a step of the file or of a consumer's read is under way. If it has all of them the
    /// clone is made.
    pub(super) fn go_on_with_clone(
        &mut self,
        session_id: SessionId,
        clone_id: SessionId,
        now: &ClockReadings,
    ) {
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let is_being_written = session.file.as_ref().is_some_and(FileWriter::is_being_written);
        let Some(clone) = session.clones.get_mut(&clone_id) else { return };
        clone
            .behind
            .retain(|Behind { id, trace, num_batches }| self.buffers.is_behind(*id, trace, *num_batches));
        let (is_last, is_free) = (clone.flushes_left == 0, clone.task == CloneTask::Nothing);
        let is_being_read = is_being_written || session.reading.is_under_way;
        if is_being_read || !is_free || !clone.behind.is_empty() || (clone.copies_file && !is_last) {
            return;
        }
        let flushed = std::mem::take(&mut clone.flushed);
        let has_copies = flushed.contains(&CloneGroup::Copied);
        if has_copies {
            (clone.task, clone.copied_at_ns) = (CloneTask::Wanted(TaskKind::Copy), now.boottime_ns);
        }
        if flushed.contains(&CloneGroup::Transferred) {
            self.transfer(session_id, clone_id, now);
        }
        match has_copies {
            true if !self.options.never_waits => {
                let done = self.poll_clone().map(CloneWork::run);
                done.into_iter().for_each(|done| self.handle_clone_work(done, now));
            }
            true => {}
            false if is_last => self.finish_clone(session_id, clone_id, now),
            false => {}
        }
    }

    /// Something is over for which clones may have waited: a step, or a copy.
    pub(crate) fn go_on_with_clones(&mut self, session_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        for clone_id in session.clones.keys().copied().collect::<Vec<_>>() {
            self.go_on_with_clone(session_id, clone_id, now);
        }
    }

    /// Goes on with clones for which batches have had to find room.
    pub(crate) fn go_on_with_waiting_clones(&mut self, now: &ClockReadings) {
        let waits = |session: &Session| session.clones.values().any(|clone| !clone.behind.is_empty());
        let waiting = self.sessions.iter().filter(|(_, session)| waits(session));
        for session_id in waiting.map(|(session_id, _)| *session_id).collect::<Vec<_>>() {
            self.go_on_with_clones(session_id, now);
        }
    }

    /// Hands the buffers that are transferred to the clone.
    fn transfer(&mut self, session_id: SessionId, clone_id: SessionId, now: &ClockReadings) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let indices = 0..session.buffers.len();
        let transferred = indices.filter(|index| session.clone_group(*index) == CloneGroup::Transferred);
        for index in transferred.collect::<Vec<_>>() {
            let buffer = self.replace_buffer(session_id, index, true, now);
            let session = self.sessions.get_mut(&session_id);
            let Some(clone) = session.and_then(|session| session.clones.get_mut(&clone_id)) else { return };
            match buffer {
                Ok(buffer) => clone.taken[index] = Some((buffer, now.boottime_ns)),
                Err(reason) => clone.error = Some(reason),
            }
        }
        // What waited behind it finds room in the new ones.
        self.retry_commits();
    }
}

impl Session {
    pub(super) fn clone_group(&self, buffer_index: usize) -> CloneGroup {
        let config = self.config.message().buffers.get(buffer_index);
        match config.is_some_and(|config| config.transfer_on_clone()) {
            true => CloneGroup::Transferred,
            false => CloneGroup::Copied,
        }
    }

    /// The kinds of buffers that there are, in the order in which they are taken.
    pub(super) fn clone_groups(&self) -> Vec<CloneGroup> {
        let is_there =
            |group: &CloneGroup| (0..self.buffers.len()).any(|index| self.clone_group(index) == *group);
        [CloneGroup::Transferred, CloneGroup::Copied].into_iter().filter(is_there).collect()
    }
}
