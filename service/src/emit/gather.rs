//! Statistics of a session's buffers, for which the loop does not wait.
//!
//! ```text
//!   handle_get_trace_stats --> try --> all there: ConsumerEvent::TraceStats
//!                               ^  |
//!        handle_ready, when     |  +-> not yet: workers drain up to the cut, or another thread
//!        the shell is told so --+      has a shard, or what waits for room comes first
//! ```
//!
//! A consumer is answered in the order in which it asked, each answer with what was committed
//! before it was begun.

use std::sync::Arc;

use watershed_shards::{ShardedBuffer, Statistics, StatsPass};

use crate::buffers::BufferTable;
use crate::consumer::Consumer;
use crate::ids::{BufferId, ConsumerId, SessionId};
use crate::limits::PENDING_STATS_MAX;
use crate::output::ConsumerEvent;
use crate::service::Service;

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
enum OfBuffer {
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
    }

    /// Whether anything waits for shards.
    pub(crate) fn waits_for_shards(&self) -> bool {
        self.consumers.values().any(|consumer| consumer.stats.num_wanted > 0)
    }

    fn go_on_with_stats(&mut self, consumer_id: ConsumerId) {
        while let Some(consumer) = self.consumers.get_mut(&consumer_id)
            && consumer.stats.num_wanted > 0
        {
            let (begun, session_id) = (consumer.stats.gathering.take(), consumer.session_id);
            let gathering = begun.or_else(|| Some((session_id?, self.begin_gathering(session_id?))));
            let mut stats = None;
            if let Some((session_id, mut of_buffers)) = gathering {
                let is_done = |buffer: &mut OfBuffer| buffer.go_on(&self.buffers);
                // Each of them, so that workers go on with all.
                let num_done = of_buffers.iter_mut().map(is_done).filter(|is_done| *is_done).count();
                if num_done < of_buffers.len() {
                    if let Some(consumer) = self.consumers.get_mut(&consumer_id) {
                        consumer.stats.gathering = Some((session_id, of_buffers));
                    }
                    return;
                }
                stats = self.stats_from(session_id, of_buffers.into_iter().filter_map(OfBuffer::into_done));
            }
            if let Some(consumer) = self.consumers.get_mut(&consumer_id) {
                consumer.stats.num_wanted -= 1;
            }
            self.tell(consumer_id, ConsumerEvent::TraceStats(stats.map(Box::new)));
        }
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
