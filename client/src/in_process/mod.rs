//! Producer, service and consumer in one process: no daemon, no sockets.
//!
//! ```text
//!   your threads          trace-producer thread            trace-service thread
//!
//!   InProcess::register -> DataSourceFactory  --Endpoint-->  Service (the same core as the daemon's)
//!   start_session  -------------------------------------->     |
//!                          DataSource, Arbiter  <--Command--    |   shared memory, ring buffers
//!   TraceWriter  ------ commits, by a committer of its own -->   |
//!   Session::stop, wait <---------------------------------   Sink (file)
//! ```
//!
//! Both threads sleep while nothing is due. In large reads, as at the end of a session, a pool of
//! threads (`trace-read-0` and so on, made at the first) extracts what the service's thread writes.
//! Files that the config wants compressed are written by a thread `trace-file`, made at the first.
//! The producer talks to the service through the same seam as across processes
//! ([`crate::Endpoint`], [`crate::producer::Command`]), so a data source that runs here runs behind
//! a socket as well.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use watershed_client::in_process::{InProcess, InProcessOptions, Sink};
//! # fn run(factory: Box<dyn watershed_client::DataSourceFactory>, config: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! let backend = InProcess::new(InProcessOptions::default())?;
//! backend.register(factory);
//! let session = backend.start_session(config, Sink::File(std::fs::File::create("trace.pftrace")?))?;
//! let end = match session.wait_timeout(Duration::from_secs(10)) {
//!     Some(end) => end,
//!     None => {
//!         session.stop();
//!         session.wait()
//!     }
//! };
//! println!("{} bytes", end.bytes_written);
//! # Ok(())
//! # }
//! ```

mod endpoint;
mod files;
mod live;
mod session;
mod shell;

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use thiserror::Error;
use watershed_service::{
    ConnectError, ProducerHello, ProducerId, ProducerMemory, ScrapingMode, Service, ServiceOptions,
    SystemInfo, Warning,
};
use watershed_shell::read_pool::read_pool;
use watershed_shell::{machine, trace_file};
use watershed_smb::{SharedMemory, SmbSize};
use watershed_wire::Decode as _;
use watershed_wire::protos::TraceConfig;

use crate::arbiter::ArbiterStats;
use crate::data_source::DataSourceFactory;
use crate::producer::{BATCH_COMMITS, Producer, ProducerEvent, ProducerOptions, program_name};
use crate::sync::{Arc, Mutex, lock};
use endpoint::QueueEndpoint;
pub use session::{Session, SessionEnd, StartError};
use shell::{Request, Shell};
pub use watershed_service::{MAX_SHARDS, Shards, Unread};
pub use watershed_shell::machine::system_info;
pub use watershed_shell::trace_file::{Sink, WriteSend};

/// What a backend has to tell its program while it runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The service goes on, but a person should be told.
    Warning(Warning),
    /// A producer's.
    Producer(ProducerEvent),
}

/// How the backend works.
#[derive(Debug)]
pub struct InProcessOptions {
    /// Name of the producer of this process: the program's by default.
    pub producer_name: String,
    /// Sizes of the memory between writers and service, unless a session's config asks for others
    /// before the first instance is made: 4 MiB in pages of 4 KiB by default. Every thread that
    /// writes holds one page.
    pub smb_size: SmbSize,
    /// The producer's options. Chunks do not wait to be committed: the thread that has filled one
    /// copies it into the buffer. What is told of writers that begin and end waits 5 ms for others.
    pub producer: ProducerOptions,
    /// What traces say about the machine.
    pub system: SystemInfo,
    /// Over how many shards buffers are spread: by default up to one for each CPU that this process
    /// may keep busy, by affinity and by the control group's quota.
    pub shards: Shards,
}

impl Default for InProcessOptions {
    fn default() -> Self {
        let mut producer = ProducerOptions::default();
        producer.arbiter.batch_commits_duration = BATCH_COMMITS;
        Self {
            producer_name: program_name(),
            smb_size: SmbSize::negotiate(4096, 4 << 20),
            producer,
            system: system_info(),
            shards: machine::default_shards(),
        }
    }
}

/// Why the backend could not be made.
#[derive(Debug, Error)]
pub enum InProcessError {
    /// The system has no thread for it.
    #[error("no thread for the tracing service: {0}")]
    Thread(#[from] io::Error),
    /// The service has no room for the producer.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The service's thread ended at once.
    #[error("the tracing service has ended")]
    Ended,
}

type EventHandler = Arc<Mutex<dyn FnMut(Event) + Send>>;

/// The backend: a producer and a service with a thread each. Dropping it ends both, and with them
/// the sessions.
#[derive(Debug)]
pub struct InProcess {
    // In the order of dropping: the producer hands over what it has, then the service ends.
    producer: Option<Producer>,
    producer_id: ProducerId,
    requests: Sender<Request>,
    service: Option<JoinHandle<()>>,
}

impl InProcess {
    /// A backend without data sources. What there is to tell is not told.
    ///
    /// # Errors
    ///
    /// [`InProcessError`].
    pub fn new(options: InProcessOptions) -> Result<Self, InProcessError> {
        Self::with_events(options, |_| {})
    }

