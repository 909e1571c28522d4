//! A caller's bytes, which may change while we copy them.

use watershed_engine::{ByteSource, SharedBytes};

/// Memory of the caller: never a slice, since somebody else may be writing it.
pub(crate) struct UntrustedBytes {
    start: *const u8,
    size_bytes: usize,
}

impl UntrustedBytes {
    /// # Safety
    /// `start` is valid for reads of `size_bytes` bytes while this value lives; the bytes may
    /// change.
    pub(crate) unsafe fn new(start: *const u8, size_bytes: usize) -> Self {
        Self { start, size_bytes }
    }
}

impl ByteSource for UntrustedBytes {
    fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        let end = offset_bytes.checked_add(dst.len());
        assert!(end.is_some_and(|end| end <= self.size_bytes), "{offset_bytes} + {} bytes", dst.len());
        // SAFETY: the range was just checked to lie in memory that is readable by `new`'s contract;
        // `dst` is a Rust slice, so it overlaps nothing that a C program owns.
        unsafe { watershed_smb::copy_untrusted(self.start.add(offset_bytes), dst.as_mut_ptr(), dst.len()) }
    }

    fn shared_bytes(&self) -> Option<SharedBytes<'_>> {
        // SAFETY: readable by `new`'s contract, and no Rust reference to a C program's memory
        // exists.
        Some(unsafe { SharedBytes::new(self.start, self.size_bytes) })
    }
}
