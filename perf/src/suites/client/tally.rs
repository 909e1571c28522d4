//! What laps found and lost.

use super::trace::Contents;
use crate::measure::{Lap, Series};

/// A lap of ours or of the rival's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// The timed part.
    pub(super) lap: Lap,
    /// Nanoseconds of CPU time of one event, where it is known.
    pub(super) cpu_ns: Option<f64>,
    /// Events that were written, those that warmed up included.
    pub(super) written: u64,
    /// The trace.
    pub(super) contents: Contents,
}

/// Several of them.
#[derive(Debug, Default)]
pub(super) struct Tally(Vec<Outcome>);

impl Tally {
    /// Adds one, whose lap is given back.
    pub(super) fn add(&mut self, outcome: Outcome) -> Lap {
        self.0.push(outcome);
        outcome.lap
    }

    /// Events that are not in their traces, of all laps.
    pub(super) fn percent_dropped(&self) -> f64 {
        let written: u64 = self.0.iter().map(|lap| lap.written).sum();
        let found: u64 = self.0.iter().map(|lap| lap.contents.events).sum();
        (written - found) as f64 * 100.0 / written.max(1) as f64
    }

    /// CPU time of an event: the median, where it is known.
    pub(super) fn cpu_ns(&self) -> Option<f64> {
        median(self.timed().filter_map(|lap| lap.cpu_ns))
    }

    /// How many laps lost nothing.
    pub(super) fn whole_laps(&self) -> usize {
        self.whole().count()
    }

    /// The median time of an event in laps that lost nothing: what is lost takes less.
    pub(super) fn whole_ns(&self) -> Option<f64> {
        median(self.whole().map(|outcome| outcome.lap.elapsed.as_nanos() as f64 / outcome.lap.units as f64))
    }

    /// The first lap warms up.
    fn timed(&self) -> impl Iterator<Item = &Outcome> {
        self.0.iter().skip(1)
    }

    fn whole(&self) -> impl Iterator<Item = &Outcome> {
        self.timed().filter(|outcome| outcome.contents.events == outcome.written)
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| Series::new(values).median())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn losses_of_all_laps_are_one_figure() {
        let mut tally = Tally::default();
        assert_eq!((tally.percent_dropped(), tally.cpu_ns(), tally.whole_ns()), (0.0, None, None));
        for (events, ns) in [(100, 90), (97, 30), (100, 40), (99, 20), (100, 50)] {
            let contents = Contents { events, ..Contents::default() };
            let lap = Lap { elapsed: Duration::from_nanos(100 * ns), units: 100 };
            let outcome = Outcome { lap, cpu_ns: Some(ns as f64), written: 100, contents };
            assert_eq!(tally.add(outcome).units, 100);
        }
        assert!((tally.percent_dropped() - 0.8).abs() < 1e-9);
        assert_eq!(tally.cpu_ns(), Some(35.0), "the first lap warms up");
        assert_eq!((tally.whole_laps(), tally.whole_ns()), (2, Some(45.0)));
    }
}
