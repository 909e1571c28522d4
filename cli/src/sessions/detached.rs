//! `watershed detach`, `attach`, `stop`: sessions that go on without their consumer.
//!
//! ```text
//!   detach KEY -c CONFIG ──> goes on in the service ──> attach KEY: wait for its end
//!                                                  └──> stop KEY: flush, end it     ──> read it
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use watershed_client::consumer::{Consumer, FLUSH_AT_STOP, Wait};
use watershed_wire::config::TraceConfig;
use watershed_wire::raw::Rewrite;

use super::file::NewFile;
use super::{REFUSAL_TIMEOUT, Service, read_into, say};
use crate::config;
use crate::exit::{Exit, Failure};
use crate::signals;

/// Data sources have so long to hand over what they have.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Field `TraceConfig.write_into_file`.
const WRITE_INTO_FILE: u32 = 8;

/// Arguments of `watershed detach`.
#[derive(Debug, clap::Args)]
#[command(after_help = "The session goes on until its duration_ms is over, or `watershed stop KEY`. \
What a session without a file has recorded is gone when its time is over and nobody has attached.")]
pub(crate) struct DetachArgs {
    /// The key under which this user finds the session again
    key: String,

    /// What to record: a config in Perfetto's text or binary format, from standard input if it is
    /// `-`
    #[arg(short, long, value_name = "CONFIG")]
    config: PathBuf,

    /// Have the service write the trace here while it records
    #[arg(short, long, value_name = "OUT")]
    out: Option<PathBuf>,

    #[command(flatten)]
    service: Service,
}

/// Arguments of `watershed attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    session: StopArgs,

    /// Only look whether there is such a session: exit code 0 if there is, else 1
    #[arg(long, conflicts_with = "out")]
    check: bool,
}

/// Arguments of `watershed stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    /// The key under which the session was left behind
    pub(crate) key: String,

    /// Write the trace here, unless the service writes it into a file itself
    #[arg(short, long, value_name = "OUT")]
    pub(crate) out: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) service: Service,
}

/// Starts a session and leaves it behind.
pub(crate) fn detach(args: &DetachArgs) -> Result<Exit, Failure> {
    let config = config::read(&args.config)?;
    let mut consumer = args.service.connect()?;
    detach_session(&mut consumer, &args.key, config, args.out.as_deref())
}

pub(crate) fn detach_session(
    consumer: &mut Consumer,
    key: &str,
    mut config: TraceConfig,
    out: Option<&Path>,
) -> Result<Exit, Failure> {
    if key.is_empty() {
        return Err(Failure::usage("the key is empty"));
    }
    let has_path = config.view().output_path.is_some();
    if out.is_some() && has_path {
        return Err(Failure::usage("the config has an output_path: there is nothing for -o to do"));
    }
    if out.is_some() && !config.view().write_into_file() {
        let into_file = Rewrite::new().set_varint(WRITE_INTO_FILE, 1);
        config =
            config.rewritten(&into_file).map_err(|error| Failure::usage(format_args!("config: {error}")))?;
    }
    let writes_into_file = config.view().write_into_file();
    if writes_into_file && out.is_none() && !has_path {
        return Err(Failure::usage("the config has write_into_file: name the file with -o"));
    }
    if !writes_into_file && config.view().duration_ms() > 0 {
        return Err(Failure::usage(
            "with duration_ms and without a file nothing is left of a detached session when its time is over: \
             name a file with -o",
        ));
    }
    let file = out.map(NewFile::create).transpose()?;
    let handle = file.as_ref().map(NewFile::handle).transpose()?;
    consumer.enable_tracing(config.bytes(), handle).map_err(Failure::failed)?;
    if let Wait::Ended { error } = consumer.wait_end(Some(REFUSAL_TIMEOUT)).map_err(Failure::failed)? {
        let why = error.unwrap_or_else(|| "it has ended already".to_owned());
        return Err(Failure::usage(format_args!("the session did not start: {why}")));
    }
    if !consumer.detach(key).map_err(Failure::failed)? {
        return Err(Failure::failed(format_args!(
            "the session cannot be left behind under the key \"{key}\": is there another one?"
        )));
    }
    file.map_or(Ok(()), NewFile::keep)?;
    say(format_args!("the session goes on; `watershed stop {key}` ends it"));
    Ok(Exit::Done)
}

