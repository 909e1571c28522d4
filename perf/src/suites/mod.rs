//! The suites: what is measured, by part of the project.
//!
//! A new suite is one file here, with a function that lists its workloads, and one line in [`all`].

#[cfg(feature = "session")]
pub mod client;
pub mod engine;
#[cfg(feature = "session")]
pub mod probes;
#[cfg(feature = "session")]
pub mod processes;
#[cfg(feature = "session")]
mod rival;
#[cfg(feature = "session")]
pub mod service;
#[cfg(feature = "session")]
pub mod session;
pub mod shards;
pub mod simd;

use crate::machine::Machine;
use crate::measure::{Options, WrongAnswer};
use crate::report::{Measurement, Report};

/// A part of the project and its workloads.
pub struct Suite {
    /// What `run` is given.
    pub name: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Whether the whole suite stays on one processor. Suites that measure threads pin their own.
    pub pinned: bool,
    /// Why this machine cannot run it, if so.
    pub unavailable: fn() -> Option<String>,
    /// In the order in which they are run and printed; names are unique in the suite.
    pub workloads: fn() -> Vec<Workload>,
}

/// How a workload is run: measures, and checks the answer of each lap outside the timed part.
pub type Run = dyn Fn(&Options) -> Result<Measurement, WrongAnswer>;

/// One measurement, with its right answer inside.
pub struct Workload {
    /// The name of its result.
    pub name: String,
    /// What measures it.
    pub run: Box<Run>,
}

impl Workload {
    /// A workload whose result has the given name.
    pub fn new(
        name: impl Into<String>,
        run: impl Fn(&Options) -> Result<Measurement, WrongAnswer> + 'static,
    ) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Every suite there is.
pub fn all() -> Vec<Suite> {
    vec![
        engine::suite(),
        simd::suite(),
        shards::suite(),
        #[cfg(feature = "session")]
        session::suite(),
        #[cfg(feature = "session")]
        client::suite(),
        #[cfg(feature = "session")]
        service::suite(),
        #[cfg(feature = "session")]
        probes::suite(),
    ]
}

/// Runs the workloads of `suite` whose names contain `filter`; `progress` is told each name before
/// it starts.
///
/// # Errors
/// The first wrong answer, with the workload's name before it.
pub fn run(
    suite: &Suite,
    filter: &str,
    options: &Options,
    progress: impl FnMut(&str) + Send,
) -> Result<Report, WrongAnswer> {
    // Before pinning, which leaves one core only.
    let machine = Machine::here();
    // Pinning cannot be undone, so each suite has a thread of its own.
    let results = std::thread::scope(|scope| {
        let suite = scope.spawn(|| results(suite, filter, options, progress));
        suite.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let date = jiff::Zoned::now().strftime("%Y-%m-%d").to_string();
    Ok(Report { suite: suite.name.into(), date, machine, results })
}

fn results(
    suite: &Suite,
    filter: &str,
    options: &Options,
    mut progress: impl FnMut(&str),
) -> Result<Vec<Measurement>, WrongAnswer> {
    let mut workloads = (suite.workloads)();
    workloads.retain(|workload| workload.name.contains(filter));
    if suite.pinned {
        pin_to_last_core();
    }
    let mut results = Vec::new();
    for workload in workloads {
        progress(&workload.name);
        results.push((workload.run)(options).map_err(|answer| format!("{}: {answer}", workload.name))?);
    }
    Ok(results)
}

/// Keeps this thread on one processor, the last of those it may use (interrupts prefer the first).
/// Where the system refuses, as on Apple silicon, it runs unpinned.
fn pin_to_last_core() {
    if let Some(core) = core_affinity::get_core_ids().and_then(|cores| cores.last().copied()) {
        core_affinity::set_for_current(core);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Series;

    fn two() -> Vec<Workload> {
        let good = |_: &Options| Ok(Measurement::ns_per("call", "good", &Series::new(vec![1.0])));
        vec![Workload::new("good", good), Workload::new("bad", |_| Err("2 packets for 3".into()))]
    }

    #[test]
    fn a_wrong_answer_is_an_error_with_the_workloads_name() {
        let unavailable = || None;
        let suite = Suite { name: "two", about: "", pinned: false, unavailable, workloads: two };
        assert_eq!(run(&suite, "", &Options::check(), |_| ()).unwrap_err(), "bad: 2 packets for 3");
        assert_eq!(run(&suite, "good", &Options::check(), |_| ()).unwrap().results.len(), 1);
    }
}
