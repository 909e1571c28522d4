//! The fragments of the record at hand that need no thought: what a packet costs most of the time.
//!
//! While a run is on, what it has taken is in the run and in the ring's header only. [`TraceBuffer::settle`] writes it into the record and
//! into the place of the read pass; it comes before anything that looks at either, and before every write.

use crate::buffer::TraceBuffer;
use crate::records::{Record, Slot, bit};
use crate::sizes::Extent;
use crate::walk::At;

/// Whole fragments in a row, whose sizes are kept in one entry each. The record's last fragment is never among them.
pub(crate) struct Run {
    /// Size of the next fragment.
    size: *const u16,
    /// Where the next fragment begins.
    next: *const u8,
    /// Unread bytes of the record; 0 when no run is on.
    left_bytes: usize,
    /// The unread bytes in the record's header, in the ring.
    unread: *mut u16,
    /// Entries that were left when the run began; `None` when no run is on.
    begun_at: Option<*const u16>,
}

/// What `size` points to when no run is on: a fragment that does not fit into 0 bytes.
static NOTHING: u16 = 0;

// SAFETY: the pointers are used only through a buffer that is borrowed exclusively, and point into its own memory.
unsafe impl Send for Run {}
// SAFETY: a shared run is only asked how many bytes are left.
unsafe impl Sync for Run {}

impl Default for Run {
    fn default() -> Run {
        Run {
            size: &raw const NOTHING,
            next: std::ptr::null(),
            left_bytes: 0,
            unread: std::ptr::null_mut(),
            begun_at: None,
        }
    }
}

impl Run {
    /// The body of the next fragment, which is consumed. None where the run ends.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<*const [u8]> {
        // SAFETY: without a run this is `NOTHING`. In a run the sizes of a record add up to its visible bytes, so that an entry is
        // there while bytes are left; and the lists of sizes do not change before the run is settled.
        let size = usize::from(unsafe { self.size.read() });
        let (header, total) = (size >> 12, size & 0xfff);
        // Not the last one; neither empty nor the first of two entries (15 above, at most 10 below).
        if total >= self.left_bytes || total <= header {
            return None;
        }
        let body = std::ptr::slice_from_raw_parts(self.next.wrapping_add(header), total - header);
        self.next = self.next.wrapping_add(total);
        self.left_bytes -= total;
        // SAFETY: there is an entry behind this one, since bytes are left. The header lies in the ring at a multiple of 16, is no part of
        // any payload, and is written by nobody else while the buffer is borrowed exclusively.
        unsafe {
            self.size = self.size.add(1);
            self.unread.write((self.left_bytes as u16).to_le());
        }
        Some(body)
    }

    /// The extent of the fragment at which the run has ended, if that is the record's last, is not empty, and takes one entry.
    #[inline]
    pub(crate) fn last_size(&self) -> Option<Extent> {
        // SAFETY: as in `take`.
        let size = u32::from(unsafe { self.size.read() });
        let extent = Extent { header_bytes: size >> 12, total_bytes: size & 0xfff };
        let is_last = extent.total_bytes as usize == self.left_bytes;
        (is_last && extent.total_bytes > extent.header_bytes).then_some(extent)
    }

    /// A record as it is when what the run has taken is counted in; `slot` is the record's, `at` the place where the run began.
    #[inline]
    pub(crate) fn settled(&self, slot: Slot, record: &Record, at: &At) -> Record {
        let mut record = *record;
        if self.begun_at.is_some() && slot == at.slot && self.left_bytes != at.left_bytes {
            record.unread_bytes = self.left_bytes as u16;
            record.bits = record.bits & !bit::FIRST_TAKEN | bit::STARTED;
        }
        record
    }
}

impl TraceBuffer {
    /// Begins a run at a place whose fragment continues nothing. `at` is the reader's.
    #[inline]
    pub(crate) fn start_run(&mut self) {
        let at = &self.reader.at;
        let sizes = self.records.block_sizes(at.slot, at.sizes_at);
        if at.left_bytes == 0 || at.continues || sizes.is_empty() {
            return;
        }
        self.reader.run = Run {
            size: sizes.as_ptr(),
            next: self.ring.pointer(at.offset),
            left_bytes: at.left_bytes,
            unread: self.ring.unread_pointer(at.header),
            begun_at: Some(sizes.as_ptr()),
        };
    }

    /// Ends a run: record and read pass get to know what it has taken.
    #[inline]
    pub(crate) fn settle(&mut self) {
        let reader = &mut self.reader;
        let Some(begun_at) = reader.run.begun_at else { return };
        let run = std::mem::take(&mut reader.run);
        let at = &mut reader.at;
        if run.left_bytes == at.left_bytes {
            return;
        }
        at.offset += at.left_bytes - run.left_bytes;
        at.left_bytes = run.left_bytes;
        // SAFETY: both point into one list of sizes.
        at.sizes_at += unsafe { run.size.offset_from_unsigned(begun_at) };
        let record = self.records.get_mut(at.slot);
        record.unread_bytes = run.left_bytes as u16;
        record.bits = record.bits & !bit::FIRST_TAKEN | bit::STARTED;
    }
}
