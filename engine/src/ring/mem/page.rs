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

/// Makes every access to whole pages of ours a fault.
pub(super) fn forbid_access(start: *mut u8, size_bytes: usize) -> io::Result<()> {
    // SAFETY: the caller's pages belong to a mapping that it has just made and to which no
    // reference exists.
    match unsafe { libc::mprotect(start.cast(), size_bytes, libc::PROT_NONE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
