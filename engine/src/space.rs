//! Where the next record goes.
//!
//! A buffer of one shard is one extent that is overwritten in place:
//!
//! ```text
//!   0                cursor                      used            size
//!   +----------------+---------------------------+---------------+
//!   | newest records | oldest records            | never written |
//!   +----------------+---------------------------+---------------+
//! ```
//!
//! `cursor <= used <= size`, all multiples of 16. Only this concept knows about ends and wraps; records and sequences know offsets.

use crate::records::{Record, Records, Slot};

/// One extent, overwritten in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    size_bytes: usize,
    used_bytes: usize,
    cursor: usize,
}

impl Space {
    pub(crate) fn new(size_bytes: usize) -> Space {
        Space { size_bytes, used_bytes: 0, cursor: 0 }
    }

    /// All bytes.
    #[inline]
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Bytes that records have ever covered; the others are zero.
    #[inline]
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Where the next record goes, if it fits there.
    #[inline]
    pub(crate) fn cursor(&self) -> usize {
        self.cursor
    }

    /// Whether `outer_bytes` fit between the cursor and the end.
    #[inline]
    pub(crate) fn fits(&self, outer_bytes: usize) -> bool {
        outer_bytes <= self.size_bytes - self.cursor
    }

    /// Starts again at the beginning.
    pub(crate) fn wrap(&mut self) {
        self.cursor = 0;
    }

    /// Takes `outer_bytes` that fit.
    #[inline]
    pub(crate) fn advance(&mut self, outer_bytes: usize) {
        debug_assert!(self.fits(outer_bytes));
        self.cursor += outer_bytes;
        self.used_bytes = self.used_bytes.max(self.cursor);
    }

    /// The outer size of a record: it ends where the next one begins, or at a seam.
    #[inline]
    pub(crate) fn outer_bytes(&self, records: &Records, slot: Slot) -> usize {
        let offset = records.get(slot).offset();
        match records.next(slot).map(|next| records.get(next).offset()) {
            Some(next) if next > offset => next - offset,
            None if self.cursor > offset => self.cursor - offset,
            _ => self.used_bytes - offset,
        }
    }

    /// The offset of the oldest record, when it is the next to be overwritten. None while nothing lies at the cursor.
    #[inline]
    pub(crate) fn oldest_at_cursor(&self, oldest: &Record) -> Option<usize> {
        (self.cursor < self.used_bytes).then(|| oldest.offset())
    }
}
