//! What is in the trace.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use prost::Message as _;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{FtraceEventBundle, FtraceStats, Trace};

use crate::support::TraceOfEvents;
use crate::support::tracefs::field;

/// A switch or a waking, as far as the test looks at it.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at_ns: u64,
    pub(crate) cpu: u32,
    pub(crate) tid: i32,
    pub(crate) name: String,
}

#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) switches: Vec<Event>,
    pub(crate) wakings: Vec<Event>,
    /// Threads by id: process and name.
    pub(crate) threads: Vec<(i32, i32, String)>,
    pub(crate) processes: Vec<(i32, Vec<String>)>,
    pub(crate) stats: Vec<FtraceStats>,
    /// Events by CPU, and how many those were that came before the last statistics.
    counts: BTreeMap<u32, u64>,
    pub(crate) told: BTreeMap<u32, u64>,
    /// New threads: who started it, its id, and whether it is one of the starter's process.
    pub(crate) started: Vec<(i32, i32, bool)>,
    /// Programs that were started, by thread.
    pub(crate) executed: Vec<(i32, String)>,
}

/// Fields of `FtraceEvent`, and the flag of a clone that makes a thread.
const TASK_NEWTASK: u32 = 235;
const SCHED_PROCESS_EXEC: u32 = 237;
const CLONE_THREAD: u64 = 0x10000;

pub(crate) fn read(path: &Path) -> Recorded {
    let bytes = fs::read(path).unwrap();
    let trace = Trace::decode(&bytes[..]).unwrap();
    let events = TraceOfEvents::decode(&bytes[..]).unwrap();
    let mut recorded = Recorded::default();
    for (packet, events) in trace.packet.into_iter().zip(events.packet) {
        if let Some(bundle) = events.bundle {
            *recorded.counts.entry(bundle.cpu).or_default() += bundle.event.len() as u64;
            bundle.event.iter().for_each(|event| recorded.add_other(event));
        }
        match packet.data {
            Some(Data::FtraceEvents(bundle)) => recorded.add(bundle),
            Some(Data::FtraceStats(stats)) => {
                recorded.stats.push(stats);
                recorded.told = recorded.counts.clone();
            }
            Some(Data::ProcessTree(tree)) => {
                let threads = tree.threads.iter().map(|t| (t.tid(), t.tgid(), t.name().to_owned()));
                recorded.threads.extend(threads);
                recorded.processes.extend(tree.processes.iter().map(|p| (p.pid(), p.cmdline.clone())));
            }
            _ => {}
        }
    }
    recorded.switches.sort_by_key(|event| event.at_ns);
    recorded.wakings.sort_by_key(|event| event.at_ns);
    recorded
}

impl Recorded {
    /// An event that is not written compactly.
    fn add_other(&mut self, event: &[u8]) {
        let current = field(event, 2).unwrap().0 as i32;
        if let Some((_, task)) = field(event, TASK_NEWTASK) {
            let flags = field(&task, 3).unwrap().0;
            self.started.push((current, field(&task, 1).unwrap().0 as i32, flags & CLONE_THREAD != 0));
        }
        if let Some((_, exec)) = field(event, SCHED_PROCESS_EXEC) {
            let program = String::from_utf8(field(&exec, 1).unwrap().1).unwrap();
            self.executed.push((field(&exec, 2).unwrap().0 as i32, program));
        }
    }

    fn add(&mut self, bundle: FtraceEventBundle) {
        assert!(!bundle.lost_events() && bundle.error.is_empty(), "{:?}", bundle.error);
        let compact = bundle.compact_sched.clone().unwrap_or_default();
        let events = |times: &[u64], tids: &[i32], names: &[u32]| -> Vec<Event> {
            assert!(times.len() == tids.len() && times.len() == names.len());
            let mut at_ns = 0_u64;
            let rows = times.iter().zip(tids).zip(names);
            rows.map(|((delta, &tid), &name)| {
                at_ns = at_ns.wrapping_add(*delta);
                let name = compact.intern_table[name as usize].clone();
                Event { at_ns, cpu: bundle.cpu(), tid, name }
            })
            .collect()
        };
        let c = &compact;
        self.switches.extend(events(&c.switch_timestamp, &c.switch_next_pid, &c.switch_next_comm_index));
        self.wakings.extend(events(&c.waking_timestamp, &c.waking_pid, &c.waking_comm_index));
        let count = c.switch_timestamp.len() + c.waking_timestamp.len();
        *self.counts.entry(bundle.cpu()).or_default() += count as u64;
    }

    pub(crate) fn cpu_time_ns(&self, tid: i32) -> u64 {
        cpu_time_ns(&self.switches, tid)
    }

    /// Time between each waking of a thread and the moment when it ran.
    pub(crate) fn waking_time_ns(&self, tid: i32) -> u64 {
        let wakings = self.wakings.iter().filter(|w| w.tid == tid).map(|w| (w.at_ns, false));
        let switches = self.switches.iter().filter(|s| s.tid == tid).map(|s| (s.at_ns, true));
        let mut events: Vec<_> = wakings.chain(switches).collect();
        events.sort_unstable();
        let ran = events.windows(2).filter(|pair| !pair[0].1 && pair[1].1);
        ran.map(|pair| pair[1].0 - pair[0].0).sum()
    }
}

/// Time on all CPUs together.
pub(crate) fn cpu_time_ns(switches: &[Event], tid: i32) -> u64 {
    let mut total = 0;
    let cpus = switches.iter().map(|s| s.cpu).max().unwrap_or(0);
    for cpu in 0..=cpus {
        let of_cpu: Vec<_> = switches.iter().filter(|s| s.cpu == cpu).collect();
        let slices = of_cpu.windows(2).filter(|pair| pair[0].tid == tid);
        total += slices.map(|pair| pair[1].at_ns - pair[0].at_ns).sum::<u64>();
    }
    total
}
