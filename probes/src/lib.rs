//! Data sources of a Linux machine: `linux.ftrace`, `linux.sys_stats`, `linux.process_stats` and
//! `linux.system_info`.
//!
//! The latter three are [`Probe`]s: they are told the time, read /proc and /sys below their
//! [`Roots`] and hand out finished packets. They have no thread, no clock and no buffer of their
//! own, so tests drive them over a made-up /proc.
//!
//! Files are parsed by the `procfs-core` crate where it keeps every fact that the trace format has
//! a field for. Where it does not, the module that reads the file says what is missing.
#![forbid(unsafe_code)]

mod clock;
mod cpus;
#[cfg(test)]
mod fake;
mod file;
mod ftrace;
mod notice;
mod on_demand;
mod probe;
mod process_stats;
mod roots;
mod schedule;
mod source;
mod sys_stats;
mod system_info;

pub use clock::boottime_now_ns;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use ftrace::testing;
pub use ftrace::{FTRACE_NAME, FtraceFactory, ftrace_access, ftrace_unknown_events};
pub use notice::{NOTICES_MAX, Notice, Notices};
pub use on_demand::OnDemand;
pub use probe::Probe;
pub use process_stats::{PROC_STATS_POLL_MS_MIN, PROCESS_STATS_NAME, ProcessStatsProbe};
pub use roots::Roots;
pub use schedule::Schedule;
pub use source::{ProcessStatsFactory, ScanRequest, SysStatsFactory, SystemInfoFactory};
pub use sys_stats::{SYS_STATS_NAME, SYS_STATS_PERIOD_MS_MIN, SysStatsProbe};
pub use system_info::{SYSTEM_INFO_NAME, SystemInfoProbe};
