//! Where a session's trace goes.

use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Weak};

use prost::encoding::decode_varint;

/// Where a session's trace goes.
#[derive(Debug)]
pub enum Sink {
    /// Into a file, from its present position on. A failed write leaves whole packets: the file is
    /// cut behind the last one. What the config wants made durable is.
    File(File),
    /// Into anything. It is given slices of whole packets as they lie in a trace file, about 1 MiB
    /// at most unless one packet is larger, many of them in one vectored write.
    Writer(Box<dyn WriteSend>),
    /// Nowhere: it stays in the buffers until somebody reads it.
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
pub struct Output(Kind);

#[derive(Debug)]
enum Kind {
    File {
        /// Shared with who copies from it ([`Written`]), for the time of one copy.
        file: Arc<File>,
        /// Where the first block began.
        begin: u64,
        /// Where the next block begins; `None` for what cannot be cut, like a pipe.
        end: Option<u64>,
        /// Memory may lie behind its end.
        has_reserved: bool,
    },
    Writer(Box<dyn WriteSend>),
}

/// What was written into an [`Output`], for another thread than the one that writes. It does not
/// keep the file open.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// `None` if it cannot be read back.
    file: Option<Weak<File>>,
    begin: u64,
}

impl Output {
    /// Begins to use a sink; `None` for [`Sink::Buffers`].
    #[must_use]
    pub fn new(sink: Sink) -> Option<Self> {
        match sink {
            Sink::File(mut file) => {
                let end = file.stream_position().ok();
                Some(Self(Kind::File {
                    file: Arc::new(file),
                    begin: end.unwrap_or(0),
                    end,
                    has_reserved: false,
                }))
            }
            Sink::Writer(writer) => Some(Self(Kind::Writer(writer))),
            Sink::Buffers => None,
        }
    }

    /// Writes slices of whole packets. Returns how many bytes of them are in the trace, all of them
    /// or, with the error, those of the packets that are there as a whole (none if that is not
    /// known).
    pub fn write(&mut self, slices: &[IoSlice<'_>]) -> (u64, io::Result<()>) {
        match &mut self.0 {
            Kind::Writer(writer) => match write_counting(writer, slices) {
                (written, Ok(())) => (written as u64, Ok(())),
                (_, Err(error)) => (0, Err(error)),
            },
            Kind::File { file, end, .. } => {
                let mut file = &**file;
                let (written, result) = write_counting(&mut file, slices);
                let kept = if result.is_ok() { written } else { whole_packets_within(slices, written) };
                if let Some(end) = end {
                    *end += kept as u64;
                    if result.is_err() {
                        // Failing this as well, the file ends in the middle of a packet: readers
                        // stop there.
                        let _ = file.set_len(*end).and_then(|()| file.seek(SeekFrom::Start(*end)));
                    }
                }
                (kept as u64, result)
            }
        }
    }

    /// For who copies what was written here.
    #[must_use]
    pub fn written(&self) -> Written {
        match &self.0 {
            Kind::File { file, begin, end: Some(_), .. } => {
                Written { file: Some(Arc::downgrade(file)), begin: *begin }
            }
            _ => Written::default(),
        }
    }

    /// Appends `size_bytes` of what was written elsewhere, from `offset_bytes` on. The position of
    /// that file stays.
    ///
    /// # Errors
    ///
    /// The system's, if one of them is no file that can be read and cut, and if the other one is
    /// closed. What was copied by then stays.
    pub fn copy_from(&mut self, from: &Written, offset_bytes: u64, size_bytes: u64) -> io::Result<()> {
        const BLOCK_BYTES: u64 = 1 << 20;
        let (Some(from_file), Kind::File { file, end: Some(end), .. }) = (&from.file, &mut self.0) else {
            return Err(io::Error::other("the trace goes to something that cannot be read back"));
        };
        let from_file = from_file.upgrade().ok_or_else(|| io::Error::other("the file is closed"))?;
        let mut block = vec![0; BLOCK_BYTES.min(size_bytes) as usize];
        let mut copied = 0;
        while copied < size_bytes {
            let block = &mut block[..(size_bytes - copied).min(BLOCK_BYTES) as usize];
            from_file.read_exact_at(block, from.begin + offset_bytes + copied)?;
            (&**file).write_all(block)?;
            *end += block.len() as u64;
            copied += block.len() as u64;
        }
        Ok(())
    }

    /// Asks the system for memory in which what is written next will lie, `size_bytes` from
    /// `offset_bytes` behind what was written: to find it takes most of the time of a write. The
    /// file does not become longer. False if there is none to be had, or none to be asked for: that
    /// is so of all files but those in memory.
    pub fn reserve(&mut self, offset_bytes: u64, size_bytes: u64) -> bool {
        let Kind::File { file, end: Some(end), has_reserved, .. } = &mut self.0 else { return false };
        let is_reserved = room::reserve(file, *end + offset_bytes, size_bytes);
        *has_reserved |= is_reserved;
        is_reserved
    }

    /// Gives back the [reserved](Self::reserve) memory into which nothing was written.
    pub fn give_back_reserved(&mut self) {
        if let Kind::File { file, has_reserved, .. } = &mut self.0
            && std::mem::take(has_reserved)
        {
            // Setting the length that it has cuts what lies behind it. Failing this, the memory
            // goes with the file.
            let _ = file.metadata().and_then(|metadata| file.set_len(metadata.len()));
        }
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn sync(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::File { end: Some(_), file, .. } => match file.sync_data() {
                // What has a position and nothing to make durable, like `/dev/null`.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                result => result,
            },
            // What has no position has nothing to make durable either.
            Kind::File { end: None, .. } => Ok(()),
            Kind::Writer(writer) => writer.flush(),
        }
    }
}

/// Memory of files before they are written.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod room {
    use std::fs::File;

