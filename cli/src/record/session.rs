//! One recording: from an open output to the summary.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use watershed_client::in_process::{
    self, InProcess, InProcessOptions, Session, SessionEnd, Shards, Sink, StartError,
};
use watershed_client::producer::ProducerEvent;
use watershed_probes::{
    FtraceFactory, Notices, OnDemand, ProcessStatsFactory, Roots, ScanRequest, SysStatsFactory,
};
use watershed_wire::config::TraceConfig;

use super::command::{CommandHandle, Running};
use super::output::{Output, Written};
use super::progress::Progress;
use super::summary::{self, Summary};
use super::{Args, config};
use crate::exit::{Exit, Failure};
use crate::machine;
use crate::signals::{self, Received};

/// How often the progress line is brought up to date.
const PROGRESS_PERIOD: Duration = Duration::from_millis(250);

/// A data source that takes longer to start is not waited for.
const START_TIMEOUT: Duration = Duration::from_secs(1);

/// Looking for the command in /proc takes milliseconds on an idle machine. Beside compilers on all
/// CPUs 200 ms were seen not to be enough, and the command was missed; a machine on which this is
/// not enough is not waited for.
const SCAN_TIMEOUT: Duration = Duration::from_secs(2);

/// What a recording waits for.
enum Event {
    /// The session has ended and everything is written: the time is up, somebody stopped it, or it
    /// failed.
    SessionOver(Arc<SessionEnd>),
    CommandEnded(io::Result<u8>),
    Signal(Received),
}

/// This process as a tracing machine: service, producer, data sources.
struct Backend {
    in_process: InProcess,
    notices: Notices,
    scan_request: ScanRequest,
}

impl Backend {
    fn new(args: &Args) -> Result<Self, Failure> {
        let mut options = InProcessOptions::default();
        options.system = machine::system_info();
        options.shards = args.shards.map_or(options.shards, Shards::Wanted);
        let in_process = InProcess::with_events(options, |event| match event {
            in_process::Event::Warning(warning) => warn(&warning),
            in_process::Event::Producer(ProducerEvent::SetupFailed { name, reason }) => {
                warn(&format_args!("data source {name} is not recorded: {reason}"));
            }
            _ => {}
        })
        .map_err(|error| Failure::failed(format_args!("cannot start tracing: {error}")))?;
        let (notices, scan_request) = (Notices::new(), ScanRequest::new());
        let on_demand = OnDemand::new();
        in_process.register(Box::new(SysStatsFactory { roots: Roots::default(), notices: notices.clone() }));
        in_process.register(Box::new(ProcessStatsFactory {
            roots: Roots::default(),
            notices: notices.clone(),
            scan_request: scan_request.clone(),
            on_demand: on_demand.clone(),
        }));
        let ftrace = FtraceFactory::new(Roots::default(), notices.clone(), on_demand);
        in_process.register(Box::new(ftrace));
        Ok(Backend { in_process, notices, scan_request })
    }
}

/// Records what `config` says for as long as `args` say.
pub(super) fn record(args: &Args, config: &TraceConfig, verbose: bool) -> Result<Exit, Failure> {
    let backend = Backend::new(args)?;
    for warning in config::check_data_sources(config, &backend.in_process.data_source_names())? {
        warn(&warning);
    }
    let output = open_output(args, config)?;
    let (trace_file, written) = output
        .writer()
        .map_err(|error| Failure::failed(format_args!("{}: {error}", output.path().display())))?;
    let (events, incoming) = mpsc::channel();
    watch_signals(&events)?;

    let started = Instant::now();
    let session = match backend.in_process.start_session(config.bytes(), Sink::writer(trace_file)) {
        Ok(session) => session,
        Err(error) => {
            output.discard();
            return Err(refused(&error));
        }
    };
    // With deferred_start it is ready and waits; there is nobody else to start it.
    session.start();
    watch_session(&session, &events)?;
    let command = match start_command(args, &backend, &session, &events) {
        Ok(command) => command,
        Err(failure) => {
            drop(session);
            output.discard();
            return Err(failure);
        }
    };
    if verbose || args.config.is_some() {
        say_notices(&backend, &session);
    }

    let in_process = &backend.in_process;
    let recording =
        Recording { in_process, session, command, incoming, path: output.path(), written, started };
    recording.run(config, args)
}

fn open_output(args: &Args, config: &TraceConfig) -> Result<Output, Failure> {
    if args.out.as_deref() == Some(Path::new("-")) {
        return standard_output(args);
    }
    let of_config = config.view().output_path.as_ref().map(PathBuf::from);
    let opened = match args.out.clone().or(of_config) {
        Some(path) => Output::open(path.clone()).map_err(|error| (path, error)),
        None => Output::create_by_time(),
    };
    opened.map_err(|(path, error)| Failure::failed(format_args!("cannot create {}: {error}", path.display())))
}

fn standard_output(args: &Args) -> Result<Output, Failure> {
    if !args.command.is_empty() {
        return Err(Failure::usage("-o -: standard output is the command's; name a file"));
    }
    if io::stdout().is_terminal() {
        return Err(Failure::usage(
            "-o -: standard output is a terminal; name a file, or a pipe to read the trace",
        ));
    }
    Output::standard().map_err(|error| Failure::failed(format_args!("standard output: {error}")))
}

fn refused(error: &StartError) -> Failure {
    match error {
        StartError::Config(_) | StartError::DataSource { .. } => {
            Failure::usage(format_args!("config: {error}"))
        }
        _ => Failure::failed(error),
    }
}

fn watch_signals(events: &Sender<Event>) -> Result<(), Failure> {
    let events = events.clone();
    signals::watch(move |signal| drop(events.send(Event::Signal(signal))))
        .map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))
}

