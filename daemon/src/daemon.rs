//! The daemon as its program sees it: made with its sockets, run, stopped.

use std::num::NonZero;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;

use mio::Poll;
use watershed_service::{Service, ServiceOptions, WorkerPool};
use watershed_shell::address::Address;
use watershed_shell::machine;
use watershed_shell::read_pool::read_pool;
use watershed_smb::SharedMemory;

use crate::core::Core;
use crate::event_loop::{EventLoop, WAKER};
use crate::files::Files;
use crate::heap;
use crate::listen::Listener;
use crate::log::Log;
use crate::options::{DaemonError, DaemonOptions, FilePermissions};
use crate::polling::Polling;
use crate::turns;
use crate::waiting::WaitingThreads;
use crate::wake::{Stopper, Wake};

/// A tracing service behind Unix sockets.
#[derive(Debug)]
pub struct Daemon {
    event_loop: EventLoop,
    workers: Option<WorkerPool>,
    pin_workers: bool,
}

impl Daemon {
    /// Makes the sockets. From here on peers can connect; they are served once [`Daemon::run`] is
    /// called. `log` gets lines for the operator.
    ///
    /// A daemon has a process of its own: with glibc, all threads that are started from here on
    /// share one heap, which grows in steps of 4 MiB.
    ///
    /// # Errors
    ///
    /// [`DaemonError`]; then nothing is left behind.
    pub fn new(
        options: DaemonOptions,
        log: impl FnMut(&str) + Send + 'static,
    ) -> Result<Daemon, DaemonError> {
        Daemon::with_sockets(options, Vec::new(), log)
    }

    /// As [`Daemon::new`], with sockets that listen already, as a service manager passes them. Each
    /// is at one of the addresses of `options`, which is then not bound. Its permissions are the
    /// manager's, and so is its file: that stays at the end, and who connects then starts the
    /// service again.
    ///
    /// # Errors
    ///
    /// As there, and [`DaemonError::PassedSocket`].
    pub fn with_sockets(
        options: DaemonOptions,
        mut passed: Vec<UnixListener>,
        log: impl FnMut(&str) + Send + 'static,
    ) -> Result<Daemon, DaemonError> {
        if options.producer_sockets.is_empty() {
            return Err(DaemonError::NoProducerSocket);
        }
        heap::grow_in_steps();
        let poll = Poll::new()?;
        let wake = Arc::new(Wake::new(poll.registry(), WAKER)?);
        let (for_producers, for_consumers) = match &options.permissions {
            Some(permissions) => (&permissions.producer, &permissions.consumer),
            None => (&FilePermissions::PRODUCER_DEFAULT, &FilePermissions::CONSUMER_DEFAULT),
        };
        let mut listeners =
            vec![Listener::take_or_bind(&options.consumer_socket, for_consumers, &mut passed)?];
        for address in &options.producer_sockets {
            listeners.push(Listener::take_or_bind(address, for_producers, &mut passed)?);
        }
        if let Some(unwanted) = passed.first() {
            return Err(DaemonError::PassedSocket { address: Address::of_listener(unwanted) });
        }
        let workers = (options.num_workers > 0).then(|| WorkerPool::new(options.num_workers));
        if let Some(workers) = &workers {
            let (for_room, for_ready) = (Arc::clone(&wake), Arc::clone(&wake));
            workers.on_room(move || for_room.tell_room());
            workers.on_ready(move || for_ready.tell_ready());
            turns::wake_for_work(workers, &wake);
        }
        let service = Service::new(ServiceOptions {
            seed: machine::seed(),
            uid: machine::identity().uid,
            version: options.version,
            system: options.system,
            scraping_by_default: false,
            huge_pages: options.huge_pages,
            shards: options.shards,
            workers: workers.clone(),
            memory: Box::new(|size_bytes| SharedMemory::create(size_bytes).map(Arc::new)),
            read_pool: read_pool(),
            never_waits: true,
            filter_clock: Some(machine::monotonic_ns),
        });
        let num_cpus = thread::available_parallelism().map_or(1, NonZero::get);
        let core = Core {
            service,
            files: Files::new(Arc::clone(&wake)),
            waiting: WaitingThreads::new(Arc::clone(&wake)),
            log: Log::new(Box::new(log)),
            output_folder: options.output_folder,
            polling: Arc::new(Polling::new(num_cpus)),
        };
        let event_loop = EventLoop::new(poll, wake, listeners, core)?;
        Ok(Daemon { event_loop, workers, pin_workers: options.pin_workers })
    }

    /// What stops [`Daemon::run`].
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.event_loop.wake))
    }

    /// Serves until it is stopped. Then files of running sessions are completed, and the sockets
    /// are removed.
    ///
    /// # Errors
    ///
    /// [`DaemonError::Workers`] and [`DaemonError::Events`].
    pub fn run(self) -> Result<(), DaemonError> {
        turns::run(self.event_loop, self.workers, self.pin_workers)
    }
}
