//! The ring: bytes of records, and where the next one goes.
//!
//! Nothing but this module reads or writes these bytes. Writes and evictions of ordinary records
//! use the copies of header fields in the index (`index::records`); the headers in the ring are for
//! recommits, for readers of copies, and for people.

pub(crate) mod extents;
pub mod mem;
pub(crate) mod space;
pub(crate) mod tbchunk;

use std::marker::PhantomData;
use std::sync::Arc;

use watershed_simd::Kernels;
use watershed_simd::prefetch::LinesAhead;
use watershed_simd::shared::Fetched;

use mem::Region;
use space::Space;
use tbchunk::{HEADER_BYTES, TbChunk, checksum};

/// The payload of a new record.
pub(crate) trait Payload {
    /// Its bytes.
    fn len(&self) -> usize;

    /// Copies them.
    ///
    /// # Safety
    /// `to` is writable for as many bytes, and does not overlap them.
    unsafe fn put(&self, kernels: Kernels, to: *mut u8);
}

impl Payload for &[u8] {
    #[inline(always)]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline(always)]
    unsafe fn put(&self, kernels: Kernels, to: *mut u8) {
        // SAFETY: a slice, and the caller's promise.
        unsafe { kernels.copy_raw(self.as_ptr(), to, self.len()) }
    }
}

impl Payload for Fetched<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.visible_bytes()
    }

    #[inline(always)]
    unsafe fn put(&self, _kernels: Kernels, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.copy_to(to) }
    }
}

/// The memory of a buffer. Shards share a region; each touches only its own extents, and what is
/// said of exclusive access below is said of those. Offsets are in bytes from the region's start;
/// those of headers are multiples of 16.
pub(crate) struct Ring {
    region: Arc<Region>,
    /// The kernels that were chosen when the buffer was made.
    kernels: Kernels,
    pub(crate) space: Space,
    /// Bytes of padding at the cursor, or, while a record is made, behind it, whose header is not
    /// there yet: the next record nearly always covers it before somebody looks.
    pub(crate) padding_bytes: usize,
}

impl Ring {
    pub(crate) fn new(region: Arc<Region>, space: Space) -> Ring {
        Ring { region, kernels: Kernels::chosen(), space, padding_bytes: 0 }
    }

    /// The same space in another region, to which the bytes have been copied.
    pub(crate) fn in_region(&self, region: Arc<Region>) -> Ring {
        let mut ring = Ring::new(region, self.space.clone());
        ring.padding_bytes = self.padding_bytes;
        ring
    }

    #[inline(always)]
    pub(crate) fn kernels(&self) -> Kernels {
        self.kernels
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    #[inline]
    fn size_bytes(&self) -> usize {
        self.region.size_bytes()
    }

    /// The header at an offset. In debug builds its checksum is tested.
    #[inline]
    pub(crate) fn header(&self, offset: usize) -> TbChunk {
        assert!(offset + HEADER_BYTES <= self.size_bytes());
        // SAFETY: the assertion keeps the 16 bytes inside the region; all of it is initialised.
        let header = TbChunk::from_words(unsafe {
            self.region.base().add(offset).cast::<[u64; 2]>().read_unaligned()
        });
        debug_assert_eq!(
            header.checksum,
            checksum(offset, header.reserved_bytes),
            "record at {offset} is damaged"
        );
        header
    }

    /// Writes a header with its checksum.
    #[inline]
    pub(crate) fn set_header(&mut self, offset: usize, header: TbChunk) {
        assert!(offset + HEADER_BYTES <= self.size_bytes());
        let words = TbChunk { checksum: checksum(offset, header.reserved_bytes), ..header }.to_words();
        // SAFETY: the assertion keeps the 16 bytes inside the region. `&mut self` makes the access
        // exclusive but for slices of payload that a read pass handed out, and no payload overlaps
        // a header.
        unsafe { self.region.base().add(offset).cast::<[u64; 2]>().write_unaligned(words) }
    }

    /// Writes the header of the padding at the cursor, if it is not there yet.
    pub(crate) fn flush_padding(&mut self) {
        if self.padding_bytes != 0 {
            self.set_header(self.space.cursor(), TbChunk::padding(self.padding_bytes));
            self.padding_bytes = 0;
        }
    }

    /// The headers, for writing to several.
    #[inline(always)]
    pub(crate) fn headers(&mut self) -> Headers<'_> {
        Headers { base: self.region.base(), size_bytes: self.size_bytes(), ring: PhantomData }
    }

