//! The mapping of memory that is shared with another process, or between parts of one.

#![cfg(not(loom))]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use thiserror::Error;

use crate::sizing::{MAX_SMB_SIZE_BYTES, MIN_PAGE_SIZE_BYTES};

/// Name of the memory that the service creates, as other tools show it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MEMFD_NAME: &str = "perfetto_shmem";

/// Why memory that a peer offered was not taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MapError {
    /// The system refused a call.
    #[error("cannot {what}: {error}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
    /// The size is 0, not a multiple of 4096, or above 32 MiB.
    #[error(
        "shared memory of {size_bytes} bytes: it must be a multiple of 4096 bytes, from 4096 to 33554432"
    )]
    Size {
        /// Size of the file that was offered.
        size_bytes: u64,
    },
    /// The descriptor is not a memfd sealed against shrinking, growing and further sealing. Without
    /// the seals the owner could truncate the file, and the next access here would be a bus error.
    #[error("shared memory is not a memfd with the seals SHRINK, GROW and SEAL")]
    NotSealed,
}

fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> MapError {
    move |errno| MapError::System { what, error: errno.into() }
}

/// Memory that is mapped shared, for reading and writing. New memory is zero-filled.
///
/// The mapping lives until the value is dropped. There are no references to its bytes: it is used
/// through [`crate::Smb`]. Creation touches no page.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    size_bytes: usize,
    fd: Option<OwnedFd>,
    /// There if children do not have the mapping.
    parents: Option<ParentsOnly>,
}

// SAFETY: the value is an address range that it owns exclusively and a descriptor. All access to
// the range is through atomics and `copy_untrusted`, from any thread.
unsafe impl Send for SharedMemory {}
// SAFETY: as for `Send`; the methods of a shared reference only read the two numbers.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// New memory of `size_bytes`, a multiple of 4096 from 4096 to 32 MiB, that can be handed to
    /// another process: a sealed memfd where the system has it, else an anonymous shared mapping
    /// (which only a forked child shares).
    ///
    /// # Errors
    ///
    /// [`MapError::Size`], or the system's refusal.
    pub fn create(size_bytes: usize) -> Result<Self, MapError> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            Self::create_sealed(size_bytes)
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            Self::anonymous(size_bytes)
        }
    }

    /// New memory as an anonymous shared mapping, for a producer in the service's own process.
    ///
    /// # Errors
    ///
    /// As [`SharedMemory::create`].
    pub fn anonymous(size_bytes: usize) -> Result<Self, MapError> {
        check_size(size_bytes as u64)?;
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing that exists.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                size_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )
        }
        .map_err(system("map anonymous shared memory"))?;
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(NULL_MAPPING)?,
            size_bytes,
            fd: None,
            parents: None,
        })
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn create_sealed(size_bytes: usize) -> Result<Self, MapError> {
        use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
        check_size(size_bytes as u64)?;
        let fd = memfd_create(MEMFD_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(system("create a memfd"))?;
        ftruncate(&fd, size_bytes as u64).map_err(system("size a memfd"))?;
        fcntl_add_seals(&fd, required_seals()).map_err(system("seal a memfd"))?;
        Self::map(fd, size_bytes)
    }

    /// Maps memory that an untrusted peer made. The descriptor must be a memfd that can no longer
    /// change its size (seals SHRINK, GROW and SEAL) and a valid size for shared memory.
    ///
    /// Whether the peer's page size fits is a question for [`crate::SmbSize`].
    ///
    /// # Errors
    ///
    /// [`MapError::NotSealed`] also where the system has no memfd, [`MapError::Size`], or the
    /// system's refusal.
    pub fn adopt(fd: OwnedFd) -> Result<Self, MapError> {
        if !is_sealed(&fd) {
            return Err(MapError::NotSealed);
        }
        Self::map_trusted(fd)
    }

    /// Maps memory that a trusted peer made: a producer maps what the service sent. Seals are not
    /// checked.
    ///
    /// # Errors
    ///
    /// [`MapError::Size`], or the system's refusal.
    pub fn map_trusted(fd: OwnedFd) -> Result<Self, MapError> {
        let file = File::from(fd);
        let metadata = file
            .metadata()
            .map_err(|error| MapError::System { what: "ask for the size of shared memory", error })?;
        check_size(metadata.len())?;
        // `check_size` bounds the size by 32 MiB.
        Self::map(file.into(), metadata.len() as usize)
    }

    fn map(fd: OwnedFd, size_bytes: usize) -> Result<Self, MapError> {
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                size_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )
        }
        .map_err(system("map shared memory"))?;
        Ok(Self {
            start: NonNull::new(start.cast()).ok_or(NULL_MAPPING)?,
            size_bytes,
            fd: Some(fd),
            parents: None,
        })
    }

    /// Keeps the memory from children that are forked from here on: they do not have the mapping,
    /// and [`SharedMemory::is_forked`] tells them. Children that use it all the same are ended by
    /// the system. Where the system cannot do so (Linux before 4.14) children share the memory.
    #[must_use]
    pub fn without_children(mut self) -> Self {
        self.parents = ParentsOnly::new(&self);
        self
    }

    /// Whether this is a child of the process that called [`SharedMemory::without_children`]: the
    /// memory is not there. One load of memory that nobody writes.
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.parents.as_ref().is_some_and(ParentsOnly::is_wiped)
    }

    /// Size of the mapping in bytes, a multiple of 4096.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The descriptor to hand to the other process, if there is one.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // In a child something else may have the range by now.
        if self.is_forked() {
            return;
        }
        // SAFETY: the range is the mapping made in the constructor, and no pointer into it is left:
        // pointers exist during one access only, which borrows the value or holds its `Arc`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.size_bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping: {unmapped:?}");
    }
}

