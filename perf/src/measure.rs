//! How times are taken: interleaved laps.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// How much of each workload is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Timed rounds for each measurement, at least 1. A round is one lap of each contestant.
    pub rounds: usize,
    /// Whether workloads have their full sizes. Smaller ones are for tests: the answers are
    /// checked, the times mean nothing.
    pub full_size: bool,
    /// No new round is started after this time, once there are three.
    pub time_limit: Duration,
}

impl Options {
    /// Enough rounds for a median that is steady on a noisy machine.
    pub fn full() -> Self {
        Self { rounds: 31, full_size: true, time_limit: Duration::from_secs(6) }
    }

    /// One small round: what the tests run.
    pub fn check() -> Self {
        Self { rounds: 1, full_size: false, time_limit: Duration::from_secs(60) }
    }

    /// `full` when workloads take their full sizes, else `small`.
    pub fn size<T>(&self, full: T, small: T) -> T {
        if self.full_size { full } else { small }
    }
}

/// The timed part of one lap, and how many units (chunks, packets, calls) it had.
#[derive(Clone, Copy, Debug)]
pub struct Lap {
    /// The time of the timed part.
    pub elapsed: Duration,
    /// Units that were done in it, at least 1.
    pub units: u64,
}

/// A lap gave a wrong answer; the text says which.
pub type WrongAnswer = String;

/// What a lap returns.
pub type LapResult = Result<Lap, WrongAnswer>;

/// Times `work`, which does `units` units.
pub fn timed<T>(units: u64, work: impl FnOnce() -> T) -> (Lap, T) {
    let start = Instant::now();
    let value = work();
    (Lap { elapsed: start.elapsed(), units }, value)
}

/// CPU time of this thread.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The laps of one contestant, in nanoseconds per unit, in the order of the rounds.
#[derive(Clone, Debug)]
pub struct Series(Vec<f64>);

impl Series {
    /// A series of given values.
    ///
    /// # Panics
    /// When `ns_per_unit` is empty.
    pub fn new(ns_per_unit: Vec<f64>) -> Self {
        assert!(!ns_per_unit.is_empty(), "a series has at least one lap");
        Self(ns_per_unit)
    }

    /// Nanoseconds per unit, by round.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The median lap.
    pub fn median(&self) -> f64 {
        median(&self.0)
    }

    /// The fastest lap.
    pub fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The slowest lap.
    pub fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// How far the median may be from the truth, relative to it: half the width of its 95%
    /// confidence interval by order statistics, which assumes nothing of the distribution. 1 where
    /// there are fewer than six laps.
    pub fn noise(&self) -> f64 {
        let laps = self.0.len();
        if laps < 6 {
            return 1.0;
        }
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let reach = 0.98 * (laps as f64).sqrt();
        let low = ((laps as f64 / 2.0 - reach).floor().max(0.0)) as usize;
        let high = ((laps as f64 / 2.0 + reach).ceil() as usize).min(laps - 1);
        (sorted[high] - sorted[low]) / 2.0 / self.median().abs()
    }

    /// The time of `other` over this one's: the median of the rounds' ratios, so that a slow moment
    /// that covers a round cancels out.
    ///
    /// # Panics
    /// When the two are not of the same rounds.
    pub fn speedup_over(&self, other: &Series) -> f64 {
        self.by_round(other, |ours, theirs| theirs / ours).median()
    }

    /// A figure of each round, of this series and another.
    ///
    /// # Panics
    /// When the two are not of the same rounds.
    pub fn by_round(&self, other: &Series, figure: impl Fn(f64, f64) -> f64) -> Series {
        assert_eq!(self.0.len(), other.0.len(), "series of one contest have the same rounds");
        Series(self.0.iter().zip(&other.0).map(|(ours, theirs)| figure(*ours, *theirs)).collect())
    }
}

/// The middle value, or the mean of the two middle ones.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Runs the contestants' laps in turns, A B A B, and returns one series for each, all of the same
/// rounds.
///
/// The first round warms up and is not counted. Every second round has the reverse order (A B, B
/// A), so that no contestant always finds the caches as the same rival left them.
///
/// # Errors
/// The first lap that has a wrong answer ends the contest.
pub fn interleave<'a, const N: usize>(
    options: &Options,
    contestants: [Contestant<'a>; N],
) -> Result<[Series; N], WrongAnswer> {
    let series = interleave_all(options, contestants.into())?;
    Ok(series.try_into().unwrap_or_else(|_| unreachable!("a series for each contestant")))
}

/// What does a contestant's next lap.
pub type Contestant<'a> = Box<dyn FnMut() -> LapResult + 'a>;

/// As [`interleave`], for contestants of which some may be missing.
///
/// # Errors
/// The first lap that has a wrong answer ends the contest.
pub fn interleave_all(
    options: &Options,
    mut contestants: Vec<Contestant<'_>>,
) -> Result<Vec<Series>, WrongAnswer> {
    let mut laps = vec![Vec::with_capacity(options.rounds); contestants.len()];
    let start = Instant::now();
    for round in 0..=options.rounds {
        if round > 3 && start.elapsed() > options.time_limit {
            break;
        }
        for turn in 0..contestants.len() {
            let who = if round % 2 == 0 { turn } else { contestants.len() - 1 - turn };
            let lap = contestants[who]()?;
            if round > 0 {
                laps[who].push(lap.elapsed.as_nanos() as f64 / lap.units as f64);
            }
        }
    }
    Ok(laps.into_iter().map(Series::new).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lap(ns: u64) -> LapResult {
        Ok(Lap { elapsed: Duration::from_nanos(ns), units: 1 })
    }

    #[test]
    fn rounds_alternate_and_the_first_is_dropped() {
        let order = std::cell::RefCell::new(String::new());
        let contestant = |name: char, ns: u64| -> Box<dyn FnMut() -> LapResult + '_> {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                lap(ns)
            })
        };
        let options = Options { rounds: 3, ..Options::check() };
        let [a, b] = interleave(&options, [contestant('a', 10), contestant('b', 25)]).unwrap();
        assert_eq!(order.borrow().as_str(), "abbaabba");
        assert_eq!(a.values(), [10.0; 3]);
        assert_eq!(a.speedup_over(&b), 2.5);
    }

    #[test]
    fn a_wrong_answer_ends_the_contest() {
        let wrong: Box<dyn FnMut() -> LapResult> = Box::new(|| Err("7 packets for 8".into()));
        assert_eq!(interleave(&Options::check(), [wrong]).unwrap_err(), "7 packets for 8");
    }

    #[test]
    fn medians_and_noise() {
        assert_eq!(Series::new(vec![3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Series::new(vec![4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        assert_eq!(Series::new(vec![5.0; 20]).noise(), 0.0);
        assert_eq!(Series::new(vec![5.0; 5]).noise(), 1.0, "too few laps to know");
        let spread: Vec<f64> = (0..31).map(|lap| 100.0 + f64::from(lap)).collect();
        let below_zero = Series::new(spread.iter().map(|value| -value).collect()).noise();
        let noise = Series::new(spread).noise();
        assert_eq!(noise, below_zero, "of a median below zero too");
        assert!((0.04..0.06).contains(&noise), "{noise}");
    }
}
