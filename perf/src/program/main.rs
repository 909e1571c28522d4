//! `watershed-perf`: measures, and compares what was measured.
#![forbid(unsafe_code)]

mod instructions;
mod scaling;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use watershed_perf::machine::Machine;
use watershed_perf::measure::Options;
use watershed_perf::report::Report;
use watershed_perf::suites::Suite;
use watershed_perf::{compare, record, spread, suites};

/// Measures Watershed, and compares what was measured.
#[derive(Parser)]
#[command(name = "watershed-perf")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a suite, or all of them, interleaved with rivals, and print a table. Exit code 4: a
    /// suite that is named cannot be measured on this machine.
    Run {
        /// The suite; all of them when none is named. `list` names them.
        suite: Option<String>,
        /// Only results whose names contain this text.
        #[arg(long, default_value = "")]
        filter: String,
        /// Write the results here too, as JSON: one object for a suite, an array of them for all
        /// suites.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Keep the results in perf/record/MACHINE/SUITE.json, in place of the older ones.
        #[arg(long)]
        record: bool,
        /// Timed rounds for each result.
        #[arg(long, value_name = "N", default_value_t = Options::full().rounds, value_parser = parse_rounds)]
        rounds: usize,
        /// The kind of cores that this run was confined to, such as "little": kept with the
        /// results.
        #[arg(long, value_name = "NAME", default_value = "")]
        cluster: String,
        /// Check the answers on small sizes; the times mean nothing.
        #[arg(long)]
        quick: bool,
    },
    /// Print the differences between two JSON files that exceed the noise that they measured.
    Compare {
        /// The results from before.
        old: PathBuf,
        /// The results from after.
        new: PathBuf,
    },
    /// Print the results of JSON files as Markdown tables, for a document.
    Show {
        /// JSON files of any suites.
        #[arg(required = true)]
        runs: Vec<PathBuf>,
    },
    /// Print how widely the laps of each result spread, for several runs of a suite side by side,
    /// such as those on the kinds of cores of one device.
    Spread {
        /// JSON files of the same suites.
        #[arg(required = true)]
        runs: Vec<PathBuf>,
    },
    /// Print the instruction counts of a finished run of the benchmark `instructions`, and judge
    /// them. Exit code 3: a limit is broken; 4: the two cannot be compared. `ci/gate` does all of
    /// it.
    Instructions(instructions::Arguments),
    /// Measure how two committing threads scale, and judge it. Exit code 3: less than the limit; 4:
    /// not measurable on this machine.
    Scaling(scaling::Arguments),
    /// Print the suites and the names of their results.
    List,
    /// Play a part in a measurement whose suite starts this.
    #[cfg(feature = "session")]
    #[command(hide = true)]
    Peer {
        /// The part, as JSON.
        role: String,
    },
}

fn parse_rounds(text: &str) -> Result<usize, String> {
    let rounds = text.parse::<usize>().map_err(|error| error.to_string())?;
    if (1..=10_000).contains(&rounds) { Ok(rounds) } else { Err("between 1 and 10000 rounds".into()) }
}

/// What went wrong, and the exit code: 1 a measurement failed, 2 the call was wrong, 3 a limit is
/// broken, 4 it cannot be measured or judged here.
struct Failure(u8, String);

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run { suite, filter, json, record, rounds, cluster, quick } => {
            let options = Options { rounds, ..if quick { Options::check() } else { Options::full() } };
            let keep = Keep { json, record, cluster };
            run(suite.as_deref(), &filter, &keep, &options)
        }
        Command::Compare { old, new } => compare_files(&old, &new),
        Command::Show { runs } => show(&runs),
        Command::Spread { runs } => spread_of(&runs),
        Command::Instructions(arguments) => instructions::run(&arguments),
        Command::Scaling(arguments) => scaling::run(&arguments),
        Command::List => {
            list();
            Ok(())
        }
        #[cfg(feature = "session")]
        Command::Peer { role } => suites::processes::Role::play(&role).map_err(|error| Failure(1, error)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(code, text)) => {
            eprintln!("watershed-perf: {text}");
            ExitCode::from(code)
        }
    }
}

/// Where a run's results go, beside the table.
struct Keep {
    json: Option<PathBuf>,
    record: bool,
    cluster: String,
}

