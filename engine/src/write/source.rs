//! Sources of a chunk's bytes.

use watershed_simd::SharedBytes;

/// The payload of a chunk that is to be committed. Anybody may change its bytes at any time: every
/// byte on which anything depends is fetched once, and what was fetched is what the buffer keeps.
///
/// No memory is at risk whatever an implementation says, but what it contradicts itself about may
/// be kept as anything: the size is taken once, at the beginning of a commit, and longer bytes
/// count up to it.
pub trait ByteSource {
    /// Payload bytes, the same at each call.
    fn size_bytes(&self) -> usize;

    /// Copies `dst.len()` bytes from `offset_bytes` on. The engine asks only for what lies inside
    /// of [`size_bytes`](Self::size_bytes), and for each byte at most once a commit.
    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]);

    /// The bytes themselves, if nobody can change them during the call: this saves a copy.
    #[inline]
    fn stable_bytes(&self) -> Option<&[u8]> {
        None
    }

    /// Where the bytes are, if all [`size_bytes`](Self::size_bytes) of them are in memory of this
    /// process. Of ordinary chunks with long fragments this saves a copy: headers are fetched
    /// first, each once; the bytes are copied right into the buffer, and what was fetched is put
    /// over the copies of the headers. Those with many headers are walked while they are copied,
    /// each byte once. Any other chunk is copied by [`copy_range`](Self::copy_range), and nothing
    /// is used of what was fetched before.
    #[inline]
    fn shared_bytes(&self) -> Option<SharedBytes<'_>> {
        None
    }
}

impl ByteSource for [u8] {
    #[inline]
    fn size_bytes(&self) -> usize {
        self.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self[offset_bytes..][..dst.len()]);
    }

    #[inline]
    fn stable_bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl<T: ByteSource + ?Sized> ByteSource for &T {
    #[inline]
    fn size_bytes(&self) -> usize {
        T::size_bytes(self)
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        T::copy_range(self, offset_bytes, dst);
    }

    #[inline]
    fn stable_bytes(&self) -> Option<&[u8]> {
        T::stable_bytes(self)
    }

    #[inline]
    fn shared_bytes(&self) -> Option<SharedBytes<'_>> {
        T::shared_bytes(self)
    }
}