    /// A backend without data sources. `on_event` is called on one of its threads, and must not
    /// wait for the other one.
    ///
    /// # Errors
    ///
    /// [`InProcessError`].
    pub fn with_events(
        options: InProcessOptions,
        on_event: impl FnMut(Event) + Send + 'static,
    ) -> Result<Self, InProcessError> {
        let on_event: EventHandler = Arc::new(Mutex::new(on_event));
        let (requests, queue) = mpsc::channel();
        let service = Service::new(service_options(options.system, options.shards));
        let direct = service.direct_commits();
        let tell = on_event.clone();
        let shell = Shell::new(service, Box::new(move |event| lock(&tell)(event)));
        let thread =
            std::thread::Builder::new().name("trace-service".to_owned()).spawn(move || shell.run(&queue))?;

        let hello = hello(options.producer_name, options.smb_size);
        let (reply, connected) = mpsc::channel();
        let _ = requests.send(Request::Connect { hello: Box::new(hello), reply });
        let producer_id = connected.recv().map_err(|_| InProcessError::Ended)??;
        // Not before: the queue ends when nobody is left who could put something in.
        let wanted = requests.clone();
        direct.on_wanted(move || {
            let _ = wanted.send(Request::Wanted);
        });
        let endpoint = Arc::new(QueueEndpoint::new(producer_id, requests.clone(), direct));
        let producer = Producer::spawn(
            endpoint,
            options.producer,
            Box::new(move |event| lock(&on_event)(Event::Producer(event))),
        );
        let producer = match producer {
            Ok(producer) => producer,
            Err(error) => {
                let _ = requests.send(Request::ShutDown);
                return Err(error.into());
            }
        };
        let _ = requests.send(Request::Attach(producer_id, producer.commands()));
        Ok(Self { producer: Some(producer), producer_id, requests, service: Some(thread) })
    }

    fn producer(&self) -> &Producer {
        // Taken only by `drop`.
        self.producer.as_ref().expect("the producer lives as long as the backend")
    }

    /// Offers a data source to sessions; those that run already and ask for it get it too.
    pub fn register(&self, factory: Box<dyn DataSourceFactory>) {
        self.producer().register(factory);
    }

    /// Names of the data sources that sessions can ask for, in the order of registration.
    #[must_use]
    pub fn data_source_names(&self) -> Vec<String> {
        // Behind the registrations that are under way.
        let _ = self.producer().check(Vec::new());
        let (reply, names) = mpsc::channel();
        let _ = self.requests.send(Request::DataSources(reply));
        names.recv().unwrap_or_default()
    }

    /// Starts a session (or with `deferred_start` makes one ready to). `config` is a binary
    /// `TraceConfig`, which goes into the trace as it is. Without `write_into_file` the sink gets
    /// everything at the end of the session; with it, at the intervals of the config. Then the sink
    /// may be [`Sink::Buffers`] if the config has an `output_path`, where a file is created that
    /// must not exist; another sink takes the trace in place of that file.
    ///
    /// Data sources that the config names and nobody has are no error: see
    /// [`InProcess::data_source_names`].
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing was recorded.
    pub fn start_session(&self, config: &[u8], sink: Sink) -> Result<Session, StartError> {
        self.check_data_sources(config)?;
        let notices = Arc::default();
        let (reply, enabled) = mpsc::channel();
        let _ = self.requests.send(Request::Enable {
            config: config.to_vec(),
            output: trace_file::Output::new(sink),
            notices: Arc::clone(&notices),
            requests: self.requests.clone(),
            reply,
        });
        let consumer_id = enabled.recv().map_err(|_| StartError::Ended)??;
        Ok(Session::new(self.requests.clone(), consumer_id, notices))
    }

    /// Also a barrier: data sources that were registered before are known to the service
    /// afterwards.
    fn check_data_sources(&self, config: &[u8]) -> Result<(), StartError> {
        let sources = config_of(config).map(|config| config.data_sources).unwrap_or_default();
        let configs = sources.into_iter().filter_map(|source| source.config).collect();
        match self.producer().check(configs) {
            Some((name, reason)) => Err(StartError::DataSource { name, reason }),
            None => Ok(()),
        }
    }

    /// What the arbiter between writers and service did so far.
    #[must_use]
    pub fn arbiter_stats(&self) -> ArbiterStats {
        self.producer().stats()
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.producer = None;
        let _ = self.requests.send(Request::Disconnect(self.producer_id));
        let _ = self.requests.send(Request::ShutDown);
        if let Some(service) = self.service.take() {
            // A panic was reported when it happened.
            let _ = service.join();
        }
    }
}

/// The config as far as the shell reads it; `None` if it is damaged, which is for the service to
/// say.
fn config_of(config: &[u8]) -> Option<TraceConfig> {
    TraceConfig::decode(config).ok()
}

fn service_options(system: SystemInfo, shards: Shards) -> ServiceOptions {
    ServiceOptions {
        seed: machine::seed(),
        uid: machine::identity().uid,
        version: machine::service_version(),
        system,
        scraping_by_default: true,
        huge_pages: watershed_service::HugePages::Advise,
        shards,
        workers: None,
        memory: Box::new(|size_bytes| SharedMemory::anonymous(size_bytes).map(Arc::new)),
        read_pool: read_pool(),
        never_waits: false,
        filter_clock: Some(machine::monotonic_ns),
    }
}

fn hello(name: String, size: SmbSize) -> ProducerHello {
    ProducerHello {
        identity: machine::identity(),
        name,
        sdk_version: format!("watershed-{}", env!("CARGO_PKG_VERSION")),
        page_size_hint_bytes: size.page_size_bytes(),
        shm_size_hint_bytes: size.size_bytes(),
        scraping: ScrapingMode::Enabled,
        memory: ProducerMemory::FromService,
    }
}