    /// Writes a record of `outer` bytes at the cursor, which moves behind it: a header with its
    /// checksum, and the payload.
    ///
    /// # Panics
    /// If there is no room: what lies behind it may be another shard's.
    #[inline(always)]
    pub(crate) fn write_record(&mut self, outer: usize, header: TbChunk, payload: &impl Payload) {
        let offset = self.space.cursor();
        assert!(HEADER_BYTES + payload.len() <= outer);
        self.space.advance(outer);
        let words = TbChunk { checksum: checksum(offset, header.reserved_bytes), ..header }.to_words();
        let start = self.region.base().wrapping_add(offset);
        // SAFETY: the assertion and `advance`, which takes only what there is, keep header and
        // payload inside the room that was at the cursor, which is this ring's part of the region.
        // `&mut self` makes the access exclusive but for slices that a read pass handed out, which
        // no new record overlaps; nor does `payload`, which is borrowed.
        unsafe {
            start.cast::<[u64; 2]>().write_unaligned(words);
            payload.put(self.kernels, start.add(HEADER_BYTES));
        }
    }

    /// Lines to prefetch while a chunk of `payload_bytes` is walked: those that are so far ahead
    /// that they arrive in time, but not behind the end of the room, where another shard may be
    /// writing, unless the chunk itself does not fit. Of a large chunk they are its own, since what
    /// is asked for must stay in the first-level cache until it is written.
    #[inline(always)]
    pub(crate) fn lines_ahead(&self, payload_bytes: usize) -> LinesAhead {
        const UNDER_WAY_BYTES: usize = 12 << 10;
        const MOST_AHEAD_BYTES: usize = 8 << 10;
        let ahead = UNDER_WAY_BYTES.max(payload_bytes).min(self.space.left_bytes());
        let ahead = ahead.saturating_sub(payload_bytes).min(MOST_AHEAD_BYTES);
        LinesAhead::new(self.region.base().wrapping_add(self.space.cursor() + ahead))
    }

    /// Some bytes. They do not change while the buffer is borrowed, not even by reads: these write
    /// headers only.
    #[inline]
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.size_bytes() && len <= self.size_bytes() - offset);
        // SAFETY: the assertion keeps the range inside the region; all of it is initialised.
        unsafe { std::slice::from_raw_parts(self.region.base().add(offset), len) }
    }

    /// The address of an offset.
    #[inline]
    pub(crate) fn pointer(&self, offset: usize) -> *const u8 {
        debug_assert!(offset <= self.size_bytes());
        self.region.base().wrapping_add(offset)
    }

    /// Copies a few bytes to an offset.
    #[inline]
    pub(crate) fn write_few<const N: usize>(&mut self, offset: usize, bytes: &[u8; N]) {
        assert!(offset <= self.size_bytes() && N <= self.size_bytes() - offset);
        // SAFETY: the assertion keeps the target inside the region, and `&mut self` is exclusive.
        unsafe { self.region.base().add(offset).cast::<[u8; N]>().write_unaligned(*bytes) }
    }

    /// Copies bytes to an offset.
    #[inline]
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.size_bytes() && bytes.len() <= self.size_bytes() - offset);
        // SAFETY: the assertion keeps the target inside the region; `bytes` cannot overlap it, as
        // `&mut self` is exclusive.
        unsafe { watershed_simd::copy::copy_raw(bytes.as_ptr(), self.region.base().add(offset), bytes.len()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // A region that others have, too, is not this ring's to clear.
        if let (None, Some(region)) = (self.space.extents(), Arc::get_mut(&mut self.region)) {
            region.clear_to_keep(self.space.used_bytes());
        }
    }
}

/// The headers of a ring that is borrowed exclusively. A variable of this type keeps in registers
/// what is the same for all of them.
pub(crate) struct Headers<'a> {
    base: *mut u8,
    size_bytes: usize,
    ring: PhantomData<&'a mut Ring>,
}

impl Headers<'_> {
    /// Writes the number of unread bytes into the header at an offset.
    #[inline(always)]
    pub(crate) fn set_unread(&mut self, offset: usize, unread_bytes: u16) {
        assert!(offset + HEADER_BYTES <= self.size_bytes);
        // SAFETY: as in `set_header`; the two bytes lie inside the header.
        unsafe { self.base.add(offset + 12).cast::<u16>().write_unaligned(unread_bytes.to_le()) }
    }

    /// Notes that nothing is left of the record at an offset. The sizes stay readable; nothing is
    /// read, so that this does not wait for memory.
    #[inline(always)]
    pub(crate) fn clear(&mut self, offset: usize) {
        assert!(offset + HEADER_BYTES <= self.size_bytes);
        // SAFETY: as in `set_header`: key and id, then unread bytes, then flags lie inside the
        // header.
        unsafe {
            let header = self.base.add(offset);
            header.cast::<u64>().write_unaligned(0);
            header.add(12).cast::<u16>().write_unaligned(0);
            header.add(14).write(0);
        }
    }

    /// Prefetches the header at an offset, which will be written soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: usize) {
        watershed_simd::prefetch::for_write(self.base.wrapping_add(offset));
    }

    /// The address of an offset.
    #[inline(always)]
    pub(crate) fn pointer(&self, offset: usize) -> *const u8 {
        self.base.wrapping_add(offset)
    }
}
