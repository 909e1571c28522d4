//! Results: as JSON that is kept, and as tables.

use crate::machine::Machine;
use crate::measure::Series;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The results of one suite on one machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The suite's name.
    pub suite: String,
    /// The day of the run, such as "2026-11-23". Empty in files from before it was written.
    #[serde(default)]
    pub date: String,
    /// The machine that it ran on.
    pub machine: Machine,
    /// In the order of the suite.
    pub results: Vec<Measurement>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Unique in its suite.
    pub name: String,
    /// The median, in `unit`.
    pub value: f64,
    /// For instance "ns/chunk". Smaller is better, unless the unit is "ratio".
    pub unit: String,
    /// Figures beside the value, under their own names, such as `ratio_to_memcpy` (the time of
    /// memcpy over ours) or `nominal_gib_per_s`. Larger is better, but for times and other costs,
    /// whose names have `ns`, `us`, `percent` or `bytes` in them (and `plain`, a rival's time).
    #[serde(flatten)]
    pub extra: BTreeMap<String, f64>,
    /// Names of figures that would stand beside the value, but for a rival that was not built.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_measured: Vec<String>,
    /// The smallest sample, in `unit`.
    pub min: f64,
    /// The largest sample, in `unit`.
    pub max: f64,
    /// How many samples there were.
    pub samples: usize,
    /// Half the width of the median's confidence interval, relative to the value; differences
    /// within it mean nothing.
    pub noise: f64,
}

impl Measurement {
    /// The figure of a series of laps, in nanoseconds per `what`: the unit is then "ns/what".
    pub fn ns_per(what: &str, name: impl Into<String>, series: &Series) -> Self {
        Self::scaled(name, format!("ns/{what}"), 1.0, series)
    }

    /// The figure of a series whose unit is one call, in microseconds.
    pub fn microseconds(name: impl Into<String>, series: &Series) -> Self {
        Self::scaled(name, "us".into(), 1e-3, series)
    }

    /// The figure of a series of ratios, larger is better.
    pub fn ratio(name: impl Into<String>, series: &Series) -> Self {
        Self::scaled(name, "ratio".into(), 1.0, series)
    }

    /// The figure of a series of percentages, smaller is better. Its noise is absolute, in parts of
    /// 100%, since the value may be near zero.
    pub fn percent(name: impl Into<String>, series: &Series) -> Self {
        let percent = Self::scaled(name, "%".into(), 1.0, series);
        let noise = series.noise() * series.median().abs() / 100.0;
        Self { noise, ..percent }
    }

    fn scaled(name: impl Into<String>, unit: String, factor: f64, series: &Series) -> Self {
        Self {
            name: name.into(),
            value: series.median() * factor,
            unit,
            extra: BTreeMap::new(),
            not_measured: Vec::new(),
            min: series.min() * factor,
            max: series.max() * factor,
            samples: series.values().len(),
            noise: series.noise(),
        }
    }

    /// Adds a figure under a name of its own.
    pub fn with(mut self, name: &str, value: f64) -> Self {
        self.extra.insert(name.into(), value);
        self
    }

    /// Says of a figure that there is none here: no other figure takes its place.
    pub fn without(mut self, name: &str) -> Self {
        self.not_measured.push(name.into());
        self
    }

    /// The figures beside the value of which `is_shown` holds, then those that were not measured.
    fn beside(&self, is_shown: impl Fn(&str) -> bool) -> String {
        let figures = self.extra.iter().map(|(name, value)| (name, short(*value)));
        let none = self.not_measured.iter().map(|name| (name, "not measured".into()));
        let shown = figures.chain(none).filter(|(name, _)| is_shown(name));
        shown.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }
}

