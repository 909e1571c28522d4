//! Wakes a thread that waits for sockets.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::sync::{AtomicBool, Ordering};

/// A pair of sockets: the thread waits for one of them. Any number of wake-ups before the thread
/// has woken are one, and cost one system call.
#[derive(Debug)]
pub(super) struct Wakeup {
    asked: AtomicBool,
    writer: UnixStream,
    reader: UnixStream,
}

impl Wakeup {
    /// # Errors
    ///
    /// The system's refusal.
    pub(super) fn new() -> io::Result<Self> {
        let (writer, reader) = UnixStream::pair()?;
        writer.set_nonblocking(true)?;
        reader.set_nonblocking(true)?;
        Ok(Self { asked: AtomicBool::new(false), writer, reader })
    }

    /// Makes the thread look at what the caller has left for it.
    pub(super) fn wake(&self) {
        // Release pairs with the Acquire of `clear`: a thread that clears this wake-up sees what
        // was left before it. Acquire is not needed, but a swap of one order only is no cheaper.
        if !self.asked.swap(true, Ordering::AcqRel) {
            // Not written only if the pair is full, and then the thread wakes anyway.
            let _ = (&self.writer).write(&[1]);
        }
    }

    /// Readable after a wake-up.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// For the thread, before it looks.
    pub(super) fn clear(&self) {
        let mut bytes = [0; 16];
        while matches!((&self.reader).read(&mut bytes), Ok(1..)) {}
        // Acquire pairs with the Release of `wake`. A wake-up behind this exchange writes a byte
        // again.
        self.asked.swap(false, Ordering::AcqRel);
    }
}
