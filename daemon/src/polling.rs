//! Polling for the next commit, where sleeping until it comes may lose data.
//!
//! ```text
//!   commit      commit      commit
//!     | handled   | handled   | handled
//!     +--> poll --+--> poll --+--> poll ... 100 us --> sleep
//! ```
//!
//! Where all CPUs are busy, a thread that has slept waits for one, up to some time slices of a few
//! milliseconds. So does the producer's own thread that sends commits, if the CPU on which both had
//! nothing to do for a moment was given to others. The producer's shared memory has to bridge that
//! time. Small memory cannot while its producer writes fast: 256 KiB are full after a millisecond
//! of 256 MB/s. Who polls keeps its CPU.
//!
//! One thread polls at a time, and all polling takes at most a fifth of a CPU on average: a
//! producer that commits for no reason gets no more.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use watershed_shell::machine::monotonic_ns;
use watershed_smb::Smb;

/// So long a thread polls for the next commit.
const POLL_NS_MAX: u64 = 100_000;
/// Larger shared memory bridges the wait for a CPU.
const SHARED_MEMORY_BYTES_MAX: usize = 1 << 20;
/// Memory that would take longer to fill, if commits went on like the last one, can wait. (With 25
/// ms beside 100 other producers a chunk was free later: whoever polls takes their events, too.)
const FILL_NS_MAX: u64 = 10_000_000;
/// A nanosecond of polling is earned in so many.
const NS_PER_POLLED_NS: u64 = 5;
/// What is earned and not used, at most.
const EARNED_NS_MAX: u64 = 100_000_000;

/// Whether and how long the daemon's threads poll.
#[derive(Debug)]
pub(crate) struct Polling {
    /// A commit has come whose successor cannot wait.
    is_wanted: AtomicBool,
    /// Whoever has it locked polls. `None` where there is one CPU: others need it.
    budget: Option<Mutex<Budget>>,
}

#[derive(Debug)]
struct Budget {
    earned_ns: u64,
    updated_ns: u64,
}

impl Polling {
    /// Where so many CPUs may be busy at once.
    pub(crate) fn new(num_cpus: usize) -> Polling {
        let budget = Budget { earned_ns: EARNED_NS_MAX, updated_ns: monotonic_ns() };
        Polling { is_wanted: false.into(), budget: (num_cpus > 1).then(|| Mutex::new(budget)) }
    }

    /// A producer has committed so many chunks (> 0), so long after its last commit. The number is
    /// what it says: one that lies gets no more than the budget.
    pub(crate) fn note_commit(&self, memory: &Smb, num_chunks: usize, interval_ns: u64) {
        let fill_ns = interval_ns.saturating_mul(memory.num_pages() as u64) / num_chunks as u64;
        if memory.size_bytes() <= SHARED_MEMORY_BYTES_MAX && fill_ns <= FILL_NS_MAX {
            // Relaxed: it publishes nothing.
            self.is_wanted.store(true, Ordering::Relaxed);
        }
    }

    /// If a commit was noted: calls this until it returns true, for [`POLL_NS_MAX`] at most. Not if
    /// another thread does so, or there was too much of it.
    pub(crate) fn poll(&self, mut has_come: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
        // Relaxed: it publishes nothing.
        if !self.is_wanted.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let Some(Ok(mut budget)) = self.budget.as_ref().map(Mutex::try_lock) else { return Ok(()) };
        let begun_ns = monotonic_ns();
        if !budget.allows_at(begun_ns) {
            return Ok(());
        }
        let mut now_ns = begun_ns;
        while now_ns - begun_ns < POLL_NS_MAX && !has_come()? {
            now_ns = monotonic_ns();
        }
        budget.spend(now_ns - begun_ns);
        Ok(())
    }
}

impl Budget {
    /// Whether a thread may poll for as long as it wants to.
    fn allows_at(&mut self, now_ns: u64) -> bool {
        let new_ns = now_ns.saturating_sub(self.updated_ns) / NS_PER_POLLED_NS;
        self.earned_ns = EARNED_NS_MAX.min(self.earned_ns + new_ns);
        self.updated_ns = now_ns;
        self.earned_ns >= POLL_NS_MAX
    }

