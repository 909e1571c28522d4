//! The result, in the shape of the JSON that is promised.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::bundles::Bundles;
use super::names::Names;
use super::order::Order;
use super::scheduler::{Scheduler, Times};
use super::{IDLE, Waker};
use crate::inspect::processes::Processes;

/// Scheduling of a session: times are sums over the trace, in nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub(in crate::inspect) struct Scheduling {
    pub(super) first_ns: Option<u64>,
    pub(super) last_ns: Option<u64>,
    pub(super) duration_ns: u64,
    pub(super) switches: u64,
    pub(super) wakings: u64,
    pub(super) gaps: Gaps,
    pub(super) cpus: Vec<CpuRow>,
    pub(super) processes: Vec<ProcessRow>,
    pub(super) threads: Vec<ThreadRow>,
    pub(super) wakers: Vec<WakerRow>,
}

/// What is not known, and why.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Gaps {
    /// Times that events of a CPU were missing, and how long any were.
    pub(super) losses: u64,
    pub(super) lossy_ns: u64,
    /// Switches that do not fit to those before.
    pub(super) contradictions: u64,
    /// Events that came too late to be put in order.
    pub(super) late_events: u64,
    /// Bundles of further recorders or machines.
    pub(super) bundles_passed_over: u64,
    /// Beyond the limits of what is kept.
    pub(super) events_left_out: u64,
    pub(super) wakings_left_out: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct CpuRow {
    pub(super) cpu: usize,
    pub(super) busy_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) unknown_ns: u64,
    pub(super) switches: u64,
}

/// Time by state.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct TimeRow {
    pub(super) running_ns: u64,
    pub(super) runnable_ns: u64,
    /// All of the next four.
    pub(super) blocked_ns: u64,
    pub(super) interruptible_ns: u64,
    pub(super) uninterruptible_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) stopped_ns: u64,
    pub(super) unknown_ns: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ProcessRow {
    /// `None`: threads whose process the trace does not tell.
    pub(super) pid: Option<i32>,
    pub(super) name: Option<String>,
    pub(super) threads: u64,
    #[serde(flatten)]
    pub(super) time: TimeRow,
    pub(super) switches: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ThreadRow {
    pub(super) tid: i32,
    pub(super) name: Option<String>,
    pub(super) pid: Option<i32>,
    pub(super) process: Option<String>,
    #[serde(flatten)]
    pub(super) time: TimeRow,
    pub(super) switches: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct WakerRow {
    /// `"thread"`, `"idle"`, `"interrupt"` or `"unknown"`.
    pub(super) waker: &'static str,
    pub(super) waker_tid: Option<i32>,
    pub(super) waker_name: Option<String>,
    pub(super) tid: i32,
    pub(super) name: Option<String>,
    pub(super) wakings: u64,
}

/// Names of what rows are about.
pub(super) struct Named<'a> {
    pub(super) threads: &'a Names,
    pub(super) processes: &'a Processes,
}

impl Named<'_> {
    fn thread(&self, tid: i32) -> Option<String> {
        self.threads.thread(tid).map(str::to_owned)
    }

    /// The process's own, or else that of the main thread.
    fn process(&self, pid: i32) -> Option<String> {
        self.processes.name(None, pid).or_else(|| self.threads.thread(pid)).map(str::to_owned)
    }
}

impl From<Times> for TimeRow {
    fn from(times: Times) -> Self {
        TimeRow {
            running_ns: times.running,
            runnable_ns: times.runnable,
            blocked_ns: [times.uninterruptible, times.idle, times.stopped]
                .into_iter()
                .fold(times.interruptible, u64::saturating_add),
            interruptible_ns: times.interruptible,
            uninterruptible_ns: times.uninterruptible,
            idle_ns: times.idle,
            stopped_ns: times.stopped,
            unknown_ns: times.unknown,
        }
    }
}

impl TimeRow {
    /// Most on CPUs first.
    fn rank(&self) -> Reverse<(u64, u64)> {
        Reverse((self.running_ns, self.runnable_ns))
    }
}

