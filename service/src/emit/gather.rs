//! Statistics of a session's buffers, for which the loop does not wait.
//!
//! ```text
//!   handle_get_trace_stats --> try --> all there: ConsumerEvent::TraceStats
//!                               ^  |
//!        handle_ready, when     |  +-> not yet: workers drain up to the cut, or another thread
//!        the shell is told so --+      has a shard, or what waits for room comes first
//! ```
//!
//! A step of a session's file that tells of its buffers waits in the same way. A consumer is
//! answered in the order in which it asked; each answer has what was committed before it was begun.

use std::sync::Arc;

use watershed_shards::{ShardedBuffer, Statistics, StatsPass};

use crate::buffers::BufferTable;
use crate::consumer::Consumer;
use crate::ids::{BufferId, ConsumerId, SessionId};
use crate::limits::PENDING_STATS_MAX;
use crate::output::ConsumerEvent;
use crate::service::Service;
use crate::session::Session;

/// What a consumer has asked for and was not told yet.
#[derive(Debug, Default)]
pub(crate) struct PendingStats {
    /// How many answers it waits for.
    num_wanted: usize,
    /// The first of them, and of which session it is.
    gathering: Option<(SessionId, Vec<OfBuffer>)>,
}

/// Statistics of one buffer.
#[derive(Debug)]
pub(crate) enum OfBuffer {
    /// So many batches of the buffer have to find room first.
    Behind {
        buffer_id: BufferId,
        trace: Arc<ShardedBuffer>,
        num_batches: u64,
    },
    Gathering(StatsPass),
    Done(Statistics),
}

impl OfBuffer {
    /// Goes as far as it can without waiting. Whether it is done.
    fn go_on(&mut self, buffers: &BufferTable) -> bool {
        if let OfBuffer::Behind { buffer_id, trace, num_batches } = self
            && !buffers.is_behind(*buffer_id, trace, *num_batches)
        {
            *self = OfBuffer::Gathering(trace.begin_statistics());
        }
        if let OfBuffer::Gathering(pass) = self
            && let Some(statistics) = pass.try_finish()
        {
            *self = OfBuffer::Done(statistics);
        }
        matches!(self, OfBuffer::Done(_))
    }

    fn into_done(self) -> Option<Statistics> {
        match self {
            OfBuffer::Done(statistics) => Some(statistics),
            _ => None,
        }
    }
}

impl Service {
    /// The consumer wants statistics of its session, as they are now. They come as
    /// [`ConsumerEvent::TraceStats`], in the order of these calls. False, and no event comes, if it
    /// has no session, or waits for too many.
    pub fn handle_get_trace_stats(&mut self, consumer_id: ConsumerId) -> bool {
        let Some(consumer) = self.consumers.get_mut(&consumer_id) else { return false };
        if consumer.session_id.is_none() || consumer.stats.num_wanted >= PENDING_STATS_MAX {
            return false;
        }
        consumer.stats.num_wanted += 1;
        self.go_on_with_stats(consumer_id);
        true
    }

