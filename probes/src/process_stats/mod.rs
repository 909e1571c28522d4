//! `linux.process_stats`: who runs on the machine, and what it takes.
//!
//! ```text
//!   each poll: /proc -- pids --+--> stat: same bytes as last time? -- yes --> unchanged, next pid
//!                              |      |no
//!                              |      +--> new pid, start time or name --> ProcessTree
//!                              |      +--> more than one thread --> new in task/ --> ProcessTree
//!                              |      +--> status, oom_score_adj --> changes --> ProcessStats
//!                              '--> kernel thread: read every 16th poll
//! ```
//!
//! Without `linux.ftrace` nobody notices a new process, so one that lives shorter than a poll may
//! be missed; with it, threads are described when an event names them (`describe`). A process that
//! is gone between the listing and the reading is left out.

mod counters;
mod known;
mod packets;
mod reader;
mod settings;

use crate::probe::Probe;
use crate::{Notices, Roots, Schedule};
use known::{Known, KnownThread};
use packets::Packets;
use procfs_core::process::Stat;
use reader::{Reader, parse_stat};
use settings::Settings;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use watershed_wire::protos::process_stats::FdInfo;
use watershed_wire::protos::process_tree::{Process, Thread};
use watershed_wire::protos::{ProcessStatsConfig, TracePacket};

pub use settings::PROC_STATS_POLL_MS_MIN;

/// The name under which configs ask for this source.
pub const PROCESS_STATS_NAME: &str = "linux.process_stats";

/// A known kernel thread is looked at once in so many scans, only to see that its pid has not
/// passed to somebody else: a machine with many CPUs has thousands of them and they have no memory
/// to count.
const KTHREAD_SCANS: u64 = 16;

/// The probe behind `linux.process_stats`.
pub struct ProcessStatsProbe {
    settings: Settings,
    ns_per_tick: u64,
    reader: Reader,
    known: HashMap<i32, Known>,
    pids: Vec<i32>,
    tids: Vec<i32>,
    schedule: Option<Schedule>,
    /// A scan besides the polls: the initial dump, or one that somebody asked for.
    scan_now: bool,
    scans: u64,
    polls: u32,
    state_cleared: bool,
}

impl ProcessStatsProbe {
    /// Nothing is read yet. What this machine cannot serve goes to `notices`.
    pub fn new(roots: &Roots, config: &ProcessStatsConfig, notices: &Notices) -> Self {
        let settings = Settings::new(roots, config, notices);
        Self {
            ns_per_tick: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
            reader: Reader::new(roots.proc.clone()),
            known: HashMap::new(),
            pids: Vec::new(),
            tids: Vec::new(),
            schedule: (settings.poll_ms > 0).then(|| Schedule::new(settings.poll_ms)),
            scan_now: settings.scan_all,
            scans: 0,
            polls: 0,
            state_cleared: false,
            settings,
        }
    }

    fn scan(&mut self, now_ns: u64, is_poll: bool, emit: &mut dyn FnMut(&TracePacket)) {
        self.scans += 1;
        let mut scan = Scan {
            settings: &self.settings,
            ns_per_tick: self.ns_per_tick,
            reader: &mut self.reader,
            tids: &mut self.tids,
            number: self.scans,
            is_poll,
            is_full: is_poll && self.polls.is_multiple_of(self.settings.full_every_polls),
            packets: Packets::new(now_ns, self.state_cleared, emit),
        };
        scan.reader.pids(&mut self.pids);
        for &pid in &self.pids {
            scan.look_at(pid, &mut self.known);
        }
        self.state_cleared = scan.packets.finish();
        self.known.retain(|_, k| k.seen == self.scans);
        self.polls = self.polls.wrapping_add(u32::from(is_poll));
    }
}

impl ProcessStatsProbe {
    /// Describes the processes of threads that somebody met, kernel threads included: those of
    /// `fresh` unless they have been described, those of `renamed` again. Threads that have ended
    /// are left out.
    pub fn describe(
        &mut self,
        renamed: &[i32],
        fresh: &[i32],
        now_ns: u64,
        emit: &mut dyn FnMut(&TracePacket),
    ) {
        if !self.settings.on_demand {
            return;
        }
        let mut scan = Scan {
            settings: &self.settings,
            ns_per_tick: self.ns_per_tick,
            reader: &mut self.reader,
            tids: &mut self.tids,
            number: self.scans,
            is_poll: false,
            is_full: false,
            packets: Packets::new(now_ns, self.state_cleared, emit),
        };
        for &tid in renamed {
            forget_name(&mut self.known, tid);
        }
        for &tid in renamed.iter().chain(fresh) {
            scan.describe(tid, &mut self.known);
        }
        self.state_cleared = scan.packets.finish();
    }
}

