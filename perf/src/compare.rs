//! Two reports side by side: what changed beyond the noise that they measured.

use crate::report::{Measurement, Report, aligned, short};

/// Differences below this are noise whatever the runs say of themselves: between two runs the
/// machine itself differs (page placement, neighbours), which no run can see from inside.
const FLOOR: f64 = 0.02;

/// One figure that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The measurement's name, with the extra figure's name after a dot where it is one.
    pub name: String,
    /// The figure in the old report.
    pub old: f64,
    /// The figure in the new report.
    pub new: f64,
    /// `new / old - 1`.
    pub relative: f64,
    /// The noise of both, added: the change is larger.
    pub noise: f64,
    /// Whether the new figure is the better one.
    pub better: bool,
}

/// The figures that differ by more than the noise, in the old report's order, and the names that
/// only one has.
pub fn compare(old: &Report, new: &Report) -> (Vec<Change>, Vec<String>) {
    let mut changes = Vec::new();
    let mut missing = Vec::new();
    for before in &old.results {
        match new.results.iter().find(|after| after.name == before.name) {
            Some(after) => changes_of(before, after, &mut changes),
            None => missing.push(format!("{}: only in the old report", before.name)),
        }
    }
    let is_new = |after: &&Measurement| old.results.iter().all(|before| before.name != after.name);
    missing.extend(
        new.results.iter().filter(is_new).map(|after| format!("{}: only in the new report", after.name)),
    );
    (changes, missing)
}

fn changes_of(before: &Measurement, after: &Measurement, changes: &mut Vec<Change>) {
    let noise = (before.noise + after.noise).max(FLOOR);
    let mut add = |name: String, old: f64, new: f64, larger_is_better: bool| {
        let relative = new / old - 1.0;
        if relative.abs() > noise {
            changes.push(Change {
                name,
                old,
                new,
                relative,
                noise,
                better: (relative > 0.0) == larger_is_better,
            });
        }
    };
    add(before.name.clone(), before.value, after.value, before.unit == "ratio");
    for (name, old) in &before.extra {
        if let Some(new) = after.extra.get(name) {
            // How well a figure is known is no figure of its own.
            if !name.ends_with("_noise") {
                add(format!("{}.{name}", before.name), *old, *new, !is_cost(name));
            }
        }
    }
}

/// Whether less of a figure beside the value is better, which its name says.
fn is_cost(name: &str) -> bool {
    name == "plain" || name.split('_').any(|part| matches!(part, "ns" | "us" | "percent" | "bytes"))
}

/// The comparison for a person.
pub fn to_table(old: &Report, new: &Report) -> String {
    let (changes, missing) = compare(old, new);
    let mut text =
        format!("old: suite {} on {}\nnew: suite {} on {}\n", old.suite, old.machine, new.suite, new.machine);
    if (&old.machine.cpu, old.machine.cores) != (&new.machine.cpu, new.machine.cores) {
        text.push_str("Different machines: only ratios carry over.\n");
    }
    if old.suite != new.suite {
        text.push_str("Different suites.\n");
    }
    let mut rows = vec![["", "old", "new", "change", "noise", ""].map(String::from)];
    rows.extend(changes.iter().map(|change| {
        [
            change.name.clone(),
            short(change.old),
            short(change.new),
            format!("{:+.1}%", change.relative * 100.0),
            format!("{:.1}%", change.noise * 100.0),
            if change.better { "better" } else { "worse" }.into(),
        ]
    }));
    if changes.is_empty() {
        text.push_str("No figure differs by more than the noise.\n");
    } else {
        text.push_str(&aligned(&rows));
    }
    for line in missing {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::measure::Series;

    fn report(rows: &[(&str, f64, f64, f64)]) -> Report {
        let result = |&(name, value, noise, ratio): &(&str, f64, f64, f64)| {
            let mut result = Measurement::ns_per("chunk", name, &Series::new(vec![value]));
            result.noise = noise;
            result.with("ratio_to_memcpy", ratio)
        };
        Report {
            suite: "engine".into(),
            date: String::new(),
            machine: Machine::here(),
            results: rows.iter().map(result).collect(),
        }
    }

    #[test]
    fn only_what_exceeds_the_noise_is_named() {
        let old =
            report(&[("steady", 100.0, 0.03, 0.5), ("slower", 100.0, 0.03, 0.5), ("gone", 1.0, 0.0, 1.0)]);
        let new =
            report(&[("steady", 105.0, 0.03, 0.5), ("slower", 110.0, 0.03, 0.5), ("fresh", 1.0, 0.0, 1.0)]);
        let (changes, missing) = compare(&old, &new);
        assert_eq!(changes.len(), 1);
        assert_eq!((changes[0].name.as_str(), changes[0].better), ("slower", false));
        assert_eq!(missing, ["gone: only in the old report", "fresh: only in the new report"]);
    }

    #[test]
    fn a_larger_ratio_is_better_and_a_smaller_time_too() {
        let old = report(&[("write", 100.0, 0.01, 0.5)]);
        let new = report(&[("write", 80.0, 0.01, 0.625)]);
        let (changes, _) = compare(&old, &new);
        assert_eq!(changes.iter().map(|change| change.better).collect::<Vec<_>>(), [true, true]);
        assert!(to_table(&old, &new).contains("write.ratio_to_memcpy"));
    }

    #[test]
    fn less_time_is_better_beside_the_value_too() {
        let with = |name: &str, value: f64| {
            let mut report = report(&[("write", 100.0, 0.01, 0.5)]);
            report.results[0].extra.insert(name.into(), value);
            report
        };
        for (name, larger_is_better) in [
            ("ns_ending", false),
            ("one_ns", false),
            ("percent_more", false),
            ("plain", false),
            ("mb_per_s", true),
        ] {
            let (changes, _) = compare(&with(name, 10.0), &with(name, 20.0));
            assert_eq!((changes.len(), changes[0].better), (1, larger_is_better), "{name}");
        }
        assert_eq!(compare(&with("x_noise", 10.0), &with("x_noise", 20.0)).0, []);
    }

    #[test]
    fn tiny_differences_of_quiet_runs_are_not_named() {
        let (changes, _) = compare(&report(&[("a", 100.0, 0.0, 0.5)]), &report(&[("a", 101.5, 0.0, 0.5)]));
        assert_eq!(changes, []);
    }
}
