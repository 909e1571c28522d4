//! What a `ProcessStatsConfig` asks for, with its floors applied.

use super::PROCESS_STATS_NAME;
use crate::schedule::clamp_period_ms;
use crate::{Notices, Roots};
use watershed_wire::protos::ProcessStatsConfig;
use watershed_wire::protos::process_stats_config::Quirks;

/// Shorter polls are raised to this, as Perfetto's probes do.
pub const PROC_STATS_POLL_MS_MIN: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Tell every process and thread at the start, kernel threads included.
    pub(super) scan_all: bool,
    /// Tell processes when somebody asks for it between polls.
    pub(super) on_demand: bool,
    pub(super) thread_names: bool,
    pub(super) main_threads: bool,
    /// 0: counters are never read.
    pub(super) poll_ms: u32,
    /// After so many polls all counters are reported again, not only those that changed. At least
    /// 1.
    pub(super) full_every_polls: u32,
    pub(super) smaps_rollup: bool,
    pub(super) age: bool,
    pub(super) runtime: bool,
    pub(super) dmabuf: bool,
    pub(super) fds: bool,
}

impl Settings {
    pub(super) fn new(roots: &Roots, config: &ProcessStatsConfig, notices: &Notices) -> Self {
        let has_quirk = |q: Quirks| config.quirks.contains(&(q as i32));
        let (poll_ms, raised) = clamp_period_ms(config.proc_stats_poll_ms(), PROC_STATS_POLL_MS_MIN);
        if raised {
            notices.add(PROCESS_STATS_NAME, format!("proc_stats_poll_ms raised to {PROC_STATS_POLL_MS_MIN}"));
        }
        if poll_ms == 0 && config.proc_stats_cache_ttl_ms() != 0 {
            notices
                .add(PROCESS_STATS_NAME, "proc_stats_cache_ttl_ms has no effect without proc_stats_poll_ms");
        }
        let mut dmabuf = config.record_process_dmabuf_rss();
        if dmabuf && !roots.proc.join("self/dmabuf_rss").exists() {
            notices.add(
                PROCESS_STATS_NAME,
                "record_process_dmabuf_rss: this kernel has no /proc/PID/dmabuf_rss",
            );
            dmabuf = false;
        }
        let settings = Self {
            scan_all: config.scan_all_processes_on_start() && !has_quirk(Quirks::DisableInitialDump),
            on_demand: !has_quirk(Quirks::DisableOnDemand),
            thread_names: config.record_thread_names(),
            main_threads: !config.skip_main_thread_message(),
            poll_ms,
            full_every_polls: config.proc_stats_cache_ttl_ms().checked_div(poll_ms).unwrap_or(0).max(1),
            smaps_rollup: config.scan_smaps_rollup(),
            age: config.record_process_age(),
            runtime: config.record_process_runtime(),
            dmabuf,
            fds: config.resolve_process_fds(),
        };
        if poll_ms == 0 && !settings.scan_all {
            notices.add(
                PROCESS_STATS_NAME,
                "neither scan_all_processes_on_start nor proc_stats_poll_ms is set, nothing is recorded",
            );
        }
        settings
    }

    /// Whether a poll must look into processes that have not run since the last one.
    pub(super) fn looks_into_idle(&self) -> bool {
        self.smaps_rollup || self.fds || self.dmabuf
    }
}