/// The name of this thread is to be told again.
fn forget_name(known: &mut HashMap<i32, Known>, tid: i32) {
    match known.get_mut(&tid) {
        Some(process) => process.is_told = false,
        None => known.values_mut().for_each(|process| drop(process.threads.remove(&tid))),
    }
}

impl Probe for ProcessStatsProbe {
    fn due_ns(&self) -> Option<u64> {
        if self.scan_now {
            return Some(0);
        }
        self.schedule.map(|s| s.due_ns())
    }

    fn poll(&mut self, now_ns: u64, emit: &mut dyn FnMut(&TracePacket)) {
        let is_poll = self.schedule.as_mut().is_some_and(|s| s.take_due(now_ns));
        if is_poll || self.scan_now {
            self.scan_now = false;
            self.scan(now_ns, is_poll, emit);
        }
    }

    fn hurry(&mut self) {
        self.scan_now |= self.settings.on_demand;
    }

    fn clear_incremental_state(&mut self) {
        self.known.clear();
        self.polls = 0;
        self.state_cleared = true;
        self.scan_now = self.settings.scan_all;
    }
}

/// One pass over all processes.
struct Scan<'a> {
    settings: &'a Settings,
    ns_per_tick: u64,
    reader: &'a mut Reader,
    tids: &'a mut Vec<i32>,
    number: u64,
    /// Counters are read too.
    is_poll: bool,
    /// All counters are reported, changed or not.
    is_full: bool,
    packets: Packets<'a>,
}

