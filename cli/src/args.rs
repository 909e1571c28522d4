//! The command line, defined once: parser, help and exit code 2 for misuse come from here.

use clap::{Parser, Subcommand};

use crate::{inspect, record};

/// Record what this machine does into a trace, and look into traces.
#[derive(Debug, Parser)]
#[command(name = "watershed", disable_version_flag = true)]
#[command(after_help = crate::exit::HELP)]
pub(crate) struct Cli {
    /// Print the version; with --verbose also what this build chose for this processor
    #[arg(short = 'V', long)]
    pub(crate) version: bool,

    /// Say more about what is done, on standard error
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record a trace of this machine, for a time or while a command runs
    Record(record::Args),
    /// Say what is in a trace file and whether it is complete
    Inspect(inspect::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn definition_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
