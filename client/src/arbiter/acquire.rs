//! Getting a chunk, and what to do when there is none.

use std::time::Duration;

use watershed_smb::WriteChunk;

use super::counts::count;
use super::search::Search;
use super::{Returns, Shared};
use crate::sync::{Ordering, lock};

/// The longest single wait of a stalled writer.
const MAX_STALL: Duration = Duration::from_millis(100);

/// What a writer does when the service is behind and no chunk is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExhaustedPolicy {
    /// Drop packets until a chunk is free again; the next packet that gets through says so. Never
    /// waits. The first packet for which no chunk is free looks through all memory that the chunks
    /// before it have earned (eight pages each). From then on a packet looks at nothing but the
    /// service's count of freed chunks. When that changes the next packet looks into the page that
    /// was freed last, and where chunks come free in the order of their taking. A chunk that is in
    /// neither place is found after at most eight dropped packets for each page, and 128; at once
    /// in a memory of 16 pages at most. With a service that has no such count, as Perfetto's, every
    /// eighth packet looks where chunks come free in the order of their taking.
    #[default]
    Drop,
    /// Wait with growing pauses; after [`crate::ArbiterOptions::stall_limit`] of them end the
    /// process. For programs that exist to trace, where a trace with a hole is worth nothing. Only
    /// with [`crate::ArbiterOptions::allow_abort`]; without it [`Self::StallThenDrop`].
    StallThenAbort,
    /// Wait in the same way, then drop, without waiting again before one packet got through.
    StallThenDrop,
}

impl ExhaustedPolicy {
    /// The policy that a data source config asks for (`buffer_exhausted_policy`), if it asks for
    /// one.
    #[must_use]
    pub fn from_config(value: i32) -> Option<Self> {
        match value {
            1 => Some(Self::Drop),
            2 => Some(Self::StallThenAbort),
            3 => Some(Self::StallThenDrop),
            _ => None,
        }
    }

    /// The policy of a writer in a process that may be ended for it, or may not.
    pub(super) fn allowed(self, allow_abort: bool) -> Self {
        match self {
            Self::StallThenAbort if !allow_abort => Self::StallThenDrop,
            policy => policy,
        }
    }

    /// True if a writer may wait for memory.
    #[must_use]
    pub fn waits(self) -> bool {
        self != Self::Drop
    }
}

/// The pauses of a stalled writer: none, then eight times the last one and 8 us more, at most 100
/// ms.
fn next_pause(last: Duration) -> Duration {
    ((last + Duration::from_micros(1)) * 8).min(MAX_STALL)
}

impl Shared {
    /// A chunk that is free now. `dropping` says that the writer's last attempt ended with `None`.
    #[inline]
    pub(crate) fn acquire_now(
        &self,
        policy: ExhaustedPolicy,
        dropping: bool,
        search: &mut Search,
        returns: &mut Returns,
    ) -> Option<WriteChunk> {
        if policy.waits()
            && self.is_producer_thread()
            && self.is_much(lock(&self.state).batches.sent().pending_bytes())
        {
            self.send_batch();
        }
        if policy.waits() && !dropping {
            search.allow_all();
        }
        self.try_acquire(search, returns)
    }

    /// What to do when no chunk is free now. `dropping` says that the writer's last attempt ended
    /// with `None` too.
    #[inline]
    pub(crate) fn acquire_later(
        &self,
        policy: ExhaustedPolicy,
        dropping: bool,
        search: &mut Search,
        returns: &mut Returns,
    ) -> Option<WriteChunk> {
        if policy == ExhaustedPolicy::StallThenAbort || policy == ExhaustedPolicy::StallThenDrop && !dropping
        {
            self.stall(policy, search, returns)
        } else {
            None
        }
    }

    #[inline]
    fn try_acquire(&self, search: &mut Search, returns: &mut Returns) -> Option<WriteChunk> {
        if self.is_shut_down() {
            return None;
        }
        let layout = self.crowding.layout(self.options.layout);
        let chunk = match search.take_own(&self.smb, layout) {
            Some(chunk) => chunk,
            None => {
                // Relaxed: where to start looking is a hint.
                let first = self.next_page.load(Ordering::Relaxed);
                let chunk = search.run(&self.smb, first, layout)?;
                self.next_page.store(chunk.page(), Ordering::Relaxed);
                chunk
            }
        };
        self.crowding.take(&chunk, returns);
        Some(chunk)
    }

    fn stall(
        &self,
        policy: ExhaustedPolicy,
        search: &mut Search,
        returns: &mut Returns,
    ) -> Option<WriteChunk> {
        let on_producer_thread = self.is_producer_thread();
        let mut pause = Duration::ZERO;
        for stall in 0..self.options.stall_limit {
            if self.is_shut_down() {
                break;
            }
            count(&self.counters.stalls);
            if on_producer_thread && stall % 2 == 0 {
                // Nobody else will send what fills the memory.
                self.send_batch();
                if let Some(service) = self.service.get() {
                    service.endpoint.send_waiting();
                }
            } else {
                std::thread::sleep(pause);
                pause = next_pause(pause);
            }
            search.allow_all();
            if let Some(chunk) = self.try_acquire(search, returns) {
                return Some(chunk);
            }
        }
        if policy == ExhaustedPolicy::StallThenAbort && !self.is_shut_down() {
            eprintln!(
                "watershed: no trace memory became free in {} waits, and the data source's buffer_exhausted_policy is \
                 to end the process then",
                self.options.stall_limit
            );
            std::process::abort();
        }
        None
    }

    fn is_producer_thread(&self) -> bool {
        self.producer_thread.get() == Some(&std::thread::current().id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit() {
        let pauses: Vec<_> =
            std::iter::successors(Some(Duration::ZERO), |last| Some(next_pause(*last))).take(8).collect();
        assert_eq!(pauses.map_us(), [0, 8, 72, 584, 4680, 37448, 100_000, 100_000]);
    }

    trait MapUs {
        fn map_us(self) -> Vec<u128>;
    }

    impl MapUs for Vec<Duration> {
        fn map_us(self) -> Vec<u128> {
            self.into_iter().map(|pause| pause.as_micros()).collect()
        }
    }

    #[test]
    fn policies_have_the_numbers_of_the_format() {
        let policies = [0, 1, 2, 3, 4].map(ExhaustedPolicy::from_config);
        use ExhaustedPolicy::{Drop, StallThenAbort, StallThenDrop};
        assert_eq!(policies, [None, Some(Drop), Some(StallThenAbort), Some(StallThenDrop), None]);
    }
}
