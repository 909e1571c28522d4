//! What became of commits since the service began: for the operator, and in every trace's
//! statistics.

use watershed_shards::{Poisoned, WorkerPool, WorkerStats};
use watershed_wire::protos::trace_stats;

use crate::buffers::BufferTable;
use crate::ids::SessionId;
use crate::output::Warning;
use crate::service::Service;

/// What became of commits since the service began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStats {
    /// How often a batch had to wait because a queue was full, or because one before it waited.
    pub num_handed_back: u64,
    /// How long producers had to wait for that, as the shell has
    /// [noted](Service::note_producer_wait).
    pub waits: ProducerWaits,
    /// What the workers have done; `None` where there are none.
    pub workers: Option<WorkerStats>,
    /// What was lost in the buffers that there are now, because their engine has failed.
    pub poisoned: Poisoned,
}

/// How long producers had to wait for room in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerWaits {
    /// Waits that are over.
    pub number: u64,
    /// Nanoseconds of all of them.
    pub sum_ns: u64,
    /// Nanoseconds of the longest.
    pub max_ns: u64,
}

impl CommitStats {
    pub(crate) fn to_proto(self) -> trace_stats::CommitStats {
        let ns = |latency: std::time::Duration| u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        trace_stats::CommitStats {
            handed_back: Some(self.num_handed_back),
            producer_waits: Some(self.waits.number),
            producer_wait_ns_sum: Some(self.waits.sum_ns),
            producer_wait_ns_max: Some(self.waits.max_ns),
            worker_turns: self.workers.map(|workers| workers.turns),
            latency_ns_sum: self.workers.map(|workers| ns(workers.latency_sum)),
            latency_ns_max: self.workers.map(|workers| ns(workers.latency_max)),
        }
    }
}

impl Service {
    /// What became of commits so far.
    pub fn commit_stats(&self) -> CommitStats {
        CommitStats { poisoned: poisoned(&self.buffers), ..self.commit_counts() }
    }

    /// The same, but what was lost with shards: it waits for no thread.
    pub(crate) fn commit_counts(&self) -> CommitStats {
        CommitStats {
            num_handed_back: self.buffers.num_handed_back() + self.direct.num_stuck_ever(),
            waits: self.counters.waits,
            workers: self.options.workers.as_ref().map(WorkerPool::stats),
            poisoned: Poisoned::default(),
        }
    }

    /// The shell did not hand over what a producer asked, for this time, because
    /// [`Service::is_waiting`] said so.
    pub fn note_producer_wait(&mut self, wait_ns: u64) {
        let waits = &mut self.counters.waits;
        waits.number += 1;
        waits.sum_ns += wait_ns;
        waits.max_ns = waits.max_ns.max(wait_ns);
    }

    /// Tells the user, once a buffer and shard, that an engine has failed. Called by whoever may be
    /// the first to notice: a commit that was refused, and statistics.
    pub(crate) fn warn_of_poisoned(&mut self, session_id: SessionId) {
        let Some(session) = self.sessions.get(&session_id) else { return };
        let mut warnings = Vec::new();
        for (index, buffer_id) in session.buffers.iter().enumerate() {
            if let Some(num_shards) = self.buffers.newly_poisoned(*buffer_id) {
                warnings.push(Warning::ShardPoisoned { session_id, index, num_shards });
            }
        }
        warnings.into_iter().for_each(|warning| self.warn(warning));
    }
}

fn poisoned(buffers: &BufferTable) -> Poisoned {
    buffers.iter().map(|buffer| buffer.trace.poisoned()).fold(Poisoned::default(), |sum, of_buffer| {
        Poisoned { shards: sum.shards + of_buffer.shards, chunks: sum.chunks + of_buffer.chunks }
    })
}

#[cfg(test)]
mod tests;
