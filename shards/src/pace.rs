//! How fast something went of late, and which of two ways of doing it is the faster one.

use std::time::Duration;

/// What a byte takes, of late: none before the first ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    ns_per_byte: f32,
}

impl Pace {
    /// So many bytes took that long. Less than before is half believed; of more a quarter, and of more than twice as much nothing: the thread may have
    /// been without a CPU.
    pub(crate) fn note(&mut self, elapsed: Duration, size_bytes: usize) {
        let (now, before) = (elapsed.as_nanos() as f32 / size_bytes.max(1) as f32, self.ns_per_byte);
        self.ns_per_byte = match now {
            _ if !self.is_known() => now,
            less if less < before => before + (less - before) / 2.0,
            more => before + (more.min(2.0 * before) - before) / 4.0,
        };
    }

    /// What is not measured any more is less and less believed.
    pub(crate) fn fade(&mut self) {
        self.ns_per_byte /= 2.0;
    }

    pub(crate) fn is_known(self) -> bool {
        self.ns_per_byte > 0.0
    }

    /// Nothing while it is not known.
    pub(crate) fn ns_per_byte(self) -> f32 {
        self.ns_per_byte
    }
}

/// How often the slower way is tried again: it may not be for ever.
const TURNS_A_TRIAL: u32 = 64;

/// Two ways of doing the same. The second costs others something, so it is gone where it takes less than half as long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ways {
    paces: [Pace; 2],
    turn: u32,
}

impl Ways {
    /// Which way to go next.
    pub(crate) fn choose(&mut self) -> usize {
        if let Some(unknown) = self.paces.iter().position(|pace| !pace.is_known()) {
            return unknown;
        }
        let [first, second] = self.paces.map(Pace::ns_per_byte);
        let better = usize::from(first > 2.0 * second);
        self.turn += 1;
        if self.turn.is_multiple_of(TURNS_A_TRIAL) { 1 - better } else { better }
    }

    /// So many bytes took that long.
    pub(crate) fn note(&mut self, way: usize, elapsed: Duration, size_bytes: usize) {
        self.paces[way].note(elapsed, size_bytes);
    }

    /// What a byte takes on the faster one; nothing as long as one of them was not tried.
    pub(crate) fn ns_per_byte(&self) -> f32 {
        self.paces.map(Pace::ns_per_byte).into_iter().fold(f32::INFINITY, f32::min)
    }

    /// See [`Pace::fade`].
    pub(crate) fn fade(&mut self) {
        self.paces.iter_mut().for_each(Pace::fade);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that took so many nanoseconds each.
    fn note(ways: &mut Ways, way: usize, ns_per_byte: u64) {
        ways.note(way, Duration::from_nanos(1000 * ns_per_byte), 1000);
    }

    #[test]
    fn a_pace_follows_what_is_measured_but_not_a_pause() {
        let mut pace = Pace::default();
        assert!(!pace.is_known());
        let mut note = |ns: u64| {
            pace.note(Duration::from_nanos(ns), 10);
            pace.ns_per_byte()
        };
        assert_eq!(note(800), 80.0, "the first counts whole");
        assert_eq!(note(400), 60.0);
        assert_eq!(note(1000), 70.0);
        assert_eq!(note(1_000_000), 87.5, "twice as much");
        (0..100).for_each(|_| _ = note(2000));
        assert!((note(2000) - 200.0).abs() < 1.0);
        pace.fade();
        assert!((pace.ns_per_byte() - 100.0).abs() < 1.0);
    }

    #[test]
    fn both_ways_are_tried_and_the_better_one_is_gone_most() {
        for (paces, better) in [([100, 49], 1), ([50, 100], 0), ([100, 51], 0)] {
            let mut ways = Ways::default();
            let mut turns = [0; 2];
            for _ in 0..2 + 10 * TURNS_A_TRIAL {
                let way = ways.choose();
                turns[way] += 1;
                note(&mut ways, way, paces[way]);
            }
            assert_eq!(turns[1 - better], 1 + 10, "{paces:?}");
            assert_eq!(ways.ns_per_byte(), paces[0].min(paces[1]) as f32);
        }
    }

    #[test]
    fn what_was_slow_once_is_not_believed_for_ever() {
        let mut ways = Ways::default();
        note(&mut ways, 0, 4000);
        note(&mut ways, 1, 2000);
        for expected in [1000.0, 500.0, 250.0] {
            ways.fade();
            assert_eq!(ways.ns_per_byte(), expected);
        }
        assert_eq!(ways.choose(), 0, "each is believed as much less");
    }

    #[test]
    fn what_was_slow_once_is_found_out_to_be_faster_now() {
        let mut ways = Ways::default();
        note(&mut ways, 0, 400);
        assert_eq!(ways.ns_per_byte(), 0.0, "nothing is known of the other one");
        note(&mut ways, 1, 50);
        let mut turns = Vec::new();
        for _ in 0..10 * TURNS_A_TRIAL {
            let way = ways.choose();
            turns.push(way);
            note(&mut ways, way, [20, 50][way]);
        }
        let often = |turns: &[usize], way| turns.iter().filter(|&&turn| turn == way).count();
        assert_eq!(often(&turns[..TURNS_A_TRIAL as usize], 0), 1);
        assert_eq!(often(&turns[9 * TURNS_A_TRIAL as usize..], 1), 1);
    }
}
