//! Bytes of the current packet: into the image, or straight into shared memory.

use super::{Core, SIZE_FIELD_BYTES, SizeField};
use crate::writer::varint::MAX_VARINT_BYTES;

/// A tag and a number, each at its longest.
const MAX_FIELD_BYTES: usize = 2 * MAX_VARINT_BYTES;
/// From this length on bytes go straight to shared memory instead of through the image.
const DIRECT_FROM_BYTES: usize = 512;

impl Core {
    /// Appends a field that is at most [`MAX_FIELD_BYTES`] long: `put` writes it and returns its
    /// length. Where there is room for the longest one it is written in its place.
    #[inline]
    pub(in crate::writer) fn append_field(&mut self, put: impl FnOnce(&mut [u8; MAX_FIELD_BYTES]) -> usize) {
        let place = self.image[..self.capacity].get_mut(self.position..);
        if let Some(place) = place.and_then(|place| place.first_chunk_mut()) {
            let len = put(place);
            self.position += len;
            self.body_bytes += len as u64;
        } else {
            let mut bytes = [0; MAX_FIELD_BYTES];
            let len = put(&mut bytes);
            self.append(&bytes[..len]);
        }
    }

    #[inline]
    pub(in crate::writer) fn append(&mut self, bytes: &[u8]) {
        // No room at all while discarding: there is no chunk then.
        if bytes.len() <= self.capacity - self.position && bytes.len() < DIRECT_FROM_BYTES {
            self.image[self.position..self.position + bytes.len()].copy_from_slice(bytes);
            self.position += bytes.len();
            self.body_bytes += bytes.len() as u64;
        } else {
            self.append_slowly(bytes);
        }
    }

    #[cold]
    pub(super) fn append_slowly(&mut self, mut bytes: &[u8]) {
        self.leave_if_forked();
        self.body_bytes += bytes.len() as u64;
        while !self.discarding && !bytes.is_empty() {
            let room = self.capacity - self.position;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.place(now);
            bytes = later;
            if !bytes.is_empty() {
                self.cross();
            }
        }
    }

    /// Puts bytes that fit behind the others of the fragment.
    pub(super) fn place(&mut self, bytes: &[u8]) {
        let end = self.position + bytes.len();
        if bytes.len() < DIRECT_FROM_BYTES {
            self.image[self.position..end].copy_from_slice(bytes);
        } else {
            self.sync();
            if let Some(current) = &self.current {
                self.arbiter.smb().write_payload(&current.chunk, self.position, bytes);
            }
            self.synced = end;
        }
        self.position = end;
    }

    /// Four zero bytes in one chunk, for a size; returns where.
    pub(super) fn reserve_size_field(&mut self) -> SizeField {
        if !self.discarding && self.capacity - self.position < SIZE_FIELD_BYTES {
            self.cross();
        }
        self.body_bytes += SIZE_FIELD_BYTES as u64;
        if self.discarding {
            return SizeField::Lost;
        }
        let at = self.position;
        self.image[at..at + SIZE_FIELD_BYTES].fill(0);
        self.position += SIZE_FIELD_BYTES;
        SizeField::Here(at)
    }
}
