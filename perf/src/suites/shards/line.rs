//! How far apart two cores are: what a line of the cache takes from one to the other and back.

use super::team::race;
use crate::measure::{Lap, LapResult, Options, Series};
use std::sync::atomic::{AtomicU64, Ordering};

/// Two threads, on the cores of a race of two, hand a number to each other so many times.
pub(super) fn round_trips(count: u64) -> Lap {
    let turn = AtomicU64::new(0);
    race(count, &mut [0, 1], |first: &mut u64| {
        for mine in (*first..2 * count).step_by(2) {
            // Acquire pairs with the other one's Release, so that each trip begins behind the last.
            while turn.load(Ordering::Acquire) != mine {
                std::hint::spin_loop();
            }
            turn.store(mine + 1, Ordering::Release);
        }
    })
}

/// A lap that tells the distance.
pub(super) fn lap(options: &Options) -> impl FnMut() -> LapResult + use<> {
    let trips = options.size(1000, 10);
    move || Ok(round_trips(trips))
}

/// Of a contest whose last series is that of [`lap`], the rounds in which the cores were as far
/// apart as in most of them, as in the rounds before and behind: the host of a virtual machine may
/// move it meanwhile, to cores without a cache in common, or to one core for both, and a round in
/// which it did so compares nothing. All rounds if that is nowhere so.
pub(super) fn steady_rounds<const N: usize>(contest: [Series; N]) -> [Series; N] {
    /// No core is so much farther away than another that has the same caches in common with the
    /// first.
    const SAME: f64 = 1.5;
    let trips = &contest[N - 1];
    let usual = trips.median();
    let is_usual = |trip: &f64| *trip < usual * SAME && *trip > usual / SAME;
    let is_steady = |round: usize| {
        trips.values()[round.saturating_sub(1)..].iter().take(2 + usize::from(round > 0)).all(is_usual)
    };
    let rounds: Vec<usize> = (0..trips.values().len()).filter(|&round| is_steady(round)).collect();
    if rounds.is_empty() {
        return contest;
    }
    contest.map(|series| Series::new(rounds.iter().map(|&round| series.values()[round]).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_trips_take_longer() {
        let least = |count| (0..5).map(|_| round_trips(count).elapsed).min();
        assert!(least(1000) > least(10));
    }

    #[test]
    fn rounds_count_in_which_the_cores_were_not_moved() {
        let trips = [60.0, 65.0, 160.0, 62.0, 63.0, 61.0, 27.0, 60.0, 60.0, 59.0, 64.0];
        let rounds = Series::new((0..trips.len()).map(|round| round as f64).collect());
        let [steady, steady_trips] = steady_rounds([rounds.clone(), Series::new(trips.into())]);
        assert_eq!(steady.values(), [0.0, 4.0, 8.0, 9.0, 10.0]);
        assert_eq!(steady_trips.values(), [60.0, 63.0, 60.0, 59.0, 64.0]);
        let changing = Series::new([10.0, 100.0].into_iter().cycle().take(trips.len()).collect());
        assert_eq!(
            steady_rounds([rounds, changing])[0].values().len(),
            trips.len(),
            "nothing better is known"
        );
    }
}
