//! Timers: one slot for each kind and session. What waits for acknowledgements of a flush has its
//! deadline beside it.

use crate::clock::ClockReadings;
use crate::limits::NS_PER_MS;

#[cfg(test)]
mod tests;

/// What a session can wait for. The order is the order in which timers that are due at one time
/// fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Clock snapshot, sync marker and statistics are due.
    Snapshot,
    /// Data sources that still have not started are to be noted.
    SlowStart,
    /// A flush at intervals is due.
    PeriodicFlush,
    /// Incremental state is to be cleared.
    ClearIncrementalState,
    /// The next write into the file is due.
    FileWrite,
    /// `duration_ms` is over.
    Duration,
    /// Data sources have had their time to stop.
    StopTimeout,
    /// No trigger has started the session in time.
    TriggerTimeout,
}

impl Timer {
    const ALL: [Timer; 8] = [
        Timer::Snapshot,
        Timer::SlowStart,
        Timer::PeriodicFlush,
        Timer::ClearIncrementalState,
        Timer::FileWrite,
        Timer::Duration,
        Timer::StopTimeout,
        Timer::TriggerTimeout,
    ];
}

const _: () = {
    let mut i = 0;
    while i < Timer::ALL.len() {
        assert!(Timer::ALL[i] as usize == i, "ALL lists every timer at its own index");
        i += 1;
    }
};

/// The clock that a deadline is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerClock {
    /// Stands still while the machine sleeps.
    Monotonic,
    /// Goes on while the machine sleeps.
    Boottime,
}

impl TimerClock {
    pub(crate) fn now_ns(self, now: &ClockReadings) -> u64 {
        match self {
            TimerClock::Monotonic => now.monotonic_ns,
            TimerClock::Boottime => now.boottime_ns,
        }
    }
}

/// A time on one of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    clock: TimerClock,
    at_ns: u64,
}

impl Deadline {
    /// Long ago on any clock: due as soon as anyone asks.
    pub(crate) const AT_ONCE: Deadline = Deadline { clock: TimerClock::Monotonic, at_ns: 0 };

    /// `delay_ms` from now.
    pub(crate) fn after_ms(clock: TimerClock, delay_ms: u32, now: &ClockReadings) -> Deadline {
        Deadline { clock, at_ns: clock.now_ns(now).saturating_add(u64::from(delay_ms) * NS_PER_MS) }
    }

    /// The next multiple of `period_ms` on the clock, so that all sessions with one period fire
    /// together. Never now: a full period away where now is such a multiple. `period_ms` must not
    /// be zero.
    pub(crate) fn next_multiple(clock: TimerClock, period_ms: u32, now: &ClockReadings) -> Deadline {
        let (now_ns, period_ns) = (clock.now_ns(now), u64::from(period_ms) * NS_PER_MS);
        Deadline { clock, at_ns: (now_ns - now_ns % period_ns).saturating_add(period_ns) }
    }

    /// How long ago it was, `None` while it is still to come.
    pub(crate) fn overdue_ns(self, now: &ClockReadings) -> Option<u64> {
        self.clock.now_ns(now).checked_sub(self.at_ns)
    }
}

/// The timers of one session.
#[derive(Debug, Default)]
pub(crate) struct TimerTable {
    slots: [Option<Deadline>; Timer::ALL.len()],
}

impl TimerTable {
    pub(crate) fn arm(&mut self, timer: Timer, deadline: Deadline) {
        self.slots[timer as usize] = Some(deadline);
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        self.slots[timer as usize] = None;
    }

    pub(crate) fn stop_all(&mut self) {
        self.slots = Default::default();
    }

    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Deadline> + '_ {
        self.slots.iter().filter_map(|slot| *slot)
    }

    /// The timer that is overdue longest, with by how much; of several the first in the order of
    /// [`Timer`].
    pub(crate) fn most_overdue(&self, now: &ClockReadings) -> Option<(u64, Timer)> {
        let mut most: Option<(u64, Timer)> = None;
        for timer in Timer::ALL {
            let overdue = self.slots[timer as usize].and_then(|deadline| deadline.overdue_ns(now));
            if let Some(overdue_ns) = overdue
                && most.is_none_or(|(longest_ns, _)| overdue_ns > longest_ns)
            {
                most = Some((overdue_ns, timer));
            }
        }
        most
    }
}

/// When the service wants to be called next, at the latest: on each clock the earliest time at
/// which something is due. Times in the past mean at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// Earliest deadline on `CLOCK_MONOTONIC`.
    pub monotonic_ns: Option<u64>,
    /// Earliest deadline on `CLOCK_BOOTTIME` (it matters only where the machine may be suspended).
    pub boottime_ns: Option<u64>,
}

impl Deadlines {
    pub(crate) fn include(&mut self, deadline: Deadline) {
        let slot = match deadline.clock {
            TimerClock::Monotonic => &mut self.monotonic_ns,
            TimerClock::Boottime => &mut self.boottime_ns,
        };
        *slot = Some(slot.map_or(deadline.at_ns, |earliest| earliest.min(deadline.at_ns)));
    }

    /// How long to wait before the next
    /// [`Service::handle_timeout`](crate::Service::handle_timeout), 0 if something is due; `None`:
    /// until the next event from outside.
    pub fn wait_ns(&self, now: &ClockReadings) -> Option<u64> {
        let monotonic = self.monotonic_ns.map(|at_ns| at_ns.saturating_sub(now.monotonic_ns));
        let boottime = self.boottime_ns.map(|at_ns| at_ns.saturating_sub(now.boottime_ns));
        monotonic.into_iter().chain(boottime).min()
    }
}
