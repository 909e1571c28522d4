//! Names of threads, and their processes: from events of the kernel, process trees and tracks.

use std::collections::HashMap;
use std::ops::Range;

use watershed_wire::protos::{ProcessTree, TrackDescriptor};

use super::comms::Comms;
use super::lives::{LifeId, Lives, Maker};
use super::told::Told;

/// Longer names are cut: a hostile trace has long ones.
const NAME_SIZE_BYTES_MAX: usize = 256;

/// What process trees and tracks tell.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The process of a thread.
    process_of: Told<i32>,
    threads: Told<String>,
    /// The first word of a process's command line, or what a track calls it.
    processes: Told<String>,
}

impl Names {
    /// `at_ns` is of the clock of the kernel's events.
    pub(super) fn take_tree(&mut self, at_ns: Option<u64>, tree: &ProcessTree) {
        for process in &tree.processes {
            self.take_process(at_ns, process.pid(), process.cmdline.first());
        }
        for thread in &tree.threads {
            self.take_thread(at_ns, thread.tid(), thread.tgid(), thread.name());
        }
    }

    /// As [`Self::take_tree`].
    pub(super) fn take_track(&mut self, at_ns: Option<u64>, track: &TrackDescriptor) {
        if let Some(process) = &track.process {
            let name = process.process_name.as_ref().or(process.cmdline.first());
            self.take_process(at_ns, process.pid(), name);
        }
        // Ids have 32 bits everywhere else.
        if let Some(thread) = &track.thread
            && let Ok(tid) = i32::try_from(thread.tid())
        {
            self.take_thread(at_ns, tid, thread.pid(), thread.thread_name());
        }
    }

    fn take_process(&mut self, at_ns: Option<u64>, pid: i32, name: Option<&String>) {
        self.process_of.take(pid, at_ns, pid);
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            self.processes.take(pid, at_ns, cut(name));
        }
    }

    fn take_thread(&mut self, at_ns: Option<u64>, tid: i32, pid: i32, name: &str) {
        self.process_of.take(tid, at_ns, pid);
        if !name.is_empty() {
            self.threads.take(tid, at_ns, cut(name));
        }
    }
}

fn cut(name: &str) -> String {
    name[..name.floor_char_boundary(NAME_SIZE_BYTES_MAX)].to_owned()
}

/// A process: its number, and which life of its main thread it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Process {
    pub(super) pid: i32,
    main: Option<LifeId>,
}

/// Names and processes of all lives, when all has been taken.
pub(super) struct Named<'a> {
    names: &'a Names,
    comms: &'a Comms,
    lives: &'a Lives,
    /// Trees and events are of one clock.
    is_dated: bool,
    process_of: HashMap<LifeId, Process>,
}

impl<'a> Named<'a> {
    pub(super) fn new(names: &'a Names, comms: &'a Comms, lives: &'a Lives, is_dated: bool) -> Self {
        let mut named = Named { names, comms, lives, is_dated, process_of: HashMap::new() };
        for (id, life) in lives.all() {
            let told = named.names.process_of.within(life.tid, &named.span(Some(id)));
            let process = match (life.maker, told) {
                (Maker::AnotherProcess, _) => Process { pid: life.tid, main: Some(id) },
                (_, Some((&pid, at_ns))) => Process { pid, main: lives.at(pid, at_ns) },
                _ => continue,
            };
            named.process_of.insert(id, process);
        }
        named.conclude();
        named
    }

    /// Who made whom says whose the threads are of which nobody told.
    fn conclude(&mut self) {
        let mut related: HashMap<LifeId, Vec<LifeId>> = HashMap::new();
        for (id, life) in self.lives.all() {
            if let Maker::Thread(Some(maker)) = life.maker {
                related.entry(id).or_default().push(maker);
                related.entry(maker).or_default().push(id);
            }
        }
        let of_known = |&id: &LifeId| Some((id, *self.process_of.get(&id)?));
        let mut known: Vec<(LifeId, Process)> = related.keys().filter_map(of_known).collect();
        // So that the result does not depend on the map's order, whatever a hostile trace says.
        known.sort_unstable();
        while let Some((id, process)) = known.pop() {
            for relative in related.remove(&id).unwrap_or_default() {
                self.process_of.entry(relative).or_insert_with(|| {
                    known.push((relative, process));
                    process
                });
            }
        }
    }

    fn span(&self, id: Option<LifeId>) -> Range<u64> {
        id.filter(|_| self.is_dated).map_or(0..u64::MAX, |id| self.lives.span(id))
    }

    /// What the kernel called it last, or else what a process tree does.
    pub(super) fn thread(&self, id: LifeId) -> Option<String> {
        let life = self.lives.get(id);
        let of_kernel = self.comms.name(life.comm).map(str::to_owned);
        of_kernel.or_else(|| self.told_thread(life.tid, Some(id)))
    }

    pub(super) fn process_of(&self, id: LifeId) -> Option<Process> {
        self.process_of.get(&id).copied()
    }

    /// The process's own, or else that of the main thread.
    pub(super) fn process(&self, process: Process) -> Option<String> {
        let Process { pid, main } = process;
        let told = self.names.processes.within(pid, &self.span(main)).map(|(name, _)| name.clone());
        told.or_else(|| main.map_or_else(|| self.told_thread(pid, None), |main| self.thread(main)))
    }

    fn told_thread(&self, tid: i32, life: Option<LifeId>) -> Option<String> {
        self.names.threads.within(tid, &self.span(life)).map(|(name, _)| name.clone())
    }
}
