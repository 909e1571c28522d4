//! Timestamps of all clocks of a trace, in its primary clock.
//!
//! A clock snapshot is several clocks read at one moment. A timestamp of clock C is placed by the
//! last snapshot that has both C and the primary clock P:
//!
//! ```text
//!   P(t) = P(snapshot) + (t - C(snapshot))
//! ```
//!
//! Ids 64 to 127 are private to a sequence: they count in units of their own, and with
//! `is_incremental` each timestamp is the distance from the one before it on that sequence.

use watershed_wire::protos::{BuiltinClock, ClockSnapshot, clock_snapshot::Clock};

/// First and last id of the clocks that are private to a sequence.
const SEQUENCE_CLOCKS: std::ops::RangeInclusive<u32> = 64..=127;

/// Clocks of the whole trace that are kept; a hostile trace could name 2^32.
const CLOCKS_MAX: usize = 256;

/// Two clocks read at the same moment.
#[derive(Debug, Clone, Copy)]
struct Reading {
    clock_id: u32,
    ns: u64,
    primary_ns: u64,
}

/// The clocks that are the same on all sequences.
#[derive(Debug)]
pub(super) struct Clocks {
    primary: u32,
    readings: Vec<Reading>,
    /// Wall clock and primary clock of the first snapshot that has both.
    wall: Option<(u64, u64)>,
}

impl Default for Clocks {
    fn default() -> Self {
        Clocks { primary: BuiltinClock::Boottime as u32, readings: Vec::new(), wall: None }
    }
}

impl Clocks {
    pub(super) fn primary(&self) -> u32 {
        self.primary
    }

    /// Takes the snapshot's clocks; those of a sequence go to `sequence`.
    pub(super) fn take(&mut self, snapshot: &ClockSnapshot, sequence: Option<&mut SequenceClocks>) {
        if let Some(primary) = snapshot.primary_trace_clock
            && self.readings.is_empty()
        {
            self.primary = primary as u32;
        }
        let Some(primary_ns) = self.primary_ns(snapshot) else {
            return;
        };
        for clock in &snapshot.clocks {
            let reading = Reading { clock_id: clock.clock_id(), ns: clock.timestamp(), primary_ns };
            if !SEQUENCE_CLOCKS.contains(&reading.clock_id) {
                self.keep(reading);
            }
        }
        if let Some(sequence) = sequence {
            sequence.take(snapshot, primary_ns);
        }
        if self.wall.is_none() {
            self.wall = find(snapshot, BuiltinClock::Realtime as u32)
                .map(|realtime| (realtime.timestamp(), primary_ns));
        }
    }

    /// The moment of a snapshot in the primary clock, by itself or by any clock that was seen
    /// together with it before.
    fn primary_ns(&self, snapshot: &ClockSnapshot) -> Option<u64> {
        if let Some(clock) = find(snapshot, self.primary) {
            return Some(clock.timestamp());
        }
        let shared = |clock: &Clock| self.place(clock.clock_id(), clock.timestamp());
        snapshot.clocks.iter().find_map(shared)
    }

    fn keep(&mut self, reading: Reading) {
        let known = self.readings.iter().position(|known| known.clock_id == reading.clock_id);
        match known {
            Some(index) => self.readings[index] = reading,
            None if self.readings.len() < CLOCKS_MAX => self.readings.push(reading),
            None => {}
        }
    }

    /// A timestamp of a clock of the whole trace, in the primary clock.
    pub(super) fn place(&self, clock_id: u32, ns: u64) -> Option<u64> {
        if clock_id == self.primary {
            return Some(ns);
        }
        let reading = self.readings.iter().find(|reading| reading.clock_id == clock_id)?;
        offset(reading.primary_ns, ns, reading.ns)
    }

    /// A moment of the primary clock as nanoseconds since 1970.
    pub(super) fn wall_ns(&self, primary_ns: u64) -> Option<u64> {
        let (wall_ns, at_primary_ns) = self.wall?;
        offset(wall_ns, primary_ns, at_primary_ns)
    }
}

/// The private clocks of one sequence.
#[derive(Debug, Default)]
pub(super) struct SequenceClocks(Vec<SequenceClock>);

#[derive(Debug)]
struct SequenceClock {
    clock_id: u32,
    unit_ns: u64,
    is_incremental: bool,
    /// Last timestamp of an incremental clock, in its units, since it was last set.
    last: u64,
    set_at: u64,
    set_at_primary_ns: u64,
}

impl SequenceClocks {
    fn take(&mut self, snapshot: &ClockSnapshot, primary_ns: u64) {
        for clock in &snapshot.clocks {
            if !SEQUENCE_CLOCKS.contains(&clock.clock_id()) {
                continue;
            }
            self.0.retain(|known| known.clock_id != clock.clock_id());
            self.0.push(SequenceClock {
                clock_id: clock.clock_id(),
                unit_ns: clock.unit_multiplier_ns.unwrap_or(1).max(1),
                is_incremental: clock.is_incremental(),
                last: clock.timestamp(),
                set_at: clock.timestamp(),
                set_at_primary_ns: primary_ns,
            });
        }
    }

