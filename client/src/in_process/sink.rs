//! Where a session's trace goes.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use prost::encoding::decode_varint;

/// Where a session's trace goes.
#[derive(Debug)]
pub enum Sink {
    /// Into a file, from its present position on. A failed write leaves whole packets: the file is cut behind the last
    /// one. What the config wants made durable is.
    File(File),
    /// Into anything. Every write is a block of whole packets as they lie in a trace file, about 1 MiB at most unless
    /// one packet is larger.
    Writer(Box<dyn WriteSend>),
    /// Nowhere: it stays in the buffers until [`super::Session::read`].
    Buffers,
}

/// A writer that can be moved to the service's thread.
pub trait WriteSend: Write + Send {}

impl<W: Write + Send> WriteSend for W {}

impl std::fmt::Debug for dyn WriteSend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("dyn WriteSend")
    }
}

impl Sink {
    /// A sink that gives every block to `writer`.
    #[must_use]
    pub fn writer(writer: impl Write + Send + 'static) -> Self {
        Self::Writer(Box::new(writer))
    }
}

/// A sink in use.
#[derive(Debug)]
pub(super) enum Output {
    File {
        file: File,
        /// Where the next block begins; `None` for what cannot be cut, like a pipe.
        end: Option<u64>,
    },
    Writer(Box<dyn WriteSend>),
}

impl Output {
    pub(super) fn new(sink: Sink) -> Option<Self> {
        match sink {
            Sink::File(mut file) => {
                let end = file.stream_position().ok();
                Some(Self::File { file, end })
            }
            Sink::Writer(writer) => Some(Self::Writer(writer)),
            Sink::Buffers => None,
        }
    }

    /// Writes a block of whole packets. Returns how many bytes of it are in the trace, all of them or, with the error,
    /// those of the packets that are there as a whole (none if that is not known).
    pub(super) fn write(&mut self, block: &[u8]) -> (u64, io::Result<()>) {
        match self {
            Self::Writer(writer) => match writer.write_all(block) {
                Ok(()) => (block.len() as u64, Ok(())),
                Err(error) => (0, Err(error)),
            },
            Self::File { file, end } => {
                let (written, result) = write_counting(file, block);
                let kept = if result.is_ok() { written } else { whole_packets(&block[..written]) };
                if let Some(end) = end {
                    *end += kept as u64;
                    if result.is_err() {
                        // Failing this as well, the file ends in the middle of a packet: readers stop there.
                        let _ = file.set_len(*end).and_then(|()| file.seek(SeekFrom::Start(*end)));
                    }
                }
                (kept as u64, result)
            }
        }
    }

    /// Makes what was written durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        match self {
            Self::File { end: Some(_), file } => file.sync_data(),
            // What has no position has nothing to make durable either.
            Self::File { end: None, .. } => Ok(()),
            Self::Writer(writer) => writer.flush(),
        }
    }
}

/// As `write_all`, but says how much was written when it fails.
fn write_counting(writer: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match writer.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// How many of the bytes are whole packets: field 1 of a `Trace`, one after the other.
fn whole_packets(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some((_tag, mut at)) = rest.split_first() {
        let Ok(size) = decode_varint(&mut at) else { break };
        let Some(next) = usize::try_from(size).ok().and_then(|size| at.get(size..)) else { break };
        rest = next;
    }
    bytes.len() - rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_packets_count() {
        let block = [0x0A, 2, 1, 2, 0x0A, 0, 0x0A, 3, 1, 2, 3];
        let whole: Vec<_> = (0..=block.len()).map(|len| whole_packets(&block[..len])).collect();
        assert_eq!(whole, [0, 0, 0, 0, 4, 4, 6, 6, 6, 6, 6, 11]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_whole_packets() {
        // The limit of file sizes plays the full disk, in a child: it is one of the process.
        let file = tempfile::tempfile().unwrap();
        let mut output = Output::new(Sink::File(file.try_clone().unwrap())).unwrap();
        let packet = [&[0x0A, 98][..], &[7; 98]].concat();
        let (bytes, result) = output.write(&packet.repeat(10));
        assert_eq!((bytes, result.is_ok()), (1000, true));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut output = Output::File { file: full, end: None };
        let (bytes, result) = output.write(&packet);
        assert_eq!((bytes, result.unwrap_err().kind()), (0, io::ErrorKind::StorageFull));
        assert_eq!(file.metadata().unwrap().len(), 1000);
    }

    #[test]
    fn a_write_that_stops_in_the_middle_says_where() {
        struct Room(usize);
        impl Write for Room {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let now = bytes.len().min(self.0).min(7);
                self.0 -= now;
                Ok(now)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (written, result) = write_counting(&mut Room(25), &[0; 40]);
        assert_eq!((written, result.unwrap_err().kind()), (25, io::ErrorKind::WriteZero));
        assert_eq!(write_counting(&mut Room(50), &[0; 40]).0, 40);
    }
}
