//! One line about how the daemon fares.

use std::fmt;
use std::time::Duration;

use watershed_service::{CommitStats, Service};

/// Who is there, and what became of commits since the start.
pub(crate) struct Status {
    num_producers: usize,
    num_sessions: usize,
    /// Reads, clones and drops that another thread does, and may wait for.
    num_waiting: usize,
    commits: CommitStats,
}

impl Status {
    pub(crate) fn of(service: &Service, num_waiting: usize) -> Status {
        Status {
            num_producers: service.num_producers(),
            num_sessions: service.num_sessions(),
            num_waiting,
            commits: service.commit_stats(),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { num_producers, num_sessions, num_waiting, commits } = self;
        let CommitStats { waits, poisoned, .. } = commits;
        write!(f, "status: {num_producers} producers, {num_sessions} sessions; ")?;
        if *num_waiting > 0 {
            write!(f, "{num_waiting} reads, clones and drops are under way; ")?;
        }
        if let Some(workers) = commits.workers {
            let turns = workers.turns.max(1) as f64;
            let mean_us = workers.latency_sum.as_secs_f64() * 1e6 / turns;
            let max_us = workers.latency_max.as_micros();
            write!(f, "{} turns of workers, {mean_us:.0} us after the commit on average, ", workers.turns)?;
            write!(f, "{max_us} us at most; ")?;
        }
        let [sum_ms, max_ms] = [waits.sum_ns, waits.max_ns].map(|ns| Duration::from_nanos(ns).as_millis());
        write!(f, "{} commits found a queue full, ", commits.num_handed_back)?;
        write!(f, "{} waits of producers for it took {sum_ms} ms, {max_ms} ms at most", waits.number)?;
        match poisoned.shards {
            0 => Ok(()),
            shards => write!(f, "; {shards} shards have failed, {} chunks were lost there", poisoned.chunks),
        }
    }
}

#[cfg(test)]
mod tests {
    use watershed_service::{Poisoned, ProducerWaits, WorkerStats};

    use super::*;

    #[test]
    fn a_line_says_how_commits_fare() {
        let workers = WorkerStats {
            turns: 4,
            latency_sum: Duration::from_micros(200),
            latency_max: Duration::from_micros(90),
        };
        let mut status = Status {
            num_producers: 3,
            num_sessions: 1,
            num_waiting: 0,
            commits: CommitStats {
                num_handed_back: 5,
                waits: ProducerWaits { number: 2, sum_ns: 7_000_000, max_ns: 4_000_000 },
                workers: Some(workers),
                poisoned: Poisoned::default(),
            },
        };
        let waits = "5 commits found a queue full, 2 waits of producers for it took 7 ms, 4 ms at most";
        let turns = "4 turns of workers, 50 us after the commit on average, 90 us at most; ";
        let who = "status: 3 producers, 1 sessions; ";
        assert_eq!(status.to_string(), format!("{who}{turns}{waits}"));
        status.commits.workers = None;
        assert_eq!(status.to_string(), format!("{who}{waits}"));
        status.num_waiting = 2;
        let under_way = "2 reads, clones and drops are under way; ";
        assert_eq!(status.to_string(), format!("{who}{under_way}{waits}"));
        status.num_waiting = 0;
        status.commits.poisoned = Poisoned { shards: 1, chunks: 9 };
        let failed = "; 1 shards have failed, 9 chunks were lost there";
        assert_eq!(status.to_string(), format!("{who}{waits}{failed}"));
    }
}
