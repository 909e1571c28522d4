//! Tracing for programs that want one line: what is recorded, the environment says.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use thiserror::Error;
use watershed_shell::address::AddressError;
use watershed_wire::Encode as _;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource};
use watershed_wire::protos::{DataSourceConfig, TraceConfig, TrackEventConfig};

use crate::in_process::{InProcess, InProcessError, InProcessOptions, Session, Sink, StartError};
use crate::remote::{RemoteEvent, RemoteOptions, RemoteProducer};
use crate::track_event;

/// File for the program's own trace.
const TRACE: &str = "WATERSHED_TRACE";
/// What is in it.
const CATEGORIES: &str = "WATERSHED_TRACE_CATEGORIES";
/// How much of it may wait to be written.
const BUFFER_KB: &str = "WATERSHED_TRACE_BUFFER_KB";

const DEFAULT_BUFFER_KB: u32 = 32 << 10;
/// How often the trace is written to its file.
const WRITE_PERIOD_MS: u32 = 250;
/// The longest wait for the first events to be wanted, and for the last ones to be written.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest that a service which accepts connections can delay the program's start.
const PATIENCE_WITH_SERVICE: Duration = Duration::from_secs(1);

/// Why [`init()`] did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InitError {
    /// The file of `WATERSHED_TRACE` cannot be written.
    #[error("WATERSHED_TRACE={}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// `WATERSHED_TRACE_BUFFER_KB` is no number of KiB, or is not from 4 to 4194303.
    #[error("WATERSHED_TRACE_BUFFER_KB={}: not a size in KiB, from 4 to 4194303", .0.display())]
    BufferSize(OsString),
    /// The variables that name the daemon's sockets.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// There is no backend.
    #[error(transparent)]
    Backend(#[from] InProcessError),
    /// The session for the file did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The system has no thread for the connection.
    #[error("no thread for tracing: {0}")]
    Thread(io::Error),
}

/// Tracing that [`init()`] has started. Dropping it ends it: a trace in a file is completed.
#[derive(Debug)]
#[must_use = "tracing ends when this is dropped"]
pub struct Tracing {
    recording: Option<(Session, PathBuf)>,
    _backend: Backend,
}

#[derive(Debug)]
#[expect(dead_code, reason = "each lives until it is dropped")]
enum Backend {
    InProcess(InProcess),
    Remote(RemoteProducer),
}

/// Makes this program traced: its track events, and if it has no `tracing` subscriber yet also what
/// it does with `tracing`. To be called once, early in `main`.
///
/// ```no_run
/// let _tracing = watershed_client::init()?;
/// # Ok::<(), watershed_client::InitError>(())
/// ```
///
/// | variable | meaning |
/// |---|---|
/// | `WATERSHED_TRACE` | a file: the whole trace of this program, until the value is dropped; `%p` in it is the process id. Without it sessions of a daemon record the program |
/// | `WATERSHED_TRACE_CATEGORIES` | names, `begin*` and `tag:name`, by commas: these and no others; with a `-` before it not that one. All but slow and debug ones by default |
/// | `WATERSHED_TRACE_BUFFER_KB` | how much may wait for the file, in KiB: 32768 by default |
/// | `PERFETTO_PRODUCER_SOCK_NAME` | the daemon's socket; tried until there is a daemon |
///
/// With a daemon the call waits for its answer, a second at most, so that sessions that run already
/// have the program's first events. Without one it does not wait.
///
/// # Errors
///
/// [`InitError`]; the program goes on without tracing if it ignores that.
pub fn init() -> Result<Tracing, InitError> {
    let tracing = match std::env::var_os(TRACE).filter(|path| !path.is_empty()) {
        Some(path) => record(path)?,
        None => offer()?,
    };
    #[cfg(feature = "tracing")]
    subscribe();
    Ok(tracing)
}

/// A subscriber that the program has set before is left as it is.
#[cfg(feature = "tracing")]
fn subscribe() {
    use tracing_subscriber::layer::SubscriberExt as _;
    let subscriber = tracing_subscriber::registry().with(crate::layer());
    let _ = tracing_core::dispatcher::set_global_default(tracing_core::Dispatch::new(subscriber));
}

fn offer() -> Result<Tracing, InitError> {
    let (tell, told) = mpsc::channel();
    let on_event = move |event| {
        // Nobody listens after the first one.
        let _ = tell.send(matches!(event, RemoteEvent::Connected { .. }));
    };
    let producer =
        RemoteProducer::connect(RemoteOptions::from_environment()?, on_event).map_err(InitError::Thread)?;
    producer.register(track_event::data_source());
    // With a service the sessions that run already want the first events, too. Without one the
    // first attempt has failed at once.
    if told.recv_timeout(PATIENCE_WITH_SERVICE) == Ok(true) {
        let _ = producer.sync(PATIENCE_WITH_SERVICE);
    }
    Ok(Tracing { recording: None, _backend: Backend::Remote(producer) })
}

