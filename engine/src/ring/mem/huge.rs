//! Huge pages, where the system has them.

use std::io;

/// The size of a huge page: 2 MiB is what x86-64 and aarch64 with 4 KiB pages have.
pub(super) const SIZE_BYTES: usize = 2 << 20;

/// Advises transparent huge pages. False where the system does not take the advice.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn advise(base: *mut u8, size_bytes: usize) -> bool {
    // SAFETY: the range is a mapping of ours; the advice changes no content.
    unsafe { libc::madvise(base.cast(), size_bytes, libc::MADV_HUGEPAGE) == 0 }
}

/// Advises transparent huge pages: this system has no such advice.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn advise(_base: *mut u8, _size_bytes: usize) -> bool {
    false
}

/// Makes pages ready as a write to each would. False where the system does not know the call.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn populate(base: *mut u8, size_bytes: usize) -> bool {
    // SAFETY: the range is in a mapping of ours. The kernel only does what a fault does: it changes
    // no content, so that whoever reads or writes the range meanwhile sees nothing of it.
    unsafe { libc::madvise(base.cast(), size_bytes, libc::MADV_POPULATE_WRITE) == 0 }
}

/// Makes pages ready: this system has no such call.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn populate(_base: *mut u8, _size_bytes: usize) -> bool {
    false
}

/// Whether the system's pool has the pages now. Only mapping and unmapping them tells.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn has_pool_for(size_bytes: usize) -> bool {
    let Some(len) = size_bytes.checked_next_multiple_of(SIZE_BYTES) else { return false };
    memmap2::MmapOptions::new().len(len).huge(Some(21)).map_anon().is_ok()
}

/// Whether the system's pool has the pages now: this system has no pool.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn has_pool_for(_size_bytes: usize) -> bool {
    false
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