fn run(name: Option<&str>, filter: &str, keep: &Keep, options: &Options) -> Result<(), Failure> {
    if cfg!(debug_assertions) && options.full_size {
        eprintln!("watershed-perf: built without optimisation, no figure means anything: use --release");
    }
    let chosen: Vec<_> =
        suites::all().into_iter().filter(|suite| name.is_none_or(|name| suite.name == name)).collect();
    if chosen.is_empty() {
        let known: Vec<_> = suites::all().iter().map(|suite| suite.name).collect();
        return Err(Failure(
            2,
            format!("no suite {:?}; there are: {}", name.unwrap_or(""), known.join(", ")),
        ));
    }
    let refusal = || record::refusal(&Machine::here(), options, filter);
    if let Some(refusal) = keep.record.then(refusal).flatten() {
        return Err(Failure(2, refusal.into()));
    }
    let mut reports = Vec::new();
    for suite in &chosen {
        match (suite.unavailable)() {
            None => {}
            // It was asked for by name.
            Some(reason) if name.is_some() => return Err(Failure(4, not_measured(suite, &reason))),
            Some(reason) => {
                eprintln!("watershed-perf: {}", not_measured(suite, &reason));
                continue;
            }
        }
        let mut report =
            suites::run(suite, filter, options, |workload| eprintln!("{} {workload} ...", suite.name))
                .map_err(|answer| Failure(1, format!("wrong answer: {}: {answer}", suite.name)))?;
        if report.results.is_empty() && name.is_some() {
            return Err(Failure(2, format!("no result of suite {} has {filter:?} in its name", suite.name)));
        }
        report.machine.cluster.clone_from(&keep.cluster);
        println!("{}", report.to_table());
        reports.push(report);
    }
    // One suite was asked for: one object. All of them: an array.
    let text = if name.is_some() { reports[0].to_json() } else { to_json_array(&reports) };
    if let Some(path) = &keep.json {
        write(path, &text)?;
    }
    if keep.record {
        reports.iter().try_for_each(write_record)?;
    }
    Ok(())
}

fn not_measured(suite: &Suite, reason: &str) -> String {
    format!("suite {} is not measured here: {reason}", suite.name)
}

fn to_json_array(reports: &[Report]) -> String {
    let parts: Vec<String> = reports.iter().map(|report| report.to_json().trim_end().to_owned()).collect();
    format!("[{}]\n", parts.join(",\n"))
}

fn write_record(report: &Report) -> Result<(), Failure> {
    let path = record::path(report);
    let folder = path.parent().expect("a file in a folder");
    std::fs::create_dir_all(folder).map_err(|error| Failure(1, format!("{}: {error}", folder.display())))?;
    write(&path, &report.to_json())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure(1, format!("{}: {error}", path.display())))?;
    eprintln!("written: {}", path.display());
    Ok(())
}

fn compare_files(old: &Path, new: &Path) -> Result<(), Failure> {
    let (old, new) = (read(old)?, read(new)?);
    let mut pairs = 0;
    for before in &old {
        if let Some(after) = new.iter().find(|after| after.suite == before.suite) {
            println!("{}", compare::to_table(before, after));
            pairs += 1;
        }
    }
    if pairs == 0 { Err(Failure(2, "the two files have no suite in common".into())) } else { Ok(()) }
}

fn show(runs: &[PathBuf]) -> Result<(), Failure> {
    for path in runs {
        read(path)?.iter().for_each(|report| println!("{}", report.to_markdown()));
    }
    Ok(())
}

fn spread_of(runs: &[PathBuf]) -> Result<(), Failure> {
    let reports: Vec<Report> =
        runs.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let mut done = Vec::new();
    for report in &reports {
        if !done.contains(&&report.suite) {
            let same: Vec<Report> =
                reports.iter().filter(|other| other.suite == report.suite).cloned().collect();
            println!("suite {}\n{}", report.suite, spread::to_table(&same));
            done.push(&report.suite);
        }
    }
    Ok(())
}

/// The reports of a file: one object, or an array of them.
fn read(path: &Path) -> Result<Vec<Report>, Failure> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| Failure(2, format!("{name}: {error}")))?;
    let array = text.trim_start().starts_with('[');
    let reports =
        if array { serde_json::from_str(&text) } else { serde_json::from_str(&text).map(|one| vec![one]) };
    reports.map_err(|error| Failure(2, format!("{name}: {error}")))
}

fn list() {
    for suite in suites::all() {
        println!("{}: {}", suite.name, suite.about);
        for workload in (suite.workloads)() {
            println!("  {}", workload.name);
        }
    }
}
