//! Names of processes, as far as the trace tells them: the first word of the command line, or what
//! a track calls it.

use std::collections::HashMap;

use watershed_wire::protos::{ProcessTree, TrackDescriptor};

/// Processes that are remembered, and how long their names may be: a hostile trace has many and
/// long ones.
const PROCESSES_MAX: usize = 1 << 16;
const NAME_SIZE_BYTES_MAX: usize = 256;

/// Process names by machine and pid; the last word counts.
#[derive(Debug, Default)]
pub(super) struct Processes(HashMap<(Option<u32>, i32), String>);

impl Processes {
    pub(super) fn take_tree(&mut self, machine_id: Option<u32>, tree: &ProcessTree) {
        for process in &tree.processes {
            if let Some(name) = process.cmdline.first() {
                self.keep(machine_id, process.pid(), name);
            }
        }
    }

    pub(super) fn take_track(&mut self, machine_id: Option<u32>, track: &TrackDescriptor) {
        if let Some(process) = &track.process {
            let name = process.process_name.as_ref().or(process.cmdline.first());
            if let Some(name) = name {
                self.keep(machine_id, process.pid(), name);
            }
        }
    }

    fn keep(&mut self, machine_id: Option<u32>, pid: i32, name: &str) {
        let known = self.0.contains_key(&(machine_id, pid));
        if !name.is_empty() && (known || self.0.len() < PROCESSES_MAX) {
            let name = &name[..name.floor_char_boundary(NAME_SIZE_BYTES_MAX)];
            self.0.insert((machine_id, pid), name.to_owned());
        }
    }

    pub(super) fn name(&self, machine_id: Option<u32>, pid: i32) -> Option<&str> {
        self.0.get(&(machine_id, pid)).map(String::as_str)
    }
}
