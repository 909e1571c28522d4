//! One recording: from an open output to the summary.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use watershed_client::clock::boottime_ns;
use watershed_wire::config::TraceConfig;

use super::Args;
use super::clones::{self, Numbered, Taken};
use super::command::{CommandHandle, Running, code};
use super::config;
use super::daemon::Daemon;
use super::embedded::Embedded;
use super::end::End;
use super::mark::Mark;
use super::notify::Notify;
use super::output::{Output, Written};
use super::progress::Progress;
use super::report::{self, Recorded, Reported, warn};
use crate::exit::{Exit, Failure, printed};
use crate::signals::{self, Received};

/// How often the progress line is brought up to date.
const PROGRESS_PERIOD: Duration = Duration::from_millis(250);

/// What a recording waits for.
enum Event {
    /// A trigger has come, of a recording with a trace for each.
    Taken(Box<Taken>),
    /// The session has ended and everything is written: the time is up, somebody stopped it, or it
    /// failed.
    SessionOver(Box<End>),
    CommandEnded(io::Result<u8>),
    Signal(Received),
}

/// Where the packets of a recording go.
pub(super) enum Target {
    Trace(Output),
    /// A file for each trigger.
    Clones(Numbered),
}

impl Target {
    /// It cannot be written.
    pub(super) fn failed(&self, error: io::Error) -> Failure {
        match self {
            Target::Trace(output) => Failure::failed(format_args!("{}: {error}", output.path().display())),
            Target::Clones(_) => Failure::failed(error),
        }
    }

    /// Nothing was recorded.
    fn discard(self) {
        if let Target::Trace(output) = self {
            output.discard();
        }
    }
}

/// What a session tells the recording that waits for it.
#[derive(Clone)]
pub(super) struct Teller(Sender<Event>);

impl Teller {
    /// What has become of a trigger.
    pub(super) fn taken(&self, taken: Taken) {
        self.send(Event::Taken(Box::new(taken)));
    }

    /// The session has ended and everything is written.
    pub(super) fn over(&self, end: End) {
        self.send(Event::SessionOver(Box::new(end)));
    }

    fn send(&self, event: Event) {
        // A recording that has failed does not wait.
        let _ = self.0.send(event);
    }
}

/// A tracing service that has no session of ours yet.
pub(super) trait Service {
    /// Compares what the config asks for with what there is. Returns lines to warn with; fails if
    /// nothing could be recorded.
    fn check(&mut self, config: &TraceConfig) -> Result<Vec<String>, Failure>;

    /// Starts the session, with what marks the command if there is one. If it fails nothing was
    /// recorded, and the output is as it was.
    fn start(
        self: Box<Self>,
        config: &TraceConfig,
        target: &Target,
        mark: Option<&Mark>,
        teller: Teller,
    ) -> Result<(Box<dyn Session>, Written), Failure>;
}

/// A session under way. When it is dropped, what was not written of it is gone.
pub(super) trait Session {
    /// Waits until every data source has made its first readings, within reason. Whether all have.
    fn wait_started(&self) -> bool;

    /// The command that is recorded runs: it should be in the trace, however short it lives.
    fn command_started(&self);

    /// What the data sources cannot do on this machine, as far as they can tell.
    fn notices(&self) -> Vec<String>;

    /// Ends it, without waiting for that.
    fn stop(&self);

    /// Packets that writers of this process gave up.
    fn packets_dropped(&self) -> u64;
}

/// Records what `config` says for as long as `args` say.
pub(super) fn record(args: &Args, config: &TraceConfig, verbose: bool) -> Result<Exit, Failure> {
    let notify = Notify::open(args)?;
    let mut service: Box<dyn Service> = match Daemon::find(args, verbose)? {
        Some(daemon) => Box::new(daemon),
        None => Box::new(Embedded::new(args)?),
    };
    let config =
        &Mark::removed_from(config).map_err(|error| Failure::usage(format_args!("config: {error}")))?;
    service.check(config)?.iter().for_each(|missing| warn(missing));
    let target = match config::makes_clones(config) {
        true => Target::Clones(Numbered::new(args, config)?),
        false => Target::Trace(open_output(args, config)?),
    };
    let (events, incoming) = mpsc::channel();
    watch_signals(&events)?;

    let started = Instant::now();
    let mark = (!args.command.is_empty()).then(Mark::new);
    let (session, written) = match service.start(config, &target, mark.as_ref(), Teller(events.clone())) {
        Ok(started) => started,
        Err(failure) => {
            target.discard();
            return Err(failure);
        }
    };
    if let Some(notify) = notify {
        notify.tell(session.wait_started());
    }
    let command = match start_command(args, session.as_ref(), mark, &events) {
        Ok(command) => command,
        Err(failure) => {
            drop(session);
            target.discard();
            return Err(failure);
        }
    };
    if verbose || args.config.is_some() {
        session.notices().iter().for_each(|notice| warn(notice));
    }

    let recording = Recording { session, command, incoming, target, written, started };
    recording.run(config, args)
}