    /// To be called when [`WorkerPool::on_ready`](crate::WorkerPool::on_ready) has said so: goes on
    /// with what waits for shards.
    pub fn handle_ready(&mut self) {
        let waits = |(_, consumer): &(&ConsumerId, &Consumer)| consumer.stats.num_wanted > 0;
        let waiting: Vec<ConsumerId> = self.consumers.iter().filter(waits).map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|consumer_id| self.go_on_with_stats(consumer_id));
        for session in self.sessions.values_mut() {
            session.look.as_mut().map(|of_buffers| go_on(of_buffers, &self.buffers));
        }
    }

    /// Whether anything waits for shards. Where there are workers, these tell when it is to be gone
    /// on with: see [`Service::handle_ready`].
    pub fn waits_for_shards(&self) -> bool {
        self.consumers.values().any(|consumer| consumer.stats.num_wanted > 0)
            || self.sessions.values().any(Session::waits_for_shards)
    }

    /// Statistics of the session's buffers, for its trace, with all that was committed when this
    /// was first asked. `None`: not yet. In a shell that may wait it waits for whoever has a shard.
    pub(crate) fn look(&mut self, session_id: SessionId) -> Option<Vec<Statistics>> {
        if !self.options.never_waits {
            return Some(self.look_now(session_id));
        }
        let begun = self.sessions.get_mut(&session_id)?.look.take();
        let mut of_buffers = begun.unwrap_or_else(|| self.begin_gathering(session_id));
        if go_on(&mut of_buffers, &self.buffers) {
            return Some(of_buffers.into_iter().filter_map(OfBuffer::into_done).collect());
        }
        self.sessions.get_mut(&session_id)?.look = Some(of_buffers);
        None
    }

    /// As [`Service::look`], for who waits.
    pub(crate) fn look_now(&mut self, session_id: SessionId) -> Vec<Statistics> {
        self.settle(session_id);
        let buffer_ids = self.sessions.get(&session_id).into_iter().flat_map(|session| &session.buffers);
        let buffers = buffer_ids.filter_map(|buffer_id| self.buffers.get(*buffer_id));
        buffers.map(|buffer| buffer.trace.statistics()).collect()
    }

    fn go_on_with_stats(&mut self, consumer_id: ConsumerId) {
        while let Some(consumer) = self.consumers.get_mut(&consumer_id)
            && consumer.stats.num_wanted > 0
        {
            let (begun, session_id) = (consumer.stats.gathering.take(), consumer.session_id);
            let gathering = begun.or_else(|| Some((session_id?, self.begin_gathering(session_id?))));
            let mut stats = None;
            if let Some((session_id, mut of_buffers)) = gathering {
                if !go_on(&mut of_buffers, &self.buffers) {
                    if let Some(consumer) = self.consumers.get_mut(&consumer_id) {
                        consumer.stats.gathering = Some((session_id, of_buffers));
                    }
                    return;
                }
                let of_buffers = of_buffers.into_iter().filter_map(OfBuffer::into_done).collect();
                stats = self.stats_from(session_id, of_buffers);
            }
            if let Some(consumer) = self.consumers.get_mut(&consumer_id) {
                consumer.stats.num_wanted -= 1;
            }
            self.tell(consumer_id, ConsumerEvent::TraceStats(stats.map(Box::new)));
        }
    }

    /// The session has gone: who waits for its statistics is told so.
    pub(crate) fn fail_stats(&mut self, session_id: SessionId) {
        let is_of = |stats: &PendingStats| stats.gathering.as_ref().is_some_and(|(of, _)| *of == session_id);
        let waiting = self.consumers.iter_mut().filter(|(_, consumer)| is_of(&consumer.stats));
        let consumer_ids: Vec<ConsumerId> = waiting
            .map(|(consumer_id, consumer)| {
                consumer.stats.gathering = None;
                consumer.stats.num_wanted -= 1;
                *consumer_id
            })
            .collect();
        for consumer_id in consumer_ids {
            self.tell(consumer_id, ConsumerEvent::TraceStats(None));
            self.go_on_with_stats(consumer_id);
        }
    }

    /// A buffer of the session is another one now: what was gathered of it is left.
    pub(crate) fn restart_stats(&mut self, session_id: SessionId) {
        let consumers = self.consumers.iter_mut();
        let restarted: Vec<ConsumerId> = consumers
            .filter_map(|(id, consumer)| {
                consumer.stats.gathering.take_if(|(of, _)| *of == session_id).map(|_| *id)
            })
            .collect();
        restarted.into_iter().for_each(|consumer_id| self.go_on_with_stats(consumer_id));
    }

    fn begin_gathering(&self, session_id: SessionId) -> Vec<OfBuffer> {
        let buffer_ids = self.sessions.get(&session_id).into_iter().flat_map(|session| &session.buffers);
        let begin = |buffer_id: &BufferId| {
            let (trace, num_batches) = self.buffers.waiting_of(*buffer_id)?;
            Some(OfBuffer::Behind { buffer_id: *buffer_id, trace, num_batches })
        };
        buffer_ids.filter_map(begin).collect()
    }
}

/// Goes on with each of them, so that workers are at all. Whether all are done.
fn go_on(of_buffers: &mut [OfBuffer], buffers: &BufferTable) -> bool {
    of_buffers.iter_mut().map(|buffer| buffer.go_on(buffers)).filter(|is_done| !is_done).count() == 0
}

impl Session {
    /// Whether what its trace is to tell of its buffers is not there yet.
    pub(crate) fn waits_for_shards(&self) -> bool {
        let mut of_buffers = self.look.iter().flatten();
        of_buffers.any(|buffer| !matches!(buffer, OfBuffer::Done(_)))
    }
}
