//! `watershed daemon`: the tracing service of this machine.

use std::io::{self, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use listenfd::ListenFd;
use sd_notify::NotifyState;
use watershed_daemon::{Daemon, DaemonOptions, FilePermissions, SocketPermissions};
use watershed_service::{HugePages, MAX_SHARDS, Shards};
use watershed_shell::address::{self, Address};
use watershed_shell::machine::{default_shards, service_version};

use crate::exit::{Exit, Failure};
use crate::{machine, signals, units};

/// Arguments of `watershed daemon`.
#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Args {
    /// Where producers connect: a path, or @NAME for an abstract socket; may be given several times
    /// [default: $PERFETTO_PRODUCER_SOCK_NAME, or the place where Perfetto's programs look]
    #[arg(long = "producer-socket", value_name = "P", value_parser = Address::parse)]
    producer_sockets: Vec<Address>,

    /// Where consumers connect [default: $PERFETTO_CONSUMER_SOCK_NAME, or likewise]
    #[arg(long, value_name = "C", value_parser = Address::parse)]
    consumer_socket: Option<Address>,

    /// Groups and modes of the socket files: PROD_GROUP:PROD_MODE:CONS_GROUP:CONS_MODE, for example
    /// traced-producer:0666:tracing:0660; an empty group is left alone [default: :0666::0660]
    #[arg(long, value_name = "PERMISSIONS", value_parser = parse_permissions)]
    set_socket_permissions: Option<SocketPermissions>,

    /// Allow configs with output_path to make files below this folder; else they are refused
    #[arg(long, value_name = "DIR")]
    allow_output_path: Option<PathBuf>,

    /// Over how many shards each buffer is spread, from 1 to 1024, if it is large enough [default:
    /// one for each CPU that this process may use, and at most one for each 4 MB]
    #[arg(long, value_name = "N", value_parser = units::parse_shards, allow_hyphen_values = true)]
    shards: Option<usize>,

    /// Make buffers of the system's pool of huge pages (vm.nr_hugepages) if that has enough, else
    /// of ordinary ones
    #[arg(long)]
    huge_pages: bool,

    /// How many threads copy chunks out of shared memory at one time, 0 for none beside the one
    /// that serves connections [default: one for each CPU that this process may use but one, at
    /// least one; none on a single CPU]
    #[arg(long, value_name = "N", value_parser = parse_workers, allow_hyphen_values = true)]
    workers: Option<usize>,

    /// Let so many of the threads run on one CPU each
    #[arg(long, overrides_with = "no_pin_workers")]
    pin_workers: bool,

    /// Let the system choose their CPUs; this is the default
    #[arg(long)]
    no_pin_workers: bool,
}

const MORE: &str = "Runs until SIGINT or SIGTERM: then traces that are written into files are completed, \
and the sockets removed. SIGUSR1 asks for one line about how it goes.

Perfetto's programs find the service by themselves at the default sockets: in /run/perfetto where that \
folder exists, else in /tmp. Who may read a trace sees what the whole machine does: only the owner \
and the group of the consumers' socket may connect to it.

Under a service manager: sockets that LISTEN_FDS passes are used as they are, if they listen where the \
daemon would; NOTIFY_SOCKET is told when connections are served, and when the daemon stops.";

