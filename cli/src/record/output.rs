//! The trace file: opened before anything is recorded, and never left with half a packet in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::tally::Tally;

/// `trace-<date>-<time>` for a recording that starts now, in local time.
fn default_stem() -> String {
    jiff::Zoned::now().strftime("trace-%Y%m%d-%H%M%S").to_string()
}

/// Where the trace goes. Opened and still untouched: what is in a file of that name is gone only
/// when the first packets come.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    file: File,
    is_new: bool,
    /// Ours from its first byte to its last. Standard output may stand behind what others wrote.
    is_whole: bool,
}

impl Output {
    /// Standard output, under the name that users know it by.
    pub(super) fn standard() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Output { path: "-".into(), file, is_new: false, is_whole: false })
    }

    /// Creates `trace-<date>-<time>.pftrace` in the current directory. What others recorded in the
    /// same second stays: a number behind the time tells this one from theirs.
    pub(super) fn create_by_time() -> Result<Self, (PathBuf, io::Error)> {
        Self::create_numbered(Path::new(""), &default_stem())
    }

    fn create_numbered(folder: &Path, stem: &str) -> Result<Self, (PathBuf, io::Error)> {
        let mut number = 1_u32;
        loop {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let path = folder.join(format!("{stem}{suffix}.pftrace"));
            match Self::create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < u32::MAX => {
                    number += 1;
                }
                result => return result.map_err(|error| (path, error)),
            }
        }
    }

    /// As `open`, of a file that is not there.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Output { path: path.to_owned(), file, is_new: true, is_whole: true })
    }

    /// Opens the file for writing, or creates it.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        match Self::create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = OpenOptions::new().write(true).open(&path)?;
                Ok(Output { path, file, is_new: false, is_whole: true })
            }
            result => result,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The writer for the session. What it wrote can be read from the second value at any time.
    pub(super) fn writer(&self) -> io::Result<(TraceFile, Written)> {
        let written = Written::default();
        let tally = Arc::clone(&written.0);
        let file = self.file.try_clone()?;
        Ok((TraceFile { file, is_whole: self.is_whole, state: State::Untouched, tally }, written))
    }

    /// For a service that writes the trace itself. `None` for what cannot be read afterwards, a
    /// pipe or a device, and for standard output, which may stand behind what others wrote.
    pub(super) fn shared(&self) -> io::Result<Option<(SharedFile, Written)>> {
        let metadata = self.file.metadata()?;
        if !self.is_whole || !metadata.is_file() {
            return Ok(None);
        }
        let written = Written::default();
        let tally = Arc::clone(&written.0);
        let file = self.file.try_clone()?;
        let is_empty = metadata.len() == 0;
        Ok(Some((SharedFile { path: self.path.clone(), file, is_empty, tally }, written)))
    }

    /// Nothing was recorded: a file that was not there before is not there afterwards.
    pub(super) fn discard(self) {
        self.remove_if_new();
    }

    pub(super) fn remove_if_new(&self) {
        if self.is_new {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Takes blocks of whole framed packets and writes them to the file.
///
/// When a write fails (the disk is full, a limit on file sizes) the file is cut back to the last
/// whole packet, so that it stays a valid trace; every later write fails too.
#[derive(Debug)]
pub(super) struct TraceFile {
    file: File,
    is_whole: bool,
    state: State,
    tally: Arc<Mutex<Tally>>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// May still hold what it held before.
    Untouched,
    Written,
    Failed,
}

/// What has been written, to be read while and after the file is written.
#[derive(Debug, Clone, Default)]
pub(super) struct Written(Arc<Mutex<Tally>>);

impl Written {
    pub(super) fn tally(&self) -> Tally {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TraceFile {
    fn write_block(&mut self, block: &[u8]) -> io::Result<()> {
        let (written, result) = write_as_much_as_possible(&mut self.file, block);
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.count(&block[..written]);
        if result.is_err() {
            self.state = State::Failed;
            self.cut(tally.bytes);
        }
        result
    }

    /// Not every output can be cut: pipes and devices take what they took.
    fn cut(&self, size_bytes: u64) {
        if self.is_whole {
            let _ = self.file.set_len(size_bytes);
        }
    }
}

impl Write for TraceFile {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        match self.state {
            State::Failed => return Err(io::Error::other("an earlier write failed")),
            State::Untouched => self.cut(0),
            State::Written => {}
        }
        self.state = State::Written;
        self.write_block(block).map(|()| block.len())
    }

    /// Makes what was written durable, where the config asks for that.
    fn flush(&mut self) -> io::Result<()> {
        match self.file.sync_data() {
            // A pipe or a device has nothing to make durable.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }
}

/// A file that the service writes into, from its beginning on.
#[derive(Debug)]
pub(super) struct SharedFile {
    path: PathBuf,
    file: File,
    is_empty: bool,
    tally: Arc<Mutex<Tally>>,
}

impl SharedFile {
    /// The descriptor for the service. Both share one position.
    pub(super) fn for_service(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Whether nothing has to be removed before the service writes.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub(super) fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Counts what the service has written, when it writes no more. A packet that it could not end
    /// is cut off.
    pub(super) fn count(&self) -> io::Result<()> {
        let (tally, is_cut) = Tally::of_file(&self.path)?;
        if is_cut {
            self.file.set_len(tally.bytes)?;
        }
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = tally;
        Ok(())
    }
}

fn write_as_much_as_possible(out: &mut impl Write, block: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < block.len() {
        match out.write(&block[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(size) => written += size,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use watershed_wire::framing::append_packet;

    #[test]
    fn names_by_time() {
        let stem = default_stem();
        assert!(stem.starts_with("trace-2"), "{stem}");
        assert_eq!(stem.len(), "trace-20260102-030405".len());
        let dir = tempfile::tempdir().unwrap();
        let outputs = [(); 3].map(|()| Output::create_numbered(dir.path(), "t").unwrap());
        let names = outputs.each_ref().map(|output| output.path().file_name().unwrap().to_owned());
        assert_eq!(names, ["t.pftrace", "t-2.pftrace", "t-3.pftrace"]);
        let (path, error) = Output::create_numbered(&dir.path().join("none"), "t").unwrap_err();
        assert_eq!((path, error.kind()), (dir.path().join("none/t.pftrace"), io::ErrorKind::NotFound));
    }

    #[test]
    fn what_cannot_be_written_fails_and_stays_failed() {
        let output = Output::open("/dev/full".into()).unwrap();
        let (mut out, written) = output.writer().unwrap();
        let mut block = Vec::new();
        append_packet(&mut block, &[&[0x50, 2]]);
        assert_eq!(out.write_all(&block).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(out.write_all(&block).is_err());
        assert_eq!(written.tally(), Tally::default());
        output.discard();
        assert!(Path::new("/dev/full").exists(), "was there before");
    }

    #[test]
    fn an_old_file_is_gone_with_the_first_packets_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        fs::write(&path, "precious").unwrap();
        let output = Output::open(path.clone()).unwrap();
        let (mut out, written) = output.writer().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        let mut block = Vec::new();
        append_packet(&mut block, &[&[0x50, 2]]);
        out.write_all(&block).unwrap();
        out.write_all(&block).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [&block[..], &block].concat());
        assert_eq!((written.tally().packets, written.tally().bytes), (2, 8));
        output.discard();
        assert!(path.exists());
        let output = Output::open(dir.path().join("new")).unwrap();
        assert!(output.path().exists());
        output.discard();
        assert!(!dir.path().join("new").exists());
    }

    /// Takes some bytes and is full then.
    struct Small(usize);

    impl Write for Small {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let size = buf.len().min(self.0).min(3);
            self.0 -= size;
            if size == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(size) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn writes_what_fits() {
        let (written, result) = write_as_much_as_possible(&mut Small(10), &[7; 12]);
        assert_eq!((written, result.unwrap_err().kind()), (10, io::ErrorKind::StorageFull));
        let (written, result) = write_as_much_as_possible(&mut Small(100), &[7; 12]);
        assert_eq!((written, result.is_ok()), (12, true));
    }
}
