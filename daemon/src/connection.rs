//! One connection: socket, frames, descriptors, and how long it may refuse what is sent to it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use mio::Interest;
use mio::net::UnixStream;
use thiserror::Error;
use watershed_shell::machine::read_clocks;
use watershed_shell::socket::{self, Moved, PeerCredentials};
use watershed_smb::SharedMemory;
use watershed_wire::framing::FrameTooLong;
use watershed_wire::ipc::{HostConnection, Invocation, Method, ReplyTo};

/// Descriptors that wait for the calls that take them. No client sends one ahead of its call.
pub(crate) const PENDING_FDS_MAX: usize = 4;
/// A connection with more bytes to be sent gets no further calls handled.
pub(crate) const REPLY_BYTES_MAX: usize = 256 << 10;
/// A connection that lets more than this pile up is closed: commands come whether it reads or not.
pub(crate) const UNSENT_BYTES_MAX: usize = 16 << 20;

/// Why a connection is closed.
#[derive(Debug, Error)]
pub(crate) enum Closed {
    /// It is the peer that closed it: nothing to tell.
    #[error("the peer has closed the connection")]
    ByPeer,
    /// The socket is broken.
    #[error("the connection is broken: {0}")]
    Broken(#[from] io::Error),
    /// Nothing behind such a frame can be found.
    #[error("it sent {0}")]
    FrameTooLong(#[from] FrameTooLong),
    /// Descriptors without calls that take them.
    #[error("it sent more than {PENDING_FDS_MAX} file descriptors that no call takes")]
    TooManyFds,
    /// It does not read.
    #[error("it did not take what was sent to it for {limit_ms} ms")]
    Stuck { limit_ms: u64 },
    /// It reads too slowly.
    #[error("it left more than {UNSENT_BYTES_MAX} bytes unread")]
    TooFarBehind,
    /// It has data sources and never asks for commands.
    #[error("it does not ask for commands")]
    NoStream,
    /// A reply that no frame can hold.
    #[error("what it has to be sent does not fit: {0}")]
    CannotTell(FrameTooLong),
}

/// The server's end of a connection to the port with the methods `M`.
#[derive(Debug)]
pub(crate) struct Connection<M> {
    pub(crate) socket: UnixStream,
    pub(crate) peer: PeerCredentials,
    pub(crate) host: HostConnection<M, Arc<SharedMemory>>,
    fds: VecDeque<OwnedFd>,
    /// The system reports changes only: what was reported holds until the socket says otherwise.
    is_readable: bool,
    /// The peer sends no more: what is left is read to its end.
    is_read_closed: bool,
    is_writable: bool,
    /// An event tells when it takes something again.
    watches_room: bool,
    /// Its last bytes are here; what they ask for is done before the connection is closed.
    has_ended: bool,
    /// It takes nothing any more: killed, say. What it has sent is still there.
    is_gone: bool,
    /// Its calls have to wait.
    pub(crate) is_held: bool,
    /// There may be whole frames that were not looked at.
    has_frames: bool,
    /// How long it may take nothing.
    send_limit_ms: u64,
    /// Since when the socket has taken nothing although something is to be sent: monotonic time.
    blocked_since_ns: Option<u64>,
}

/// What an event says of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) read_closed: bool,
    pub(crate) writable: bool,
}

impl<M: Method> Connection<M> {
    /// A connection whose peer may take nothing of what is sent to it for so long.
    pub(crate) fn new(socket: UnixStream, peer: PeerCredentials, send_limit_ms: u64) -> Self {
        Connection {
            socket,
            peer,
            host: HostConnection::new(),
            fds: VecDeque::new(),
            is_readable: false,
            is_read_closed: false,
            is_writable: true,
            watches_room: false,
            has_ended: false,
            is_gone: false,
            is_held: false,
            has_frames: false,
            send_limit_ms,
            blocked_since_ns: None,
        }
    }

    pub(crate) fn note_ready(&mut self, ready: Ready) {
        self.is_readable |= ready.readable || ready.read_closed;
        self.is_read_closed |= ready.read_closed;
        self.is_writable |= ready.writable;
    }

    /// Whether there is something to do for it that no event will announce.
    pub(crate) fn has_work(&self) -> bool {
        let may_send = self.is_writable && !self.host.out().is_empty();
        may_send || (self.takes_calls() && (self.has_frames || self.is_readable || self.has_ended))
    }

    fn takes_calls(&self) -> bool {
        !self.is_held && self.host.out().size_bytes() <= REPLY_BYTES_MAX
    }

