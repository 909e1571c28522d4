//! The fragments of the record at hand that need no thought: what a packet costs most of the time.
//!
//! While a run is on, what it has taken is in the run and in the ring's header only. [`TraceBuffer::settle`] writes it into the record and
//! into the place of the read pass; it comes before anything that looks at either, and before every write.

use crate::buffer::TraceBuffer;
use crate::read::{Mode, Reader};
use crate::records::{Record, Slot, bit};
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
    /// The unread bytes in the record's header, in the ring.
    unread: *mut u16,
    /// Entries that were left when the run began; `None` when no run is on.
    begun_at: Option<*const u16>,
}

/// What `size` points to when no run is on: a fragment that has no body.
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
            kept_bytes: 0,
            unread: std::ptr::null_mut(),
            begun_at: None,
        }
    }
}

impl Run {
    /// The body of the next fragment, which is consumed. None where the run ends. Where [`is_at_end`](Self::is_at_end) then, the run must be
    /// settled before the next call.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<*const [u8]> {
        // SAFETY: without a run this is `NOTHING`. In a run bytes are left, since it is settled when there are no more; the sizes of a
        // record add up to its visible bytes, so that an entry is there; and the lists of sizes do not change before the run is settled.
        let size = usize::from(unsafe { self.size.read() });
        let (header, total) = (size >> 12, size & 0xfff);
        // Neither what is kept nor empty, nor the first of two entries (15 above, at most 10 below).
        if total > self.left_bytes || total <= header {
            return None;
        }
        let body = std::ptr::slice_from_raw_parts(self.next.wrapping_add(header), total - header);
        self.next = self.next.wrapping_add(total);
        self.left_bytes -= total;
        // SAFETY: the entry's end is in the list or behind its last. The header lies in the ring at a multiple of 16, is no part of
        // any payload, and is written by nobody else while the buffer is borrowed exclusively.
        unsafe {
            self.size = self.size.add(1);
            self.unread.write((self.unread_bytes() as u16).to_le());
        }
        Some(body)
    }

    /// Begins a run at a place, of which these are the sizes from there on. False, and nothing done, if what comes next is no packet of a run.
    #[inline(always)]
    pub(crate) fn start(&mut self, at: &At, sizes: &[u16], headers: &Headers<'_>) -> bool {
        let Some(&first) = sizes.first() else { return false };
        let (header, total) = (usize::from(first >> 12), usize::from(first & 0xfff));
        let kept_bytes = usize::from(at.goes_on);
        if at.continues || total <= header || total + kept_bytes > at.left_bytes {
            return false;
        }
        *self = Run {
            size: sizes.as_ptr(),
            next: headers.pointer(at.offset),
            left_bytes: at.left_bytes - kept_bytes,
            kept_bytes,
            unread: headers.unread_pointer(at.header),
            begun_at: Some(sizes.as_ptr()),
        };
        true
    }

    /// The body of the fragment that is kept, if it comes next. Nothing is consumed.
    #[inline(always)]
    pub(crate) fn kept(&self) -> Option<*const [u8]> {
        if self.kept_bytes == 0 {
            return None;
        }
        // SAFETY: as in `take`; with a fragment that is kept a run is on.
        let size = usize::from(unsafe { self.size.read() });
        let (header, total) = (size >> 12, size & 0xfff);
        // Not the first of two entries (15 above, at most 10 below).
        let is_next = total == self.unread_bytes() && total >= header;
        is_next.then(|| std::ptr::slice_from_raw_parts(self.next.wrapping_add(header), total - header))
    }

    /// Ends without a word to anybody.
    #[inline(always)]
    pub(crate) fn stop(&mut self) {
        self.size = &raw const NOTHING;
        (self.left_bytes, self.kept_bytes, self.begun_at) = (0, 0, None);
    }

    /// Whether nothing is left, or, if a fragment is kept, perhaps only that.
    #[inline(always)]
    pub(crate) fn is_at_end(&self) -> bool {
        self.left_bytes == 0
    }

    /// Bytes of the record that are unread.
    #[inline(always)]
    fn unread_bytes(&self) -> usize {
        self.left_bytes + self.kept_bytes
    }

    /// A record as it is when what the run has taken is counted in; `slot` is the record's, `at` the place where the run began.
    #[inline]
    pub(crate) fn settled(&self, slot: Slot, record: &Record, at: &At) -> Record {
        let mut record = *record;
        if self.begun_at.is_some() && slot == at.slot && self.unread_bytes() != at.left_bytes {
            record.unread_bytes = self.unread_bytes() as u16;
            record.bits = record.bits & !bit::FIRST_TAKEN | bit::STARTED;
        }
        record
    }
}

impl TraceBuffer {
    /// Begins a run where the reader stands. False, and nothing done, if what comes next is no packet of a run. What was lost before
    /// goes with the first packet, which must be taken now.
    #[inline]
    pub(crate) fn start_run(&mut self) -> bool {
        let TraceBuffer { records, sequences, ring, reader, .. } = self;
        let sizes = records.block_sizes(reader.at.slot, reader.at.sizes_at);
        let is_on = reader.run.start(&reader.at, sizes, &ring.headers());
        if is_on {
            reader.take_loss(sequences.get_mut(reader.sequence));
        }
        is_on
    }

    /// The run has taken all that it can: the record may be read to its end.
    #[inline(never)]
    pub(crate) fn end_run(&mut self) {
        self.settle();
        let At { slot, left_bytes, stretch, .. } = self.reader.at;
        if left_bytes != 0 {
            return;
        }
        match self.records.rest_of_block(slot).records {
            [record, next, ..] if stretch > 1 && !record.has(bit::COUNTED_READ) => {
                record.bits |= bit::COUNTED_READ;
                self.stats.chunks_read += 1;
                self.stats.bytes_read += (next.offset() - record.offset()) as u64;
            }
            _ => self.note_drained(slot, Mode::Read),
        }
    }

    /// Ends a run: record and read pass get to know what it has taken.
    #[inline]
    pub(crate) fn settle(&mut self) {
        let Reader { run, at, .. } = &mut self.reader;
        let Some(begun_at) = run.begun_at else { return };
        let unread_bytes = run.unread_bytes();
        // SAFETY: both point into one list of sizes.
        let taken = unsafe { run.size.offset_from_unsigned(begun_at) };
        run.stop();
        if taken == 0 {
            return;
        }
        at.offset += at.left_bytes - unread_bytes;
        at.left_bytes = unread_bytes;
        at.sizes_at += taken;
        let record = self.records.get_mut(at.slot);
        record.unread_bytes = unread_bytes as u16;
        record.bits = record.bits & !bit::FIRST_TAKEN | bit::STARTED;
    }
}
