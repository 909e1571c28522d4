//! The arbiter: gives chunks of the shared memory to writers, and tells the service which ones are
//! ready.
//!
//! ```text
//!   writer threads                          arbiter                          producer thread        service
//!
//!   acquire  ------------------------> free chunk (no lock)
//!   return chunk, resolved patches --> batch (one lock)
//!                                        first of a batch, patches,
//!                                        or half of the memory: Waker ------> flush -- CommitData --> moves chunks
//!   acquire, nothing free ----------->  by policy: none, or wait and retry                            and frees them
//! ```
//!
//! One arbiter serves one connection to the service. Commits leave in the order in which chunks
//! were returned. Writers never talk to a service elsewhere themselves, unless they run on the
//! producer's own thread and would wait for it there.
//!
//! With a service in the same process a writer commits its chunks itself, by a committer of its own
//! (`direct`): through the arbiter goes only what is told of writers and flushes.
//!
//! Over memory of the producer's own there may be an arbiter before there is a service: then
//! batches wait (`target`).

mod acquire;
mod batch;
mod counts;
mod crowding;
mod direct;
mod options;
mod search;
mod target;
mod writer_ids;

use std::thread::ThreadId;
use std::time::Duration;

pub use acquire::ExhaustedPolicy;
use batch::Batch;
pub(crate) use counts::WriterCounts;
use counts::{AllWriters, Counters, Sums, count};
use crowding::Crowding;
pub(crate) use crowding::Returns;
pub(crate) use direct::commit_patches;
pub use options::{ArbiterOptions, ArbiterStats};
pub(crate) use search::Search;
use target::Batches;
pub(crate) use target::{BufferReservation, Target};
use watershed_smb::{Smb, WriteChunk};
use writer_ids::WriterIds;

use crate::endpoint::{Done, Endpoint};
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, OnceLock, Ordering, lock};
use crate::writer::{PatchList, TraceWriter};

/// Makes the producer's thread call [`Arbiter::flush_commits`].
pub trait Waker: Send + Sync {
    /// Asks for a flush after `delay`. Several may be under way.
    fn wake(&self, delay: Duration);
}

/// A chunk that a writer returns.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) chunk: WriteChunk,
    pub(crate) writer_id: u16,
    pub(crate) target: Target,
    pub(crate) chunk_id: u32,
    /// The chunk has sizes that are still in the writer's patch list.
    pub(crate) needs_patching: bool,
}

struct State {
    batches: Batches,
    counts: AllWriters,
}

/// The service, once there is one.
struct Service {
    endpoint: Arc<dyn Endpoint>,
    /// As [`ArbiterOptions::direct_patching`].
    direct_patching: bool,
}

pub(crate) struct Shared {
    smb: Smb,
    /// Set once. Until then nothing is sent.
    service: OnceLock<Service>,
    waker: Box<dyn Waker>,
    options: ArbiterOptions,
    state: Mutex<State>,
    writer_ids: Arc<Mutex<WriterIds>>,
    /// Held while a batch is taken and sent, so that batches leave in the order of their taking.
    /// Taken before `state`, which is not held while sending: writers go on meanwhile.
    sending: Mutex<()>,
    /// Page where the next search for a free chunk starts; a hint.
    next_page: AtomicUsize,
    crowding: Crowding,
    /// The thread that sends commits and on which nobody may wait for them.
    producer_thread: OnceLock<ThreadId>,
    shut_down: AtomicBool,
    counters: Counters,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arbiter")
            .field("smb", &self.smb)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// The arbiter of one connection. Clones are the same arbiter.
#[derive(Clone, Debug)]
pub struct Arbiter {
    shared: Arc<Shared>,
}

impl Arbiter {
    /// An arbiter over `smb`.
    #[must_use]
    pub fn new(
        smb: Smb,
        endpoint: Arc<dyn Endpoint>,
        waker: Box<dyn Waker>,
        options: ArbiterOptions,
    ) -> Self {
        let arbiter = Self::unbound(smb, waker, options);
        arbiter.bind(endpoint, options.direct_patching);
        arbiter
    }

