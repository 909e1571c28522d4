//! `watershed-flamegraphs`: draws what a run of the instruction counts left behind.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use watershed_flamegraphs::inlined::Inlined;
use watershed_flamegraphs::picture::{self, Heading};
use watershed_flamegraphs::stacks::{self, Stacks};
use watershed_perf::instructions::{callgrind, collect};

/// Draws where the instructions of the counted workloads go. The folders are those that `ci/gate`
/// and `ci/flamegraphs` count into; a file `program` in them names the program that was counted.
#[derive(Parser)]
#[command(name = "watershed-flamegraphs")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A flame graph of each benchmark.
    Draw {
        /// Where the counts are.
        #[arg(long, value_name = "FOLDER")]
        from: PathBuf,
        /// Where the pictures go: GROUP/BENCHMARK.svg.
        #[arg(long, value_name = "FOLDER")]
        into: PathBuf,
    },
    /// Differential flame graphs: what grew is red, what shrank is blue.
    Compare {
        /// The counts from before.
        #[arg(long, value_name = "FOLDER")]
        old: PathBuf,
        /// The counts from after, whose widths are drawn.
        #[arg(long, value_name = "FOLDER")]
        new: PathBuf,
        /// Where the pictures go: GROUP/BENCHMARK.svg.
        #[arg(long, value_name = "FOLDER")]
        into: PathBuf,
        /// The benchmarks, such as `engine/patch_newest`.
        #[arg(required = true)]
        benchmarks: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Draw { from, into } => draw(&from, &into),
        Command::Compare { old, new, into, benchmarks } => compare(&old, &new, &into, &benchmarks),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("watershed-flamegraphs: {text}");
            ExitCode::FAILURE
        }
    }
}

fn draw(from: &Path, into: &Path) -> Result<(), String> {
    let counts = Counts::of(from)?;
    // The plain loops are there to be compared with: nobody looks for their instructions.
    let is_plain_loop =
        |name: &str| name.strip_suffix("_plain").is_some_and(|kernel| counts.outputs.contains_key(kernel));
    for name in counts.outputs.keys().filter(|name| !is_plain_loop(name)) {
        let stacks = counts.stacks(name)?;
        write(into, name, &picture::draw(&heading(name, &stacks), &stacks)?)?;
    }
    Ok(())
}

fn compare(old: &Path, new: &Path, into: &Path, benchmarks: &[String]) -> Result<(), String> {
    let (old, new) = (Counts::of(old)?, Counts::of(new)?);
    for name in benchmarks {
        let (before, after) = (old.stacks(name)?, new.stacks(name)?);
        write(into, name, &picture::draw_difference(&heading(name, &after), &before, &after)?)?;
    }
    Ok(())
}

/// What a run of the counting programs left.
struct Counts {
    outputs: BTreeMap<String, PathBuf>,
    /// By the folders that have the programs' outputs.
    programs: Vec<(PathBuf, Inlined)>,
}

impl Counts {
    fn of(folder: &Path) -> Result<Self, String> {
        let outputs = collect::outputs(folder)?;
        // Revisions that had one program name it in the folder of all.
        let named = |folder: &&Path| folder.join("program").is_file();
        let named = outputs.values().filter_map(|output| output.ancestors().find(named));
        let program = |folder: &Path| {
            let program = read(&folder.join("program"))?;
            Ok((folder.to_owned(), Inlined::of(Path::new(program.trim()))?))
        };
        let programs =
            named.collect::<BTreeSet<_>>().into_iter().map(program).collect::<Result<_, String>>()?;
        Ok(Self { outputs, programs })
    }

    fn stacks(&self, name: &str) -> Result<Stacks, String> {
        let path = self.outputs.get(name).ok_or_else(|| format!("there are no counts of {name}"))?;
        let functions =
            callgrind::functions(&read(path)?).map_err(|error| format!("{}: {error}", path.display()))?;
        let program = self.programs.iter().rfind(|(folder, _)| path.starts_with(folder));
        let (_, program) = program.ok_or_else(|| format!("{name}: its program is not known"))?;
        stacks::fold(&functions, |object, address| program.at(object, address))
            .map_err(|error| format!("{name}: {error}"))
    }
}

fn heading(name: &str, stacks: &Stacks) -> Heading {
    let total: u64 = stacks.values().sum();
    let subtitle = match collect::units(name) {
        Some((unit, units)) => {
            format!("{:.1} instructions a {unit}, {units} of them", total as f64 / units as f64)
        }
        None => format!("{total} instructions"),
    };
    Heading { title: name.to_owned(), subtitle }
}

fn write(into: &Path, name: &str, svg: &str) -> Result<(), String> {
    let path = into.join(format!("{name}.svg"));
    let folder = path.parent().expect("a file in a folder");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, svg))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
