//! Tracks, the slices that are open on them, and what they are called.

use std::collections::HashMap;

use watershed_wire::protos::track_descriptor::StaticOrDynamicName;
use watershed_wire::protos::{ProcessTree, TrackDescriptor};

use super::canvas::{Row, Shapes, Slice, Window};
use super::events::{Event, What};
use super::names::{Text, Texts};
use super::{DEPTH_MAX, TRACKS_MAX};

/// What a descriptor says.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct About {
    pub(super) name: Text,
    pub(super) parent: u64,
    /// Of a process or of one of its threads.
    pub(super) pid: Option<i32>,
    /// Of a thread.
    pub(super) tid: Option<i64>,
    pub(super) unit: Text,
    is_incremental: bool,
    multiplier: f64,
}

#[derive(Debug, Default)]
pub(super) struct Track {
    pub(super) about: About,
    pub(super) row: Row,
    /// Begin and name of those that have not ended.
    open: Vec<(u64, Text)>,
    /// Those within the innermost of `open`.
    too_deep: u64,
    value: f64,
}

#[derive(Debug, Default)]
pub(super) struct Tracks {
    pub(super) of: HashMap<u64, Track>,
    /// Names of processes, and of threads, by number.
    pub(super) processes: HashMap<i32, Text>,
    pub(super) threads: HashMap<i64, Text>,
}

impl Tracks {
    pub(super) fn describe(&mut self, descriptor: &TrackDescriptor, texts: &mut Texts) {
        let Some(track) = self.track(descriptor.uuid()) else { return };
        let mut about = About { parent: descriptor.parent_uuid(), multiplier: 1.0, ..About::default() };
        if let Some(
            StaticOrDynamicName::Name(name)
            | StaticOrDynamicName::StaticName(name)
            | StaticOrDynamicName::AtraceName(name),
        ) = &descriptor.static_or_dynamic_name
        {
            about.name = texts.number(name);
        }
        if let Some(process) = &descriptor.process {
            about.pid = Some(process.pid());
            let name = process.process_name.as_ref().or(process.cmdline.first());
            about.name = name.map_or(about.name, |name| texts.number(name));
        }
        if let Some(thread) = &descriptor.thread {
            (about.pid, about.tid) = (Some(thread.pid()), Some(thread.tid()));
            let name = thread.thread_name.as_ref();
            about.name = name.map_or(about.name, |name| texts.number(name));
        }
        if let Some(counter) = &descriptor.counter {
            about.is_incremental = counter.is_incremental();
            about.multiplier = counter.unit_multiplier.filter(|by| *by != 0).unwrap_or(1) as f64;
            let unit = match counter.unit() as i32 {
                1 => "ns",
                3 => "B",
                _ => counter.unit_name(),
            };
            about.unit = texts.number(unit);
        }
        track.about = about;
    }

    pub(super) fn take_tree(&mut self, tree: &ProcessTree, texts: &mut Texts) {
        for process in &tree.processes {
            if let Some(name) = process.cmdline.first().filter(|_| self.processes.len() < TRACKS_MAX) {
                self.processes.insert(process.pid(), texts.number(name));
            }
        }
        for thread in &tree.threads {
            if self.threads.len() < TRACKS_MAX && !thread.name().is_empty() {
                self.threads.insert(thread.tid().into(), texts.number(thread.name()));
            }
        }
    }

    /// Takes the next event; none is earlier than those before.
    pub(super) fn take(&mut self, event: Event, window: &Window, shapes: &mut Shapes) {
        let Event { at_ns, track, what } = event;
        let Some(track) = self.track(track) else { return };
        match what {
            What::Begin(_) if track.open.len() >= DEPTH_MAX => track.too_deep += 1,
            What::Begin(name) => track.open.push((at_ns, name)),
            What::End if track.too_deep > 0 => track.too_deep -= 1,
            What::End => {
                // One without a begin is of a slice that a ring has overwritten.
                if let Some((begin_ns, name)) = track.open.pop() {
                    let slice = Slice { begin_ns, end_ns: at_ns, name, is_open: false };
                    track.row.add(track.open.len(), slice, window, shapes);
                }
            }
            What::Instant(name) => {
                let slice = Slice { begin_ns: at_ns, end_ns: at_ns, name, is_open: false };
                track.row.instants.add(slice, window, shapes);
            }
            What::Counter(value) => {
                let About { is_incremental, multiplier, .. } = track.about;
                track.value = value * multiplier + if is_incremental { track.value } else { 0.0 };
                track.row.step(at_ns, track.value, window, shapes);
            }
        }
    }

    /// Nothing comes any more: what has not ended goes on to the end of the window.
    pub(super) fn finish(&mut self, window: &Window, shapes: &mut Shapes) {
        for track in self.of.values_mut() {
            while let Some((begin_ns, name)) = track.open.pop() {
                let end_ns = window.to_ns.max(begin_ns);
                let slice = Slice { begin_ns, end_ns, name, is_open: true };
                track.row.add(track.open.len(), slice, window, shapes);
            }
        }
    }

    fn track(&mut self, uuid: u64) -> Option<&mut Track> {
        if self.of.len() >= TRACKS_MAX && !self.of.contains_key(&uuid) {
            return None;
        }
        let new = || Track { about: About { multiplier: 1.0, ..About::default() }, ..Track::default() };
        Some(self.of.entry(uuid).or_insert_with(new))
    }
}