    /// Receives once if there is nothing left of what was received before.
    pub(crate) fn receive(&mut self, scratch: &mut [u8]) -> Result<(), Closed> {
        if self.has_frames || !self.is_readable || !self.takes_calls() {
            return Ok(());
        }
        let num_fds = self.fds.len();
        match socket::receive(&self.socket, scratch, &mut self.fds) {
            Ok(Moved::Bytes(count)) => {
                // Less than there was room for was all there is, and an event tells of more. But
                // what comes behind a descriptor the system gives only to the next call (others
                // than Linux also what the descriptor comes with), and no event follows the end.
                let is_linux = cfg!(any(target_os = "linux", target_os = "android"));
                let is_all = is_linux && count < scratch.len() && self.fds.len() == num_fds;
                self.is_readable = !is_all || self.is_read_closed;
                self.host.append(&scratch[..count]);
                self.has_frames = true;
            }
            Ok(Moved::NotReady) => {
                self.is_readable = false;
                self.has_ended |= self.is_gone;
            }
            Ok(Moved::Closed) => (self.is_readable, self.has_ended) = (false, true),
            // What was sent before has been received by now.
            Err(error) if is_end(&error) => (self.is_readable, self.has_ended) = (false, true),
            Err(error) => return Err(error.into()),
        }
        if self.fds.len() > PENDING_FDS_MAX { Err(Closed::TooManyFds) } else { Ok(()) }
    }

    /// The next call; `None` until more is received. The connection's end comes behind its last
    /// call.
    pub(crate) fn poll(&mut self) -> Result<Option<Invocation<M>>, Closed> {
        if !self.has_frames || !self.takes_calls() {
            return if self.has_ended && !self.has_frames { Err(Closed::ByPeer) } else { Ok(None) };
        }
        let invocation = self.host.poll()?;
        self.has_frames = invocation.is_some();
        match invocation {
            None if self.has_ended => Err(Closed::ByPeer),
            invocation => Ok(invocation),
        }
    }

    /// The descriptor that came with the call that is being handled, or before it.
    pub(crate) fn take_fd(&mut self) -> Option<OwnedFd> {
        self.fds.pop_front()
    }

    /// Replies, or closes a connection whose reply no frame can hold.
    pub(crate) fn reply(
        &mut self,
        reply_to: ReplyTo,
        reply: &impl watershed_wire::Encode,
        has_more: bool,
    ) -> Result<(), Closed> {
        self.host.reply(reply_to, reply, has_more).map_err(Closed::CannotTell)
    }

    /// Sends what the socket takes, in a turn that began at `now_ns`.
    pub(crate) fn send(&mut self, now_ns: u64) -> Result<(), Closed> {
        let is_overdue = self.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns);
        // The system tells of room once the peer has taken three quarters: less is progress, too.
        self.is_writable |= is_overdue;
        while let Some((bytes, memory)) = self.host.out().front().filter(|_| self.is_writable) {
            let fd = memory.and_then(|memory| memory.fd());
            match socket::send(&self.socket, bytes, fd) {
                Ok(Moved::Bytes(count)) => {
                    self.host.out_mut().consume(count);
                    self.blocked_since_ns = None;
                }
                Ok(Moved::NotReady | Moved::Closed) => self.is_writable = false,
                // What it has sent before, a commit say, is received first.
                Err(error) if is_end(&error) => {
                    (self.is_gone, self.is_writable) = (true, false);
                    (self.is_readable, self.is_read_closed) = (true, true);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if self.is_gone {
            self.discard_unsent();
        }
        if self.host.out().is_empty() {
            self.blocked_since_ns = None;
        } else if !self.is_writable {
            // Not since the turn began: what it did for others is not this peer's time.
            self.blocked_since_ns.get_or_insert_with(|| read_clocks().monotonic_ns);
        }
        if self.host.out().size_bytes() > UNSENT_BYTES_MAX {
            return Err(Closed::TooFarBehind);
        }
        match self.deadline_ns() {
            Some(deadline_ns) if deadline_ns <= now_ns => Err(Closed::Stuck { limit_ms: self.send_limit_ms }),
            _ => Ok(()),
        }
    }

    /// What events shall tell of it from now on, if that is something else than before: of room
    /// only while something waits for it. Else each reply that a peer reads would be an event.
    pub(crate) fn take_new_interest(&mut self) -> Option<Interest> {
        let waits_for_room = !self.is_writable && !self.host.out().is_empty();
        if self.watches_room == waits_for_room {
            return None;
        }
        self.watches_room = waits_for_room;
        Some(if waits_for_room { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE })
    }

    fn discard_unsent(&mut self) {
        while let Some(count) = self.host.out().front().map(|(bytes, _)| bytes.len()) {
            self.host.out_mut().consume(count);
        }
    }

    /// Whether the peer takes nothing any more, whatever is sent to it.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// When the peer must have taken something, in monotonic time.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.blocked_since_ns.map(|since_ns| since_ns + self.send_limit_ms * 1_000_000)
    }
}

/// Whether the peer has gone, with or without having read what was sent to it.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use watershed_wire::ipc::ProducerMethod;

    use super::*;

