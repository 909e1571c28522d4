//! Judging counts against a baseline.

use super::baseline::{Count, Counts, Limits};
use crate::report::aligned;

/// The gate's verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every benchmark is within its limit.
    Pass,
    /// These are not.
    Broken(Vec<String>),
    /// The two cannot be compared; the text says why.
    Refused(String),
}

/// What to do about a benchmark that only one of two runs has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The committed baseline must have exactly those that there are: one that was dropped leaves
    /// it in the same change.
    Refuse,
    /// Another revision may have had others.
    Ignore,
}

/// Compares `new` with `old`, benchmark by benchmark.
pub fn judge(old: &Counts, new: &Counts, limits: &Limits, missing: Missing) -> Verdict {
    if old.toolchain != new.toolchain {
        return Verdict::Refused(format!("other toolchains: {:?} and {:?}", old.toolchain, new.toolchain));
    }
    let names = |counts: &Counts| counts.benchmarks.keys().cloned().collect::<Vec<_>>();
    if missing == Missing::Refuse && names(old) != names(new) {
        return Verdict::Refused(format!("other benchmarks: {:?} and {:?}", names(old), names(new)));
    }
    let broken = |(name, count): (&String, &Count)| {
        let before = old.benchmarks.get(name)?;
        if (&before.unit, before.units) != (&count.unit, count.units) {
            return Some(format!(
                "{name}: {} {}s, the baseline has {}",
                count.units, count.unit, before.units
            ));
        }
        let percent = percent(before.instructions, count.instructions);
        let limit = limits.percent(name);
        (percent > limit).then(|| format!("{name}: {percent:+.2}% instructions, the limit is {limit}%"))
    };
    let broken: Vec<String> = new.benchmarks.iter().filter_map(broken).collect();
    if broken.is_empty() { Verdict::Pass } else { Verdict::Broken(broken) }
}

fn percent(old: u64, new: u64) -> f64 {
    (new as f64 / old as f64 - 1.0) * 100.0
}

/// Every benchmark with its count for each unit, beside the baseline's where there is one.
pub fn table(old: Option<&Counts>, new: &Counts) -> String {
    let mut rows = vec![["", "instructions", "per unit", "unit", "baseline", "change"].map(String::from)];
    rows.extend(new.benchmarks.iter().map(|(name, count)| {
        let before = old.and_then(|old| old.benchmarks.get(name));
        [
            name.clone(),
            count.instructions.to_string(),
            format!("{:.1}", count.per_unit()),
            count.unit.clone(),
            before.map_or_else(String::new, |before| format!("{:.1}", before.per_unit())),
            before.map_or_else(String::new, |before| {
                format!("{:+.2}%", percent(before.instructions, count.instructions))
            }),
        ]
    }));
    aligned(&rows)
}

/// The functions of one benchmark whose own count changed most, the largest growth first.
pub fn functions_table(old: &Count, new: &Count, at_most: usize) -> String {
    let names = old.functions.keys().chain(new.functions.keys());
    let mut changes: Vec<(i64, &String)> = names
        .map(|name| {
            let of = |count: &Count| count.functions.get(name).copied().unwrap_or(0) as i64;
            (of(new) - of(old), name)
        })
        .filter(|(change, _)| *change != 0)
        .collect();
    changes.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    changes.dedup();
    let row = |(change, name): &(i64, &String)| {
        [
            format!("  {change:+}"),
            format!("{:+.1}/{}", *change as f64 / new.units as f64, new.unit),
            name.to_string(),
        ]
    };
    let rows: Vec<[String; 3]> = changes.iter().take(at_most).map(row).collect();
    aligned(&rows)
}

#[cfg(test)]
mod tests {
    use super::super::baseline::Toolchain;
    use super::*;

    fn counts(instructions: u64, functions: &[(&str, u64)]) -> Counts {
        let toolchain = Toolchain { compiler: "c".into(), libc: "l".into(), valgrind: "v".into() };
        let functions = functions.iter().map(|(name, cost)| (name.to_string(), *cost)).collect();
        let count = Count { instructions, unit: "chunk".into(), units: 10, functions };
        Counts { toolchain, benchmarks: [("write".to_owned(), count)].into() }
    }

    fn limits() -> Limits {
        let scaling = crate::scaling::Limit {
            of_memcpy_min: 0.95,
            memcpy_min: 1.8,
            of_apart_min: 0.95,
            apart_min: 1.4,
            noise_max: 0.02,
        };
        Limits { default_percent: 0.5, benchmarks: [].into(), scaling }
    }

    #[test]
    fn growth_above_the_limit_is_named() {
        assert_eq!(judge(&counts(1000, &[]), &counts(1005, &[]), &limits(), Missing::Refuse), Verdict::Pass);
        assert_eq!(
            judge(&counts(1000, &[]), &counts(900, &[]), &limits(), Missing::Refuse),
            Verdict::Pass,
            "fewer are welcome"
        );
        let verdict = judge(&counts(1000, &[]), &counts(1006, &[]), &limits(), Missing::Refuse);
        assert_eq!(verdict, Verdict::Broken(vec!["write: +0.60% instructions, the limit is 0.5%".into()]));
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let mut other = counts(1000, &[]);
        other.toolchain.libc = "another".into();
        assert!(matches!(judge(&counts(1000, &[]), &other, &limits(), Missing::Refuse), Verdict::Refused(_)));
        let mut fewer = counts(1000, &[]);
        fewer.benchmarks.clear();
        assert!(matches!(judge(&counts(1000, &[]), &fewer, &limits(), Missing::Refuse), Verdict::Refused(_)));
        assert_eq!(judge(&counts(1000, &[]), &fewer, &limits(), Missing::Ignore), Verdict::Pass);
        let mut longer = counts(1000, &[]);
        longer.benchmarks.get_mut("write").unwrap().units = 20;
        assert!(
            matches!(judge(&counts(1000, &[]), &longer, &limits(), Missing::Refuse), Verdict::Broken(_)),
            "another workload"
        );
    }

    #[test]
    fn the_function_that_grew_comes_first() {
        let old = counts(100, &[("a", 50), ("b", 50)]);
        let new = counts(130, &[("a", 45), ("b", 70), ("c", 15)]);
        let table = functions_table(&old.benchmarks["write"], &new.benchmarks["write"], 10);
        let names: Vec<&str> = table.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(names, ["b", "c", "a"]);
        assert!(table.contains("+20") && table.contains("+2.0/chunk"), "{table}");
    }
}
