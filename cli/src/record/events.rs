//! Events of the kernel as people type them: `sched/sched_switch`, `sched_switch`, or a category.

use std::ffi::OsString;

use watershed_probes::{Roots, ftrace_unknown_events};

use crate::exit::Failure;

/// Names for groups of events, with those names that Perfetto's users know. Events that a kernel
/// does not have are left out.
const CATEGORIES: [(&str, &[&str]); 9] = [
    (
        "sched",
        &[
            "sched/sched_switch",
            "sched/sched_waking",
            "sched/sched_wakeup_new",
            "sched/sched_blocked_reason",
            "sched/sched_process_exec",
            "sched/sched_process_exit",
            "sched/sched_process_free",
            "task/task_newtask",
            "task/task_rename",
            "oom/oom_score_adj_update",
        ],
    ),
    (
        "freq",
        &[
            "power/cpu_frequency",
            "power/cpu_frequency_limits",
            "power/suspend_resume",
            "power/clock_set_rate",
        ],
    ),
    ("idle", &["power/cpu_idle"]),
    ("irq", &["irq/*", "ipi/*"]),
    (
        "disk",
        &["block/block_io_start", "block/block_io_done", "block/block_rq_issue", "block/block_rq_complete"],
    ),
    ("workq", &["workqueue/*"]),
    (
        "memreclaim",
        &[
            "vmscan/mm_vmscan_direct_reclaim_begin",
            "vmscan/mm_vmscan_direct_reclaim_end",
            "vmscan/mm_vmscan_kswapd_wake",
            "vmscan/mm_vmscan_kswapd_sleep",
        ],
    ),
    ("signal", &["signal/signal_generate", "signal/signal_deliver"]),
    ("syscalls", &["raw_syscalls/sys_enter", "raw_syscalls/sys_exit"]),
];

/// The events that the words stand for.
///
/// # Errors
///
/// Tracefs may not be used; a word is neither event nor category, which is what a command without
/// `--` before it looks like.
pub(super) fn resolve(
    words: &[String],
    command: &[OsString],
    roots: &Roots,
    access: Result<(), String>,
) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let known = |names: &[String]| {
            let unknown = ftrace_unknown_events(roots, names);
            names.iter().filter(|name| !unknown.contains(name)).cloned().collect::<Vec<_>>()
        };
        let is_path = word.contains('/') && !word.starts_with(['/', '.']);
        match CATEGORIES.iter().find(|(category, _)| category == word) {
            Some((_, events)) => {
                names.extend(known(&events.iter().map(|&e| e.to_owned()).collect::<Vec<_>>()))
            }
            None if is_path && access.is_err() => {}
            None if !known(std::slice::from_ref(word)).is_empty() => names.push(word.clone()),
            None if is_path => {
                return Err(Failure::usage(format_args!(
                    "this kernel has no event \"{word}\"; `ls /sys/kernel/tracing/events` lists the groups"
                )));
            }
            None => return Err(no_event(word, &words[index..], command)),
        }
    }
    match access {
        Ok(()) => Ok(names),
        Err(reason) => {
            Err(Failure::failed(format_args!("no events of the kernel can be recorded: {reason}")))
        }
    }
}

fn no_event(word: &str, words: &[String], command: &[OsString]) -> Failure {
    let mut line = words.join(" ");
    if !command.is_empty() {
        line.push_str(" --");
        command.iter().for_each(|arg| line.extend([" ", &arg.to_string_lossy()]));
    }
    Failure::usage(format_args!(
        "\"{word}\" is no event or category of this kernel; if it begins the command to record, `--` is \
         missing before it: watershed record -- {line}"
    ))
}
