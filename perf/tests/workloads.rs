//! Every workload of every suite, small: its answer is right, and its names are unique.

use std::collections::HashSet;
use watershed_perf::measure::Options;
use watershed_perf::suites;

#[test]
fn every_workload_gives_its_right_answer() {
    for suite in suites::all() {
        if let Some(reason) = (suite.unavailable)() {
            eprintln!("suite {} is not tested here: {reason}", suite.name);
            continue;
        }
        let report =
            suites::run(&suite, "", &Options::check(), |_| ()).unwrap_or_else(|answer| panic!("{answer}"));
        for (workload, result) in (suite.workloads)().iter().zip(&report.results) {
            assert_eq!(workload.name, result.name);
            // No more than that: a difference between two timings may have either sign in laps as
            // short as these.
            assert!(result.value.is_finite(), "{}: {}", result.name, result.value);
        }
    }
}

#[test]
fn names_are_unique() {
    for suite in suites::all() {
        let mut names = HashSet::new();
        for workload in (suite.workloads)() {
            assert!(names.insert(workload.name.clone()), "{} twice in {}", workload.name, suite.name);
        }
    }
}
