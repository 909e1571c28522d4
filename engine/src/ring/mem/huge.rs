//! Huge pages, where the system has them.

use std::io;

/// The size of a huge page: 2 MiB is what x86-64 and aarch64 with 4 KiB pages have.
pub const SIZE_BYTES: usize = 2 << 20;

/// Whether the system's pool has the pages now. Only mapping and unmapping them tells. Only Linux
/// has a pool.
pub(super) fn has_pool_for(size_bytes: usize) -> bool {
    let Some(len) = size_bytes.checked_next_multiple_of(SIZE_BYTES) else { return false };
    let map = || memmap2::MmapOptions::new().len(len).huge(Some(21)).map_anon();
    cfg!(any(target_os = "linux", target_os = "android")) && map().is_ok()
}

/// Replaces plain pages by huge pages.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn replace(base: *mut u8, size_bytes: usize) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_HUGETLB | (21 << 26);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range lies inside a mapping of ours that nobody has a reference to.
    let got = unsafe { libc::mmap(base.cast(), size_bytes, protection, flags, -1, 0) };
    if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Replaces plain pages by huge pages: this system has none.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn replace(_base: *mut u8, _size_bytes: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
