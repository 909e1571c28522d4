//! The command line, defined once: parser, help and exit code 2 for misuse come from here.

use std::{env, iter};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use crate::exit::Failure;
use crate::sessions::{clone, detached, flight, trigger};
use crate::{daemon, inspect, probes, query, record};

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
    Record(Box<record::Args>),
    /// Say what is in a trace file and whether it is complete
    Inspect(inspect::Args),
    /// Be the tracing service that programs and consumers of this machine connect to
    Daemon(daemon::Args),
    /// Offer this machine's data sources to a tracing service, ours or Perfetto's
    Probes(probes::Args),
    /// Say which producers, data sources and sessions a tracing service has
    Query(query::Args),
    /// Record into a ring for ever, and write a trace each time that something happens
    Flightrecorder(flight::Args),
    /// Write what a running session has recorded so far into a file, while it goes on
    Clone(clone::Args),
    /// Tell the sessions of a tracing service that something has happened
    Trigger(trigger::Args),
    /// Start a session that goes on in the tracing service when this command has ended
    Detach(detached::DetachArgs),
    /// Wait for the end of a session that was left behind, or end it by Ctrl-C
    Attach(detached::AttachArgs),
    /// End a session that was left behind
    Stop(detached::StopArgs),
    /// Write man pages and shell completions
    #[cfg(feature = "manuals")]
    #[command(hide = true)]
    Manuals(crate::manuals::Args),
}

/// The command line of this process. The parser itself answers a request for help, and ends the
/// process for misuse.
///
/// # Errors
///
/// A command to record without `--` before it: the parser alone would only say what it is not.
pub(crate) fn parse() -> Result<Cli, Failure> {
    Cli::try_parse().map_err(|error| {
        let args: Vec<_> = env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
        match command_without_dashes(&error, &args) {
            Some(command) => Failure::usage(format_args!(
                "`--` is missing before the command to record: watershed record -- {command}"
            )),
            None => error.exit(),
        }
    })
}

/// The command that somebody wants recorded, if that is what the parser did not understand: words
/// are taken for events, so it stumbles over the command's own options.
fn command_without_dashes(error: &clap::Error, args: &[String]) -> Option<String> {
    let is_record = args.iter().find(|arg| !arg.starts_with('-')).is_some_and(|arg| arg == "record");
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    if !is_record || error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    // clap names the option without its value.
    let at = args.iter().position(|arg| arg.starts_with(option.as_str()))?;
    let parsed =
        Cli::try_parse_from(iter::once("watershed").chain(args[..at].iter().map(String::as_str))).ok()?;
    let Some(Command::Record(record)) = parsed.command else { return None };
    let words = record.words();
    (words > 0).then(|| args[at - words..].join(" "))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn definition_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn a_command_without_dashes_is_recognised() {
        for (line, command) in [
            ("-v record -t 1s make -j8", Some("make -j8")),
            ("record ls --color x", Some("ls --color x")),
            ("record -frob", None),
            ("record -t 1s --frob", None),
            ("record --frob sleep", None),
            ("inspect a sleep 1", None),
            ("sleep 1", None),
        ] {
            let args: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let error = super::Cli::try_parse_from([&["watershed".to_owned()], &args[..]].concat());
            let found = super::command_without_dashes(&error.unwrap_err(), &args);
            assert_eq!(found.as_deref(), command, "{line}");
        }
    }
}
