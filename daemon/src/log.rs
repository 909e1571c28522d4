//! Lines for the operator, as many as a person can read.

use std::collections::HashMap;
use std::fmt;
use std::mem::Discriminant;

use watershed_service::Warning;
use watershed_shell::socket::PeerCredentials;

use crate::connection::Closed;

/// Lines about one thing within one period. More are counted and told in one line.
const LINES_PER_TOPIC: u32 = 20;
/// Of these, lines of one peer: others are to be heard of as well.
const LINES_PER_PEER: u32 = 5;
const PERIOD_NS: u64 = 10_000_000_000;

/// What a line is about. Lines about one thing leave room for those about others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    /// Connections that there was no room for.
    Accepting,
    /// Who is not taken on.
    Refused,
    /// Calls of peers that are not done, or in part.
    Call,
    /// Connections that are closed for one reason.
    Closed(Discriminant<Closed>),
    /// Warnings of the service of one kind.
    Warning(Discriminant<Warning>),
}

/// Where lines go.
pub(crate) struct Log {
    write: Box<dyn FnMut(&str) + Send>,
    period_began_ns: u64,
    /// Lines of this period, by topic and by those who caused them: as many entries as lines.
    by_topic: HashMap<Topic, u32>,
    by_peer: HashMap<(Topic, PeerCredentials), u32>,
    left_out: u64,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("by_topic", &self.by_topic).finish_non_exhaustive()
    }
}

impl Log {
    pub(crate) fn new(write: Box<dyn FnMut(&str) + Send>) -> Log {
        Log { write, period_began_ns: 0, by_topic: HashMap::new(), by_peer: HashMap::new(), left_out: 0 }
    }

    /// Writes a line that the operator has asked for.
    pub(crate) fn answer(&mut self, text: fmt::Arguments<'_>) {
        (self.write)(&text.to_string());
    }

    /// Writes a line unless there were too many: peers can cause them at will. `peer` is the one
    /// that did.
    pub(crate) fn line(
        &mut self,
        now_ns: u64,
        topic: Topic,
        peer: Option<PeerCredentials>,
        text: fmt::Arguments<'_>,
    ) {
        if now_ns.saturating_sub(self.period_began_ns) >= PERIOD_NS {
            self.period_began_ns = now_ns;
            self.by_topic.clear();
            self.by_peer.clear();
            if self.left_out > 0 {
                let left_out = std::mem::take(&mut self.left_out);
                (self.write)(&format!("{left_out} lines like those before were left out"));
            }
        }
        if self.has_room(topic, peer) {
            (self.write)(&text.to_string());
        } else {
            self.left_out += 1;
        }
    }

    /// Whether one more line may be written, which is counted.
    fn has_room(&mut self, topic: Topic, peer: Option<PeerCredentials>) -> bool {
        let of_topic = self.by_topic.entry(topic).or_default();
        if *of_topic == LINES_PER_TOPIC {
            return false;
        }
        if let Some(peer) = peer {
            let of_peer = self.by_peer.entry((topic, peer)).or_default();
            if *of_peer == LINES_PER_PEER {
                return false;
            }
            *of_peer += 1;
        }
        *of_topic += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const LINES: usize = LINES_PER_TOPIC as usize;

    fn log() -> (Log, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        (Log::new(Box::new(move |line| sink.lock().unwrap().push(line.to_owned()))), lines)
    }

    fn peer(pid: i32) -> Option<PeerCredentials> {
        Some(PeerCredentials { uid: 0, pid: Some(pid) })
    }

    fn closed(why: &Closed) -> Topic {
        Topic::Closed(std::mem::discriminant(why))
    }

    #[test]
    fn a_flood_is_counted_and_told_later() {
        let (mut log, lines) = log();
        for number in 0..100 {
            log.line(PERIOD_NS, Topic::Accepting, None, format_args!("line {number}"));
        }
        assert_eq!(lines.lock().unwrap().len(), LINES);
        log.line(2 * PERIOD_NS, Topic::Accepting, None, format_args!("later"));
        let lines = lines.lock().unwrap();
        assert_eq!(lines[LINES..], ["80 lines like those before were left out", "later"]);
    }

    /// Neither one peer, nor many that are closed for another reason.
    #[test]
    fn the_noise_of_others_hides_nobody() {
        let (mut log, lines) = log();
        let (too_many_fds, stuck) = (closed(&Closed::TooManyFds), closed(&Closed::Stuck { limit_ms: 10 }));
        for number in 0..1000 {
            log.line(PERIOD_NS, stuck, peer(1), format_args!("noise {number}"));
            log.line(PERIOD_NS, too_many_fds, peer(number), format_args!("noise {number}"));
        }
        assert_eq!(lines.lock().unwrap().len(), LINES + LINES_PER_PEER as usize);
        assert!(log.by_peer.len() <= 2 * LINES, "memory is bounded");
        log.line(PERIOD_NS, stuck, peer(2), format_args!("good"));
        assert_eq!(lines.lock().unwrap().last().unwrap(), "good");
    }
}
