//! The producer's thread: connects, serves the connection, and tries again.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use watershed_shell::address::Address;
use watershed_smb::{SharedMemory, Smb};

use super::connection::{Connection, Step};
use super::link::Link;
use super::options::{RemoteEvent, RemoteOptions, RemoteStats};
use super::{EventHandler, Inbox, Message};
use crate::arbiter::ArbiterOptions;
use crate::clock;
use crate::endpoint::Endpoint as _;
use crate::producer::ProducerCore;
use crate::sync::{Arc, lock};

/// How long the end of a producer may wait for a service that does not read.
const LAST_SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a connection, or the wait for one, is over.
enum Over {
    Failed(String),
    ShutDown,
    /// It is time to try again.
    Retry,
}

pub(super) struct Thread {
    options: RemoteOptions,
    inbox: Inbox,
    messages: Receiver<Message>,
    on_event: EventHandler,
    core: ProducerCore,
    /// The current connection's, or a closed one.
    link: Arc<Link>,
    /// Of the connections that are over, but for the arbiter's.
    stats: RemoteStats,
}

impl Thread {
    pub(super) fn new(
        options: RemoteOptions,
        inbox: Inbox,
        messages: Receiver<Message>,
        on_event: EventHandler,
    ) -> Self {
        let link = Arc::new(Link::closed(inbox.wakeup.clone()));
        let tell = on_event.clone();
        let core = ProducerCore::new(
            link.clone(),
            Box::new(inbox.clone()),
            options.arbiter,
            Box::new(move |event| lock(&tell)(RemoteEvent::Producer(event))),
        );
        Self { options, inbox, messages, on_event, core, link, stats: RemoteStats::default() }
    }

    /// Runs until the program has enough of it.
    pub(super) fn run(mut self) {
        self.make_own_memory();
        self.run_until_enough();
        // Nobody waits any more for what was traced before a service.
        self.core.shut_down();
    }

