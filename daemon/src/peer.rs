//! One connection of either port, for the loop.

use watershed_service::ClockReadings;
use watershed_shell::socket::PeerCredentials;

use crate::connection::{Closed, Ready};
use crate::consumer_port::ConsumerPort;
use crate::core::Core;
use crate::producer_port::ProducerPort;

/// Steps of reading that are begun for one consumer in one turn.
const READS_PER_TURN: usize = 2;

#[derive(Debug)]
pub(crate) enum Peer {
    Producer(Box<ProducerPort>),
    Consumer(Box<ConsumerPort>),
}

impl Peer {
    pub(crate) fn has_work(&self) -> bool {
        match self {
            Peer::Producer(port) => port.connection.has_work(),
            Peer::Consumer(port) => port.connection.has_work() || port.wants_packets(),
        }
    }

    /// Whether its calls wait for something.
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Peer::Producer(port) => port.connection.is_held,
            Peer::Consumer(port) => port.connection.is_held,
        }
    }

    pub(crate) fn note_ready(&mut self, ready: Ready) {
        match self {
            Peer::Producer(port) => port.connection.note_ready(ready),
            Peer::Consumer(port) => port.connection.note_ready(ready),
        }
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        match self {
            Peer::Producer(port) => port.connection.deadline_ns(),
            Peer::Consumer(port) => port.connection.deadline_ns(),
        }
    }

    pub(crate) fn credentials(&self) -> PeerCredentials {
        match self {
            Peer::Producer(port) => port.connection.peer,
            Peer::Consumer(port) => port.connection.peer,
        }
    }

    pub(crate) fn socket(&mut self) -> &mut mio::net::UnixStream {
        match self {
            Peer::Producer(port) => &mut port.connection.socket,
            Peer::Consumer(port) => &mut port.connection.socket,
        }
    }

    /// See [`Connection::take_new_interest`](crate::connection::Connection::take_new_interest).
    pub(crate) fn take_new_interest(&mut self) -> Option<mio::Interest> {
        match self {
            Peer::Producer(port) => port.connection.take_new_interest(),
            Peer::Consumer(port) => port.connection.take_new_interest(),
        }
    }

    pub(crate) fn receive(&mut self, scratch: &mut [u8]) -> Result<(), Closed> {
        match self {
            Peer::Producer(port) => port.connection.receive(scratch),
            Peer::Consumer(port) => port.connection.receive(scratch),
        }
    }

    /// Handles one call; false if there is none.
    pub(crate) fn handle_next(&mut self, core: &mut Core, now: &ClockReadings) -> Result<bool, Closed> {
        match self {
            Peer::Producer(port) => match port.connection.poll()? {
                Some(call) => port.handle(call, core, now).map(|()| true),
                None => Ok(false),
            },
            Peer::Consumer(port) => match port.connection.poll()? {
                Some(call) => port.handle(call, core, now).map(|()| true),
                None => Ok(false),
            },
        }
    }

    pub(crate) fn send(&mut self, core: &mut Core, now: &ClockReadings) -> Result<(), Closed> {
        match self {
            Peer::Producer(port) => port.connection.send(now.monotonic_ns),
            Peer::Consumer(port) => {
                port.send_events()?;
                port.connection.send(now.monotonic_ns)?;
                // A step that does not wait is done at once; it may be the last but one.
                for _ in 0..READS_PER_TURN {
                    if !port.wants_packets() {
                        break;
                    }
                    port.begin_read(core, now)?;
                    port.connection.send(now.monotonic_ns)?;
                }
                Ok(())
            }
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Producer(port) => port.fmt(f),
            Peer::Consumer(port) => port.fmt(f),
        }
    }
}
