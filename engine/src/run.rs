//! The fragments of the record at hand that need no thought: what a packet costs most of the time.
//!
//! ```text
//!   stretch   | A7 ........ | A8 | A9 | A10 ....... | A11 | ...
//!               ^ reader.at   erased,   ^ the run: `passed` records further
//!                             as soon as this has given a packet
//! ```
//!
//! While a run is on, what it has taken is in the run only, also when it goes from record to record along a stretch
//! ([`crate::stretch`]). [`TraceBuffer::settle`] tells everybody else ([`crate::due`]); it comes before anything that looks at records, headers
//! or the place of the read pass, and before every write.

use crate::buffer::TraceBuffer;
use crate::read::Reader;
use crate::records::{Record, Records};
use crate::tbchunk::Headers;
use crate::walk::At;

/// Whole fragments in a row, whose sizes are kept in one entry each.
pub(crate) struct Run {
    /// Size of the next fragment.
    size: *const u16,
    /// Where the next fragment begins.
    next: *const u8,
    /// Bytes of fragments that may be taken, at least: the unread ones of the record less `kept_bytes`. 0 when no run is on.
    left_bytes: usize,
    /// 1 if the record's last fragment goes on elsewhere: its size is one more than what can be left before it, and so it is not taken.
    kept_bytes: usize,
    /// What was unread of the record when the run came to it.
    begun_bytes: usize,
    /// Those behind the record where the run is, as far as the stretch goes.
    later: *const [Record],
    /// The sizes to which they point.
    sizes: *const [u16],
    is_on: bool,
    /// The record in which the run began had been read to its end, and counted.
    pub(crate) began_at_end: bool,
    /// Records of the stretch from that in which the run began to the one where it is.
    pub(crate) passed: u32,
    /// Of these, how many the pass has left for good, even if nothing was taken from the last.
    pub(crate) turned: u32,
    /// Packets over several records that were put together.
    pub(crate) long_packets: u32,
}

/// What `size` points to when no run is on: a fragment that has no body.
static NOTHING: u16 = 0;

const NO_RECORDS: *const [Record] = std::ptr::slice_from_raw_parts(std::ptr::dangling(), 0);
const NO_SIZES: *const [u16] = std::ptr::slice_from_raw_parts(std::ptr::dangling(), 0);

// SAFETY: the pointers are used only through a buffer that is borrowed exclusively, and point into its own memory.
unsafe impl Send for Run {}
// SAFETY: a shared run is only asked for numbers.
unsafe impl Sync for Run {}

impl Default for Run {
    fn default() -> Run {
        Run {
            size: &raw const NOTHING,
            next: std::ptr::null(),
            left_bytes: 0,
            kept_bytes: 0,
            begun_bytes: 0,
            later: NO_RECORDS,
            sizes: NO_SIZES,
            is_on: false,
            began_at_end: false,
            passed: 0,
            turned: 0,
            long_packets: 0,
        }
    }
}

impl Run {
    /// The body of the next fragment, which is consumed. None where the run ends. Where [`is_at_end`](Self::is_at_end) then, the run must be
    /// [closed](Self::close) before the next call.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<*const [u8]> {
        // SAFETY: without a run, and at the end of one, this is `NOTHING`. Else bytes are left; the sizes of a record add up to its visible
        // bytes, so that an entry is there; and the lists of sizes do not change before the run is settled.
        let size = usize::from(unsafe { self.size.read() });
        let (header, total) = (size >> 12, size & 0xfff);
        // Neither what is kept nor empty, nor the first of two entries (15 above, at most 10 below).
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