fn record(path: OsString) -> Result<Tracing, InitError> {
    let path = with_pid(Path::new(&path));
    let size_kb = buffer_kb(std::env::var_os(BUFFER_KB))?;
    let file = File::create(&path).map_err(|error| InitError::File { path: path.clone(), error })?;
    let categories = std::env::var(CATEGORIES).unwrap_or_default();
    let backend = InProcess::new(InProcessOptions::default())?;
    backend.register(track_event::data_source());
    let session = backend.start_session(&config(size_kb, &categories).encode_to_vec(), Sink::File(file))?;
    // Not in time: the first events may be missing, which is no reason to trace nothing.
    let _ = session.wait_all_started(PATIENCE);
    Ok(Tracing { recording: Some((session, path)), _backend: Backend::InProcess(backend) })
}

fn with_pid(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) => text.replace("%p", &std::process::id().to_string()).into(),
        None => path.to_owned(),
    }
}

fn buffer_kb(text: Option<OsString>) -> Result<u32, InitError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(DEFAULT_BUFFER_KB) };
    let size_kb = text.to_str().and_then(|text| text.parse().ok());
    size_kb.filter(|size_kb| (4..=4_194_303).contains(size_kb)).ok_or(InitError::BufferSize(text))
}

fn config(size_kb: u32, categories: &str) -> TraceConfig {
    let config = DataSourceConfig {
        name: Some(track_event::NAME.to_owned()),
        track_event_config: Some(choice(categories)),
        ..Default::default()
    };
    TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(size_kb), ..Default::default() }],
        data_sources: vec![DataSource { config: Some(config), ..Default::default() }],
        write_into_file: Some(true),
        file_write_period_ms: Some(WRITE_PERIOD_MS),
        ..Default::default()
    }
}

/// What `WATERSHED_TRACE_CATEGORIES` chooses.
fn choice(categories: &str) -> TrackEventConfig {
    let mut config = TrackEventConfig::default();
    for part in categories.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (is_off, part) = part.strip_prefix('-').map_or((false, part), |part| (true, part));
        let (tag, name) = (part.strip_prefix("tag:"), part.to_owned());
        match (is_off, tag) {
            (false, None) => config.enabled_categories.push(name),
            (false, Some(tag)) => config.enabled_tags.push(tag.to_owned()),
            (true, None) => config.disabled_categories.push(name),
            (true, Some(tag)) => config.disabled_tags.push(tag.to_owned()),
        }
    }
    if !(config.enabled_categories.is_empty() && config.enabled_tags.is_empty()) {
        config.disabled_categories.push("*".to_owned());
    }
    config
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let Some((session, path)) = self.recording.take() else { return };
        session.stop();
        let end = session.wait_timeout(PATIENCE);
        let problem = match end.as_deref() {
            None => Some("it was not written in time".to_owned()),
            Some(end) => end.error.clone().or_else(|| end.write_error.as_ref().map(ToString::to_string)),
        };
        if let Some(problem) = problem {
            eprintln!("watershed: the trace {}: {problem}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_chosen_by_words() {
        let list = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(choice(""), TrackEventConfig::default());
        let config = choice("net, db.*,tag:debug");
        assert_eq!(
            (config.enabled_categories, config.enabled_tags),
            (list(&["net", "db.*"]), list(&["debug"]))
        );
        assert_eq!(config.disabled_categories, list(&["*"]));
        let config = choice("-net,-tag:slow");
        assert_eq!((config.disabled_categories, config.disabled_tags), (list(&["net"]), list(&["slow"])));
        assert!(config.enabled_categories.is_empty());
    }

    #[test]
    fn sizes_that_are_none_are_refused() {
        let size = |text: &str| buffer_kb(Some(text.into())).map_err(|error| error.to_string());
        assert_eq!((buffer_kb(None).unwrap(), size("").unwrap(), size("64").unwrap()), (32768, 32768, 64));
        assert_eq!(
            size("1 MB").unwrap_err(),
            "WATERSHED_TRACE_BUFFER_KB=1 MB: not a size in KiB, from 4 to 4194303"
        );
        assert!(size("3").is_err() && size("4194304").is_err());
    }

    #[test]
    fn a_file_may_have_the_process_in_its_name() {
        let path = with_pid(Path::new("/tmp/a-%p.pftrace"));
        assert_eq!(path, PathBuf::from(format!("/tmp/a-{}.pftrace", std::process::id())));
    }
}
