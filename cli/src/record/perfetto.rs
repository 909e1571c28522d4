//! What users of the `perfetto` command type: options of `record` that are commands here.

use std::env;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use watershed_wire::raw::Rewrite;

use super::notify::ALL_STARTED;
use super::{Args, config};
use crate::exit::{Exit, Failure};
use crate::sessions::Service;
use crate::sessions::clone;
use crate::sessions::detached::{self, StopArgs};
use crate::{query, units};

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

    /// Likewise, and wait until all data sources have started: exit code 1 if they have not within
    /// 30 s
    #[arg(short = 'D', long, conflicts_with_all = ["command", "detach", "attach", "json", "background"])]
    background_wait: bool,

    /// Write one byte to this descriptor, a pipe, when all data sources have started: 0, or 1 if
    /// they have not within 30 s. It stays open until the recording ends
    #[arg(long, value_name = "FD", conflicts_with_all = ["background", "background_wait", "detach", "attach"])]
    notify_fd: Option<u32>,

    /// Do not replace a file: exit code 1 if it is there
    #[arg(long)]
    pub(super) no_clobber: bool,

    /// Write into the file while recording, and stop when it has this size; not with a config
    #[arg(short = 's', long = "size", value_name = "SIZE", value_parser = units::parse_file_kb)]
    #[arg(conflicts_with = "config", allow_hyphen_values = true)]
    pub(super) file_size_kb: Option<u64>,

    /// A note for the trace, which has it with its config
    #[arg(long = "add-note", value_name = "KEY[=VALUE]", value_parser = parse_note)]
    pub(super) notes: Vec<Note>,

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

    /// With --query: leave nothing out. That is so without it, too
    #[arg(long, requires = "query")]
    long: bool,

    /// Likewise as a TracingServiceState in bytes
    #[arg(long, conflicts_with_all = ["command", "no_daemon", "config", "out", "json", "query"])]
    query_raw: bool,

    /// Write what the session with this number has recorded so far, as `watershed clone`
    #[arg(long, value_name = "ID", requires = "out")]
    #[arg(conflicts_with_all = ["command", "no_daemon", "config", "json", "clone_by_name"])]
    clone: Option<u64>,

    /// Write what the session with this unique_session_name has recorded so far, as
    /// `watershed clone`
    #[arg(long, value_name = "NAME", requires = "out")]
    #[arg(conflicts_with_all = ["command", "no_daemon", "config", "json"])]
    clone_by_name: Option<String>,

    /// With --clone or --clone-by-name: with what the session's trace_filter forbids
    #[arg(long, conflicts_with = "save_for_bugreport")]
    clone_for_bugreport: bool,

    /// Likewise of the session with the highest bugreport_score
    #[arg(long, requires = "out", conflicts_with_all = ["command", "no_daemon", "config", "json"])]
    #[arg(conflicts_with_all = ["clone", "clone_by_name"])]
    save_for_bugreport: bool,
}

impl PerfettoArgs {
    /// Where to tell that all data sources have started.
    pub(super) fn notify_fd(&self) -> Option<u32> {
        let of_parent = (self.background_wait && is_in_background()).then_some(STDOUT);
        of_parent.or(self.notify_fd)
    }
}

/// An encoded `TraceConfig.Note`.
#[derive(Debug, Clone)]
pub(super) struct Note(pub(super) Vec<u8>);

/// Reads `KEY=VALUE`, or `KEY`.
fn parse_note(text: &str) -> Result<Note, String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if key.is_empty() {
        return Err("a note needs a key: KEY=VALUE".to_owned());
    }
    let note = Rewrite::new().set_each(1, [key.as_bytes()]).set_each(2, [value.as_bytes()]);
    note.apply(&[]).map(Note).map_err(|error| error.to_string())
}

/// Does what one of these options says; `None` if there is none.
pub(super) fn run(args: &Args) -> Option<Result<Exit, Failure>> {
    let options = &args.perfetto;
    let service = || Service { socket: args.socket.clone() };
    let session = |key: &String| StopArgs { key: key.clone(), out: args.out.clone(), service: service() };
    if let Err(refused) = args.android.check().and_then(|()| check(args)) {
        return Some(Err(refused));
    }
    if args.android.reset_guardrails {
        return Some(Ok(Exit::Done));
    }
    if (options.background || options.background_wait) && !is_in_background() {
        return Some(in_background(args));
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
    if options.query_raw {
        return Some(query::write_raw(args.socket.as_ref()));
    }
    let of = clone::Of {
        name: options.clone_by_name.clone(),
        id: options.clone,
        for_bugreport: options.save_for_bugreport || options.clone_for_bugreport,
    };
    let out = args.out.clone()?;
    let is_clone = of.name.is_some() || of.id.is_some() || of.for_bugreport;
    is_clone.then(|| clone::run(&clone::Args { of, out, service: service() }))
}

/// What the parser cannot check.
fn check(args: &Args) -> Result<(), Failure> {
    let options = &args.perfetto;
    if options.clone_for_bugreport && options.clone.is_none() && options.clone_by_name.is_none() {
        return Err(Failure::usage(
            "--clone-for-bugreport: say which session with --clone or --clone-by-name",
        ));
    }
    let Some(out) = args.out.as_deref() else { return Ok(()) };
    if (options.background || options.background_wait) && out == Path::new("-") {
        return Err(Failure::usage("-o -: in background there is no standard output; name a file"));
    }
    match options.no_clobber && out != Path::new("-") && out.exists() {
        true => Err(Failure::failed(format_args!("{} is there already, and --no-clobber", out.display()))),
        false => Ok(()),
    }
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

/// Set for the process that records.
const IN_BACKGROUND: &str = "WATERSHED_IN_BACKGROUND";
const STDOUT: u32 = 1;

fn is_in_background() -> bool {
    env::var_os(IN_BACKGROUND).is_some()
}

/// The same command once more, which no terminal ends. If it is waited for, its standard output is
/// a pipe to this process.
fn in_background(args: &Args) -> Result<Exit, Failure> {
    // What is wrong is said here, where somebody reads it; standard input is for the child.
    if args.config.as_deref() != Some(Path::new("-")) {
        config::load(args)?;
    }
    let is_awaited = args.perfetto.background_wait;
    let cannot =
        |error: std::io::Error| Failure::failed(format_args!("cannot record in background: {error}"));
    let mut command = Command::new(env::current_exe().map_err(cannot)?);
    command.args(env::args_os().skip(1)).env(IN_BACKGROUND, "1").process_group(0);
    command.stdout(if is_awaited { Stdio::piped() } else { Stdio::null() });
    let mut child = command.stderr(Stdio::null()).spawn().map_err(cannot)?;
    println!("{}", child.id());
    let Some(mut told) = child.stdout.take() else { return Ok(Exit::Done) };
    let mut all_started = [0];
    match told.read_exact(&mut all_started) {
        Ok(()) if all_started == [ALL_STARTED] => Ok(Exit::Done),
        _ => Err(Failure::failed(
            "not all data sources have started, or nothing is recorded: the same command without \
             --background-wait says why",
        )),
    }
}
