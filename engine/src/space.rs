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
//!
//! A shard of a larger buffer has a queue of extents instead ([`crate::extents`]): the cursor moves through the newest.

use crate::extents::Extents;
use crate::records::{Record, Records, Slot};

/// One extent that is overwritten in place, or a queue of extents.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    size_bytes: usize,
    used_bytes: usize,
    cursor: usize,
    /// Where the room behind the cursor ends: `cursor <= limit <= size`.
    limit: usize,
    /// Not there in a buffer of one shard.
    pub(crate) extents: Option<Box<Extents>>,
}

impl Space {
    /// One extent. Before its end the cursor stops for the first time at `first_stop`, at most `size_bytes`.
    pub(crate) fn new(size_bytes: usize, first_stop: usize) -> Space {
        Space { size_bytes, used_bytes: 0, cursor: 0, limit: first_stop, extents: None }
    }

    /// Whether there is room behind the one that ends here, in a buffer of one extent.
    pub(crate) fn stops_early(&self) -> bool {
        self.limit < self.size_bytes
    }

    /// The next stop of the first lap.
    pub(crate) fn go_on_to(&mut self, stop: usize) {
        debug_assert!(self.limit < stop && stop <= self.size_bytes);
        self.limit = stop;
    }

    /// Extents of `extent_bytes` (a power of two) in a region of `size_bytes`; none of them is ours yet.
    pub(crate) fn in_extents(size_bytes: usize, extent_bytes: usize) -> Space {
        let extents = Some(Box::new(Extents::new(size_bytes, extent_bytes)));
        Space { size_bytes, used_bytes: 0, cursor: 0, limit: 0, extents }
    }

    /// Goes on at the beginning of an extent.
    pub(crate) fn enter(&mut self, start: usize, len: usize) {
        (self.cursor, self.limit) = (start, start + len);
    }

    /// Has no room any more.
    pub(crate) fn leave(&mut self) {
        self.limit = self.cursor;
    }

    /// Bytes between the cursor and the end of the room.
    #[inline]
    pub(crate) fn left_bytes(&self) -> usize {
        self.limit - self.cursor
    }

    /// The first byte behind `offset` at which no record goes on: the end of its extent.
    #[inline]
    pub(crate) fn seam(&self, offset: usize) -> usize {
        match &self.extents {
            None => self.used_bytes,
            Some(extents) => extents.end_of(offset),
        }
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
        outer_bytes <= self.limit - self.cursor
    }

    /// Starts again at the beginning.
    pub(crate) fn wrap(&mut self) {
        self.cursor = 0;
        self.limit = self.size_bytes;
    }

    /// Takes `outer_bytes` that fit.
    #[inline]
    pub(crate) fn advance(&mut self, outer_bytes: usize) {
        debug_assert!(self.fits(outer_bytes));
        self.cursor += outer_bytes;
        if self.cursor > self.used_bytes {
            self.used_bytes = self.cursor;
        }
    }

    /// The outer size of a record: it ends where the next one begins, or at a seam.
    #[inline]
    pub(crate) fn outer_bytes(&self, records: &Records, slot: Slot) -> usize {
        let (offset, next) = records.extent(slot);
        let end = next.unwrap_or(self.cursor);
        let seam = self.seam(offset);
        if end > offset && end <= seam { end - offset } else { seam - offset }
    }

    /// The outer size of a record that ends where the next one of the list begins; none if there is a seam between the two.
    #[inline]
    pub(crate) fn outer_bytes_before(&self, record: &Record, next: &Record) -> Option<usize> {
        self.outer_bytes_between(record.offset(), next.offset())
    }

    /// The same of a record at `offset`, where the next one of the list is at `end`.
    #[inline]
    pub(crate) fn outer_bytes_between(&self, offset: usize, end: usize) -> Option<usize> {
        (offset < end && end <= self.seam(offset)).then(|| end - offset)
    }
}
