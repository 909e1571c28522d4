//! How often each trigger was taken within the last 24 hours, over all sessions.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{TRIGGER_HISTORY_MAX, TRIGGER_INTERVAL_NS};

/// Memory is bounded: while [`TRIGGER_HISTORY_MAX`] entries are not a day old, further ones are not
/// noted, and every trigger counts as one that has come too often. Those without a limit do not
/// mind.
#[derive(Debug, Default)]
pub(crate) struct TriggerHistory {
    /// Boot times, the oldest first.
    times_by_name: BTreeMap<String, VecDeque<u64>>,
    len: usize,
}

impl TriggerHistory {
    /// How often the trigger was taken within 24 hours; more than any limit if that is not known.
    pub(crate) fn num_recent(&mut self, name: &str, now_ns: u64) -> u64 {
        self.forget_old(now_ns);
        match self.len < TRIGGER_HISTORY_MAX {
            true => self.times_by_name.get(name).map_or(0, |times| times.len() as u64),
            false => u64::MAX,
        }
    }

    /// It was taken.
    pub(crate) fn note(&mut self, name: &str, now_ns: u64) {
        if self.len < TRIGGER_HISTORY_MAX {
            self.times_by_name.entry(name.to_owned()).or_default().push_back(now_ns);
            self.len += 1;
        }
    }

    fn forget_old(&mut self, now_ns: u64) {
        let is_old = |time_ns: &u64| now_ns.saturating_sub(*time_ns) >= TRIGGER_INTERVAL_NS;
        self.times_by_name.retain(|_, times| {
            while times.front().is_some_and(is_old) {
                times.pop_front();
                self.len -= 1;
            }
            !times.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_name_the_last_day_counts() {
        let mut history = TriggerHistory::default();
        history.note("a", 0);
        history.note("a", 10);
        history.note("b", 10);
        let day_ns = TRIGGER_INTERVAL_NS;
        let counts = |history: &mut TriggerHistory, now_ns| {
            ["a", "b", "c"].map(|name| history.num_recent(name, now_ns))
        };
        assert_eq!(counts(&mut history, day_ns - 1), [2, 1, 0]);
        assert_eq!(counts(&mut history, day_ns), [1, 1, 0]);
        assert_eq!(counts(&mut history, day_ns + 10), [0, 0, 0]);
        assert_eq!(history.len, 0);
    }

    #[test]
    fn what_is_not_known_counts_as_too_often() {
        let mut history = TriggerHistory::default();
        for _ in 0..TRIGGER_HISTORY_MAX + 10 {
            history.note("a", 5);
        }
        assert_eq!(history.len, TRIGGER_HISTORY_MAX);
        assert_eq!(history.num_recent("b", 6), u64::MAX);
        assert_eq!(history.num_recent("b", 5 + TRIGGER_INTERVAL_NS), 0);
    }
}
