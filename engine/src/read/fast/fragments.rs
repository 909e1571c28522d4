//! Fragments that need no decision: what a packet costs most of the time.
//!
//! The cursor is in one record and hands out its whole fragments one after another, as long as each
//! has its size in one entry of the block's list. Along checked records ([`super::contiguous`]) it
//! goes from one to the next.
//!
//! What it has taken only the cursor knows, until [`Reader::flush`]. So a flush comes before
//! anything that looks at records, headers or the position of the pass, and before every write.

use crate::index::records::{Record, Records};
use crate::read::Reader;
use crate::read::walk::Position;
use crate::ring::Headers;
use crate::store::Store;

/// A cursor over whole fragments. It is active from [`start`](Self::start) or
/// [`begin`](Self::begin) until [`stop`](Self::stop).
pub(in crate::read) struct FragmentCursor {
    /// Size of the next fragment.
    size: *const u16,
    /// Where the next fragment begins.
    next: *const u8,
    /// Bytes of fragments that may be taken, at least: the unread ones of the record less
    /// `open_end`. 0 if not active.
    left_bytes: usize,
    /// 1 if the record's last fragment continues elsewhere: its size is then one more than what can
    /// be left before it, so that it is not taken.
    open_end: usize,
    /// What was unread of the record when the cursor came to it.
    entry_bytes: usize,
    /// The checked records behind this one.
    later: *const [Record],
    /// The sizes to which they point.
    sizes: *const [u16],
    is_active: bool,
    /// The first record had been read to its end, and counted.
    pub(super) began_at_end: bool,
    /// Records from the first to the one where the cursor is.
    pub(super) passed: u32,
    /// Of these, how many the pass has left for good, even if nothing was taken from the last.
    pub(super) left_records: u32,
    /// Packets over several records that were put together.
    pub(super) multi_chunk_packets: u32,
}

/// What `size` points to when nothing may be taken: a fragment that has no body.
static NOTHING: u16 = 0;

const NO_RECORDS: *const [Record] = std::ptr::slice_from_raw_parts(std::ptr::dangling(), 0);
const NO_SIZES: *const [u16] = std::ptr::slice_from_raw_parts(std::ptr::dangling(), 0);

// SAFETY: the pointers are used only through a buffer that is borrowed exclusively, and point into
// its own memory.
unsafe impl Send for FragmentCursor {}
// SAFETY: a shared cursor is only asked for numbers.
unsafe impl Sync for FragmentCursor {}

impl Default for FragmentCursor {
    fn default() -> FragmentCursor {
        FragmentCursor {
            size: &raw const NOTHING,
            next: std::ptr::null(),
            left_bytes: 0,
            open_end: 0,
            entry_bytes: 0,
            later: NO_RECORDS,
            sizes: NO_SIZES,
            is_active: false,
            began_at_end: false,
            passed: 0,
            left_records: 0,
            multi_chunk_packets: 0,
        }
    }
}

impl FragmentCursor {
    /// Header bytes and all bytes of the next fragment. Of one whose size takes two entries they
    /// are such that the header is the larger (15 above, at most 10 below), as of one without a
    /// body.
    #[inline(always)]
    fn next_size(&self) -> (usize, usize) {
        // SAFETY: not active, and at the end, this is `NOTHING`. Else bytes are left; the sizes of
        // a record add up to its visible bytes, so that an entry is there; and the lists of sizes
        // do not change before a flush.
        let size = usize::from(unsafe { self.size.read() });
        (size >> 12, size & 0xfff)
    }

    /// The body of the next fragment, which is consumed. None where the cursor ends. If it
    /// [is at its end](Self::is_at_end) now, it must be [closed](Self::close) before the next call.
    #[inline(always)]
    pub(in crate::read) fn take(&mut self) -> Option<*const [u8]> {
        let (header, total) = self.next_size();
        // An open end does not fit, an empty fragment is no packet.
        if total > self.left_bytes || total <= header {
            return None;
        }
        let body = std::ptr::slice_from_raw_parts(self.next.wrapping_add(header), total - header);
        self.next = self.next.wrapping_add(total);
        self.left_bytes -= total;
        // The entry's end is in the list or behind its last.
        self.size = self.size.wrapping_add(1);
        Some(body)
    }

    /// Whether [`take`](Self::take) would return something.
    #[inline]
    pub(super) fn has_next(&self) -> bool {
        let (header, total) = self.next_size();
        total <= self.left_bytes && total > header
    }

    /// Becomes active at a position. False, and nothing done, if the cursor could not take what
    /// comes next there.
    #[inline(always)]
    fn start(&mut self, position: &Position, records: &Records, headers: &Headers<'_>) -> bool {
        let sizes = records.block_sizes(position.slot, position.size_index);
        let Some(&first) = sizes.first() else { return false };
        let (header, total) = (usize::from(first >> 12), usize::from(first & 0xfff));
        let needed = total + usize::from(position.goes_on);
        if position.continues || total <= header || needed > position.left_bytes {
            return false;
        }
        self.begin(position, records, headers);
        true
    }

