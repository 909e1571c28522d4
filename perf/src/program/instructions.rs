//! `watershed-perf instructions`: counts, for a person and for the gate.

use crate::Failure;
use std::path::PathBuf;
use watershed_perf::instructions::baseline::{self, Counts, Limits};
use watershed_perf::instructions::collect;
use watershed_perf::instructions::judge::{self, Missing, Verdict};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where the run left its output.
    #[arg(long, value_name = "FOLDER", default_value = "target/iai")]
    from: PathBuf,
    /// Write the counts here, as JSON.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Compare with these counts.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// How much more is allowed.
    #[arg(long, value_name = "FILE", default_value = "perf/baseline/limits.json")]
    limits: PathBuf,
    /// Write the names of the benchmarks whose limits are broken here, one a line.
    #[arg(long, value_name = "FILE")]
    broken: Option<PathBuf>,
    /// Benchmarks that only one of the two has do not matter.
    #[arg(long)]
    other_revision: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let refused = |text: String| Failure(4, text);
    let new = collect::counts(&arguments.from).map_err(refused)?;
    if let Some(path) = &arguments.write {
        let text = serde_json::to_string_pretty(&new).expect("maps with text keys") + "\n";
        crate::write(path, &text)?;
    }
    let Some(path) = &arguments.against else {
        print!("{}", judge::table(None, &new));
        return Ok(());
    };
    let old: Counts = baseline::read(path).map_err(refused)?;
    let limits: Limits = baseline::read(&arguments.limits).map_err(refused)?;
    limits.check().map_err(refused)?;
    if let Some(name) = limits.benchmarks.keys().find(|name| watershed_counted::units(name).is_none()) {
        return Err(refused(format!("there is a limit for {name}, which is no benchmark")));
    }
    print!("{}", judge::table(Some(&old), &new));
    let missing = if arguments.other_revision { Missing::Ignore } else { Missing::Refuse };
    match judge::judge(&old, &new, &limits, missing) {
        Verdict::Pass => Ok(()),
        Verdict::Refused(why) => Err(refused(why)),
        Verdict::Broken(benchmarks) => {
            let names = || benchmarks.iter().filter_map(|text| text.split(": ").next());
            if let Some(path) = &arguments.broken {
                crate::write(path, &names().map(|name| format!("{name}\n")).collect::<String>())?;
            }
            for name in names() {
                println!("\n{name}, by function, the largest growth first:");
                print!("{}", judge::functions_table(&old.benchmarks[name], &new.benchmarks[name], 15));
            }
            Err(Failure(3, benchmarks.join("\n")))
        }
    }
}