impl Scan<'_> {
    fn look_at(&mut self, pid: i32, known: &mut HashMap<i32, Known>) {
        if let Some(k) = known.get_mut(&pid)
            && k.is_kthread
            && !self.settings.runtime
            && !(self.number + pid.unsigned_abs() as u64).is_multiple_of(KTHREAD_SCANS)
        {
            k.seen = self.number;
            return;
        }
        let Some(line) = self.reader.stat_line(pid) else {
            return;
        };
        let is_idle = known.get(&pid).is_some_and(|k| k.is_told && !k.has_unconfirmed && k.stat_line == line);
        if is_idle && !self.is_full && !(self.is_poll && self.settings.looks_into_idle()) {
            known.entry(pid).and_modify(|k| k.seen = self.number);
            return;
        }
        let Some(stat) = parse_stat(line) else {
            return;
        };
        let line = line.to_vec();
        let k = recognise(known, pid, &stat);
        k.seen = self.number;
        if !k.is_told && (!k.is_kthread || self.settings.scan_all) {
            self.tell_process(k, &stat);
        }
        if stat.num_threads > 1 || !k.threads.is_empty() {
            self.tell_threads(k, pid);
        }
        if self.is_poll {
            self.tell_counters(k, &stat);
            k.stat_line = line;
        }
    }

    fn describe(&mut self, tid: i32, known: &mut HashMap<i32, Known>) {
        let is_told = |k: &Known| k.is_told && k.threads.is_empty();
        if known.get(&tid).is_some_and(is_told) || known.values().any(|k| k.threads.contains_key(&tid)) {
            return;
        }
        let Some(pid) = self.reader.status(tid).map(|status| status.tgid) else { return };
        let Some(stat) = self.reader.stat_line(pid).and_then(parse_stat) else { return };
        let k = recognise(known, pid, &stat);
        k.seen = self.number;
        if !k.is_told {
            self.tell_process(k, &stat);
        }
        if stat.num_threads > 1 || !k.threads.is_empty() {
            self.tell_threads(k, pid);
        }
    }

    fn tell_process(&mut self, k: &mut Known, stat: &Stat) {
        let Some(status) = self.reader.status(stat.pid) else {
            return;
        };
        let mut cmdline = self.reader.cmdline(stat.pid);
        let cmdline_is_comm = cmdline.is_empty().then(|| cmdline.push(k.comm.clone())).is_some();
        let nspid = inner_ids(status.nspid);
        k.is_namespaced = !nspid.is_empty();
        k.is_told = true;
        self.packets.add_process(Process {
            pid: Some(stat.pid),
            ppid: Some(stat.ppid),
            cmdline,
            cmdline_is_comm: cmdline_is_comm.then_some(true),
            uid: Some(status.ruid.cast_signed()),
            nspid,
            process_start_from_boot: self
                .settings
                .age
                .then(|| stat.starttime.saturating_mul(self.ns_per_tick)),
            is_kthread: Some(k.is_kthread),
        });
        // The main thread's name is the process's; it changes with it.
        if self.settings.main_threads {
            self.tell_thread(k, stat.pid, stat.pid);
        }
    }

    fn tell_threads(&mut self, k: &mut Known, pid: i32) {
        k.has_unconfirmed = false;
        let mut tids = std::mem::take(self.tids);
        self.reader.tids(pid, &mut tids);
        for &tid in tids.iter().filter(|&&tid| tid != pid) {
            match k.threads.get_mut(&tid) {
                None => self.tell_thread(k, pid, tid),
                Some(thread) => {
                    thread.seen = self.number;
                    if let Some(name) = thread.unconfirmed.take()
                        && self.reader.thread_comm(pid, tid).is_some_and(|now| now != name)
                    {
                        self.tell_thread(k, pid, tid);
                    }
                }
            }
        }
        k.threads.retain(|_, t| t.seen == self.number);
        *self.tids = tids;
    }

    fn tell_thread(&mut self, k: &mut Known, pid: i32, tid: i32) {
        let mut thread = Thread { tid: Some(tid), tgid: Some(pid), ..Thread::default() };
        if self.settings.thread_names {
            let Some(name) = self.reader.thread_comm(pid, tid) else {
                return;
            };
            thread.name = Some(name.into_owned());
        }
        if k.is_namespaced {
            thread.nstid = inner_ids(self.reader.thread_status(pid, tid).and_then(|s| s.nspid));
        }
        if tid != pid {
            let unconfirmed = thread.name.clone();
            k.has_unconfirmed |= unconfirmed.is_some();
            let seen = self.number;
            k.threads.insert(tid, KnownThread { unconfirmed, seen });
        }
        self.packets.add_thread(thread);
    }

    fn tell_counters(&mut self, k: &mut Known, stat: &Stat) {
        if k.is_kthread && !self.settings.runtime {
            return;
        }
        if self.is_full {
            k.told = Default::default();
            k.fds.clear();
        }
        let news =
            counters::read_news(self.reader, self.settings, self.ns_per_tick, stat.pid, stat, &mut k.told);
        let mut fds = Vec::new();
        if self.settings.fds && !k.is_kthread {
            let told = &k.fds;
            self.reader.fds(
                stat.pid,
                |fd| !told.contains(&fd),
                |fd, path| {
                    fds.push(FdInfo { fd: Some(fd), path: Some(path) });
                },
            );
            k.fds.extend(fds.iter().map(|f| f.fd()));
        }
        if news.is_some() || !fds.is_empty() {
            let mut news = news.unwrap_or_default();
            news.pid = Some(stat.pid);
            news.fds = fds;
            self.packets.add_counters(news);
        }
    }
}

/// What is known of the process that `stat` describes: nothing if the pid belongs to somebody else
/// now.
fn recognise<'k>(known: &'k mut HashMap<i32, Known>, pid: i32, stat: &Stat) -> &'k mut Known {
    match known.entry(pid) {
        Entry::Vacant(e) => e.insert(Known::new(stat)),
        Entry::Occupied(e) => {
            let k = e.into_mut();
            if k.start_ticks != stat.starttime {
                *k = Known::new(stat);
            } else if k.comm != stat.comm {
                k.comm.clone_from(&stat.comm);
                // Workers of the kernel carry the name of their last work; that is no new name.
                k.is_told &= k.is_kthread;
            }
            k
        }
    }
}

/// The numbers in inner pid namespaces: all but the first, which is the one in ours.
fn inner_ids(ids: Option<Vec<i32>>) -> Vec<i32> {
    ids.map(|ids| ids.into_iter().skip(1).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
