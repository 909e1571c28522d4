//! A tracing service in another process, ours or Perfetto's.
//!
//! ```text
//!   record                                                     service
//!
//!   observe, EnableTracing (config, file if it has one)  ---->  refuses it, or has a session
//!   GetTraceStats                                        ---->  known from the reply
//!   StartTracing, if the session was deferred            ---->
//!
//!   thread "session": wait for the end; at a stop  Flush, DisableTracing
//!                     GetTraceStats, ReadBuffers, FreeBuffers
//! ```
//!
//! A session with a trace for each trigger is not read: see `clones`.
//!
//! With `write_into_file` the service gets the output's descriptor and writes by itself. What is in
//! a file by then has to go first, and only if the service takes the config: such a session is
//! started in two steps. An output that cannot be read afterwards (a pipe, standard output) stays
//! here, and the service gets a pipe.

mod clones;
mod destination;
mod offer;
mod run;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use watershed_client::consumer::{ConnectError, Consumer, ConsumerError, ConsumerOptions, Wait, WakeHandle};
use watershed_client::remote::RemoteProducer;
use watershed_shell::address::Address;
use watershed_wire::config::TraceConfig;
use watershed_wire::protos::TraceStats;
use watershed_wire::protos::observable_events::{CloneTriggerHit, Type};
use watershed_wire::raw::Rewrite;

use self::clones::Clones;
use self::destination::Destination;
use self::run::Run;
use super::mark::Mark;
use super::notify::{Notify, start_timeout};
use super::output::Written;
use super::report::{say, warn};
use super::session::{Service, Session, Target, Teller};
use super::{Args, config};
use crate::exit::Failure;
use crate::{connect, sources};

/// How long the reason for a refusal is waited for.
const REASON_TIMEOUT: Duration = Duration::from_secs(10);
/// Field `TraceConfig.deferred_start`.
const DEFERRED_START: u32 = 12;
/// Field `TraceConfig.output_path`.
const OUTPUT_PATH: u32 = 29;

/// A service that has answered.
pub(super) struct Daemon {
    consumer: Consumer,
    /// Where the service listens for others.
    socket: Address,
    /// Data sources that it knows; `None` if it cannot say.
    offered: Option<Vec<String>>,
    /// How long data sources are waited for.
    start_timeout: Duration,
    is_awaited: bool,
    /// Triggers that have come while the data sources were waited for.
    hits: Vec<CloneTriggerHit>,
}

struct Running {
    wake: WakeHandle,
    all_started: bool,
    abandoned: Arc<AtomicBool>,
    /// Marks the command as long as it lives.
    _producer: Option<RemoteProducer>,
}

impl Daemon {
    /// The service that the arguments ask for, or the one that runs; `None`: record without one.
    /// Says which.
    pub(super) fn find(args: &Args, verbose: bool) -> Result<Option<Self>, Failure> {
        if args.no_daemon {
            return Ok(None);
        }
        let must_be = args.daemon || args.socket.is_some();
        let socket = match connect::socket(args.socket.as_ref()) {
            Err(failure) if must_be => return Err(failure),
            Err(_) => {
                warn(&"the name of the service's socket is none; recording without it");
                return Ok(None);
            }
            Ok(socket) => socket,
        };
        let mut consumer = match Consumer::connect(&socket, &ConsumerOptions::default()) {
            Ok(consumer) => consumer,
            Err(error) if must_be => return Err(connect::failure(&error)),
            Err(error @ ConnectError::NotRunning { .. }) => {
                if verbose {
                    say(&format_args!("{error}; recording within this process"));
                }
                return Ok(None);
            }
            Err(error) => {
                warn(&format_args!("{error}; recording without it"));
                return Ok(None);
            }
        };
        let (version, offered) = match consumer.query_state(false) {
            Ok(state) => {
                (state.tracing_service_version().to_owned(), Some(connect::data_source_names(&state)))
            }
            // Older ones cannot be asked.
            Err(ConsumerError::Failed { .. } | ConsumerError::NotSent(_)) => {
                ("of an unknown version".to_owned(), None)
            }
            Err(error) => return Err(Failure::failed(format_args!("{socket}: {error}"))),
        };
        let version = crate::text::printable(&version);
        say(&format_args!("recording with the tracing service on {socket}, {version}"));
        if args.shards.is_some() {
            warn(&"--shards is not used: a service in another process has its own");
        }
        let (start_timeout, is_awaited) = (start_timeout(args), Notify::is_wanted(args));
        Ok(Some(Daemon { consumer, socket, offered, start_timeout, is_awaited, hits: Vec::new() }))
    }

    /// Hands the config over, and has a session or the reason why not.
    fn enable(&mut self, config: &[u8], file: Option<std::fs::File>) -> Result<TraceStats, Failure> {
        self.consumer.enable_tracing(config, file).map_err(|error| match error {
            ConsumerError::NotSent(error) => Failure::usage(format_args!("config: {error}")),
            error => Failure::failed(error),
        })?;
        match self.consumer.stats() {
            Ok(stats) => Ok(stats),
            Err(ConsumerError::Failed { .. }) => Err(self.refused()),
            Err(error) => Err(Failure::failed(error)),
        }
    }