    /// An arbiter over memory of the producer's own, for which there is no service yet: what
    /// writers return waits.
    pub(crate) fn unbound(smb: Smb, waker: Box<dyn Waker>, options: ArbiterOptions) -> Self {
        let state = State { batches: Batches::new(), counts: AllWriters::default() };
        let crowding = Crowding::new(smb.size_bytes(), smb.num_pages());
        Self {
            shared: Arc::new(Shared {
                smb,
                crowding,
                service: OnceLock::new(),
                waker,
                options,
                state: Mutex::new(state),
                writer_ids: Arc::new(Mutex::new(WriterIds::new())),
                sending: Mutex::new(()),
                next_page: AtomicUsize::new(0),
                producer_thread: OnceLock::new(),
                shut_down: AtomicBool::new(false),
                counters: Counters::default(),
            }),
        }
    }

    /// There is a service, which has the memory too. Only the first call has an effect.
    pub(crate) fn bind(&self, endpoint: Arc<dyn Endpoint>, direct_patching: bool) {
        let _ = self.shared.service.set(Service { endpoint, direct_patching });
        self.shared.send_batch();
    }

    /// A place for what is written before its buffer is known.
    pub(crate) fn reserve(&self) -> BufferReservation {
        lock(&self.shared.state).batches.reserve()
    }

    /// What was and will be written for a reservation goes into a buffer, or into none: then the
    /// service discards it and frees its chunks.
    pub(crate) fn bind_reservation(&self, reservation: BufferReservation, buffer: Option<u16>) {
        lock(&self.shared.state).batches.bind(reservation, buffer);
        self.shared.send_batch();
    }

    /// Declares the calling thread to be the producer's: a writer that must wait for memory there
    /// sends the commits itself instead of waiting for a thread that is this one.
    pub fn set_producer_thread(&self) {
        // The second call of a second thread would be a bug of the shell; the first one stays.
        let _ = self.shared.producer_thread.set(std::thread::current().id());
    }

    /// A new writer into `target_buffer`. When 32767 writers are in use, or after
    /// [`Arbiter::shut_down`], the writer discards what it is given.
    #[must_use]
    pub fn create_writer(&self, target_buffer: u16, policy: ExhaustedPolicy) -> TraceWriter {
        self.create_writer_for(Target::Buffer(target_buffer), policy)
    }

    pub(crate) fn create_writer_for(&self, target: Target, policy: ExhaustedPolicy) -> TraceWriter {
        let shared = &self.shared;
        let policy = policy.allowed(shared.options.allow_abort);
        if shared.is_shut_down() || shared.is_forked() {
            return TraceWriter::discarding();
        }
        let allocated = lock(&shared.writer_ids).allocate();
        let Some(writer_id) = allocated else { return TraceWriter::discarding() };
        let direct = shared.direct_committer(writer_id, target);
        let mut state = lock(&shared.state);
        let counts = state.counts.begin(writer_id);
        let (batch, buffer) = state.batches.of(target);
        batch.register(writer_id, buffer);
        shared.schedule(batch, false);
        TraceWriter::new(shared.clone(), counts, writer_id, target, policy, direct)
    }

    /// Sends what has been returned so far. The producer's thread calls it when the [`Waker`] asked
    /// for it; calls from other threads are allowed where the [`Endpoint`] may be used from them.
    pub fn flush_commits(&self) {
        self.shared.send_batch();
    }

    /// Makes the producer's thread look for what is due.
    pub(crate) fn wake_producer(&self) {
        self.shared.waker.wake(Duration::ZERO);
    }

    /// Asks for a flush, and for a call of `done` when the service has processed it and all commits
    /// before it.
    pub fn request_flush(&self, done: Option<Done>) {
        // What waits for its buffer is not sent, so any buffer stands for all.
        self.shared.request_flush(Target::Buffer(0), done);
    }

    /// Answers the service's flush request `request_id` (and all earlier ones) behind everything
    /// that was returned, and sends it at once.
    pub fn notify_flush_complete(&self, request_id: u64) {
        if self.shared.is_forked() {
            return;
        }
        lock(&self.shared.state).batches.sent().flush_done(request_id);
        self.shared.send_batch();
    }

    /// Sends what is left, then gives no writer a chunk any more: what is written is discarded, and
    /// what has waited for its buffer or for a service.
    pub fn shut_down(&self) {
        self.shared.shut_down.store(true, Ordering::Relaxed);
        if self.shared.is_forked() {
            return;
        }
        self.shared.send_batch();
        let unsent = lock(&self.shared.state).batches.take_all();
        // Not under the lock: whoever awaited a flush may use the arbiter.
        drop(unsent);
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> ArbiterStats {
        let Counters { stalls, commits, violations } = &self.shared.counters;
        // In a forked child another thread may hold the lock for ever, and there are no writers.
        let sums = match self.shared.is_forked() {
            true => Sums::default(),
            false => lock(&self.shared.state).counts.sum(),
        };
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ArbiterStats {
            chunks_acquired: sums.chunks_acquired,
            chunks_refused: sums.chunks_refused,
            stalls: get(stalls),
            packets_dropped: sums.packets_dropped,
            commits: get(commits),
            violations: get(violations),
        }
    }
}

impl Shared {
    pub(crate) fn smb(&self) -> &Smb {
        &self.smb
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        // Relaxed: a writer that sees it late writes one more chunk, which nobody reads.
        self.shut_down.load(Ordering::Relaxed)
    }