    use rustix::fs::{FallocateFlags, fallocate, fstatfs};

    /// Of tmpfs and of memory files. On disks a write takes memory of another kind.
    const TMPFS_MAGIC: u32 = 0x0102_1994;

    pub(super) fn reserve(file: &File, begin: u64, size_bytes: u64) -> bool {
        let is_in_memory = fstatfs(file).is_ok_and(|system| system.f_type as u32 == TMPFS_MAGIC);
        is_in_memory && fallocate(file, FallocateFlags::KEEP_SIZE, begin, size_bytes).is_ok()
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod room {
    pub(super) fn reserve(_: &std::fs::File, _: u64, _: u64) -> bool {
        false
    }
}

/// As `write_all` of all slices, but says how much was written when it fails.
fn write_counting(writer: &mut impl Write, slices: &[IoSlice<'_>]) -> (usize, io::Result<()>) {
    let mut slices = slices.to_vec();
    let (mut rest, mut written) = (slices.as_mut_slice(), 0);
    while !rest.is_empty() {
        match writer.write_vectored(rest) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                written += count;
                IoSlice::advance_slices(&mut rest, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// How many of the first `written` bytes of slices of whole packets are whole packets.
fn whole_packets_within(slices: &[IoSlice<'_>], written: usize) -> usize {
    let mut whole = 0;
    for slice in slices {
        if slice.len() > written - whole {
            return whole + whole_packets(&slice[..written - whole]);
        }
        whole += slice.len();
    }
    whole
}

/// How many of the bytes, from the first on, are whole packets: field 1 of a `Trace`, one after the
/// other.
#[must_use]
pub fn whole_packets(bytes: &[u8]) -> usize {
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
        for at in [0, 4, 6, 11] {
            let slices = [&block[..at], &block[at..]].map(IoSlice::new);
            let within: Vec<_> = (0..=block.len()).map(|len| whole_packets_within(&slices, len)).collect();
            assert_eq!(within, whole);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_whole_packets() {
        let file = tempfile::tempfile().unwrap();
        let mut output = Output::new(Sink::File(file.try_clone().unwrap())).unwrap();
        let packet = [&[0x0A, 98][..], &[7; 98]].concat();
        let (bytes, result) =
            output.write(&[IoSlice::new(&packet.repeat(3)), IoSlice::new(&packet.repeat(7))]);
        assert_eq!((bytes, result.is_ok()), (1000, true));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut output =
            Output(Kind::File { file: Arc::new(full), begin: 0, end: None, has_reserved: false });
        let (bytes, result) = output.write(&[IoSlice::new(&packet)]);
        assert_eq!((bytes, result.unwrap_err().kind()), (0, io::ErrorKind::StorageFull));
        assert_eq!(file.metadata().unwrap().len(), 1000);
    }

    /// A consumer may pass it: the trace is to be thrown away.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_without_memory_is_written_and_synced() {
        let null = File::options().write(true).open("/dev/null").unwrap();
        assert!(null.sync_data().is_err(), "the system says that it cannot");
        let mut output = Output::new(Sink::File(null)).unwrap();
        assert!(output.write(&[IoSlice::new(&[0x0A, 0])]).1.is_ok());
        output.sync().unwrap();
    }

    #[test]
    fn a_part_of_one_file_is_appended_to_another() {
        let [from, to] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        (&from).write_all(b"before").unwrap();
        (&to).write_all(b"old ").unwrap();
        let read = to.try_clone().unwrap();
        let mut source = Output::new(Sink::File(from)).unwrap();
        let mut copy = Output::new(Sink::File(to)).unwrap();
        source.write(&[IoSlice::new(b"0123456789")]).1.unwrap();
        let written = source.written();
        copy.copy_from(&written, 2, 5).unwrap();
        source.write(&[IoSlice::new(b"abc")]).1.unwrap();
        copy.copy_from(&written, 7, 6).unwrap();
        copy.write(&[IoSlice::new(b" end")]).1.unwrap();
        let mut bytes = vec![0; read.metadata().unwrap().len() as usize];
        read.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, b"old 23456789abc end");
        let beyond = copy.copy_from(&written, 7, 7).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
        drop(source);
        let closed = copy.copy_from(&written, 0, 1).unwrap_err();
        assert_eq!(closed.to_string(), "the file is closed");
        let (_reader, pipe) = io::pipe().unwrap();
        let pipe = Output::new(Sink::File(std::os::fd::OwnedFd::from(pipe).into())).unwrap();
        assert!(copy.copy_from(&pipe.written(), 0, 1).is_err());
    }

    /// Asked for and given back in files in memory; files that are none are left alone.
    #[cfg(target_os = "linux")]
    #[test]
    fn room_is_there_before_it_is_written() {
        use std::os::unix::fs::MetadataExt as _;
        const ROOM_BYTES: u64 = 1 << 20;
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        let held = || file.metadata().map(|found| (found.len(), found.blocks() * 512)).unwrap();
        let packet = [&[0x0A, 98][..], &[7; 98]].concat();
        let mut output = Output::new(Sink::File(file.try_clone().unwrap())).unwrap();
        output.write(&[IoSlice::new(&packet)]).1.unwrap();
        assert!(output.reserve(0, ROOM_BYTES) && output.reserve(ROOM_BYTES, ROOM_BYTES));
        assert!(held().0 == 100 && held().1 >= 2 * ROOM_BYTES, "{:?}", held());
        output.write(&[IoSlice::new(&packet)]).1.unwrap();
        output.give_back_reserved();
        assert!(held().0 == 200 && held().1 < ROOM_BYTES, "{:?}", held());

        let read_only = File::open("/dev/null").unwrap();
        let (_reader, pipe) = io::pipe().unwrap();
        for file in [read_only, std::os::fd::OwnedFd::from(pipe).into()] {
            let mut output = Output::new(Sink::File(file)).unwrap();
            assert!(!output.reserve(0, ROOM_BYTES));
            output.give_back_reserved();
        }
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
        let slices = [&[0; 15][..], &[0; 25]].map(IoSlice::new);
        let (written, result) = write_counting(&mut Room(25), &slices);
        assert_eq!((written, result.unwrap_err().kind()), (25, io::ErrorKind::WriteZero));
        assert_eq!(write_counting(&mut Room(50), &slices).0, 40);
    }
}
