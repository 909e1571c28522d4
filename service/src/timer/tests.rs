//! Deadlines and tables of them.

use super::*;

fn at(monotonic_ms: u64, boottime_ms: u64) -> ClockReadings {
    ClockReadings {
        monotonic_ns: monotonic_ms * NS_PER_MS,
        boottime_ns: boottime_ms * NS_PER_MS,
        ..ClockReadings::default()
    }
}

#[test]
fn multiples_of_a_period_are_on_the_clock_and_never_now() {
    let next = |now_ms, period_ms| {
        let deadline = Deadline::next_multiple(TimerClock::Monotonic, period_ms, &at(now_ms, 0));
        deadline.at_ns / NS_PER_MS
    };
    assert_eq!(next(0, 100), 100);
    assert_eq!(next(99, 100), 100);
    assert_eq!(next(100, 100), 200);
    assert_eq!(next(250, 100), 300);
}

#[test]
fn deadlines_far_away_do_not_overflow() {
    let now = ClockReadings { monotonic_ns: u64::MAX - 1, ..ClockReadings::default() };
    let deadline = Deadline::after_ms(TimerClock::Monotonic, u32::MAX, &now);
    assert_eq!(deadline.overdue_ns(&now), None);
    let deadline = Deadline::next_multiple(TimerClock::Monotonic, 100, &now);
    assert_eq!(deadline.overdue_ns(&now), None);
}

#[test]
fn each_deadline_is_on_its_own_clock() {
    let monotonic = Deadline::after_ms(TimerClock::Monotonic, 10, &at(100, 500));
    let boottime = Deadline::after_ms(TimerClock::Boottime, 10, &at(100, 500));
    // Five milliseconds of work, a thousand of sleep.
    let later = at(105, 1505);
    assert_eq!(monotonic.overdue_ns(&later), None);
    assert_eq!(boottime.overdue_ns(&later), Some(995 * NS_PER_MS));
    let mut deadlines = Deadlines::default();
    assert_eq!(deadlines.wait_ns(&later), None);
    deadlines.include(monotonic);
    assert_eq!(deadlines.wait_ns(&later), Some(5 * NS_PER_MS));
    deadlines.include(boottime);
    assert_eq!(deadlines.wait_ns(&later), Some(0));
    deadlines.include(Deadline::AT_ONCE);
    assert_eq!(deadlines.monotonic_ns, Some(0), "the earliest of each clock");
}

#[test]
fn the_timer_that_is_overdue_longest_fires_first() {
    let start = at(0, 0);
    let mut table = TimerTable::default();
    table.arm(Timer::Duration, Deadline::after_ms(TimerClock::Monotonic, 20, &start));
    table.arm(Timer::PeriodicFlush, Deadline::after_ms(TimerClock::Boottime, 10, &start));
    table.arm(Timer::FileWrite, Deadline::after_ms(TimerClock::Monotonic, 20, &start));
    assert_eq!(table.most_overdue(&at(9, 9)), None);
    assert_eq!(table.most_overdue(&at(20, 20)), Some((10 * NS_PER_MS, Timer::PeriodicFlush)));
    table.stop(Timer::PeriodicFlush);
    assert_eq!(table.most_overdue(&at(20, 20)), Some((0, Timer::FileWrite)), "of equals in order");
    assert_eq!(table.deadlines().count(), 2);
    table.stop_all();
    assert_eq!(table.deadlines().count(), 0);
}
