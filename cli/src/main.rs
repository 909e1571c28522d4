//! The watershed program: parse the arguments, run one command, turn its result into an exit code.
#![forbid(unsafe_code)]

mod args;
mod command_slice;
mod config;
mod connect;
mod daemon;
mod exit;
mod inspect;
mod machine;
#[cfg(feature = "manuals")]
mod manuals;
mod probes;
mod query;
mod record;
mod sessions;
mod signals;
mod sources;
mod text;
mod units;
mod version;

use std::process::ExitCode;

use clap::CommandFactory as _;

use crate::args::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::sessions::{clone, detached, flight, trigger};

fn main() -> ExitCode {
    match args::parse().and_then(|cli| run(&cli)) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}

fn run(cli: &Cli) -> Result<Exit, Failure> {
    if cli.version {
        return version::print(cli.verbose);
    }
    match &cli.command {
        Some(Command::Record(args)) => record::run(args, cli.verbose),
        Some(Command::Inspect(args)) => inspect::run(args, cli.verbose),
        Some(Command::Daemon(args)) => daemon::run(args, cli.verbose),
        Some(Command::Probes(args)) => probes::run(args),
        Some(Command::Query(args)) => query::run(args),
        Some(Command::Clone(args)) => clone::run(args),
        Some(Command::Trigger(args)) => trigger::run(args),
        Some(Command::Detach(args)) => detached::detach(args),
        Some(Command::Attach(args)) => detached::attach(args),
        Some(Command::Flightrecorder(args)) => flight::run(args),
        Some(Command::Stop(args)) => detached::stop(args),
        #[cfg(feature = "manuals")]
        Some(Command::Manuals(args)) => manuals::run(args, Cli::command()),
        None => {
            // Asked for nothing: the same answer as to an unknown option, so that scripts notice.
            let help = Cli::command().render_help();
            Err(Failure::usage(format!("no command given\n\n{help}")))
        }
    }
}
