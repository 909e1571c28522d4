//! The tracing service in this process, with the data sources of this machine.

use std::thread;
use std::time::Duration;

use watershed_client::in_process::{
    self, InProcess, InProcessOptions, Session as InProcessSession, Shards, Sink, StartError,
};
use watershed_client::producer::ProducerEvent;
use watershed_probes::{Notices, ScanRequest};
use watershed_wire::config::TraceConfig;

use super::end::End;
use super::mark::Mark;
use super::notify::start_timeout;
use super::output::Written;
use super::report::warn;
use super::session::{Service, Session, Target, Teller};
use super::{Args, config};
use crate::exit::Failure;
use crate::{machine, sources};

/// Looking for the command in /proc takes milliseconds on an idle machine. Beside compilers on all
/// CPUs 200 ms were seen not to be enough, and the command was missed; a machine on which this is
/// not enough is not waited for.
const SCAN_TIMEOUT: Duration = Duration::from_secs(2);

/// This process as a tracing machine: service, producer, data sources.
pub(super) struct Embedded {
    in_process: InProcess,
    notices: Notices,
    scan_request: ScanRequest,
    /// A data source that takes longer to start is not waited for.
    start_timeout: Duration,
}

struct Running {
    service: Embedded,
    session: InProcessSession,
}

impl Embedded {
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
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
        for factory in sources::all(&notices, &scan_request) {
            in_process.register(factory);
        }
        Ok(Embedded { in_process, notices, scan_request, start_timeout: start_timeout(args) })
    }
}

impl Service for Embedded {
    fn check(&mut self, config: &TraceConfig) -> Result<Vec<String>, Failure> {
        config::check_triggers(config)?;
        config::check_data_sources(config, &self.in_process.data_source_names())
    }

    fn start(
        self: Box<Self>,
        config: &TraceConfig,
        target: &Target,
        mark: Option<&Mark>,
        teller: Teller,
    ) -> Result<(Box<dyn Session>, Written), Failure> {
        let Target::Trace(output) = target else { return Err(config::nobody_triggers()) };
        let (trace_file, written) = output.writer().map_err(|error| target.failed(error))?;
        let config = match mark {
            None => config.clone(),
            Some(mark) => {
                self.in_process.register(mark.factory());
                Mark::added_to(config, None)
                    .map_err(|error| Failure::usage(format_args!("config: {error}")))?
            }
        };
        let session = self.in_process.start_session(config.bytes(), Sink::writer(trace_file));
        let session = session.map_err(|error| refused(&error))?;
        // With deferred_start it is ready and waits; there is nobody else to start it.
        session.start();
        let awaited = session.clone();
        let wait = move || teller.over(End::from(&*awaited.wait()));
        thread::Builder::new()
            .name("session".into())
            .spawn(wait)
            .map_err(|error| Failure::failed(format_args!("cannot wait for the session: {error}")))?;
        Ok((Box::new(Running { service: *self, session }), written))
    }
}

impl Session for Running {
    fn wait_started(&self) -> bool {
        self.session.wait_all_started(self.service.start_timeout)
    }

    fn command_started(&self) {
        self.service.scan_request.raise();
        let _ = self.session.flush_and_wait(SCAN_TIMEOUT);
    }

    fn notices(&self) -> Vec<String> {
        self.wait_started();
        self.service.notices.take().iter().map(ToString::to_string).collect()
    }

    fn stop(&self) {
        self.session.stop();
    }

    fn packets_dropped(&self) -> u64 {
        self.service.in_process.arbiter_stats().packets_dropped
    }
}

fn refused(error: &StartError) -> Failure {
    match error {
        StartError::Config(_) | StartError::DataSource { .. } => {
            Failure::usage(format_args!("config: {error}"))
        }
        _ => Failure::failed(error),
    }
}