impl Report {
    /// JSON: one object, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("maps with text keys and finite numbers");
        text.push('\n');
        text
    }

    /// A table for a document: values, noise and ratios.
    pub fn to_markdown(&self) -> String {
        let is_ratio = |name: &str| {
            (name.starts_with("ratio_to_") || name.starts_with("of_")) && !name.ends_with("_noise")
        };
        let mut text = format!("Suite `{}`, {}: {}\n\n", self.suite, self.date, self.machine);
        text.push_str("| result | median | unit | noise | ratios |\n|---|---|---|---|---|\n");
        for result in &self.results {
            let Measurement { name, value, unit, noise, .. } = result;
            let (value, percent, ratios) = (short(*value), noise * 100.0, result.beside(is_ratio));
            // Writing into a String cannot fail.
            let _ = writeln!(text, "| `{name}` | {value} | {unit} | {percent:.1}% | {ratios} |");
        }
        text
    }

    /// A table for a person.
    pub fn to_table(&self) -> String {
        let mut rows = vec![["", "median", "unit", "min", "max", "noise", "samples", ""].map(String::from)];
        for result in &self.results {
            rows.push([
                result.name.clone(),
                short(result.value),
                result.unit.clone(),
                short(result.min),
                short(result.max),
                format!("{:.1}%", result.noise * 100.0),
                result.samples.to_string(),
                result.beside(|_| true),
            ]);
        }
        let mut text = format!("suite {} on {}\n", self.suite, self.machine);
        text.push_str(&aligned(&rows));
        text
    }
}

/// Three significant digits.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Rows as columns of equal width; the first column and the last are flush left, the others flush
/// right.
pub(crate) fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            // Writing into a String cannot fail.
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                _ if column == N - 1 => write!(line, "  {cell}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_has_the_documented_fields_and_comes_back() {
        let series = Series::new(vec![10.0, 12.0, 11.0]);
        let result = Measurement::ns_per("chunk", "write", &series).with("ratio_to_memcpy", 0.5);
        let report = Report {
            suite: "engine".into(),
            date: String::new(),
            machine: Machine::here(),
            results: vec![result.clone()],
        };
        let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(value["suite"], "engine");
        assert!(value["machine"].is_object());
        let kept = &value["results"][0];
        assert_eq!(kept["name"], "write");
        assert_eq!(kept["value"], 11.0);
        assert_eq!(kept["unit"], "ns/chunk");
        assert_eq!(kept["ratio_to_memcpy"], 0.5);
        assert_eq!((&kept["min"], &kept["max"], &kept["samples"]), (&10.0.into(), &12.0.into(), &3.into()));
        let back: Report = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(back.results, [result]);
    }

    #[test]
    fn a_document_shows_ratios_and_no_other_figures_beside_the_value() {
        let series = Series::new(vec![10.0, 12.0, 11.0]);
        let result = Measurement::ns_per("chunk", "write", &series)
            .with("ratio_to_memcpy", 0.5)
            .with("of_memcpy_noise", 0.1)
            .with("memcpy_ns", 5.5);
        let (suite, date) = ("engine".into(), "2026-11-23".into());
        let text = Report { suite, date, machine: Machine::here(), results: vec![result] }.to_markdown();
        assert!(text.starts_with("Suite `engine`, 2026-11-23: "), "{text}");
        let row = text.lines().last().unwrap();
        assert!(row.starts_with("| `write` | 11.0 | ns/chunk | "), "{row}");
        assert!(row.ends_with("| ratio_to_memcpy 0.50 |"), "{row}");
    }

    #[test]
    fn what_was_not_measured_is_said_and_has_no_figure() {
        let result = Measurement::ns_per("event", "instant", &Series::new(vec![30.0]));
        let (suite, date) = ("client".into(), String::new());
        let report = |result| Report { suite, date, machine: Machine::here(), results: vec![result] };
        let json = report(result.without("ratio_to_perfetto_sdk"));
        let back: Report = serde_json::from_str(&json.to_json()).unwrap();
        assert_eq!((&back.results, back.results[0].extra.len()), (&json.results, 0));
        for text in [json.to_table(), json.to_markdown()] {
            assert!(text.contains("ratio_to_perfetto_sdk not measured"), "{text}");
        }
    }

    #[test]
    fn microseconds_are_a_thousandth() {
        let result = Measurement::microseconds("create", &Series::new(vec![2500.0]));
        assert_eq!((result.value, result.unit.as_str()), (2.5, "us"));
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "1", "x"], ["bbb", "22", "y"]].map(|row| row.map(String::from));
        assert_eq!(aligned(&rows), "a     1  x\nbbb  22  y\n");
    }
}
