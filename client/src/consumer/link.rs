//! The socket under the protocol: frames go out, events come in, nobody waits without an end.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use watershed_shell::socket::{self, Moved};
use watershed_wire::ipc::{ClientConnection, ConsumerMethod, Event};

use super::error::ConsumerError;
use crate::sync::Arc;

/// What a wait has come to.
#[derive(Debug)]
pub(super) enum Arrived {
    Event(Event<ConsumerMethod>),
    Woken,
    TimedOut,
}

/// Ends a wait of the consumer that it was taken from. A wake that nobody waits for ends the next
/// wait.
#[derive(Clone, Debug)]
pub struct WakeHandle(Arc<UnixStream>);

impl WakeHandle {
    /// Ends the wait.
    pub fn wake(&self) {
        // A full pipe is a wake already, and a closed one has nobody to wake.
        let _ = (&*self.0).write(&[0]);
    }
}

#[derive(Debug)]
pub(super) struct Link {
    socket: UnixStream,
    ipc: ClientConnection<ConsumerMethod, OwnedFd>,
    wake: UnixStream,
    wake_handle: WakeHandle,
}

impl Link {
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        let (wake, far_end) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        far_end.set_nonblocking(true)?;
        let wake_handle = WakeHandle(Arc::new(far_end));
        Ok(Link { socket, ipc: ClientConnection::bind(), wake, wake_handle })
    }

    pub(super) fn wake_handle(&self) -> WakeHandle {
        self.wake_handle.clone()
    }

    /// Puts a call on its way; it leaves with the next wait.
    pub(super) fn invoke(
        &mut self,
        method: ConsumerMethod,
        request: &impl watershed_wire::Encode,
        fd: Option<OwnedFd>,
    ) -> Result<u64, ConsumerError> {
        Ok(match fd {
            Some(fd) => self.ipc.invoke_with(method, request, true, fd),
            None => self.ipc.invoke(method, request, true),
        }?)
    }

    /// Waits until everything is sent.
    pub(super) fn send_all(&mut self, deadline: Instant) -> Result<(), ConsumerError> {
        loop {
            self.send()?;
            if self.ipc.out().is_empty() {
                return Ok(());
            }
            if deadline <= Instant::now() {
                return Err(ConsumerError::NotReading);
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
            wait(&mut fds, Some(deadline))?;
        }
    }

    /// The next event, after `deadline` at the latest; with `can_be_woken` also a wake.
    pub(super) fn event(
        &mut self,
        deadline: Option<Instant>,
        can_be_woken: bool,
    ) -> Result<Arrived, ConsumerError> {
        loop {
            if let Some(event) = self.poll_event()? {
                return Ok(Arrived::Event(event));
            }
            // Before anything is received, so that a service that never pauses does not hold us.
            let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
            // A peer that has closed its end may have told us why: that is received first.
            let sent = self.send();
            let (is_readable, is_woken) = self.wait(deadline, can_be_woken)?;
            if is_woken {
                while self.wake.read(&mut [0; 64]).is_ok_and(|size| size > 0) {}
                return Ok(Arrived::Woken);
            }
            match is_readable {
                true => self.receive()?,
                false => sent?,
            }
            if is_late {
                return Ok(self.poll_event()?.map_or(Arrived::TimedOut, Arrived::Event));
            }
        }
    }

    fn poll_event(&mut self) -> Result<Option<Event<ConsumerMethod>>, ConsumerError> {
        self.ipc.poll().map_err(|error| ConsumerError::Protocol(error.to_string()))
    }

    /// Which of socket and wake have something.
    fn wait(&self, deadline: Option<Instant>, can_be_woken: bool) -> Result<(bool, bool), ConsumerError> {
        let wants_to_send = !self.ipc.out().is_empty();
        let of_socket = if wants_to_send { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::new(&self.socket, of_socket), PollFd::new(&self.wake, PollFlags::IN)];
        let count = if can_be_woken { 2 } else { 1 };
        wait(&mut fds[..count], deadline)?;
        let has_come = |fd: &PollFd<'_>| !(fd.revents() - PollFlags::OUT).is_empty();
        Ok((has_come(&fds[0]), can_be_woken && has_come(&fds[1])))
    }

    fn send(&mut self) -> Result<(), ConsumerError> {
        while let Some((bytes, fd)) = self.ipc.out().front() {
            match socket::send(&self.socket, bytes, fd.map(|fd| fd.as_fd())) {
                Ok(Moved::Bytes(size_bytes)) => self.ipc.out_mut().consume(size_bytes),
                Ok(_) => return Ok(()),
                Err(error) => return Err(ConsumerError::Gone(Some(error))),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), ConsumerError> {
        // Nothing of the consumer port comes with a descriptor; what comes is closed.
        let mut fds = VecDeque::new();
        match socket::receive(&self.socket, self.ipc.spare(), &mut fds) {
            Ok(Moved::Bytes(size_bytes)) => self.ipc.received(size_bytes),
            Ok(Moved::NotReady) => {}
            Ok(Moved::Closed) => return Err(ConsumerError::Gone(None)),
            Err(error) => return Err(ConsumerError::Gone(Some(error))),
        }
        Ok(())
    }
}

/// Waits for one of `fds`, not beyond `deadline`.
fn wait(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> Result<(), ConsumerError> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let timeout = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(ConsumerError::Gone(Some(errno.into()))),
    }
}
