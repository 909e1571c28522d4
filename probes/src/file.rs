//! Reading small kernel files without allocating for each of them.
//!
//! The `procfs-core` crate parses what it is handed. The bytes are read here, into one buffer, and
//! files whose path means the same file for ever (`/proc/stat`) stay open and are read again from
//! offset 0.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// No kernel file that the probes read is larger; the rest is cut off, which bounds
/// memory.
pub(crate) const FILE_SIZE_MAX: usize = 4 << 20;

/// First size of a scratch buffer: most files fit, so they take one read and the one that finds the
/// end.
const SCRATCH_SIZE: usize = 16 << 10;

/// A file under /proc that stays open and is read from its start each time, which makes the kernel
/// generate it anew.
#[derive(Debug)]
pub(crate) struct KeptFile(File);

impl KeptFile {
    pub(crate) fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// The whole content, in `scratch`.
    pub(crate) fn read<'s>(&self, scratch: &'s mut Vec<u8>) -> io::Result<&'s [u8]> {
        fill(scratch, |offset, dst| self.0.read_at(dst, offset as u64))
    }
}

/// Opens, reads and closes: for files whose number is not bounded by us (processes, CPUs).
pub(crate) fn read_path<'s>(path: &Path, scratch: &'s mut Vec<u8>) -> io::Result<&'s [u8]> {
    let mut file = File::open(path)?;
    fill(scratch, |_, dst| file.read(dst))
}

/// One number from a one-line file.
pub(crate) fn read_number(path: &Path, scratch: &mut Vec<u8>) -> io::Result<i64> {
    let text = text(read_path(path, scratch)?)?;
    text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a number"))
}

/// The bytes as text; kernel files that hold no names are ASCII.
pub(crate) fn text(bytes: &[u8]) -> io::Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

fn fill(
    scratch: &mut Vec<u8>,
    mut read: impl FnMut(usize, &mut [u8]) -> io::Result<usize>,
) -> io::Result<&[u8]> {
    if scratch.len() < SCRATCH_SIZE {
        scratch.resize(SCRATCH_SIZE, 0);
    }
    let mut filled = 0;
    loop {
        if filled == scratch.len() {
            if filled >= FILE_SIZE_MAX {
                break;
            }
            scratch.resize((filled * 2).min(FILE_SIZE_MAX), 0);
        }
        match read(filled, &mut scratch[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(&scratch[..filled])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_is_generated_anew() {
        let kept = KeptFile::open("/proc/uptime").unwrap();
        let mut scratch = Vec::new();
        let first = kept.read(&mut scratch).unwrap().to_vec();
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert_ne!(first, kept.read(&mut scratch).unwrap());
    }

    #[test]
    fn files_larger_than_the_scratch_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let content: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let mut scratch = Vec::new();
        assert_eq!(read_path(&path, &mut scratch).unwrap(), content);
        let kept = KeptFile::open(path).unwrap();
        assert_eq!(kept.read(&mut scratch).unwrap(), content);
    }

    #[test]
    fn no_more_than_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        File::create(&path).unwrap().set_len(FILE_SIZE_MAX as u64 * 2).unwrap();
        assert_eq!(read_path(&path, &mut Vec::new()).unwrap().len(), FILE_SIZE_MAX);
    }

    #[test]
    fn numbers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n");
        std::fs::write(&path, " -42\n").unwrap();
        assert_eq!(read_number(&path, &mut Vec::new()).unwrap(), -42);
        std::fs::write(&path, "x\n").unwrap();
        assert!(read_number(&path, &mut Vec::new()).is_err());
        assert!(read_number(&dir.path().join("none"), &mut Vec::new()).is_err());
    }
}
