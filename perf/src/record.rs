//! The results that are kept: `perf/record/MACHINE/SUITE.json`, one file for each machine and
//! suite.
//!
//! A newer run replaces the older file. Date and commit are in the file, and older ones in git.

use crate::machine::Machine;
use crate::measure::Options;
use crate::report::Report;
use std::path::{Path, PathBuf};

/// The file of this report, relative to the repository's root.
pub fn path(report: &Report) -> PathBuf {
    Path::new("perf/record").join(report.machine.folder_name()).join(format!("{}.json", report.suite))
}

/// Why a run may not be kept; `None` if it may. `filter` is the part of the names that was asked
/// for.
pub fn refusal(machine: &Machine, options: &Options, filter: &str) -> Option<&'static str> {
    if machine.emulated || !options.full_size || cfg!(debug_assertions) {
        Some("emulated, small and unoptimised runs are no performance and are not recorded")
    } else if !filter.is_empty() {
        Some("a record replaces the older one of its suite, so a part of a suite is not recorded")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_file_for_each_suite() {
        let machine = Machine { cpu: "AMD EPYC".into(), arch: "x86_64".into(), cores: 2, ..Machine::here() };
        let of = |suite: &str, cluster: &str| {
            let machine = Machine { cluster: cluster.into(), ..machine.clone() };
            path(&Report { suite: suite.into(), date: "2026-11-23".into(), machine, results: Vec::new() })
        };
        assert_eq!(of("engine", ""), Path::new("perf/record/amd-epyc-x86_64-2-cores/engine.json"));
        assert_eq!(of("engine", "big"), Path::new("perf/record/amd-epyc-x86_64-2-cores-big/engine.json"));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let emulated = Machine { emulated: true, ..Machine::here() };
        let said = |machine: &Machine, options: Options, filter| refusal(machine, &options, filter);
        let is_no_performance = |said: Option<&str>| said.is_some_and(|said| said.contains("not recorded"));
        assert!(is_no_performance(said(&emulated, Options::full(), "")));
        assert!(is_no_performance(said(&Machine::here(), Options::check(), "")));
        let here = Machine { emulated: false, ..Machine::here() };
        assert!(is_no_performance(said(&here, Options::full(), "write")));
        assert_eq!(said(&here, Options::full(), "").is_none(), !cfg!(debug_assertions));
    }
}