/// A private page that the system replaces by zeros in a child.
#[derive(Debug)]
struct ParentsOnly {
    page: NonNull<u8>,
}

// SAFETY: the page is only read, by atomic loads, from its creation to the drop.
unsafe impl Send for ParentsOnly {}
// SAFETY: as for `Send`.
unsafe impl Sync for ParentsOnly {}

impl ParentsOnly {
    const SIZE_BYTES: usize = 4096;

    /// `None` where the system cannot do it; then the memory stays as it is.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn new(memory: &SharedMemory) -> Option<Self> {
        use rustix::mm::{Advice, madvise};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice overlaps nothing that exists.
        let page =
            unsafe { mmap_anonymous(std::ptr::null_mut(), Self::SIZE_BYTES, protection, MapFlags::PRIVATE) };
        let page = Self { page: NonNull::new(page.ok()?.cast())? };
        // SAFETY: the page is this value's own, and neither advice changes what is in a mapping of
        // this process.
        unsafe {
            madvise(page.page.as_ptr().cast(), Self::SIZE_BYTES, Advice::LinuxWipeOnFork).ok()?;
            page.page.as_ptr().write(1);
            madvise(memory.start.as_ptr().cast(), memory.size_bytes, Advice::LinuxDontFork).ok()?;
        }
        Some(page)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn new(_: &SharedMemory) -> Option<Self> {
        None
    }

    #[inline]
    fn is_wiped(&self) -> bool {
        // SAFETY: the page is mapped as long as the value lives, and nobody writes to it. Relaxed:
        // it was written before the value existed, and a child has one thread when it begins.
        let mark = unsafe { AtomicU8::from_ptr(self.page.as_ptr()) };
        mark.load(Ordering::Relaxed) == 0
    }
}

impl Drop for ParentsOnly {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, to which no pointer is left. Children have it too.
        let unmapped = unsafe { munmap(self.page.as_ptr().cast(), Self::SIZE_BYTES) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping: {unmapped:?}");
    }
}

const NULL_MAPPING: MapError = MapError::Size { size_bytes: 0 };

fn check_size(size_bytes: u64) -> Result<(), MapError> {
    let valid = (MIN_PAGE_SIZE_BYTES as u64..=MAX_SMB_SIZE_BYTES as u64).contains(&size_bytes)
        && size_bytes.is_multiple_of(MIN_PAGE_SIZE_BYTES as u64);
    valid.then_some(()).ok_or(MapError::Size { size_bytes })
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn required_seals() -> rustix::fs::SealFlags {
    use rustix::fs::SealFlags;
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_sealed(fd: &OwnedFd) -> bool {
    // Files that cannot be sealed answer with an error.
    rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(required_seals()))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_sealed(_fd: &OwnedFd) -> bool {
    false
}
