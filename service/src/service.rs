//! The service as a whole: what it knows, and the calls about time and output.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use watershed_engine::ProducerId;
use watershed_smb::Smb;

use crate::buffers::BufferTable;
use crate::buffers::Succession;
use crate::clock::ClockReadings;
use crate::commit_stats::ProducerWaits;
use crate::consumer::Consumer;
use crate::direct::DirectCommits;
use crate::dropped::Dropped;
use crate::ids::{BufferId, ConsumerId, SessionId};
use crate::options::ServiceOptions;
use crate::output::{ConsumerEvent, Output, ProducerCommand, Warning};
use crate::producer::{Producer, Sources};
use crate::read::SharedPool;
use crate::session::{Session, TriggerHistory};
use crate::timer::{Deadline, Deadlines, Timer};

/// The tracing service: producers, consumers, and the sessions between them. See the crate's
/// documentation for how it is driven.
pub struct Service {
    pub(crate) options: ServiceOptions,
    /// The factory out of the options, which passes on other threads share.
    pub(crate) read_pool: SharedPool,
    pub(crate) random: fastrand::Rng,
    pub(crate) producers: BTreeMap<ProducerId, Producer>,
    pub(crate) sources: Sources,
    pub(crate) consumers: BTreeMap<ConsumerId, Consumer>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) buffers: BufferTable,
    pub(crate) direct: DirectCommits,
    /// Set by a config: other users' producers are kept out.
    pub(crate) locked_down: bool,
    /// When sessions with guardrails last started, by name: boot time.
    pub(crate) last_start_ns_by_name: BTreeMap<String, u64>,
    pub(crate) trigger_history: TriggerHistory,
    pub(crate) counters: Counters,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) dropped: VecDeque<Dropped>,
    /// What buffers have to learn, for another thread.
    pub(crate) successions: VecDeque<(BufferId, Arc<Succession>)>,
    /// Another thread makes memory ready.
    pub(crate) is_prefaulting: bool,
    /// The trial was handed out.
    pub(crate) has_tried_pages: bool,
    /// Huge pages are slow: no buffer gets them any more.
    pub(crate) has_slow_pages: bool,
}