    /// Becomes active at a position, whatever comes next there. If something is left, its size must
    /// be kept.
    #[inline]
    pub(super) fn begin(&mut self, position: &Position, records: &Records, headers: &Headers<'_>) {
        let began_at_end = position.left_bytes == 0;
        *self = FragmentCursor { is_active: true, began_at_end, ..FragmentCursor::default() };
        if let Some((all, sizes)) = records.run_with_sizes(position.slot, position.checked)
            && let Some(later) = all.get(1..)
        {
            (self.later, self.sizes) = (later, sizes);
        }
        let sizes = records.block_sizes(position.slot, position.size_index);
        let has_open_end = position.goes_on && !began_at_end;
        self.enter(sizes.as_ptr(), headers.pointer(position.offset), position.left_bytes, has_open_end);
    }

    /// The checked records behind the one where the cursor is, and the sizes to which they point.
    #[inline(always)]
    pub(super) fn later(&self) -> (&[Record], &[u16]) {
        // SAFETY: both point to nothing, or into lists of the index, which stay as they are until
        // the flush: whoever changes a record, or adds sizes to its block, flushes first.
        unsafe { (&*self.later, &*self.sizes) }
    }

    /// Passes so many of the [`later`](Self::later) records.
    #[inline(always)]
    pub(super) fn pass(&mut self, count: usize) {
        debug_assert!(count <= self.later.len());
        let left = self.later.len() - count;
        let next = self.later.cast::<Record>().wrapping_add(count);
        self.later = std::ptr::slice_from_raw_parts(next, left);
        self.passed += count as u32;
    }

    /// Goes to a record. `size` is of the fragment that begins at `next`; if nothing is unread,
    /// they mean nothing.
    #[inline(always)]
    pub(super) fn enter(
        &mut self,
        size: *const u16,
        next: *const u8,
        unread_bytes: usize,
        has_open_end: bool,
    ) {
        let open_end = usize::from(has_open_end);
        self.size = size;
        self.next = next;
        self.left_bytes = unread_bytes - open_end;
        self.open_end = open_end;
        self.entry_bytes = unread_bytes;
        if unread_bytes == 0 {
            self.size = &raw const NOTHING;
        }
    }

    /// The body of the fragment that continues elsewhere, if it comes next and is not empty.
    /// Nothing is consumed.
    #[inline(always)]
    pub(super) fn open_end(&self) -> Option<*const [u8]> {
        if self.open_end == 0 {
            return None;
        }
        let (header, total) = self.next_size();
        let is_next = total == self.unread_bytes() && total > header;
        is_next.then(|| std::ptr::slice_from_raw_parts(self.next.wrapping_add(header), total - header))
    }

    /// Is not active any more. What was taken is forgotten.
    #[inline]
    pub(super) fn stop(&mut self) {
        *self = FragmentCursor::default();
    }

    /// Makes sure that no size is read behind the record's last.
    // Never inlined: its test would be made for each packet.
    #[inline(never)]
    pub(in crate::read) fn close(&mut self) {
        if self.is_drained() {
            self.size = &raw const NOTHING;
        }
    }

    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Whether nothing is left but perhaps an open end.
    #[inline(always)]
    pub(in crate::read) fn is_at_end(&self) -> bool {
        self.left_bytes == 0
    }

    /// Whether the pass has not left all records yet that the cursor has passed.
    #[inline(always)]
    pub(in crate::read) fn is_ahead(&self) -> bool {
        self.passed != self.left_records
    }

    /// Whether nothing is unread of the record.
    #[inline(always)]
    pub(super) fn is_drained(&self) -> bool {
        self.unread_bytes() == 0
    }

    /// Bytes of the record that are unread.
    #[inline(always)]
    pub(super) fn unread_bytes(&self) -> usize {
        self.left_bytes + self.open_end
    }

    /// Whether something was taken from the record where the cursor is.
    #[inline(always)]
    pub(super) fn has_taken(&self) -> bool {
        self.unread_bytes() != self.entry_bytes
    }

    /// The index of the next fragment's size in its list.
    ///
    /// # Safety
    /// Something must be unread, and `sizes` be the list of the block that the record is in.
    #[inline]
    pub(super) unsafe fn index_in(&self, sizes: &[u16]) -> usize {
        // SAFETY: the caller's promise: both point into one list.
        unsafe { self.size.offset_from_unsigned(sizes.as_ptr()) }
    }
}

impl Reader {
    /// Starts the cursor at the position. False, and nothing done, if it could not take what comes
    /// next. What was lost before goes with the first packet, which must be taken now.
    #[inline]
    pub(in crate::read) fn start_cursor(&mut self, store: &mut Store) -> bool {
        let is_started = self.fragments.start(&self.position, &store.index.records, &store.ring.headers());
        if is_started {
            self.take_loss(store.index.sequences.get_mut(self.sequence));
        }
        is_started
    }
}
