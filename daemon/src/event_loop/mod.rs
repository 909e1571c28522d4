//! A turn of the loop: each connection that has something to do gets a bounded part of it. One
//! thread at a time takes turns ([`crate::turns`]).
//!
//! ```text
//!     +--> events: sockets, a timer of the service, a peer that takes nothing, other threads
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
//!     |    nothing left to do at once? Then go on with what commits have left (handle_idle), and
//!     |      |  have pages of rings made ready
//!     +-- set the timer
//! ```
//!
//! Listed is whoever has something to do ([`Peers`]): the others cost nothing.

mod accept;
mod end;

use std::io;
use std::mem;
use std::sync::Arc;

use mio::{Interest, Poll, Registry, Token};
use watershed_service::{ClockReadings, Output};
use watershed_shell::machine::{self, read_clocks};
use watershed_wire::framing::RECEIVE_SIZE_BYTES_MAX;

use crate::connection::{Closed, Ready};
use crate::core::Core;
use crate::events::Timer;
use crate::listen::Listener;
use crate::log::Topic;
use crate::peer::Peer;
use crate::peers::Peers;
use crate::polling::Polling;
use crate::status::Status;
use crate::waiting::{Job, JobResult};
use crate::wake::Wake;
use accept::Listening;

/// Calls of one connection in one turn.
const CALLS_PER_TURN: usize = 256;
/// Of another thread that wakes the loop.
pub(crate) const WAKER: Token = Token(0);
const TIMER: Token = Token(1);
/// Listening sockets, then connections.
const FIRST_LISTENER: usize = 2;

/// What a turn of the loop works on.
#[derive(Debug)]
pub(crate) struct EventLoop {
    poll: Poll,
    pub(crate) wake: Arc<Wake>,
    timer: Timer,
    /// The consumers' socket, then the producers'.
    listeners: Vec<Listening>,
    core: Core,
    peers: Peers,
    last_token: usize,
    scratch: Vec<u8>,
}

impl EventLoop {
    /// For peers that connect to the listeners, of which the first one is the consumers'. `poll` is
    /// what `wake` wakes.
    pub(crate) fn new(
        poll: Poll,
        wake: Arc<Wake>,
        listeners: Vec<Listener>,
        core: Core,
    ) -> io::Result<EventLoop> {
        let mut listeners: Vec<Listening> = listeners.into_iter().map(Listening::new).collect();
        for (index, listening) in listeners.iter_mut().enumerate() {
            let token = Token(FIRST_LISTENER + index);
            poll.registry().register(&mut listening.listener.socket, token, Interest::READABLE)?;
        }
        Ok(EventLoop {
            timer: Timer::new(poll.registry(), TIMER)?,
            last_token: FIRST_LISTENER + listeners.len(),
            poll,
            wake,
            listeners,
            core,
            peers: Peers::default(),
            scratch: vec![0; RECEIVE_SIZE_BYTES_MAX],
        })
    }

    /// For a thread that waits for the daemon's events.
    pub(crate) fn registry(&self) -> io::Result<Registry> {
        self.poll.registry().try_clone()
    }

    /// What its threads do before they wait.
    pub(crate) fn polling(&self) -> Arc<Polling> {
        Arc::clone(&self.core.polling)
    }

    /// Does what is to be done, for so long as one turn may take. Whether there is more to do that
    /// no event will announce.
    pub(crate) fn take_turn(&mut self, events: impl Iterator<Item = (Token, Ready)>) -> io::Result<bool> {
        let now = read_clocks();
        events.for_each(|(token, ready)| self.take_event(token, ready));
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
        self.end_turn()
    }

    /// So many workers are pinned to a CPU: says so if that is not all.
    pub(crate) fn tell_pinned(&mut self, num_pinned: usize, num_workers: usize) {
        if num_pinned < num_workers {
            let line =
                format_args!("the system lets {num_pinned} of {num_workers} workers be pinned to a CPU");
            self.core.log.answer(line);
        }
    }

    /// One line about how it goes.
    fn tell_status(&mut self) {
        let status = Status::of(&self.core.service, self.core.waiting.num_under_way());
        self.core.log.answer(format_args!("{status}"));
    }

    /// Has the timer tell when something is due next, unless there is something to do already:
    /// whether there is.
    fn end_turn(&mut self) -> io::Result<bool> {
        let next_ns = self.next_deadline_ns();
        let is_due = next_ns.is_some_and(|at_ns| at_ns <= machine::monotonic_ns());
        if self.has_work() || is_due || self.core.service.handle_idle() {
            return Ok(true);
        }
        if let Some(work) = self.core.service.poll_prefault() {
            self.core.waiting.begin(Job::Prefault(work));
        }
        self.timer.set(next_ns).map(|()| false)
    }

    /// Whether there is something to do that no event will announce.
    fn has_work(&self) -> bool {
        self.peers.has_listed()
            || self.listeners.iter().any(|listening| listening.is_ready)
            || self.core.service.has_file_work()
    }

    /// When something is due, in monotonic time; `None`: not before the next event.
    fn next_deadline_ns(&self) -> Option<u64> {
        let now = read_clocks();
        let timer_ns = self.core.service.poll_timeout().wait_ns(&now);
        let timer_at_ns = timer_ns.map(|wait_ns| now.monotonic_ns.saturating_add(wait_ns));
        let retries_at_ns = self.listeners.iter().filter_map(|listening| listening.retry_at_ns);
        retries_at_ns.chain(self.peers.next_deadline_ns()).chain(timer_at_ns).min()
    }

    fn take_event(&mut self, token: Token, ready: Ready) {
        if let Some(listening) =
            token.0.checked_sub(FIRST_LISTENER).and_then(|index| self.listeners.get_mut(index))
        {
            listening.is_ready = true;
        } else if let Some(peer) = self.peers.list(token) {
            peer.note_ready(ready);
        }
    }

    /// Gives each connection that has work its turn.
    fn handle_calls(&mut self, now: &ClockReadings) {
        self.peers.list_overdue(now.monotonic_ns);
        for token in self.peers.listed() {
            if let Err(why) = self.serve_peer(token, now) {
                self.close(token, &why, now);
            }
        }
    }

    fn serve_peer(&mut self, token: Token, now: &ClockReadings) -> Result<(), Closed> {
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
            match self.send_to(token, now) {
                Err(why) => self.close(token, &why, now),
                Ok(()) => self.peers.settle(token, now.monotonic_ns),
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

    fn send_to(&mut self, token: Token, now: &ClockReadings) -> Result<(), Closed> {
        let Some(peer) = self.peers.get_mut(token) else { return Ok(()) };
        peer.send(&mut self.core, now)?;
        // There is an event at once if the socket has taken something meanwhile.
        if let Some(interest) = peer.take_new_interest() {
            self.poll.registry().reregister(peer.socket(), token, interest)?;
        }
        Ok(())
    }
}
