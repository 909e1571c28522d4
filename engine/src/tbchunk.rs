//! The ring's bytes and the 16-byte header in front of each record.
//!
//! ```text
//!   byte 0        4                8          10             12           14      15
//!        +--------+----------------+----------+--------------+------------+-------+----------+
//!        | chunk  | producer << 16 | reserved | visible      | unread     | flags | checksum |
//!        | id u32 | | writer   u32 | u16      | payload u16  | bytes u16  | u8    | u8       |
//!        +--------+----------------+----------+--------------+------------+-------+----------+
//! ```
//!
//! All little-endian. A record begins at a multiple of 16 and covers `round_up_16(16 + reserved)` bytes, the next begins right
//! behind it; `unread <= visible <= reserved`. A key of 0 is padding. Flags are the six bits of the chunk header, and 0x80
//! for a scraped chunk that is not complete yet. An all-zero buffer reads as one empty padding record.
//!
//! Nothing but this module reads or writes the ring's memory. Headers are for people, for clones' readers and for recommits: on the way
//! of an ordinary write or eviction the copy in [`crate::records`] is used instead.

use crate::mem::Region;
use std::marker::PhantomData;
use std::sync::Arc;
use watershed_simd::Kernels;
use watershed_simd::shared::Fetched;

/// Bytes of a record header, and the grain of places and sizes.
pub(crate) const HEADER_BYTES: usize = 16;

/// Flag of a record whose chunk was scraped and has not been committed in full yet.
pub(crate) const INCOMPLETE: u8 = 0x80;

/// Outer bytes of a record with room for `reserved_bytes` of payload.
#[inline]
pub(crate) fn outer_bytes(reserved_bytes: usize) -> usize {
    (HEADER_BYTES + reserved_bytes + (HEADER_BYTES - 1)) & !(HEADER_BYTES - 1)
}

/// A record header, as it lies in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TbChunk {
    pub(crate) chunk_id: u32,
    pub(crate) key: u32,
    pub(crate) reserved_bytes: u16,
    pub(crate) visible_bytes: u16,
    pub(crate) unread_bytes: u16,
    pub(crate) flags: u8,
    pub(crate) checksum: u8,
}

/// The exclusive-or of the bytes of a record's offset and reserved size; 0 for an untouched buffer.
#[inline]
pub(crate) fn checksum(offset_bytes: usize, reserved_bytes: u16) -> u8 {
    let mut x = offset_bytes as u64 ^ u64::from(reserved_bytes);
    x ^= x >> 32;
    x ^= x >> 16;
    x ^= x >> 8;
    x as u8
}

impl TbChunk {
    /// A header that says "nothing here" about `outer_bytes`.
    pub(crate) fn padding(outer_bytes: usize) -> TbChunk {
        TbChunk { reserved_bytes: (outer_bytes - HEADER_BYTES) as u16, ..TbChunk::default() }
    }

    #[inline]
    fn to_words(self) -> [u64; 2] {
        let ids = u64::from(self.chunk_id) | u64::from(self.key) << 32;
        let sizes = u64::from(self.reserved_bytes)
            | u64::from(self.visible_bytes) << 16
            | u64::from(self.unread_bytes) << 32
            | u64::from(self.flags) << 48
            | u64::from(self.checksum) << 56;
        [ids.to_le(), sizes.to_le()]
    }

    #[inline]
    fn from_words(words: [u64; 2]) -> TbChunk {
        let [ids, sizes] = words.map(u64::from_le);
        TbChunk {
            chunk_id: ids as u32,
            key: (ids >> 32) as u32,
            reserved_bytes: sizes as u16,
            visible_bytes: (sizes >> 16) as u16,
            unread_bytes: (sizes >> 32) as u16,
            flags: (sizes >> 48) as u8,
            checksum: (sizes >> 56) as u8,
        }
    }
}

/// What a new record holds.
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

/// The memory of a buffer, which a shard shares with others: then only its own extents are touched through this, and what is said of
/// exclusive access below is said of those. Offsets are in bytes from its start; those of headers are multiples of 16.
pub(crate) struct RingMemory {
    region: Arc<Region>,
    /// The kernels in use when the buffer was made.
    pub(crate) kernels: Kernels,
}

impl RingMemory {
    pub(crate) fn new(region: Arc<Region>) -> RingMemory {
        RingMemory { region, kernels: Kernels::chosen() }
    }

    pub(crate) fn shared_region(&self) -> &Arc<Region> {
        &self.region
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
        // SAFETY: the assertion keeps the 16 bytes inside the region, `&mut self` makes the access exclusive but for slices
        // of payload that a read pass handed out, and no payload overlaps a header.
        unsafe { self.region.base().add(offset).cast::<[u64; 2]>().write_unaligned(words) }
    }