    /// Forgets what was counted up from packets: one of them is missing.
    pub(super) fn lose(&mut self) {
        self.0.retain(|clock| !clock.is_incremental);
    }

    /// A timestamp of this sequence in the primary clock of `clocks`. Each packet's timestamp is to
    /// be asked for once, in order.
    pub(super) fn place(&mut self, clocks: &Clocks, clock_id: u32, timestamp: u64) -> Option<u64> {
        if !SEQUENCE_CLOCKS.contains(&clock_id) {
            return clocks.place(clock_id, timestamp);
        }
        let clock = self.0.iter_mut().find(|clock| clock.clock_id == clock_id)?;
        let at = match clock.is_incremental {
            true => {
                clock.last = clock.last.wrapping_add(timestamp);
                clock.last
            }
            false => timestamp,
        };
        let ns = at.checked_mul(clock.unit_ns)?;
        offset(clock.set_at_primary_ns, ns, clock.set_at.checked_mul(clock.unit_ns)?)
    }
}

fn find(snapshot: &ClockSnapshot, clock_id: u32) -> Option<&Clock> {
    snapshot.clocks.iter().find(|clock| clock.clock_id() == clock_id)
}

/// `base + (at - zero)`, `None` where that is no time.
fn offset(base: u64, at: u64, zero: u64) -> Option<u64> {
    u64::try_from(i128::from(base) + i128::from(at) - i128::from(zero)).ok()
}

/// The name of a clock that has a fixed id.
pub(super) fn name(clock_id: u32) -> String {
    i32::try_from(clock_id).ok().and_then(|id| BuiltinClock::try_from(id).ok()).map_or_else(
        || format!("clock {clock_id}"),
        |clock| {
            let name = clock.as_str_name();
            name.trim_start_matches("BUILTIN_CLOCK_").to_ascii_lowercase()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(clock_id: u32, timestamp: u64) -> Clock {
        Clock { clock_id: Some(clock_id), timestamp: Some(timestamp), ..Default::default() }
    }

    fn snapshot(clocks: &[Clock]) -> ClockSnapshot {
        ClockSnapshot { clocks: clocks.to_vec(), primary_trace_clock: Some(6) }
    }

    #[test]
    fn clocks_of_the_trace() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.place(6, 5), Some(5), "the primary clock needs no snapshot");
        assert_eq!(clocks.place(3, 5), None);
        clocks.take(&snapshot(&[clock(6, 1000), clock(3, 400), clock(1, 90_000)]), None);
        assert_eq!(clocks.place(3, 410), Some(1010));
        assert_eq!(clocks.place(3, 390), Some(990), "before the snapshot too");
        assert_eq!(clocks.wall_ns(1001), Some(90_001));
        // The clocks have drifted apart: the later snapshot counts.
        clocks.take(&snapshot(&[clock(6, 2000), clock(3, 1300)]), None);
        assert_eq!(clocks.place(3, 1310), Some(2010));
        assert_eq!(clocks.place(3, 0), Some(700));
        assert_eq!(clocks.wall_ns(2000), Some(91_000), "the wall clock's first reading stays");
    }

    #[test]
    fn snapshots_without_the_primary_clock_are_placed_by_another() {
        let mut clocks = Clocks::default();
        clocks.take(&snapshot(&[clock(6, 1000), clock(3, 400)]), None);
        clocks.take(&snapshot(&[clock(3, 500), clock(200, 7)]), None);
        assert_eq!(clocks.place(200, 8), Some(1101));
    }

    #[test]
    fn times_that_are_none() {
        let mut clocks = Clocks::default();
        clocks.take(&snapshot(&[clock(6, 10), clock(3, 400)]), None);
        assert_eq!(clocks.place(3, 1), None, "before time 0");
        clocks.take(&snapshot(&[clock(6, u64::MAX), clock(3, 0)]), None);
        assert_eq!(clocks.place(3, 1), None, "after the end of time");
    }

    #[test]
    fn incremental_clocks_count_up() {
        let mut clocks = Clocks::default();
        let mut sequence = SequenceClocks::default();
        let incremental =
            Clock { is_incremental: Some(true), unit_multiplier_ns: Some(1000), ..clock(64, 5) };
        let absolute = Clock { unit_multiplier_ns: Some(10), ..clock(65, 100) };
        clocks.take(&snapshot(&[clock(6, 1_000_000), incremental, absolute]), Some(&mut sequence));
        assert_eq!(sequence.place(&clocks, 64, 2), Some(1_002_000));
        assert_eq!(sequence.place(&clocks, 64, 3), Some(1_005_000));
        assert_eq!(sequence.place(&clocks, 65, 101), Some(1_000_010));
        assert_eq!(sequence.place(&clocks, 6, 9), Some(9));
        sequence.lose();
        assert_eq!(sequence.place(&clocks, 64, 1), None);
        assert_eq!(sequence.place(&clocks, 65, 101), Some(1_000_010));
    }

    #[test]
    fn names() {
        assert_eq!(name(6), "boottime");
        assert_eq!(name(4), "monotonic_coarse");
        assert_eq!(name(77), "clock 77");
    }
}
