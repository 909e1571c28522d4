//! The two clocks that tracing uses.

#[expect(unsafe_code, reason = "the counter is read by an instruction that no safe function has")]
mod counter;
mod thread;

use std::time::Duration;

use rustix::time::ClockId;
pub(crate) use thread::ThreadClock;
pub use watershed_shell::machine::monotonic_ns;
use watershed_shell::machine::read_ns;

/// Nanoseconds of the clock of packet timestamps: CLOCK_BOOTTIME where the system has it (it goes
/// on while the machine sleeps), else CLOCK_MONOTONIC.
#[must_use]
pub fn boottime_ns() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        read_ns(ClockId::Boottime)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        monotonic_ns()
    }
}

/// How long it is until `due_ns`, zero when it has passed.
pub(crate) fn until(due_ns: u64, now_ns: u64) -> Duration {
    Duration::from_nanos(due_ns.saturating_sub(now_ns))
}