    fn refused(&mut self) -> Failure {
        match self.consumer.wait_end(Some(REASON_TIMEOUT)) {
            Ok(Wait::Ended { error: Some(error) }) => {
                Failure::usage(format_args!("config: {}", crate::text::printable(&error)))
            }
            Ok(_) => Failure::failed("the tracing service has not started the session, and does not say why"),
            Err(error) => Failure::failed(error),
        }
    }

    /// The producer that marks the command, and its name.
    fn offer(&mut self, mark: &Mark) -> Option<(RemoteProducer, String)> {
        offer::offer(mark, &mut self.consumer)
            .inspect_err(|reason| warn(&format_args!("the command is not marked in the trace: {reason}")))
            .ok()
    }

    /// Asks for the events of the session that somebody waits for.
    fn observe(&mut self, start: bool, triggers: bool) -> Result<(), Failure> {
        let start = start.then_some(Type::AllDataSourcesStarted);
        let kinds: Vec<Type> = start.into_iter().chain(triggers.then_some(Type::CloneTriggerHit)).collect();
        match kinds.is_empty() {
            true => Ok(()),
            false => self.consumer.observe_events(&kinds).map_err(Failure::failed),
        }
    }

    /// Whether all data sources have started in time.
    fn wait_started(&mut self) -> Result<bool, ConsumerError> {
        let deadline = Instant::now() + self.start_timeout;
        while let Some(left) = deadline.checked_duration_since(Instant::now())
            && let Some(events) = self.consumer.next_events(left)?
        {
            self.hits.extend(events.clone_trigger_hit.clone());
            if events.all_data_sources_started() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The config for the service: the file comes as a descriptor, whatever its name.
fn for_service(config: &TraceConfig, destination: &Destination) -> Result<TraceConfig, Failure> {
    let mut rewrite = Rewrite::new();
    if !destination.is_read() && config.view().output_path.is_some() {
        rewrite = rewrite.remove(OUTPUT_PATH);
    }
    if destination.holds_something() {
        rewrite = rewrite.set_varint(DEFERRED_START, 1);
    }
    config.rewritten(&rewrite).map_err(|error| Failure::usage(format_args!("config: {error}")))
}

impl Service for Daemon {
    fn check(&mut self, config: &TraceConfig) -> Result<Vec<String>, Failure> {
        match &self.offered {
            Some(offered) => config::check_offered(config, offered, &sources::names()),
            None => Ok(Vec::new()),
        }
    }

    fn start(
        mut self: Box<Self>,
        config: &TraceConfig,
        target: &Target,
        mark: Option<&Mark>,
        teller: Teller,
    ) -> Result<(Box<dyn Session>, Written), Failure> {
        let failed = |error| target.failed(error);
        let (mut destination, written, clones) = match target {
            Target::Trace(output) => {
                let made = Destination::new(output, config.view().write_into_file());
                let (destination, written) = made.map_err(failed)?;
                (destination, written, None)
            }
            Target::Clones(files) => {
                let clones = Clones::new(files.clone(), self.socket.clone(), teller.clone());
                (Destination::Clones, Written::default(), Some(clones))
            }
        };
        let mut config = for_service(config, &destination)?;
        let producer = mark.and_then(|mark| self.offer(mark));
        if let Some((_, name)) = &producer {
            config = Mark::added_to(&config, Some(name))
                .map_err(|error| Failure::usage(format_args!("config: {error}")))?;
        }
        let is_awaited = mark.is_some() || self.is_awaited;
        self.observe(is_awaited, clones.is_some())?;
        let file = destination.for_service().map_err(failed)?;
        let stats_before = self.enable(config.bytes(), file)?;
        destination.clear().map_err(failed)?;
        if config.view().deferred_start() {
            self.consumer.start().map_err(Failure::failed)?;
        }
        let all_started = is_awaited && self.wait_started().map_err(Failure::failed)?;
        let running = Running {
            all_started,
            wake: self.consumer.wake_handle(),
            abandoned: Arc::new(AtomicBool::new(false)),
            _producer: producer.map(|(producer, _)| producer),
        };
        let not_offered = match &self.offered {
            Some(offered) => config::unknown(&config, offered).0.into_iter().map(str::to_owned).collect(),
            None => Vec::new(),
        };
        let abandoned = running.abandoned.clone();
        let view = config.view();
        let mut run = Run::new(self.consumer, destination, abandoned, stats_before, not_offered, view);
        if let Some(clones) = clones {
            run.take_clones(clones, self.hits);
        }
        let run = move || {
            if let Some(end) = run.run() {
                teller.over(end);
            }
        };
        thread::Builder::new()
            .name("session".into())
            .spawn(run)
            .map_err(|error| Failure::failed(format_args!("cannot wait for the session: {error}")))?;
        Ok((Box::new(running), written))
    }
}

impl Session for Running {
    fn wait_started(&self) -> bool {
        // Waited for before the consumer went to its thread.
        self.all_started
    }

    fn command_started(&self) {
        // The process that offers the data source sees it at its next look.
    }

    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    fn stop(&self) {
        self.wake.wake();
    }

    fn packets_dropped(&self) -> u64 {
        0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Relaxed: the wake is a system call that orders it.
        self.abandoned.store(true, Ordering::Relaxed);
        self.wake.wake();
    }
}
