//! Where the kernel's tracing files are, and small reads and writes of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::Roots;

/// Largest file that is read whole: `available_events` of a large kernel has 200 KiB.
const FILE_SIZE_MAX: u64 = 16 << 20;

/// Room for the first read.
const READ_SIZE: usize = 16 << 10;

/// Why nothing can be recorded from the kernel.
#[derive(Debug)]
pub(super) enum Unavailable {
    NoTracefs,
    NotMounted(io::Error),
    NoInstances(PathBuf),
    NoAccess(PathBuf, io::Error),
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoTracefs => f.write_str(
                "this kernel has no tracefs; it needs one that was built with CONFIG_FTRACE and \
                 CONFIG_EVENT_TRACING",
            ),
            Self::NotMounted(error) => write!(
                f,
                "tracefs is not mounted, and mounting it failed ({error}); as root: \
                 mount -t tracefs nodev /sys/kernel/tracing"
            ),
            Self::NoInstances(path) => {
                write!(f, "{} has no folder instances; recording needs Linux 3.10 or later", path.display())
            }
            Self::NoAccess(path, error) => write!(
                f,
                "{} may not be used by this user ({error}); run as root, for example with sudo",
                path.display()
            ),
        }
    }
}

/// A mounted tracefs that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceFs {
    root: PathBuf,
}

impl TraceFs {
    /// Finds it where kernels have it, and mounts it if it is nowhere. It stays mounted.
    pub(super) fn find(roots: &Roots) -> Result<Self, Unavailable> {
        let places = ["kernel/tracing", "kernel/debug/tracing"].map(|place| roots.sys.join(place));
        let is_mounted = |place: &PathBuf| fs::metadata(place.join("trace_clock")).is_ok();
        if let Some(place) = places.iter().find(|place| is_mounted(place)) {
            return Self::with_access(place.clone());
        }
        let [place, _] = places;
        if let Err(error) = fs::read_dir(&place)
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            return Err(Unavailable::NoAccess(place, error));
        }
        if !has_tracefs(roots) || !place.exists() {
            return Err(Unavailable::NoTracefs);
        }
        let flags = rustix::mount::MountFlags::NOSUID
            | rustix::mount::MountFlags::NODEV
            | rustix::mount::MountFlags::NOEXEC;
        rustix::mount::mount("nodev", &place, "tracefs", flags, None)
            .map_err(|error| Unavailable::NotMounted(error.into()))?;
        Self::with_access(place)
    }

    /// Recording makes an instance, so that folder must be writable.
    fn with_access(root: PathBuf) -> Result<Self, Unavailable> {
        match access(root.join("instances"), Access::WRITE_OK | Access::EXEC_OK) {
            Ok(()) => Ok(Self { root }),
            Err(Errno::NOENT) => Err(Unavailable::NoInstances(root)),
            Err(error) => Err(Unavailable::NoAccess(root, error.into())),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The format file of an event.
    pub(super) fn format(&self, group: &str, name: &str) -> io::Result<String> {
        read(&self.root.join("events").join(group).join(name).join("format"))
    }
}

fn has_tracefs(roots: &Roots) -> bool {
    let known = fs::read_to_string(roots.proc.join("filesystems")).unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().next_back() == Some("tracefs"))
}

/// A whole file as text. Names in it may be of any bytes.
pub(super) fn read(path: &Path) -> io::Result<String> {
    // Of some files the kernel gives only what one read has room for.
    let mut bytes = Vec::with_capacity(READ_SIZE);
    File::open(path)?.take(FILE_SIZE_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes a value in one call, as the kernel wants it. Nothing is truncated, which would clear some
/// files.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// Adds to a list.
pub(super) fn append(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(dir: &Path) -> Roots {
        Roots { proc: dir.join("proc"), sys: dir.join("sys") }
    }

    #[test]
    fn a_kernel_without_tracefs_says_so() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc")).unwrap();
        fs::write(dir.path().join("proc/filesystems"), "nodev\tproc\n").unwrap();
        let error = TraceFs::find(&roots(dir.path())).unwrap_err();
        assert!(matches!(error, Unavailable::NoTracefs), "{error}");
        assert!(error.to_string().contains("CONFIG_FTRACE"));
    }

    #[test]
    fn words_for_those_who_may_not() {
        let denied = || io::Error::from(Errno::ACCESS);
        let place = PathBuf::from("/sys/kernel/tracing");
        for (error, words) in [
            (Unavailable::NoAccess(place, denied()), "run as root"),
            (Unavailable::NotMounted(denied()), "as root: mount -t tracefs nodev /sys/kernel/tracing"),
        ] {
            let said = error.to_string();
            assert!(said.contains(words) && said.contains("Permission denied"), "{said}");
        }
    }

    #[test]
    fn the_second_place_is_found_and_needs_instances() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("sys/kernel/debug/tracing");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("trace_clock"), "[local] boot").unwrap();
        let error = TraceFs::find(&roots(dir.path())).unwrap_err();
        assert!(matches!(error, Unavailable::NoInstances(_)), "{error}");
        assert!(error.to_string().contains("needs Linux 3.10"), "{error}");
        fs::create_dir(place.join("instances")).unwrap();
        assert_eq!(TraceFs::find(&roots(dir.path())).unwrap().root(), place);
    }
}
