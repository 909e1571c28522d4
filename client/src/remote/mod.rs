//! A producer of a tracing service in another process: a daemon, reached over a Unix socket.
//!
//! ```text
//!   your threads                trace-producer thread                     daemon
//!
//!   RemoteProducer::register    connect, InitializeConnection  -------->
//!      -----------------------> RegisterDataSource             -------->
//!                               DataSource  <-- Command, memory --------
//!   TraceWriter -- chunks ----> Arbiter, CommitData            -------->  moves the chunks
//!                               the connection ends: wait, connect again
//! ```
//!
//! One thread does it all: it waits for the socket, for the data sources' timers and for the
//! program. While there is no service it tries again from time to time, and costs nothing
//! otherwise. With every connection that a service accepts everything starts anew: memory,
//! instances and writers; but what was [traced before it](#tracing-at-startup) belongs to it.
//! Writers of an earlier connection may still be used, and discard what they are given.
//!
//! No call of a writer waits for the service, unless its policy says so. What a socket does not
//! take waits in memory, up to a limit that follows from the number of chunks; beyond it the
//! connection is given up.
//!
//! A child of the program that is forked without `exec` does not trace: its writers discard, and a
//! `RemoteProducer` that it has inherited does nothing. It may make one of its own. It must not be
//! forked by an argument of an event: the shared memory into which the event is being written is
//! not there in the child, which ends when it goes on with the event.
//!
//! # Tracing at startup
//!
//! With [`RemoteOptions::own_memory`] the producer makes the shared memory itself, before there is
//! a service, and [`RemoteProducer::trace_startup`] starts a data source at once. What it writes
//! waits in that memory for the first session with the same config. While it waits nobody frees
//! what it has filled: an instance that fills the memory leaves other sessions of the producer
//! without, until its session comes or its time is over.
//!
//! # Trust
//!
//! The service is trusted as far as the shared memory goes: memory that it made it could truncate.
//! What it sends never causes a panic.
//!
//! ```no_run
//! # use watershed_client::remote::{RemoteOptions, RemoteProducer};
//! # fn run(factory: Box<dyn watershed_client::DataSourceFactory>) -> Result<(), Box<dyn std::error::Error>> {
//! let producer = RemoteProducer::connect(RemoteOptions::from_environment()?, |event| println!("{event:?}"))?;
//! producer.register(factory);
//! # Ok(())
//! # }
//! ```

mod connection;
mod link;
mod options;
mod thread;
mod wakeup;

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

pub use options::{Reconnect, RemoteEvent, RemoteOptions, RemoteStats};
use wakeup::Wakeup;
use watershed_wire::protos::DataSourceConfig;

use crate::arbiter::Waker;
use crate::data_source::DataSourceFactory;
use crate::endpoint::Done;
use crate::producer::StartupError;
use crate::sync::{Arc, Mutex};

/// What the program and the writers want of the thread.
enum Message {
    Register(Box<dyn DataSourceFactory>),
    DescriptorChanged,
    Startup { config: Box<DataSourceConfig>, adopt_within: Duration, reply: Sender<Result<(), StartupError>> },
    Triggers(Vec<String>),
    Sync(Done),
    Commit(Duration),
    Stats(Sender<RemoteStats>),
    ShutDown,
}

/// The way to the thread.
#[derive(Clone)]
struct Inbox {
    messages: Sender<Message>,
    wakeup: Arc<Wakeup>,
}

impl Inbox {
    /// False: the thread has ended.
    fn send(&self, message: Message) -> bool {
        let is_there = self.messages.send(message).is_ok();
        if is_there {
            self.wakeup.wake();
        }
        is_there
    }
}

impl Waker for Inbox {
    fn wake(&self, delay: Duration) {
        self.send(Message::Commit(delay));
    }
}

type EventHandler = Arc<Mutex<dyn FnMut(RemoteEvent) + Send>>;

/// A producer with its thread. Dropping it hands over what has been written, as far as the service
/// takes it within a second, and ends the connection.
pub struct RemoteProducer {
    inbox: Inbox,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process_id: u32,
}

