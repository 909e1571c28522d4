//! `watershed trigger`: what has happened, for sessions that wait for it.

use std::time::Duration;

use watershed_client::triggers::{self, TriggerError};
use watershed_shell::address::{self, Address};

use crate::exit::{Exit, Failure};

/// How long the service may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Arguments of `watershed trigger`.
#[derive(Debug, clap::Args)]
#[command(after_help = "A session has triggers by its config's trigger_config. `watershed daemon` says \
whether a session takes a trigger: exit code 1 if none does. Perfetto's traced takes all of them.")]
pub(crate) struct Args {
    /// Names of triggers, as configs have them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,

    /// Where the service listens for producers: a path, or @NAME for an abstract socket [default:
    /// $PERFETTO_PRODUCER_SOCK_NAME, or the place where Perfetto's programs look]
    #[arg(long, value_name = "P", value_parser = Address::parse)]
    socket: Option<Address>,
}

impl Args {
    /// For the service that runs.
    pub(crate) fn of(names: Vec<String>) -> Args {
        Args { names, socket: None }
    }
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let sockets = match &args.socket {
        Some(socket) => vec![socket.clone()],
        None => address::producer_sockets().map_err(Failure::usage)?,
    };
    let taken = triggers::activate(&sockets, "watershed.trigger", &args.names, TIMEOUT);
    let taken = taken.map_err(|error| match error {
        TriggerError::NotRunning(_) => {
            Failure::failed(format_args!("{error}\n`watershed daemon` starts a tracing service."))
        }
        error => Failure::failed(error),
    })?;
    let left = args.names.iter().zip(taken).filter(|(_, taken)| !taken);
    let left: Vec<String> = left.map(|(name, _)| format!("\"{name}\"")).collect();
    match left.is_empty() {
        true => Ok(Exit::Done),
        false => Err(Failure::failed(format_args!("no session takes the trigger {}", left.join(", ")))),
    }
}