    fn run_until_enough(&mut self) {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (accepted, over) = match self.connect() {
                Ok((address, socket)) => self.serve(&address, socket),
                Err(reason) => (false, Over::Failed(reason)),
            };
            let Over::Failed(reason) = over else { return };
            if accepted {
                attempt = 1;
            }
            let retry_after = self.options.reconnect.delay(attempt);
            self.tell(match accepted {
                true => RemoteEvent::Disconnected { reason, retry_after },
                false => RemoteEvent::NotConnected { reason, retry_after },
            });
            if matches!(self.wait(retry_after), Over::ShutDown) {
                return;
            }
        }
    }

    /// For each connection that a service accepts there is new memory: the last service may still
    /// have the old one.
    fn make_own_memory(&mut self) {
        if !self.options.own_memory || self.core.arbiter().is_some() {
            return;
        }
        let size = self.options.smb_size;
        let made = SharedMemory::create(size.size_bytes()).map_err(|error| error.to_string());
        let made = made.and_then(|memory| {
            let smb = Smb::new(Arc::new(memory.without_children()), size.page_size_bytes());
            smb.map_err(|error| error.to_string())
        });
        match made {
            Ok(smb) => {
                self.core.set_own_memory(smb, Box::new(self.inbox.clone()), self.options.arbiter);
            }
            Err(reason) => self.tell(RemoteEvent::NoOwnMemory { reason }),
        }
    }

    fn tell(&self, event: RemoteEvent) {
        lock(&self.on_event)(event);
    }

    /// Connects to the first socket that answers.
    fn connect(&self) -> Result<(Address, UnixStream), String> {
        let mut reasons = Vec::new();
        for address in &self.options.sockets {
            match address.connect_now() {
                Ok(socket) => return Ok((address.clone(), socket)),
                Err(error) => reasons.push(format!("{address}: {error}")),
            }
        }
        if reasons.is_empty() {
            reasons.push("no socket was named".to_owned());
        }
        Err(reasons.join("; "))
    }

    /// Serves one connection to its end. Says whether the service accepted the producer.
    fn serve(&mut self, address: &Address, socket: UnixStream) -> (bool, Over) {
        let own_memory = self.core.own_memory().cloned();
        let mut connection = Connection::new(socket, &self.options, own_memory, self.inbox.wakeup.clone());
        self.link = connection.link.clone();
        let over = self.serve_until_over(&mut connection, address);
        // What was traced before a service waits for one that accepts the producer.
        if connection.accepted {
            self.core.shut_down();
        }
        match over {
            Over::ShutDown => send_rest(&connection),
            _ => self.make_own_memory(),
        }
        let (frames_ignored, calls_too_long) = self.link.ignored();
        self.stats.frames_ignored += frames_ignored;
        self.stats.calls_too_long += calls_too_long;
        (connection.accepted, over)
    }

    fn serve_until_over(&mut self, connection: &mut Connection, address: &Address) -> Over {
        let accept_by_ns = Some(deadline(self.options.accept_timeout));
        loop {
            if self.handle_messages() {
                return Over::ShutDown;
            }
            self.core.handle_timeout(clock::monotonic_ns());
            if let Some(reason) = connection.link.failure() {
                return Over::Failed(reason);
            }
            let accept_by_ns = accept_by_ns.filter(|_| !connection.accepted);
            if accept_by_ns.is_some_and(|due_ns| due_ns <= clock::monotonic_ns()) {
                return Over::Failed("the service does not answer".to_owned());
            }
            let due_ns = [accept_by_ns, self.core.poll_timeout()].into_iter().flatten().min();
            let ready = self.wait_for(Some(connection), due_ns);
            if ready.intersects(PollFlags::OUT) {
                connection.link.send();
            }
            if !ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                continue;
            }
            for event in connection.link.receive() {
                if let Some(reason) = self.handle_step(connection, event, address) {
                    return Over::Failed(reason);
                }
            }
        }
    }

    /// Does what an event asks for. Gives a reason if the connection is of no use any more.
    fn handle_step(
        &mut self,
        connection: &mut Connection,
        event: watershed_wire::ipc::Event<watershed_wire::ipc::ProducerMethod>,
        address: &Address,
    ) -> Option<String> {
        match connection.step(event, &self.options) {
            Step::Nothing => {}
            Step::Ignored => self.stats.commands_ignored += 1,
            Step::Failed(reason) => return Some(reason),
            Step::Command(command) => self.core.handle_command(command, clock::monotonic_ns()),
            Step::Accepted { direct_patching, takes_memory: true } => {
                self.core.connect_own(connection.link.clone(), direct_patching);
                self.connected(address);
            }
            Step::Accepted { direct_patching, takes_memory: false } => {
                if self.core.own_memory().is_some() {
                    let reason = "the service does not take it".to_owned();
                    self.tell(RemoteEvent::NoOwnMemory { reason });
                }
                let options = ArbiterOptions { direct_patching, ..self.options.arbiter };
                self.core.reconnect(connection.link.clone(), Box::new(self.inbox.clone()), options);
                self.connected(address);
            }
        }
        None
    }

    fn connected(&mut self, address: &Address) {
        self.stats.connections += 1;
        self.tell(RemoteEvent::Connected { address: address.clone() });
    }

    /// Waits without a connection.
    fn wait(&mut self, delay: Option<Duration>) -> Over {
        let due_ns = delay.map(deadline);
        loop {
            if self.handle_messages() {
                return Over::ShutDown;
            }
            self.core.handle_timeout(clock::monotonic_ns());
            if due_ns.is_some_and(|due_ns| due_ns <= clock::monotonic_ns()) {
                return Over::Retry;
            }
            let due_ns = [due_ns, self.core.poll_timeout()].into_iter().flatten().min();
            self.wait_for(None, due_ns);
        }
    }

    /// Waits for the socket, for a wake-up or for a moment. Gives what the socket is ready for.
    fn wait_for(&self, connection: Option<&Connection>, due_ns: Option<u64>) -> PollFlags {
        let mut fds = vec![PollFd::from_borrowed_fd(self.inbox.wakeup.fd(), PollFlags::IN)];
        fds.extend(connection.map(|connection| {
            let out = if connection.link.is_sending() { PollFlags::OUT } else { PollFlags::empty() };
            PollFd::from_borrowed_fd(connection.socket.as_fd(), PollFlags::IN | out)
        }));
        // Interrupted by a signal or without memory: the caller looks at everything again.
        if poll(&mut fds, timeout(due_ns).as_ref()).is_err() {
            return PollFlags::empty();
        }
        if !fds[0].revents().is_empty() {
            self.inbox.wakeup.clear();
        }
        fds.get(1).map_or(PollFlags::empty(), PollFd::revents)
    }

    /// Does what the program and the writers want. True: to end.
    fn handle_messages(&mut self) -> bool {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Register(factory) => self.core.register(factory),
                Message::DescriptorChanged => self.core.handle_descriptor_changed(clock::monotonic_ns()),
                Message::Startup { config, adopt_within, reply } => {
                    let now_ns = clock::monotonic_ns();
                    let _ = reply.send(self.core.trace_startup(*config, adopt_within, now_ns));
                }
                Message::Triggers(names) => self.link.activate_triggers(&names),
                Message::Sync(done) => self.link.sync(done),
                Message::Commit(delay) => self.core.handle_wake(delay, clock::monotonic_ns()),
                Message::Stats(reply) => {
                    let _ = reply.send(self.stats());
                }
                Message::ShutDown => return true,
            }
        }
        false
    }

    fn stats(&self) -> RemoteStats {
        let (frames_ignored, calls_too_long) = self.link.ignored();
        RemoteStats {
            arbiter: self.core.arbiter().map(crate::Arbiter::stats).unwrap_or_default(),
            frames_ignored: self.stats.frames_ignored + frames_ignored,
            calls_too_long: self.stats.calls_too_long + calls_too_long,
            ..self.stats
        }
    }
}

/// Sends what is left when the producer ends.
fn send_rest(connection: &Connection) {
    let give_up_ns = deadline(LAST_SEND_TIMEOUT);
    while connection.link.is_sending() && clock::monotonic_ns() < give_up_ns {
        let mut fds = [PollFd::from_borrowed_fd(connection.socket.as_fd(), PollFlags::OUT)];
        let _ = poll(&mut fds, timeout(Some(give_up_ns)).as_ref());
        connection.link.send();
    }
}

/// The reading of CLOCK_MONOTONIC that is `delay` from now.
fn deadline(delay: Duration) -> u64 {
    let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    clock::monotonic_ns().saturating_add(delay_ns)
}

/// How long to wait for a moment; `None`: for ever.
fn timeout(due_ns: Option<u64>) -> Option<Timespec> {
    // A time that the system's type does not hold is far off.
    due_ns.and_then(|due_ns| Timespec::try_from(clock::until(due_ns, clock::monotonic_ns())).ok())
}