fn watch_session(session: &Session, events: &Sender<Event>) -> Result<(), Failure> {
    let (session, events) = (session.clone(), events.clone());
    let wait = move || drop(events.send(Event::SessionOver(session.wait())));
    let thread = thread::Builder::new().name("session".into()).spawn(wait);
    thread.map(drop).map_err(|error| Failure::failed(format_args!("cannot wait for the session: {error}")))
}

fn start_command(
    args: &Args,
    backend: &Backend,
    session: &Session,
    events: &Sender<Event>,
) -> Result<Option<CommandHandle>, Failure> {
    if args.command.is_empty() {
        return Ok(None);
    }
    // So that its beginning is recorded.
    wait_until_started(session);
    let running = Running::start(&args.command)?;
    let handle = running.handle();
    // So that it is in the process tree even if it has ended by now: as long as nobody waits for
    // it, /proc has it.
    running.wait_for_name();
    backend.scan_request.raise();
    let _ = session.flush_and_wait(SCAN_TIMEOUT);
    let events = events.clone();
    running
        .watch(move |code| drop(events.send(Event::CommandEnded(code))))
        .map_err(|error| Failure::failed(format_args!("cannot wait for the command: {error}")))?;
    Ok(Some(handle))
}

/// Until every data source has made its first readings, within reason.
fn wait_until_started(session: &Session) {
    let _ = session.wait_all_started(START_TIMEOUT);
}

/// What the data sources cannot do on this machine.
fn say_notices(backend: &Backend, session: &Session) {
    wait_until_started(session);
    for notice in backend.notices.take() {
        warn(&notice);
    }
}

fn warn(message: &dyn std::fmt::Display) {
    eprintln!("watershed: warning: {message}");
}

/// A recording under way.
struct Recording<'a> {
    in_process: &'a InProcess,
    session: Session,
    command: Option<CommandHandle>,
    incoming: Receiver<Event>,
    path: &'a Path,
    written: Written,
    started: Instant,
}

/// Why a recording ended, and what is known of the command by then.
#[derive(Default)]
struct Ended {
    end: Option<Arc<SessionEnd>>,
    command: Option<io::Result<u8>>,
    signal: Option<i32>,
    /// The command could not be told of the signal, so its end may be far off.
    leaves_command: bool,
}

impl Recording<'_> {
    fn run(self, config: &TraceConfig, args: &Args) -> Result<Exit, Failure> {
        let time_ms = u64::from(config.view().duration_ms());
        let time = (time_ms > 0).then(|| Duration::from_millis(time_ms));
        let progress = Progress::new(time, self.command.is_some());
        let mut ended = Ended::default();
        while ended.end.is_none() {
            if let Some(event) = self.next_event(&progress) {
                self.handle(event, &mut ended);
            }
        }
        let recorded = self.started.elapsed();
        progress.finish();
        let failure = ended.end.as_deref().and_then(|end| self.report(config, recorded, end));

        // The time may be up before the command is; its output and its code are passed on all the
        // same.
        while self.command.is_some() && ended.command.is_none() && !ended.leaves_command {
            let Ok(event) = self.incoming.recv() else { break };
            self.handle(event, &mut ended);
        }
        exit(failure, ended, args)
    }

    fn next_event(&self, progress: &Progress) -> Option<Event> {
        if !progress.is_shown() {
            return self.incoming.recv().ok();
        }
        progress.update();
        self.incoming.recv_timeout(PROGRESS_PERIOD).ok()
    }

    fn handle(&self, event: Event, ended: &mut Ended) {
        match event {
            Event::SessionOver(end) => ended.end = Some(end),
            Event::CommandEnded(code) => {
                ended.command = Some(code);
                self.session.stop();
            }
            Event::Signal(signal) => {
                ended.signal = Some(signal.number);
                // What a command does about the signal is recorded too: it has the last say.
                let command_ends_it = self.command.as_ref().is_some_and(|command| command.signal(signal));
                if !command_ends_it {
                    ended.leaves_command = true;
                    self.session.stop();
                }
            }
        }
    }

    /// Prints the summary. Returns what went wrong, if something did.
    fn report(&self, config: &TraceConfig, time: Duration, end: &SessionEnd) -> Option<String> {
        let tally = self.written.tally();
        let dropped = self.in_process.arbiter_stats().packets_dropped;
        let losses = summary::losses(config.view(), end, dropped, &tally);
        eprintln!("{}", Summary { path: self.path, time, tally: &tally, losses });
        let path = self.path.display();
        match end {
            SessionEnd { write_error: Some(error), .. } => Some(format!("writing {path} failed: {error}")),
            SessionEnd { error: Some(error), .. } => Some(format!("the recording failed: {error}")),
            SessionEnd { left_out: Some(_), .. } => Some(format!(
                "the recording ended because {path} was full: max_file_size_bytes is {}",
                config.view().max_file_size_bytes()
            )),
            _ => None,
        }
    }
}

fn exit(failure: Option<String>, ended: Ended, args: &Args) -> Result<Exit, Failure> {
    if let Some(failure) = failure {
        return Err(Failure::failed(failure));
    }
    match (ended.signal, ended.command) {
        (Some(number), _) => Ok(Exit::Signal(number as u8)),
        (None, Some(Ok(code))) => Ok(Exit::Command(code)),
        (None, Some(Err(error))) => {
            let program = args.command.first().map(|p| p.display().to_string()).unwrap_or_default();
            Err(Failure::failed(format_args!("cannot wait for {program}: {error}")))
        }
        (None, None) => Ok(Exit::Done),
    }
}