/// Numbers given out and things counted since the service began.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) last_producer_id: ProducerId,
    pub(crate) producers_seen: u64,
    pub(crate) last_consumer_id: u64,
    pub(crate) last_session_id: u64,
    pub(crate) last_instance_id: u64,
    pub(crate) last_flush_id: u64,
    /// Data sources, instances, entries of configs, flushes and memories looked at.
    pub(crate) looked_at: u64,
    /// Chunks that did not pass the buffer stage, over all producers and sessions.
    pub(crate) chunks_discarded: u64,
    /// Patches that were malformed or had nowhere to go, over all producers and sessions.
    pub(crate) patches_discarded: u64,
    pub(crate) waits: ProducerWaits,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("options", &self.options)
            .field("producers", &self.producers)
            .field("consumers", &self.consumers)
            .field("sessions", &self.sessions)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// A service without producers, consumers and sessions.
    pub fn new(mut options: ServiceOptions) -> Service {
        let read_pool = std::mem::replace(&mut options.read_pool, Box::new(|| None));
        Service {
            read_pool: Arc::new(Mutex::new(read_pool)),
            random: fastrand::Rng::with_seed(options.seed),
            options,
            producers: BTreeMap::new(),
            sources: Sources::default(),
            consumers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            buffers: BufferTable::default(),
            direct: DirectCommits::default(),
            locked_down: false,
            last_start_ns_by_name: BTreeMap::new(),
            trigger_history: TriggerHistory::default(),
            counters: Counters {
                last_producer_id: ProducerId(0),
                producers_seen: 0,
                last_consumer_id: 0,
                last_session_id: 0,
                last_instance_id: 0,
                last_flush_id: 0,
                looked_at: 0,
                chunks_discarded: 0,
                patches_discarded: 0,
                waits: ProducerWaits::default(),
            },
            outputs: VecDeque::new(),
            dropped: VecDeque::new(),
            successions: VecDeque::new(),
            is_prefaulting: false,
            has_tried_pages: false,
            has_slow_pages: false,
        }
    }

    /// The next thing to deliver. Call it until `None` after every other call.
    pub fn poll_output(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.tell_readers();
        }
        self.outputs.pop_front()
    }

    /// When [`Service::handle_timeout`] has to be called next, at the latest. Any call may change
    /// it.
    pub fn poll_timeout(&self) -> Deadlines {
        let mut deadlines = Deadlines::default();
        for session in self.sessions.values() {
            session.timers.deadlines().for_each(|deadline| deadlines.include(deadline));
            session.flushes.values().for_each(|flush| deadlines.include(flush.deadline));
            session.triggers.deadlines().for_each(|deadline| deadlines.include(deadline));
        }
        let waits = self.options.workers.is_none() && (self.has_waiting() || self.waits_for_shards());
        // Who runs a succession tells when it is over, or it is given up.
        let mut has_succession = false;
        for deadline in self.buffers.succession_deadlines() {
            has_succession = true;
            deadlines.include(deadline);
        }
        if waits && !has_succession {
            // Another thread reads there just now, or a budget was spent; nobody tells of that.
            deadlines.include(Deadline::AT_ONCE);
        }
        deadlines
    }

    /// Time has passed: handles everything that is due, the longest overdue first; all flushes of a
    /// session that are due come together. Calling it early does no harm.
    pub fn handle_timeout(&mut self, now: &ClockReadings) {
        if self.options.workers.is_none() {
            self.retry_commits();
            self.handle_ready();
        }
        self.give_up_successions(now);
        self.go_on_with_waiting_clones(now);
        while let Some((session_id, due)) = self.most_overdue(now) {
            match due {
                Due::Flushes => self.finish_flushes(session_id, now),
                Due::TriggerHits => self.tell_due_hits(session_id, now),
                Due::Timer(timer) => {
                    if let Some(session) = self.sessions.get_mut(&session_id) {
                        session.timers.stop(timer);
                    }
                    self.fire(session_id, timer, now);
                }
            }
        }
    }

    /// To be called when nothing else is to be done. Goes on with what commits have left because
    /// their budget was spent or another thread had locked a shard, and makes the memory ready that
    /// the buffers will use next, unless [another thread does that](Self::poll_prefault): a page
    /// takes up to some milliseconds, in which a commit would have to wait. Calling it in vain
    /// costs next to nothing.
    ///
    /// Returns true if there is more to go on with: to be called again, unless there is something
    /// else to do now.
    pub fn handle_idle(&self) -> bool {
        let mut has_more = false;
        // Workers go on by themselves.
        if self.options.workers.is_none() {
            for buffer in self.buffers.iter() {
                has_more |= buffer.trace.drain_some();
            }
        }
        // A huge page at a time: requests that come meanwhile wait for it.
        has_more || self.prefault_one_page()
    }

    /// How many data sources, instances, entries of configs and flushes were looked at since the
    /// service began, and memories scraped: what a peer can make long. For tests of how much one
    /// call does.
    pub fn looked_at(&self) -> u64 {
        self.counters.looked_at
    }

    /// How many producers, data sources, consumers, sessions, buffers and waiting producers there
    /// are in all tables, and what is to be dropped: 0 when everybody has gone. For tests of what
    /// is left behind.
    pub fn num_rows(&self) -> usize {
        self.producers.len()
            + self.sources.num_rows()
            + self.consumers.len()
            + self.sessions.len()
            + self.buffers.len()
            + self.dropped.len()
            + self.successions.len()
            + usize::from(self.has_waiting())
    }

    /// Whether a commit of the producer waits for room in a queue: until that is over, the shell
    /// must not hand over what the producer asks next. Only where there are workers.
    pub fn is_waiting(&self, producer_id: ProducerId) -> bool {
        self.buffers.is_waiting(producer_id)
    }

    /// The memory that the producer shares with the service, if there is any.
    pub fn shared_memory(&self, producer_id: ProducerId) -> Option<&Smb> {
        self.producers.get(&producer_id)?.memory()
    }

    /// Whether any commit waits for room: then [`Service::retry_commits`] is to be called when
    /// [`WorkerPool::on_room`](crate::WorkerPool::on_room) says that there is some. Looking at a
    /// buffer makes room, too.
    pub fn has_waiting(&self) -> bool {
        self.buffers.has_waiting() || self.direct.is_stuck()
    }

    /// Tries commits again that wait for room.
    pub fn retry_commits(&mut self) {
        if self.has_waiting() {
            self.counters.chunks_discarded += self.buffers.retry();
            self.direct.retry();
            // Statistics may have waited for them.
            self.handle_ready();
        }
    }

    /// By which writers of this process commit themselves.
    pub fn direct_commits(&self) -> DirectCommits {
        self.direct.clone()
    }

    /// To be called when [`DirectCommits::on_wanted`] has said so: goes on with commits that found
    /// no room. [`Service::handle_idle`] goes on with those of which nobody else will take care.
    pub fn handle_wanted(&mut self) {
        self.direct.forget_wake();
        self.retry_commits();
    }

    /// How many sessions there are, in whatever state.
    pub fn num_sessions(&self) -> usize {
        self.sessions.len()
    }

    /// How many producers are connected.
    pub fn num_producers(&self) -> usize {
        self.producers.len()
    }

    /// Commits what waits for the session's buffers, before somebody looks at them.
    pub(crate) fn settle(&mut self, session_id: SessionId) {
        if !self.has_waiting() {
            return;
        }
        let Some(session) = self.sessions.get(&session_id) else { return };
        for buffer_id in &session.buffers {
            self.counters.chunks_discarded += self.buffers.settle(*buffer_id);
            self.direct.drain(*buffer_id);
        }
    }

    fn fire(&mut self, session_id: SessionId, timer: Timer, now: &ClockReadings) {
        match timer {
            Timer::Snapshot => self.periodic_snapshot(session_id, now),
            Timer::SlowStart => self.note_slow_start(session_id, now),
            Timer::PeriodicFlush => self.periodic_flush(session_id, now),
            Timer::ClearIncrementalState => self.clear_incremental_state(session_id, now),
            Timer::FileWrite => self.file_write_due(session_id, now),
            Timer::Duration => self.duration_over(session_id, now),
            Timer::StopTimeout => self.finish_stop(session_id, now),
            Timer::TriggerTimeout => self.trigger_timeout(session_id, now),
        }
    }

    /// The longest overdue; among equals the earlier session's, and there a flush before the
    /// timers.
    fn most_overdue(&self, now: &ClockReadings) -> Option<(SessionId, Due)> {
        let mut most: Option<(u64, SessionId, Due)> = None;
        let mut consider = |overdue_ns: u64, session_id: SessionId, due: Due| {
            if most.as_ref().is_none_or(|(longest_ns, ..)| overdue_ns > *longest_ns) {
                most = Some((overdue_ns, session_id, due));
            }
        };
        for (session_id, session) in &self.sessions {
            for flush in session.flushes.values() {
                if let Some(overdue_ns) = flush.deadline.overdue_ns(now) {
                    consider(overdue_ns, *session_id, Due::Flushes);
                }
            }
            for deadline in session.triggers.deadlines() {
                if let Some(overdue_ns) = deadline.overdue_ns(now) {
                    consider(overdue_ns, *session_id, Due::TriggerHits);
                }
            }
            if let Some((overdue_ns, timer)) = session.timers.most_overdue(now) {
                consider(overdue_ns, *session_id, Due::Timer(timer));
            }
        }
        most.map(|(_, session_id, due)| (session_id, due))
    }

    pub(crate) fn command(&mut self, producer_id: ProducerId, command: ProducerCommand) {
        self.outputs.push_back(Output::Producer(producer_id, command));
    }

    pub(crate) fn tell(&mut self, consumer_id: ConsumerId, event: ConsumerEvent) {
        self.outputs.push_back(Output::Consumer(consumer_id, event));
    }

    pub(crate) fn warn(&mut self, warning: Warning) {
        self.outputs.push_back(Output::Warning(warning));
    }

    pub(crate) fn session_ids(&self) -> Vec<SessionId> {
        self.sessions.keys().copied().collect()
    }
}

enum Due {
    Flushes,
    TriggerHits,
    Timer(Timer),
}