    /// Whether [`take`](Self::take) would give something.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        // SAFETY: as in `take`.
        let size = usize::from(unsafe { self.size.read() });
        let (header, total) = (size >> 12, size & 0xfff);
        total <= self.left_bytes && total > header
    }

    /// Begins a run at a place. False, and nothing done, if what comes next is no packet of a run.
    #[inline(always)]
    pub(crate) fn start(&mut self, at: &At, records: &Records, headers: &Headers<'_>) -> bool {
        let Some(&first) = records.block_sizes(at.slot, at.sizes_at).first() else { return false };
        let (header, total) = (usize::from(first >> 12), usize::from(first & 0xfff));
        if at.continues || total <= header || total + usize::from(at.goes_on) > at.left_bytes {
            return false;
        }
        self.begin(at, records, headers);
        true
    }

    /// Begins a run at a place. What comes next is perhaps nothing that it can give; if something is left, its size must be kept.
    #[inline]
    pub(crate) fn begin(&mut self, at: &At, records: &Records, headers: &Headers<'_>) {
        *self = Run { is_on: true, began_at_end: at.left_bytes == 0, ..Run::default() };
        if let Some((all, sizes)) = records.run_with_sizes(at.slot, at.stretch)
            && let Some(later) = all.get(1..)
        {
            (self.later, self.sizes) = (later, sizes);
        }
        let sizes = records.block_sizes(at.slot, at.sizes_at);
        let keeps_last = at.goes_on && at.left_bytes != 0;
        self.stand(sizes.as_ptr(), headers.pointer(at.offset), at.left_bytes, keeps_last);
    }

    /// Those behind the record where the run is, as far as the stretch goes, and the sizes to which they point.
    #[inline(always)]
    pub(crate) fn later(&self) -> (&[Record], &[u16]) {
        // SAFETY: both point to nothing, or into the lists of the buffer, which stay as they are until the run is settled: whoever changes a
        // record, or gives one sizes, settles first.
        unsafe { (&*self.later, &*self.sizes) }
    }

    /// Passes so many of the [`later`](Self::later) records.
    #[inline(always)]
    pub(crate) fn pass(&mut self, count: usize) {
        debug_assert!(count <= self.later.len());
        let left = self.later.len() - count;
        self.later = std::ptr::slice_from_raw_parts(self.later.cast::<Record>().wrapping_add(count), left);
        self.passed += count as u32;
    }

    /// Goes to a record of which something is left. `size` is of the fragment that begins at `next`; if nothing is left, they mean nothing.
    #[inline(always)]
    pub(crate) fn stand(&mut self, size: *const u16, next: *const u8, unread_bytes: usize, keeps_last: bool) {
        let kept_bytes = usize::from(keeps_last);
        self.size = size;
        self.next = next;
        self.left_bytes = unread_bytes - kept_bytes;
        self.kept_bytes = kept_bytes;
        self.begun_bytes = unread_bytes;
        if unread_bytes == 0 {
            self.size = &raw const NOTHING;
        }
    }

    /// The body of the fragment that is kept, if it comes next and is not empty. Nothing is consumed.
    #[inline(always)]
    pub(crate) fn kept(&self) -> Option<*const [u8]> {
        if self.kept_bytes == 0 {
            return None;
        }
        // SAFETY: as in `take`; with a fragment that is kept a run is on, and not at its end.
        let size = usize::from(unsafe { self.size.read() });
        let (header, total) = (size >> 12, size & 0xfff);
        // Neither empty nor the first of two entries (15 above, at most 10 below).
        let is_next = total == self.unread_bytes() && total > header;
        is_next.then(|| std::ptr::slice_from_raw_parts(self.next.wrapping_add(header), total - header))
    }

    /// Ends without a word to anybody.
    #[inline]
    pub(crate) fn stop(&mut self) {
        *self = Run::default();
    }

    /// Makes sure that nothing is read where no size may be: behind the record's last.
    // Never inlined: its test would be made for each packet.
    #[inline(never)]
    pub(crate) fn close(&mut self) {
        if self.is_drained() {
            self.size = &raw const NOTHING;
        }
    }

    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether nothing is left, or, if a fragment is kept, perhaps only that.
    #[inline(always)]
    pub(crate) fn is_at_end(&self) -> bool {
        self.left_bytes == 0
    }

    /// Whether the pass is not done yet with records that the run has passed.
    #[inline(always)]
    pub(crate) fn is_ahead(&self) -> bool {
        self.passed != self.turned
    }

    /// Whether nothing is left of the record.
    #[inline(always)]
    pub(crate) fn is_drained(&self) -> bool {
        self.unread_bytes() == 0
    }

    /// Bytes of the record that are unread.
    #[inline(always)]
    pub(crate) fn unread_bytes(&self) -> usize {
        self.left_bytes + self.kept_bytes
    }

    /// Whether something was taken from the record where the run is.
    #[inline(always)]
    pub(crate) fn has_taken(&self) -> bool {
        self.unread_bytes() != self.begun_bytes
    }

    /// The index of the next fragment's size in the list that it is in.
    ///
    /// # Safety
    /// Something must be left, and `sizes` be the list of the block that the record is in.
    #[inline]
    pub(crate) unsafe fn index_in(&self, sizes: &[u16]) -> usize {
        // SAFETY: the caller's promise: both point into one list.
        unsafe { self.size.offset_from_unsigned(sizes.as_ptr()) }
    }
}

impl TraceBuffer {
    /// Begins a run where the reader stands. False, and nothing done, if what comes next is no packet of a run. What was lost before
    /// goes with the first packet, which must be taken now.
    #[inline]
    pub(crate) fn start_run(&mut self) -> bool {
        let TraceBuffer { records, sequences, ring, reader, .. } = self;
        let Reader { run, at, .. } = reader;
        let is_on = run.start(at, records, &ring.headers());
        if is_on {
            reader.take_loss(sequences.get_mut(reader.sequence));
        }
        is_on
    }

    /// Ends a run: records, headers, accounts and read pass get to know what it has taken.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.reader.run.is_on() {
            self.settle_run();
        }
    }
}
