//! Which rows there are, in which order, and what they are called.

use std::collections::BTreeMap;

use super::canvas::Row;
use super::cpus::Cpus;
use super::names::Texts;
use super::tracks::{Track, Tracks};

/// Tracks within each other that are followed to their process.
const ANCESTORS_MAX: usize = 16;

/// Rows under a heading.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) heading: String,
    pub(super) rows: Vec<Named<'a>>,
}

#[derive(Debug)]
pub(super) struct Named<'a> {
    pub(super) name: String,
    /// Of a counter's values.
    pub(super) unit: &'a str,
    pub(super) row: &'a Row,
}

/// Processes in the order of their numbers; tracks without one are the last.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Process(i32),
    None,
}

/// Within a group: threads first, the main one before the others, then other tracks by name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    kind: u8,
    number: i64,
    name: String,
    uuid: u64,
}

/// Rows that have something in the window.
pub(super) fn groups<'a>(cpus: &'a Cpus, tracks: &'a Tracks, texts: &'a Texts) -> Vec<Group<'a>> {
    let of_cpus = cpus.rows().filter(|(_, row)| !row.is_empty());
    let name = |(number, row)| Named { name: format!("CPU {number}"), unit: "", row };
    let of_cpus = Group { heading: "Which thread ran".to_owned(), rows: of_cpus.map(name).collect() };
    let mut by_process: BTreeMap<Of, BTreeMap<Place, Named<'a>>> = BTreeMap::new();
    for (&uuid, track) in tracks.of.iter().filter(|(_, track)| !track.row.is_empty()) {
        let (of, name) = (process(tracks, track), name_of(tracks, texts, uuid, track));
        let about = track.about;
        let (kind, number) = match about.tid {
            Some(tid) => (u8::from(about.pid.map(i64::from) != Some(tid)), tid),
            None if track.row.steps.is_empty() => (2, 0),
            None => (3, 0),
        };
        let place = Place { kind, number, name: name.clone(), uuid };
        let named = Named { name, unit: texts.get(about.unit), row: &track.row };
        by_process.entry(of).or_default().insert(place, named);
    }
    let of_process = by_process.into_iter().map(|(of, rows)| Group {
        heading: match of {
            Of::Process(pid) => process_name(tracks, texts, pid),
            Of::None => "Tracks without a process".to_owned(),
        },
        rows: rows.into_values().collect(),
    });
    std::iter::once(of_cpus).chain(of_process).filter(|group| !group.rows.is_empty()).collect()
}

fn ancestors<'a>(tracks: &'a Tracks, track: &'a Track) -> impl Iterator<Item = &'a Track> {
    std::iter::successors(Some(track), |track| parent(tracks, track)).take(ANCESTORS_MAX)
}

fn parent<'a>(tracks: &'a Tracks, track: &Track) -> Option<&'a Track> {
    tracks.of.get(&track.about.parent).filter(|_| track.about.parent != 0)
}

fn process(tracks: &Tracks, track: &Track) -> Of {
    ancestors(tracks, track).find_map(|track| track.about.pid).map_or(Of::None, Of::Process)
}

fn process_name(tracks: &Tracks, texts: &Texts, pid: i32) -> String {
    let is_process = |track: &&Track| track.about.pid == Some(pid) && track.about.tid.is_none();
    // The lowest of several, so that a picture does not depend on a map's order.
    let told = tracks.of.values().filter(is_process).map(|track| texts.get(track.about.name));
    let told = told.filter(|name| !name.is_empty()).min();
    let name = told.or_else(|| tracks.processes.get(&pid).map(|&name| texts.get(name)));
    // Of a path the file.
    let name = name.map(|name| name.rsplit('/').next().unwrap_or(name)).unwrap_or("process");
    format!("{name} {pid}")
}

fn name_of(tracks: &Tracks, texts: &Texts, uuid: u64, track: &Track) -> String {
    let about = track.about;
    if let Some(tid) = about.tid {
        let of_tree = tracks.threads.get(&tid).copied().unwrap_or_default();
        let name = if about.name.is_empty() { of_tree } else { about.name };
        return match texts.get(name) {
            "" => format!("thread {tid}"),
            name => format!("{name} {tid}"),
        };
    }
    if about.pid.is_some() {
        return "(process)".to_owned();
    }
    let own = match texts.get(about.name) {
        "" => format!("track {uuid:x}"),
        name => name.to_owned(),
    };
    // Within a track that is no process.
    let parent = ancestors(tracks, track).nth(1).filter(|parent| parent.about.pid.is_none());
    match parent.map(|parent| texts.get(parent.about.name)).filter(|name| !name.is_empty()) {
        Some(parent) => format!("{parent}: {own}"),
        None => own,
    }
}
