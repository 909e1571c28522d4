//! The way from a producer to the service in the same process: a queue, which also has what the
//! owners of sessions ask for. Chunks and patches are not in it: writers commit them themselves.
//!
//! Each of its calls has a limit, so it is bounded, and nobody waits for room in it: a thread that
//! waited could be one that the service's thread itself waits for, in the program's sink or its
//! handler of events. While the service's thread writes to a slow file, the queue holds at most:
//!
//! | calls in the queue | who makes them | how many at most |
//! |---|---|---|
//! | commits when batches are due | the producer's thread, of what writers ask when they are flushed | [`COMMITS_QUEUED_MAX`]; then the batch waits, as ids of ended writers do |
//! | commits that answer | likewise | one for each flush and each end of an instance that the service asks for |
//! | writers that begin and end | likewise | 32767 of each, as ids come back when their ends were handled |
//! | ends of writers that were handled | likewise | one for each commit of a batch in which writers end |
//! | that writers have left something | those that write | one: the next comes when that was handled |
//! | data source offered | the program | its calls of `register` |
//! | started, stopped | the producer's thread | one for each command of the service |
//! | calls with an answer (start of a session, statistics, read, flush and wait) | the program | one for each thread: it waits |
//! | start, stop, end of a session | the program | one each for a session: later calls have nothing to add |
//! | flush of a session without an answer | the program | one for a session: it is also for who asks meanwhile |
//!
//! What the batch has meanwhile is what to call when a writer has been flushed: that is the
//! program's own.

use std::sync::mpsc::Sender;

use watershed_service::{DirectCommits, DirectCommitter, ProducerId};
use watershed_wire::protos::CommitDataRequest;

use super::shell::Request;
use crate::endpoint::{Done, Endpoint};
use crate::sync::{Arc, AtomicUsize, Ordering};

/// Commits that wait for the service's thread. Beyond that a batch that is due waits for room.
const COMMITS_QUEUED_MAX: usize = 256;

/// A call of the producer port.
pub(super) enum Call {
    Register(Vec<u8>),
    Update(Vec<u8>),
    Unregister(String),
    RegisterWriter { writer_id: u16, target_buffer: u16 },
    UnregisterWriter { writer_id: u16 },
    Commit(CommitDataRequest, Option<Done>, Queued),
    Started { instance_id: u64 },
    Stopped { instance_id: u64 },
    Sync(Done),
}

pub(super) struct QueueEndpoint {
    pub(super) producer_id: ProducerId,
    pub(super) requests: Sender<Request>,
    direct: DirectCommits,
    /// Commits in the queue.
    commits: Arc<AtomicUsize>,
}

/// One commit in the queue, for as long as it lives.
pub(super) struct Queued(Arc<AtomicUsize>);

impl Drop for Queued {
    fn drop(&mut self) {
        // Relaxed, as all accesses: nothing is published by it, and the limit is not a sharp one.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl QueueEndpoint {
    pub(super) fn new(producer_id: ProducerId, requests: Sender<Request>, direct: DirectCommits) -> Self {
        Self { producer_id, requests, direct, commits: Arc::default() }
    }

    fn call(&self, call: Call) {
        // An error means that the service has ended: calls are ignored then.
        let _ = self.requests.send(Request::Producer(self.producer_id, call));
    }
}

impl Endpoint for QueueEndpoint {
    fn register_data_source(&self, descriptor: &[u8]) {
        self.call(Call::Register(descriptor.to_vec()));
    }

    fn update_data_source(&self, descriptor: &[u8]) {
        self.call(Call::Update(descriptor.to_vec()));
    }

    fn unregister_data_source(&self, name: &str) {
        self.call(Call::Unregister(name.to_owned()));
    }

    fn register_trace_writer(&self, writer_id: u16, target_buffer: u16) {
        self.call(Call::RegisterWriter { writer_id, target_buffer });
    }

    fn unregister_trace_writer(&self, writer_id: u16) {
        self.call(Call::UnregisterWriter { writer_id });
    }

    fn commit_data(&self, request: CommitDataRequest, done: Option<Done>) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.call(Call::Commit(request, done, Queued(Arc::clone(&self.commits))));
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn direct_committer(&self, writer_id: u16, target_buffer: u16) -> Option<DirectCommitter> {
        self.direct.committer(self.producer_id, writer_id, target_buffer)
    }

    fn has_room(&self) -> bool {
        self.commits.load(Ordering::Relaxed) < COMMITS_QUEUED_MAX
    }

    fn data_source_started(&self, instance_id: u64) {
        self.call(Call::Started { instance_id });
    }

    fn data_source_stopped(&self, instance_id: u64) {
        self.call(Call::Stopped { instance_id });
    }

    fn activate_triggers(&self, _names: &[String]) {
        // The service refuses configs with triggers, so no session waits for one.
    }

    fn sync(&self, done: Done) {
        self.call(Call::Sync(done));
    }
}
