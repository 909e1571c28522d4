//! When a section of a probe is read next.
//!
//! The first reading is at the start; the following ones fall on multiples of the period on the
//! clock, so sources with equal periods share one wake-up and one packet. A reading that comes late
//! does not shift the ones after it, and readings that were missed are not made up for: a counter
//! read twice in a row has no new value.

/// A period and the moment it is due again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    period_ns: u64,
    due_ns: u64,
}

impl Schedule {
    /// Due at once, then each `period_ms` (at least 1).
    pub fn new(period_ms: u32) -> Self {
        Self { period_ns: u64::from(period_ms.max(1)) * 1_000_000, due_ns: 0 }
    }

    /// The clock value at which it is due.
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Whether it is due at `now_ns`; if so, the next moment is set.
    pub fn take_due(&mut self, now_ns: u64) -> bool {
        if now_ns < self.due_ns {
            return false;
        }
        self.due_ns = (now_ns / self.period_ns + 1) * self.period_ns;
        true
    }

    /// Makes it due at once, in addition to its regular moments.
    pub fn hurry(&mut self) {
        self.due_ns = 0;
    }
}

/// Raises a period to the floor of its source; 0 means that the section is off.
/// Returns the period and whether it was raised.
pub(crate) fn clamp_period_ms(period_ms: u32, min_ms: u32) -> (u32, bool) {
    match period_ms {
        0 => (0, false),
        ms => (ms.max(min_ms), ms < min_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn at_once_then_on_multiples() {
        let mut s = Schedule::new(250);
        assert!(s.take_due(1_110 * MS));
        assert_eq!(s.due_ns(), 1_250 * MS);
        assert!(!s.take_due(1_249 * MS));
        assert!(s.take_due(1_251 * MS), "a late one");
        assert_eq!(s.due_ns(), 1_500 * MS, "shifts nothing");
        assert!(s.take_due(2_600 * MS), "missed ones are dropped");
        assert_eq!(s.due_ns(), 2_750 * MS);
    }

    #[test]
    fn equal_periods_meet() {
        let (mut a, mut b) = (Schedule::new(250), Schedule::new(1_000));
        a.take_due(7 * MS);
        b.take_due(13 * MS);
        let mut due = a.due_ns();
        while due < b.due_ns() {
            a.take_due(due);
            due = a.due_ns();
        }
        assert_eq!(due, b.due_ns());
    }

    #[test]
    fn hurrying_keeps_the_phase() {
        let mut s = Schedule::new(1_000);
        s.take_due(100 * MS);
        s.hurry();
        assert!(s.take_due(150 * MS));
        assert_eq!(s.due_ns(), 1_000 * MS);
    }

    #[test]
    fn floors() {
        assert_eq!(clamp_period_ms(0, 10), (0, false));
        assert_eq!(clamp_period_ms(3, 10), (10, true));
        assert_eq!(clamp_period_ms(10, 10), (10, false));
    }
}
