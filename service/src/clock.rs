//! Clock readings, which the shell takes, and the ring of those worth writing into the trace.

use std::collections::VecDeque;

use watershed_wire::protos;

use crate::limits::{CLOCK_DRIFT_NS_MIN, CLOCK_SNAPSHOTS_MAX};

/// `BuiltinClock` numbers, in the order in which a snapshot lists them. BOOTTIME comes first: the
/// trace's other clocks are related to it.
const BOOTTIME: u32 = 6;
const REALTIME_COARSE: u32 = 2;
const MONOTONIC_COARSE: u32 = 4;
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
const MONOTONIC_RAW: u32 = 5;
const TSC: u32 = 9;

/// The clock in which the service stamps its own packets, and a trace's primary clock unless the
/// config says otherwise.
pub(crate) const BOOTTIME_CLOCK_ID: u32 = BOOTTIME;

/// All clocks of the machine, read back to back by the shell just before the call that gets them.
///
/// Timers run on `monotonic_ns` (those of a session with `prefer_suspend_clock_for_duration` on
/// `boottime_ns`), timestamps in the trace are `boottime_ns`. Readings that go backwards between
/// calls do no harm but delay timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReadings {
    /// `CLOCK_BOOTTIME`.
    pub boottime_ns: u64,
    /// `CLOCK_REALTIME_COARSE`.
    pub realtime_coarse_ns: u64,
    /// `CLOCK_MONOTONIC_COARSE`.
    pub monotonic_coarse_ns: u64,
    /// `CLOCK_REALTIME`.
    pub realtime_ns: u64,
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// `CLOCK_MONOTONIC_RAW`.
    pub monotonic_raw_ns: u64,
    /// The processor's time stamp counter, raw; only where producers could use it (x86-64).
    pub tsc_cycles: Option<u64>,
}

impl ClockReadings {
    /// The `ClockSnapshot` message of these readings.
    pub(crate) fn to_proto(self, primary_trace_clock: i32) -> protos::ClockSnapshot {
        let mut clocks = Vec::with_capacity(7);
        let mut put = |clock_id: u32, timestamp: u64| {
            clocks.push(protos::clock_snapshot::Clock {
                clock_id: Some(clock_id),
                timestamp: Some(timestamp),
                ..Default::default()
            });
        };
        for (clock_id, timestamp) in self.in_ns() {
            put(clock_id, timestamp);
        }
        if let Some(cycles) = self.tsc_cycles {
            put(TSC, cycles);
        }
        protos::ClockSnapshot { clocks, primary_trace_clock: Some(primary_trace_clock) }
    }

    fn in_ns(&self) -> [(u32, u64); 6] {
        [
            (BOOTTIME, self.boottime_ns),
            (REALTIME_COARSE, self.realtime_coarse_ns),
            (MONOTONIC_COARSE, self.monotonic_coarse_ns),
            (REALTIME, self.realtime_ns),
            (MONOTONIC, self.monotonic_ns),
            (MONOTONIC_RAW, self.monotonic_raw_ns),
        ]
    }

    /// Whether any clock has moved against BOOTTIME by at least the limit between `earlier` and
    /// now. The time stamp counter is left out: it counts cycles, and compared as nanoseconds it
    /// would always have drifted.
    fn has_drifted_since(&self, earlier: &ClockReadings) -> bool {
        let boottime_passed = self.boottime_ns.wrapping_sub(earlier.boottime_ns) as i64;
        self.in_ns().iter().zip(earlier.in_ns()).any(|((_, now), (_, then))| {
            let passed = now.wrapping_sub(then) as i64;
            passed.abs_diff(boottime_passed) >= CLOCK_DRIFT_NS_MIN
        })
    }
}

/// Snapshots that wait for the next read: only those that tell something new, the latest
/// [`CLOCK_SNAPSHOTS_MAX`].
#[derive(Clone, Debug, Default)]
pub(crate) struct DriftRing {
    waiting: VecDeque<ClockReadings>,
}

impl DriftRing {
    /// Keeps `now` if nothing waits, or if a clock has drifted since the last one that waits.
    pub(crate) fn offer(&mut self, now: &ClockReadings) {
        if self.waiting.back().is_some_and(|last| !now.has_drifted_since(last)) {
            return;
        }
        if self.waiting.len() == CLOCK_SNAPSHOTS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(*now);
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = ClockReadings> + '_ {
        self.waiting.drain(..)
    }
}
