//! Where the packets of a service in another process go.

use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use watershed_client::consumer::{Consumer, ConsumerError};
use watershed_shell::trace_file::whole_packets;
use watershed_wire::framing::append_packet;

use super::super::output::{Output, SharedFile, TraceFile, Written};

/// So much of what is read is written at once.
const BLOCK_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) enum Destination {
    /// They are read at the end.
    Read(TraceFile),
    /// Only clones of the session are read, each into a file of its own.
    Clones,
    /// The service writes the file.
    File(SharedFile),
    /// The service writes into a pipe, and a thread from there into the output.
    Pipe { service_end: Option<OwnedFd>, copying: JoinHandle<io::Result<()>> },
}

impl Destination {
    pub(super) fn new(output: &Output, write_into_file: bool) -> io::Result<(Self, Written)> {
        if !write_into_file {
            let (trace_file, written) = output.writer()?;
            return Ok((Destination::Read(trace_file), written));
        }
        if let Some((file, written)) = output.shared()? {
            return Ok((Destination::File(file), written));
        }
        let (trace_file, written) = output.writer()?;
        let (reader, writer) = io::pipe()?;
        let copying = thread::Builder::new().name("pipe".into()).spawn(move || copy(reader, trace_file))?;
        Ok((Destination::Pipe { service_end: Some(writer.into()), copying }, written))
    }

    /// The descriptor that the service gets.
    pub(super) fn for_service(&mut self) -> io::Result<Option<File>> {
        match self {
            Destination::Read(_) | Destination::Clones => Ok(None),
            Destination::File(file) => file.for_service().map(Some),
            Destination::Pipe { service_end, .. } => Ok(service_end.take().map(File::from)),
        }
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self, Destination::Read(_))
    }

    /// Whether something has to go before the service writes.
    pub(super) fn holds_something(&self) -> bool {
        matches!(self, Destination::File(file) if !file.is_empty())
    }

    pub(super) fn clear(&self) -> io::Result<()> {
        match self {
            Destination::File(file) if !file.is_empty() => file.clear(),
            _ => Ok(()),
        }
    }

    /// The service writes no more: waits until everything is in the output, and counts it.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Destination::Read(_) | Destination::Clones => Ok(()),
            Destination::File(file) => file.count(),
            Destination::Pipe { copying, .. } => {
                copying.join().unwrap_or_else(|_| Err(io::Error::other("the copying thread panicked")))
            }
        }
    }
}

/// Reads what is in the session's buffers into the file.
pub(super) fn read(consumer: &mut Consumer, file: &mut TraceFile) -> Result<(), ConsumerError> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let result = consumer.read_packets(|packet| {
        append_packet(&mut block, &[packet]);
        if block.len() >= BLOCK_BYTES {
            file.write_all(&block)?;
            block.clear();
        }
        Ok(())
    });
    // What came before an error is kept.
    if !matches!(result, Err(ConsumerError::Write(_))) && !block.is_empty() {
        file.write_all(&block).map_err(ConsumerError::Write)?;
    }
    result
}

/// Writes whole packets as they come.
fn copy(mut pipe: PipeReader, mut file: TraceFile) -> io::Result<()> {
    let (mut block, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let count = match pipe.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        block.extend_from_slice(&piece[..count]);
        let whole = whole_packets(&block);
        if whole > 0 {
            file.write_all(&block[..whole])?;
            block.drain(..whole);
        }
    }
}
