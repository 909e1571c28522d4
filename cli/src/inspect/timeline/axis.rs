//! Times for people: marks of an axis, and lengths.

/// Marks of an axis, at most.
const MARKS: u64 = 10;
/// Units and how many nanoseconds they are, as a power of ten.
const UNITS: [(&str, u32); 4] = [("s", 9), ("ms", 6), ("us", 3), ("ns", 0)];

/// A distance of 1, 2 or 5 times a power of ten, which a time has at most ten of.
pub(super) fn distance_ns(time_ns: u64) -> u64 {
    let at_least = time_ns.div_ceil(MARKS).max(1);
    let power = 10_u64.pow(at_least.ilog10());
    [1, 2, 5, 10].map(|by| power.saturating_mul(by)).into_iter().find(|&by| by >= at_least).unwrap_or(power)
}

/// In the unit of the largest mark, with the digits in which two marks differ.
pub(super) fn mark(at_ns: u64, largest_ns: u64, distance_ns: u64) -> String {
    let (unit, power) = unit(largest_ns);
    let digits = power.saturating_sub(distance_ns.max(1).ilog10()) as usize;
    format!("{:.digits$} {unit}", at_ns as f64 / 10_f64.powi(power.cast_signed()))
}

/// Three digits behind the point, and a unit.
pub(super) fn time(ns: u64) -> String {
    let (unit, power) = unit(ns);
    let digits = if power == 0 { 0 } else { 3 };
    format!("{:.digits$} {unit}", ns as f64 / 10_f64.powi(power.cast_signed()))
}

fn unit(ns: u64) -> (&'static str, u32) {
    UNITS.into_iter().find(|&(_, power)| ns >= 10_u64.pow(power)).unwrap_or(("ns", 0))
}
