//! The result, in the shape of the JSON that is promised.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::Event;
use super::bundles::Bundles;
use super::lives::{Life, LifeId};
use super::names::{Named, Process};
use super::order::Order;
use super::scheduler::{By, Scheduler};
use super::thread::Times;

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
    /// Threads that were taken for the one that had their number before.
    pub(super) threads_joined: u64,
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
    /// 0 for the first thread of this number.
    pub(super) life: u32,
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
    pub(super) waker_life: Option<u32>,
    pub(super) waker_name: Option<String>,
    pub(super) tid: i32,
    pub(super) life: u32,
    pub(super) name: Option<String>,
    pub(super) wakings: u64,
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
    pub(super) fn new(
        bundles: &Bundles,
        order: &Order<Event>,
        scheduler: &Scheduler,
        named: &Named<'_>,
    ) -> Self {
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
                threads_joined: scheduler.lives.joined,
            },
            cpus: cpus(scheduler),
            processes: processes(scheduler, named),
            threads: threads(scheduler, named),
            wakers: wakers(scheduler, named),
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

fn threads(scheduler: &Scheduler, named: &Named<'_>) -> Vec<ThreadRow> {
    let row = |(id, life): (LifeId, &Life)| {
        let process = named.process_of(id);
        ThreadRow {
            tid: life.tid,
            life: life.number,
            name: named.thread(id),
            pid: process.map(|process| process.pid),
            process: process.and_then(|process| named.process(process)),
            time: life.thread.times.into(),
            switches: life.thread.switches,
        }
    };
    let mut rows: Vec<ThreadRow> = scheduler.lives.all().map(row).collect();
    rows.sort_by_key(|row| (row.time.rank(), row.tid, row.life));
    rows
}

fn processes(scheduler: &Scheduler, named: &Named<'_>) -> Vec<ProcessRow> {
    let mut sums: BTreeMap<Option<Process>, (u64, Times, u64)> = BTreeMap::new();
    for (id, life) in scheduler.lives.all() {
        let (threads, times, switches) = sums.entry(named.process_of(id)).or_default();
        *threads += 1;
        times.add(&life.thread.times);
        *switches += life.thread.switches;
    }
    let row = |(process, (threads, times, switches)): (Option<Process>, (u64, Times, u64))| ProcessRow {
        pid: process.map(|process| process.pid),
        name: process.and_then(|process| named.process(process)),
        threads,
        time: times.into(),
        switches,
    };
    let mut rows: Vec<ProcessRow> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| (row.time.rank(), row.pid));
    rows
}

fn wakers(scheduler: &Scheduler, named: &Named<'_>) -> Vec<WakerRow> {
    let row = |(&(by, woken), &wakings): (&(By, LifeId), &u64)| {
        let (waker, id) = match by {
            By::Thread(id) => ("thread", Some(id)),
            By::Idle => ("idle", None),
            By::Interrupt => ("interrupt", None),
            By::Unknown => ("unknown", None),
        };
        let (by, woken_life) = (id.map(|id| scheduler.lives.get(id)), scheduler.lives.get(woken));
        WakerRow {
            waker,
            waker_tid: by.map(|by| by.tid),
            waker_life: by.map(|by| by.number),
            waker_name: id.and_then(|id| named.thread(id)),
            tid: woken_life.tid,
            life: woken_life.number,
            name: named.thread(woken),
            wakings,
        }
    };
    let mut rows: Vec<WakerRow> = scheduler.wakings.iter().map(row).collect();
    let order = |row: &WakerRow| (Reverse(row.wakings), row.waker, row.waker_tid, row.tid);
    rows.sort_by_key(|row| (order(row), row.waker_life, row.life));
    rows
}