    /// Whether this is a child of the process that traces. It has no memory to write to, and a lock
    /// that another thread held at the fork is never given back there.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.smb.is_forked()
    }

    /// Takes a chunk back, with the patches of its writer that can be sent.
    pub(crate) fn return_chunk(&self, returned: Returned, patches: &mut PatchList) {
        let mut state = lock(&self.state);
        let (writer_id, target) = (returned.writer_id, returned.target);
        let (batch, buffer) = state.batches.of(target);
        let service = self.service.get();
        let direct_patching = service.is_some_and(|service| service.direct_patching);
        let hold = returned.needs_patching && direct_patching;
        if batch.add_chunk(&self.smb, returned, buffer, hold).is_err() {
            count(&self.counters.violations);
        }
        self.add_patches(batch, writer_id, buffer, patches);
        let urgent = batch.has_patches() || self.is_much(batch.pending_bytes());
        self.schedule(batch, urgent);
    }

    /// Takes the patches of a writer that can be sent.
    pub(crate) fn return_patches(&self, writer_id: u16, target: Target, patches: &mut PatchList) {
        let mut state = lock(&self.state);
        let (batch, buffer) = state.batches.of(target);
        self.add_patches(batch, writer_id, buffer, patches);
        let urgent = batch.has_patches();
        self.schedule(batch, urgent);
    }

    fn add_patches(&self, batch: &mut Batch, writer_id: u16, buffer: u16, patches: &mut PatchList) {
        while let Some(group) = patches.take_group() {
            if batch.add_patches(&self.smb, writer_id, buffer, group).is_err() {
                count(&self.counters.violations);
            }
        }
    }

    /// Asks for a flush of what was written to a target, and for a call of `done` when the service
    /// has processed it and all commits before it.
    pub(crate) fn request_flush(&self, target: Target, done: Option<Done>) {
        if self.is_forked() {
            return;
        }
        let mut state = lock(&self.state);
        // `shut_down` sends or drops what is in the batches after it set this. Nobody sends what
        // comes later, so `done` is dropped at once.
        if self.is_shut_down() {
            return;
        }
        let (batch, _) = state.batches.of(target);
        batch.done(done);
        self.schedule(batch, true);
    }

    /// The writer has ended and has returned its last chunk.
    pub(crate) fn end_writer(&self, writer_id: u16, target: Target) {
        let mut state = lock(&self.state);
        state.counts.end(writer_id);
        let (batch, _) = state.batches.of(target);
        batch.unregister(writer_id);
        self.schedule(batch, false);
    }

    /// Makes sure that the batch is sent: after the batching time, or at once when `urgent`.
    fn schedule(&self, batch: &mut Batch, urgent: bool) {
        if let Some(delay) = batch.schedule(urgent, self.options.batch_commits_duration) {
            self.waker.wake(delay);
        }
    }

    /// Sends the batch, if there is anything in it and somebody to send it to.
    fn send_batch(&self) {
        if self.is_forked() {
            return;
        }
        let Some(Service { endpoint, .. }) = self.service.get() else { return };
        let _sending = lock(&self.sending);
        let outgoing = lock(&self.state).batches.sent().take();
        for (writer_id, target_buffer) in outgoing.registered {
            endpoint.register_trace_writer(writer_id, target_buffer);
        }
        for chunk in outgoing.held {
            if self.smb.complete(chunk).is_err() {
                count(&self.counters.violations);
            }
        }
        let mut done = outgoing.done;
        let mut requests = outgoing.requests.into_iter().peekable();
        while let Some(request) = requests.next() {
            count(&self.counters.commits);
            let done = if requests.peek().is_none() { done.take() } else { None };
            endpoint.commit_data(request, done);
        }
        let ended = outgoing.unregistered;
        if ended.is_empty() {
            return;
        }
        ended.iter().for_each(|writer_id| endpoint.unregister_trace_writer(*writer_id));
        self.free_ids(&**endpoint, ended);
    }
}
