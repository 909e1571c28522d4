//! Names of threads, and their processes: from events of the kernel, process trees and tracks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use watershed_wire::protos::{ProcessTree, TrackDescriptor};

use super::{IDLE, THREADS_MAX};

/// The kernel has room for so many bytes of a thread's name.
const COMM_SIZE_BYTES_MAX: usize = 16;
/// Longer names are cut: a hostile trace has long ones.
const NAME_SIZE_BYTES_MAX: usize = 256;

/// A name as of some moment.
#[derive(Debug)]
struct Dated {
    at_ns: u64,
    name: String,
}

/// By id; of several names the latest counts.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// What the kernel calls threads.
    comms: HashMap<i32, Dated>,
    /// What process trees and tracks call threads.
    threads: HashMap<i32, String>,
    /// The process of a thread.
    process_of: HashMap<i32, i32>,
    /// Who made a thread of its own process, while that process is not known.
    maker_of: HashMap<i32, i32>,
}

impl Names {
    /// A thread's name in an event.
    pub(super) fn take_comm(&mut self, tid: i32, at_ns: u64, name: &[u8]) {
        if tid == IDLE || name.is_empty() {
            return;
        }
        let name = &name[..name.len().min(COMM_SIZE_BYTES_MAX)];
        let text = || String::from_utf8_lossy(name).into_owned();
        let room = self.comms.len() < THREADS_MAX;
        match self.comms.get_mut(&tid) {
            Some(known) if known.at_ns > at_ns => {}
            Some(known) if known.name.as_bytes() == name => known.at_ns = at_ns,
            Some(known) => *known = Dated { at_ns, name: text() },
            None if room => {
                self.comms.insert(tid, Dated { at_ns, name: text() });
            }
            None => {}
        }
    }

    /// A thread was made, by a thread of `parent`'s process if it is of the same.
    pub(super) fn take_new(&mut self, tid: i32, parent: i32, is_thread: bool) {
        let process = match is_thread {
            true => self.process_of(parent),
            false => Some(tid),
        };
        match process {
            Some(process) => self.take_process(tid, process),
            None => {
                // That was another one, which had the number. What trees say may be about this one.
                if self.process_of(tid) == Some(tid) {
                    self.process_of.remove(&tid);
                }
                keep(&mut self.maker_of, tid, parent);
            }
        }
    }

    fn take_process(&mut self, tid: i32, process: i32) {
        if tid == process {
            self.maker_of.remove(&tid);
        }
        keep(&mut self.process_of, tid, process);
    }

    /// All has been taken: who made whom says now whose the threads are of which nobody told.
    pub(super) fn finish(&mut self) {
        let mut related: HashMap<i32, Vec<i32>> = HashMap::new();
        for (&tid, &maker) in &self.maker_of {
            related.entry(tid).or_default().push(maker);
            related.entry(maker).or_default().push(tid);
        }
        let mut known: Vec<(i32, i32)> =
            related.keys().filter_map(|&tid| Some((tid, self.process_of(tid)?))).collect();
        // So that the result does not depend on the map's order, whatever a hostile trace says.
        known.sort_unstable();
        while let Some((tid, process)) = known.pop() {
            for relative in related.remove(&tid).unwrap_or_default() {
                if let Entry::Vacant(unknown) = self.process_of.entry(relative) {
                    unknown.insert(process);
                    known.push((relative, process));
                }
            }
        }
    }

    pub(super) fn take_tree(&mut self, tree: &ProcessTree) {
        for process in &tree.processes {
            self.take_process(process.pid(), process.pid());
        }
        for thread in &tree.threads {
            self.take_process(thread.tid(), thread.tgid());
            self.take_thread(thread.tid(), thread.name());
        }
    }

    pub(super) fn take_track(&mut self, track: &TrackDescriptor) {
        if let Some(process) = &track.process {
            self.take_process(process.pid(), process.pid());
        }
        if let Some(thread) = &track.thread {
            // Ids have 32 bits everywhere else.
            if let Ok(tid) = i32::try_from(thread.tid()) {
                self.take_process(tid, thread.pid());
                self.take_thread(tid, thread.thread_name());
            }
        }
    }

    fn take_thread(&mut self, tid: i32, name: &str) {
        if !name.is_empty() {
            let name = &name[..name.floor_char_boundary(NAME_SIZE_BYTES_MAX)];
            keep(&mut self.threads, tid, name.to_owned());
        }
    }

    /// What the kernel called it last, or else what a process tree does.
    pub(super) fn thread(&self, tid: i32) -> Option<&str> {
        let comm = self.comms.get(&tid).map(|dated| &dated.name);
        let name = comm.or(self.threads.get(&tid));
        name.map(String::as_str).or((tid == IDLE).then_some("idle"))
    }

    pub(super) fn process_of(&self, tid: i32) -> Option<i32> {
        self.process_of.get(&tid).copied()
    }
}

fn keep<T>(map: &mut HashMap<i32, T>, id: i32, value: T) {
    if map.len() < THREADS_MAX || map.contains_key(&id) {
        map.insert(id, value);
    }
}
