//! The time of packets, by the processor's counter where that can be trusted.
//!
//! ```text
//!   clock of the system     a0          a1          a2            anchors: counter and clock, read
//!                           |<- 1 ms -->|<--------->|             together
//!   counter                 c0    c     c1          c2
//!
//!   time at c  =  a0 + (c - c0) * rate         rate: of the last two anchors
//! ```
//!
//! An anchor holds for a millisecond: in that time the system's clock, which is never more than 500
//! ppm fast or slow, drifts half a microsecond from the last rate at most. An event that comes
//! later makes a new anchor, which costs it two readings of the clock.

use super::{boottime_ns, counter};
use crate::sync::OnceLock;

/// How long an anchor holds.
const WINDOW_NS: u64 = 1_000_000;
/// Anchors nearer to each other give no rate.
const RATE_NS_MIN: u64 = WINDOW_NS;
/// Anchors further apart give none either: the machine may have slept.
const RATE_NS_MAX: u64 = 10_000_000_000;
/// Between two readings of the counter, one before and one after that of the clock: more, and
/// something came between. Two anchors that are off by half of it, a millisecond apart, make a rate
/// that is off by 200 ppm.
const ANCHOR_NS_MAX: u64 = 200;
/// Fractional bits of a rate.
const RATE_BITS: u32 = 32;

#[derive(Clone, Copy, Debug)]
struct Anchor {
    ticks: u64,
    ns: u64,
    /// Between the two readings of the counter, in ticks: it is off by half of that at most.
    took: u64,
}

/// Boot time for one thread. No reading is before the one before it.
#[derive(Debug)]
pub(crate) struct ThreadClock {
    anchor: Anchor,
    /// Nanoseconds a tick; 0 while it is not known.
    rate: u64,
    /// How many ticks the anchor holds: 0 while there is no rate.
    window_ticks: u64,
}

impl ThreadClock {
    pub(crate) const fn new() -> Self {
        Self { anchor: Anchor { ticks: 0, ns: 0, took: 0 }, rate: 0, window_ticks: 0 }
    }

    /// Nanoseconds of the clock of packet timestamps, off by less than one microsecond. One reading
    /// may be that much before the one before it.
    #[inline]
    pub(crate) fn now_ns(&mut self) -> u64 {
        let since = counter::read().wrapping_sub(self.anchor.ticks);
        if since < self.window_ticks {
            // Within 2^53: a window has less than 2^22 ticks at 4 GHz, and a rate 2^32 at 1 GHz.
            return self.anchor.ns + ((since * self.rate) >> RATE_BITS);
        }
        self.read_clock()
    }

    /// The system's clock, of which a new anchor is made if the last one is old enough.
    #[cold]
    fn read_clock(&mut self) -> u64 {
        static IS_USABLE: OnceLock<bool> = OnceLock::new();
        let ns = boottime_ns();
        if !self.is_anchor_due(ns) || !*IS_USABLE.get_or_init(counter::is_usable) {
            return ns;
        }
        // That reading has brought the clock's code and data into the caches. Without it an anchor
        // takes some hundred nanoseconds where memory is slow, as it is made once a millisecond.
        let before = counter::read();
        let ns = boottime_ns();
        let took = counter::read().wrapping_sub(before);
        self.set_anchor(Anchor { ticks: before.wrapping_add(took / 2), ns, took });
        ns
    }

    /// Whether the last anchor is so old that a new one gives a rate.
    fn is_anchor_due(&self, ns: u64) -> bool {
        ns.saturating_sub(self.anchor.ns) >= RATE_NS_MIN
    }

    /// Takes an anchor that is due.
    fn set_anchor(&mut self, anchor: Anchor) {
        let (ns, ticks) =
            (anchor.ns.saturating_sub(self.anchor.ns), anchor.ticks.wrapping_sub(self.anchor.ticks));
        let is_plausible = ns <= RATE_NS_MAX && ticks > 0 && ticks < 1 << 40;
        let rate = if is_plausible { (u128::from(ns) << RATE_BITS) / u128::from(ticks) } else { 0 };
        self.rate = u64::try_from(rate).unwrap_or(0);
        // An anchor that is off makes a wrong rate with the one before it and with the next one.
        let took = u128::from(self.anchor.took.max(anchor.took));
        let took_ns = (took * u128::from(self.rate)) >> RATE_BITS;
        let holds = rate > 0 && took_ns <= u128::from(ANCHOR_NS_MAX);
        self.window_ticks = if holds { (WINDOW_NS << RATE_BITS) / self.rate } else { 0 };
        self.anchor = anchor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each reading lies between two of the system's clock, but for the microsecond.
    #[test]
    fn it_is_the_systems_clock() {
        const OFF_NS_MAX: u64 = 1_000;
        let mut clock = ThreadClock::new();
        let end_ns = boottime_ns() + 50_000_000;
        let (mut num_by_counter, mut before_ns) = (0_u64, boottime_ns());
        while before_ns < end_ns {
            let now_ns = clock.now_ns();
            let after_ns = boottime_ns();
            assert!(before_ns <= now_ns + OFF_NS_MAX && now_ns <= after_ns + OFF_NS_MAX);
            num_by_counter += u64::from(clock.window_ticks > 0);
            before_ns = after_ns;
        }
        // Under an emulator or ThreadSanitizer a reading may take longer than an anchor may.
        let is_used =
            cfg!(target_arch = "x86_64") && counter::is_usable() && anchor_ns() <= ANCHOR_NS_MAX * 3 / 2;
        assert!(num_by_counter > 0 || !is_used, "the counter is used where it can be");
    }

    /// What an anchor and one more reading of the clock take here: the median of some hundred.
    fn anchor_ns() -> u64 {
        let mut took_ns = [0; 101];
        for took_ns in &mut took_ns {
            let before_ns = boottime_ns();
            std::hint::black_box((counter::read(), boottime_ns(), counter::read()));
            *took_ns = boottime_ns() - before_ns;
        }
        took_ns.sort_unstable();
        took_ns[took_ns.len() / 2]
    }

    /// A machine that sleeps, a counter that starts anew, a reading that was interrupted.
    #[test]
    fn an_anchor_that_cannot_be_trusted_gives_no_time() {
        let mut clock = ThreadClock::new();
        let mut set = |ticks: u64, ns: u64, took: u64| {
            clock.set_anchor(Anchor { ticks, ns, took });
            clock.window_ticks
        };
        set(1_000, 1_000_000_000, 50);
        assert_eq!(set(2_001_000, 1_001_000_000, 50), 2_000_000, "two ticks a nanosecond");
        assert_eq!(set(4_001_000, 1_002_000_000, 1_500), 0, "it took too long");
        assert_eq!(set(6_001_000, 1_003_000_000, 50), 0, "the one before it gives no rate");
        assert_eq!(set(8_001_000, 1_004_000_000, 50), 2_000_000);
        assert_eq!(set(10_001_000, 99_000_000_000, 50), 0, "the machine slept");
        assert_eq!(set(12_001_000, 99_001_000_000, 50), 2_000_000);
        assert_eq!(set(5, 99_002_000_000, 50), 0, "the counter began anew");
        assert!(!clock.is_anchor_due(99_002_999_999) && clock.is_anchor_due(99_003_000_000));
    }
}
