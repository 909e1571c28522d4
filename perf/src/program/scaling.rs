//! `watershed-perf scaling`: the scaling gate.

use crate::Failure;
use std::path::PathBuf;
use std::time::Duration;
use watershed_perf::instructions::baseline::{self, Limits};
use watershed_perf::measure::Options;
use watershed_perf::scaling::{self, Verdict};
use watershed_perf::suites;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The file of limits.
    #[arg(long, value_name = "FILE", default_value = "perf/baseline/limits.json")]
    limits: PathBuf,
    /// A third of the timed rounds, of which there are as many as 40 seconds allow.
    #[arg(long, value_name = "N", default_value_t = 101, value_parser = crate::parse_rounds)]
    rounds: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let limits: Limits = baseline::read(&arguments.limits).map_err(|why| Failure(4, why))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        return Err(Failure(4, format!("{cores} core: two threads need two")));
    }
    let options =
        Options { rounds: arguments.rounds, time_limit: Duration::from_secs(40), ..Options::full() };
    let mut suite = suites::shards::suite();
    suite.workloads = || {
        let mut workloads = (suites::shards::suite().workloads)();
        workloads.retain(|workload| workload.name == scaling::RESULT);
        workloads
    };
    let report = suites::run(&suite, "", &options, |_| ())
        .map_err(|answer| Failure(1, format!("wrong answer: {answer}")))?;
    print!("{}", report.to_table());
    let result = report
        .results
        .first()
        .ok_or_else(|| Failure(4, format!("there is no result {}", scaling::RESULT)))?;
    if report.machine.emulated {
        return Err(Failure(4, "an emulator shows no contention".into()));
    }
    match scaling::judge(result, &limits.scaling) {
        Verdict::Pass(how) => {
            println!("{how}");
            Ok(())
        }
        Verdict::Broken(why) => Err(Failure(3, why)),
        Verdict::Refused(why) => Err(Failure(4, why)),
    }
}
