//! The clock of every packet that this crate writes.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_BOOTTIME`: monotonic, counts while the machine sleeps, and the trace's
/// default clock, so a packet stamped with it needs no `timestamp_clock_id`.
pub fn boottime_now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // Both parts are non-negative for this clock; the sum stays below 2^64 for 584 years of uptime.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_uptime() {
        let uptime_s: f64 =
            std::fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse().unwrap();
        let now_s = boottime_now_ns() as f64 / 1e9;
        assert!((now_s - uptime_s).abs() < 1.0, "{now_s} against {uptime_s}");
    }
}