fn open_output(args: &Args, config: &TraceConfig) -> Result<Output, Failure> {
    if args.out.as_deref() == Some(Path::new("-")) {
        return standard_output(args);
    }
    let of_config = config.view().output_path.as_ref().map(PathBuf::from);
    let opened = match args.out.clone().or(of_config) {
        Some(path) if args.perfetto.no_clobber => Output::create(&path).map_err(|error| (path, error)),
        Some(path) => Output::open(path.clone()).map_err(|error| (path, error)),
        None => Output::create_by_time(),
    };
    opened.map_err(|(path, error)| Failure::failed(format_args!("cannot create {}: {error}", path.display())))
}

fn standard_output(args: &Args) -> Result<Output, Failure> {
    if !args.command.is_empty() {
        return Err(Failure::usage("-o -: standard output is the command's; name a file"));
    }
    if args.json {
        return Err(Failure::usage("-o -: with --json the summary goes to standard output; name a file"));
    }
    if io::stdout().is_terminal() {
        return Err(Failure::usage(
            "-o -: standard output is a terminal; name a file, or a pipe to read the trace",
        ));
    }
    Output::standard().map_err(|error| Failure::failed(format_args!("standard output: {error}")))
}

fn watch_signals(events: &Sender<Event>) -> Result<(), Failure> {
    let events = events.clone();
    signals::watch(move |signal| drop(events.send(Event::Signal(signal))))
        .map_err(|error| Failure::failed(format_args!("cannot wait for signals: {error}")))
}

fn start_command(
    args: &Args,
    session: &dyn Session,
    mark: Option<Mark>,
    events: &Sender<Event>,
) -> Result<Option<CommandHandle>, Failure> {
    let Some(mark) = mark else { return Ok(None) };
    // So that its beginning is recorded.
    session.wait_started();
    let running = Running::start(&args.command)?;
    // Not before: see `Mark::begin`.
    let begin_ns = boottime_ns();
    let handle = running.handle();
    mark.begin(&args.command, running.id(), begin_ns);
    // So that it is in the process tree even if it has ended by now: as long as nobody waits for
    // it, /proc has it.
    running.wait_for_name();
    session.command_started();
    let events = events.clone();
    running
        .watch(move |status| {
            if let Ok(status) = status {
                mark.end(status);
            }
            let _ = events.send(Event::CommandEnded(status.map(code)));
        })
        .map_err(|error| Failure::failed(format_args!("cannot wait for the command: {error}")))?;
    Ok(Some(handle))
}

/// A recording under way.
struct Recording {
    session: Box<dyn Session>,
    command: Option<CommandHandle>,
    incoming: Receiver<Event>,
    target: Target,
    written: Written,
    started: Instant,
}

/// Why a recording ended, and what is known of the command by then.
#[derive(Default)]
struct Ended {
    clones: clones::Report,
    end: Option<Box<End>>,
    command: Option<io::Result<u8>>,
    signal: Option<i32>,
    /// The command could not be told of the signal, so its end may be far off.
    leaves_command: bool,
}

impl Recording {
    fn run(self, config: &TraceConfig, args: &Args) -> Result<Exit, Failure> {
        let time_ms = config::time_ms(config);
        let time = (time_ms > 0).then(|| Duration::from_millis(time_ms));
        let progress = Progress::new(time, self.command.is_some());
        let mut ended = Ended::default();
        while ended.end.is_none() {
            match self.next_event(&progress) {
                Some(Event::Taken(taken)) => {
                    progress.around(|| ended.clones.take(&taken, config, args));
                }
                Some(event) => self.handle(event, &mut ended),
                None => {}
            }
        }
        let recorded = self.started.elapsed();
        progress.finish();
        let reported = self.report(config, args, recorded, &mut ended);

        // The time may be up before the command is; its output and its code are passed on all the
        // same.
        while self.command.is_some() && ended.command.is_none() && !ended.leaves_command {
            let Ok(event) = self.incoming.recv() else { break };
            self.handle(event, &mut ended);
        }
        let Reported { failure, json } = reported;
        let written = json.map_or(Ok(()), |line| printed(writeln!(io::stdout(), "{line}")));
        let exit = report::exit(failure, ended.signal, ended.command, args)?;
        written.map(|()| exit)
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
            // None comes behind the session's end.
            Event::Taken(_) => {}
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

    fn report(&self, config: &TraceConfig, args: &Args, time: Duration, ended: &mut Ended) -> Reported {
        let Some(end) = ended.end.as_deref() else { return Reported::default() };
        match &self.target {
            Target::Clones(files) => ended.clones.close(files, args, time, end),
            Target::Trace(output) => {
                let dropped = self.session.packets_dropped();
                Recorded { output, written: &self.written, time, end, dropped }.report(config, args)
            }
        }
    }
}
