//! What users of the `perfetto` command type: options of `record` that are commands here.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::{Args, config};
use crate::exit::{Exit, Failure};
use crate::query;
use crate::sessions::Service;
use crate::sessions::clone;
use crate::sessions::detached::{self, StopArgs};

/// Options that the `perfetto` command has.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "As the perfetto command has them")]
pub(super) struct PerfettoArgs {
    /// The config is text; said or not, both formats are recognised
    #[arg(long)]
    txt: bool,

    /// Record in a process of its own, whose number is printed
    #[arg(short = 'd', long, conflicts_with_all = ["command", "detach", "attach", "json"])]
    background: bool,

    /// Leave the session behind under this key, as `watershed detach`
    #[arg(long, value_name = "KEY", conflicts_with_all = ["command", "no_daemon", "attach", "json"])]
    detach: Option<String>,

    /// Take up the session that was left behind under this key, as `watershed attach`
    #[arg(long, value_name = "KEY", conflicts_with_all = ["command", "no_daemon", "config", "json"])]
    attach: Option<String>,

    /// End the session that --attach names, as `watershed stop`
    #[arg(long, requires = "attach")]
    stop: bool,

    /// Exit code 0 if a session was left behind under this key, else 2
    #[arg(long, value_name = "KEY", alias = "is-detached")]
    #[arg(long = "is_detached", conflicts_with_all = ["command", "no_daemon", "config", "out", "json"])]
    is_detached: Option<String>,

    /// Say what the service knows, as `watershed query`; with --json as JSON
    #[arg(long, conflicts_with_all = ["command", "no_daemon", "config", "out"])]
    query: bool,

    /// Write what the session with this unique_session_name has recorded so far, as
    /// `watershed clone`
    #[arg(long, value_name = "NAME", requires = "out")]
    #[arg(conflicts_with_all = ["command", "no_daemon", "config", "json"])]
    clone_by_name: Option<String>,

    /// Likewise of the session with the highest bugreport_score
    #[arg(long, requires = "out", conflicts_with_all = ["command", "no_daemon", "config", "json"])]
    save_for_bugreport: bool,
}

/// Does what one of these options says; `None` if there is none.
pub(super) fn run(args: &Args) -> Option<Result<Exit, Failure>> {
    let options = &args.perfetto;
    let service = || Service { socket: args.socket.clone() };
    let session = |key: &String| StopArgs { key: key.clone(), out: args.out.clone(), service: service() };
    if options.background {
        return Some(in_background());
    }
    if let Some(key) = &options.detach {
        return Some(detach(args, key, &service()));
    }
    if let Some(key) = &options.attach {
        let session = session(key);
        return Some(if options.stop { detached::stop(&session) } else { detached::attach_to(&session) });
    }
    if let Some(key) = &options.is_detached {
        return Some(is_detached(&session(key)));
    }
    if options.query {
        return Some(query::run(&query::Args::of(args.socket.clone(), args.json)));
    }
    let of = clone::Of {
        name: options.clone_by_name.clone(),
        id: None,
        for_bugreport: options.save_for_bugreport,
    };
    let out = args.out.clone()?;
    let is_clone = of.name.is_some() || of.for_bugreport;
    is_clone.then(|| clone::run(&clone::Args { of, out, service: service() }))
}

fn detach(args: &Args, key: &str, service: &Service) -> Result<Exit, Failure> {
    let config = config::load(args)?;
    detached::detach_session(&mut service.connect()?, key, config, args.out.as_deref())
}

/// The code of the perfetto command for no.
fn is_detached(session: &StopArgs) -> Result<Exit, Failure> {
    match detached::is_detached(session)? {
        true => Ok(Exit::Done),
        false => Ok(Exit::Command(2)),
    }
}

/// The same command without --background, which no terminal ends.
fn in_background() -> Result<Exit, Failure> {
    let is_own = |arg: &OsString| arg == "--background" || arg == "-d";
    let cannot =
        |error: std::io::Error| Failure::failed(format_args!("cannot record in background: {error}"));
    let mut command = Command::new(env::current_exe().map_err(cannot)?);
    command.args(env::args_os().skip(1).filter(|arg| !is_own(arg)));
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    println!("{}", command.spawn().map_err(cannot)?.id());
    Ok(Exit::Done)
}
