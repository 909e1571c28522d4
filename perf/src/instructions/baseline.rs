//! Counts as they are kept in `perf/baseline/`, and the limits beside them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The counts of all benchmarks, and the toolchain they were made with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Counts of different toolchains cannot be compared.
    pub toolchain: Toolchain,
    /// By the benchmark's name.
    pub benchmarks: BTreeMap<String, Count>,
}

/// What an instruction count depends on beside our own code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchain {
    /// `rustc --version` of the build.
    pub compiler: String,
    /// The C library, whose copy routines are counted.
    pub libc: String,
    /// `valgrind --version`.
    pub valgrind: String,
}

/// The instructions of one benchmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Their total.
    pub instructions: u64,
    /// What is counted: chunks, packets, calls.
    pub unit: String,
    /// How many of them the benchmark has.
    pub units: u64,
    /// The functions' own instructions, of those with at least a thousandth.
    pub functions: BTreeMap<String, u64>,
}

impl Count {
    /// Instructions for each unit.
    pub fn per_unit(&self) -> f64 {
        self.instructions as f64 / self.units as f64
    }
}

/// How much more than the baseline is allowed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// In percent, for every benchmark that has no limit of its own.
    pub default_percent: f64,
    /// By the benchmark's name.
    pub benchmarks: BTreeMap<String, Limit>,
    /// Of the scaling gate.
    pub scaling: crate::scaling::Limit,
}

/// A benchmark's own limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// In percent above the baseline.
    pub percent: f64,
    /// Why this one needs it.
    pub reason: String,
}

impl Limits {
    /// The limit of a benchmark, in percent.
    pub fn percent(&self, benchmark: &str) -> f64 {
        self.benchmarks.get(benchmark).map_or(self.default_percent, |limit| limit.percent)
    }

    /// Checks that each limit above the default has a reason.
    ///
    /// # Errors
    /// The benchmark that has none.
    pub fn check(&self) -> Result<(), String> {
        let silent = |(_, limit): &(&String, &Limit)| limit.reason.trim().is_empty();
        match self.benchmarks.iter().find(silent) {
            Some((name, _)) => Err(format!("the limit of {name} has no reason")),
            None => Ok(()),
        }
    }
}

impl Toolchain {
    /// The compiler of this build, the C library and valgrind of this machine.
    ///
    /// # Errors
    /// When one of them cannot be asked.
    pub fn here() -> Result<Self, String> {
        let first_line = |program: &str| {
            let output = Command::new(program).arg("--version").output();
            let output = output.map_err(|error| format!("{program}: {error}"))?;
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines()
                .next()
                .map(str::to_owned)
                .ok_or_else(|| format!("{program} --version printed nothing"))
        };
        Ok(Self {
            compiler: env!("WATERSHED_PERF_COMPILER").into(),
            libc: first_line("ldd")?,
            valgrind: first_line("valgrind")?,
        })
    }
}

/// Reads a JSON file.
///
/// # Errors
/// With the path.
pub fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_limit_needs_a_reason() {
        let limits = |reason: &str| -> Limits {
            let text = format!(
                r#"{{"default_percent": 0.5, "benchmarks": {{"a": {{"percent": 2, "reason": "{reason}"}}}},
                "scaling": {{"of_memcpy_min": 0.9, "memcpy_min": 1.8, "of_apart_min": 0.9, "apart_min": 1.4, "noise_max": 0.02}}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!((limits("x").percent("a"), limits("x").percent("b")), (2.0, 0.5));
        assert_eq!(limits("because").check(), Ok(()));
        assert_eq!(limits(" ").check(), Err("the limit of a has no reason".into()));
    }

    #[test]
    fn the_committed_limits_are_valid() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline/limits.json");
        let limits: Limits = read(&path).unwrap();
        assert_eq!(limits.check(), Ok(()));
        assert!(limits.default_percent <= 0.5);
    }
}
