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
//! `cursor <= used <= size`, all multiples of 16. Only this module knows about ends and wraps;
//! records and sequences know offsets.
//!
//! A shard of a larger buffer has a queue of extents instead ([`super::extents`]): the cursor moves
//! through the newest.

use super::extents::Extents;

/// One extent that is overwritten in place, or a queue of extents.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    size_bytes: usize,
    used_bytes: usize,
    cursor: usize,
    /// Where the room behind the cursor ends: `cursor <= limit <= size`.
    limit: usize,
    /// None in a buffer of one shard.
    extents: Option<Box<Extents>>,
}

impl Space {
    /// One extent of `size_bytes`.
    pub(crate) fn new(size_bytes: usize) -> Space {
        Space { size_bytes, used_bytes: 0, cursor: 0, limit: size_bytes, extents: None }
    }

    /// Extents of `extent_bytes` (a power of two) in a region of `size_bytes`; none is granted yet.
    pub(crate) fn in_extents(size_bytes: usize, extent_bytes: usize) -> Space {
        let extents = Some(Box::new(Extents::new(size_bytes, extent_bytes)));
        Space { size_bytes, used_bytes: 0, cursor: 0, limit: 0, extents }
    }

    /// The extents, unless this is one ring.
    #[inline]
    pub(crate) fn extents(&self) -> Option<&Extents> {
        self.extents.as_deref()
    }

    /// As [`extents`](Self::extents).
    #[inline]
    pub(crate) fn extents_mut(&mut self) -> Option<&mut Extents> {
        self.extents.as_deref_mut()
    }

    /// Opens the extent that was granted: the cursor moves to its start.
    ///
    /// # Panics
    /// If there are no extents, or none was granted.
    pub(crate) fn open_granted_extent(&mut self, newest_ticket: u64) {
        let extents = self.extents.as_mut().expect("a shard has extents");
        let extent = extents.open_granted(newest_ticket);
        (self.cursor, self.limit) = (extent.start, extent.end);
    }

    /// Leaves no room behind the cursor.
    pub(crate) fn close(&mut self) {
        self.limit = self.cursor;
    }

    /// Bytes between the cursor and the end of the room.
    #[inline]
    pub(crate) fn left_bytes(&self) -> usize {
        self.limit - self.cursor
    }

    /// The first byte behind `offset` that no record crosses: the end of its extent.
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

    /// Whether `outer_bytes` fit between the cursor and the end of the room.
    #[inline]
    pub(crate) fn fits(&self, outer_bytes: usize) -> bool {
        outer_bytes <= self.limit - self.cursor
    }

    /// Whether a record of `outer_bytes` may need an extent that has not been granted.
    #[inline]
    pub(crate) fn needs_extent(&self, outer_bytes: usize) -> bool {
        self.extents.as_ref().is_some_and(|extents| !self.fits(outer_bytes) && !extents.has_granted())
    }

    /// Starts again at the beginning.
    pub(crate) fn wrap(&mut self) {
        self.cursor = 0;
        self.limit = self.size_bytes;
    }

    /// Takes `outer_bytes` that fit.
    ///
    /// # Panics
    /// If they do not fit: what lies behind the limit may be another shard's.
    #[inline]
    pub(crate) fn advance(&mut self, outer_bytes: usize) {
        assert!(self.fits(outer_bytes));
        self.cursor += outer_bytes;
        if self.cursor > self.used_bytes {
            self.used_bytes = self.cursor;
        }
    }

    /// The outer size of a record at `offset` when the next one of the list is at `end`. None if
    /// there is a seam between the two.
    #[inline]
    pub(crate) fn outer_bytes_between(&self, offset: usize, end: usize) -> Option<usize> {
        (offset < end && end <= self.seam(offset)).then(|| end - offset)
    }
}