pub(crate) fn run(args: &Args, verbose: bool) -> Result<Exit, Failure> {
    let producer_sockets = match &args.producer_sockets[..] {
        [] => address::producer_sockets().map_err(Failure::usage)?,
        given => given.to_vec(),
    };
    let consumer_socket = match &args.consumer_socket {
        Some(given) => given.clone(),
        None => address::consumer_socket().map_err(Failure::usage)?,
    };
    let output_folder = args.allow_output_path.as_deref().map(|folder| {
        folder.canonicalize().map_err(|error| {
            Failure::usage(format_args!("--allow-output-path {}: {error}", folder.display()))
        })
    });
    let producers = producer_sockets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let listening = format!("listening for producers on {producers}, for consumers on {consumer_socket}");
    let options = DaemonOptions {
        producer_sockets,
        consumer_socket,
        permissions: args.set_socket_permissions.clone(),
        version: service_version(),
        system: machine::system_info(),
        shards: args.shards.map_or_else(default_shards, Shards::Wanted),
        huge_pages: if args.huge_pages { HugePages::Explicit } else { HugePages::Advise },
        num_workers: args.workers.unwrap_or_else(default_workers),
        pin_workers: args.pin_workers,
        output_folder: output_folder.transpose()?,
    };
    let daemon = Daemon::with_sockets(options, passed_sockets()?, say).map_err(Failure::failed)?;
    let (stopper, asker) = (daemon.stopper(), daemon.stopper());
    signals::watch_status(move || asker.ask_status())
        .map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;
    signals::watch(move |signal| {
        if verbose {
            say(&format!("signal {}: completing traces", signal.number));
        }
        tell_manager(&[NotifyState::Stopping]);
        stopper.stop();
    })
    .map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;
    say(&listening);
    tell_manager(&[NotifyState::Ready, NotifyState::Status(&listening)]);
    daemon.run().map_err(Failure::failed)?;
    Ok(Exit::Done)
}

/// The sockets that a service manager passed (`LISTEN_FDS`).
fn passed_sockets() -> Result<Vec<UnixListener>, Failure> {
    let mut passed = ListenFd::from_env();
    let sockets =
        (0..passed.len()).map(|index| passed.take_unix_listener(index)).collect::<Result<Vec<_>, _>>();
    let sockets = sockets.map_err(|error| {
        Failure::usage(format_args!("what LISTEN_FDS passes is no listening Unix socket: {error}"))
    })?;
    Ok(sockets.into_iter().flatten().collect())
}

/// Tells a service manager that waits to hear it (`NOTIFY_SOCKET`).
fn tell_manager(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        say(&format!("cannot tell the service manager: {error}"));
    }
}

fn default_workers() -> usize {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => 0,
        num_cpus => num_cpus - 1,
    }
}

fn parse_workers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= MAX_SHARDS);
    number.ok_or_else(|| format!("the number of workers must be from 0 to {MAX_SHARDS}"))
}

/// A line for the operator.
fn say(line: &str) {
    // When standard error is gone the service goes on.
    let _ = writeln!(io::stderr(), "watershed: {line}");
}

fn parse_permissions(text: &str) -> Result<SocketPermissions, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [producer_group, producer_mode, consumer_group, consumer_mode] = parts[..] else {
        return Err("it takes four parts: PROD_GROUP:PROD_MODE:CONS_GROUP:CONS_MODE".to_owned());
    };
    Ok(SocketPermissions {
        producer: parse_file_permissions(producer_group, producer_mode)?,
        consumer: parse_file_permissions(consumer_group, consumer_mode)?,
    })
}

fn parse_file_permissions(group: &str, mode: &str) -> Result<FilePermissions, String> {
    let gid = match group {
        "" => None,
        name => Some(gid_of(name)?),
    };
    let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777);
    let mode = mode.ok_or_else(|| "a mode is an octal number, at most 0777".to_owned())?;
    Ok(FilePermissions { gid, mode })
}

fn gid_of(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match nix::unistd::Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("there is no group {name:?}")),
        Err(error) => Err(format!("cannot look for the group {name:?}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_read_as_traced_reads_them() {
        let producer = FilePermissions { gid: Some(0), mode: 0o666 };
        let consumer = FilePermissions { gid: None, mode: 0o660 };
        assert_eq!(parse_permissions("root:0666::0660"), Ok(SocketPermissions { producer, consumer }));
        for wrong in ["", "root:0666", "root:0666::", "root:9::0660", "::::", "no-such-group:0666::0660"] {
            assert!(parse_permissions(wrong).is_err(), "{wrong}");
        }
        assert!(parse_permissions(":1777::0660").unwrap_err().contains("octal"));
    }
}
