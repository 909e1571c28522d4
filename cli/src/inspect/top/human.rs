//! The result as tables.

use std::io::{self, Write};

use indicatif::HumanCount;

use super::report::{Gaps, Scheduling, TimeRow};
use crate::text::{counted, printable, seconds, table, write_table};

const NAME_WIDTH_MAX: usize = 30;

/// What there is to say where there is nothing to show.
const NONE: &str = "no scheduling in this trace: it needs events sched/sched_switch and sched/sched_waking of \
     linux.ftrace, which `watershed record` has when root runs it";

/// At most `rows_max` rows of each table.
pub(in crate::inspect) fn write(
    out: &mut impl Write,
    scheduling: &Scheduling,
    rows_max: usize,
) -> io::Result<()> {
    if scheduling.switches == 0 {
        return writeln!(out, "  {NONE}");
    }
    writeln!(
        out,
        "  {} of scheduling: {}, {}",
        seconds(scheduling.duration_ns),
        counted(scheduling.switches, "switch"),
        counted(scheduling.wakings, "waking")
    )?;
    write_gaps(out, scheduling)?;
    write_cpus(out, scheduling, rows_max)?;
    write_processes(out, scheduling, rows_max)?;
    write_threads(out, scheduling, rows_max)?;
    write_wakers(out, scheduling, rows_max)
}

fn write_gaps(out: &mut impl Write, scheduling: &Scheduling) -> io::Result<()> {
    let Gaps { losses, lossy_ns, contradictions, late_events, .. } = scheduling.gaps;
    let gaps = &scheduling.gaps;
    if losses > 0 {
        let (times, time) = (counted(losses, "time"), milliseconds(lossy_ns));
        writeln!(out, "  events were lost {times}, {time} in all: what threads did then is \"unknown\"")?;
    }
    if contradictions > 0 {
        let count = counted(contradictions, "switch");
        writeln!(out, "  {count} before which others are missing: the kernel left them out")?;
    }
    for (count, what) in [
        (late_events, "event that came too late for its place: times around it are not exact"),
        (gaps.bundles_passed_over, "bundle of another recorder or machine is left out"),
        (gaps.events_left_out, "event of threads beyond the limit is left out"),
        (gaps.wakings_left_out, "waking of pairs beyond the limit is left out"),
        (gaps.threads_joined, "thread beyond the limit is in the row of the one before of its number"),
    ] {
        if count > 0 {
            writeln!(out, "  {} x {what}", HumanCount(count))?;
        }
    }
    if scheduling.wakings == 0 {
        writeln!(
            out,
            "  no sched_waking in this trace: the time from a waking to the run counts as blocked"
        )?;
    }
    Ok(())
}

fn write_cpus(out: &mut impl Write, scheduling: &Scheduling, rows_max: usize) -> io::Result<()> {
    let mut table = table(&["CPU", "busy", "idle", "unknown", "share", "switches"], 1);
    for row in scheduling.cpus.iter().take(rows_max) {
        let known_ns = row.busy_ns + row.idle_ns;
        table.add_row([
            row.cpu.to_string(),
            milliseconds(row.busy_ns),
            milliseconds(row.idle_ns),
            milliseconds(row.unknown_ns),
            share(row.busy_ns, known_ns),
            HumanCount(row.switches).to_string(),
        ]);
    }
    write_table(out, &table, scheduling.cpus.len().saturating_sub(rows_max))
}

/// The columns of both tables of times.
const TIME_COLUMNS: [&str; 7] =
    ["on CPU", "of a CPU", "runnable", "blocked", "uninterruptible", "unknown", "switches"];

fn time_columns(time: &TimeRow, switches: u64, duration_ns: u64) -> [String; 7] {
    [
        milliseconds(time.running_ns),
        share(time.running_ns, duration_ns),
        milliseconds(time.runnable_ns),
        milliseconds(time.blocked_ns),
        milliseconds(time.uninterruptible_ns),
        milliseconds(time.unknown_ns),
        HumanCount(switches).to_string(),
    ]
}

fn write_processes(out: &mut impl Write, scheduling: &Scheduling, rows_max: usize) -> io::Result<()> {
    let mut table = table(&[&["process", "pid", "threads"][..], &TIME_COLUMNS].concat(), 1);
    for row in scheduling.processes.iter().take(rows_max) {
        let mut columns = vec![
            name(row.name.as_deref()),
            row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            HumanCount(row.threads).to_string(),
        ];
        columns.extend(time_columns(&row.time, row.switches, scheduling.duration_ns));
        table.add_row(columns);
    }
    write_table(out, &table, scheduling.processes.len().saturating_sub(rows_max))
}

fn write_threads(out: &mut impl Write, scheduling: &Scheduling, rows_max: usize) -> io::Result<()> {
    let mut table = table(&[&["thread", "process", "tid"][..], &TIME_COLUMNS].concat(), 2);
    for row in scheduling.threads.iter().take(rows_max) {
        let mut columns = vec![name(row.name.as_deref()), name(row.process.as_deref()), row.tid.to_string()];
        columns.extend(time_columns(&row.time, row.switches, scheduling.duration_ns));
        table.add_row(columns);
    }
    write_table(out, &table, scheduling.threads.len().saturating_sub(rows_max))
}

fn write_wakers(out: &mut impl Write, scheduling: &Scheduling, rows_max: usize) -> io::Result<()> {
    let mut table = table(&["waker", "woken", "tid of waker", "tid of woken", "wakings", "share"], 2);
    for row in scheduling.wakers.iter().take(rows_max) {
        let waker = match row.waker_tid {
            Some(_) => name(row.waker_name.as_deref()),
            None => format!("({})", row.waker),
        };
        table.add_row([
            waker,
            name(row.name.as_deref()),
            row.waker_tid.map_or_else(|| "-".to_owned(), |tid| tid.to_string()),
            row.tid.to_string(),
            HumanCount(row.wakings).to_string(),
            share(row.wakings, scheduling.wakings),
        ]);
    }
    write_table(out, &table, scheduling.wakers.len().saturating_sub(rows_max))
}

/// Of a program's path the last part; names of kernel threads have slashes that are none of a path.
fn name(name: Option<&str>) -> String {
    let name = name.unwrap_or("?");
    let name = if name.starts_with('/') { name.rsplit('/').next().unwrap_or(name) } else { name };
    printable(name).chars().take(NAME_WIDTH_MAX).collect()
}

fn milliseconds(ns: u64) -> String {
    format!("{}.{:03} ms", HumanCount(ns / 1_000_000), ns / 1_000 % 1_000)
}

fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1}%", part as f64 * 100.0 / whole as f64),
    }
}
