//! All sessions of a file as one: counters added up, lists put one behind the other, and of the
//! verdicts the worst.

use std::collections::BTreeMap;

use super::part::{Completeness, Kind, OneSession, Packets, Part, ServiceCounts, Session, Time};
use super::verdict::Verdict;

pub(super) fn of(sessions: &[OneSession]) -> Part {
    let parts: Vec<&Part> = sessions.iter().map(|session| &session.part).collect();
    Part {
        scheduling: None,
        completeness: completeness(&parts),
        losses: numbered(&parts, |part| part.losses.clone(), |loss, number| loss.session = number),
        since_service_began: since_service_began(&parts),
        time: time(&parts),
        session: parts.last().map_or_else(Session::default, |part| part.session.clone()),
        packets: packets(&parts),
        sequences: numbered(&parts, |part| part.sequences.clone(), |row, number| row.session = number),
        buffers: numbered(&parts, |part| part.buffers.clone(), |row, number| row.session = number),
    }
}

/// One list of all, each entry with the number of its session, from 1.
fn numbered<T>(parts: &[&Part], of: impl Fn(&Part) -> Vec<T>, set: impl Fn(&mut T, Option<usize>)) -> Vec<T> {
    let mut all = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let mut entries = of(part);
        entries.iter_mut().for_each(|entry| set(entry, Some(index + 1)));
        all.append(&mut entries);
    }
    all
}

fn completeness(parts: &[&Part]) -> Completeness {
    let all = || parts.iter().map(|part| &part.completeness);
    let sum = |of: fn(&Completeness) -> u64| all().map(of).sum();
    let list = |of: fn(&Completeness) -> &Vec<String>| all().flat_map(|one| of(one).clone()).collect();
    let has = |verdict| all().any(|one| one.verdict == verdict);
    let reasons = all().enumerate().flat_map(|(index, one)| {
        one.reasons.iter().map(move |reason| format!("session {}: {reason}", index + 1))
    });
    let flushes = || all().map(|one| one.final_flush);
    Completeness {
        verdict: match () {
            () if has(Verdict::Incomplete) => Verdict::Incomplete,
            () if has(Verdict::Unknown) => Verdict::Unknown,
            () => Verdict::Complete,
        },
        reasons: reasons.collect(),
        has_statistics: all().all(|one| one.has_statistics),
        statistics_are_final: all().all(|one| one.statistics_are_final),
        final_flush: match flushes().find(|flush| *flush == Some("failed")) {
            Some(failed) => failed,
            None => flushes().min().flatten(),
        },
        sync_markers: sum(|one| one.sync_markers),
        tracing_started: sum(|one| one.tracing_started),
        all_data_sources_started: sum(|one| one.all_data_sources_started),
        flushes_started: sum(|one| one.flushes_started),
        flushes_done: sum(|one| one.flushes_done),
        tracing_disabled: sum(|one| one.tracing_disabled),
        reads_completed: sum(|one| one.reads_completed),
        slow_to_start: list(|one| &one.slow_to_start),
        slow_to_flush: list(|one| &one.slow_to_flush),
        undecodable_packets: sum(|one| one.undecodable_packets),
        undecodable_offset_bytes: all().find_map(|one| one.undecodable_offset_bytes),
    }
}

/// Sessions of one service have each other's counts: the highest is the last.
fn since_service_began(parts: &[&Part]) -> Option<ServiceCounts> {
    let all = || parts.iter().filter_map(|part| part.since_service_began.as_ref());
    Some(ServiceCounts {
        chunks_discarded: all().map(|counts| counts.chunks_discarded).max()?,
        patches_discarded: all().map(|counts| counts.patches_discarded).max()?,
        commits: all().filter_map(|counts| counts.commits).next_back(),
    })
}

/// From the earliest to the latest. Clocks of different machines or boots say nothing about each
/// other; the sessions have the times of each.
fn time(parts: &[&Part]) -> Time {
    let all = || parts.iter().map(|part| &part.time);
    let earliest = all().filter(|time| time.first_ns.is_some()).min_by_key(|time| time.first_ns);
    let (first_ns, last_ns) =
        (earliest.and_then(|time| time.first_ns), all().filter_map(|t| t.last_ns).max());
    Time {
        clock: earliest.or(all().next()).map_or_else(String::new, |time| time.clock.clone()),
        first_ns,
        last_ns,
        duration_ns: first_ns.zip(last_ns).map(|(first, last)| last - first),
        first_unix_ns: earliest.and_then(|time| time.first_unix_ns),
        packets_unplaced: all().map(|time| time.packets_unplaced).sum(),
    }
}

fn packets(parts: &[&Part]) -> Packets {
    let all = || parts.iter().map(|part| &part.packets);
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    for kind in all().flat_map(|packets| &packets.by_kind) {
        let sum = kinds.entry(&kind.kind).or_insert(Kind { packets: 0, bytes: 0, ..kind.clone() });
        sum.packets += kind.packets;
        sum.bytes += kind.bytes;
    }
    let mut by_kind: Vec<Kind> = kinds.into_values().collect();
    by_kind.sort_by_key(|kind| std::cmp::Reverse(kind.bytes));
    Packets {
        count: all().map(|packets| packets.count).sum(),
        bytes: all().map(|packets| packets.bytes).sum(),
        compressed_packets: all().map(|packets| packets.compressed_packets).sum(),
        by_kind,
    }
}