    fn spend(&mut self, polled_ns: u64) {
        self.earned_ns = self.earned_ns.saturating_sub(polled_ns);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use watershed_smb::SharedMemory;

    use super::*;

    const PAGE_BYTES: usize = 4096;
    const NS_PER_MS: u64 = 1_000_000;

    fn memory(size_bytes: usize) -> Smb {
        Smb::new(Arc::new(SharedMemory::anonymous(size_bytes).unwrap()), PAGE_BYTES).unwrap()
    }

    /// How often a thread looks for a commit that does not come.
    fn looks(polling: &Polling) -> u64 {
        let looks = AtomicU64::new(0);
        let look = || Ok(looks.fetch_add(1, Ordering::Relaxed) == u64::MAX);
        polling.poll(look).unwrap();
        looks.into_inner()
    }

    #[test]
    fn commits_that_cannot_wait_are_polled_for_once_each() {
        let (polling, small) = (Polling::new(2), memory(64 * PAGE_BYTES));
        assert_eq!(looks(&polling), 0, "nothing was committed");
        polling.note_commit(&small, 1, NS_PER_MS / 10);
        assert!(looks(&polling) > 0);
        assert_eq!(looks(&polling), 0);
        polling.note_commit(&small, 1, NS_PER_MS);
        assert_eq!(looks(&polling), 0, "its memory is full after 64 ms");
        polling.note_commit(&small, 64, NS_PER_MS);
        assert!(looks(&polling) > 0, "it was full after one");
        polling.note_commit(&memory(2 * SHARED_MEMORY_BYTES_MAX), 64, 0);
        assert_eq!(looks(&polling), 0, "its memory is large");
        polling.note_commit(&small, 1, u64::MAX);
        assert_eq!(looks(&polling), 0, "it was the first one");
    }

    #[test]
    fn a_commit_that_has_come_ends_it() {
        let (polling, small) = (Polling::new(2), memory(64 * PAGE_BYTES));
        polling.note_commit(&small, 1, 0);
        let mut looks = 0;
        let look = || {
            looks += 1;
            Ok(true)
        };
        polling.poll(look).unwrap();
        assert_eq!(looks, 1);
        polling.note_commit(&small, 1, 0);
        assert!(polling.poll(|| Err(io::ErrorKind::Other.into())).is_err());
    }

    #[test]
    fn one_thread_polls_and_none_on_a_single_cpu() {
        let (polling, small) = (Polling::new(2), memory(64 * PAGE_BYTES));
        polling.note_commit(&small, 1, 0);
        let look = || {
            polling.note_commit(&small, 1, 0);
            assert_eq!(looks(&polling), 0);
            Ok(true)
        };
        polling.poll(look).unwrap();
        let single = Polling::new(1);
        single.note_commit(&small, 1, 0);
        assert_eq!(looks(&single), 0);
    }

    #[test]
    fn polling_takes_a_fifth_of_the_time() {
        const END_NS: u64 = 10_000 * NS_PER_MS;
        let mut budget = Budget { earned_ns: 0, updated_ns: 0 };
        let (mut now_ns, mut polled_ns) = (0, 0);
        while now_ns < END_NS {
            now_ns += 20_000;
            if budget.allows_at(now_ns) {
                now_ns += POLL_NS_MAX;
                polled_ns += POLL_NS_MAX;
                budget.spend(POLL_NS_MAX);
            }
        }
        assert!((END_NS / 6..=END_NS / 5).contains(&polled_ns), "{polled_ns} of {END_NS} ns");
        // An hour without commits earns no more than what one burst takes.
        assert!(budget.allows_at(now_ns + 3_600_000 * NS_PER_MS));
        assert_eq!(budget.earned_ns, EARNED_NS_MAX);
    }
}
