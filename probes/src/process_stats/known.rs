//! What is remembered of a process between scans.

use procfs_core::process::Stat;
use std::collections::{HashMap, HashSet};
use watershed_wire::protos::process_stats::Process as Counters;

/// Bit of `stat`'s flags: a kernel thread (`PF_KTHREAD`).
const FLAG_KTHREAD: u32 = 0x0020_0000;

#[derive(Debug)]
pub(super) struct Known {
    /// Start time in ticks since boot: with the pid it names one process, however often pids are
    /// reused.
    pub(super) start_ticks: u64,
    pub(super) comm: String,
    pub(super) is_kthread: bool,
    /// Its number in its own pid namespace differs: threads are reported with all their numbers.
    pub(super) is_namespaced: bool,
    /// The present name has been reported.
    pub(super) is_told: bool,
    /// The line from which the counters were last read; equal bytes mean that the process did
    /// nothing since.
    pub(super) stat_line: Vec<u8>,
    pub(super) told: Counters,
    pub(super) threads: HashMap<i32, KnownThread>,
    /// Some thread's name is still to be confirmed.
    pub(super) has_unconfirmed: bool,
    pub(super) fds: HashSet<u64>,
    /// The scan that saw it last.
    pub(super) seen: u64,
}

#[derive(Debug, Default)]
pub(super) struct KnownThread {
    /// The name as reported, until it has been confirmed once: threads often name themselves after
    /// they were first seen.
    pub(super) unconfirmed: Option<String>,
    pub(super) seen: u64,
}

impl Known {
    pub(super) fn new(stat: &Stat) -> Self {
        Self {
            start_ticks: stat.starttime,
            comm: stat.comm.clone(),
            is_kthread: stat.flags & FLAG_KTHREAD != 0,
            is_namespaced: false,
            is_told: false,
            stat_line: Vec::new(),
            told: Counters::default(),
            threads: HashMap::new(),
            has_unconfirmed: false,
            fds: HashSet::new(),
            seen: 0,
        }
    }
}
