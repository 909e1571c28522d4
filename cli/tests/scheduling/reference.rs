//! The same events by another way: a second instance of tracefs records them at the same time, and
//! its own text is read. What the kernel leaves out without counting it as lost, both lack: Linux
//! 6.18 in a Firecracker guest leaves out up to three quarters of the switches of a CPU.

use std::fs;
use std::path::{Path, PathBuf};

use crate::recorded::Event;
use crate::workload::HANDOVERS;

const PREFIX: &str = "reference-of-a-watershed-test-";
const EVENTS: [&str; 4] =
    ["sched/sched_switch", "sched/sched_waking", "sched/sched_process_exec", "task/task_newtask"];
const CLONE_THREAD: u64 = 0x10000;

/// An instance that records.
pub(crate) struct Reference(PathBuf);

impl Reference {
    pub(crate) fn start(root: &Path) -> Self {
        let instances = root.join("instances");
        for entry in fs::read_dir(&instances).unwrap().flatten() {
            // What a test that was killed left behind.
            let name = entry.file_name().into_string().unwrap();
            let is_dead = |pid: &str| !Path::new("/proc").join(pid).exists();
            if name.strip_prefix(PREFIX).is_some_and(is_dead) {
                fs::remove_dir(entry.path()).unwrap();
            }
        }
        let reference = Self(instances.join(format!("{PREFIX}{}", std::process::id())));
        fs::create_dir(&reference.0).unwrap();
        reference.write("buffer_size_kb", "8192");
        reference.write("trace_clock", "boot");
        EVENTS.iter().for_each(|event| reference.write(&format!("events/{event}/enable"), "1"));
        reference
    }

    fn write(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).unwrap();
    }

    pub(crate) fn stop(self) -> Known {
        self.write("tracing_on", "0");
        for cpu in fs::read_dir(self.0.join("per_cpu")).unwrap().flatten() {
            let stats = fs::read_to_string(cpu.path().join("stats")).unwrap();
            assert!(stats.lines().any(|line| line == "overrun: 0"), "it holds everything: {stats}");
        }
        let mut known = Known::default();
        let text = fs::read_to_string(self.0.join("trace")).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).for_each(|line| known.add(line));
        known
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// What the kernel says that happened.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) switches: Vec<Event>,
    /// Of each switch, the thread that ran until then.
    until_then: Vec<i32>,
    pub(crate) wakings: Vec<Event>,
    /// Of each waking, the thread that ran on that CPU, and whether an interrupt did it.
    by: Vec<(i32, bool)>,
    /// New threads: who started it, its id, and whether it is one of the starter's process.
    pub(crate) started: Vec<(i32, i32, bool)>,
    /// Programs that were started, by thread.
    pub(crate) executed: Vec<(i32, String)>,
}

impl Known {
    /// A line such as `bash-6257 [001] d..2. 26660.603298: sched_switch: prev_comm=bash ...`.
    fn add(&mut self, line: &str) {
        let (head, rest) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
        let (event, fields) = rest.split_once(": ").unwrap_or_else(|| panic!("{line}"));
        let mut words = head.split_whitespace().rev();
        let mut word = || words.next().unwrap_or_else(|| panic!("{line}"));
        let (time, flags, cpu) = (word(), word(), word());
        let current = word().rsplit('-').next().unwrap().parse().unwrap();
        let (seconds, micros) = time.split_once('.').unwrap();
        let micros = seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap();
        let at = |tid: &str, name: &str| Event {
            at_ns: micros * 1_000,
            cpu: cpu.trim_matches(['[', ']']).parse().unwrap(),
            tid: tid.parse().unwrap(),
            name: name.to_owned(),
        };
        match event {
            "sched_switch" => {
                let (last, next) = fields.split_once(" ==> ").unwrap();
                self.switches.push(at(field(next, "next_pid="), name(next, "next_comm=", " next_pid=")));
                self.until_then.push(field(last, "prev_pid=").parse().unwrap());
            }
            "sched_waking" => {
                self.wakings.push(at(field(fields, "pid="), name(fields, "comm=", " pid=")));
                // Hard and soft interrupts, and those that cannot be masked.
                self.by.push((current, flags.contains(['h', 'H', 's', 'z', 'Z'])));
            }
            "task_newtask" => {
                let flags = u64::from_str_radix(field(fields, "clone_flags="), 16).unwrap();
                let tid = field(fields, "pid=").parse().unwrap();
                self.started.push((current, tid, flags & CLONE_THREAD != 0));
            }
            "sched_process_exec" => {
                let program = name(fields, "filename=", " pid=").to_owned();
                self.executed.push((field(fields, "pid=").parse().unwrap(), program));
            }
            other => panic!("an event that nobody asked for: {other}"),
        }
    }

    /// Each switch with the one before it on its CPU.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let mut last_of_cpu = std::collections::BTreeMap::new();
        (0..self.switches.len())
            .filter_map(move |i| last_of_cpu.insert(self.switches[i].cpu, i).map(|last| (last, i)))
    }

    /// Whether nearly each switch is from the thread of the one before it.
    pub(crate) fn is_whole(&self) -> bool {
        let is_left_out = |&(last, next): &(usize, usize)| self.switches[last].tid != self.until_then[next];
        let left_out = self.pairs().filter(is_left_out).count();
        eprintln!("the kernel left out at least {left_out} beside {} switches", self.switches.len());
        self.switches.len() >= HANDOVERS && left_out * 100 <= self.switches.len()
    }

    /// How often `by` woke `tid` between a switch to `by` and the next one, which is away from it.
    pub(crate) fn wakings_by(&self, by: i32, tid: i32) -> usize {
        let slices =
            self.pairs().filter(|&(last, next)| self.switches[last].tid == by && self.until_then[next] == by);
        let slices: Vec<_> =
            slices.map(|(last, next)| (&self.switches[last], &self.switches[next])).collect();
        let ran = |waking: &Event| {
            let holds = |(from, to): &(&Event, &Event)| {
                from.cpu == waking.cpu && (from.at_ns..=to.at_ns).contains(&waking.at_ns)
            };
            slices.iter().any(holds)
        };
        let wakings = self.wakings.iter().zip(&self.by);
        wakings.filter(|(w, of)| w.tid == tid && **of == (by, false) && ran(w)).count()
    }

    pub(crate) fn wakings_by_interrupts(&self, tid: i32) -> usize {
        self.wakings.iter().zip(&self.by).filter(|(waking, by)| waking.tid == tid && by.1).count()
    }
}

/// What follows that key, up to a space; the last one, since names may hold anything.
fn field<'a>(text: &'a str, key: &str) -> &'a str {
    let is_key = |&(at, _): &(usize, &str)| at == 0 || text.as_bytes()[at - 1] == b' ';
    let (at, _) = text.rmatch_indices(key).find(is_key).unwrap_or_else(|| panic!("{key} in {text}"));
    text[at + key.len()..].split(' ').next().unwrap()
}

/// What lies between two keys.
fn name<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let text = text.strip_prefix(from).unwrap_or_else(|| panic!("{from} begins {text}"));
    &text[..text.rfind(to).unwrap()]
}