    /// As [`Headers::set_unread`].
    #[inline]
    pub(crate) fn set_unread(&mut self, offset: usize, unread_bytes: u16) {
        self.headers().set_unread(offset, unread_bytes);
    }

    /// The headers, for who writes to several.
    #[inline(always)]
    pub(crate) fn headers(&mut self) -> Headers<'_> {
        Headers { base: self.region.base(), size_bytes: self.size_bytes(), ring: PhantomData }
    }

    /// As [`Headers::clear`].
    #[inline]
    pub(crate) fn clear_header(&mut self, offset: usize) {
        self.headers().clear(offset);
    }

    /// Asks for the header at an offset, which will be written soon.
    #[inline]
    pub(crate) fn prefetch_header(&self, offset: usize) {
        watershed_simd::prefetch::for_write(self.pointer(offset));
    }

    /// Writes a record of `outer` bytes: a header with its checksum, and the payload. Asks for the lines of the next record, which will
    /// be as long or so: they arrive while its chunk is sized. Without it a commit into a ring that no cache holds takes half as long again.
    #[inline(always)]
    pub(crate) fn write_record(
        &mut self,
        offset: usize,
        outer: usize,
        header: TbChunk,
        payload: &impl Payload,
    ) {
        let size = self.size_bytes();
        assert!(HEADER_BYTES + payload.len() <= outer && offset + outer <= size);
        let words = TbChunk { checksum: checksum(offset, header.reserved_bytes), ..header }.to_words();
        let start = self.region.base().wrapping_add(offset);
        // SAFETY: the assertion keeps header and payload inside the region. `&mut self` makes the access exclusive but for slices that a
        // read pass handed out, which no new record overlaps; nor can `payload`, which is borrowed.
        unsafe {
            start.cast::<[u64; 2]>().write_unaligned(words);
            payload.put(self.kernels, start.add(HEADER_BYTES));
        }
        let next = start.wrapping_add(outer);
        watershed_simd::prefetch::all_for_write(next, start.wrapping_add((2 * outer).min(size - offset)));
    }

    /// Some bytes. They stay as they are while the buffer is borrowed, reads included: reads write headers only.
    #[inline]
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.size_bytes() && len <= self.size_bytes() - offset);
        // SAFETY: the assertion keeps the range inside the region; all of it is initialised.
        unsafe { std::slice::from_raw_parts(self.region.base().add(offset), len) }
    }

    /// Where some bytes lie.
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
        // SAFETY: the assertion keeps the target inside the region; `bytes` cannot overlap it, as `&mut self` is exclusive.
        unsafe { watershed_simd::copy::copy_raw(bytes.as_ptr(), self.region.base().add(offset), bytes.len()) }
    }
}

/// The headers of a ring that is borrowed exclusively. Held in a variable it keeps in registers what is the same for all of them.
pub(crate) struct Headers<'a> {
    base: *mut u8,
    size_bytes: usize,
    ring: PhantomData<&'a mut RingMemory>,
}

impl Headers<'_> {
    /// Writes the number of unread bytes into the header at an offset.
    #[inline(always)]
    pub(crate) fn set_unread(&mut self, offset: usize, unread_bytes: u16) {
        assert!(offset + HEADER_BYTES <= self.size_bytes);
        // SAFETY: as in `set_header`; the two bytes lie inside the header.
        unsafe { self.base.add(offset + 12).cast::<u16>().write_unaligned(unread_bytes.to_le()) }
    }

    /// Says of the record at an offset that nothing is left of it. What it reserved and showed stays readable; nothing is read, so that this
    /// does not wait for memory.
    #[inline(always)]
    pub(crate) fn clear(&mut self, offset: usize) {
        assert!(offset + HEADER_BYTES <= self.size_bytes);
        // SAFETY: as in `set_header`: key and id, then unread bytes, then flags lie inside the header.
        unsafe {
            let header = self.base.add(offset);
            header.cast::<u64>().write_unaligned(0);
            header.add(12).cast::<u16>().write_unaligned(0);
            header.add(14).write(0);
        }
    }

    /// Asks for the header at an offset, which will be written soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: usize) {
        watershed_simd::prefetch::for_write(self.base.wrapping_add(offset));
    }

    /// Where some bytes lie.
    #[inline(always)]
    pub(crate) fn pointer(&self, offset: usize) -> *const u8 {
        self.base.wrapping_add(offset)
    }
}
