//! A service whose thread a test holds up.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender};

/// A sink that stops the service's thread in its first write, until the test drops its end.
pub(crate) struct Stopping {
    pub(crate) entered: Sender<()>,
    pub(crate) released: Receiver<()>,
}

impl Write for Stopping {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.entered.send(());
        let _ = self.released.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
