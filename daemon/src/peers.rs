//! The connections, and which of them have something to do: a turn of the loop looks at no other.
//!
//! ```text
//!   event, output, room  ---> listed ---> its calls, then what is to be sent ---+
//!                               ^                                               |
//!                               +--------- has more to do at once? -------------+
//!                                          takes nothing? --> deadlines, in order of time
//!                                          its commit waits for room? --> held
//! ```

use std::collections::{BTreeMap, BTreeSet};

use mio::Token;
use watershed_service::{ConsumerId, ProducerId};

use crate::consumer_port::ConsumerPort;
use crate::peer::Peer;
use crate::producer_port::ProducerPort;

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    by_token: BTreeMap<Token, Entry>,
    producers: BTreeMap<ProducerId, Token>,
    consumers: BTreeMap<ConsumerId, Token>,
    /// Those that have something to do, each once.
    listed: Vec<Token>,
    /// Until when those that take nothing must have taken something, in monotonic time.
    deadlines: BTreeSet<(u64, Token)>,
    /// Producers whose calls wait, and since when, in monotonic time.
    held: BTreeMap<Token, u64>,
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    is_listed: bool,
    /// As it is in `deadlines`.
    deadline_ns: Option<u64>,
}

impl Peers {
    /// A new connection, which may have sent something already.
    pub(crate) fn add(&mut self, token: Token, peer: Peer) {
        if let Peer::Consumer(port) = &peer {
            self.consumers.insert(port.consumer_id, token);
        }
        self.by_token.insert(token, Entry { peer, is_listed: false, deadline_ns: None });
    }

    /// A producer has said who it is.
    pub(crate) fn note_producer(&mut self, producer_id: ProducerId, token: Token) {
        self.producers.insert(producer_id, token);
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Peer> {
        self.by_token.get_mut(&token).map(|entry| &mut entry.peer)
    }

    /// A connection for which there is something to do now.
    pub(crate) fn list(&mut self, token: Token) -> Option<&mut Peer> {
        let entry = self.by_token.get_mut(&token)?;
        if !std::mem::replace(&mut entry.is_listed, true) {
            self.listed.push(token);
        }
        Some(&mut entry.peer)
    }

    /// The producer, which is listed.
    pub(crate) fn list_producer(&mut self, producer_id: ProducerId) -> Option<(Token, &mut ProducerPort)> {
        let token = *self.producers.get(&producer_id)?;
        match self.list(token)? {
            Peer::Producer(port) => Some((token, port)),
            Peer::Consumer(_) => None,
        }
    }

    /// The consumer, which is listed.
    pub(crate) fn list_consumer(&mut self, consumer_id: ConsumerId) -> Option<(Token, &mut ConsumerPort)> {
        let token = *self.consumers.get(&consumer_id)?;
        match self.list(token)? {
            Peer::Consumer(port) => Some((token, port)),
            Peer::Producer(_) => None,
        }
    }

    /// The connections that are listed now; those that are listed later come behind them.
    pub(crate) fn listed(&self) -> Vec<Token> {
        self.listed.clone()
    }

    /// Whether any is listed.
    pub(crate) fn has_listed(&self) -> bool {
        !self.listed.is_empty()
    }

    /// Takes the list: each of its connections has to [`Self::settle`] afterwards.
    pub(crate) fn take_listed(&mut self) -> Vec<Token> {
        let listed = std::mem::take(&mut self.listed);
        for token in &listed {
            if let Some(entry) = self.by_token.get_mut(token) {
                entry.is_listed = false;
            }
        }
        listed
    }

    /// What there was to do for a connection has been done: notes what it waits for now.
    pub(crate) fn settle(&mut self, token: Token, now_ns: u64) {
        let Some(entry) = self.by_token.get_mut(&token) else { return };
        let deadline_ns = entry.peer.deadline_ns();
        let (has_work, is_held) = (entry.peer.has_work(), entry.peer.is_held());
        let before = std::mem::replace(&mut entry.deadline_ns, deadline_ns);
        if before != deadline_ns {
            if let Some(at_ns) = before {
                self.deadlines.remove(&(at_ns, token));
            }
            self.deadlines.extend(deadline_ns.map(|at_ns| (at_ns, token)));
        }
        if is_held {
            self.held.entry(token).or_insert(now_ns);
        }
        if has_work {
            self.list(token);
        }
    }

    /// When the first of those that take nothing must have taken something.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(at_ns, _)| *at_ns)
    }

    /// Lists those whose time is over.
    pub(crate) fn list_overdue(&mut self, now_ns: u64) {
        let overdue: Vec<Token> = self
            .deadlines
            .iter()
            .take_while(|(at_ns, _)| *at_ns <= now_ns)
            .map(|(_, token)| *token)
            .collect();
        for token in overdue {
            self.list(token);
        }
    }

    /// Goes on with those whose calls wait for something that is not so any more. Returns how long
    /// each has waited.
    pub(crate) fn release(&mut self, now_ns: u64, is_waiting: impl Fn(ProducerId) -> bool) -> Vec<u64> {
        let mut waits_ns = Vec::new();
        let held: Vec<(Token, u64)> = self.held.iter().map(|(token, since_ns)| (*token, *since_ns)).collect();
        for (token, since_ns) in held {
            if let Some(Peer::Producer(port)) = self.get_mut(token)
                && port.producer_id.is_some_and(&is_waiting)
            {
                continue;
            }
            self.held.remove(&token);
            waits_ns.push(now_ns.saturating_sub(since_ns));
            if let Some(Peer::Producer(port)) = self.list(token) {
                port.connection.is_held = false;
            }
        }
        waits_ns
    }

    /// A connection that has ended.
    pub(crate) fn remove(&mut self, token: Token) -> Option<Peer> {
        // Its place in `listed` is passed over.
        let Entry { peer, deadline_ns, .. } = self.by_token.remove(&token)?;
        if let Some(at_ns) = deadline_ns {
            self.deadlines.remove(&(at_ns, token));
        }
        self.held.remove(&token);
        match &peer {
            Peer::Producer(port) => port.producer_id.and_then(|id| self.producers.remove(&id)),
            Peer::Consumer(port) => self.consumers.remove(&port.consumer_id),
        };
        Some(peer)
    }

    /// Ends all.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Peer> + use<> {
        std::mem::take(self).by_token.into_values().map(|entry| entry.peer)
    }
}