impl std::fmt::Debug for RemoteProducer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteProducer").finish_non_exhaustive()
    }
}

impl RemoteProducer {
    /// Starts a producer without data sources, which connects as soon as there is a service.
    /// `on_event` is called on its thread, and must not wait for it.
    ///
    /// # Errors
    ///
    /// The system's, if it has no thread or no pair of sockets.
    pub fn connect(
        options: RemoteOptions,
        on_event: impl FnMut(RemoteEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let (messages, incoming) = mpsc::channel();
        let inbox = Inbox { messages, wakeup: Arc::new(Wakeup::new()?) };
        let on_event: EventHandler = Arc::new(Mutex::new(on_event));
        let of_thread = inbox.clone();
        let thread = std::thread::Builder::new()
            .name("trace-producer".to_owned())
            .spawn(move || thread::Thread::new(options, of_thread, incoming, on_event).run())?;
        Ok(Self { inbox, thread: Some(thread), process_id: std::process::id() })
    }

    /// Passes a message to the thread; in a child of its process there is none.
    fn send(&self, message: Message) {
        if !self.is_forked() {
            self.inbox.send(message);
        }
    }

    fn is_forked(&self) -> bool {
        self.process_id != std::process::id()
    }

    /// Offers a data source to the service, to every later one too.
    pub fn register(&self, mut factory: Box<dyn DataSourceFactory>) {
        let (inbox, process_id) = (self.inbox.clone(), self.process_id);
        // In a child of the process there is no thread.
        let changed = move || process_id == std::process::id() && inbox.send(Message::DescriptorChanged);
        factory.watch(Box::new(changed));
        self.send(Message::Register(factory));
    }

    /// Starts a registered data source before any session asks for it, also before there is a
    /// service. The first session that sets the data source up with the same config takes the
    /// running instance over, with all that it has written; what the service writes into configs
    /// does not count. If none has come `adopt_within` this time, the instance ends, what it wrote
    /// is lost, and the program is told ([`crate::producer::ProducerEvent::StartupLost`]).
    ///
    /// Returns when the instance has started. It writes as much as the memory holds and drops the
    /// rest, which the next packet of the same writer says that gets through; writers that it makes
    /// before its session has started it drop whatever the policy of that session's config. Needs
    /// [`RemoteOptions::own_memory`].
    ///
    /// # Errors
    ///
    /// [`StartupError`].
    pub fn trace_startup(
        &self,
        config: DataSourceConfig,
        adopt_within: Duration,
    ) -> Result<(), StartupError> {
        let (reply, started) = mpsc::channel();
        self.send(Message::Startup { config: Box::new(config), adopt_within, reply });
        started.recv().unwrap_or(Err(StartupError::Ended))
    }

    /// Fires triggers, if there is a service.
    pub fn activate_triggers(&self, names: &[String]) {
        self.send(Message::Triggers(names.to_vec()));
    }

    /// Waits until the service has processed everything before, registrations and triggers of this
    /// thread included. False when it has not within `timeout`, or when there is none.
    #[must_use]
    pub fn sync(&self, timeout: Duration) -> bool {
        let (reply, synced) = mpsc::channel();
        let done = move || {
            let _ = reply.send(());
        };
        self.send(Message::Sync(Box::new(done)));
        synced.recv_timeout(timeout).is_ok()
    }

    /// What was done so far. Zeros after the thread's end.
    #[must_use]
    pub fn stats(&self) -> RemoteStats {
        let (reply, stats) = mpsc::channel();
        self.send(Message::Stats(reply));
        stats.recv().unwrap_or_default()
    }
}

impl Drop for RemoteProducer {
    fn drop(&mut self) {
        if self.is_forked() {
            // Nobody will ever end that thread here.
            return std::mem::forget(self.thread.take());
        }
        self.send(Message::ShutDown);
        if let Some(thread) = self.thread.take() {
            // A panic of a data source was reported when it happened.
            let _ = thread.join();
        }
    }
}
