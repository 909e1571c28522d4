//! The loop: one thread waits for everything, and gives each connection a bounded turn.
//!
//! ```text
//!     +--> wait: sockets, a timer of the service, a peer that takes nothing, other threads, a stop
//!     |      |
//!     |    accept new connections; room in a queue: commits that wait are tried again; a shard is
//!     |      |  free or drained: statistics that wait go on
//!     |      |
//!     |    each listed connection: receive once, handle up to 256 calls          -+
//!     |      |                                                                    | outputs of a call
//!     |    timers that are due                                                    | are delivered
//!     |      |                                                                    | before the next
//!     |    files, reads, clones: results of their threads, what is to be done     -+
//!     |      |
//!     |    each listed connection: begin to read for it, send what it takes, close it if it does not
//!     |      |
//!     |    clones and drops: handed to the threads that may wait
//!     |      |
//!     +-- nothing left to do at once? then go on with what commits have left (handle_idle), and
//!         have pages of rings made ready
//! ```
//!
//! Listed is whoever has something to do ([`Peers`]): the others cost nothing.

use std::io;
use std::mem;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use watershed_service::{ClockReadings, Output, Service, ServiceOptions, Topology, WorkerPool};
use watershed_shell::address::Address;
use watershed_shell::machine::{self, read_clocks};
use watershed_shell::read_pool::read_pool;
use watershed_shell::socket::peer_credentials;
use watershed_smb::SharedMemory;
use watershed_wire::framing::RECEIVE_SIZE_BYTES_MAX;

use crate::connection::{Closed, Connection, Ready};
use crate::consumer_port::{self, ConsumerPort};
use crate::core::Core;
use crate::files::Files;
use crate::listen::Listener;
use crate::log::{Log, Topic};
use crate::options::{DaemonError, DaemonOptions, FilePermissions};
use crate::peer::Peer;
use crate::peers::Peers;
use crate::producer_port::{self, ProducerPort};
use crate::status::Status;
use crate::waiting::{Job, JobResult, WaitingThreads};
use crate::wake::{Stopper, Wake};

/// Calls of one connection in one turn.
const CALLS_PER_TURN: usize = 256;
/// Connections accepted in one turn from one socket.
const ACCEPTS_PER_TURN: usize = 64;
const EVENTS_PER_WAIT: usize = 1024;
/// Time until connections are accepted again that there were no descriptors or no memory for.
const ACCEPT_RETRY_NS: u64 = 100_000_000;
/// At the end it is looked so often whether workers have done what files wait for, and whether
/// files have taken something.
const SHARD_POLL_INTERVAL: Duration = Duration::from_micros(200);
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(50);
const WAKER: Token = Token(0);
/// Listening sockets, then connections.
const FIRST_LISTENER: usize = 1;

/// A tracing service behind Unix sockets.
#[derive(Debug)]
pub struct Daemon {
    poll: Poll,
    wake: Arc<Wake>,
    /// The consumers' socket, then the producers'.
    listeners: Vec<Listening>,
    core: Core,
    peers: Peers,
    last_token: usize,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Listening {
    listener: Listener,
    /// Somebody may wait to be accepted.
    is_ready: bool,
    /// When to try again, from the first who could not be accepted until nobody waits. No event
    /// tells of those who wait since before, nor of a descriptor that comes free.
    retry_at_ns: Option<u64>,
}

impl Daemon {
    /// Makes the sockets. From here on peers can connect; they are served once [`Daemon::run`] is
    /// called. `log` gets lines for the operator.
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
        mut log: impl FnMut(&str) + Send + 'static,
    ) -> Result<Daemon, DaemonError> {
        if options.producer_sockets.is_empty() {
            return Err(DaemonError::NoProducerSocket);
        }
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
        for (index, listener) in listeners.iter_mut().enumerate() {
            let token = Token(FIRST_LISTENER + index);
            poll.registry().register(&mut listener.socket, token, Interest::READABLE)?;
        }
        let num_workers = options.num_workers;
        let start = || WorkerPool::start(num_workers, &Topology::of_this_process(), options.pin_workers);
        let workers = (num_workers > 0).then(start).transpose();
        let workers = workers.map_err(|error| DaemonError::Workers { num_workers, error })?;
        if let Some(workers) = &workers {
            let (for_room, for_ready) = (Arc::clone(&wake), Arc::clone(&wake));
            workers.on_room(move || for_room.tell_room());
            workers.on_ready(move || for_ready.tell_ready());
            let (num_pinned, num_workers) = (workers.num_pinned(), workers.num_workers());
            if options.pin_workers && num_pinned < num_workers {
                log(&format!("the system lets {num_pinned} of {num_workers} workers be pinned to a CPU"));
            }
        }
        let last_token = FIRST_LISTENER + listeners.len();
        let service = Service::new(ServiceOptions {
            seed: machine::seed(),
            uid: machine::identity().uid,
            version: options.version,
            system: options.system,
            scraping_by_default: false,
            huge_pages: options.huge_pages,
            shards: options.shards,
            workers,
            memory: Box::new(|size_bytes| SharedMemory::create(size_bytes).map(Arc::new)),
            read_pool: read_pool(),
            never_waits: true,
            filter_clock: Some(machine::monotonic_ns),
        });
        let core = Core {
            service,
            files: Files::new(Arc::clone(&wake)),
            waiting: WaitingThreads::new(Arc::clone(&wake)),
            log: Log::new(Box::new(log)),
            output_folder: options.output_folder,
        };
        Ok(Daemon {
            poll,
            wake,
            listeners: listeners
                .into_iter()
                .map(|listener| Listening { listener, is_ready: false, retry_at_ns: None })
                .collect(),
            core,
            peers: Peers::default(),
            last_token,
            scratch: vec![0; RECEIVE_SIZE_BYTES_MAX],
        })
    }

