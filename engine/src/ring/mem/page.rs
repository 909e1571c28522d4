//! The system's pages.

use std::io;
use std::sync::OnceLock;

/// The size of a page, asked of the system once: 4, 16 or 64 KiB.
pub fn page_size_bytes() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: sysconf only returns a value.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(4096)
    })
}

/// What the system can do with pages, where it knows how: Linux, by its numbers for `madvise(2)`.
#[derive(Clone, Copy)]
pub(super) enum Advice {
    /// Transparent huge pages.
    HugePages = 14,
    /// None of these from here on.
    PlainPages = 15,
    /// Pages made ready as a write to each would, without changing a byte (Linux 5.14).
    Populate = 23,
    /// Every access is a fault (Linux 6.13; not for locked memory). Unlike a change of protection
    /// it does not split the mapping, which costs more than making and unmapping it.
    Guard = 102,
}

/// Has the system do something with whole pages of ours. False where it does not.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn advise(start: *mut u8, size_bytes: usize, advice: Advice) -> bool {
    // SAFETY: the range is in a mapping of ours. None of these changes what can be read there, but
    // for guards, which are for pages to which no reference exists.
    unsafe { libc::madvise(start.cast(), size_bytes, advice as libc::c_int) == 0 }
}

/// Has the system do something with pages: this one knows none of it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn advise(_start: *mut u8, _size_bytes: usize, _advice: Advice) -> bool {
    false
}

/// Makes every access to whole pages of ours a fault.
pub(super) fn forbid_access(start: *mut u8, size_bytes: usize) -> io::Result<()> {
    // SAFETY: the caller's pages belong to a mapping that it has just made and to which no
    // reference exists.
    let protect = || unsafe { libc::mprotect(start.cast(), size_bytes, libc::PROT_NONE) };
    if advise(start, size_bytes, Advice::Guard) || protect() == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}