impl Scheduling {
    pub(super) fn new(bundles: &Bundles, order: &Order, scheduler: &Scheduler, names: &Named<'_>) -> Self {
        let first_ns = scheduler.first_ns;
        let last_ns = first_ns.map(|_| scheduler.last_ns);
        Scheduling {
            first_ns,
            last_ns,
            duration_ns: first_ns.map_or(0, |first_ns| scheduler.last_ns - first_ns),
            switches: bundles.switches,
            wakings: bundles.wakings,
            gaps: Gaps {
                losses: bundles.losses,
                lossy_ns: scheduler.lossy_ns(),
                contradictions: scheduler.contradictions,
                late_events: order.late(),
                bundles_passed_over: bundles.passed_over,
                events_left_out: scheduler.events_left_out,
                wakings_left_out: scheduler.wakings_left_out,
            },
            cpus: cpus(scheduler),
            processes: processes(scheduler, names),
            threads: threads(scheduler, names),
            wakers: wakers(scheduler, names),
        }
    }

    /// About the memory that it takes.
    pub(in crate::inspect) fn size_bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let of_threads = self.threads.iter().map(|row| text(&row.name) + text(&row.process));
        let of_processes = self.processes.iter().map(|row| text(&row.name));
        let of_wakers = self.wakers.iter().map(|row| text(&row.waker_name) + text(&row.name));
        let texts: usize = of_threads.chain(of_processes).chain(of_wakers).sum();
        texts
            + size_of_val(&self.threads[..])
            + size_of_val(&self.processes[..])
            + size_of_val(&self.wakers[..])
            + size_of_val(&self.cpus[..])
    }
}

fn cpus(scheduler: &Scheduler) -> Vec<CpuRow> {
    let seen = scheduler.cpus.iter().enumerate().filter(|(_, cpu)| cpu.is_seen());
    let row = |(number, cpu): (usize, &super::scheduler::Cpu)| CpuRow {
        cpu: number,
        busy_ns: cpu.busy_ns,
        idle_ns: cpu.idle_ns,
        unknown_ns: cpu.unknown_ns,
        switches: cpu.switches,
    };
    seen.map(row).collect()
}

fn threads(scheduler: &Scheduler, names: &Named<'_>) -> Vec<ThreadRow> {
    let row = |(&tid, thread): (&i32, &super::scheduler::Thread)| {
        let pid = names.threads.process_of(tid);
        ThreadRow {
            tid,
            name: names.thread(tid),
            pid,
            process: pid.and_then(|pid| names.process(pid)),
            time: thread.times.into(),
            switches: thread.switches,
        }
    };
    let mut rows: Vec<ThreadRow> = scheduler.threads.iter().map(row).collect();
    rows.sort_by_key(|row| (row.time.rank(), row.tid));
    rows
}

fn processes(scheduler: &Scheduler, names: &Named<'_>) -> Vec<ProcessRow> {
    let mut sums: BTreeMap<Option<i32>, (u64, Times, u64)> = BTreeMap::new();
    for (&tid, thread) in &scheduler.threads {
        let (threads, times, switches) = sums.entry(names.threads.process_of(tid)).or_default();
        *threads += 1;
        times.add(&thread.times);
        *switches += thread.switches;
    }
    let row = |(pid, (threads, times, switches)): (Option<i32>, (u64, Times, u64))| ProcessRow {
        pid,
        name: pid.and_then(|pid| names.process(pid)),
        threads,
        time: times.into(),
        switches,
    };
    let mut rows: Vec<ProcessRow> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| (row.time.rank(), row.pid));
    rows
}

fn wakers(scheduler: &Scheduler, names: &Named<'_>) -> Vec<WakerRow> {
    let mut pairs: Vec<_> = scheduler.wakings.iter().collect();
    pairs.sort_by_key(|&(&pair, &wakings)| (Reverse(wakings), pair));
    let row = |(&(waker, tid), &wakings): (&(Waker, i32), &u64)| {
        let (kind, waker_tid) = match waker {
            Waker::Thread(IDLE) => ("idle", None),
            Waker::Thread(waker) => ("thread", Some(waker)),
            Waker::Interrupt => ("interrupt", None),
            Waker::Current | Waker::Unknown => ("unknown", None),
        };
        WakerRow {
            waker: kind,
            waker_tid,
            waker_name: waker_tid.and_then(|tid| names.thread(tid)),
            tid,
            name: names.thread(tid),
            wakings,
        }
    };
    pairs.into_iter().map(row).collect()
}