    /// What stops [`Daemon::run`].
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.wake))
    }

    /// Serves until it is stopped. Then files of running sessions are completed, and the sockets
    /// are removed.
    ///
    /// # Errors
    ///
    /// [`DaemonError::Events`].
    pub fn run(mut self) -> Result<(), DaemonError> {
        let mut events = Events::with_capacity(EVENTS_PER_WAIT);
        while !self.wake.is_stop_wanted() {
            self.wait(&mut events)?;
            let now = read_clocks();
            self.take_events(&events);
            self.accept(&now);
            if self.wake.take_room() {
                self.core.service.retry_commits();
            }
            if self.wake.take_ready() {
                self.core.service.handle_ready();
            }
            self.handle_calls(&now);
            self.core.service.handle_timeout(&now);
            self.deliver(&now);
            self.work_on_files(&now);
            self.send(&now);
            self.hand_out();
            if self.wake.take_status_wanted() {
                self.tell_status();
            }
        }
        self.shut_down();
        Ok(())
    }

    /// One line about how it goes.
    fn tell_status(&mut self) {
        let status = Status::of(&self.core.service, self.core.waiting.num_under_way());
        self.core.log.answer(format_args!("{status}"));
    }

    /// Waits until there is something to do.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let mut timeout = if self.has_work() { Some(Duration::ZERO) } else { self.until_next() };
        if timeout != Some(Duration::ZERO) && self.core.service.handle_idle() {
            timeout = Some(Duration::ZERO);
        }
        if timeout != Some(Duration::ZERO)
            && let Some(work) = self.core.service.poll_prefault()
        {
            self.core.waiting.begin(Job::Prefault(work));
        }
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether there is something to do that no event will announce.
    fn has_work(&self) -> bool {
        self.peers.has_listed()
            || self.listeners.iter().any(|listening| listening.is_ready)
            || self.core.service.has_file_work()
    }

    /// How long nothing is due; `None`: until the next event.
    fn until_next(&self) -> Option<Duration> {
        let now = read_clocks();
        let timer_ns = self.core.service.poll_timeout().wait_ns(&now);
        let retries_at_ns = self.listeners.iter().filter_map(|listening| listening.retry_at_ns);
        let deadlines_ns = retries_at_ns.chain(self.peers.next_deadline_ns());
        let waits_ns = deadlines_ns.map(|deadline_ns| deadline_ns.saturating_sub(now.monotonic_ns));
        waits_ns.chain(timer_ns).min().map(Duration::from_nanos)
    }

    fn take_events(&mut self, events: &Events) {
        for event in events {
            let token = event.token();
            if let Some(listening) =
                token.0.checked_sub(FIRST_LISTENER).and_then(|index| self.listeners.get_mut(index))
            {
                listening.is_ready = true;
            } else if let Some(peer) = self.peers.list(token) {
                peer.note_ready(Ready {
                    readable: event.is_readable(),
                    read_closed: event.is_read_closed() || event.is_error(),
                    writable: event.is_writable() || event.is_write_closed(),
                });
            }
        }
    }

    fn accept(&mut self, now: &ClockReadings) {
        for index in 0..self.listeners.len() {
            let listening = &mut self.listeners[index];
            listening.is_ready |= listening.retry_at_ns.is_some_and(|at_ns| at_ns <= now.monotonic_ns);
            for _ in 0..ACCEPTS_PER_TURN {
                let listening = &mut self.listeners[index];
                if !listening.is_ready {
                    break;
                }
                match listening.listener.socket.accept() {
                    Ok((socket, _)) => self.add_peer(socket, index == 0, now),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        (listening.is_ready, listening.retry_at_ns) = (false, None);
                    }
                    // The peer has gone already.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    // No descriptors or no memory.
                    Err(error) => {
                        let retry_at_ns = now.monotonic_ns.saturating_add(ACCEPT_RETRY_NS);
                        listening.is_ready = false;
                        if listening.retry_at_ns.replace(retry_at_ns).is_none() {
                            let line = format_args!("cannot accept a connection: {error}");
                            self.core.log.line(now.monotonic_ns, Topic::Accepting, None, line);
                        }
                    }
                }
            }
        }
    }

    fn add_peer(&mut self, mut socket: mio::net::UnixStream, is_consumer: bool, now: &ClockReadings) {
        self.last_token += 1;
        let token = Token(self.last_token);
        let both = Interest::READABLE | Interest::WRITABLE;
        let credentials = peer_credentials(&socket)
            .and_then(|peer| self.poll.registry().register(&mut socket, token, both).map(|()| peer));
        let credentials = match credentials {
            Ok(credentials) => credentials,
            Err(error) => return self.log_refused(&error, now),
        };
        let peer = if is_consumer {
            let connection = Connection::new(socket, credentials, consumer_port::SEND_LIMIT_MS);
            let port = match ConsumerPort::new(connection, &mut self.core) {
                Ok(port) => port,
                // The connection is gone with its value.
                Err(refused) => return self.log_refused(&refused, now),
            };
            Peer::Consumer(Box::new(port))
        } else {
            let connection = Connection::new(socket, credentials, producer_port::SEND_LIMIT_MS);
            Peer::Producer(Box::new(ProducerPort::new(connection)))
        };
        self.peers.add(token, peer);
    }

    fn log_refused(&mut self, why: &dyn std::error::Error, now: &ClockReadings) {
        let line = format_args!("a connection is closed: {why}");
        self.core.log.line(now.monotonic_ns, Topic::Refused, None, line);
    }

    /// Gives each connection that has work its turn.
    fn handle_calls(&mut self, now: &ClockReadings) {
        self.peers.list_overdue(now.monotonic_ns);
        for token in self.peers.listed() {
            if let Err(why) = self.take_turn(token, now) {
                self.close(token, &why, now);
            }
        }
    }

    fn take_turn(&mut self, token: Token, now: &ClockReadings) -> Result<(), Closed> {
        if let Some(peer) = self.peers.get_mut(token) {
            peer.receive(&mut self.scratch)?;
        }
        for _ in 0..CALLS_PER_TURN {
            let Some(peer) = self.peers.get_mut(token) else { return Ok(()) };
            if !peer.handle_next(&mut self.core, now)? {
                return Ok(());
            }
            if let Peer::Producer(port) = peer
                && let Some(producer_id) = port.producer_id
            {
                self.peers.note_producer(producer_id, token);
            }
            self.deliver(now);
        }
        Ok(())
    }

    /// Hands what the service puts out to those whom it is for.
    fn deliver(&mut self, now: &ClockReadings) {
        while let Some(output) = self.core.service.poll_output() {
            let delivered = match output {
                Output::Producer(producer_id, command) => {
                    let port = self.peers.list_producer(producer_id);
                    port.map(|(token, port)| (token, port.command(command, &mut self.core, now)))
                }
                Output::Consumer(consumer_id, event) => {
                    let port = self.peers.list_consumer(consumer_id);
                    port.map(|(token, port)| (token, port.event(event, &mut self.core)))
                }
                Output::Warning(warning) => {
                    let topic = Topic::Warning(mem::discriminant(&warning));
                    self.core.log.line(now.monotonic_ns, topic, None, format_args!("{warning}"));
                    None
                }
            };
            if let Some((token, Err(why))) = delivered {
                self.close(token, &why, now);
            }
        }
    }

    fn work_on_files(&mut self, now: &ClockReadings) {
        self.take_results(now);
        while self.core.files.take_result(&mut self.core.service, now) {
            self.deliver(now);
        }
        self.core.files.hand_out(&mut self.core.service, now);
        self.deliver(now);
    }

    /// Hands out what the loop would have to wait for.
    fn hand_out(&mut self) {
        let Core { service, waiting, .. } = &mut self.core;
        while waiting.takes_clones()
            && let Some(work) = service.poll_clone()
        {
            waiting.begin(Job::Clone(work));
        }
        while let Some(dropped) = service.poll_dropped() {
            waiting.begin(Job::Drop(dropped));
        }
    }

    /// Takes what came of jobs that may have waited.
    fn take_results(&mut self, now: &ClockReadings) {
        while let Some(result) = self.core.waiting.take_result() {
            match result {
                JobResult::Clone(done) => self.core.service.handle_clone_work(done, now),
                JobResult::Prefault(done) => self.core.service.handle_prefaulted(done),
                JobResult::Read(done) => {
                    let consumer_id = done.consumer_id();
                    let (packets, progress) = self.core.service.handle_read(done, now);
                    let port = self.peers.list_consumer(consumer_id);
                    if let Some((token, Err(why))) =
                        port.map(|(token, port)| (token, port.take_read(packets, progress)))
                    {
                        self.close(token, &why, now);
                    }
                }
            }
            self.deliver(now);
        }
    }

    /// Reads for consumers, and sends what sockets take.
    fn send(&mut self, now: &ClockReadings) {
        for token in self.peers.take_listed() {
            let sent = self.peers.get_mut(token).map(|peer| peer.send(&mut self.core, now));
            match sent {
                Some(Err(why)) => self.close(token, &why, now),
                _ => self.peers.settle(token, now.monotonic_ns),
            }
        }
        // Reading makes events: the file of another session is never touched by it, but a warning
        // may come of it.
        self.deliver(now);
        // Room may have been made by who looked at a buffer, too.
        let service = &mut self.core.service;
        let waits_ns = self.peers.release(now.monotonic_ns, |producer_id| service.is_waiting(producer_id));
        waits_ns.into_iter().for_each(|wait_ns| service.note_producer_wait(wait_ns));
    }

    /// Ends a connection, as if its peer had done so.
    fn close(&mut self, token: Token, why: &Closed, now: &ClockReadings) {
        let Some(mut peer) = self.peers.remove(token) else { return };
        if !matches!(why, Closed::ByPeer) {
            let (topic, line) =
                (Topic::Closed(mem::discriminant(why)), format_args!("{peer}: closed: {why}"));
            self.core.log.line(now.monotonic_ns, topic, Some(peer.credentials()), line);
        }
        // The descriptor is closed with the value: the system forgets it then anyway.
        let _ = self.poll.registry().deregister(peer.socket());
        self.forget(peer, now);
        self.deliver(now);
    }

    fn forget(&mut self, peer: Peer, now: &ClockReadings) {
        match peer {
            Peer::Producer(port) => {
                if let Some(producer_id) = port.producer_id {
                    self.core.service.handle_producer_disconnect(producer_id, now);
                }
            }
            Peer::Consumer(port) => {
                port.forget_clones(&mut self.core);
                self.core.service.handle_consumer_disconnect(port.consumer_id, now);
            }
        }
    }

    /// Ends all sessions, and completes their files, unless one takes nothing for
    /// [`FILE_STALL_MAX`](crate::files::FILE_STALL_MAX).
    fn shut_down(&mut self) {
        let (now, stopped) = (read_clocks(), Instant::now());
        for peer in self.peers.take_all() {
            if let Peer::Consumer(_) = peer {
                self.forget(peer, &now);
            }
        }
        self.core.service.finish_successions();
        loop {
            self.core.files.hand_out(&mut self.core.service, &now);
            // Nobody is left but the operator.
            self.deliver(&now);
            let waits_for_shards = self.core.service.waits_for_shards();
            if !waits_for_shards && !self.core.files.is_any_moving(stopped) {
                break;
            }
            let at_most = if waits_for_shards { SHARD_POLL_INTERVAL } else { FILE_POLL_INTERVAL };
            self.core.files.wait_for_result(&mut self.core.service, &now, at_most);
            self.core.service.retry_commits();
            self.core.service.handle_ready();
        }
        self.core.files.give_up(&mut self.core.service, &now);
        self.deliver(&now);
    }
}
