//! How far apart two cores are: what a line of the cache takes from one to the other and back.

use super::team::race;
use crate::measure::Lap;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_trips_take_longer() {
        let least = |count| (0..5).map(|_| round_trips(count).elapsed).min();
        assert!(least(1000) > least(10));
    }
}
