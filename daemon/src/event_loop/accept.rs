//! Accepting connections, as many in one turn as it may take.

use std::io;

use mio::{Interest, Token};
use watershed_service::ClockReadings;
use watershed_shell::socket::peer_credentials;

use super::EventLoop;
use crate::connection::Connection;
use crate::consumer_port::{self, ConsumerPort};
use crate::listen::Listener;
use crate::log::Topic;
use crate::peer::Peer;
use crate::producer_port::{self, ProducerPort};

/// Connections accepted in one turn from one socket.
const ACCEPTS_PER_TURN: usize = 64;
/// Time until connections are accepted again that there were no descriptors or no memory for.
const ACCEPT_RETRY_NS: u64 = 100_000_000;

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) listener: Listener,
    /// Somebody may wait to be accepted.
    pub(super) is_ready: bool,
    /// When to try again, from the first who could not be accepted until nobody waits. No event
    /// tells of those who wait since before, nor of a descriptor that comes free.
    pub(super) retry_at_ns: Option<u64>,
}

impl Listening {
    pub(super) fn new(listener: Listener) -> Listening {
        Listening { listener, is_ready: false, retry_at_ns: None }
    }
}

impl EventLoop {
    /// Connections of sockets where somebody may wait.
    pub(super) fn accept(&mut self, now: &ClockReadings) {
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
        let registry = self.poll.registry();
        let credentials = peer_credentials(&socket)
            .and_then(|peer| registry.register(&mut socket, token, Interest::READABLE).map(|()| peer));
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
}
