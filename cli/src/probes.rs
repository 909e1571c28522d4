//! `watershed probes`: this machine's data sources, for a tracing service in another process.

use std::io::{self, Write as _};
use std::sync::mpsc::{self, Sender};

use watershed_client::producer::ProducerEvent;
use watershed_client::remote::{Reconnect, RemoteEvent, RemoteOptions, RemoteProducer};
use watershed_probes::{Notices, ScanRequest};
use watershed_shell::address::Address;

use crate::exit::{Exit, Failure};
use crate::{signals, sources};

/// Arguments of `watershed probes`.
#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Args {
    /// Where the service listens for producers: a path, or @NAME for an abstract socket [default:
    /// $PERFETTO_PRODUCER_SOCK_NAME, or the place where Perfetto's programs look]
    #[arg(long, value_name = "P", value_parser = Address::parse)]
    socket: Option<Address>,

    /// End with an error when there is no service, or when it ends, instead of trying again
    #[arg(long)]
    no_reconnect: bool,
}

const MORE: &str = "Data sources: linux.ftrace, linux.sys_stats, linux.process_stats, linux.system_info. \
                    Runs until SIGINT or SIGTERM. \
While there is no service it tries again after 1 s, 2 s and so on, up to 30 s.";

/// What ends the command.
enum End {
    Signal,
    NoService(String),
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut options = match &args.socket {
        Some(socket) => RemoteOptions::for_sockets(vec![socket.clone()]),
        None => RemoteOptions::from_environment().map_err(Failure::usage)?,
    };
    options.producer_name = "watershed.probes".to_owned();
    if args.no_reconnect {
        options.reconnect = Reconnect::Never;
    }
    let (ends, end) = mpsc::channel();
    let on_signal = ends.clone();
    signals::watch(move |_| drop(on_signal.send(End::Signal)))
        .map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;
    let producer = RemoteProducer::connect(options, move |event| tell(&event, &ends))
        .map_err(|error| Failure::failed(format_args!("cannot start a producer: {error}")))?;
    for factory in sources::all(&Notices::new(), &ScanRequest::new()) {
        producer.register(factory);
    }
    match end.recv() {
        Ok(End::NoService(reason)) => {
            Err(Failure::failed(format_args!("{reason}\n`watershed daemon` starts a tracing service.")))
        }
        Ok(End::Signal) | Err(_) => Ok(Exit::Done),
    }
}

/// One line for each thing that a person should know.
fn tell(event: &RemoteEvent, ends: &Sender<End>) {
    match event {
        RemoteEvent::Connected { address } => say(format_args!("connected to {address}")),
        RemoteEvent::NotConnected { reason, retry_after: None }
        | RemoteEvent::Disconnected { reason, retry_after: None } => {
            // Nobody waits any more if a signal has come.
            let _ = ends.send(End::NoService(reason.clone()));
        }
        RemoteEvent::NotConnected { reason, retry_after: Some(after) }
        | RemoteEvent::Disconnected { reason, retry_after: Some(after) } => {
            say(format_args!("{reason}; next attempt in {after:?}"));
        }
        RemoteEvent::Producer(ProducerEvent::SetupFailed { name, reason }) => {
            say(format_args!("data source {name} is not recorded: {reason}"));
        }
        _ => {}
    }
}

fn say(line: std::fmt::Arguments<'_>) {
    // When standard error is gone the data sources go on.
    let _ = writeln!(io::stderr(), "watershed: {line}");
}