    const LIMIT_MS: u64 = 10;
    const LIMIT_NS: u64 = LIMIT_MS * 1_000_000;
    /// More than a socket holds.
    const TOO_MANY_ANSWERS: usize = 40_000;

    /// A connection that has so many answers to send, and the other end.
    fn connection(num_answers: usize) -> (Connection<ProducerMethod>, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let peer = PeerCredentials { uid: 0, pid: None };
        let mut connection = Connection::new(UnixStream::from_std(ours), peer, LIMIT_MS);
        // Frames that have a number and ask for nothing. Each is answered.
        connection.host.append(&[2, 0, 0, 0, 0x10, 1].repeat(num_answers));
        assert_eq!(connection.host.poll(), Ok(None));
        (connection, theirs)
    }

    #[test]
    fn a_long_turn_is_not_the_peers_time() {
        let (mut connection, _theirs) = connection(TOO_MANY_ANSWERS);
        let turn_began_ns = read_clocks().monotonic_ns;
        std::thread::sleep(Duration::from_millis(2 * LIMIT_MS));
        connection.send(turn_began_ns).unwrap();
        let next_turn_ns = turn_began_ns + 2 * LIMIT_NS;
        connection.send(next_turn_ns).unwrap();
        let error = connection.send(read_clocks().monotonic_ns + LIMIT_NS).unwrap_err();
        assert!(matches!(error, Closed::Stuck { limit_ms: LIMIT_MS }), "{error}");
    }

    #[test]
    fn a_peer_that_takes_a_part_is_not_stuck() {
        let (mut connection, mut theirs) = connection(TOO_MANY_ANSWERS);
        let all_bytes = connection.host.out().size_bytes();
        connection.send(read_clocks().monotonic_ns).unwrap();
        let unsent_bytes = connection.host.out().size_bytes();
        assert!(unsent_bytes > 0, "the socket is full");
        theirs.read_exact(&mut vec![0; (all_bytes - unsent_bytes) / 2]).unwrap();
        // No event has announced room.
        connection.send(read_clocks().monotonic_ns + LIMIT_NS).unwrap();
        assert!(connection.host.out().size_bytes() < unsent_bytes);
    }

    /// Receives as the loop does, without another event. How often it did.
    fn receive_all(connection: &mut Connection<ProducerMethod>) -> Result<usize, Closed> {
        let mut scratch = [0; 256];
        let mut times = 0;
        while connection.is_readable || connection.has_ended {
            connection.receive(&mut scratch)?;
            times += 1;
            while connection.poll()?.is_some() {}
        }
        Ok(times)
    }

    #[test]
    fn one_event_is_enough_for_what_is_there() {
        const FRAME: &[u8] = &[2, 0, 0, 0, 0x10, 1];
        const NUM_BEHIND: usize = 100;
        let (mut connection, mut theirs) = connection(0);
        let readable = Ready { readable: true, read_closed: false, writable: false };
        let file = tempfile::tempfile().unwrap();
        theirs.write_all(FRAME).unwrap();
        socket::send(&theirs, FRAME, Some(file.as_fd())).unwrap();
        theirs.write_all(&FRAME.repeat(NUM_BEHIND)).unwrap();
        connection.note_ready(readable);
        // Up to the descriptor, and 256, 256 and 88 bytes behind it.
        assert_eq!(receive_all(&mut connection).unwrap(), 4, "nor did it ask once more");
        assert!(connection.take_fd().is_some());
        let answered_bytes = connection.host.out().size_bytes();

        theirs.write_all(FRAME).unwrap();
        drop(theirs);
        connection.note_ready(Ready { read_closed: true, ..readable });
        assert!(matches!(receive_all(&mut connection), Err(Closed::ByPeer)));
        let answer_bytes = connection.host.out().size_bytes() - answered_bytes;
        assert_eq!(answered_bytes, answer_bytes * (2 + NUM_BEHIND), "each was read");
    }

    /// A killed producer: its last commit is there, and it takes nothing any more.
    #[test]
    fn what_a_peer_sent_before_it_was_gone_is_taken() {
        let (mut connection, mut theirs) = connection(TOO_MANY_ANSWERS);
        connection.send(read_clocks().monotonic_ns).unwrap();
        theirs.write_all(&[2, 0, 0, 0, 0x10, 1].repeat(3)).unwrap();
        drop(theirs);
        connection.is_writable = true;
        connection.send(read_clocks().monotonic_ns).unwrap();
        assert_eq!(connection.host.out().size_bytes(), 0, "nobody takes it");
        let scratch = &mut [0; 1024];
        while connection.host.out().size_bytes() == 0 {
            connection.receive(scratch).unwrap();
            assert_eq!(connection.poll().unwrap(), None);
        }
        connection.send(read_clocks().monotonic_ns).unwrap();
        connection.receive(scratch).unwrap();
        assert!(matches!(connection.poll(), Err(Closed::ByPeer)));
    }
}