/// Waits for the end of a session that was left behind, or ends it when a signal comes.
pub(crate) fn attach(args: &AttachArgs) -> Result<Exit, Failure> {
    match args.check {
        false => attach_to(&args.session),
        true if is_detached(&args.session)? => Ok(Exit::Done),
        true => Err(Failure::failed(not_detached(&args.session.key))),
    }
}

pub(crate) fn attach_to(session: &StopArgs) -> Result<Exit, Failure> {
    let (mut consumer, out) = attached(session)?;
    let wake = consumer.wake_handle();
    signals::watch(move |_| wake.wake())
        .map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))?;
    say(format_args!("attached; Ctrl-C ends the session"));
    let wait = consumer.wait_end(None).map_err(Failure::failed)?;
    match wait {
        Wait::Ended { error } => finish(&mut consumer, error, out),
        Wait::Woken | Wait::TimedOut => end(&mut consumer, out),
    }
}

/// Ends a session that was left behind.
pub(crate) fn stop(args: &StopArgs) -> Result<Exit, Failure> {
    let (mut consumer, out) = attached(args)?;
    end(&mut consumer, out)
}

/// Takes the session up and leaves it behind again: there is no other way to ask.
pub(crate) fn is_detached(args: &StopArgs) -> Result<bool, Failure> {
    let mut consumer = args.service.connect()?;
    match consumer.attach(&args.key).map_err(Failure::failed)? {
        Some(_) => detach_again(&mut consumer, &args.key).map(|()| true),
        None => Ok(false),
    }
}

/// Takes the session up, and says where its trace goes: a path if it is to be read.
fn attached(args: &StopArgs) -> Result<(Consumer, Option<&Path>), Failure> {
    let mut consumer = args.service.connect()?;
    let Some(config) = consumer.attach(&args.key).map_err(Failure::failed)? else {
        return Err(Failure::failed(not_detached(&args.key)));
    };
    let writes_into_file =
        TraceConfig::from_binary(config).is_ok_and(|config| config.view().write_into_file());
    let wrong = match (writes_into_file, &args.out) {
        (true, Some(_)) => "the service writes this trace into a file itself: leave -o out",
        (false, None) => "the trace is in the buffers of the service: name a file with -o",
        _ => return Ok((consumer, args.out.as_deref())),
    };
    detach_again(&mut consumer, &args.key)?;
    Err(Failure::usage(wrong))
}

fn not_detached(key: &str) -> String {
    format!("no session of this user was left behind under the key \"{key}\"")
}

fn detach_again(consumer: &mut Consumer, key: &str) -> Result<(), Failure> {
    match consumer.detach(key).map_err(Failure::failed)? {
        true => Ok(()),
        false => {
            Err(Failure::failed(format_args!("the session under \"{key}\" cannot be left behind again")))
        }
    }
}

fn end(consumer: &mut Consumer, out: Option<&Path>) -> Result<Exit, Failure> {
    if !consumer.flush(FLUSH_TIMEOUT, FLUSH_AT_STOP).map_err(Failure::failed)? {
        say(format_args!("warning: not all data sources have handed over what they had"));
    }
    consumer.disable().map_err(Failure::failed)?;
    match consumer.wait_end(None).map_err(Failure::failed)? {
        Wait::Ended { error } => finish(consumer, error, out),
        Wait::Woken | Wait::TimedOut => Err(Failure::failed("the session did not end")),
    }
}

fn finish(consumer: &mut Consumer, error: Option<String>, out: Option<&Path>) -> Result<Exit, Failure> {
    if let Some(path) = out {
        read_into(consumer, path)?;
    }
    match error {
        Some(error) => Err(Failure::failed(format_args!("the session failed: {error}"))),
        None => Ok(Exit::Done),
    }
}
