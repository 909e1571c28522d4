//! Nested messages: where the size of each open one goes once it is known.

use super::{COMPACT_BELOW, Core, OpenMessage, SIZE_FIELD_BYTES, SizeField};
use crate::writer::varint::{MAX_SIZE, redundant};

impl Core {
    /// Opens a message behind a tag that was just appended.
    pub(in crate::writer) fn open_message(&mut self) {
        let size_field = self.reserve_size_field();
        self.open.push(OpenMessage { size_field, body_start: self.body_bytes });
    }

    /// Closes all messages that are deeper than `depth`, innermost first.
    pub(in crate::writer) fn close_messages(&mut self, depth: usize) {
        while self.open.len() > depth {
            let Some(message) = self.open.pop() else { return };
            self.close_message(message);
        }
    }

    pub(super) fn close_message(&mut self, OpenMessage { size_field, body_start }: OpenMessage) {
        // Within MAX_SIZE: a larger packet was given up, and what its size fields say then does not
        // matter.
        let size = (self.body_bytes - body_start).min(MAX_SIZE);
        let field = redundant(size as u32);
        match size_field {
            SizeField::Lost => {}
            SizeField::Patch(ticket) => self.patches.resolve(ticket, field),
            SizeField::Here(at) if (size as usize) < COMPACT_BELOW && at >= self.synced => {
                self.compact(at, size as u8);
                self.body_bytes -= (SIZE_FIELD_BYTES - 1) as u64;
            }
            SizeField::Here(at) => self.overwrite(at, field),
        }
    }

    /// Shortens the size field at `at` to one byte; its `size` bytes are the last ones, and private
    /// still.
    pub(super) fn compact(&mut self, at: usize, size: u8) {
        debug_assert_eq!(self.position, at + SIZE_FIELD_BYTES + usize::from(size));
        self.image[at] = size;
        self.image.copy_within(at + SIZE_FIELD_BYTES..self.position, at + 1);
        self.position -= SIZE_FIELD_BYTES - 1;
    }

    /// Fills in a size field of the current chunk, wherever it is by now.
    pub(super) fn overwrite(&mut self, at: usize, field: [u8; SIZE_FIELD_BYTES]) {
        if at >= self.synced && self.current.is_some() {
            self.image[at..at + SIZE_FIELD_BYTES].copy_from_slice(&field);
        } else if !self.leave_if_forked()
            && let Some(current) = &self.current
        {
            // Size fields are never half synced: they lie in front of what was synced with them.
            self.arbiter.smb().write_payload(&current.chunk, at, &field);
        }
    }
}
