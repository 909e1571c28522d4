//! Configs: read from a file, and ours where nobody says what to record.

use std::io::Read as _;
use std::path::Path;
use std::{fs, io};

use watershed_probes::{
    FTRACE_NAME, PROCESS_STATS_NAME, Roots, SYS_STATS_NAME, SYSTEM_INFO_NAME, ftrace_access,
};
use watershed_wire::config::TraceConfig;
use watershed_wire::protos;
use watershed_wire::protos::trace_config::DataSource;

use crate::exit::Failure;

const SYS_STATS_MS: u32 = 250;
const FTRACE_DRAIN_MS: u32 = 250;
const PROCESS_STATS_MS: u32 = 1_000;
/// Every so often all counters of a process are told and not only those that changed, so that a
/// ring that has lost its beginning still has them.
const PROCESS_STATS_FULL_MS: u32 = 10_000;
/// What is recorded of the kernel when nobody says what: who ran where and why not, and how fast
/// the CPUs were.
const EVENTS: [&str; 10] = [
    "sched/sched_switch",
    "sched/sched_waking",
    "sched/sched_wakeup_new",
    "sched/sched_process_exec",
    "sched/sched_process_exit",
    "sched/sched_process_free",
    "task/task_newtask",
    "task/task_rename",
    "power/cpu_frequency",
    "power/suspend_resume",
];

/// Where a config is read from standard input.
const STDIN: &str = "-";

/// Reads a config file, in text or binary form.
pub(crate) fn read(path: &Path) -> Result<TraceConfig, Failure> {
    let content = if path == Path::new(STDIN) {
        let mut content = Vec::new();
        io::stdin().lock().read_to_end(&mut content).map(|_| content)
    } else {
        fs::read(path)
    };
    let name = if path == Path::new(STDIN) { "standard input".into() } else { path.to_string_lossy() };
    let content = content
        .map_err(|error| Failure::usage(format_args!("cannot read the config from {name}: {error}")))?;
    TraceConfig::parse(&content).map_err(|error| Failure::usage(format_args!("config {name}: {error}")))
}

/// What the names of events begin with that say little without the names of functions: which work
/// it was, which timer.
const OF_FUNCTIONS: [&str; 3] = ["workqueue", "timer", "hrtimer"];

/// Events of the kernel.
pub(crate) fn ftrace(names: Vec<String>) -> DataSource {
    let of_functions = |name: &String| OF_FUNCTIONS.iter().any(|begin| name.starts_with(begin));
    data_source(protos::DataSourceConfig {
        name: Some(FTRACE_NAME.to_owned()),
        ftrace_config: Some(protos::FtraceConfig {
            // Not always: it takes the kernel's table, of some megabytes.
            symbolize_ksyms: names.iter().any(of_functions).then_some(true),
            ftrace_events: names,
            drain_period_ms: Some(FTRACE_DRAIN_MS),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// What is recorded of a machine if nobody says what.
pub(crate) fn default_data_sources() -> Vec<DataSource> {
    let mut sources = vec![sys_stats(), process_stats(), system_info()];
    match ftrace_access(&Roots::default()) {
        Ok(()) => sources.insert(0, ftrace(EVENTS.map(str::to_owned).to_vec())),
        Err(reason) => eprintln!("watershed: scheduling is not recorded: {reason}"),
    }
    sources
}

fn sys_stats() -> DataSource {
    let ms = Some(SYS_STATS_MS);
    data_source(protos::DataSourceConfig {
        name: Some(SYS_STATS_NAME.to_owned()),
        sys_stats_config: Some(protos::SysStatsConfig {
            meminfo_period_ms: ms,
            vmstat_period_ms: ms,
            stat_period_ms: ms,
            cpufreq_period_ms: ms,
            diskstat_period_ms: ms,
            psi_period_ms: ms,
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// What the machine is made of.
pub(crate) fn system_info() -> DataSource {
    data_source(protos::DataSourceConfig { name: Some(SYSTEM_INFO_NAME.to_owned()), ..Default::default() })
}

/// Names and memory of processes.
pub(crate) fn process_stats() -> DataSource {
    data_source(protos::DataSourceConfig {
        name: Some(PROCESS_STATS_NAME.to_owned()),
        process_stats_config: Some(protos::ProcessStatsConfig {
            scan_all_processes_on_start: Some(true),
            record_thread_names: Some(true),
            record_process_age: Some(true),
            proc_stats_poll_ms: Some(PROCESS_STATS_MS),
            proc_stats_cache_ttl_ms: Some(PROCESS_STATS_FULL_MS),
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn data_source(config: protos::DataSourceConfig) -> DataSource {
    DataSource { config: Some(config), ..Default::default() }
}
