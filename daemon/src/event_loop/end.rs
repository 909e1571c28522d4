//! The end of a connection, and of all of them.

use std::mem;
use std::time::{Duration, Instant};

use mio::Token;
use watershed_service::ClockReadings;
use watershed_shell::machine::read_clocks;

use super::EventLoop;
use crate::connection::Closed;
use crate::log::Topic;
use crate::peer::Peer;

/// At the end it is looked so often whether workers have done what files wait for, and whether
/// files have taken something.
const SHARD_POLL_INTERVAL: Duration = Duration::from_micros(200);
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(50);

impl EventLoop {
    /// Ends a connection, as if its peer had done so.
    pub(super) fn close(&mut self, token: Token, why: &Closed, now: &ClockReadings) {
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
    pub(crate) fn shut_down(&mut self) {
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
