//! Data sources of a Linux machine: `linux.sys_stats` and `linux.process_stats`.
//!
//! Each source is a [`Probe`]: it is told the time, reads /proc and /sys below its [`Roots`] and
//! hands out finished packets. It has no thread, no clock and no buffer of its own, so tests drive
//! it over a made-up /proc.
//!
//! Files are parsed by the `procfs-core` crate where it keeps every fact that the trace format has
//! a field for. Where it does not, the module that reads the file says what is missing.
#![forbid(unsafe_code)]

mod clock;
#[cfg(test)]
mod fake;
mod file;
mod notice;
mod probe;
mod process_stats;
mod roots;
mod schedule;
mod source;
mod sys_stats;

pub use clock::boottime_now_ns;
pub use notice::{NOTICES_MAX, Notice, Notices};
pub use probe::Probe;
pub use process_stats::{PROC_STATS_POLL_MS_MIN, PROCESS_STATS_NAME, ProcessStatsProbe};
pub use roots::Roots;
pub use schedule::Schedule;
pub use source::{ProcessStatsFactory, ScanRequest, SysStatsFactory};
pub use sys_stats::{SYS_STATS_NAME, SYS_STATS_PERIOD_MS_MIN, SysStatsProbe};
