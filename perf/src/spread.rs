//! One suite on several kinds of cores: how widely the laps of each spread.
//!
//! Where cores cannot be chosen, as on macOS, a run may have been moved between kinds; then its
//! slowest lap is near the other kind's.

use crate::report::{Report, aligned, short};

/// Each result of the first report, beside the same result of the others: median, fastest and
/// slowest lap, and the distance of those two in percent of the median.
pub fn to_table(reports: &[Report]) -> String {
    let mut rows = vec![["", "cores", "median", "unit", "min", "max", "apart"].map(String::from)];
    let names = reports.first().into_iter().flat_map(|report| &report.results).map(|result| &result.name);
    for name in names {
        let mut shown = name.clone();
        for report in reports {
            let Some(result) = report.results.iter().find(|result| result.name == *name) else { continue };
            let apart = (result.max - result.min) / result.value.abs() * 100.0;
            rows.push([
                std::mem::take(&mut shown),
                kind(report).to_owned(),
                short(result.value),
                result.unit.clone(),
                short(result.min),
                short(result.max),
                format!("{apart:.0}%"),
            ]);
        }
    }
    aligned(&rows)
}

/// The kind of cores that the caller named, or else their numbers.
fn kind(report: &Report) -> &str {
    if report.machine.cluster.is_empty() { &report.machine.cpus } else { &report.machine.cluster }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::measure::Series;
    use crate::report::Measurement;

    #[test]
    fn both_kinds_stand_below_each_other() {
        let report = |cluster: &str, laps: [f64; 3]| Report {
            suite: "engine".into(),
            date: String::new(),
            machine: Machine { cluster: cluster.into(), ..Machine::here() },
            results: vec![Measurement::ns_per("chunk", "write", &Series::new(laps.to_vec()))],
        };
        let table = to_table(&[
            report("foreground", [100.0, 110.0, 105.0]),
            report("background", [300.0, 200.0, 250.0]),
        ]);
        let lines: Vec<Vec<&str>> =
            table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["write", "foreground", "105", "ns/chunk", "100", "110", "10%"]);
        assert_eq!(lines[1], ["background", "250", "ns/chunk", "200", "300", "40%"]);
    }
}
