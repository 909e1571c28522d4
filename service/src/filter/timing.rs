//! How long a filter takes, by one packet in so many: for a small one reading the clock takes as
//! long as filtering it.

use std::sync::atomic::{AtomicU64, Ordering};

/// One packet in so many is timed.
const TIMED_ONE_IN: u64 = 32;

/// What a shell reads the time with, in nanoseconds.
pub(crate) type FilterClock = fn() -> u64;

/// Adds up how long packets took.
#[derive(Debug)]
pub(super) struct FilterTime {
    pub(super) clock: Option<FilterClock>,
    /// Of those that were timed. Relaxed: it publishes nothing.
    timed_ns: AtomicU64,
}

/// A packet that is being timed.
pub(super) struct Timed {
    clock: FilterClock,
    /// What one reading of the clock takes.
    reading_ns: u64,
    begin_ns: u64,
}

impl FilterTime {
    pub(super) fn new(clock: Option<FilterClock>) -> FilterTime {
        FilterTime { clock, timed_ns: AtomicU64::new(0) }
    }

    /// To be called in front of the packet with this number, from 0; its end is to be told.
    pub(super) fn begin(&self, number: u64) -> Option<Timed> {
        let clock = self.clock.filter(|_| number.is_multiple_of(TIMED_ONE_IN))?;
        let before_ns = clock();
        let begin_ns = clock();
        Some(Timed { clock, reading_ns: begin_ns.saturating_sub(before_ns), begin_ns })
    }

    pub(super) fn end(&self, timed: Option<Timed>) {
        let Some(Timed { clock, reading_ns, begin_ns }) = timed else { return };
        let taken_ns = clock().saturating_sub(begin_ns).saturating_sub(reading_ns);
        self.timed_ns.fetch_add(taken_ns, Ordering::Relaxed);
    }

    /// What so many packets took, by the mean of those that were timed. `None` without a clock.
    pub(super) fn of_all_ns(&self, num_packets: u64) -> Option<u64> {
        self.clock?;
        let timed_ns = u128::from(self.timed_ns.load(Ordering::Relaxed));
        let num_timed = u128::from(num_packets.div_ceil(TIMED_ONE_IN).max(1));
        u64::try_from(timed_ns * u128::from(num_packets) / num_timed).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Between its readings lie 1, 3, 5, 7 ns and so on.
    fn clock() -> u64 {
        thread_local!(static READINGS: Cell<u64> = const { Cell::new(0) });
        let readings = READINGS.get();
        READINGS.set(readings + 1);
        readings * readings
    }

    #[test]
    fn one_packet_in_32_speaks_for_the_others() {
        let time = FilterTime::new(Some(clock));
        let mut num_timed = 0;
        for number in 0..100 {
            let timed = time.begin(number);
            num_timed += u64::from(timed.is_some());
            time.end(timed);
        }
        assert_eq!(num_timed, 4);
        assert_eq!(time.of_all_ns(100), Some(200), "2 ns each, the reading left out");
        assert_eq!(FilterTime::new(None).of_all_ns(100), None);
        assert_eq!(FilterTime::new(Some(clock)).of_all_ns(0), Some(0));
    }
}
