//! `watershed clone`: what a session has recorded so far, while it goes on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use watershed_client::consumer::{CloneOf, Cloned, Consumer, ConsumerError};
use watershed_wire::protos::TraceStats;
use watershed_wire::protos::observable_events::CloneTriggerHit;

use super::file::NewFile;
use super::{Service, fill, say_written};
use crate::exit::{Exit, Failure};

/// Flushes take 5 s at most unless a config says otherwise, and a file of a long trace is copied.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The state of a session that is a clone itself.
const IS_CLONE: &str = "CLONED_READ_ONLY";

/// Arguments of `watershed clone`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) of: Of,

    /// Write the trace here
    #[arg(short, long, value_name = "OUT")]
    pub(crate) out: PathBuf,

    #[command(flatten)]
    pub(crate) service: Service,
}

/// Which session.
#[derive(Debug, clap::Args)]
pub(crate) struct Of {
    /// The session with this unique_session_name [default: the only session there is]
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub(crate) name: Option<String>,

    /// The session with this number, as `watershed query` shows it
    #[arg(long, value_name = "N")]
    pub(crate) id: Option<u64>,

    /// The session that records with the highest bugreport_score, or the one that --name or --id
    /// says; with what its trace_filter forbids
    #[arg(long)]
    pub(crate) for_bugreport: bool,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut consumer = args.service.connect()?;
    let of = match (&args.of.name, args.of.id, args.of.for_bugreport) {
        (Some(name), ..) => CloneOf::Name(name.clone()),
        (_, Some(id), _) => CloneOf::Id(id),
        (.., true) => CloneOf::ForBugreport,
        _ => only_session(&mut consumer)?,
    };
    let for_bugreport = args.of.for_bugreport;
    let written = clone_as(&mut consumer, &args.out, |consumer, file| match for_bugreport {
        true => consumer.clone_for_bugreport(&of, file, TIMEOUT),
        false => consumer.clone_session(&of, None, file, TIMEOUT),
    })?;
    say_written(&args.out, written.size_bytes);
    Ok(Exit::Done)
}

/// The trace of a clone, which is whole.
pub(crate) struct Written {
    pub(crate) size_bytes: u64,
    /// `None` if the service does not tell.
    pub(crate) stats: Option<TraceStats>,
}

/// Clones a session into a file. The connection has no session before, and none afterwards.
pub(crate) fn clone_into(
    consumer: &mut Consumer,
    of: &CloneOf,
    trigger: Option<&CloneTriggerHit>,
    path: &Path,
) -> Result<Written, Failure> {
    clone_as(consumer, path, |consumer, file| consumer.clone_session(of, trigger, file, TIMEOUT))
}

/// Whether a trace can be created at this place.
pub(crate) fn check_place(path: &Path) -> Result<(), Failure> {
    NewFile::create(path).map(drop)
}

fn clone_as(
    consumer: &mut Consumer,
    path: &Path,
    clone: impl FnOnce(&mut Consumer, File) -> Result<Cloned, ConsumerError>,
) -> Result<Written, Failure> {
    let mut file = NewFile::create(path)?;
    let cloned = clone(consumer, file.handle()?).map_err(Failure::failed)?;
    if !cloned.is_in_file {
        fill(consumer, &mut file)?;
    }
    let stats = consumer.stats().ok();
    consumer.free().map_err(Failure::failed)?;
    Ok(Written { size_bytes: file.finish()?, stats })
}

fn only_session(consumer: &mut Consumer) -> Result<CloneOf, Failure> {
    let state = consumer.query_state(true).map_err(Failure::failed)?;
    let sessions = state.tracing_sessions.iter().filter(|session| session.state() != IS_CLONE);
    let ids: Vec<u64> = sessions.map(|session| session.id()).collect();
    match ids[..] {
        [id] => Ok(CloneOf::Id(id)),
        [] => Err(Failure::failed("the tracing service has no session to clone")),
        _ => Err(Failure::usage(format_args!(
            "{} sessions: say which with --id or --name; `watershed query` lists them",
            ids.len()
        ))),
    }
}
