//! Names of events, as configs have them: `group/name`, `group/*`, or `name` alone.

use std::collections::BTreeSet;
use std::fs;

use super::plan;
use super::ring::EventName;
use super::tracefs::{self, TraceFs};

/// What the names of a config stand for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) events: BTreeSet<EventName>,
    /// Names that this kernel has no event for.
    pub(super) unknown: Vec<String>,
}

/// Says what is wrong with a name, before anybody looks for it.
pub(super) fn check(name: &str) -> Result<(), String> {
    let error = |what: &str| Err(format!("ftrace_events: \"{name}\" {what}"));
    if name.is_empty() || !name.bytes().all(|b| (32..=126).contains(&b)) {
        return error("is no name");
    }
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() > 2 || parts.iter().any(|part| part.is_empty() || part.starts_with('.')) {
        return error("must be group/name, group/* or name");
    }
    if name[..name.len() - 1].contains('*') {
        return error("may have * at its end only");
    }
    Ok(())
}

/// Looks for the events on this machine.
pub(super) fn resolve(tracefs: &TraceFs, names: &[String]) -> Resolved {
    let mut resolved = Resolved::default();
    let mut available = None;
    for name in names {
        let found = match name.split_once('/') {
            Some((group, "*")) => of_group(tracefs, group),
            Some((group, event)) => {
                has(tracefs, group, event).then(|| named(group, event)).into_iter().collect()
            }
            None => {
                let available = available.get_or_insert_with(|| {
                    tracefs::read(&tracefs.root().join("available_events")).unwrap_or_default()
                });
                by_name(tracefs, available, name).into_iter().collect()
            }
        };
        if found.is_empty() {
            resolved.unknown.push(name.clone());
        }
        resolved.events.extend(found);
    }
    resolved
}

fn named(group: &str, event: &str) -> EventName {
    (group.to_owned(), event.to_owned())
}

fn has(tracefs: &TraceFs, group: &str, event: &str) -> bool {
    tracefs.root().join("events").join(group).join(event).join("format").exists()
}

fn of_group(tracefs: &TraceFs, group: &str) -> Vec<EventName> {
    let Ok(entries) = fs::read_dir(tracefs.root().join("events").join(group)) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| has(tracefs, group, name)).map(|name| named(group, &name)).collect()
}

/// The event of that name. If several groups have one, the one that the format knows.
fn by_name(tracefs: &TraceFs, available: &str, name: &str) -> Option<EventName> {
    let events = available.lines().filter_map(|line| line.split_once(':'));
    let candidates: Vec<_> = events.filter(|(_, event)| *event == name).collect();
    let known = candidates.iter().find(|(group, event)| plan::is_typed(group, event));
    match known.or(candidates.first()) {
        Some((group, event)) => Some(named(group, event)),
        // Events of this group are not in the list.
        None => has(tracefs, "ftrace", name).then(|| named("ftrace", name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Roots;

    #[test]
    fn names_that_cannot_be() {
        for name in ["", "a/", "/a", "a/b/c", "a*b", "a/*b", "a\n", "ä", "../a", "a/.."] {
            assert!(check(name).is_err(), "{name:?}");
        }
        for name in ["a", "a/b", "a/*", "sched_switch", "a/b*"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_of_a_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("kernel/tracing");
        for event in
            ["sched/sched_switch", "sched/sched_waking", "zz/sched_switch", "aa/sched_switch", "ftrace/print"]
        {
            fs::create_dir_all(root.join("events").join(event)).unwrap();
            fs::write(root.join("events").join(event).join("format"), "").unwrap();
        }
        fs::create_dir_all(root.join("instances")).unwrap();
        fs::write(root.join("trace_clock"), "[local]").unwrap();
        fs::write(root.join("events/sched/enable"), "").unwrap();
        fs::write(
            root.join("available_events"),
            "aa:sched_switch\nsched:sched_switch\nzz:sched_switch\nzz:only\n",
        )
        .unwrap();
        let roots = Roots { proc: dir.path().join("proc"), sys: dir.path().to_owned() };
        let tracefs = TraceFs::find(&roots).unwrap();
        let resolved = |name: &str| {
            let Resolved { events, unknown } = resolve(&tracefs, &[name.to_owned()]);
            assert_eq!(unknown.is_empty(), !events.is_empty());
            events.into_iter().map(|(group, name)| format!("{group}/{name}")).collect::<Vec<_>>()
        };
        assert_eq!(resolved("sched_switch"), ["sched/sched_switch"], "the format knows this one");
        assert_eq!(resolved("aa/sched_switch"), ["aa/sched_switch"]);
        assert_eq!(resolved("sched/*"), ["sched/sched_switch", "sched/sched_waking"]);
        assert_eq!(resolved("only"), ["zz/only"]);
        assert_eq!(resolved("print"), ["ftrace/print"]);
        for name in ["nothing", "sched/nothing", "nothing/*", "sched/sched_*"] {
            assert_eq!(resolved(name), [""; 0], "{name}");
        }
    }
}
